"""What a load says at its end: where the records went."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from txn_engine.cli.output import Output, columns, number_of

if TYPE_CHECKING:
    from txn_engine.types import RecordMetadata

_PRODUCED = columns("Topic", "Partition>", "BaseOffset>", "LastOffset>", "Records>")


def tell_produced(out: Output, batches: Iterable[RecordMetadata], **more: object) -> None:
    """Print a row for each partition that got records, and their sum."""
    out.done()
    rows: dict[int, dict[str, Any]] = {}
    for batch in batches:
        row = rows.setdefault(
            batch.partition,
            {
                "topic": batch.topic,
                "partition": batch.partition,
                "base_offset": batch.base_offset,
                "last_offset": batch.last_offset,
                "records": 0,
            },
        )
        row["base_offset"] = min(row["base_offset"], batch.base_offset)
        row["last_offset"] = max(row["last_offset"], batch.last_offset)
        row["records"] += batch.last_offset - batch.base_offset + 1
    ordered = [rows[number] for number in sorted(rows)]
    total = sum(row["records"] for row in ordered)
    out.table("produced", _PRODUCED, ordered, records=total, **more)
    out.note(f"{number_of(total, 'record')}{_how(more)}")


def tell_committed_before(out: Output, transactional_id: str, run_id: str) -> None:
    """Say that nothing was loaded, and that nobody has compared what was named with what the run loaded."""
    out.done()
    out.line(
        f"run {run_id!r} of {transactional_id!r} was committed before, so nothing was loaded; the log knows runs and "
        "not files, so these were not compared with its own: give other files another --run-id, or keep a --manifest",
        produced=[],
        records=0,
        transactional_id=transactional_id,
        run_id=run_id,
        committed_before=True,
    )


def _how(more: dict[str, object]) -> str:
    dead = more.get("dead_letters")
    told = f" and {number_of(dead, 'dead letter')}" if isinstance(dead, int) else ""
    if "transactional_id" in more:
        told += f" committed in one transaction of {more['transactional_id']!r}"
    return told
