"""Ours and Kafka's as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

_WHAT = """\
a transaction: 4 partitions, 100 rows each, the same values; ours by 4 calls of produce, on the disk when a call
  returns, in {objects} objects; Kafka's by {peer}, a record a row, in the broker's page cache"""


def print_kafka(console: Console, report: Mapping[str, Any]) -> None:
    """The document that `--json` prints, with its notes."""
    table = Table(
        title=f"txn-engine bench --kafka, {report['store']} beside {report['broker']}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("ms, p50 and p99")
    for name in ("ours", "Kafka", "ratio", "aim"):
        table.add_column(name, justify="right")
    for row in report["rows"]:
        ours, theirs = (
            f"{row[f'{whose}_p50']:.1f}  {row[f'{whose}_p99']:.1f}" for whose in ("ours", "kafka")
        )
        aim = "" if row["aim"] is None else f"at most {row['aim']}"
        table.add_row(row["name"], ours, theirs, f"{row['ratio']:.2f}", aim)
    console.print(table)
    notes = [_WHAT.format(**report)]
    notes += [f"{row['name']}: {row['note']}; {row['rounds']} rounds" for row in report["rows"]]
    console.print("\n".join(f"  {note}" for note in notes), style="dim", highlight=False)
