"""Kafka's group coordinator, as far as offsets go: fetch, and commit plainly (in a transaction the producer does)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txn_engine.clock import Clock
from txn_engine.errors import (
    InvalidGroupIdError,
    InvalidRequestError,
    InvalidTimestampError,
    OffsetOutOfRangeError,
    OffsetsPendingError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from txn_engine.log.ages import LogAges
from txn_engine.log.entry_log import EntryLog
from txn_engine.log.logs import Logs
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC
from txn_engine.names import NEW_NAME, is_new_name, is_storable, printable
from txn_engine.protocol.offset_commits import (
    FETCHED_NOTHING,
    NO_ROW,
    TOMBSTONE_OFFSET,
    GroupOffsets,
    OffsetCommit,
    OffsetKey,
    StoredCommit,
    has_expired,
    tombstone,
)
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.proposals import Appended, OffsetCommitProposal, Refused
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.reasons import Reason
from txn_engine.types import (
    ConsumerGroupMetadata,
    FetchedRow,
    ForgottenOffset,
    OffsetAndMetadata,
    TopicPartition,
)
from txn_engine.unreadable import DAMAGE, Listing, Unreadable, one_place, raise_if_no_write_was_taken

MAX_METADATA_CHARS = 4_096
KEPT_GROUPS = ("dead-letters/", "loaded-files/", "topic-copies/")
"""Groups of ours whose position says what was done: forgotten, it would be done again."""


class GroupCoordinator:
    """The offsets of all groups."""

    def __init__(self, logs: Logs, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock

    def fetch(
        self, group_id: str, partitions: Sequence[TransactionPartition], *, require_stable: bool
    ) -> dict[TopicPartition, tuple[OffsetAndMetadata | None, FetchedRow]]:
        """Committed offsets as of now, each with the row to name when committing from there.

        Raises `UnstableOffsetCommitError` where stable ones are asked for and a transaction has some pending (KIP-447).
        """
        return fetched_from(self.log(group_id).refresh(), group_id, partitions, require_stable=require_stable)

    def log(self, group_id: str) -> EntryLog:
        """The log that keeps the group's offsets."""
        return self._logs.of(self._logs.group_partition(check_group_id(group_id)))

    def commit(
        self, group: ConsumerGroupMetadata, offsets: Mapping[TransactionPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, FetchedRow]:
        """Commit plainly, all or the first refusal's error; the rows to name next time.

        Raises `OffsetsPendingError` (try again) and `OffsetsMovedError` (somebody else processed this range).
        """
        log = self.log(group.group_id)
        commits = self.rows(group, offsets)
        known = log.refresh().group_offsets
        for commit in commits:  # a refusal of one is a refusal of all, as far as it can be foreseen
            if known.find_duplicate(commit, -1) is None:
                known.check(commit, -1)
        verdicts = log.append([OffsetCommitProposal(commit) for commit in commits])
        rows: dict[TopicPartition, FetchedRow] = {}
        for commit, verdict in zip(commits, verdicts, strict=True):
            if isinstance(verdict, Refused):
                raise verdict.error
            rows[TopicPartition(commit.key.topic, commit.key.partition)] = FetchedRow(verdict.base_offset)
        return rows

    def own_rows(
        self, group: ConsumerGroupMetadata, partitions: Sequence[TransactionPartition]
    ) -> dict[TopicPartition, FetchedRow]:
        """The rows that stand there now and that were written for this very member: in transactions of a producer that
        it gave its metadata to.

        For the member alone, which knows what it has read: a transaction names what was fetched, or two tries of one
        would both be taken.
        """
        committed = self.offsets(group.group_id).committed
        found = {
            partition: stored
            for partition in partitions
            if (stored := committed.get(offset_key(group.group_id, partition))) is not None
        }
        return {
            TopicPartition(partition.topic, partition.partition): FetchedRow(stored.offset)
            for partition, stored in found.items()
            if group.member_id and stored.commit.member_id == group.member_id
        }

    def delete(self, group_id: str, *, dry_run: bool = False) -> list[ForgottenOffset]:
        """Put a tombstone for every offset of the group, all or none, as far as pending ones can be foreseen.

        Raises `OffsetsPendingError` while a transaction has offsets of the group pending. `dry_run`: judge, and write
        nothing.
        """
        log = self.log(group_id)
        offsets = log.refresh().group_offsets
        for producer_id, pending in offsets.pending.items():
            if any(key.group_id == group_id for key in pending):
                raise OffsetsPendingError(
                    f"producer id {producer_id} has a pending commit", actor=f"deletion of group {group_id!r}"
                )
        rows = [stored for stored in offsets.live() if stored.commit.key.group_id == group_id]
        proposals = [OffsetCommitProposal(tombstone(stored, self._clock())) for stored in rows]
        for verdict in () if dry_run else log.append(proposals):
            if isinstance(verdict, Refused):
                raise verdict.error
        return [_forgotten(stored) for stored in rows]

    def expire(
        self,
        retention_ms: int,
        *,
        topic: str | None = None,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> Listing[ForgottenOffset]:
        """Put a tombstone for every offset committed at least so long ago, by the log's time and by the store's, in
        this topic and this partition, where they are named; one entry a partition.

        What is pending, or moves meanwhile, is left alone (`OffsetMetadataManager.cleanupExpiredOffsets`), and so are
        `KEPT_GROUPS`. The answer:
        what was forgotten, group by group; with `dry_run` what would be, and nothing is written. `unreadable` names
        the partitions that cannot be read, or that the store takes no write in; raises where it takes none at all.
        `InvalidTimestampError`: this machine's clock is too far from the store's.
        """
        forgotten: list[StoredCommit] = []
        store_time = self._logs.tools.store_time
        moment = store_time.estimate() if dry_run else store_time.now()
        now_ms = moment.now_ms
        looked = self._logs.look(self._logs.internal(CONSUMER_OFFSETS_TOPIC))
        unreadable = list(looked.unreadable)
        for home, state in looked.states.items():
            offsets = state.group_offsets
            old = [
                stored
                for stored in offsets.live()
                if topic in (None, stored.commit.key.topic)
                and not stored.commit.key.group_id.startswith(KEPT_GROUPS)
                and partition in (None, stored.commit.key.partition)
                and has_expired(stored, now_ms, retention_ms)
                and offsets.pending_by_other(stored.commit.key, -1) is None
            ]
            try:
                with one_place(home.topic, home.partition):
                    if old:
                        end = LogAges(self._logs.of(home), state, moment).stored_end_at(
                            now_ms - retention_ms + 1
                        )
                        old = [stored for stored in old if stored.offset < end]
                    forgotten += self._forget(home, old, now_ms) if old and not dry_run else old
            except (*DAMAGE, InvalidTimestampError) as error:
                unreadable.append(Unreadable(home.topic, home.partition, error))
        raise_if_no_write_was_taken(unreadable, wrote_any=bool(forgotten))
        forgotten.sort(key=lambda stored: stored.commit.key)
        return Listing(map(_forgotten, forgotten), unreadable)

    def _forget(
        self, home: TransactionPartition, old: Sequence[StoredCommit], now_ms: int
    ) -> list[StoredCommit]:
        """Put a tombstone for each of these commits; those that had not moved."""
        proposals = [OffsetCommitProposal(tombstone(stored, now_ms)) for stored in old]
        verdicts = self._logs.of(home).append(proposals)
        return [
            stored for stored, verdict in zip(old, verdicts, strict=True) if isinstance(verdict, Appended)
        ]

    def target(self, group: ConsumerGroupMetadata, partition: TopicPartition) -> TransactionPartition:
        """The partition that a position of this group is about: of the topic that was read, never of a later one of its
        name.

        Raises `UnknownTopicOrPartitionError` where the topic is gone, or was made again since.
        """
        read = group.incarnations.get(TopicPartition(*partition))
        topic = self._logs.topics.having(*partition)
        if read != topic.incarnation:
            topic = self._logs.topics.as_of_now(*partition)
        if read is not None and read != topic.incarnation:
            raise UnknownTopicOrPartitionError(
                f"a position in a topic {topic.name!r} that was deleted and made again since",
                actor=f"group {group.group_id!r}",
                place=str(partition),
                expected="a position in the topic as it is now",
                action="read again: a poll begins at the new topic's start; nothing was committed",
                reason=Reason.TOPIC_MADE_AGAIN,
            )
        return TransactionPartition(topic.name, topic.incarnation, partition.partition)

    def rows(
        self, group: ConsumerGroupMetadata, offsets: Mapping[TransactionPartition, OffsetAndMetadata]
    ) -> list[OffsetCommit]:
        """The rows of a commit, naming what its reader fetched. Raises `OffsetOutOfRangeError` for an offset beyond its
        log's end, which nobody has read.
        """
        self.check_new_group(group.group_id)
        rows = [self._row(group, partition, position) for partition, position in offsets.items()]
        self._check_in_logs(group.group_id, {at: position.offset for at, position in offsets.items()})
        return rows

    def _row(
        self, group: ConsumerGroupMetadata, partition: TransactionPartition, position: OffsetAndMetadata
    ) -> OffsetCommit:
        if position.offset < 0:
            raise InvalidRequestError(
                f"offset {position.offset}", actor=f"group {group.group_id!r}", expected="0 or more"
            )
        if len(position.metadata) > MAX_METADATA_CHARS:
            raise InvalidRequestError(
                f"{len(position.metadata)} characters of offset metadata",
                expected=f"at most {MAX_METADATA_CHARS}",
            )
        for what, text in (("offset metadata", position.metadata), ("a member id", group.member_id)):
            if not is_storable(text):
                raise InvalidRequestError(f"{what} {text!r:.60}", expected="UTF-8", reason=Reason.NOT_UTF8)
        fetched = group.fetched.get(TopicPartition(partition.topic, partition.partition))
        return OffsetCommit(
            offset_key(group.group_id, partition),
            position.offset,
            position.leader_epoch,
            position.metadata,
            self._clock(),
            group.member_id,
            fetched.row_offset if fetched else FETCHED_NOTHING,
            fetched.log_end if fetched else -1,
        )

    def _check_in_logs(self, group_id: str, offsets: Mapping[TransactionPartition, int]) -> None:
        """By the logs as they are known here, and only then as they are on the store: an end never falls."""
        asked = [
            at for at, offset in offsets.items() if offset > 0 and not self._is_known_to_reach(at, offset)
        ]
        for at, state in zip(asked, self._logs.refresh_all(map(self._logs.of, asked)), strict=True):
            if offsets[at] > state.high_watermark:
                raise OffsetOutOfRangeError(
                    f"offset {offsets[at]}, beyond the end of the log",
                    actor=f"group {group_id!r}",
                    place=f"{at.topic}-{at.partition}",
                    expected=f"at most {state.high_watermark}",
                    action="commit a position that was read; nothing was committed",
                    reason=Reason.OFFSET_BEYOND_END,
                )

    def _is_known_to_reach(self, partition: TransactionPartition, offset: int) -> bool:
        log = self._logs.of(partition)
        return log.is_loaded and offset <= log.view().high_watermark

    def check_new_group(self, group_id: str) -> None:
        """Refuse a group id that is no new name, unless the group has offsets from before this rule."""
        if not is_new_name(group_id) and all(
            stored.commit.key.group_id != group_id for stored in self.offsets(group_id).live()
        ):
            raise InvalidGroupIdError(
                f"group id '{printable(group_id):.60}'",
                expected=NEW_NAME,
                action="choose another id",
                reason=Reason.UNPRINTABLE_NAME,
            )

    def offsets(self, group_id: str) -> GroupOffsets:
        """All that the group's partition of `__consumer_offsets` keeps, as of now."""
        return self.log(group_id).refresh().group_offsets

    def group_ids(self) -> Listing[str]:
        """All groups with a committed or pending offset, sorted."""
        names: set[str] = set()
        looked = self._logs.look(self._logs.internal(CONSUMER_OFFSETS_TOPIC))
        for state in looked.states.values():
            offsets = state.group_offsets
            names |= {stored.commit.key.group_id for stored in offsets.live()}
            names |= {key.group_id for pending in offsets.pending.values() for key in pending}
        return Listing(sorted(names), looked.unreadable)


def fetched_from(
    state: PartitionState,
    group_id: str,
    partitions: Sequence[TransactionPartition],
    *,
    require_stable: bool,
) -> dict[TopicPartition, tuple[OffsetAndMetadata | None, FetchedRow]]:
    """As `GroupCoordinator.fetch`, from the state of the group's log."""
    found: dict[TopicPartition, tuple[OffsetAndMetadata | None, FetchedRow]] = {}
    for partition in partitions:
        key = offset_key(group_id, partition)
        pending = state.group_offsets.pending_by_other(key, -1)
        if require_stable and pending is not None:
            raise UnstableOffsetCommitError(
                f"producer id {pending} has a pending commit for {key.topic}-{key.partition}",
                actor=f"group {group_id!r}",
            )
        stored = state.group_offsets.committed.get(key)
        live = stored is not None and stored.commit.offset != TOMBSTONE_OFFSET
        fetched = FetchedRow(stored.offset) if stored and live else FetchedRow(NO_ROW, state.log_end_offset)
        position = _position(stored) if stored and live else None
        found[TopicPartition(partition.topic, partition.partition)] = (position, fetched)
    return found


def _forgotten(stored: StoredCommit) -> ForgottenOffset:
    key = stored.commit.key
    return ForgottenOffset(key.group_id, key.topic, key.partition, stored.commit.offset)


def _position(stored: StoredCommit) -> OffsetAndMetadata:
    return OffsetAndMetadata(stored.commit.offset, stored.commit.metadata, stored.commit.leader_epoch)


def offset_key(group_id: str, partition: TransactionPartition) -> OffsetKey:
    """What a group's offset for a partition is kept under."""
    return OffsetKey(group_id, partition.topic, partition.incarnation, partition.partition)


def check_group_id(group_id: str | None) -> str:
    """The group id; raises `InvalidGroupIdError` for none, an empty or an overlong one, and one that is no UTF-8."""
    is_text = isinstance(group_id, str)
    if not group_id or not is_text or len(group_id) > 1_000:
        raise InvalidGroupIdError(f"group id {group_id!r:.60}", expected="1 to 1000 characters of UTF-8")
    if not is_storable(group_id):
        raise InvalidGroupIdError(
            f"group id {group_id!r:.60}", expected="1 to 1000 characters of UTF-8", reason=Reason.NOT_UTF8
        )
    return group_id
