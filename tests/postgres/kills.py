"""`python -m tests.postgres.kills [--rounds 500]`: consume_into, load_query and load_outbox are killed
(SIGKILL) before and after every statement and every store operation in turn. Then they are killed at random,
and so is the database: the backends of its connections, or the whole server, which then recovers from its
log.

After each kill the job is run again to its end: each row is there once, as a record or, if it does not fit,
as a dead letter. Prints how many kills there were.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psycopg
from psycopg import Connection, Cursor
from rich.console import Console
from rich.progress import track

from storage import LocalStore
from tests.postgres.conftest import SCHEMA, payments, produce
from tests.support.kills import in_a_child, kill_myself
from tests.support.postgres import PostgresServer, postgres_binaries
from tests.support.waiting import wait_for
from txn_engine import Engine
from txn_engine.loading import DEAD_LETTERS
from txn_engine.postgres import consume_into, insert_into, load_outbox, load_query

Victim = Literal["process", "connections", "server"]

_OPERATIONS = ("put_if_absent", "put", "get", "get_range", "list", "delete", "head", "exists")
ROWS = 12
_BATCH = 5
_BAD_EVERY = 6
_RETRY_HELPS, _TRIES = 3, 100
_JOB_LIMIT_S = 280.0


@dataclass
class Fuse:
    """Kills the victim before or after the operation with a number, and counts the operations."""

    number: int
    after: bool
    victim: Victim
    server: PostgresServer
    count: int = 0

    def around(self, work: Callable[..., Any], *words: Any, **more: Any) -> Any:
        """Do the work, and kill the victim if this is its moment."""
        self.count += 1
        due = self.count == self.number
        if due and not self.after:
            self._go()
        found = work(*words, **more)
        if due and self.after:
            self._go()
        return found

    def _go(self) -> None:
        if self.victim == "process":
            kill_myself()
        elif self.victim == "server":
            os.kill(self.server.pid, signal.SIGQUIT)
            wait_for(lambda: not self.is_up(), what="the end of the server")
        else:
            with psycopg.connect(self.server.dsn, autocommit=True) as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )

    def is_up(self) -> bool:
        """Whether the server accepts connections."""
        try:
            psycopg.connect(self.server.dsn).close()
        except psycopg.OperationalError:
            return False
        return True


class FusedStore:
    """A store at each operation of which the process may die."""

    def __init__(self, inner: LocalStore, fuse: Fuse) -> None:
        self._inner, self._fuse = inner, fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in _OPERATIONS:
            return found
        return lambda *words, **more: self._fuse.around(found, *words, **more)


def fused_connection(dsn: str, fuse: Fuse) -> Connection[Any]:
    """A connection whose every statement is counted, with BEGIN, COMMIT and the end of COPY."""

    class FusedCursor(Cursor[Any]):
        def execute(self, *words: Any, **more: Any) -> Any:
            return fuse.around(super().execute, *words, **more)

    class FusedConnection(Connection[Any]):
        def wait(self, *words: Any, **more: Any) -> Any:
            """Count each exchange with the server."""
            return fuse.around(super().wait, *words, **more)

    return FusedConnection.connect(dsn, cursor_factory=FusedCursor)


# --- the jobs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """A job. `feed` puts rows of these numbers into its source, `run` runs it, and `there` says what has
    arrived."""

    name: str
    feed: Callable[[Engine, Connection[Any], range], None]
    run: Callable[[Engine, Connection[Any], str], object]
    there: Callable[[Engine, Connection[Any]], list[int]]


def _insert(connection: Connection[Any], table: str, rows: range) -> None:
    with connection.transaction(), connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO {table} (account_id, amount) VALUES (%s, %s)",  # type: ignore[arg-type]
            [(n, "0.001" if n % _BAD_EVERY == 0 else "1") for n in rows],
        )


def _in_topic(topic: str) -> Callable[[Engine, Connection[Any]], list[int]]:
    def read(engine: Engine, _: Connection[Any]) -> list[int]:
        found: list[int] = engine.scan(topic).to_table(["account_id"])["account_id"].to_pylist()
        letters = engine.scan(f"{topic}-dead").to_table(["columns"])["columns"].to_pylist()
        dead = [int(json.loads(columns)["account_id"]) for columns in letters]
        assert all(number % _BAD_EVERY == 0 for number in dead)
        return found + dead

    return read


def _out(engine: Engine, connection: Connection[Any], _: str) -> None:
    with engine.consumer({"group.id": "out", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["source"])
        consume_into(connection, consumer, insert_into("arrived"), max_records=_BATCH)


def _arrived(_: Engine, connection: Connection[Any]) -> list[int]:
    with connection.transaction():
        return [row[0] for row in connection.execute("SELECT account_id FROM arrived")]


def _query(engine: Engine, connection: Connection[Any], run: str) -> None:
    first = int(run) * ROWS
    query = "SELECT account_id, amount, note FROM rows"
    key_range = ("account_id", first, first + ROWS)
    load_query(
        engine,
        connection,
        query,
        "queried",
        key_range=key_range,
        transactional_id=f"load-query/{int(run) // 50}",  # an id knows its last hundred runs
        dead_letter_topic="queried-dead",
    )


def _outbox(engine: Engine, connection: Connection[Any], _: str) -> None:
    load_outbox(engine, connection, "outbox", "drained", batch_rows=_BATCH, dead_letter_topic="drained-dead")


JOBS = (
    Job("consume_into", lambda engine, _, rows: produce(engine, payments(*rows), "source"), _out, _arrived),
    Job(
        "load_query",
        lambda _, connection, rows: _insert(connection, "rows", rows),
        _query,
        _in_topic("queried"),
    ),
    Job(
        "load_outbox",
        lambda _, connection, rows: _insert(connection, "outbox", rows),
        _outbox,
        _in_topic("drained"),
    ),
)


class Bench:
    """A store and a database in which the jobs run, each time on new rows."""

    def __init__(self, server: PostgresServer, dsn: str, folder: Path) -> None:
        self._server, self._dsn = server, dsn
        self._count, self._said = folder / "operations", folder / "error"
        self._store = LocalStore(folder / "ledger")
        self._rounds: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        with Engine(self._store) as engine:
            for topic in ("source", "queried", "drained"):
                engine.admin.create_topic(topic, partitions=2, schema=SCHEMA, key="account_id")
                if topic != "source":
                    engine.admin.create_topic(f"{topic}-dead", partitions=1, schema=DEAD_LETTERS)
        columns = "account_id bigint, amount numeric, note text"
        with psycopg.connect(dsn) as connection:
            connection.execute(f"CREATE TABLE arrived ({columns})")
            connection.execute(f"CREATE TABLE rows ({columns})")
            connection.execute(
                f"CREATE TABLE outbox (id bigserial PRIMARY KEY, {columns}, txn_engine_run text)"
            )

    def operations(self, job: Job) -> int:
        """The number of operations of the job."""
        self.one(job, 0, after=False)
        return int(self._count.read_text())

    def one(self, job: Job, number: int, *, after: bool, victim: Victim = "process") -> bool:
        """Kill the job at the operation with this number, and run it again. Returns False if the job has
        fewer operations.

        Raises AssertionError if a row is not there once.
        """
        turn = self._rounds[job.name]
        self._rounds[job.name] += 1
        rows = range(turn * ROWS, (turn + 1) * ROWS)
        with Engine(self._store) as engine, psycopg.connect(self._dsn) as connection:
            job.feed(engine, connection, rows)
            engine.admin.snapshot()  # or every run would have more to read than the one before, and more to die at
        fuse = Fuse(number, after, victim, self._server)
        died = self._child(job, str(turn), fuse)
        if not fuse.is_up():
            self._server.wait_until_down()
            self._server.start_again()
        self._run_again(job, str(turn), Fuse(0, after, victim, self._server))
        with Engine(self._store) as engine, psycopg.connect(self._dsn) as connection:
            found = sorted(job.there(engine, connection))
        assert found == list(range((turn + 1) * ROWS)), (
            f"{job.name}, {victim} killed {'after' if after else 'before'} operation {number}:"
            f" {_difference(found, turn)}"
        )
        self.kills[f"{job.name}, {victim}"] += died != 0
        return died != 0

    def _run_again(self, job: Job, run: str, fuse: Fuse) -> None:
        """Run the job to its end. If the server has not noticed yet that a client is gone, and still holds
        its locks, run it again."""
        for _ in range(_TRIES):
            ended = self._child(job, run, fuse)
            if ended != _RETRY_HELPS:
                break
            time.sleep(0.1)
        assert ended == 0, f"{job.name}: the second run failed, {ended}: {self._said.read_text()}"

    def _child(self, job: Job, run: str, fuse: Fuse) -> int:
        """Run the job in a process of its own. Returns the process's exit code."""

        def work() -> None:
            with (
                Engine(FusedStore(self._store, fuse)) as engine,  # type: ignore[arg-type]
                fused_connection(self._dsn, fuse) as connection,
            ):
                job.run(engine, connection, run)
            self._count.write_text(str(fuse.count))

        def failed(error: BaseException) -> int:
            self._said.write_text(repr(error))
            return _RETRY_HELPS if getattr(error, "retry_helps", False) else 1

        return in_a_child(work, failed=failed, limit_s=_JOB_LIMIT_S)


def _difference(found: list[int], turn: int) -> str:
    counted = Counter(found)
    twice = [number for number, count in counted.items() if count > 1]
    missing = [number for number in range((turn + 1) * ROWS) if number not in counted]
    return f"twice {twice[:5]}, missing {missing[:5]}"


def every_operation(bench: Bench, job: Job, *, step: int = 1, first: int = 1) -> Iterator[int]:
    """Kill before and after every operation, or every `step`th, until the job has no more. Returns the
    numbers."""
    number = first
    while bench.one(job, number, after=False):
        bench.one(job, number, after=True)
        yield number
        number += step


def at_random(bench: Bench, rounds: int, seed: int) -> Iterator[None]:
    """Run this many rounds of a random job, operation and victim."""
    chance = random.Random(seed)
    most = {job.name: bench.operations(job) for job in JOBS}
    for _ in range(rounds):
        job = chance.choice(JOBS)
        victim = chance.choices(("process", "connections", "server"), (6, 2, 2))[0]
        number = chance.randint(1, most[job.name])
        bench.one(job, number, after=chance.random() < 0.5, victim=victim)  # type: ignore[arg-type]
        yield


def main(arguments: list[str] | None = None) -> int:
    """Run everything. Returns 0 if each row was there once, always."""
    parser = argparse.ArgumentParser(prog="python -m tests.postgres.kills", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=500, help="random ones, behind those of every operation (500)"
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    chosen = parser.parse_args(arguments)
    console = Console()
    console.print(f"kills of database jobs: seed {chosen.seed}")
    binaries = postgres_binaries()
    if binaries is None:
        console.print("no Postgres: install Debian's `postgresql`, or run .ci/setup-debian")
        return 2
    with PostgresServer(binaries) as server, tempfile.TemporaryDirectory() as folder:
        bench = Bench(server, server.dsn, Path(folder))
        for job in JOBS:
            operations = max(every_operation(bench, job))
            console.print(f"{job.name}: killed before and after each of {operations} operations")
        rounds = at_random(bench, chosen.rounds, chosen.seed)
        for _ in track(rounds, "at random", total=chosen.rounds, console=console):
            pass
        console.print(f"{bench.kills.total():,} kills, each row there once: {dict(bench.kills)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
