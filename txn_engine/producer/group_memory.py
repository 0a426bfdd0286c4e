"""What a producer has committed on behalf of a group's reader, so that the reader's next range names the newer row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from txn_engine.types import ConsumerGroupMetadata, FetchedRow, TopicPartition

_Key = tuple[str, str, TopicPartition]
_Rows = Mapping[_Key, tuple[FetchedRow, FetchedRow]]


@dataclass(frozen=True, slots=True)
class GroupMemory:
    """Rows that this producer wrote for a member, by the row that the member had fetched.

    A consumer that goes on after a commit still names the row it once fetched; the row that stands there now
    is this producer's own, written for that very member. Another member of the group gets no such help: it is
    refused.
    """

    _committed: _Rows = field(default_factory=dict)
    _pending: _Rows = field(default_factory=dict)

    def current(self, group: ConsumerGroupMetadata) -> ConsumerGroupMetadata:
        """The same member, naming what it would fetch now."""
        fetched = {tp: self._newest(group, tp, row) for tp, row in group.fetched.items()}
        return replace(group, fetched=fetched)

    def _newest(self, group: ConsumerGroupMetadata, partition: TopicPartition, row: FetchedRow) -> FetchedRow:
        known = self._committed.get((group.group_id, group.member_id, partition))
        return known[1] if known is not None and known[0] == row else row

    def wrote(self, group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, int]) -> GroupMemory:
        """Rows were written in the open transaction, at these offsets, for what the member had fetched."""
        written = {
            (group.group_id, group.member_id, at): (group.fetched[at], FetchedRow(row_offset))
            for at, row_offset in offsets.items()
            if at in group.fetched
        }
        return replace(self, _pending={**self._pending, **written})

    def end(self, *, committed: bool) -> GroupMemory:
        """The transaction is decided."""
        return GroupMemory({**self._committed, **self._pending} if committed else self._committed)
