"""The curves as tables, and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from txn_engine.bench.svg import Chart, Points, svg_of

Row = Mapping[str, Any]
_AIMS = (
    "aimed at, on one partition: eight writers 0.7 and sixteen 0.6 of one's appends, p99 at most 8 times the median,"
    " the slowest at least half of the quickest"
)


def print_growth(console: Console, report: Mapping[str, Any]) -> None:
    """The document that `--json` prints, a table a curve."""
    console.print(f"txn-engine bench --growth on {report['store']}", highlight=False)
    _print(console, "Appends of 100 rows by one process to one partition", report["appends"], {
        "up to the": lambda row: f"{row['number']:,}",
        "p50 ms": lambda row: f"{row['p50_ms']:.2f}",
        "p99 ms": lambda row: f"{row['p99_ms']:.2f}",
    })  # fmt: skip
    _print(console, "Processes that append 100 rows at once", report["writers"], {
        "writers": lambda row: str(row["writers"]),
        "partitions": lambda row: str(row["partitions"]),
        "appends/s": lambda row: f"{row['appends_a_second']:.0f}",
        "of one's": lambda row: f"{row['appends_a_second'] / _of_one(report, row):.2f}",
        "p50 ms": lambda row: f"{row['p50_ms']:.1f}",
        "p99 ms": lambda row: f"{row['p99_ms']:.1f}",
        "p99/p50": lambda row: f"{row['p99_ms'] / row['p50_ms']:.1f}",
        "slowest": lambda row: f"{row['slowest']:.2f}",
        "puts lost": lambda row: f"{row['lost']:.0%}",
        "given up": lambda row: str(row["refused"]),
    })  # fmt: skip
    _print(console, "A fresh process opens a partition", report["files"], {
        "live files": lambda row: f"{row['files']:,}",
        "s": lambda row: f"{row['open_s']:.2f}",
        "MB": lambda row: f"{row['memory_mb']:.0f}",
        "by snapshot s": lambda row: f"{row['open_by_snapshot_s']:.2f}",
        "by snapshot MB": lambda row: f"{row['memory_by_snapshot_mb']:.0f}",
        "snapshot MB": lambda row: f"{row['snapshot_mb']:.2f}",
    })  # fmt: skip
    _print(console, "Transactional ids at rest, in 50 coordinator partitions, s", report["ids"], {
        "ids": lambda row: f"{row['ids']:,}",
        "by snapshot": lambda row: "yes" if row["by_snapshot"] else "no",
        "init of one": lambda row: f"{row['init_s']:.2f}",
        "sweep": lambda row: f"{row['sweep_s']:.2f}",
        "list": lambda row: f"{row['list_s']:.2f}",
        "list again": lambda row: f"{row['again_s']:.3f}",
    })  # fmt: skip
    console.print(f"  {_AIMS}", style="dim", highlight=False)


def _of_one(report: Mapping[str, Any], row: Row) -> float:
    """The rate of a single writer on as many partitions."""
    rates = {each["partitions"]: each["appends_a_second"] for each in reversed(report["writers"])}
    return float(rates[row["partitions"]])


def _print(
    console: Console, title: str, rows: Sequence[Row], columns: Mapping[str, Callable[[Row], str]]
) -> None:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(shown(row) for shown in columns.values()))
    console.print(table)


def growth_svg(report: Mapping[str, Any]) -> str:
    """The same document as a picture of six charts."""
    one, sixteen = ([row for row in report["writers"] if row["partitions"] == number] for number in (1, 16))
    by_log, by_snapshot = (
        [row for row in report["ids"] if row["by_snapshot"] is given] for given in (False, True)
    )
    charts = [
        Chart("Append of 100 rows", "appends so far", "ms", {
            "p50": _line(report["appends"], "number", "p50_ms"),
            "p99": _line(report["appends"], "number", "p99_ms"),
        }),
        Chart("Writers at once", "processes", "appends a second, in all", {
            "one partition": _line(one, "writers", "appends_a_second"),
            "16 partitions": _line(sixteen, "writers", "appends_a_second"),
        }),
        Chart("Append among writers, p99", "processes", "ms", {
            "one partition": _line(one, "writers", "p99_ms"),
            "16 partitions": _line(sixteen, "writers", "p99_ms"),
        }),
        Chart("Opening a partition", "live files", "s", {
            "from the log": _line(report["files"], "files", "open_s"),
            "from a snapshot": _line(report["files"], "files", "open_by_snapshot_s"),
        }),
        Chart("Memory of an open partition", "live files", "MB", {
            "process, from the log": _line(report["files"], "files", "memory_mb"),
            "snapshot's size": _line(report["files"], "files", "snapshot_mb"),
        }),
        Chart("Transactional ids, fresh process", "ids", "s", {
            "sweep": _line(by_log, "ids", "sweep_s"),
            "by snapshots": _line(by_snapshot, "ids", "sweep_s"),
            "init of one": _line(by_log, "ids", "init_s"),
        }),
    ]  # fmt: skip
    return svg_of(charts, f"txn-engine bench --growth on {report['store'].partition(':')[0]}://")


def _line(rows: Sequence[Row], x: str, y: str) -> Points:
    return [(row[x], row[y]) for row in rows]
