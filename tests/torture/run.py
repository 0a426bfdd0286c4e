"""Rounds over a store, with progress, and the table at their end."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from tests.postgres.kills import Bench, at_random
from tests.storage.power_lives import cut_random_lives
from tests.support.postgres import PostgresServer, postgres_binaries
from tests.support.power import Survey
from tests.support.servers import minio_binary
from tests.torture.storm import Arena, Toll

STORES = ("minio", "local")
ROUNDS_PER_LEDGER = 8
_ROWS = (
    "power cuts survived", "kills of database jobs", "of them the database itself", "kills", "stops",
    "server restarts", "requests", "connections dropped",
    "of them the request came later", "answers changed", "refused or delayed", "objects audited", "records audited",
)  # fmt: skip
_DONE = (
    ("transactions committed", "committed"),
    ("transactions aborted", "refused"),
    ("outcomes nobody could know", "unknown"),
    ("acknowledgements audited", "promises kept"),
    ("forked children refused", "children refused"),
    ("of them did work of their own", "children at work"),
    ("compactions", "Compacted"),
    ("trims", "Trimmed"),
    ("sealings", "Sealed"),
    ("clean-ups", "Cleaned"),
)


def torture(
    stores: Sequence[str],
    *,
    rounds: int,
    seconds: float,
    seed: int,
    keep: bool = False,
    minutes: float | None = None,
    lives_per_round: int = 0,
    database_kills_per_round: int = 0,
    console: Console | None = None,
) -> Toll:
    """Run rounds on each store, print the table, and return their results.

    The folder stays if there are findings, or with `keep`. `minutes` limits the rounds, with an equal share
    for each store, and a run stops between two rounds. For each round on the local store, `lives_per_round`
    random lives of it run with a power cut at every moment. `database_kills_per_round` is the number of kills
    of the jobs between topics and a Postgres.
    """
    console = console or Console()
    amount = f"{rounds} rounds" if minutes is None else f"{minutes:g} minutes, rounds"
    console.print(f"torture: seed {seed}, {amount} of {seconds:g} s on {' and '.join(stores)}")
    total = Toll()
    tolls: dict[str, Toll] = {}
    for number, store in enumerate(stores):
        until = math.inf if minutes is None else time.monotonic() + minutes * 60 / len(stores)
        tolls[store] = _of_store(store, rounds, until, seconds, seed + number, keep, console)
        if store == "local":
            _cut_power(lives_per_round * tolls[store].rounds, seed, tolls[store], console)
            limit_s = math.inf if minutes is None else minutes * 60 / 4
            jobs = database_kills_per_round * tolls[store].rounds
            _kill_database_jobs(jobs, limit_s, seed, tolls[store], console)
        total.add(tolls[store])
    console.print(_table(tolls, total))
    if total.errors:
        console.print(
            "errors met by the workers: " + ", ".join(f"{k} {n}" for k, n in total.errors.most_common())
        )
    for finding in total.findings:
        console.print(f"finding: {finding}", style="red", markup=False, soft_wrap=True)
    return total


def _of_store(
    store: str, rounds: int, until: float, seconds: float, seed: int, keep: bool, console: Console
) -> Toll:
    minio = minio_binary() if store == "minio" else None
    if store == "minio" and minio is None:
        raise FileNotFoundError("no MinIO server: run `make minio`, or set TXN_ENGINE_MINIO to the binary")
    toll = Toll()
    folder = Path(tempfile.mkdtemp(prefix=f"torture-{store}-"))
    try:
        with (
            Arena(folder, minio=minio, seed=seed, toll=toll) as arena,
            Progress(*_columns(), console=console) as bar,
        ):
            task = bar.add_task(store, total=None if until < math.inf else rounds, state="")
            while toll.rounds < rounds and not toll.findings and time.monotonic() < until:
                with arena.ledger() as storms:
                    for _ in range(min(ROUNDS_PER_LEDGER, rounds - toll.rounds)):
                        findings = storms.round(seconds)
                        bar.update(task, advance=1, state=_state(toll))
                        if findings or time.monotonic() >= until:
                            break
                if not console.is_terminal:
                    console.print(f"{store}: {toll.rounds} rounds, {_state(toll)}")
    finally:
        if toll.findings or keep:
            console.print(f"store and journals stay in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return toll


def _cut_power(lives: int, seed: int, toll: Toll, console: Console) -> None:
    with Progress(*_columns(), console=console) as bar:
        task = bar.add_task("power cuts", total=lives, state="")

        def show(so_far: Survey) -> None:
            state = f"{so_far.cuts:,} cuts, {so_far.disks:,} disks, {len(so_far.broken)} broken"
            bar.update(task, advance=1, state=state)

        result = cut_random_lives(lives, seed, show)
    toll.counts["power cuts survived"] += result.cuts
    toll.findings += [f"power cut: {line}" for line in result.broken]


def _kill_database_jobs(rounds: int, limit_s: float, seed: int, toll: Toll, console: Console) -> None:
    until = time.monotonic() + limit_s
    binaries = postgres_binaries()
    if not rounds or binaries is None:
        if rounds:
            console.print("no Postgres, so no kills of database jobs: install Debian's `postgresql`")
        return
    with (
        PostgresServer(binaries) as server,
        tempfile.TemporaryDirectory(prefix="torture-postgres-") as folder,
        Progress(*_columns(), console=console) as bar,
    ):
        bench = Bench(server, server.dsn, Path(folder))
        task = bar.add_task("database jobs", total=rounds, state="")
        try:
            for _ in at_random(bench, rounds, seed):
                bar.update(task, advance=1, state=f"{bench.kills.total():,} kills")
                if time.monotonic() >= until:
                    break
        except AssertionError as error:
            toll.findings.append(f"database jobs: {error}")
    toll.counts["kills of database jobs"] += bench.kills.total()
    toll.counts["of them the database itself"] += sum(
        count for name, count in bench.kills.items() if not name.endswith("process")
    )


def _columns() -> tuple[ProgressColumn, ...]:
    return (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )


def _state(toll: Toll) -> str:
    done = toll.done
    return (
        f"{toll.counts['kills']} kills, {toll.counts['stops']} stops, "
        f"{done['committed']} committed, {done['refused']} aborted, {len(toll.findings)} findings"
    )


def figures(toll: Toll) -> dict[str, int]:
    """The figures of a toll, by the names of the table."""
    counts = {name: toll.counts[name] for name in _ROWS}
    done = {label: toll.done[name] for label, name in _DONE}
    return {"rounds": toll.rounds, **counts, **done, "findings": len(toll.findings)}


def _table(tolls: dict[str, Toll], total: Toll) -> Table:
    table = Table("", *tolls, "in all", title="torture", title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    counted = [figures(toll) for toll in (*tolls.values(), total)]
    for name in counted[0]:
        table.add_row(name, *(f"{of[name]:,}" for of in counted))
    return table
