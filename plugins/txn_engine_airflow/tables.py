"""What the log says of itself, as tables that fit an XCom and read well in a task's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from txn_engine_airflow import metrics
from txn_engine_airflow.hook import open_engine

if TYPE_CHECKING:
    from txn_engine import Engine
    from txn_engine.protocol.partition import PartitionState
    from txn_engine.protocol.producers import ProducerEntry

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
    "holder_state",
    "holder_timeout_s",
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
HANGING_COLUMNS = ["topic", "partition", "producer_id", "producer_epoch", "start_offset", "open_for_s"]

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
    where nothing is held), `held_for_s` the seconds since that transaction began, or last wrote; `holder_state` and
    `holder_timeout_s` are its coordinator row's ("" and -1 where there is none).
    """
    with open_engine(conn_id) as engine:
        states = list(_partition_states(engine))
        holders = _Holders(engine)
        rows = [_stable_row(topic, number, state, holders) for topic, number, state in states]
        for topic, number, state in states:
            metrics.tell_lso_lag(topic, number, state.high_watermark - state.last_stable_offset)
    rows.sort(key=lambda row: -int(row[5]))
    return show("last stable offsets", LSO_COLUMNS, rows)


def hanging_transactions(conn_id: str) -> Table:
    """Transactions open on a partition for longer than any may be, with no coordinator row behind them."""
    with open_engine(conn_id) as engine:
        limit_ms = engine.config.limits.max_transaction_timeout_ms
        found = engine.admin.find_hanging_transactions(max_transaction_timeout_ms=limit_ms)
    rows: list[list[Cell]] = [
        [
            each.topic,
            each.partition,
            each.producer_id,
            each.producer_epoch,
            each.start_offset,
            each.duration_ms // 1_000,
        ]
        for each in found
    ]
    rows.sort(key=lambda row: -int(row[5]))
    return show("hanging transactions", HANGING_COLUMNS, rows)


def group_lags(conn_id: str) -> Table:
    """Every group's position against the LSO of the partitions it reads."""
    with open_engine(conn_id) as engine:
        rows = [row for group in engine.admin.list_groups() for row in _lag_rows(engine, group)]
    rows.sort(key=lambda row: -int(row[5]))
    return show("groups", LAG_COLUMNS, rows)


def rows_of(table: Table) -> list[Mapping[str, Cell]]:
    """The rows, each by column."""
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def lag_history(table: Table, before: Mapping[str, Sequence[int]], runs: int) -> dict[str, list[int]]:
    """The lag of each group on each topic in the last runs, this one last: what it was, and what `group_lags` says now.

    At most one more than `runs`: so many steps. A group that is gone is forgotten.
    """
    sums: dict[str, int] = {}
    for row in rows_of(table):
        if int(row["lag"]) >= 0:
            name = f"{row['group']} on {row['topic']}"
            sums[name] = sums.get(name, 0) + int(row["lag"])
    return {name: [*before.get(name, ()), lag][-runs - 1 :] for name, lag in sorted(sums.items())}


def _partition_states(engine: Engine) -> Iterator[tuple[str, int, PartitionState]]:
    from txn_engine.errors import UnknownTopicOrPartitionError

    for topic in engine.admin.list_topics():
        try:
            known = engine.admin.describe_topic(topic)
        except UnknownTopicOrPartitionError:
            continue  # deleted since it was listed
        logs = [engine.logs.get(topic, known.incarnation, number) for number in range(known.partitions)]
        for number, state in enumerate(engine.logs.refresh_all(logs)):
            yield topic, number, state


def _stable_row(topic: str, partition: int, state: PartitionState, holders: _Holders) -> list[Cell]:
    opened = sorted(
        (entry for _, entry in state.producers.items() if entry.is_open),
        key=lambda entry: entry.open_first_offset,
    )
    holder = holders.of(opened[0]) if opened else _NOBODY
    return [
        topic,
        partition,
        state.log_start_offset,
        state.last_stable_offset,
        state.high_watermark,
        state.high_watermark - state.last_stable_offset,
        len(opened),
        holder.name,
        holder.held_for_s,
        holder.state,
        holder.timeout_s,
        len(state.aborted),
    ]


class _Holder(NamedTuple):
    """Who holds readers back, for how long, and what its coordinator row says."""

    name: str
    held_for_s: int
    state: str
    timeout_s: int


_NOBODY = _Holder("", -1, "", -1)


class _Holders:
    """Who is behind a producer id; the coordinator's log is read once, and only where somebody holds something."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[int, _Holder] | None = None

    def of(self, entry: ProducerEntry) -> _Holder:
        """The holder behind a producer's open transaction."""
        if self._known is None:
            self._known = dict(self._rows())
        unknown = _Holder(f"producer {entry.producer_id}", self._since(entry.append_time), "", -1)
        return self._known.get(entry.producer_id, unknown)

    def _rows(self) -> Iterator[tuple[int, _Holder]]:
        from txn_engine.protocol.transaction_rows import TransactionState
        from txn_engine.protocol.transactions import start_of

        now_ms = self._engine.clock()
        for stored in self._engine.coordinator.rows():
            row = stored.row
            if row.state is TransactionState.ONGOING or row.state.is_prepared:
                held_for_s = self._since(start_of(stored, now_ms))
                holder = _Holder(
                    row.transactional_id, held_for_s, row.state.value, row.transaction_timeout_ms // 1_000
                )
                yield row.producer_id, holder

    def _since(self, at_ms: int) -> int:
        return max((self._engine.clock() - at_ms) // 1_000, 0)


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


def show(title: str, columns: list[str], rows: list[list[Cell]]) -> Table:
    """Log the table as text, and return it, cut to a thousand rows."""
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
