"""The states of a store's logs as of a cut: what a backup keeps of them (PROTOCOL.md, section 7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np

from storage import LogKeys, stored_checksum
from txn_engine.backup.manifest import ObjectRef
from txn_engine.errors import InvalidRequestError, OutcomeUnknownError
from txn_engine.log.as_of import AsOfCut, EarlierLog
from txn_engine.log.cut_format import Cut, LogCut
from txn_engine.log.entry_format import OFFSETS_LOG, TRANSACTION_LOG, USER_LOG, LogKind
from txn_engine.log.logs import Logs
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txn_engine.log.topics import Topic, partition_prefix
from txn_engine.maintain.merging import FileMerger
from txn_engine.maintain.slots import Slots
from txn_engine.protocol.as_of_cut import Above, RunsOutside, files_across, ids_as_of, key_of, partition_as_of
from txn_engine.protocol.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, FileRef
from txn_engine.protocol.file_names import DataFileName
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.protocol.transaction_rows import TransactionPartition, TransactionState
from txn_engine.reasons import Reason
from txn_engine.schemas.layout import OFFSET

Read = TypeVar("Read")


class StatesAsOf:
    """The states of one store's logs as of one cut, which holds what they need.

    Raises `InvalidRequestError` where entries that tell what is above the cut are sealed: it is too old then.
    """

    def __init__(self, logs: Logs, cut: Cut) -> None:
        self.cut = cut
        self._logs = logs
        self._tools = logs.tools
        self._as_of = AsOfCut(logs.tools, cut)

    # --- topics and groups ----------------------------------------------------------------------------------

    def partition(self, topic: Topic, number: int, put: Callable[[ObjectRef, bytes], None]) -> PartitionState:
        """The state of a topic's partition; `put` is given the file that holds what is inside of one that the cut goes
        through.
        """
        log = self.cut.log(topic.name, topic.incarnation, number)
        if log is None or log.offset == 0:
            return PartitionState()
        state = self._as_of.state(topic.name, topic.incarnation, number)
        across = files_across(state, log.offset)
        shortened = {
            file.file.data_path: self._shortened(topic, number, file, log.offset, put) for file in across
        }
        return partition_as_of(state, log.offset, shortened)

    def _shortened(
        self, topic: Topic, number: int, file: LogFile, offset: int, put: Callable[[ObjectRef, bytes], None]
    ) -> LogFile | None:
        """The records below the offset as a file of their own, under a name that nobody else has."""
        tools = self._tools
        merger = FileMerger.of_its_columns(tools.objects, tools.executor, topic, number, file)
        tables = (table for _, tables in merger.read([file], [OFFSET]) for table in tables)
        inside = np.concatenate([table.column(OFFSET).to_numpy() < offset for table in tables])
        if not inside.any():
            return None
        name = DataFileName(offset, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, self._tools.new_id())
        made = merger.merge([file], name.write_id, inside)
        ref = FileRef(name.data_path, len(made.data), stored_checksum(made.data))
        put(ObjectRef(f"{topic.prefix(number)}/{ref.data_path}", ref.data_bytes, ref.checksum), made.data)
        return LogFile(
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_offset=made.first_offset,
            last_offset=made.last_offset,
            record_count=made.record_count,
            first_timestamp=made.first_timestamp,
            max_timestamp=made.max_timestamp,
            file=ref,
        )

    def groups(self, number: int) -> PartitionState:
        """The offsets that one partition of `__consumer_offsets` kept."""
        log = self.cut.groups[number]
        offsets = self._as_of.group_offsets(number)
        return PartitionState(log_end_offset=log.snapshot, group_offsets=offsets)

    # --- ids ------------------------------------------------------------------------------------------------

    def ids(self) -> list[PartitionState]:
        """The transactional ids of each partition of `__transaction_state`, with the runs that are inside.

        Whatever is inside was decided below the cut's ends of these logs. What was decided there and is not inside has
        a record at or above the cut in one of its logs.
        """
        above = Above()
        for found in self._logs.workers.map(self._above, self._cut_logs()):
            above.add(found)
        numbers = range(len(self.cut.coordinator_ends))
        states = list(self._logs.workers.map(self._at_the_cuts_end, numbers))
        begins = first_decisions(states, above)
        outside = self._logs.workers.map(self._runs_outside, numbers, begins, [above] * len(states))
        return [
            PartitionState(
                log_end_offset=state.log_end_offset,
                last_append_time=state.last_append_time,
                transactions=ids_as_of(state.transactions, runs),
            )
            for state, runs in zip(states, outside, strict=True)
        ]

    def _cut_logs(self) -> list[TransactionPartition]:
        logs = self._logs.internal(CONSUMER_OFFSETS_TOPIC)
        for topic in self.cut.topics:
            logs += [
                TransactionPartition(topic.topic, topic.incarnation, number)
                for number in range(len(topic.partitions))
            ]
        return logs

    def _above(self, at: TransactionPartition) -> Above:
        """The transactions that reach above the cut in this log, by all that is there now."""
        log = self.cut.log(at.topic, at.incarnation, at.partition) or LogCut(0, 0, 0)
        kind = OFFSETS_LOG if at.topic == CONSUMER_OFFSETS_TOPIC else USER_LOG
        earlier = self._log(at, kind)
        found = Above()

        def read() -> None:
            for slot in earlier.slots(log.slot):
                for batch in slot.batches:
                    found.see(batch, log.offset)

        self._unless_sealed(read)
        return found

    def _at_the_cuts_end(self, number: int) -> PartitionState:
        """Where nothing was written since, that is the state as last seen."""
        at, end = TransactionPartition(TRANSACTION_STATE_TOPIC, 0, number), self.cut.coordinator_ends[number]
        seen = self._logs.of(at).view()
        if seen.log_end_offset == end:
            return seen
        earlier = self._log(at, TRANSACTION_LOG)
        return self._unless_sealed(lambda: earlier.state_at(end))

    def _runs_outside(self, number: int, low: int | None, above: Above) -> Mapping[str, Collection[str]]:
        """`low`: where the first decision of a transaction above the cut may stand in the log; None: nowhere."""
        end = self.cut.coordinator_ends[number]
        if low is None or low >= end:
            return {}
        at = TransactionPartition(TRANSACTION_STATE_TOPIC, 0, number)
        earlier, keys = self._log(at, TRANSACTION_LOG), LogKeys(partition_prefix(*_fields(at)))
        begin = Slots(self._tools, keys, TRANSACTION_LOG).last_below(0, low + 1) or 0

        def read() -> Mapping[str, Collection[str]]:
            runs = RunsOutside(earlier.state_at(begin), above.keys)
            for slot in earlier.slots(begin):
                if slot.base_offset >= end:
                    break
                for batch in slot.batches:
                    runs.see(batch)
            return runs.runs

        return self._unless_sealed(read)

    def _log(self, at: TransactionPartition, kind: LogKind) -> EarlierLog:
        return EarlierLog(self._tools, LogKeys(partition_prefix(*_fields(at))), kind)

    def _unless_sealed(self, read: Callable[[], Read]) -> Read:
        try:
            return read()
        except OutcomeUnknownError as error:
            raise InvalidRequestError(
                f"entries that tell what is above cut {self.cut.number} are sealed",
                actor="backup",
                place=error.place,
                expected="a cut of the last days, and no transaction that hangs for as long",
                action="make a backup at a fresh cut, without --cut",
                reason=Reason.CUT_TOO_OLD,
            ) from error


def _fields(at: TransactionPartition) -> tuple[str, int, int]:
    return at.topic, at.incarnation, at.partition


def first_decisions(states: Sequence[PartitionState], above: Above) -> list[int | None]:
    """Where in each of the coordinator's logs, of which these are the states, the first row may stand that decides one
    of the transactions above the cut; None for nowhere.

    Markers say where; an id's latest row says so where there is none yet. A producer id that no id has now, nor had
    before, is one of an id that has expired since, or has gone through two more: it may be in any log, at any place.
    """
    owners = [
        {
            producer_id
            for stored in state.transactions.values()
            for producer_id in (stored.row.producer_id, stored.row.previous_producer_id)
        }
        for state in states
    ]
    committed = above.committed
    if any(not any(key.producer_id in owned for owned in owners) for key in committed):
        return [0] * len(states)
    found: list[int | None] = []
    for state, owned in zip(states, owners, strict=True):
        decided = [at for key, at in committed.items() if key.producer_id in owned]
        decided += [
            stored.offset
            for stored in state.transactions.values()
            if stored.row.state is TransactionState.PREPARE_COMMIT and key_of(stored.row) in above.keys
        ]
        found.append(min(decided, default=None))
    return found
