"""`txn-engine bench`: all numbers on one store, shown as a table or as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from txn_engine.bench import backups, cuts, growth, loads, scans, tables, writes
from txn_engine.bench.growth_shown import growth_svg, print_growth
from txn_engine.bench.kafka import QUICK, USUAL, kafka_report
from txn_engine.bench.kafka_shown import print_kafka
from txn_engine.bench.measure import Measured
from txn_engine.bench.progress import progress_on_stderr
from txn_engine.bench.rounds import rounds_table
from txn_engine.bench.rounds_shown import print_rounds, rounds_report
from txn_engine.bench.spark import SparkPart, spark_numbers
from txn_engine.clock import system_clock
from txn_engine.engine import Engine, connect
from txn_engine.errors import InvalidRequestError
from txn_engine.extras import is_installed, missing_package, need
from txn_engine.reasons import Reason
from txn_engine.spark.java import find_java_home

_SHOWN = {"rounds": print_rounds, "kafka": print_kafka, "growth": print_growth, "tables": tables.print_tables}
"""What prints each document but the usual one."""


def run_bench(
    *,
    url: str | None,
    json_output: bool,
    console: Console,
    quick: bool,
    spark: bool = True,
    spark_part: SparkPart | None = None,
    spark_rows: int | None = None,
) -> int:
    """Measure on the store at `url`, or on a durable local one in a temporary folder that is removed again.

    `spark_part`: that of what Spark does, of `spark_rows` rows unless as many as are usual, and nothing else. Raises
    `MissingPackageError` and `JavaNotFoundError`, for what Spark needs, before anything is measured.

    On a store that is named, the topics it makes (`bench-<time>-...`) are deleted at the end; their objects stay until
    the clean-up. Always 0: a number that misses its aim is printed as such, it is no failure.
    """
    if spark or spark_part is not None:
        need("spark", actor="bench")
        find_java_home()
    with _store_url(url) as place, connect(place) as engine:
        measure = (
            partial(_measure, spark=spark)
            if spark_part is None
            else partial(_measure_spark, part=spark_part, rows=spark_rows)
        )
        numbers = measure(engine, quick=quick)
        report = {"store": engine.url, "quick": quick, "numbers": [n.to_dict() for n in numbers]}
        _show(report, json_output=json_output, console=console)
    return 0


@contextmanager
def _store_url(url: str | None) -> Iterator[str]:
    """The store to measure on: the named one, or a local one in a folder that is removed again."""
    if url is not None:
        if url.startswith("memory:"):
            raise InvalidRequestError(
                "a store in memory",
                actor="bench",
                place=url,
                expected="one that other engines reach: a folder or a bucket",
                reason=Reason.STORE_IN_MEMORY,
            )
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="txn-engine-bench-", dir=".") as folder:
        yield f"file://{Path(folder).resolve()}/ledger"


def run_rounds(*, json_output: bool, console: Console, quick: bool, call_ms: float) -> int:
    """Count the rounds of every operation, over a store in memory whose calls take so long. Always 0."""
    tries = 1 if quick else 5
    with progress_on_stderr() as progress:
        rows = list(rounds_table(call_ms=call_ms, tries=tries, progress=progress))
    _show(rounds_report(rows, call_ms), json_output=json_output, console=console)
    return 0


def run_kafka(*, url: str | None, json_output: bool, console: Console, quick: bool, bootstrap: str) -> int:
    """Transactions of ours and of the Kafka broker at `bootstrap`, in turn, on the store as `run_bench` has it.

    The topics it makes are deleted on both sides. Always 0.
    """
    if not is_installed("confluent_kafka"):
        raise missing_package("confluent_kafka", actor="bench")
    with _store_url(url) as place, progress_on_stderr() as progress:
        name, size = f"bench-{system_clock()}", QUICK if quick else USUAL
        report = kafka_report(place, bootstrap, name, size=size, progress=progress)
        report["quick"] = quick
    _show(report, json_output=json_output, console=console)
    return 0


def run_backup(*, url: str | None, to: str | None, json_output: bool, console: Console, quick: bool) -> int:
    """Backups and a restore, each into places of its own below `to`, or beside a local store that is removed again.

    On a store that is named, its topics are deleted; what stands in a bucket `to` stays. Always 0.
    """
    name, sizes = f"bench-{system_clock()}", backups.QUICK if quick else backups.USUAL
    with _store_url(url) as place, connect(place) as engine, progress_on_stderr() as progress:
        places = backups.Places(f"{place}-{name}" if to is None else f"{to.rstrip('/')}/{name}")
        numbers = backups.backup_numbers(engine, name, places, sizes=sizes, progress=progress)
        found = list(map(_told, numbers))
        _delete_topics(engine, name)
        report = {
            "bench": "backup",
            "store": engine.url,
            "quick": quick,
            "numbers": [n.to_dict() for n in found],
        }
    _show(report, json_output=json_output, console=console)
    return 0


def run_sql(*, url: str | None, json_output: bool, console: Console, quick: bool, full: bool) -> int:
    """`engine.sql` beside bare DuckDB, on the store as `run_bench` has it. Always 0."""
    need("sql", actor="bench")
    from txn_engine.bench import sql

    sizes = sql.FULL if full else sql.QUICK if quick else sql.USUAL
    with _store_url(url) as place, connect(place) as engine:
        prefix = f"bench-{system_clock()}"
        with progress_on_stderr() as progress:
            found = list(map(_told, sql.sql_numbers(engine, prefix, sizes=sizes, progress=progress)))
        _delete_topics(engine, prefix)
        report = {"store": engine.url, "quick": quick, "numbers": [number.to_dict() for number in found]}
        _show(report, json_output=json_output, console=console)
    return 0


def run_tables(*, url: str | None, json_output: bool, console: Console, quick: bool) -> int:
    """What publishing costs as versions come, on the store as `run_bench` has it. Always 0."""
    need("tables", actor="bench")
    prefix = f"bench-{system_clock()}"
    with _store_url(url) as place, progress_on_stderr() as progress:
        points = tables.QUICK if quick else tables.FULL
        report = tables.tables_report(place, prefix, points, progress)
        with connect(place) as engine:
            _delete_topics(engine, prefix)
    _show(report, json_output=json_output, console=console)
    return 0


def _numbers_of(
    bench: str, numbers: Callable[..., Iterator[Measured]], *, url: str | None, quick: bool
) -> dict[str, Any]:
    """What a bench of this name that is made of numbers prints; its topics are deleted."""
    prefix = f"bench-{system_clock()}"
    with _store_url(url) as place, connect(place) as engine, progress_on_stderr() as progress:
        found = list(map(_told, numbers(engine, prefix, progress=progress)))
        _delete_topics(engine, prefix)
        return {
            "bench": bench,
            "store": engine.url,
            "quick": quick,
            "numbers": [number.to_dict() for number in found],
        }


def run_cuts(*, url: str | None, json_output: bool, console: Console, quick: bool) -> int:
    """Cuts of everything that is in the store, with transactions open, on the store as `run_bench` has it.

    On a store that is named, its topic and its cuts are deleted. Always 0.
    """
    sizes = cuts.QUICK if quick else cuts.USUAL
    report = _numbers_of("cuts", partial(cuts.cut_numbers, sizes=sizes), url=url, quick=quick)
    _show(report, json_output=json_output, console=console)
    return 0


def run_load(
    *, url: str | None, json_output: bool, console: Console, quick: bool, rows: int | None = None
) -> int:
    """Loads of csv with bad rows and without, on the store as `run_bench` has it. rows: of each file. Always 0."""
    sizes = loads.QUICK if quick else loads.USUAL
    if rows is not None:
        sizes = replace(sizes, rows=rows, large_rows=rows)
    report = _numbers_of("load", partial(loads.load_numbers, sizes=sizes), url=url, quick=quick)
    _show(report, json_output=json_output, console=console)
    return 0


def run_growth(*, url: str | None, json_output: bool, console: Console, full: bool, svg: Path | None) -> int:
    """The curves of `growth_report`, on the store as `run_bench` has it; a picture of them into the file `svg`.

    On a store that is named, the topics it makes are deleted; its transactional ids stay until they expire. Always 0.
    """
    errors = Console(stderr=True)
    with _store_url(url) as place:
        prefix, sizes = f"bench-{system_clock()}", growth.FULL if full else growth.QUICK
        report = growth.growth_report(place, prefix, sizes, lambda what: errors.print(what, style="dim"))
        with connect(place) as engine:
            _delete_topics(engine, prefix)
    if svg is not None:
        svg.write_text(growth_svg(report), encoding="utf-8")
    _show(report, json_output=json_output, console=console)
    return 0


def _show(report: Mapping[str, Any], *, json_output: bool, console: Console) -> None:
    if json_output:
        print(json.dumps(report, indent=2))
    else:
        print_report(console, report)


def _measure(engine: Engine, *, quick: bool, spark: bool) -> list[Measured]:
    prefix = f"bench-{system_clock()}"
    with progress_on_stderr() as progress:
        sizes = writes.QUICK if quick else writes.USUAL
        read = scans.QUICK if quick else scans.USUAL
        numbers = chain(
            writes.write_numbers(engine, prefix, sizes=sizes, progress=progress),
            scans.scan_numbers(engine, prefix, sizes=read, spark=spark, progress=progress),
        )
        found = list(map(_told, numbers))
    _delete_topics(engine, prefix)
    return found


def _measure_spark(engine: Engine, *, quick: bool, part: SparkPart, rows: int | None) -> list[Measured]:
    prefix = f"bench-{system_clock()}"
    errors = Console(stderr=True)

    def progress(what: str, done: int, total: int) -> None:
        errors.print(f"{what}: {done:,} of {total:,}", style="dim")

    numbers = spark_numbers(engine, prefix, part=part, rows=rows, quick=quick, progress=progress)
    found = list(map(_told, numbers))
    _delete_topics(engine, prefix)
    return found


def _told(number: Measured) -> Measured:
    """The number, once it was said on stderr: what was measured is not lost where a later one fails."""
    line = f"{number.name}: {number.ours:.3g} {number.unit}, ratio {number.ratio:.2f}"
    print(line, file=sys.stderr)  # a bar that is there moves out of the way of this, not of another console
    return number


def _delete_topics(engine: Engine, prefix: str) -> None:
    for topic in engine.admin.list_topics():
        if topic.startswith(prefix):
            engine.admin.delete_topic(topic)


def print_report(console: Console, report: Mapping[str, Any]) -> None:
    """The document that `--json` prints, as a table with its notes."""
    shown = _SHOWN.get(report.get("bench", ""))
    if shown is not None:
        shown(console, report)
        return
    numbers = [Measured(**number) for number in report["numbers"]]
    console.print(_table(report["store"], numbers))
    console.print(_notes(numbers), style="dim", highlight=False)


def _table(url: str, numbers: list[Measured]) -> Table:
    table = Table(title=f"txn-engine bench on {url}", title_justify="left")
    columns = {"what": "left", "ours": "right", "bare": "right", "ratio": "right", "aim": "left", "": "left"}
    for name, justify in columns.items():
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for number in numbers:
        verdict = "[green]met[/]" if number.met else "[yellow]missed[/]"
        ours, bare = (f"{value:,.2f} {number.unit}" for value in (number.ours, number.bare))
        table.add_row(number.name, ours, bare, f"{number.ratio:.2f}", number.aim, verdict)
    return table


def _notes(numbers: list[Measured]) -> str:
    """What each number stands for, below the table."""
    return "\n".join(f"  {number.name}: {number.note}; {number.rounds} rounds" for number in numbers)
