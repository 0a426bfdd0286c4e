"""From where a proof looks at the store: from now, or as of a cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from txn_engine.errors import ConcurrentTransactionsError, GroupIdNotFoundError
from txn_engine.loading import group_of
from txn_engine.log.as_of import AsOfCut, UnkeptCut
from txn_engine.log.reading import choose_files
from txn_engine.protocol.file_names import parse_data_path
from txn_engine.protocol.offset_commits import TOMBSTONE_OFFSET
from txn_engine.quality.declaration import Declaration
from txn_engine.quality.evidence import NOT_KNOWN, AsOf, PartitionEvidence
from txn_engine.scan import CUT, Scan, columns_asked, topic_of_cut
from txn_engine.schemas.layout import Schemas
from txn_engine.types import GroupOffset, ScanFile, TopicPartition
from txn_engine.unreadable import DAMAGE

if TYPE_CHECKING:
    from txn_engine.engine import Engine
    from txn_engine.log.cut_format import Cut
    from txn_engine.log.topics import Topic
    from txn_engine.protocol.partition import LogFile as LoggedFile
    from txn_engine.protocol.partition import PartitionState as LogState

Offsets = Mapping[TopicPartition, int]


class Standpoint(Protocol):
    """What the engine says of topics and groups, each call by itself."""

    @property
    def cut(self) -> AsOf | None:
        """The cut; None for now."""

    def look_again(self) -> None:
        """Where the cut is the run's own: make another one."""

    def scan(self, topic: str, *, start: Offsets | None = None, end: Offsets | None = None) -> Scan:
        """What read_committed readers get."""

    def everything(self, topic: str, end: Offsets | None) -> list[ScanFile]:
        """The files that read_uncommitted readers get."""

    def group(self, group_id: str) -> tuple[GroupOffset, ...]:
        """A group's offsets; none where it never committed."""

    def partition(self, topic: str, number: int) -> PartitionEvidence:
        """Offsets and open transactions of a partition, and whether compaction by key has been there."""

    def partitions(self, topic: str) -> int:
        """How many there are."""

    def incarnation(self, topic: str) -> int:
        """Which life of the topic this is."""

    def schemas(self, topic: str) -> Schemas:
        """Every version of its columns, and the one that `scan` gives."""


class Now:
    """The store as it is when it is asked."""

    cut = None

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def look_again(self) -> None:
        """It is now at each call."""

    def scan(self, topic: str, *, start: Offsets | None = None, end: Offsets | None = None) -> Scan:
        """What read_committed readers get."""
        return self._engine.scan(topic, start=start, end=end, isolation_level="read_committed")

    def everything(self, topic: str, end: Offsets | None) -> list[ScanFile]:
        """The files that read_uncommitted readers get."""
        return self._engine.scan(topic, end=end, isolation_level="read_uncommitted").files()

    def group(self, group_id: str) -> tuple[GroupOffset, ...]:
        """A group's offsets; none where it never committed, which its checks then say."""
        try:
            return self._engine.admin.describe_group(group_id).partitions
        except GroupIdNotFoundError:
            return ()

    def partition(self, topic: str, number: int) -> PartitionEvidence:
        """Offsets and open transactions of a partition, and whether compaction by key has been there."""
        state = self._engine.partition(topic, number).state
        return PartitionEvidence(
            topic,
            number,
            state.log_start_offset,
            state.last_stable_offset,
            state.high_watermark,
            len(state.open_transactions),
            is_compacted(state, self._engine.admin.describe_topic(topic).cleanup_policy),
        )

    def partitions(self, topic: str) -> int:
        """How many there are."""
        return self._engine.admin.describe_topic(topic).partitions

    def incarnation(self, topic: str) -> int:
        """Which life of the topic this is."""
        return self._engine.admin.describe_topic(topic).incarnation

    def schemas(self, topic: str) -> Schemas:
        """Every version of its columns, and the latest."""
        return self._engine.logs.topics.look_up(topic).schemas


class AtCut:
    """The store as of a cut: the same answers as long as the cut is kept, whatever was written or cleaned since."""

    def __init__(self, engine: Engine, cut: Cut, check: Declaration) -> None:
        """Raises `InvalidRequestError` where a topic of the declaration is not in the cut, or was made anew since."""
        self._engine = engine
        self._check = check
        self._stand_at(AsOfCut(engine.logs.tools, cut))

    def _stand_at(self, as_of: AsOfCut | UnkeptCut) -> None:
        topics = self._engine.logs.look_up_topics(self._check.topics)
        self._topics: dict[str, Topic] = {topic.name: topic_of_cut(as_of.cut, topic) for topic in topics}
        self._as_of, self._cut = as_of, as_of.cut

    @property
    def cut(self) -> AsOf:
        """The cut."""
        return AsOf(self._cut.number, self._cut.created_ms)

    def look_again(self) -> None:
        """A cut that is kept never changes."""

    def scan(self, topic: str, *, start: Offsets | None = None, end: Offsets | None = None) -> Scan:
        """What read_committed readers got, by the columns of then."""
        logs = self._engine.logs
        return Scan(
            logs,
            [topic],
            partitions=None,
            start=start,
            end=end,
            isolation_level="read_committed",
            as_of=self._as_of,
            schema_version=CUT,
        )

    def everything(self, topic: str, end: Offsets | None) -> list[ScanFile]:
        """The files that read_uncommitted readers got, of those with records inside: aborted ones too, though clean-up
        may have taken them away since.
        """
        return [
            file
            for number in range(self.partitions(topic))
            for file in self._everything(self._topics[topic], number, end or {})
        ]

    def _everything(self, topic: Topic, number: int, end: Offsets) -> list[ScanFile]:
        state, place = self._state(topic, number), TopicPartition(topic.name, number)
        stop = min(self._cut.offsets[place], end.get(place, self._cut.offsets[place]))
        parts = choose_files(state, number, state.log_start_offset, stop, "read_uncommitted")
        objects = self._engine.logs.tools.objects
        return [
            ScanFile(
                uri=objects.uri(f"{topic.prefix(number)}/{part.log_file.file.data_path}"),
                topic=topic.name,
                partition=number,
                base_offset=part.log_file.base_offset,
                record_count=part.log_file.record_count,
                bytes=part.log_file.file.data_bytes,
                first_row=0,
                end_row=part.log_file.record_count,
                start_offset=part.start_offset,
                end_offset=part.end_offset,
            )
            for part in parts
        ]

    def group(self, group_id: str) -> tuple[GroupOffset, ...]:
        """A group's offsets in the topics of the declaration: by what was committed with records that are inside."""
        at = self._engine.logs.group_partition(group_id).partition
        found = []
        for key, stored in sorted(self._as_of.group_offsets(at).committed.items()):
            topic = self._topics.get(key.topic)
            is_mine = key.group_id == group_id and topic is not None and topic.incarnation == key.incarnation
            if not is_mine or stored.commit.offset == TOMBSTONE_OFFSET:
                continue
            end = self._cut.offsets.get(TopicPartition(key.topic, key.partition), NOT_KNOWN)
            found.append(
                GroupOffset(
                    topic=key.topic,
                    partition=key.partition,
                    committed_offset=stored.commit.offset,
                    pending_offset=NOT_KNOWN,
                    pending_producer_id=NOT_KNOWN,
                    last_stable_offset=end,
                    lag=max(end - stored.commit.offset, 0) if end != NOT_KNOWN else NOT_KNOWN,
                    metadata=stored.commit.metadata,
                    commit_ms=stored.append_time,
                )
            )
        return tuple(found)

    def partition(self, topic: str, number: int) -> PartitionEvidence:
        """A partition up to the cut: nothing is open there."""
        held = self._topics[topic]
        state, end = self._state(held, number), self._cut.offsets[TopicPartition(topic, number)]
        start = min(state.log_start_offset, end)
        compacted = is_compacted(state, self._engine.admin.describe_topic(topic).cleanup_policy)
        return PartitionEvidence(topic, number, start, end, end, 0, compacted)

    def partitions(self, topic: str) -> int:
        """How many there were."""
        return self._topics[topic].partitions

    def incarnation(self, topic: str) -> int:
        """Which life of the topic this is."""
        return self._topics[topic].incarnation

    def schemas(self, topic: str) -> Schemas:
        """Every version of its columns, and the one that it had when the cut was made."""
        topics = self._engine.logs.topics
        return columns_asked(topics, CUT, self._cut)(topics.look_up(topic)).schemas

    def _state(self, topic: Topic, number: int) -> LogState:
        return self._as_of.state(topic.name, topic.incarnation, number)


class AtFreshCut(AtCut):
    """The store as of a cut that the run makes for itself, and that nothing keeps."""

    def __init__(self, engine: Engine, check: Declaration) -> None:
        """Raises as `Engine.look_at_cut`."""
        self._engine = engine
        self._check = check
        self.look_again()

    def look_again(self) -> None:
        """Make another cut."""
        groups = [*map(group_of, self._check.dead_letter_topics)]
        groups += [self._check.group_id] if self._check.group_id else []
        self._stand_at(self._engine.look_at_cut(self._check.topics, groups=groups))

    @property
    def cut(self) -> AsOf:
        """The cut, with its offsets: nothing on the store has them."""
        group_end = NOT_KNOWN
        if self._check.group_id is not None:
            at = self._engine.logs.group_partition(self._check.group_id).partition
            group_end = self._cut.groups[at].offset
        offsets = {
            place: offset for place, offset in self._cut.offsets.items() if place.topic in self._topics
        }
        return AsOf(self._cut.number, self._cut.created_ms, offsets, group_end)


def fresh_cut(engine: Engine, check: Declaration) -> Standpoint:
    """A cut of the run's own; the store as it is where damage, or a transaction that nobody ends, lets none be made:
    then the checks say what is wrong.
    """
    try:
        return AtFreshCut(engine, check)
    except (*DAMAGE, ConcurrentTransactionsError):
        return Now(engine)


def is_compacted(state: LogState, cleanup_policy: str) -> bool:
    """Whether compaction by key may have left records out.

    The log says so once a pass has ended. What one rewrote that has not looks like a merge of small files: where the
    topic is compacted any rewritten file will do, live, or dead and not for having been trimmed.
    """
    if state.cleaning.cleaned_to > 0:
        return True
    if "compact" not in cleanup_policy:
        return False
    return any(_is_rewritten(file) for file in state.live.values()) or any(
        dead.status == "replaced" and dead.log_file.last_offset >= state.log_start_offset
        for dead in state.dead.values()
    )


def _is_rewritten(file: LoggedFile) -> bool:
    """A rewrite uploads its file when the records have their offsets already; a producer does before."""
    return parse_data_path(file.file.data_path).log_end > file.base_offset
