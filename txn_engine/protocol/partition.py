"""A partition's state: all that replaying its log tells (`ProducerStateManager`, `UnifiedLog`)."""

from __future__ import annotations

from dataclasses import dataclass

from immutables import Map

from txn_engine.protocol.batches import FileRef
from txn_engine.protocol.cleaning import Cleaning
from txn_engine.protocol.offset_commits import GroupOffsets
from txn_engine.protocol.producers import ProducerEntry
from txn_engine.protocol.transaction_rows import StoredRow

LATE_TRANSACTION_BUFFER_MS = 300_000


@dataclass(frozen=True, slots=True)
class LogFile:
    """A data file in the log: one batch's records, or those of several that a rewrite put together.

    Every record keeps its offset, so that a rewritten file has gaps where markers and aborted batches stand, and
    where superseded records stood.
    """

    producer_id: int
    producer_epoch: int
    base_offset: int
    last_offset: int
    record_count: int
    first_timestamp: int
    max_timestamp: int
    file: FileRef

    @property
    def has_gaps(self) -> bool:
        """Whether some offset between its first and its last one has no record here."""
        return self.record_count != self.last_offset - self.base_offset + 1


@dataclass(frozen=True, slots=True)
class DeadFile:
    """A file whose transaction was aborted, whose records a rewrite or a trim took away, or of which some were erased,
    and when.
    """

    log_file: LogFile
    status: str
    died_ms: int


@dataclass(frozen=True, slots=True)
class AbortedRange:
    """An entry of the aborted-transaction index; `last_offset` is the marker's (`AbortedTxn`)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """All that replaying a log up to `log_end_offset` tells.

    `live`, `undecided` and `aborted` go by base offset (an aborted range by its marker's), `dead` by path. `named`:
    the base offset of every file that is in one of the three. `erased`: by the path of each file of which records were
    erased the one that stands for it now, None for nothing: also of files that only an earlier end of the log has.
    """

    log_end_offset: int = 0
    last_append_time: int = 0
    log_start_offset: int = 0
    entries_start: int = 0
    floor: int = 0
    cleaning: Cleaning = Cleaning()
    producers: Map[int, ProducerEntry] = Map()
    open_transactions: Map[int, int] = Map()
    live: Map[int, LogFile] = Map()
    undecided: Map[int, LogFile] = Map()
    dead: Map[str, DeadFile] = Map()
    aborted: Map[int, AbortedRange] = Map()
    named: Map[str, int] = Map()
    erased: Map[str, LogFile | None] = Map()
    transactions: Map[str, StoredRow] = Map()
    group_offsets: GroupOffsets = GroupOffsets()

    @property
    def high_watermark(self) -> int:
        """The log end: the store replicates."""
        return self.log_end_offset

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest open transaction, not below the log's start; None with none open."""
        if not self.open_transactions:
            return None
        return max(min(self.open_transactions.values()), self.log_start_offset)

    @property
    def last_stable_offset(self) -> int:
        """Where a read_committed reader has to stop."""
        first = self.first_unstable_offset
        return self.log_end_offset if first is None else first

    def has_late_transaction(self, now_ms: int, max_timeout_ms: int) -> bool:
        """Whether the oldest open transaction was last written to longer ago than any may be open, and five
        minutes (`ProducerStateManager.hasLateTransaction`).
        """
        if not self.open_transactions:
            return False
        oldest = min(self.open_transactions.items(), key=lambda item: item[1])[0]
        return now_ms - self.producers[oldest].append_time > max_timeout_ms + LATE_TRANSACTION_BUFFER_MS
