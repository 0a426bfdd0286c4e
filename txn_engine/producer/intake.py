"""What callers hand over: records, checked and cut into batches, or files that others have put on the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.clock import Clock
from txn_engine.errors import InvalidRequestError
from txn_engine.log.data_files import EncodedFile, conform, with_times
from txn_engine.log.topics import Topic
from txn_engine.log.uploads import check_times, checked_time, slices, too_large
from txn_engine.producer import machine as events
from txn_engine.producer.calls import Calls
from txn_engine.producer.cell import Cell
from txn_engine.producer.effects import Effects, ProducerTools
from txn_engine.producer.frames import RecordsLike, as_records
from txn_engine.producer.receipts import Receipt
from txn_engine.producer.sender import Records, Sender, tables_of
from txn_engine.producer.states import Call
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.reasons import Reason

Times: TypeAlias = "int | pa.Array[Any] | pa.ChunkedArray[Any] | None"
"""Of a call's records: one, or one each; None: now."""


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """The records of a call, and their times: one each (`times`), or `stamp` for all."""

    table: Records
    times: pa.ChunkedArray[Any] | None
    stamp: int

    def parts(self, topic: Topic) -> Iterator[pa.Table]:
        """The records as the topic has them, in parts that fit memory and one data file."""
        for records in tables_of(self.table):
            fitting = conform(records, topic.schemas, topic=topic.name)
            yield from filter(len, slices(fitting if self.times is None else with_times(fitting, self.times)))


def checked_call(given: object, topic: Topic, timestamp_ms: Times, clock: Clock, actor: str) -> CheckedCall:
    """What a call hands over. Raises `InvalidRequestError` for what holds no records, and for times that are no times
    or not one for each record; `InvalidTimestampError` for times that the topic does not allow; `InvalidRecordError`
    for a value that the topic's type does not have.
    """
    table, now_ms = as_records(given, topic.schemas, topic=topic.name, actor=actor), clock()
    if isinstance(timestamp_ms, (pa.Array, pa.ChunkedArray)):
        times = _checked_times(timestamp_ms, table, actor)
        if len(times):
            check_times(topic, pc.min(times).as_py(), pc.max(times).as_py(), now_ms, actor)
        return CheckedCall(table, times, now_ms)
    if timestamp_ms is None:
        return CheckedCall(table, None, now_ms)
    stamp = checked_time(timestamp_ms, 0, actor)
    check_times(topic, stamp, stamp, now_ms, actor)
    return CheckedCall(table, None, stamp)


def _checked_times(
    times: pa.Array[Any] | pa.ChunkedArray[Any], table: Records, actor: str
) -> pa.ChunkedArray[Any]:
    """One for each record of a table."""
    whole = times if isinstance(times, pa.ChunkedArray) else pa.chunked_array([times])
    rows = table.num_rows if isinstance(table, (pa.Table, pa.RecordBatch)) else -1
    is_right = whole.type == pa.int64() and len(whole) == rows and not whole.null_count
    if not is_right:
        raise InvalidRequestError(
            f"{len(whole)} timestamps of type {whole.type}, {whole.null_count} of them null",
            actor=actor,
            expected="for each record of a table an int64, milliseconds since the epoch",
            reason=Reason.BAD_TIMESTAMP,
        )
    for end in (pc.min(whole), pc.max(whole)) if rows else ():
        checked_time(end.as_py(), 0, actor)
    return whole


class Intake:
    """Gives the sender a call's batches, and makes their partitions part of the transaction."""

    def __init__(
        self, tools: ProducerTools, cell: Cell, sender: Sender, effects: Effects, calls: Calls
    ) -> None:
        self._tools = tools
        self._cell = cell
        self._sender = sender
        self._effects = effects
        self._calls = calls

    def records(
        self, topic: str, table: RecordsLike, partition: int | None, timestamp_ms: Times, receipt: Receipt
    ) -> None:
        """`Producer.produce`."""
        self._calls.enter(Call.PRODUCE)
        info = self._tools.logs.topics.having(topic, 0 if partition is None else partition)
        call = checked_call(table, info, timestamp_ms, self._tools.logs.tools.clock, self._cell.now.actor)
        self.identify()
        for part in call.parts(info):
            if not self._sender.is_calling_back():
                self._sender.wait_for_room(part)
            self._calls.enter(Call.PRODUCE, goes_on=False)
            self.want(self._sender.send(info, part, partition, call.stamp, receipt))

    def identify(self) -> None:
        """Have an idempotent producer's id."""
        if self._cell.now.transactional_id is None:
            self._sender.identify(lambda: self._tools.coordinator.init_producer_id(None))

    def files(self, topic: Topic, files: Sequence[tuple[int, EncodedFile]], receipt: Receipt) -> None:
        """`Producer.produce_files`."""
        self._calls.enter(Call.PRODUCE)
        most = self._sender.most_bytes(topic)
        for partition, encoded in files:
            topic.check_partition(partition)
            if encoded.file.data_bytes > most:
                raise too_large(
                    f"{topic.name}-{partition}", encoded.record_count, encoded.file.data_bytes, most
                )
        parts = [
            (TransactionPartition(topic.name, topic.incarnation, number), encoded)
            for number, encoded in files
        ]
        self.want(self._sender.send_parts(parts, receipt))

    def want(self, targets: Sequence[TransactionPartition]) -> None:
        """Make partitions part of the transaction, while their data files are on their way."""
        self._effects.carry_out(self._cell.move(events.wanted, targets))
