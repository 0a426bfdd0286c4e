"""The Transactions pages: a list with filters, and one transactional id with its time line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate

from txn_engine.protocol.batches import BatchDescriptor
from txn_engine.protocol.measures import time_since_ms, transaction_start_ms
from txn_engine.protocol.producers import ProducerEntry
from txn_engine.protocol.transaction_rows import (
    StoredRow,
    TransactionPartition,
    TransactionRow,
    TransactionState,
)
from txn_engine.protocol.transactions import has_timed_out, start_of
from txn_engine_airflow.pages.moment import Moment
from txn_engine_airflow.pages.tails import TailRows

EARLIER_MAX = 25
EARLIER_STEPS = "Partitions added earlier"
_OPEN_FIRST = {
    TransactionState.PREPARE_COMMIT.value: 0,
    TransactionState.PREPARE_ABORT.value: 0,
    TransactionState.ONGOING.value: 1,
}


@dataclass(frozen=True, slots=True)
class TransactionLine:
    """One transactional id. `began_ms`: when its unfinished transaction began, by the log's time; -1: it has none."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    began_ms: int
    updated_ms: int
    is_overdue: bool
    partitions: int
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which ids to list. `pattern`: part of the id, `*` for anything; `None` and "" filter nothing."""

    states: frozenset[str] = frozenset()
    older_than_s: int = 0
    pattern: str = ""
    topic: str = ""


@dataclass(frozen=True, slots=True)
class TransactionList:
    """A page of the list; `found` are all that the filter lets through, of `total`."""

    now_ms: int
    total: int
    found: int
    lines: tuple[TransactionLine, ...]
    topics: tuple[str, ...]
    states: tuple[str, ...]


def transaction_line(stored: StoredRow, now_ms: int) -> TransactionLine:
    """The line of an id."""
    row = stored.row
    return TransactionLine(
        transactional_id=row.transactional_id,
        state=row.state.value,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        timeout_ms=row.transaction_timeout_ms,
        began_ms=transaction_start_ms(stored, now_ms),
        updated_ms=stored.append_time,
        is_overdue=has_timed_out(stored, now_ms),
        partitions=len(row.partitions),
        topics=tuple(sorted({part.topic for part in row.partitions})),
    )


def list_transactions(moment: Moment, wanted: Filter, *, first: int, count: int) -> TransactionList:
    """Lines `first` to `first + count` of those wanted: undecided and open ones first, the longest open on top."""
    lines = [transaction_line(stored, moment.now_ms) for stored in moment.transactions.values()]
    is_wanted = _wants(wanted, moment.now_ms)
    found = sorted((line for line in lines if is_wanted(line)), key=_rank)
    return TransactionList(
        now_ms=moment.now_ms,
        total=len(lines),
        found=len(found),
        lines=tuple(found[first : first + count]),
        topics=tuple(sorted(moment.topics)),
        states=tuple(state.value for state in TransactionState if state is not TransactionState.DEAD),
    )


def _rank(line: TransactionLine) -> tuple[int, int, str]:
    rank = _OPEN_FIRST.get(line.state, 2)
    return rank, line.began_ms if rank < 2 else -line.updated_ms, line.transactional_id


def _wants(wanted: Filter, now_ms: int) -> Callable[[TransactionLine], bool]:
    pattern = re.compile(translate(f"*{wanted.pattern}*"), re.IGNORECASE) if wanted.pattern else None

    def is_wanted(line: TransactionLine) -> bool:
        return (
            (not wanted.states or line.state in wanted.states)
            and (
                not wanted.older_than_s or time_since_ms(line.began_ms, now_ms) > wanted.older_than_s * 1_000
            )
            and (not wanted.topic or wanted.topic in line.topics)
            and (pattern is None or pattern.match(line.transactional_id) is not None)
        )

    return is_wanted


# --- one transactional id -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a transaction. `time_ms` -1: it was taken, the log does not say when any more."""

    name: str
    time_ms: int
    detail: str
    is_done: bool


@dataclass(frozen=True, slots=True)
class PartitionPart:
    """A partition of the transaction. `marker`: written, missing, or not needed (its topic was deleted)."""

    topic: str
    partition: int
    first_offset: int
    marker: str
    marker_ms: int


@dataclass(frozen=True, slots=True)
class Passage:
    """One transaction of an id, from its first row to its last one known. `outcome`: open, commit, abort. `began_ms`
    -1: further back in the log than what was read.
    """

    producer_id: int
    producer_epoch: int
    began_ms: int
    ended_ms: int
    outcome: str
    is_complete: bool
    run_id: str
    steps: tuple[Step, ...]
    partitions: tuple[PartitionPart, ...]


@dataclass(frozen=True, slots=True)
class TransactionDetail:
    """An id as its coordinator knows it, its present or last transaction, and earlier ones.

    `is_history_read` False: the log's rows are being read; asking again in a moment shows them.
    `history_damaged`: entries of that log, one line each, that cannot be read, and are missing here.
    """

    now_ms: int
    line: TransactionLine
    run_ids: tuple[str, ...]
    run_ids_complete: bool
    coordinator_partition: int
    is_history_read: bool
    history_damaged: tuple[str, ...]
    current: Passage | None
    earlier: tuple[Passage, ...]


def describe_transaction(
    moment: Moment, stored: StoredRow, rows: TailRows | None, coordinator_partition: int
) -> TransactionDetail:
    """The id whose latest row that is. `rows`: the coordinator log's last ones, None where they are not read yet."""
    seen = _own_rows(rows.rows if rows else (), stored)
    found = _transactions(seen)
    of_current = found.pop() if found and stored.row.state is not TransactionState.EMPTY else None
    return TransactionDetail(
        now_ms=moment.now_ms,
        line=transaction_line(stored, moment.now_ms),
        run_ids=tuple(reversed(stored.row.committed_run_ids)),
        run_ids_complete=stored.row.run_ids_complete,
        coordinator_partition=coordinator_partition,
        is_history_read=rows is not None,
        history_damaged=rows.damaged if rows else (),
        current=_passage(of_current, moment, start_of(stored, moment.now_ms)) if of_current else None,
        earlier=tuple(
            _passage(each, moment, -1 if _is_cut(each[0]) else each[0].time_ms)
            for each in reversed(found[-EARLIER_MAX:])
        ),
    )


@dataclass(frozen=True, slots=True)
class _Row:
    offset: int
    time_ms: int
    row: TransactionRow


def _own_rows(rows: Iterable[BatchDescriptor], stored: StoredRow) -> list[_Row]:
    """The id's rows up to its latest one, which is always there: with the start that the state remembers."""
    name = stored.row.transactional_id
    own = [
        _Row(batch.base_offset, batch.append_time, batch.row)
        for batch in rows
        if isinstance(batch.row, TransactionRow)
        and batch.row.transactional_id == name
        and batch.base_offset < stored.offset
    ]
    return [*own, _Row(stored.offset, stored.append_time, stored.row)]


def _transactions(rows: Sequence[_Row]) -> list[list[_Row]]:
    """The rows of each transaction. One begins with Ongoing after rest, or with a PrepareAbort of nothing."""
    found: list[list[_Row]] = []
    inside = False
    for at in rows:
        state = at.row.state
        if state in (TransactionState.EMPTY, TransactionState.DEAD):
            inside = False
            continue
        goes_on = inside and not (state is TransactionState.ONGOING and _is_over(found[-1][-1].row))
        if goes_on and state.is_prepared and _is_over(found[-1][-1].row):
            goes_on = False
        if goes_on and state is found[-1][-1].row.state and _is_over(at.row):
            continue  # the daily renewal of a row at rest
        if not goes_on:
            found.append([])
        found[-1].append(at)
        inside = True
    return found


def _is_over(row: TransactionRow) -> bool:
    return row.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def _is_cut(first: _Row) -> bool:
    """Whether the transaction had rows before this one, the first of it that was read. A row that begins one is of the
    time at which its transaction starts.
    """
    return _is_over(first.row) or first.row.start_ms != first.row.update_ms


def _passage(rows: Sequence[_Row], moment: Moment, began_ms: int) -> Passage:
    first, last = rows[0], rows[-1]
    decided = next((at for at in rows if at.row.state.is_prepared), None)
    complete = last if _is_over(last.row) else None
    with_partitions = [at for at in rows if at.row.partitions]
    members = with_partitions[-1].row.partitions if with_partitions else ()
    decision = decided.offset if decided else last.row.decision_offset
    producer_id = (decided or first).row.producer_id
    parts = tuple(_part(moment, each, producer_id, decision, complete is not None) for each in members)
    commits = (decided or last).row.state in (
        TransactionState.PREPARE_COMMIT,
        TransactionState.COMPLETE_COMMIT,
    )
    outcome = "open" if decided is None and complete is None else "commit" if commits else "abort"
    return Passage(
        producer_id=producer_id,
        producer_epoch=first.row.producer_epoch if first.row.state is TransactionState.ONGOING else -1,
        began_ms=began_ms,
        ended_ms=complete.time_ms if complete else -1,
        outcome=outcome,
        is_complete=complete is not None,
        run_id=(decided.row.run_id or "") if decided else (last.row.run_id or ""),
        steps=(
            *_steps_up_to_decision(rows, began_ms),
            *_steps_from_decision(parts, outcome, decided, complete),
        ),
        partitions=parts,
    )


def _part(
    moment: Moment, part: TransactionPartition, producer_id: int, decision: int, is_complete: bool
) -> PartitionPart:
    state = moment.partition(part.topic, part.incarnation, part.partition)
    made = PartitionPart(part.topic, part.partition, -1, "written" if is_complete else "missing", -1)
    if state is None:
        is_unknown = is_complete or moment.is_damaged(part.topic, part.partition)
        return made if is_unknown else replace(made, marker="not needed")
    entry = state.producers.get(producer_id)
    if entry is None:
        return made
    if decision >= 0 and entry.coordinator_epoch >= decision:
        return replace(made, marker="written", marker_ms=_marker_time(entry, decision))
    return replace(made, first_offset=entry.open_first_offset)


def _marker_time(entry: ProducerEntry, decision: int) -> int:
    """When that decision's marker was written: known as long as the producer did nothing else there since."""
    is_last = entry.coordinator_epoch == decision and not entry.batches
    return entry.append_time if is_last else -1


def _steps_up_to_decision(rows: Sequence[_Row], began_ms: int) -> Iterable[Step]:
    """What was added when; of a transaction whose first rows were not read, together and without a time."""
    first = rows[0]
    known: set[TransactionPartition] = set()
    if _is_cut(first):
        known.update(first.row.partitions)
        yield Step("Began", began_ms, "", is_done=True)
        what = f"{_named(first.row.partitions)}; " if known else ""
        yield Step(EARLIER_STEPS, -1, f"{what}further back in the log than what is read here", is_done=True)
        rows = rows[1:]
    for at in rows:
        if at.row.state is TransactionState.ONGOING:
            added = [part for part in at.row.partitions if part not in known]
            known.update(added)
            yield Step(
                "Began" if at is first else "Partitions added", at.time_ms, _named(added), is_done=True
            )


def _steps_from_decision(
    parts: Sequence[PartitionPart], outcome: str, decided: _Row | None, complete: _Row | None
) -> Iterable[Step]:
    if decided is not None or complete is not None:
        detail = f"coordinator row {decided.offset}" if decided else ""
        yield Step(f"Decided: {outcome}", decided.time_ms if decided else -1, detail, is_done=True)
    else:
        yield Step("Decision", -1, "the producer commits or aborts, or the sweep aborts it", is_done=False)
    if parts and outcome != "open":
        written = [part for part in parts if part.marker != "missing"]
        times = [part.marker_ms for part in written if part.marker_ms >= 0]
        detail = f"{len(written)} of {len(parts)} partitions"
        is_done = len(written) == len(parts)
        yield Step("Markers", max(times) if is_done and times else -1, detail, is_done=is_done)
    yield Step("Complete", complete.time_ms if complete else -1, "", is_done=complete is not None)


def _named(partitions: Sequence[TransactionPartition]) -> str:
    by_topic: dict[str, list[int]] = {}
    for part in partitions:
        by_topic.setdefault(part.topic, []).append(part.partition)
    return "; ".join(f"{topic} {_ranges(numbers)}" for topic, numbers in by_topic.items())


def _ranges(numbers: Sequence[int]) -> str:
    """Partition numbers in few words: `0-3, 7`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
