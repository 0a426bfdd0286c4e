"""The consumer that users hold (`KafkaConsumer`, without the rebalancing: every subscriber gets all partitions)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import pyarrow as pa

from txn_engine.clock import Waiting
from txn_engine.consumer.cursors import Cursor, OffsetReset, StartPolicy
from txn_engine.consumer.fetcher import Fetcher
from txn_engine.coordinator.groups import GroupCoordinator, check_group_id, fetched_from
from txn_engine.errors import (
    IllegalStateError,
    InvalidGroupIdError,
    InvalidRequestError,
    OffsetsMovedError,
    OutcomeUnknownError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from txn_engine.ids import IdSource
from txn_engine.log.logs import Logs
from txn_engine.log.reading import (
    check_start,
    end_of,
    first_offset_at,
)
from txn_engine.log.topics import Topic
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.scan import check_isolation
from txn_engine.types import (
    ConsumerGroupMetadata,
    FetchedRow,
    IsolationLevel,
    OffsetAndMetadata,
    TopicPartition,
)

DEFAULT_MAX_RECORDS = 100_000
_POLL_PAUSE_MS = 50


class Consumer:
    """Reads partitions from a position on, each record once and in order. For one thread at a time.

    With a group id it begins where the group is, and commits from there: a commit names the row that was
    fetched, so of two overlapping readers one is refused (PROTOCOL.md, section 5).
    """

    def __init__(
        self,
        logs: Logs,
        groups: GroupCoordinator,
        new_id: IdSource,
        waiting: Waiting,
        *,
        group_id: str | None,
        isolation_level: IsolationLevel,
        auto_offset_reset: OffsetReset,
    ) -> None:
        check_isolation(isolation_level)
        self._policy = StartPolicy(auto_offset_reset, isolation_level, group_id)
        if group_id is not None:
            check_group_id(group_id)
        self.group_id = group_id
        self.member_id = new_id()
        self._logs = logs
        self._groups = groups
        self._waiting = waiting
        self._isolation: IsolationLevel = isolation_level
        self._fetcher = Fetcher(logs, self._policy)
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._subscribed: set[str] = set()
        self._fetched: dict[TopicPartition, FetchedRow] = {}
        # The incarnations of the topics that those rows are about.
        self._fetched_of: dict[TopicPartition, int] = {}
        self._unsettled: (
            tuple[ConsumerGroupMetadata, dict[TransactionPartition, OffsetAndMetadata]] | None
        ) = None
        self._closed = False

    # --- what to read ---------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read all partitions of these topics, and those that are added to them later."""
        if isinstance(topics, str):
            raise InvalidRequestError(f"topics={topics!r}", expected="a list of topics")
        self._open()
        infos = self._logs.look_up_topics(topics)
        self._read_these(
            {TopicPartition(info.name, number): info for info in infos for number in range(info.partitions)}
        )
        self._subscribed = {info.name for info in infos}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions; those that were read already go on where they are."""
        self._open()
        self._read_these(self._resolve(partitions))

    def _read_these(self, partitions: Mapping[TopicPartition, Topic]) -> None:
        cursors: dict[TopicPartition, Cursor] = {}
        for tp, topic in partitions.items():
            known = self._cursors.get(tp)
            if known is not None and known.topic.incarnation == topic.incarnation:
                cursors[tp] = known
                continue
            is_late = known is not None or topic.name in self._subscribed
            cursors[tp] = Cursor(topic, tp.partition, is_late=is_late)
            if self._fetched_of.get(tp, topic.incarnation) != topic.incarnation:
                self._forget(tp)
        self._cursors = cursors
        self._subscribed = set()

    def _resolve(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Topic]:
        """Each partition with its topic as of now: one look at the store a topic."""
        topics: dict[str, Topic] = {}
        found: dict[TopicPartition, Topic] = {}
        for tp in (TopicPartition(*each) for each in partitions):
            topic = topics.get(tp.topic)
            if topic is None or tp.partition >= topic.partitions:
                topic = topics[tp.topic] = self._logs.topics.as_of_now(*tp)
            topic.check_partition(tp.partition)
            found[tp] = topic
        return found

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return list(self._cursors)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from this offset. Raises `OffsetOutOfRangeError` for one that the log does not reach.

        A commit goes on naming the row that was fetched; where none was, the one that stands there now.
        """
        cursor = self._cursor(partition)
        check_start(self._refresh(cursor), partition.topic, partition.partition, offset)
        if self.group_id is not None and partition not in self._fetched:
            _, row = self._groups.fetch(self.group_id, [cursor.key], require_stable=False)[partition]
            self._name_from_now_on({partition: row}, [cursor.key])
        cursor.position = offset
        cursor.open_file = None

    def seek_to_committed(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Begin again where the group is, as a new consumer would: in these partitions, or in all that are read.

        What a job calls after an abort: its own positions are ahead of the group's, or another has moved the group on
        (`OffsetsMovedError`). The next poll fetches the group's offsets, and with them the rows that commits name.
        """
        for tp in self.assignment() if partitions is None else partitions:
            cursor = self._cursor(tp)
            cursor.position, cursor.open_file = -1, None
            self._forget(TopicPartition(*tp))

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be read."""
        cursor = self._cursor(partition)
        self._start([cursor])
        return cursor.position

    # --- reading --------------------------------------------------------------------------------------------

    def poll(self, max_records: int = DEFAULT_MAX_RECORDS, timeout_ms: int = 0) -> pa.Table | None:
        """The next records, at most so many, with `_partition`, `_offset`, `_timestamp` (and `_topic` for
        several topics).

        None when there is nothing to read yet, after waiting for up to `timeout_ms`;
        `UnstableOffsetCommitError` where the group's position is undecided for that long. Positions move behind
        what is returned, and over the gaps that markers and aborted transactions leave.
        """
        self._open()
        if max_records < 1:
            raise InvalidRequestError(f"max_records={max_records}", expected="1 or more")
        if not self._cursors:
            raise IllegalStateError("poll without partitions", expected="subscribe() or assign() before")
        deadline = self._waiting.monotonic_ms() + timeout_ms
        while True:
            try:
                table = self._poll_once(max_records)
            except UnstableOffsetCommitError:
                table = None
                if self._waiting.monotonic_ms() >= deadline:
                    raise
            left = deadline - self._waiting.monotonic_ms()
            if table is not None or left <= 0:
                return table
            self._waiting.pause_ms(min(_POLL_PAUSE_MS, left))

    def _poll_once(self, max_records: int) -> pa.Table | None:
        self._follow_topics()
        cursors = list(self._cursors.values())
        if not cursors:
            return None  # the topic was made again with fewer partitions
        return self._fetcher.read(cursors, self._look(cursors), max_records)

    def _follow_topics(self) -> None:
        """A topic that was deleted and made again is another topic: begin there anew. One that has grown has more
        partitions, for who subscribed to it.
        """
        for name in sorted(self._subscribed):
            topic = self._logs.topics.get(name)
            for number in range(topic.partitions):
                self._cursors.setdefault(TopicPartition(name, number), Cursor(topic, number, is_late=True))
        for tp, cursor in list(self._cursors.items()):
            topic = self._logs.topics.get(tp.topic)
            if topic.incarnation == cursor.topic.incarnation:
                continue
            if tp.partition >= topic.partitions and tp.topic not in self._subscribed:
                raise UnknownTopicOrPartitionError(
                    f"topic {tp.topic!r} was made again, with {topic.partitions} partitions",
                    actor="consumer",
                    place=str(tp),
                    expected="the partition that was assigned",
                    action="assign() partitions that the topic has now",
                )
            self._forget(tp)
            if tp.partition < topic.partitions:
                self._cursors[tp] = Cursor(topic, tp.partition, is_late=True)
            else:
                del self._cursors[tp]

    # --- where to begin -------------------------------------------------------------------------------------

    def _start(self, cursors: Sequence[Cursor]) -> None:
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
        if self.group_id is None or not fresh:
            states = self._logs.refresh_all(logs)
        else:
            *states, offsets = self._logs.refresh_all([*logs, self._groups.log(self.group_id)])
            keys = [cursors[index].key for index in fresh]
            committed, fetched = self._fetched_from(offsets, keys)
            self._name_from_now_on(fetched, keys)
        for index in fresh:
            cursor = cursors[index]
            position = committed.get(TopicPartition(cursor.topic.name, cursor.partition))
            if position is not None and position.offset > states[index].high_watermark:
                states[index] = self._refresh(cursor)  # looked at before the group had come so far
            at = None if position is None else position.offset
            cursor.position = self._policy.within(cursor, states[index], at)
        return states

    def _fetch(
        self, partitions: Sequence[TransactionPartition]
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], dict[TopicPartition, FetchedRow]]:
        """The group's offsets as of now, and the rows they stand in."""
        return self._fetched_from(self._groups.log(check_group_id(self.group_id)).refresh(), partitions)

    def _fetched_from(
        self, state: PartitionState, partitions: Sequence[TransactionPartition]
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], dict[TopicPartition, FetchedRow]]:
        stable = self._isolation == "read_committed"
        found = fetched_from(state, check_group_id(self.group_id), partitions, require_stable=stable)
        offsets = {tp: position for tp, (position, _) in found.items() if position is not None}
        return offsets, {tp: fetched for tp, (_, fetched) in found.items()}

    def _refresh(self, cursor: Cursor) -> PartitionState:
        return self._logs.of(cursor.key).refresh()

    def _cursor(self, partition: TopicPartition) -> Cursor:
        self._open()
        cursor = self._cursors.get(TopicPartition(*partition))
        if cursor is None:
            raise UnknownTopicOrPartitionError(
                f"{partition} is not assigned", actor="consumer", expected="subscribe() or assign() before"
            )
        return cursor

    def _open(self) -> None:
        if self._closed:
            raise IllegalStateError("a closed consumer", expected="a new one")

    # --- offsets --------------------------------------------------------------------------------------------

    def group_metadata(self) -> ConsumerGroupMetadata:
        """For `send_offsets_to_transaction`: group, member, and the rows that the positions were fetched from."""
        incarnations = {tp: cursor.topic.incarnation for tp, cursor in self._cursors.items()}
        return ConsumerGroupMetadata(
            check_group_id(self.group_id),
            self.member_id,
            dict(self._fetched),
            self._fetched_of | incarnations,
        )

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where the consumer is in every partition: what a commit without arguments commits."""
        self._start(list(self._cursors.values()))
        return {tp: OffsetAndMetadata(cursor.position) for tp, cursor in self._cursors.items()}

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's offsets, without partitions that were never committed.

        A read_committed consumer asks for stable ones: `UnstableOffsetCommitError` while a transaction has
        some pending. To ask changes nothing of what the consumer reads and commits, not even with a `seek` to the
        answer: that is what `seek_to_committed` is for.
        """
        self._open()
        targets = {
            tp: TransactionPartition(tp.topic, topic.incarnation, tp.partition)
            for tp, topic in self._resolve(partitions).items()
        }
        offsets, fetched = self._fetch(list(targets.values()))
        for tp, target in targets.items():
            cursor = self._cursors.get(tp)
            if cursor is not None and cursor.key != target:
                continue  # made again: the next poll begins there
            if self._fetched_of.get(tp) != target.incarnation:
                self._name_from_now_on(fetched, [target])  # who asks first and seeks then has fetched this
        return offsets

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None) -> None:
        """Commit these offsets, or the positions, plainly. `OffsetsMovedError`: somebody else processed this range."""
        self._open()
        if self.group_id is None:
            raise InvalidGroupIdError("a commit without a group", expected="a consumer made with a group_id")
        wanted = self.positions() if offsets is None else offsets
        group = self.group_metadata()
        positions = {
            self._groups.target(group, TopicPartition(*tp)): OffsetAndMetadata(at)
            if isinstance(at, int)
            else at
            for tp, at in wanted.items()
        }
        self._settle_commit()
        if not positions:
            return
        try:
            self._commit(positions)
        except OffsetsMovedError:
            own = self._groups.own_rows(self.group_metadata(), list(positions))
            if all(self._fetched.get(tp) == row for tp, row in own.items()):
                raise
            # A producer's commits for this very consumer; anything else is refused again.
            self._name_from_now_on(
                own, [key for key in positions if TopicPartition(key.topic, key.partition) in own]
            )
            self._commit(positions)

    def _commit(self, positions: dict[TransactionPartition, OffsetAndMetadata]) -> None:
        commit = (self.group_metadata(), positions)
        try:
            self._name_from_now_on(self._groups.commit(*commit), positions)
        except OutcomeUnknownError:
            self._unsettled = commit
            raise

    def _name_from_now_on(
        self, rows: Mapping[TopicPartition, FetchedRow], partitions: Iterable[TransactionPartition]
    ) -> None:
        """The next commit names these rows, where it is about the same topic."""
        for partition in partitions:
            tp = TopicPartition(partition.topic, partition.partition)
            cursor = self._cursors.get(tp)
            is_newest = self._fetched_of.get(tp, 0) <= partition.incarnation
            if cursor.key == partition if cursor is not None else is_newest:
                self._fetched[tp], self._fetched_of[tp] = rows[tp], partition.incarnation

    def _forget(self, tp: TopicPartition) -> None:
        """The row is about another topic, or is to be fetched anew."""
        self._fetched.pop(tp, None)
        self._fetched_of.pop(tp, None)

    def _settle_commit(self) -> None:
        """Learn what became of a commit that had no answer: sent again it is recognised, whether or not it landed."""
        if self._unsettled is not None:
            commit, self._unsettled = self._unsettled, None
            try:
                self._name_from_now_on(self._groups.commit(*commit), commit[1])
            except OutcomeUnknownError:
                self._unsettled = commit
                raise

    # --- ends -----------------------------------------------------------------------------------------------

    def lag(self) -> dict[TopicPartition, int]:
        """How far each position is behind the end that this consumer may read to (read_committed: the LSO)."""
        cursors = list(self._cursors.items())
        self._start([cursor for _, cursor in cursors])
        states = self._logs.refresh_all([self._logs.of(cursor.key) for _, cursor in cursors])
        return {
            tp: max(end_of(state, self._isolation) - cursor.position, 0)
            for (tp, cursor), state in zip(cursors, states, strict=True)
        }

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that is still there."""
        return {tp: state.log_start_offset for tp, _, state in self._states(partitions)}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end that this consumer may read to: the LSO, or the high watermark for read_uncommitted."""
        return {tp: end_of(state, self._isolation) for tp, _, state in self._states(partitions)}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose record is at least as new as the time given (ms); None where there is none
        to be read.
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
        topics = self._resolve(partitions)
        logs = [self._logs.get(topic.name, topic.incarnation, tp.partition) for tp, topic in topics.items()]
        return list(zip(topics, topics.values(), self._logs.refresh_all(logs), strict=True))

    def close(self) -> None:
        """Let go. Nothing is committed by closing."""
        self._closed = True
        self._cursors.clear()
        self._fetcher.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
