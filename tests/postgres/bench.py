"""`python -m tests.postgres.bench [--rows 1000000]`: the rows a second out of a topic into a table, and back,
each compared with a bare COPY of the same rows, and the memory of a load of ten times as many."""

from __future__ import annotations

import argparse
import io
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.csv as pa_csv
from rich import box
from rich.console import Console
from rich.table import Table

import txn_engine
from tests.support.postgres import PostgresServer, postgres_binaries
from txn_engine.bench.memory import most_resident_bytes
from txn_engine.bench.payments import SCHEMA, payments
from txn_engine.engine import Engine
from txn_engine.postgres import consume_into, insert_into, load_query

_ROUNDS = 5
_BATCH = 100_000
_AIM, _AIM_MB = 0.7, 512
_QUERY = "SELECT * FROM payments"


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.postgres.bench", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--load-alone", nargs=2, metavar=("URL", "DSN"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.load_alone:
        return _load_alone(*chosen.load_alone)
    binaries = postgres_binaries()
    if binaries is None:
        raise SystemExit("no Postgres: install Debian's `postgresql`, or run .ci/setup-debian")
    with PostgresServer(binaries) as server, tempfile.TemporaryDirectory() as folder:
        _measure(server.dsn, f"file://{Path(folder)}/ledger", chosen.rows)
    return 0


def _measure(dsn: str, url: str, rows: int) -> None:
    table = payments(rows)
    with txn_engine.connect(url) as engine, psycopg.connect(dsn) as connection:
        engine.admin.create_topic("payments", partitions=4, schema=SCHEMA, key="account_id")
        _produce(engine, table)
        text = io.BytesIO()
        pa_csv.write_csv(table, text, pa_csv.WriteOptions(include_header=False, quoting_style="all_valid"))
        consume_into(connection, _consumer(engine, "first"), insert_into("payments", create=True))
        connection.execute("CREATE TABLE ours (LIKE payments)")
        connection.execute("CREATE TABLE bare (LIKE payments)")
        connection.commit()
        names = ", ".join(SCHEMA.names)
        shown = Table("rows a second", "ours>", "bare COPY>", "ratio>", f"aim {_AIM}", box=box.SIMPLE)
        ours: list[float] = []
        bare: list[float] = []
        for turn in range(_ROUNDS):
            _empty(connection)
            ours.append(_timed(lambda t=turn: consume_into(  # type: ignore[misc]
                connection, _consumer(engine, f"out-{t}"), insert_into("ours"), max_records=_BATCH)))  # fmt: skip
            bare.append(
                _timed(lambda: _copy(connection, f"COPY bare ({names}) FROM STDIN (FORMAT csv)", text))
            )
        shown.add_row("topic into table", *_ratio(rows, ours, bare))
        ours, bare = [], []
        for turn in range(_ROUNDS):
            engine.admin.create_topic(f"in-{turn}", partitions=4, schema=SCHEMA, key="account_id")
            ours.append(_timed(lambda t=turn: load_query(  # type: ignore[misc]
                engine, connection, _QUERY, f"in-{t}", run_id="1")))  # fmt: skip
            bare.append(_timed(lambda: _read(connection)))
        shown.add_row("table into topic", *_ratio(rows, ours, bare))
        for _ in range(9):
            _copy(connection, f"COPY payments ({names}) FROM STDIN (FORMAT csv)", text)
        engine.admin.create_topic("alone", partitions=4, schema=SCHEMA, key="account_id")
    done = subprocess.run(
        [sys.executable, "-m", "tests.postgres.bench", "--load-alone", url, dsn],
        check=True,
        capture_output=True,
        text=True,
    )
    Console().print(shown)
    Console().print(f"memory of a load of {rows * 10:,} rows: {done.stdout.strip()} MB (aim {_AIM_MB})")


def _load_alone(url: str, dsn: str) -> int:
    with txn_engine.connect(url) as engine, psycopg.connect(dsn) as connection:
        load_query(engine, connection, _QUERY, "alone", run_id="1")
    print(most_resident_bytes() // 2**20)
    return 0


def _produce(engine: Engine, table: pa.Table) -> None:
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("payments", table)


def _consumer(engine: Engine, group: str):  # type: ignore[no-untyped-def]
    consumer = engine.consumer({"group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe(["payments"])
    return consumer


def _empty(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    connection.execute("TRUNCATE ours, bare")
    connection.commit()


def _copy(connection: psycopg.Connection[tuple[object, ...]], command: str, text: io.BytesIO) -> None:
    with connection.transaction(), connection.cursor() as cursor, cursor.copy(command) as copy:  # type: ignore[arg-type]
        whole = text.getbuffer()
        for at in range(0, len(whole), 1 << 20):
            copy.write(whole[at : at + (1 << 20)])


def _read(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    command = f"COPY ({_QUERY}) TO STDOUT (FORMAT csv)"
    with connection.transaction(), connection.cursor() as cursor, cursor.copy(command) as copy:  # type: ignore[arg-type]
        for _ in copy:
            pass


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _ratio(rows: int, ours: list[float], bare: list[float]) -> tuple[str, str, str, str]:
    mine, theirs = statistics.median(ours), statistics.median(bare)
    return f"{rows / mine:,.0f}", f"{rows / theirs:,.0f}", f"{theirs / mine:.2f}", ""


if __name__ == "__main__":
    sys.exit(main())
