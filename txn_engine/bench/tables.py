"""`txn-engine bench --tables`: what publishing a topic costs at its 10th version, its 1,000th and its 10,000th."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from txn_engine.bench.measure import timed
from txn_engine.bench.payments import SCHEMA, payments
from txn_engine.bench.progress import Progress
from txn_engine.engine import connect
from txn_engine.tables import FORMATS

QUICK, FULL = (10, 100, 1_000), (10, 1_000, 10_000)
AIM = 1.5
"""How much more the last point may take than the first."""
_ROWS = 100
_AROUND = 20
_KEEP_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Point:
    """The last versions up to the `versions`th: one append of 100 rows each, a cut, and the cut published.

    cut_ms, publish_ms: medians, the latter by format; growth: of publish_ms over that of the first point.
    """

    versions: int
    files: int
    append_ms: float
    cut_ms: float
    publish_ms: dict[str, float]
    growth: dict[str, float]


def tables_report(url: str, topic: str, points: tuple[int, ...], progress: Progress) -> dict[str, Any]:
    """A topic with as many files as versions, never merged; what `--json` prints."""
    with connect(url) as engine:
        engine.admin.create_topic(topic, partitions=1, schema=SCHEMA, key="account_id")
        log, records, found = engine.partition(topic, 0), payments(_ROWS), list[Point]()
        seconds: dict[str, list[float]] = {name: [] for name in ("append", "cut", *FORMATS)}
        for number in range(1, points[-1] + 1):
            seconds["append"].append(timed(partial(log.append, records)))
            began = time.perf_counter()
            cut = engine.cut(keep_ms=_KEEP_MS)
            seconds["cut"].append(time.perf_counter() - began)
            for name in FORMATS:
                seconds[name].append(timed(partial(engine.tables.publish, topic, name, cut=cut)))
            if number in points:
                files = len(engine.scan(topic).files())
                found.append(_point(number, files, seconds, found[0] if found else None))
            progress("versions", number, points[-1])
        return {
            "bench": "tables",
            "store": engine.url,
            "aim": AIM,
            "points": [asdict(each) for each in found],
        }


def _point(number: int, files: int, seconds: dict[str, list[float]], first: Point | None) -> Point:
    ms = {name: statistics.median(each[1:][-_AROUND:]) * 1e3 for name, each in seconds.items()}
    published = {name: ms[name] for name in FORMATS}
    before = published if first is None else first.publish_ms
    growth = {name: published[name] / before[name] for name in FORMATS}
    return Point(number, files, ms["append"], ms["cut"], published, growth)


def print_tables(console: Console, report: Mapping[str, Any]) -> None:
    """The document as a table."""
    console.print(f"txn-engine bench --tables on {report['store']}", highlight=False)
    title = "Publishing at a cut, after an append of 100 rows; medians in ms"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("versions", "live files", "append", "cut", *FORMATS, *(f"{each}, x" for each in FORMATS)):
        table.add_column(name, justify="right")
    for point in report["points"]:
        published, growth = point["publish_ms"], point["growth"]
        table.add_row(
            f"{point['versions']:,}",
            f"{point['files']:,}",
            f"{point['append_ms']:.1f}",
            f"{point['cut_ms']:.1f}",
            *(f"{published[name]:.1f}" for name in FORMATS),
            *(f"{growth[name]:.2f}" for name in FORMATS),
        )
    console.print(table)
    last = report["points"][-1]["growth"]
    for name in FORMATS:
        verdict = "met" if last[name] <= report["aim"] else "missed"
        console.print(
            f"  {name}: {last[name]:.2f} times the first; aimed at: at most {report['aim']}, {verdict}"
        )
