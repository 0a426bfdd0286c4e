"""Where a consumer is in its partitions, and where it begins in one that it has no position in."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from txn_engine.configs.client import OffsetReset
from txn_engine.consumer.files_ahead import OpenFile
from txn_engine.errors import InvalidRequestError, OffsetOutOfRangeError
from txn_engine.log.reading import end_of
from txn_engine.log.topics import Topic
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.reasons import Reason
from txn_engine.types import IsolationLevel

_LOGGER: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class Cursor:
    """Where the consumer is in one partition, and the file it is in the middle of.

    `is_late`: the partition was made after the subscription, so that all it holds is later than that. `skipped`: how
    many offsets it passed over because they were deleted before they were read, and the group before it.
    """

    topic: Topic
    partition: int
    is_late: bool = False
    position: int = -1
    open_file: OpenFile | None = None
    skipped: int = 0

    @property
    def key(self) -> TransactionPartition:
        """The partition, of the topic that is read."""
        return TransactionPartition(self.topic.name, self.topic.incarnation, self.partition)


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """What `auto_offset_reset` says, for a consumer of this isolation level and perhaps of a group."""

    reset: OffsetReset
    isolation_level: IsolationLevel
    group_id: str | None

    def __post_init__(self) -> None:
        if self.reset not in ("earliest", "latest", "none"):
            raise InvalidRequestError(
                f"auto_offset_reset={self.reset!r}", expected="'earliest', 'latest' or 'none'"
            )

    def within(self, cursor: Cursor, state: PartitionState, position: int | None) -> int:
        """The position, where the log still has it; else what auto_offset_reset says. A position that the log does not
        have is warned of, with both offsets: records may have gone unread. The cursor counts those that did.
        """
        if position is not None and state.log_start_offset <= position <= state.high_watermark:
            return position
        if self.reset == "none":
            raise OffsetOutOfRangeError(
                f"{'no committed offset' if position is None else f'offset {position}'} for"
                f" {cursor.topic.name}-{cursor.partition}",
                actor="consumer" if self.group_id is None else f"group {self.group_id!r}",
                expected=f"an offset from {state.log_start_offset} to {state.high_watermark}",
                action="seek, reset the group's offsets, or choose auto_offset_reset earliest or latest",
                reason=Reason.NO_COMMITTED_OFFSET if position is None else None,
            )
        from_start = self.reset == "earliest" or cursor.is_late
        at = state.log_start_offset if from_start else end_of(state, self.isolation_level)
        if position is not None:
            cursor.skipped += max(at - position, 0)
            _LOGGER.warning(
                "%s at offset %d of %s-%d, %s; it goes on at %d (auto_offset_reset %s)",
                "a consumer" if self.group_id is None else f"group {self.group_id!r}",
                position,
                cursor.topic.name,
                cursor.partition,
                _why_not(position, state),
                at,
                self.reset,
            )
        return at


def _why_not(position: int, state: PartitionState) -> str:
    if position > state.high_watermark:
        return f"which is beyond the log's end at {state.high_watermark}"
    missed = state.log_start_offset - position
    return f"where the log begins at {state.log_start_offset}: {missed:,} offsets were deleted before they were read"
