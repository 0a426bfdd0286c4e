"""Looking at the store and mending it: Kafka's Admin client."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from txn_engine.arguments import checked_texts, checks_arguments
from txn_engine.clock import Clock
from txn_engine.configs import INT64_MAX, TOPIC, parsed
from txn_engine.coordinator.coordinator import Coordinator
from txn_engine.coordinator.groups import GroupCoordinator, check_group_id
from txn_engine.errors import (
    ConcurrentTransactionsError,
    CorruptObjectError,
    GroupIdNotFoundError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    InvalidTxnStateError,
    OffsetOutOfRangeError,
    OffsetsPendingError,
    TransactionalIdNotFoundError,
    TxnEngineError,
)
from txn_engine.log.altering import altered_store, altered_topic, configs_of_store, configs_of_topic
from txn_engine.log.logs import Logs
from txn_engine.log.lost_topics import incarnation_of
from txn_engine.log.missing_files import missing_files
from txn_engine.log.objects import store_errors
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txn_engine.log.topics import Topic, checked_schema, evolved_topic
from txn_engine.maintain.retention import expired_files, log_start_by
from txn_engine.partition_log import PartitionLog
from txn_engine.protocol.cleaning import DELETE_RETENTION_MS
from txn_engine.protocol.measures import (
    PartitionMeasures,
    group_lag,
    measure,
    owners_of,
    time_since_ms,
    transaction_age_ms,
    transaction_start_ms,
)
from txn_engine.protocol.offset_commits import (
    TOMBSTONE_OFFSET,
    GroupOffsets,
    OffsetKey,
    StoredCommit,
    skipped_offsets,
)
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.producers import ProducerEntry
from txn_engine.protocol.proposals import MarkerProposal
from txn_engine.protocol.transaction_rows import StoredRow, TransactionPartition, TransactionState
from txn_engine.protocol.transactions import start_of
from txn_engine.reasons import Reason
from txn_engine.schemas.changes import Change
from txn_engine.schemas.effects import TopicAlteration, effects
from txn_engine.tables import check_publishable, check_schema, published_formats, refusal
from txn_engine.types import (
    RESET_METADATA,
    Configs,
    ConsumerGroupMetadata,
    ForgottenOffset,
    GroupDescription,
    GroupOffset,
    HangingTransaction,
    OffsetAndMetadata,
    PartitionOffsets,
    ProducerIdAndEpoch,
    ProducerState,
    TopicDescription,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
    WouldDrop,
)
from txn_engine.unreadable import (
    DAMAGE,
    ByPartition,
    Listing,
    Unreadable,
    one_place,
    raise_if_no_write_was_taken,
    raise_if_refused_everywhere,
)

if TYPE_CHECKING:
    from txn_engine.verify import FilesToRead, Place, VerifyReport

Progress = Callable[[str, int, int], None]
ResetTarget = int | Literal["earliest", "latest"]
"""Where a group is moved to in a partition."""

_RETENTION = frozenset({"retention.ms", "retention.bytes", "cleanup.policy"})


@checks_arguments
class Admin:
    """Topics, transactions, producers, groups, snapshots, and the audit."""

    def __init__(
        self,
        logs: Logs,
        coordinator: Coordinator,
        groups: GroupCoordinator,
        clock: Clock,
        lost_topics: Callable[[], list[Unreadable]],
    ) -> None:
        self._logs = logs
        self._coordinator = coordinator
        self._groups = groups
        self._clock = clock
        self._lost_topics = lost_topics

    # --- topics ---------------------------------------------------------------------------------------------

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        schema: pa.Schema | None = None,
        key: str | None = None,
        retention_ms: int = -1,
        cleanup_policy: str = "delete",
        delete_retention_ms: int = DELETE_RETENTION_MS,
        min_compaction_lag_ms: int = 0,
        tables_publish: str = "",
        retention_bytes: int = -1,
        min_cleanable_dirty_ratio: float = 0.5,
        max_message_bytes: int = 1 << 30,
        message_timestamp_before_max_ms: int = INT64_MAX,
        message_timestamp_after_max_ms: int = 3_600_000,
    ) -> TopicDescription:
        """Make a topic; without a schema it has Kafka's (key, value, headers). `alter_configs` changes the rest later.

        cleanup_policy: "delete": records go after `retention_ms` (-1: never); "compact": of each key the latest
            committed record stays; "compact,delete": both. A compacted topic needs a key column, and refuses records
            without a key (`InvalidRecordError`).
        delete_retention_ms: how long a tombstone stays, at the least, after what it supersedes is gone.
        min_compaction_lag_ms: records younger than this are not compacted by key.
        min_cleanable_dirty_ratio: a partition is compacted by key once this part of its bytes is new.
        max_message_bytes: of the data file that a batch is; producers split larger ones.
        message_timestamp_before_max_ms, message_timestamp_after_max_ms: how far a timestamp that a producer gives may
            be behind its clock, and ahead of it (`InvalidTimestampError`).
        retention_bytes: with "delete", the oldest files of a partition go while the others have as many (-1: never).
        tables_publish: "delta", "iceberg" or "delta,iceberg": maintenance publishes it as such tables (docs/TABLES.md),
            which have to have all its types.

        Raises `TopicExistsError`, `InvalidConfigError`, `InvalidRequestError`.
        """
        settings = {
            "retention.ms": retention_ms,
            "cleanup.policy": cleanup_policy,
            "delete.retention.ms": delete_retention_ms,
            "min.compaction.lag.ms": min_compaction_lag_ms,
            "tables.publish": tables_publish,
            "retention.bytes": retention_bytes,
            "min.cleanable.dirty.ratio": min_cleanable_dirty_ratio,
            "max.message.bytes": max_message_bytes,
            "message.timestamp.before.max.ms": message_timestamp_before_max_ms,
            "message.timestamp.after.max.ms": message_timestamp_after_max_ms,
        }
        formats = parsed(TOPIC["tables.publish"], tables_publish, actor=f"topic {topic!r:.80}")
        checked, _ = checked_schema(topic, schema, key)
        check_schema(topic, checked, [*filter(None, str(formats).split(","))])
        if self._logs.topics.is_unknown(topic):
            for lost in self._lost_topics():
                if lost.topic == topic:
                    raise lost.error
        return _described(
            self._logs.topics.create(topic, partitions=partitions, schema=schema, key=key, settings=settings)
        )

    def add_partitions_to_topic(
        self, topic: str, total_partitions: int, *, dry_run: bool = False
    ) -> TopicDescription:
        """Let a topic have so many partitions, all told (Kafka's createPartitions). There is no way back.

        Records with a key go by the new number from then on: a key's later records may stand in another partition than
        its earlier ones. Producers and subscribers that are open notice within five seconds. Raises
        `InvalidPartitionsError` unless the number is above the present one. `dry_run`: the same, nothing is written.
        """
        return _described(self._logs.topics.add_partitions(topic, total_partitions, dry_run=dry_run))

    def alter_topic(
        self, topic: str, changes: Change | Sequence[Change], *, dry_run: bool = False
    ) -> TopicAlteration:
        """Change a topic's columns: all of these changes, one after the other, as one version of its schema, or none
        (docs/SCHEMAS.md). There is no way back from a column that was dropped.

        Guarantee: no file is written anew, and every reader goes on to give the right values. When this returns, each
        producer and reader of this engine has the new columns in its next call; other processes do within five seconds.
        Judged by what the topic is when the change lands. Raises `InvalidRequestError` for a change that would lose
        data, or that a reader could not follow; nothing was written then. `dry_run`: the same, and nothing is written.
        """
        asked = list(changes) if isinstance(changes, Sequence) else [changes]
        alter = partial(evolved_topic, changes=asked)
        before = self._logs.topics.look_up(topic)
        published = published_formats(self._logs, before, self._clock)
        before, after = self._logs.topics.change(topic, alter, dry_run=dry_run)
        return TopicAlteration(
            topic,
            after.version,
            tuple(map(str, asked)),
            before.schema,
            after.schema,
            effects(
                before.schemas.layout,
                after.schemas.layout,
                {name: refusal(after, name) for name in published},
                before.tables_publish,
            ),
            dry_run,
        )

    def delete_topic(self, topic: str) -> None:
        """Delete a topic. Its objects stay until the clean-up; a topic made again under the name is another one.

        Of a topic that was lost it records that it is gone: nothing that names it speaks against the store any more.
        """
        if self._logs.topics.is_unknown(topic):
            lost = [incarnation_of(each) for each in self._lost_topics() if each.topic == topic]
            if lost:
                self._logs.topics.bury(topic, max(lost))
                return
        self._logs.topics.delete(topic)

    def list_topics(self) -> Listing[str]:
        """The topics there are, without the internal ones: also those whose own objects cannot be read, which
        `unreadable` names. What is below `topics/` under a name that no topic can have is not listed.
        """
        survey = self._logs.topics.survey()
        return Listing(survey.names, survey.unreadable)

    def describe_topic(self, topic: str) -> TopicDescription:
        """Partitions, schema and key of a topic. Raises `UnknownTopicOrPartitionError`."""
        return _described(self._logs.topics.look_up(topic))

    def list_offsets(
        self, topic: str, partitions: Iterable[int] | None = None
    ) -> ByPartition[PartitionOffsets]:
        """Log start, last stable offset and high watermark of each partition, as of now.

        A partition that cannot be read is left out and named in `unreadable`; asking the answer for it raises why.
        """
        info = self._logs.topics.look_up(topic)
        numbers = list(range(info.partitions) if partitions is None else partitions)
        for number in numbers:
            info.check_partition(number)
        looked = self._logs.look(TransactionPartition(topic, info.incarnation, number) for number in numbers)
        return ByPartition(
            (
                (
                    TopicPartition(topic, at.partition),
                    PartitionOffsets(
                        topic,
                        at.partition,
                        state.log_start_offset,
                        state.last_stable_offset,
                        state.high_watermark,
                    ),
                )
                for at, state in looked.states.items()
            ),
            looked.unreadable,
        )

    def measure_partitions(self, topic: str | None = None) -> Listing[PartitionMeasures]:
        """What each partition holds, how far readers may go and who holds them back, as of now; all topics when none
        is named. Raises `UnknownTopicOrPartitionError` for one that is named and is not there.

        `unreadable` names the partitions that are missing here, and coordinator partitions whose rows were not asked:
        a holder without an owner may have it there.
        """
        states, damaged = self._look(*self._targets(topic, None, ()))
        owners: dict[int, StoredRow] = {}
        if any(state.open_transactions for state in states.values()):
            rows = (
                self._coordinator.rows()
            )  # after the partitions: what one of them shows open has its row by then
            owners = owners_of(rows)
            damaged += rows.unreadable
        now_ms = self._clock()
        return Listing((measure(at, state, owners, now_ms) for at, state in states.items()), damaged)

    def find_missing_files(self, topic: str | None = None) -> list[Unreadable]:
        """One error for each partition that lacks a data file which readers need, or has it in another size; of all
        topics when none is named. It lists data files and reads none of them.

        Raises `UnknownTopicOrPartitionError` for a topic that is named and does not exist.
        """
        states, _ = self._look(*self._targets(topic, None, ()))
        return missing_files(self._logs, states)

    # --- settings -------------------------------------------------------------------------------------------

    def describe_configs(self, topic: str | None = None) -> Configs:
        """The settings of a topic, or of the store, by Kafka's names, as they are now.

        Raises `UnknownTopicOrPartitionError`.
        """
        if topic is not None:
            return configs_of_topic(self._logs.topics.look_up(topic))
        return configs_of_store(self._logs.settings.look_up(), self._logs.settings.fixed())

    def alter_configs(
        self, settings: Mapping[str, object], *, topic: str | None = None, dry_run: bool = False
    ) -> Configs:
        """Let these settings of a topic, or of the store, be so; None: as where nobody has said otherwise. Those that
        are not named stay. Answers with all as they are then, and what was changed.

        Guarantee: all of it at once or nothing, judged by what it comes to stand on. Whoever has the store open goes by
        it within five seconds, this engine at once. It may be called again where the outcome was unknown. `dry_run`:
        the same refusals and the same answer, and nothing is written.
        Raises `InvalidConfigError` for a setting that there is not, a value that it does not take, one that others rely
        on, or one that only the making of the store or topic can set.
        """
        if topic is not None:
            return self._alter_topic(topic, settings, dry_run=dry_run)
        alter = partial(altered_store, given=settings)
        if dry_run:
            now = self._logs.settings.look_up()
            before, after = now, replace(now, settings=alter(now.settings))
        else:
            before, after = self._logs.settings.change(alter)
        return configs_of_store(after, self._logs.settings.fixed(), before)

    def _alter_topic(self, topic: str, settings: Mapping[str, object], *, dry_run: bool) -> Configs:
        def alter(now: Topic) -> Topic:
            wanted = altered_topic(now, settings)
            check_publishable(
                wanted, [name for name in wanted.tables_publish if name not in now.tables_publish]
            )
            if wanted.is_compacted and not now.is_compacted:
                self._logs.topics.check_tombstones(wanted)
            return wanted

        before, after = self._logs.topics.change(topic, alter, dry_run=dry_run)
        found = configs_of_topic(after, before)
        if dry_run and _RETENTION & {change.name for change in found.changes}:
            found.would_drop = self._would_drop(after)
        return found

    def _would_drop(self, topic: Topic) -> WouldDrop:
        partitions = [
            TransactionPartition(topic.name, topic.incarnation, number) for number in range(topic.partitions)
        ]
        looked, moment = self._logs.look(partitions), self._logs.tools.store_time.estimate()
        files = [
            file
            for at, state in looked.states.items()
            for file in expired_files(state, log_start_by(self._logs.of(at), state, topic, moment))
        ]
        return WouldDrop(
            sum(file.record_count for file in files),
            sum(file.file.data_bytes for file in files),
            tuple(sorted(each.partition for each in looked.unreadable)),
        )

    # --- transactions ---------------------------------------------------------------------------------------

    def list_transactions(
        self,
        states: Iterable[str] | None = None,
        producer_ids: Iterable[int] | None = None,
        duration_ms: int | None = None,
        pattern: str | None = None,
    ) -> Listing[TransactionListing]:
        """The transactional ids there are, filtered as Kafka does (`TransactionStateManager.listTransactionStates`).

        `states`, `producer_ids`: one of these; an empty filter filters nothing, and an unknown state is refused.
        `duration_ms`: begun longer ago than that, by the log's time (ids that have no transaction count as well, as in
        Kafka). `pattern`: a regular expression for the whole id. Expired ids are not listed, nor are those of a
        coordinator partition that cannot be read, which `unreadable` names.
        """
        wanted_states = {_checked_state(name) for name in states or ()}
        wanted_ids = set(producer_ids or ())
        matches = _pattern(pattern)
        now_ms = self._clock()

        def is_wanted(stored: StoredRow) -> bool:
            row = stored.row
            return (
                row.state is not TransactionState.DEAD
                and (not wanted_states or row.state.value in wanted_states)
                and (not wanted_ids or row.producer_id in wanted_ids)
                and (
                    duration_ms is None or duration_ms < 0 or now_ms - start_of(stored, now_ms) > duration_ms
                )
                and matches(row.transactional_id)
            )

        rows = self._coordinator.rows()
        found = [stored.row for stored in rows if is_wanted(stored)]
        return Listing(
            (
                TransactionListing(row.transactional_id, row.producer_id, row.state.value)
                for row in sorted(found, key=lambda row: row.transactional_id)
            ),
            rows.unreadable,
        )

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """What the coordinator knows of an id. Raises `TransactionalIdNotFoundError`, also for an expired one."""
        if not transactional_id:
            raise InvalidRequestError("an empty transactional id", expected="a name")
        stored = self._coordinator.current(transactional_id)
        if stored is None or stored.row.state is TransactionState.DEAD:
            raise TransactionalIdNotFoundError(
                f"transactional id {transactional_id!r} is not known",
                place=self._logs.tools.objects.store.url,
            )
        row, now_ms = stored.row, self._clock()
        return TransactionDescription(
            row.transactional_id,
            row.state.value,
            row.producer_id,
            row.producer_epoch,
            row.transaction_timeout_ms,
            row.start_ms,
            tuple(TopicPartition(part.topic, part.partition) for part in row.partitions),
            transaction_start_ms(stored, now_ms),
            transaction_age_ms(stored, now_ms),
        )

    def coordinator_partition(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that keeps an id: Kafka's "Coordinator" column."""
        return self._logs.coordinator_partition(transactional_id)

    def describe_producers(self, topic: str, partition: int) -> list[ProducerState]:
        """What a partition remembers of each producer."""
        return PartitionLog(self._logs, topic, partition).producers()

    def find_hanging_transactions(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        max_transaction_timeout_ms: int = 900_000,
    ) -> Listing[HangingTransaction]:
        """Transactions open on a partition, last written to longer ago than any may be open, with no coordinator row
        behind them (`TransactionsCommand.FindHangingTransactionsCommand`).

        `topic` None: all topics and `__consumer_offsets`, which may be named too. Ages are by the log's time, not by
        the records' timestamps. What cannot be read is named in `unreadable`; where that is a coordinator partition,
        a transaction whose owner may be there is not called hanging.
        """
        if partition is not None and topic is None:
            raise InvalidRequestError(
                "a partition without a topic",
                expected="both, or a topic alone, or neither",
                reason=Reason.PARTITION_WITHOUT_TOPIC,
            )
        states, damaged = self._look(*self._targets(topic, partition, [CONSUMER_OFFSETS_TOPIC]))
        now_ms = self._clock()
        candidates = _open_too_long(states, max_transaction_timeout_ms, now_ms)
        if not candidates:
            return Listing((), damaged)
        owners = self._owners()
        orphans = [candidate for candidate in candidates if owners.miss(candidate[1])]
        # One that was ended between the two looks has no owner any more, and is not open any more either.
        again = self._logs.look_at_each(target for target, _ in orphans)
        still_open = _open_too_long(again.states, max_transaction_timeout_ms, now_ms)
        found = [hanging for target, hanging in still_open if (target, hanging) in orphans]
        return Listing(found, [*damaged, *again.unreadable, *owners.unreadable])

    def _owners(self) -> _Owners:
        """Whom the coordinator knows, and which partitions their transactions are open or undecided in."""
        rows = self._coordinator.rows()
        return _Owners(
            frozenset(
                (stored.row.producer_id, part.topic, part.partition)
                for stored in rows
                if stored.row.state is TransactionState.ONGOING or stored.row.state.is_prepared
                for part in stored.row.partitions
            ),
            frozenset(stored.row.producer_id for stored in rows),
            rows.unreadable,
        )

    def abort_transaction(
        self, topic: str, partition: int, start_offset: int, *, dry_run: bool = False
    ) -> None:
        """End a hanging transaction with an abort marker: the operator's tool (KIP-664).

        Refused while a coordinator row still shows the producer's transaction with this partition: that one
        has an owner. Legal only while the transaction open from this offset is still the one that was looked
        at. `dry_run`: the same refusals, and nothing is written.
        """
        log = PartitionLog(self._logs, topic, partition)
        entry = next(
            (p for p in log.producers() if p.current_transaction_start_offset == start_offset >= 0), None
        )
        if entry is None:
            raise InvalidTxnStateError(
                f"no transaction is open from offset {start_offset} of {topic}-{partition}",
                action="`transactions describe-producers` shows the open ones",
            )
        owners = self._owners()
        if (entry.producer_id, topic, partition) in owners.owned:
            raise InvalidTxnStateError(
                f"the transaction of producer {entry.producer_id} on {topic}-{partition} has a coordinator",
                action="let it end, or fence its transactional id, or run `coordinator sweep` once it timed out",
                reason=Reason.HAS_COORDINATOR,
            )
        if not owners.knows(entry.producer_id):
            raise CorruptObjectError(
                f"the owner of producer {entry.producer_id} may stand in {owners.unreadable[0].place}, which cannot be"
                f" read: {owners.unreadable[0].error}",
                actor=f"abort of {topic}-{partition}",
                expected="a coordinator's log that says whether the transaction has an owner",
                action="mend that first",
            )
        if dry_run:
            return
        (target,) = self._partitions_of(topic, partition)
        self._logs.of(target).append_one(
            MarkerProposal(
                entry.producer_id,
                entry.producer_epoch,
                committed=False,
                coordinator_epoch=max(entry.coordinator_epoch, 0),
                operator_start_offset=start_offset,
            )
        )

    def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, ProducerIdAndEpoch]:
        """Fence whoever uses these ids, and abort what they have open (KIP-664).

        An id whose coordinator partition cannot be read keeps none of the others from being fenced: its error is raised
        at the end, and says which were. `InvalidRequestError` for what is no id; nobody was fenced then.
        """
        names = checked_texts("fence", "transactional ids", transactional_ids)
        for name in names:
            self._coordinator.check_id(name)
        fenced: dict[str, ProducerIdAndEpoch] = {}
        failed: dict[str, TxnEngineError] = {}
        for name in names:
            try:
                with one_place(TRANSACTION_STATE_TOPIC, self.coordinator_partition(name)):
                    fenced[name] = self._fence(name)
            except DAMAGE as error:
                failed[name] = error
        self._logs.tools.objects.confirm()
        if failed:
            first = next(iter(failed.values()))
            raise type(first)(
                f"{first.seen}; not fenced: {', '.join(map(repr, failed))};"
                f" fenced: {', '.join(map(repr, fenced)) or 'none'}",
                actor="fence",
                place=first.place,
                expected=first.expected,
                action=first.action,
                reason=first.reason,
            )
        return fenced

    def _fence(self, name: str) -> ProducerIdAndEpoch:
        timeout_ms = min(_FENCE_TIMEOUT_MS, self._logs.settings.limits.max_transaction_timeout_ms)
        for _ in range(_FENCE_TRIES):
            try:
                return self._coordinator.init_producer_id(name, transaction_timeout_ms=timeout_ms)
            except ConcurrentTransactionsError:
                self._coordinator.finish(name)
        raise ConcurrentTransactionsError(
            "the id's last transaction cannot be completed", actor=f"fence {name!r}"
        )

    # --- groups ---------------------------------------------------------------------------------------------

    def list_groups(self) -> Listing[str]:
        """All groups with offsets; those of a partition of `__consumer_offsets` that cannot be read are not listed,
        and `unreadable` names it.
        """
        return self._groups.group_ids()

    def describe_group(self, group_id: str) -> GroupDescription:
        """Committed and pending offsets of a group, and its lag against the LSO. Raises `GroupIdNotFoundError`.

        Offsets in a topic that was deleted stay until they are forgotten; their last stable offset is -1.
        """
        offsets = self._groups.offsets(group_id)
        known = {key for key, at in offsets.committed.items() if at.commit.offset != TOMBSTONE_OFFSET}
        known |= {key for pending in offsets.pending.values() for key in pending}
        keys = sorted(key for key in known if key.group_id == group_id)
        if not keys:
            raise GroupIdNotFoundError(f"group {group_id!r} has no offsets")
        unreadable: list[Unreadable] = []
        states: dict[OffsetKey, PartitionState | None] = {}
        for key in keys:
            try:
                with one_place(key.topic, key.partition):
                    states[key] = self._state_of(key)
            except DAMAGE as error:
                states[key] = None
                unreadable.append(Unreadable(key.topic, key.partition, error))
        found = tuple(_group_offset(key, offsets, states[key]) for key in keys)
        return GroupDescription(group_id, found, tuple(unreadable))

    def _state_of(self, key: OffsetKey) -> PartitionState | None:
        """The state of the partition that an offset is of; None where the topic was deleted."""
        if not self._logs.topics.exists(key.topic, key.incarnation):
            return None
        return self._logs.get(key.topic, key.incarnation, key.partition).refresh()

    def delete_group(self, group_id: str, *, dry_run: bool = False) -> list[ForgottenOffset]:
        """Forget all offsets of a group, and say which they were (Kafka's deleteConsumerGroups).

        A reader that is under way is refused at its commit. Raises `GroupIdNotFoundError`, and `OffsetsPendingError`,
        with nothing written, while a transaction has offsets of the group pending. `dry_run`: the same refusals and
        the same answer, and nothing is written.
        """
        self.describe_group(group_id)
        with self._telling_who_is_pending(group_id):
            return self._groups.delete(group_id, dry_run=dry_run)

    @contextmanager
    def _telling_who_is_pending(self, group_id: str) -> Iterator[None]:
        """Let a refusal for pending offsets name the transactional id that holds them, and what ends it."""
        try:
            yield
        except OffsetsPendingError as error:
            with suppress(TxnEngineError):  # the refusal stands without it
                error.action = self._end_of_pending(group_id)
            raise

    def _end_of_pending(self, group_id: str) -> str:
        pending = {each.pending_producer_id for each in self.describe_group(group_id).partitions}
        known = {each.producer_id: each.transactional_id for each in self.list_transactions()}
        names = sorted(known[producer_id] for producer_id in pending if producer_id in known)
        if not names:
            return "try again: that transaction is complete by now"
        told = f"wait for transactional id {names[0]!r}, or end its transaction:"
        return f"{told} txn-engine transactions fence {shlex.quote(names[0])}"

    def expire_group_offsets(
        self,
        *,
        retention_ms: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> Listing[ForgottenOffset]:
        """Forget the offsets that were committed at least so long ago, by the log's time, and say which they were: of
        all groups, in all topics, or in the one named, or in that partition of it.

        `retention_ms` None: as long as the store's `offsets.retention.minutes` says, which is for ever where nobody has
        set it: a group that reads once a week must not lose its place. An offset with a pending commit is left alone.
        `dry_run`: say what would be forgotten, and write nothing.
        """
        if retention_ms is None:
            retention_ms = self._logs.settings.limits.offsets_retention_ms
            if retention_ms is None:
                return Listing((), ())
        if retention_ms < 0:
            raise InvalidRequestError(f"retention_ms={retention_ms}", expected="0 or more")
        if topic is None and partition is not None:
            raise InvalidRequestError(
                "a partition without a topic",
                expected="both, or a topic alone, or neither",
                reason=Reason.PARTITION_WITHOUT_TOPIC,
            )
        return self._groups.expire(retention_ms, topic=topic, partition=partition, dry_run=dry_run)

    def reset_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, ResetTarget], *, execute: bool = False
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Move a group; (old, new) of each partition, old -1 for none. Only with `execute` anything is written.

        An offset is the caller's own; "earliest" (the first record that is still there) and "latest" (the last stable
        offset) are of the very topic that the group is moved in, whatever is deleted and made again meanwhile.

        The commits carry the note `reset-offsets`: by it a proof tells what was moved on purpose.

        Refused with `OffsetsPendingError` while a transaction has offsets of it pending. A reader that is under way
        meanwhile is refused at its commit.
        """
        check_group_id(group_id)
        topics = {name: self._logs.topics.look_up(name) for name in {tp.topic for tp in offsets}}
        targets = dict(self._reset_target(topics[tp.topic], tp.partition, at) for tp, at in offsets.items())
        found = self._groups.fetch(group_id, list(targets), require_stable=False)
        moves = {}
        for target, at in targets.items():
            tp = TopicPartition(target.topic, target.partition)
            old = found[tp][0]
            moves[tp] = (old.offset if old else -1, at)
        if execute:
            group = ConsumerGroupMetadata(group_id, "", {tp: fetched for tp, (_, fetched) in found.items()})
            with self._telling_who_is_pending(group_id):
                self._groups.commit(
                    group, {target: OffsetAndMetadata(at, RESET_METADATA) for target, at in targets.items()}
                )
        return moves

    def _reset_target(
        self, topic: Topic, partition: int, at: ResetTarget
    ) -> tuple[TransactionPartition, int]:
        """The partition of this very topic, and the offset there."""
        topic.check_partition(partition)
        state = self._logs.get(topic.name, topic.incarnation, partition).refresh()
        ends = {"earliest": state.log_start_offset, "latest": state.last_stable_offset}
        offset = ends.get(at) if isinstance(at, str) else at
        if offset is None or not state.log_start_offset <= offset <= state.high_watermark:
            raise OffsetOutOfRangeError(
                f"offset {at} for {topic.name}-{partition}",
                expected=f"{state.log_start_offset} to {state.high_watermark}",
            )
        return TransactionPartition(topic.name, topic.incarnation, partition), offset

    # --- upkeep ---------------------------------------------------------------------------------------------

    def snapshot(self, topic: str | None = None, partition: int | None = None) -> ByPartition[int]:
        """Write snapshots where the log has grown (all topics and the internal ones when none is named);
        their offsets. A partition that cannot be read, or that the store takes no write in, gets none, and `unreadable`
        names it; raises where the store takes none at all.
        """
        if partition is not None and topic is None:
            raise InvalidRequestError(
                "a partition without a topic",
                expected="both, or a topic alone, or neither",
                reason=Reason.PARTITION_WITHOUT_TOPIC,
            )
        internal = [TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC]
        targets, unreadable = self._targets(topic, partition, internal)
        written: list[tuple[TopicPartition, int]] = []
        found_any = False
        for target, end in zip(targets, self._logs.workers.map(self._snapshot, targets), strict=True):
            found_any = found_any or not isinstance(end, Unreadable)
            if isinstance(end, Unreadable):
                unreadable.append(end)
            elif end is not None:
                written.append((TopicPartition(target.topic, target.partition), end))
        raise_if_refused_everywhere(unreadable, found_any=found_any)
        raise_if_no_write_was_taken(unreadable, wrote_any=bool(written))
        self._logs.tools.objects.confirm()
        return ByPartition(written, unreadable)

    def _snapshot(self, target: TransactionPartition) -> int | Unreadable | None:
        try:
            with one_place(target.topic, target.partition):
                return self._logs.of(target).write_snapshot()
        except DAMAGE as error:
            return Unreadable(target.topic, target.partition, error)

    def _targets(
        self, topic: str | None, partition: int | None, internal: Sequence[str]
    ) -> tuple[list[TransactionPartition], list[Unreadable]]:
        """The partitions that a call is about: the named ones, or those of these internal topics and of all others;
        and the topics whose own objects cannot be read.
        """
        if topic is not None:
            return self._partitions_of(topic, partition), []
        survey = self._logs.topics.survey_each()
        targets = [target for name in internal for target in self._partitions_of(name, None)]
        targets += [
            TransactionPartition(info.name, info.incarnation, number)
            for info in survey.topics
            for number in range(info.partitions)
        ]
        return targets, list(survey.unreadable)

    def _look(
        self, targets: Iterable[TransactionPartition], damaged: list[Unreadable]
    ) -> tuple[Mapping[TransactionPartition, PartitionState], list[Unreadable]]:
        """The states of these partitions, and what cannot be read beside what is `damaged`: raises where that is all,
        and each of it is refused.
        """
        looked = self._logs.look_at_each(targets)
        unreadable = [*damaged, *looked.unreadable]
        raise_if_refused_everywhere(unreadable, found_any=bool(looked.states))
        return looked.states, unreadable

    def _partitions_of(self, topic: str, partition: int | None) -> list[TransactionPartition]:
        if topic in self._logs.config.internal_partitions:
            count, incarnation = self._logs.config.internal_partitions[topic], 0
            if partition is not None:
                self._logs.check_internal(topic, partition)
        else:
            info = self._logs.topics.look_up(topic)
            count, incarnation = info.partitions, info.incarnation
            if partition is not None:
                info.check_partition(partition)
        numbers: Sequence[int] = range(count) if partition is None else [partition]
        return [TransactionPartition(topic, incarnation, number) for number in numbers]

    def verify(
        self,
        *,
        progress: Progress | None = None,
        topics: Sequence[str] | None = None,
        files_of: Collection[str] = (),
        groups_of: Collection[str] = (),
        data_to_read: Mapping[Place, FilesToRead] | None = None,
    ) -> VerifyReport:
        """Replay everything from the raw objects and check every invariant (PROTOCOL.md, section 8).

        The arguments are those of `verify.verify_store`.
        """
        from txn_engine.verify import verify_store  # a seventh of what it takes to import the engine

        with store_errors():
            return verify_store(
                self._logs.tools.objects.store,
                progress=progress,
                now_ms=self._clock(),
                topics=topics,
                files_of=files_of,
                groups_of=groups_of,
                data_to_read=data_to_read,
            )


_FENCE_TRIES = 20
_FENCE_TIMEOUT_MS = 30_000  # what Kafka's admin client gives
_FILTER_STATES = [*(state.value for state in TransactionState), "PrepareEpochFence"]


@dataclass(frozen=True, slots=True)
class _Owners:
    """What the coordinator's logs say of producer ids, as far as they can be read.

    owned: (producer id, topic, partition) of every transaction that is open or undecided; named: the producer ids of
        all rows. A producer id belongs to one transactional id for ever, so one that is named has no row elsewhere.
    """

    owned: frozenset[tuple[int, str, int]]
    named: frozenset[int]
    unreadable: tuple[Unreadable, ...]

    def knows(self, producer_id: int) -> bool:
        """Whether no log that cannot be read may hold the producer's transaction."""
        return not self.unreadable or producer_id in self.named

    def miss(self, open_one: HangingTransaction) -> bool:
        """Whether it is certain that no coordinator row has this transaction."""
        place = (open_one.producer_id, open_one.topic, open_one.partition)
        return place not in self.owned and self.knows(open_one.producer_id)


def _described(topic: Topic) -> TopicDescription:
    return TopicDescription(
        topic.name,
        topic.incarnation,
        topic.partitions,
        topic.key,
        topic.schema,
        topic.retention_ms,
        topic.created_ms,
        topic.cleanup_policy,
        topic.delete_retention_ms,
        topic.min_compaction_lag_ms,
        ",".join(topic.tables_publish),
        topic.retention_bytes,
        topic.min_cleanable_dirty_ratio,
        topic.max_message_bytes,
        topic.message_timestamp_before_max_ms,
        topic.message_timestamp_after_max_ms,
    )


def _group_offset(key: OffsetKey, offsets: GroupOffsets, state: PartitionState | None) -> GroupOffset:
    stored = offsets.committed.get(key)
    pending: tuple[int, StoredCommit] | None = next(
        (
            (producer_id, commits[key])
            for producer_id, commits in sorted(offsets.pending.items())
            if key in commits
        ),
        None,
    )
    committed = stored.commit.offset if stored else -1
    measured = group_lag(committed, state)
    return GroupOffset(
        key.topic,
        key.partition,
        committed,
        pending[1].commit.offset if pending else -1,
        pending[0] if pending else -1,
        measured.last_stable_offset,
        measured.lag_offsets,
        stored.commit.metadata if stored else "",
        stored.commit.commit_ms if stored else -1,
        measured.high_watermark,
        measured.held_back_offsets,
        measured.gone_offsets,
        measured.beyond_offsets,
        skipped_offsets(stored.commit.metadata) if stored else 0,
    )


def _open_too_long(
    states: Mapping[TransactionPartition, PartitionState], limit_ms: int, now_ms: int
) -> list[tuple[TransactionPartition, HangingTransaction]]:
    return [
        (target, _hanging(target, entry, now_ms))
        for target, state in states.items()
        for _, entry in sorted(state.producers.items())
        if entry.is_open and now_ms - entry.append_time > limit_ms
    ]


def _hanging(target: TransactionPartition, entry: ProducerEntry, now_ms: int) -> HangingTransaction:
    return HangingTransaction(
        target.topic,
        target.partition,
        entry.producer_id,
        entry.producer_epoch,
        entry.coordinator_epoch,
        entry.open_first_offset,
        entry.last_timestamp,
        time_since_ms(entry.append_time, now_ms),
    )


def _checked_state(name: str) -> str:
    if name not in _FILTER_STATES:
        raise InvalidRequestError(f"transaction state {name!r}", expected=", ".join(_FILTER_STATES))
    return name


def _pattern(pattern: str | None) -> Callable[[str], bool]:
    if not pattern:
        return lambda _: True
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InvalidRegularExpressionError(
            f"pattern {pattern!r}: {error}", expected="a regular expression"
        ) from error
    return lambda name: compiled.fullmatch(name) is not None
