"""The numbers that people are told of a state, each defined once, for the command line, the DAGs and the pages.

Pure: states and a time in, numbers out. Offsets are counted as Kafka counts them: markers and records of aborted
transactions take offsets too. Names say the unit; -1 is "not known", never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.protocol.transaction_rows import StoredRow, TransactionPartition, TransactionState
from txn_engine.protocol.transactions import start_of

UNKNOWN = -1
CLOCKS_DIFFER_MS = 5_000
"""Clocks of machines in order differ by less. A time further ahead than this makes an age unknown instead of small."""


# --- ages -------------------------------------------------------------------------------------------------


def time_since_ms(at_ms: int, now_ms: int) -> int:
    """How long ago that was, never negative: -1 where it is not known, or lies ahead of a clock that is wrong."""
    if at_ms < 0 or at_ms - now_ms > CLOCKS_DIFFER_MS:
        return UNKNOWN
    return max(now_ms - at_ms, 0)


def is_unfinished(stored: StoredRow) -> bool:
    """Whether an id's transaction is open, or decided and not complete: readers may wait for it."""
    return stored.row.state is TransactionState.ONGOING or stored.row.state.is_prepared


def transaction_start_ms(stored: StoredRow, now_ms: int) -> int:
    """When the id's unfinished transaction began, by the log's time; -1 where it has none."""
    return start_of(stored, now_ms) if is_unfinished(stored) else UNKNOWN


def transaction_age_ms(stored: StoredRow, now_ms: int) -> int:
    """How long the id's transaction has been unfinished; -1 where it has none."""
    return time_since_ms(transaction_start_ms(stored, now_ms), now_ms)


def oldest_open_ms(rows: Iterable[StoredRow], now_ms: int) -> int:
    """The age of the oldest `Ongoing` transaction; -1 where none is open, or no age is known."""
    ongoing = (stored for stored in rows if stored.row.state is TransactionState.ONGOING)
    return max((transaction_age_ms(stored, now_ms) for stored in ongoing), default=UNKNOWN)


# --- who holds readers back -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Holder:
    """The transaction that is open from the earliest offset of a partition: read_committed readers stop there.

    `transactional_id` "", `state` "" and `timeout_ms` -1: no coordinator row owns it, and no sweep will end it.
    `since_ms`: when it began; of one without an owner, when it last wrote here, for nothing says when it began.
    """

    producer_id: int
    transactional_id: str
    state: str
    timeout_ms: int
    start_offset: int
    since_ms: int

    @property
    def is_owned(self) -> bool:
        """Whether a coordinator row has this transaction, with this partition."""
        return self.state != ""

    @property
    def name(self) -> str:
        """The transactional id, or the producer id where no coordinator row owns the transaction."""
        return self.transactional_id if self.is_owned else f"producer {self.producer_id}"

    def held_for_ms(self, now_ms: int) -> int:
        """How long readers have been held, as far as anything tells."""
        return time_since_ms(self.since_ms, now_ms)


def owners_of(rows: Iterable[StoredRow]) -> dict[int, StoredRow]:
    """The row of each producer id that has a transaction unfinished."""
    return {stored.row.producer_id: stored for stored in rows if is_unfinished(stored)}


def holder_of(
    at: TransactionPartition, state: PartitionState, owners: Mapping[int, StoredRow], now_ms: int
) -> Holder | None:
    """Who holds the readers of a partition back; None where they may read to its end.

    A row owns the transaction only where it names the partition: a producer whose earlier transaction was left here may
    have another one under way elsewhere.
    """
    if not state.open_transactions:
        return None
    producer_id, start_offset = min(state.open_transactions.items(), key=lambda item: item[1])
    owner = owners.get(producer_id)
    if owner is None or at not in owner.row.partitions:
        since_ms = state.producers[producer_id].append_time
        return Holder(producer_id, "", "", UNKNOWN, start_offset, since_ms)
    row = owner.row
    return Holder(
        producer_id,
        row.transactional_id,
        row.state.value,
        row.transaction_timeout_ms,
        start_offset,
        transaction_start_ms(owner, now_ms),
    )


# --- what a partition holds -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Contents:
    """Data files together: the three numbers are always of the same files."""

    files: int = 0
    records: int = 0
    bytes: int = 0

    def __add__(self, other: Contents) -> Contents:
        """Both together."""
        return Contents(self.files + other.files, self.records + other.records, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class PartitionMeasures:
    """All that people are told of a partition.

    `held_back_offsets`: from the last stable offset to the high watermark, all that a read_committed reader cannot have
    yet. `readable`: committed, below the last stable offset. `waiting`: committed, and waiting behind the holder.
    `undecided`: of transactions without a marker, which may yet be aborted; `unfinished`: the producer ids of those.
    `aborted`: entries of the aborted-transaction index. `last_append_ms` 0: nothing was ever appended.
    """

    topic: str
    partition: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    held_back_offsets: int
    holder: Holder | None
    readable: Contents
    waiting: Contents
    undecided: Contents
    unfinished: tuple[int, ...]
    aborted: int
    last_append_ms: int


def measure(
    at: TransactionPartition, state: PartitionState, owners: Mapping[int, StoredRow], now_ms: int
) -> PartitionMeasures:
    """The partition as its state says it is."""
    stable = state.last_stable_offset
    live = state.live.values()
    return PartitionMeasures(
        topic=at.topic,
        partition=at.partition,
        log_start_offset=state.log_start_offset,
        last_stable_offset=stable,
        high_watermark=state.high_watermark,
        held_back_offsets=held_back_offsets(state),
        holder=holder_of(at, state, owners, now_ms),
        readable=_contents(state, (file for file in live if file.base_offset < stable)),
        waiting=_contents(state, (file for file in live if file.base_offset >= stable)),
        undecided=_contents(state, state.undecided.values()),
        unfinished=tuple(state.open_transactions),
        aborted=len(state.aborted),
        last_append_ms=state.last_append_time,
    )


def held_back_offsets(state: PartitionState) -> int:
    """From the last stable offset to the high watermark: what read_committed readers cannot have yet."""
    return state.high_watermark - state.last_stable_offset


def _contents(state: PartitionState, files: Iterable[LogFile]) -> Contents:
    """A trim leaves the records below the log's start in a file that reaches above it: where that is a rewritten one,
    how many they are stands in the file alone, and all of it is counted.
    """
    count = records = size = 0
    start = state.log_start_offset
    for file in files:
        count += 1
        size += file.file.data_bytes
        records += file.record_count
        if file.base_offset < start and not file.has_gaps:
            records -= start - file.base_offset
    return Contents(count, records, size)


# --- where a group is -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a group is from what there is to read, in one partition; -1 for what is not known.

    `lag_offsets`: from its committed offset to the last stable one, as Kafka counts it. `held_back_offsets`: from there
    to the high watermark, which waits behind an open transaction: a lag of 0 beside it is no "all read".
    `gone_offsets`: the part of the lag below the log's start, deleted before the group read it. `beyond_offsets`: how
    far the committed offset is beyond the log's end, where nobody has read; its lag is not known then.
    """

    last_stable_offset: int = UNKNOWN
    high_watermark: int = UNKNOWN
    lag_offsets: int = UNKNOWN
    held_back_offsets: int = UNKNOWN
    gone_offsets: int = UNKNOWN
    beyond_offsets: int = UNKNOWN


def group_lag(committed_offset: int, state: PartitionState | None) -> GroupLag:
    """The lag of a committed offset, -1 for none, in a partition; None: its topic is not there any more."""
    if state is None:
        return GroupLag()
    stable, end = state.last_stable_offset, state.high_watermark
    if committed_offset < 0:
        return GroupLag(stable, end, held_back_offsets=held_back_offsets(state))
    return GroupLag(
        stable,
        end,
        lag_offsets=UNKNOWN if committed_offset > end else max(stable - committed_offset, 0),
        held_back_offsets=max(end - max(stable, committed_offset), 0),
        gone_offsets=max(state.log_start_offset - committed_offset, 0),
        beyond_offsets=max(committed_offset - end, 0),
    )


def total(known: Iterable[int]) -> int:
    """The sum of what is known; -1 where nothing is."""
    numbers = [number for number in known if number >= 0]
    return sum(numbers) if numbers else UNKNOWN
