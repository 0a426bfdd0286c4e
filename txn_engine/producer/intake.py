"""What callers hand over: records, checked and cut into batches, or files that others have put on the store."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from txn_engine.errors import InvalidRequestError
from txn_engine.log.data_files import EncodedFile, conform
from txn_engine.log.topics import Topic
from txn_engine.log.uploads import slices, too_large
from txn_engine.producer import machine as events
from txn_engine.producer.calls import Calls
from txn_engine.producer.cell import Cell
from txn_engine.producer.effects import Effects, ProducerTools
from txn_engine.producer.receipts import Receipt
from txn_engine.producer.sender import Records, Sender, tables_of
from txn_engine.producer.states import Call
from txn_engine.protocol.transaction_rows import TransactionPartition


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
        self, topic: str, table: Records, partition: int | None, timestamp_ms: int | None, receipt: Receipt
    ) -> None:
        """`Producer.produce`."""
        self._calls.enter(Call.PRODUCE)
        info = self._tools.logs.topics.having(topic, 0 if partition is None else partition)
        stamp = self._tools.logs.tools.clock() if timestamp_ms is None else timestamp_ms
        self._check(table, stamp)
        if self._cell.now.transactional_id is None:
            self._sender.identify(lambda: self._tools.coordinator.init_producer_id(None))
        for records in tables_of(table):
            for part in filter(len, slices(conform(records, info.schemas, topic=topic))):
                if not self._sender.is_calling_back():
                    self._sender.wait_for_room(part)
                self._calls.enter(Call.PRODUCE, goes_on=False)
                self._want(self._sender.send(info, part, partition, stamp, receipt))

    def _check(self, table: object, stamp: int) -> None:
        actor = self._cell.now.actor
        if not isinstance(table, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
            raise InvalidRequestError(
                f"records as {type(table).__name__}",
                actor=actor,
                expected="a pyarrow Table, RecordBatch or reader",
            )
        if stamp < 0:
            raise InvalidRequestError(
                f"timestamp {stamp}", actor=actor, expected="milliseconds since the epoch"
            )

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
        self._want(self._sender.send_parts(parts, receipt))

    def _want(self, targets: Sequence[TransactionPartition]) -> None:
        """Make partitions part of the transaction, while their data files are on their way."""
        self._effects.carry_out(self._cell.move(events.wanted, targets))
