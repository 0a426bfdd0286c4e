"""A partition alone, with the rules that its leader keeps in Kafka."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from txn_engine.arguments import check_flags
from txn_engine.errors import InvalidRequestError, SchemaChangedError, UnknownTopicOrPartitionError
from txn_engine.log.data_files import conform
from txn_engine.log.entry_log import EntryLog
from txn_engine.log.logs import Logs
from txn_engine.log.reading import check_start, choose_files, empty_table, present_files, read_slices
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC
from txn_engine.log.topics import Topic
from txn_engine.log.uploads import MAX_BATCH_ROWS, check_times, checked_time, upload_records
from txn_engine.protocol.appends import check_batch_shape
from txn_engine.protocol.batches import NO_FILE
from txn_engine.protocol.log_time import EARLIEST_MS
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.proposals import DataProposal, Duplicate, MarkerProposal, Refused, Verdict
from txn_engine.reasons import Reason
from txn_engine.scan import check_isolation
from txn_engine.types import AbortedTransaction, AppendResult, IsolationLevel, ProducerState

_UNNAMED_MAX_OFFSET = 2**63 - 1


class PartitionLog:
    """The log of one partition. `Engine.partition(topic, partition)` gives one.

    It takes any producer id and does not ask the coordinator: the producer does.

    Every property and call looks at the store afresh.
    """

    def __init__(self, logs: Logs, topic: str, partition: int) -> None:
        self._logs = logs
        self.topic = topic
        self.partition = partition
        self._made_for = 0
        if topic == CONSUMER_OFFSETS_TOPIC:
            logs.check_internal(topic, partition)
        else:
            found = logs.topics.look_up(topic)
            found.check_partition(partition)
            self._made_for = found.incarnation

    def __repr__(self) -> str:
        return f"<PartitionLog of {self.topic}-{self.partition}>"

    @property
    def _log(self) -> EntryLog:
        """The log under the topic's present incarnation."""
        incarnation = 0 if self.topic == CONSUMER_OFFSETS_TOPIC else self._with_records().incarnation
        return self._logs.get(self.topic, incarnation, self.partition)

    # --- append ---------------------------------------------------------------------------------------------

    def append(
        self,
        table: pa.Table,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        timestamp_ms: int | None = None,
    ) -> AppendResult:
        """Append one batch under the sequence rules of a partition leader; a re-sent one returns where the
        first went.

        A transaction's batches belong to the topic that the transaction lists: `UnknownTopicOrPartitionError` where
        it was made again since this log was asked for.
        """
        check_flags("append", is_transactional=is_transactional)
        topic = self._known_topic()
        if is_transactional and topic.incarnation != self._made_for:
            raise UnknownTopicOrPartitionError(
                f"topic {topic.name!r} was deleted and made again since",
                actor=f"producer {producer_id} epoch {producer_epoch}",
                place=f"{self.topic}-{self.partition}",
                expected="the topic that the transaction lists",
                action="abort; then ask the engine for the partition again",
                reason=Reason.TOPIC_MADE_AGAIN,
            )
        asked = self._logs.ask_whether_current(topic.name, topic.incarnation)
        records = conform(table, topic.schemas, topic=topic.name)
        if records.num_rows > MAX_BATCH_ROWS:
            raise InvalidRequestError(
                f"a batch of {records.num_rows} rows", expected=f"at most {MAX_BATCH_ROWS}"
            )
        identity = {"producer_id": producer_id, "producer_epoch": producer_epoch}
        stamp = self._logs.tools.clock()
        if timestamp_ms is not None:
            actor = f"append to {self.topic}-{self.partition}"
            given_ms = checked_time(timestamp_ms, EARLIEST_MS, actor)
            check_times(topic, given_ms, given_ms, stamp, actor)
            stamp = given_ms
        shape = DataProposal(
            records.num_rows,
            stamp,
            stamp,
            NO_FILE,
            **identity,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
        check_batch_shape(shape)
        log = self._logs.get(self.topic, topic.incarnation, self.partition)
        encoded = upload_records(
            self._logs.tools.objects,
            self._logs.tools.new_id,
            log.keys.prefix,
            records,
            topic.schemas.layout,
            log_end=log.recent().log_end_offset,
            timestamp_ms=stamp,
            most_bytes=topic.max_message_bytes,
            **identity,
        )
        if not asked.result():
            return self.append(
                table,
                **identity,
                base_sequence=base_sequence,
                is_transactional=is_transactional,
                timestamp_ms=timestamp_ms,
            )
        return _result(log.append([replace(shape, file=encoded.file)])[0])

    def append_marker(
        self, *, producer_id: int, producer_epoch: int, committed: bool, coordinator_epoch: int
    ) -> AppendResult:
        """Append a commit or abort marker under the rules of transactions V2; a repeated one writes nothing
        (offsets -1).
        """
        check_flags("append_marker", committed=committed)
        return _result(
            self._log.append([MarkerProposal(producer_id, producer_epoch, committed, coordinator_epoch)])[0]
        )

    # --- read -----------------------------------------------------------------------------------------------

    def read(
        self, start: int, *, end: int | None = None, isolation_level: IsolationLevel = "read_committed"
    ) -> pa.Table:
        """The records from `start` on, up to `end` or what the isolation level lets be seen; empty when there
        is nothing.
        """
        check_isolation(isolation_level)
        topic = self._with_records()
        state = self._logs.get(self.topic, topic.incarnation, self.partition).refresh()
        check_start(state, self.topic, self.partition, start)
        parts = choose_files(
            state, self.partition, start, _UNNAMED_MAX_OFFSET if end is None else end, isolation_level
        )
        objects = self._logs.tools.objects
        present = present_files(objects, topic, parts)
        try:
            tables = list(read_slices(objects, topic, present))
        except SchemaChangedError:
            topic = self._logs.topics.look_up(self.topic)
            tables = list(read_slices(objects, topic, present))
        return pa.concat_tables(tables) if tables else empty_table(topic)

    def _with_records(self) -> Topic:
        """The topic as it is now: what was deleted and made again is another one."""
        self._check_has_records()
        return self._logs.topics.as_of_now(self.topic, self.partition)

    def _known_topic(self) -> Topic:
        self._check_has_records()
        return self._logs.topics.having(self.topic, self.partition)

    def _check_has_records(self) -> None:
        if self.topic == CONSUMER_OFFSETS_TOPIC:
            raise InvalidRequestError("records of an internal topic", expected="a topic of the user's")

    # --- what it is at --------------------------------------------------------------------------------------

    @property
    def state(self) -> PartitionState:
        """All that the log says, as of now."""
        return self._log.refresh()

    @property
    def log_start_offset(self) -> int:
        """The first offset that is still there."""
        return self._log.refresh().log_start_offset

    @property
    def high_watermark(self) -> int:
        """The log's end."""
        return self._log.refresh().high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Where a read_committed reader has to stop."""
        return self._log.refresh().last_stable_offset

    @property
    def has_late_transaction(self) -> bool:
        """Whether a transaction here is open beyond the longest timeout there is and five minutes
        (`PartitionsWithLateTransactionsCount`): readers wait for it, and no sweep has ended it.
        """
        longest = self._logs.settings.limits.max_transaction_timeout_ms
        return self._log.refresh().has_late_transaction(self._logs.tools.clock(), longest)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """What a fetch of [start, end) must know of aborted transactions (`TransactionIndex.collectAbortedTxns`)."""
        found = []
        for _, aborted in sorted(self._log.refresh().aborted.items()):
            if aborted.last_offset >= start and aborted.first_offset < end:
                found.append(
                    AbortedTransaction(
                        aborted.producer_id,
                        aborted.first_offset,
                        aborted.last_offset,
                        aborted.last_stable_offset,
                    )
                )
            if aborted.last_stable_offset >= end:
                break
        return found

    def producers(self) -> list[ProducerState]:
        """What the partition remembers of each producer, by id."""
        return [
            ProducerState(
                entry.producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.open_first_offset,
            )
            for _, entry in sorted(self._log.refresh().producers.items())
        ]


def _result(verdict: Verdict) -> AppendResult:
    if isinstance(verdict, Refused):
        raise verdict.error
    return AppendResult(verdict.base_offset, verdict.last_offset, isinstance(verdict, Duplicate))
