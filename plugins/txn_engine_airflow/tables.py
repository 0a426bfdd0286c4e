"""What the log says of itself, as tables that fit an XCom and read well in a task's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypedDict

from txn_engine_airflow.hook import open_engine

if TYPE_CHECKING:
    from txn_engine import Engine

log = logging.getLogger(__name__)

_ROWS_MAX = 1_000

LSO_COLUMNS = [
    "topic",
    "partition",
    "log_start_offset",
    "last_stable_offset",
    "high_watermark",
    "behind",
    "open_transactions",
    "held_by",
    "held_for_s",
    "aborted_transactions",
]
LAG_COLUMNS = [
    "group",
    "topic",
    "partition",
    "committed_offset",
    "last_stable_offset",
    "lag",
    "pending_offset",
    "pending_producer_id",
]

Cell = str | int


class Table(TypedDict):
    """Rows worst first, `rows_left_out` of them cut off; an offset or number that is not there is -1."""

    columns: list[str]
    rows: list[list[Cell]]
    rows_left_out: int


def write_snapshots(conn_id: str) -> dict[str, int]:
    """Write a snapshot of every partition that has grown; how many, by topic."""
    written: dict[str, int] = {}
    with open_engine(conn_id) as engine:
        for topic, _ in sorted(engine.admin.snapshot()):
            written[topic] = written.get(topic, 0) + 1
    log.info(
        "snapshots written: %s", ", ".join(f"{topic} {n}" for topic, n in written.items()) or "none was due"
    )
    return written


def last_stable_offsets(conn_id: str) -> Table:
    """LSO of every partition of every topic, how far it trails the log's end, and who holds it there.

    `held_by` is the transactional id of the earliest open transaction ("producer 7" where no coordinator row has it, ""
    where nothing is held), `held_for_s` the seconds since that transaction began, or last wrote.
    """
    with open_engine(conn_id) as engine:
        rows = [row for topic in engine.admin.list_topics() for row in _stable_rows(engine, topic)]
    rows.sort(key=lambda row: -int(row[5]))
    return _shown("last stable offsets", LSO_COLUMNS, rows)


def group_lags(conn_id: str) -> Table:
    """Every group's position against the LSO of the partitions it reads."""
    with open_engine(conn_id) as engine:
        rows = [row for group in engine.admin.list_groups() for row in _lag_rows(engine, group)]
    rows.sort(key=lambda row: -int(row[5]))
    return _shown("groups", LAG_COLUMNS, rows)


def _stable_rows(engine: Engine, topic: str) -> Iterator[list[Cell]]:
    from txn_engine.errors import UnknownTopicOrPartitionError

    try:
        partitions = engine.admin.describe_topic(topic).partitions
    except UnknownTopicOrPartitionError:
        return  # deleted since it was listed
    for partition in range(partitions):
        state = engine.partition(topic, partition).state
        open_entries = sorted(
            (entry for _, entry in state.producers.items() if entry.is_open),
            key=lambda entry: entry.open_first_offset,
        )
        holder, since_ms = "", -1
        if open_entries:
            holder, since_ms = _holder(engine, open_entries[0].producer_id, open_entries[0].last_timestamp)
        yield [
            topic,
            partition,
            state.log_start_offset,
            state.last_stable_offset,
            state.high_watermark,
            state.high_watermark - state.last_stable_offset,
            len(open_entries),
            holder,
            (engine.clock() - since_ms) // 1000 if since_ms >= 0 else -1,
            len(state.aborted),
        ]


def _holder(engine: Engine, producer_id: int, last_write_ms: int) -> tuple[str, int]:
    from txn_engine.errors import TransactionalIdNotFoundError

    for listing in engine.admin.list_transactions(producer_ids=[producer_id]):
        try:
            known = engine.admin.describe_transaction(listing.transactional_id)
        except TransactionalIdNotFoundError:
            continue  # expired since it was listed
        began_ms = known.transaction_start_ms
        return listing.transactional_id, began_ms if began_ms >= 0 else last_write_ms
    return f"producer {producer_id}", last_write_ms


def _lag_rows(engine: Engine, group: str) -> Iterator[list[Cell]]:
    from txn_engine.errors import GroupIdNotFoundError

    try:
        partitions = engine.admin.describe_group(group).partitions
    except GroupIdNotFoundError:
        return  # its last offset expired since it was listed
    for at in partitions:
        yield [
            group,
            at.topic,
            at.partition,
            at.committed_offset,
            at.last_stable_offset,
            at.lag,
            at.pending_offset,
            at.pending_producer_id,
        ]


def _shown(title: str, columns: list[str], rows: list[list[Cell]]) -> Table:
    """Log the table as text, and return it."""
    cut = Table(columns=columns, rows=rows[:_ROWS_MAX], rows_left_out=max(len(rows) - _ROWS_MAX, 0))
    log.info("%s: %d\n%s", title, len(rows), as_text(cut))
    return cut


def as_text(table: Table) -> str:
    """The table in columns, numbers to the right."""
    lines: list[Sequence[Cell]] = [table["columns"], *table["rows"]]
    widths = [max(len(str(line[at])) for line in lines) for at in range(len(table["columns"]))]
    text = [
        "  ".join(
            str(cell).rjust(width) if isinstance(cell, int) else str(cell).ljust(width)
            for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]
    if table["rows_left_out"]:
        text.append(f"... and {table['rows_left_out']} more")
    return "\n".join(text)
