"""What a producer has committed on behalf of a group's reader, so that the reader's next range names the newer row."""

from __future__ import annotations

from dataclasses import replace

from txn_engine.types import ConsumerGroupMetadata, FetchedRow, TopicPartition

_Key = tuple[str, str, TopicPartition]


class GroupMemory:
    """Rows that this producer wrote for a member, by the row that the member had fetched.

    A consumer that goes on after a commit still names the row it once fetched; the row that stands there now
    is this producer's own, written for that very member. Another member of the group gets no such help: it is
    refused.
    """

    def __init__(self) -> None:
        self._committed: dict[_Key, tuple[FetchedRow, FetchedRow]] = {}
        self._pending: dict[_Key, tuple[FetchedRow, FetchedRow]] = {}

    def current(self, group: ConsumerGroupMetadata) -> ConsumerGroupMetadata:
        """The same member, naming what it would fetch now."""
        fetched = {tp: self._newest(group, tp, row) for tp, row in group.fetched.items()}
        return replace(group, fetched=fetched)

    def _newest(self, group: ConsumerGroupMetadata, partition: TopicPartition, row: FetchedRow) -> FetchedRow:
        known = self._committed.get((group.group_id, group.member_id, partition))
        return known[1] if known is not None and known[0] == row else row

    def wrote(self, group: ConsumerGroupMetadata, partition: TopicPartition, row_offset: int) -> None:
        """A row was written in the open transaction for what the member had fetched."""
        fetched = group.fetched.get(partition)
        if fetched is not None:
            self._pending[group.group_id, group.member_id, partition] = (fetched, FetchedRow(row_offset))

    def end(self, *, committed: bool) -> None:
        """The transaction is decided."""
        if committed:
            self._committed |= self._pending
        self._pending.clear()
