"""What the log says of itself, as tables that fit an XCom and read well in a task's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NotRequired, TypedDict

from txn_engine_airflow import metrics
from txn_engine_airflow.alerts import UNKNOWN_HOLDER, Settings
from txn_engine_airflow.assets import COORDINATOR_TOPIC
from txn_engine_airflow.errors import TaskError, TaskReason
from txn_engine_airflow.hook import open_engine_of_run

if TYPE_CHECKING:
    from txn_engine import Engine
    from txn_engine.protocol.measures import PartitionMeasures
    from txn_engine.types import GroupDescription
    from txn_engine.unreadable import Unreadable

log = logging.getLogger(__name__)

_ROWS_MAX = 1_000
_NAMED_MAX = 5

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
    "held_back",
    "pending_offset",
    "pending_producer_id",
]
HANGING_COLUMNS = ["topic", "partition", "producer_id", "producer_epoch", "start_offset", "open_for_s"]

LETTER_COLUMNS = ["topic", "letters", "records", "dead_letter_topic"]

Cell = str | int


class Table(TypedDict):
    """Rows worst first, `rows_left_out` of them cut off; an offset or number that is not there is -1.

    `unreadable`: place and error of what the rows lack, because it cannot be read.
    """

    columns: list[str]
    rows: list[list[Cell]]
    rows_left_out: int
    unreadable: NotRequired[list[list[str]]]


def write_snapshots(conn_id: str) -> dict[str, int]:
    """Write a snapshot of every partition that has grown; how many, by topic."""
    written: dict[str, int] = {}
    with open_engine_of_run(conn_id) as engine:
        found = engine.admin.snapshot()
    for topic, _ in sorted(found):
        written[topic] = written.get(topic, 0) + 1
    log.info(
        "snapshots written: %s", ", ".join(f"{topic} {n}" for topic, n in written.items()) or "none was due"
    )
    if found.unreadable:
        raise TaskError(
            f"snapshots written: {sum(written.values())}, but not all could be read ({len(found.unreadable)} damaged): "
            f"{'; '.join(map(str, found.unreadable[:_NAMED_MAX]))}",
            reason=TaskReason.DAMAGED,
        )
    return written


def last_stable_offsets(conn_id: str) -> Table:
    """LSO of every partition of every topic, how far it trails the log's end, and who holds it there.

    `held_by` is the transactional id of the earliest open transaction ("producer 7" where no coordinator row has it, ""
    where nothing is held), `held_for_s` the seconds since that transaction began (where no row has it: last wrote), -1
    where a clock is wrong; `holder_state` and `holder_timeout_s` are its coordinator row's ("" and -1 where there is
    none). `open_transactions` counts those without a marker, decided ones too.
    """
    with open_engine_of_run(conn_id) as engine:
        measured = engine.admin.measure_partitions()
        now_ms = engine.clock()
    for at in measured:
        metrics.tell_lso_lag(at.topic, at.partition, at.held_back_offsets)
    is_certain = not any(each.topic == COORDINATOR_TOPIC for each in measured.unreadable)
    unowned = "" if is_certain else UNKNOWN_HOLDER
    rows = [_stable_row(at, now_ms, unowned) for at in measured]
    rows.sort(key=lambda row: -int(row[5]))
    return show("last stable offsets", LSO_COLUMNS, rows, measured.unreadable)


def hanging_transactions(conn_id: str) -> Table:
    """Transactions open on a partition for longer than any may be, with no coordinator row behind them.

    The coordinator's log is read where nothing is suspect too: damage there is told of before somebody waits for it.
    """
    with open_engine_of_run(conn_id) as engine:
        limit_ms = engine.limits.max_transaction_timeout_ms
        found = engine.admin.find_hanging_transactions(max_transaction_timeout_ms=limit_ms)
        coordinator = engine.coordinator.rows().unreadable
    named = {each.place: each for each in (*found.unreadable, *coordinator)}
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
    return show("hanging transactions", HANGING_COLUMNS, rows, [*named.values()])


def group_lags(conn_id: str) -> Table:
    """Every group's position against the LSO of the partitions it reads, and what waits behind that (`held_back`)."""
    with open_engine_of_run(conn_id) as engine:
        groups = engine.admin.list_groups()
        rows: list[list[Cell]] = []
        unreadable = list(groups.unreadable)
        for group in groups:
            found = _describe(engine, group)
            if found is not None:
                rows += _lag_rows(found)
                unreadable += found.unreadable
    rows.sort(key=lambda row: -int(row[5]))
    return show("groups", LAG_COLUMNS, rows, unreadable)


def dead_letters(conn_id: str) -> Table:
    """Of the rows that topics were to get in the last `dead_letters_window_s` seconds: those that became dead letters,
    and the records that they got (-1: not known). Topics without a letter are left out.
    """
    from txn_engine.loading import dead_letter_topics, rates

    window_ms = Settings.load().dead_letters_window_s * 1_000
    rows: list[list[Cell]] = []
    with open_engine_of_run(conn_id) as engine:
        since_ms = engine.clock() - window_ms
        takers = dead_letter_topics(engine)
        unreadable = list(takers.unreadable)
        for taker in takers:
            found = rates(engine, taker, since_ms=since_ms)
            metrics.tell_dead_letters(taker, sum(each.letters for each in found))
            unreadable += found.unreadable
            rows += [[each.topic, each.letters, each.records, taker] for each in found if each.letters]
    rows.sort(key=lambda row: -int(row[1]))
    return show("dead letters of late", LETTER_COLUMNS, rows, unreadable)


def rows_of(table: Table) -> list[Mapping[str, Cell]]:
    """The rows, each by column."""
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def lag_history(table: Table, before: Mapping[str, Sequence[int]], runs: int) -> dict[str, list[int]]:
    """The lag of each group on each topic in the last runs, this one last: what it was, and what `group_lags` says now.

    At most one more than `runs`: so many steps. A group that is gone is forgotten. One of which a partition, or the
    group itself, cannot be read stays as it was: a sum without that would look as if the consumer had caught up.
    """
    from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC

    damaged = {place for place, _ in table.get("unreadable", ())}
    sums: dict[str, int] = {}
    unknown: set[str] = set()
    for row in rows_of(table):
        name = f"{row['group']} on {row['topic']}"
        if not damaged.isdisjoint({str(row["topic"]), f"{row['topic']}-{row['partition']}"}):
            unknown.add(name)
        elif int(row["lag"]) >= 0:
            sums[name] = sums.get(name, 0) + int(row["lag"])
    if any(place.startswith(f"{CONSUMER_OFFSETS_TOPIC}-") for place in damaged):
        unknown.update(before.keys() - sums.keys())
    found = {name: [*before.get(name, ()), lag] for name, lag in sums.items() if name not in unknown}
    found |= {name: list(before[name]) for name in unknown if name in before}
    return {name: lags[-runs - 1 :] for name, lags in sorted(found.items())}


def _stable_row(at: PartitionMeasures, now_ms: int, unowned: str) -> list[Cell]:
    holder = at.holder
    return [
        at.topic,
        at.partition,
        at.log_start_offset,
        at.last_stable_offset,
        at.high_watermark,
        at.held_back_offsets,
        len(at.unfinished),
        holder.name if holder else "",
        _whole_s(holder.held_for_ms(now_ms)) if holder else -1,
        holder.state or unowned if holder else "",
        _whole_s(holder.timeout_ms) if holder else -1,
        at.aborted,
    ]


def _whole_s(duration_ms: int) -> int:
    return -1 if duration_ms < 0 else duration_ms // 1_000


def _describe(engine: Engine, group: str) -> GroupDescription | None:
    from txn_engine.errors import GroupIdNotFoundError

    try:
        return engine.admin.describe_group(group)
    except GroupIdNotFoundError:
        return None  # its last offset expired since it was listed


def _lag_rows(group: GroupDescription) -> Iterator[list[Cell]]:
    for at in group.partitions:
        yield [
            group.group_id,
            at.topic,
            at.partition,
            at.committed_offset,
            at.last_stable_offset,
            at.lag,
            at.held_back_offsets,
            at.pending_offset,
            at.pending_producer_id,
        ]


def show(
    title: str, columns: list[str], rows: list[list[Cell]], unreadable: Sequence[Unreadable] = ()
) -> Table:
    """Log the table as text, and return it, cut to a thousand rows; name what it lacks because it cannot be read."""
    cut = Table(columns=columns, rows=rows[:_ROWS_MAX], rows_left_out=max(len(rows) - _ROWS_MAX, 0))
    log.info("%s: %d\n%s", title, len(rows), as_text(cut))
    if unreadable:
        cut["unreadable"] = [[each.place, str(each.error)] for each in unreadable[:_ROWS_MAX]]
        log.error("not in this table, because it cannot be read: %s", "; ".join(map(str, unreadable)))
    return cut


def as_text(table: Table) -> str:
    """The table in columns, numbers to the right; what is not printable in a name is written in escapes."""
    from txn_engine.names import printable

    lines: list[Sequence[Cell]] = [table["columns"], *table["rows"]]
    shown = [[printable(str(cell)) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    text = [
        "  ".join(
            word.rjust(width) if isinstance(cell, int) else word.ljust(width)
            for cell, word, width in zip(line, words, widths, strict=True)
        ).rstrip()
        for line, words in zip(lines, shown, strict=True)
    ]
    if table["rows_left_out"]:
        text.append(f"... and {table['rows_left_out']} more")
    return "\n".join(text)
