"""A consumer in its group: does what `group_position.move` says, and tells it what came of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from txn_engine.consumer.group_position import (
    BrokenOff,
    Committed,
    CommitWanted,
    Effect,
    Event,
    GroupPosition,
    LearnOwnRows,
    OutcomeUnknown,
    OwnRows,
    Raise,
    Refused,
    Send,
    move,
)
from txn_engine.coordinator.groups import GroupCoordinator, fetched_from
from txn_engine.errors import OffsetsMovedError, OutcomeUnknownError
from txn_engine.log.entry_log import EntryLog
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.types import (
    ConsumerGroupMetadata,
    FetchedRow,
    IsolationLevel,
    OffsetAndMetadata,
    TopicPartition,
)

Offsets = dict[TopicPartition, OffsetAndMetadata]
Rows = dict[TopicPartition, FetchedRow]


class Membership:
    """One member of one group; read_committed ones ask for stable offsets (KIP-447)."""

    def __init__(
        self, groups: GroupCoordinator, group_id: str, member_id: str, isolation_level: IsolationLevel
    ) -> None:
        self._groups = groups
        self._group_id = group_id
        self._is_stable = isolation_level == "read_committed"
        self._position = GroupPosition(group_id, member_id)

    @property
    def log(self) -> EntryLog:
        """The log that keeps the group's offsets."""
        return self._groups.log(self._group_id)

    def metadata(self) -> ConsumerGroupMetadata:
        """What a commit of these positions names."""
        return self._position.metadata()

    def names(self, partition: TopicPartition) -> bool:
        """Whether a commit for it names a row."""
        return self._position.names(partition)

    def offsets_in(
        self, state: PartitionState, partitions: Sequence[TransactionPartition]
    ) -> tuple[Offsets, Rows]:
        """The group's offsets in this state of its log, and the rows to name when committing from there.

        Raises `UnstableOffsetCommitError` where stable ones are asked for and one is undecided.
        """
        found = fetched_from(state, self._group_id, partitions, require_stable=self._is_stable)
        offsets = {tp: position for tp, (position, _) in found.items() if position is not None}
        return offsets, {tp: row for tp, (_, row) in found.items()}

    def row_of(self, partition: TransactionPartition) -> Rows:
        """The row that stands there now, decided or not."""
        found = self._groups.fetch(self._group_id, [partition], require_stable=False)
        return {tp: row for tp, (_, row) in found.items()}

    def commit(self, wanted: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit these positions, in the topics that were read; all of them, or the first refusal's error."""
        group = self.metadata()
        targets = {self._groups.target(group, TopicPartition(*tp)): at for tp, at in wanted.items()}
        self.tell(CommitWanted(targets))

    def tell(self, event: Event) -> None:
        """Something happened: do what follows from it."""
        waiting = deque(self._move(event))
        try:
            while waiting:
                waiting.extend(self._move(self._do(waiting.popleft())))
        except BaseException:
            self._move(BrokenOff())
            raise

    def _move(self, event: Event) -> tuple[Effect, ...]:
        self._position, effects = move(self._position, event)
        return effects

    def _do(self, effect: Effect) -> Event:
        match effect:
            case Send(commit):
                try:
                    return Committed(self._groups.commit(commit.group, commit.positions))
                except OffsetsMovedError as error:
                    return Refused(error)
                except OutcomeUnknownError:
                    self._move(OutcomeUnknown())
                    raise
            case LearnOwnRows(partitions):
                return OwnRows(self._groups.own_rows(self.metadata(), partitions))
            case Raise(error):
                raise error
