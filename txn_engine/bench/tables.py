"""`txn-engine bench --tables`: what publishing a topic costs at its 10th version, its 1,000th and its 10,000th, and
what the first query of the last one costs in engines of others.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table

from txn_engine.bench import first_queries
from txn_engine.bench.measure import timed
from txn_engine.bench.payments import SCHEMA, payments
from txn_engine.bench.progress import Progress
from txn_engine.engine import Engine, connect
from txn_engine.maintain import MaintenancePolicy
from txn_engine.tables import FORMATS

QUICK, FULL = (10, 100, 1_000), (10, 1_000, 10_000)
AIM = 1.5
"""How much more the last point may take than the first."""
_ROWS = 100
_AROUND = 20
_ANEW = 3
_KEEP_MS = 3_600_000
_MERGED = MaintenancePolicy(min_files=2)


@dataclass(frozen=True, slots=True)
class Point:
    """The last versions up to the `versions`th: one append of 100 rows each, a cut, and the cut published.

    cut_ms, publish_ms: medians, the latter by format. growth: of publish_ms over that of the first point. anew_ms: both
    and the opening of the store, for both formats, by an engine that knows nothing yet, as the command has it.
    """

    versions: int
    files: int
    append_ms: float
    cut_ms: float
    publish_ms: dict[str, float]
    growth: dict[str, float]
    anew_ms: float


@dataclass(slots=True)
class _Versions:
    """A topic that is appended to and published, again and again."""

    engine: Engine
    topic: str
    records: pa.Table
    seconds: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in ("append", "cut", "anew", *FORMATS)}
    )

    def one(self) -> None:
        """The next version of each table."""
        self._append()
        began = time.perf_counter()
        cut = self.engine.cut(keep_ms=_KEEP_MS)
        self.seconds["cut"].append(time.perf_counter() - began)
        for name in FORMATS:
            self.seconds[name].append(timed(partial(self.engine.tables.publish, self.topic, name, cut=cut)))

    def one_anew(self) -> None:
        """The same, by an engine that was opened for it."""
        self._append()
        began = time.perf_counter()
        with connect(self.engine.url) as other:
            other.tables.publish(self.topic)
        self.seconds["anew"].append(time.perf_counter() - began)

    def _append(self) -> None:
        log = self.engine.partition(self.topic, 0)
        self.seconds["append"].append(timed(partial(log.append, self.records)))

    def point(self, number: int, first: Point | None) -> Point:
        """What the last ones came to."""
        ms = {name: statistics.median(each[1:][-_AROUND:]) * 1e3 for name, each in self.seconds.items()}
        published = {name: ms[name] for name in FORMATS}
        before = published if first is None else first.publish_ms
        growth = {name: published[name] / before[name] for name in FORMATS}
        anew_ms = statistics.median(self.seconds["anew"][-_ANEW:]) * 1e3
        files = len(self.engine.scan(self.topic).files())
        return Point(number, files, ms["append"], ms["cut"], published, growth, anew_ms)


def tables_report(
    url: str, topic: str, points: tuple[int, ...], progress: Progress, *, rounds: int = first_queries.ROUNDS
) -> dict[str, Any]:
    """A topic with as many files as versions, not merged until all is measured; what `--json` prints."""
    with connect(url) as engine:
        engine.admin.create_topic(topic, partitions=1, schema=SCHEMA, key="account_id")
        versions, found = _Versions(engine, topic, payments(_ROWS)), list[Point]()
        for number in range(1, points[-1] + 1):
            is_anew = any(point - _ANEW < number <= point for point in points)
            (versions.one_anew if is_anew else versions.one)()
            if number in points:
                found.append(versions.point(number, found[0] if found else None))
            progress("versions", number, points[-1])
        queries = list(_queries(engine, topic, "as published", progress, rounds))
        engine.maintenance.compact(topic, policy=_MERGED)
        queries += _queries(engine, topic, "merged", progress, rounds)
        return {
            "bench": "tables",
            "store": engine.url,
            "aim": AIM,
            "points": [asdict(each) for each in found],
            "first_query_aim": first_queries.AIM,
            "first_queries": [each.to_dict() for each in queries],
        }


def _queries(
    engine: Engine, topic: str, state: str, progress: Progress, rounds: int
) -> list[first_queries.FirstQuery]:
    uris = engine.tables.publish(topic)
    return list(first_queries.first_queries(engine, topic, state, uris, progress, rounds=rounds))


def print_tables(console: Console, report: Mapping[str, Any]) -> None:
    """The document as tables."""
    console.print(f"txn-engine bench --tables on {report['store']}", highlight=False)
    title = "Publishing at a cut, after an append of 100 rows; medians in ms"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    growths = [f"{each}, x" for each in FORMATS]
    for name in ("versions", "live files", "append", "cut", *FORMATS, *growths, "anew"):
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
            f"{point['anew_ms']:.1f}",
        )
    console.print(table)
    last = report["points"][-1]["growth"]
    for name in FORMATS:
        verdict = "met" if last[name] <= report["aim"] else "missed"
        console.print(
            f"  {name}: {last[name]:.2f} times the first; aimed at: at most {report['aim']}, {verdict}"
        )
    console.print("  anew: both tables and their cut, by an engine that knows nothing yet", highlight=False)
    _print_queries(console, report)


def _print_queries(console: Console, report: Mapping[str, Any]) -> None:
    versions = report["points"][-1]["versions"]
    title = f"First query of the table of {versions:,} commits, over the same files bare; medians in ms"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("engine", "format", "files"):
        table.add_column(name)
    for name in ("table", "bare", "ratio"):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in report["first_queries"]:
        is_aimed_at = each["state"] == "as published"
        verdict = each["note"] or ("" if not is_aimed_at else "met" if each["met"] else "missed")
        shown = ("", "", "") if each["note"] else (
            f"{each['table_ms']:,.0f}", f"{each['bare_ms']:,.0f}", f"{each['ratio']:.2f}"
        )  # fmt: skip
        table.add_row(each["engine"], each["format"], f"{each['files']:,}, {each['state']}", *shown, verdict)
    console.print(table)
    console.print(f"  aimed at: at most {report['first_query_aim']} times, as published", highlight=False)
