"""The rounds as one document, and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from txn_engine.bench.rounds import Rounds

_EVENTS = ("returned", "visible", "complete")
_HOW = """\
  Each: rounds/the least possible, and the time in calls. Rounds are store calls one behind the other, counted in the
  store's own log; the time is what passed, with the processor's. returned: the call came back. visible: the Prepare
  row and all markers are there. complete: the Complete row too. A transaction goes to 4 partitions, markers inline.
  A cycle is consume-transform-produce. A first cycle, a plan and init_transactions are a fresh process's.
  The store is in memory and knows neither mapping nor spooling, as a bucket. The least rounds are, `;` between two:"""


def rounds_report(rows: Sequence[Rounds], call_ms: float) -> dict[str, Any]:
    """What `--json` prints."""
    return {"bench": "rounds", "call_ms": call_ms, "rows": [asdict(row) for row in rows]}


def print_rounds(console: Console, report: Mapping[str, Any]) -> None:
    """The same document as a table with its notes."""
    title = f"txn-engine bench --rounds, {report['call_ms']:g} ms a store call"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("what")
    for name in (*_EVENTS, "objects"):
        table.add_column(name, justify="right")
    for row in report["rows"]:
        least = row["least"]
        events = [_cell(row[event], least[event]) for event in _EVENTS]
        table.add_row(row["name"], *events, f"{row['objects']}/{least['objects']}")
    console.print(table)
    why = [f"    {row['name']}: {row['least']['why']}" for row in report["rows"]]
    console.print("\n".join([_HOW, *why]), style="dim", highlight=False)


def _cell(point: Mapping[str, Any] | None, least: int | None) -> str:
    return "" if point is None else f"{point['rounds']}/{least}  {point['time']:.1f}"
