"""The consumer that users hold (`KafkaConsumer`, without the rebalancing: every subscriber gets all partitions)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

import pyarrow as pa

from txn_engine.arguments import checks_arguments
from txn_engine.clock import Waiting
from txn_engine.configs.client import ConsumerSettings
from txn_engine.consumer.assignment import Assignment
from txn_engine.consumer.cursors import Cursor, StartPolicy
from txn_engine.consumer.fetcher import Fetcher
from txn_engine.consumer.group_position import Asked, Assigned, Fetched, Rewound
from txn_engine.consumer.membership import Membership
from txn_engine.coordinator.groups import GroupCoordinator, check_group_id
from txn_engine.errors import (
    IllegalStateError,
    InvalidGroupIdError,
    InvalidRequestError,
    SchemaChangedError,
    UnstableOffsetCommitError,
)
from txn_engine.ids import IdSource
from txn_engine.log.cut_format import Cut
from txn_engine.log.logs import Logs
from txn_engine.log.reading import check_start, end_of, first_offset_at
from txn_engine.log.topics import Topic
from txn_engine.protocol.offset_commits import skipped_note, skipped_offsets
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.reasons import Reason
from txn_engine.scan import begin_behind, check_isolation
from txn_engine.types import ConsumerGroupMetadata, IsolationLevel, OffsetAndMetadata, TopicPartition

_POLL_PAUSE_MS = 50


@checks_arguments
class Consumer:
    """Reads partitions from a position on, each record once and in order. `Engine.consumer(group_id=...)` gives one.
    For one thread at a time.

    With a group id it begins where the group is, and commits from there: a commit names the row that was
    fetched, so of two overlapping readers one is refused (PROTOCOL.md, section 5).

    Every call that asks the store may raise `StoreUnavailableError`, and `CorruptObjectError` for what is damaged
    there; every call on a closed consumer raises `IllegalStateError`.
    """

    def __init__(
        self,
        logs: Logs,
        groups: GroupCoordinator,
        new_id: IdSource,
        waiting: Waiting,
        find_cut: Callable[[Cut | int], Cut],
        settings: ConsumerSettings,
    ) -> None:
        group_id, isolation_level = settings.group_id, settings.isolation_level
        check_isolation(isolation_level)
        self._policy = StartPolicy(settings.auto_offset_reset, isolation_level, group_id)
        self._max_records = settings.max_poll_records
        self.group_id = group_id
        self.member_id = new_id()
        self._logs = logs
        self._waiting = waiting
        self._find_cut = find_cut
        self._isolation: IsolationLevel = isolation_level
        self._assignment = Assignment(logs)
        self._fetcher = Fetcher(logs, self._policy, settings.fetch_max_bytes)
        self._membership: Membership | None = None
        if group_id is not None:
            groups.check_new_group(
                check_group_id(group_id)
            )  # before a database keeps its positions by that name
            self._membership = Membership(groups, check_group_id(group_id), self.member_id, isolation_level)
        self._closed = False

    def __repr__(self) -> str:
        group = "without a group" if self.group_id is None else f"of group {self.group_id!r}"
        state = "closed" if self._closed else f"reading {len(self._assignment.cursors)} partitions"
        return f"<Consumer {group}, {self._isolation}, {state}>"

    # --- what to read ---------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read all partitions of these topics, and those that are added to them later.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic. InvalidRequestError: a text in place of a list.
        """
        self._open()
        if isinstance(topics, str):
            raise InvalidRequestError(f"topics={topics!r}", expected="a list of topics")
        self._assignment.subscribe(topics)
        self._tell_what_is_read()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions; those that were read already go on where they are.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic, or it lacks the partition.
        """
        self._open()
        self._assignment.assign(partitions)
        self._tell_what_is_read()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return list(self._assignment.cursors)

    def incarnations(self) -> dict[TopicPartition, int]:
        """Of which incarnation of its topic each partition is read: another one, where a topic was made again."""
        self._open()
        return self._assignment.incarnations()

    @property
    def store_id(self) -> str:
        """Of the store that is read: no two stores have the same."""
        return self._logs.config.store_id

    @property
    def is_restored(self) -> bool:
        """Whether that store began as a backup of another one."""
        return self._logs.config.restored is not None

    @property
    def isolation_level(self) -> IsolationLevel:
        """Whether it reads what is not decided, too."""
        return self._isolation

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from this offset.

        A commit goes on naming the row that was fetched; where none was, the one that stands there now.

        Raises:
            OffsetOutOfRangeError: the log does not reach it. UnknownTopicOrPartitionError: it is not assigned.
        """
        cursor = self._cursor(partition)
        check_start(self._refresh(cursor), partition.topic, partition.partition, offset)
        group = self._membership
        if group is not None and not group.names(partition):
            group.tell(Fetched(group.row_of(cursor.key), (cursor.key,)))
        cursor.position, cursor.open_file = offset, None

    def seek_to_reset(self, partitions: Iterable[TopicPartition]) -> None:
        """Go where `auto.offset.reset` says, whatever the group has committed.

        Raises:
            OffsetOutOfRangeError: auto_offset_reset is "none". UnknownTopicOrPartitionError: one is not assigned.
        """
        for tp in partitions:
            cursor = self._cursor(tp)
            self.seek(tp, self._policy.within(cursor, self._refresh(cursor), None))

    def seek_to_cut(self, cut: Cut | int) -> None:
        """Go on behind a cut, in every partition that is read: from the first offset that is not inside.

        Raises:
            OffsetOutOfRangeError: retention has deleted records behind the cut; no position has changed then.
            InvalidRequestError: there is no such cut, or it is not of a topic that is read.
        """
        self._open()
        found = self._find_cut(cut)
        cursors = [self._cursor(tp) for tp in self.assignment()]
        states = self._logs.refresh_all(self._logs.of(each.key) for each in cursors)
        offsets = [
            begin_behind(found, each.topic, each.partition, state)
            for each, state in zip(cursors, states, strict=True)
        ]
        for tp, offset in zip(self.assignment(), offsets, strict=True):
            self.seek(tp, offset)

    def seek_to_committed(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Begin again where the group is, as a new consumer would: in these partitions, or in all that are read.

        What a job calls after an abort: its own positions are ahead of the group's, or another has moved the group on
        (`OffsetsMovedError`). The next poll fetches the group's offsets, and with them the rows that commits name.

        Raises:
            UnknownTopicOrPartitionError: a partition is not assigned.
        """
        for tp in self.assignment() if partitions is None else partitions:
            cursor = self._cursor(tp)
            cursor.position, cursor.open_file = -1, None
            if self._membership is not None:
                self._membership.tell(Rewound((TopicPartition(*tp),)))

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be read.

        Raises:
            OffsetOutOfRangeError: auto_offset_reset is "none" and there is no position.
            UnstableOffsetCommitError: the group's position is undecided. UnknownTopicOrPartitionError: not assigned.
        """
        cursor = self._cursor(partition)
        self._start([cursor])
        return cursor.position

    # --- reading --------------------------------------------------------------------------------------------

    def poll(self, max_records: int | None = None, timeout_ms: int = 0) -> pa.Table | None:
        """The next records, at most so many (None: `max.poll.records`), with `_partition`, `_offset`, `_timestamp` (and
        `_topic` for several topics).

        Of several topics one that lacks a column has nulls there; where a column of one name has another type, its
        records come in a poll of their own. None when there is nothing to read yet, after waiting for up to
        `timeout_ms`. Positions move behind what is returned, and over the gaps that markers and aborted transactions
        leave; where it raises they stay.

        Raises:
            UnstableOffsetCommitError: the group's position was undecided for that long.
            OffsetOutOfRangeError: auto_offset_reset is "none", and there is no position, or the log does not have it.
            UnknownTopicOrPartitionError: a topic is gone, or was made again without an assigned partition.
            IllegalStateError: nothing was assigned. InvalidRequestError: `max_records` is not 1 or more.
        """
        self._open()
        if max_records is None:
            max_records = self._max_records
        if max_records < 1:
            raise InvalidRequestError(f"max_records={max_records}", expected="1 or more")
        if not self._assignment.cursors:
            raise IllegalStateError("poll without partitions", expected="subscribe() or assign() before")
        deadline = self._waiting.monotonic_ms() + timeout_ms
        while True:
            try:
                table = self._poll_as_of_now(max_records)
            except UnstableOffsetCommitError:
                table = None
                if self._waiting.monotonic_ms() >= deadline:
                    raise
            left = deadline - self._waiting.monotonic_ms()
            if table is not None or left <= 0:
                return table
            self._waiting.pause_ms(min(_POLL_PAUSE_MS, left))

    def _poll_as_of_now(self, max_records: int) -> pa.Table | None:
        try:
            return self._poll_once(max_records)
        except SchemaChangedError:
            self._assignment.look_up_again()
            return self._poll_once(max_records)

    def _poll_once(self, max_records: int) -> pa.Table | None:
        if changed := self._assignment.follow_topics():
            self._tell_what_is_read(changed)
        cursors = list(self._assignment.cursors.values())
        if not cursors:
            return None  # the topic was made again with fewer partitions
        return self._fetcher.read(cursors, self._look(cursors), max_records)

    # --- where to begin -------------------------------------------------------------------------------------

    def _start(self, cursors: Iterable[Cursor]) -> None:
        """Give a position to those that have none."""
        fresh = [cursor for cursor in cursors if cursor.position < 0]
        if fresh:
            self._look(fresh)

    def _look(self, cursors: Sequence[Cursor]) -> list[PartitionState]:
        """The states of these partitions' logs as of now. Those without a position get one: the group's, else what
        auto_offset_reset says.
        """
        logs = [self._logs.of(cursor.key) for cursor in cursors]
        fresh = [index for index, cursor in enumerate(cursors) if cursor.position < 0]
        committed: dict[TopicPartition, OffsetAndMetadata] = {}
        if self._membership is None or not fresh:
            states = self._logs.refresh_all(logs)
        else:
            *states, offsets = self._logs.refresh_all([*logs, self._membership.log])
            keys = tuple(cursors[index].key for index in fresh)
            committed, rows = self._membership.offsets_in(offsets, keys)
            self._membership.tell(Fetched(rows, keys))
        for index in fresh:
            cursor = cursors[index]
            found = committed.get(TopicPartition(cursor.topic.name, cursor.partition))
            if found is not None and found.offset > states[index].high_watermark:
                states[index] = self._refresh(cursor)  # looked at before the group had come so far
            at = None if found is None else found.offset
            cursor.skipped = 0 if found is None else skipped_offsets(found.metadata)
            cursor.position = self._policy.within(cursor, states[index], at)
        return states

    def _refresh(self, cursor: Cursor) -> PartitionState:
        return self._logs.of(cursor.key).refresh()

    def _cursor(self, partition: TopicPartition) -> Cursor:
        self._open()
        return self._assignment.cursor(partition)

    def _tell_what_is_read(self, changed: tuple[TopicPartition, ...] = ()) -> None:
        if self._membership is not None:
            self._membership.tell(Rewound(changed))
            self._membership.tell(Assigned(self._assignment.incarnations()))

    def _open(self) -> None:
        if self._closed:
            raise IllegalStateError("a closed consumer", expected="a new one")

    # --- offsets --------------------------------------------------------------------------------------------

    def group_metadata(self) -> ConsumerGroupMetadata:
        """For `send_offsets_to_transaction`: group, member, and the rows that the positions were fetched from.

        Raises:
            InvalidGroupIdError: a consumer without a group.
        """
        return self._member().metadata()

    def _member(self) -> Membership:
        if self._membership is None:
            raise InvalidGroupIdError(
                "a consumer without a group",
                expected="a consumer made with a group_id",
                reason=Reason.NO_GROUP,
            )
        return self._membership

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where the consumer is in every partition: what a commit without arguments commits.

        The metadata says how many offsets the group never read, if retention has deleted some before it came to them.

        Raises:
            OffsetOutOfRangeError, UnstableOffsetCommitError: as `position`.
        """
        self._start(self._assignment.cursors.values())
        return {
            tp: OffsetAndMetadata(cursor.position, skipped_note(cursor.skipped))
            for tp, cursor in self._assignment.cursors.items()
        }

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's offsets, without partitions that were never committed.

        A read_committed consumer asks for stable ones. To ask changes nothing of what the consumer reads and commits,
        not even with a `seek` to the answer: that is what `seek_to_committed` is for.

        Raises:
            UnstableOffsetCommitError: a transaction has some of them pending.
            UnknownTopicOrPartitionError: there is no such partition. InvalidGroupIdError: a consumer without a group.
        """
        self._open()
        keys = tuple(
            TransactionPartition(tp.topic, topic.incarnation, tp.partition)
            for tp, topic in self._assignment.resolve(partitions).items()
        )
        group = self._member()
        offsets, rows = group.offsets_in(group.log.refresh(), keys)
        group.tell(Asked(rows, keys))
        return offsets

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None) -> None:
        """Commit these offsets, or the positions, plainly; all of them or none, as far as that can be foreseen.

        Raises:
            OffsetOutOfRangeError: an offset is beyond the log's end.
            OffsetsMovedError: somebody else processed this range; final. OffsetsPendingError: somebody is about to.
            OutcomeUnknownError: it may have landed; the next commit learns it first.
            UnknownTopicOrPartitionError: a topic is gone, or another than the one that was read.
            InvalidGroupIdError: a consumer without a group. InvalidRequestError: no offset, or metadata too long.
        """
        self._open()
        group = self._member()
        wanted = self.positions() if offsets is None else offsets
        group.commit({tp: self._noted(tp, at) for tp, at in wanted.items()})

    def _noted(self, tp: TopicPartition, at: OffsetAndMetadata | int) -> OffsetAndMetadata:
        """The position; with the note of how many offsets were skipped, if it has no metadata of its own."""
        position = OffsetAndMetadata(at) if isinstance(at, int) else at
        cursor = self._assignment.cursors.get(TopicPartition(*tp))
        if cursor is None or position.metadata:
            return position
        return position._replace(metadata=skipped_note(cursor.skipped))

    # --- ends -----------------------------------------------------------------------------------------------

    def lag(self) -> dict[TopicPartition, int]:
        """How far each position is behind the end that this consumer may read to (read_committed: the LSO).

        Raises:
            OffsetOutOfRangeError, UnstableOffsetCommitError: as `position`.
        """
        cursors = self._assignment.cursors
        states = self._look(list(cursors.values()))
        return {
            tp: max(end_of(state, self._isolation) - cursor.position, 0)
            for (tp, cursor), state in zip(cursors.items(), states, strict=True)
        }

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that is still there.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
        """
        return {tp: state.log_start_offset for tp, _, state in self._states(partitions)}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end that this consumer may read to: the LSO, or the high watermark for read_uncommitted.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
        """
        return {tp: end_of(state, self._isolation) for tp, _, state in self._states(partitions)}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose record is at least as new as the time given (ms); None where there is none
        to be read.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
        """
        objects = self._logs.tools.objects
        return {
            tp: first_offset_at(objects, topic, state, tp.partition, times[tp], self._isolation)
            for tp, topic, state in self._states(times)
        }

    def _states(
        self, partitions: Iterable[TopicPartition]
    ) -> list[tuple[TopicPartition, Topic, PartitionState]]:
        """Each partition, the topic of its name, and the state of that topic's log."""
        self._open()
        topics = self._assignment.resolve(partitions)
        logs = [self._logs.get(topic.name, topic.incarnation, tp.partition) for tp, topic in topics.items()]
        return list(zip(topics, topics.values(), self._logs.refresh_all(logs), strict=True))

    def close(self) -> None:
        """Let go. Nothing is committed by closing."""
        self._closed = True
        self._assignment.cursors.clear()
        self._fetcher.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
