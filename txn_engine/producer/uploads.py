"""Records that are on the store before a transaction names them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

import pyarrow as pa

from txn_engine.configs.client import ProducerSettings
from txn_engine.errors import IllegalStateError
from txn_engine.log.data_files import EncodedFile, encode_data_file
from txn_engine.log.topics import Topic
from txn_engine.log.uploads import put_data_file, too_large
from txn_engine.producer import machine as events
from txn_engine.producer.cell import Cell
from txn_engine.producer.effects import ProducerTools
from txn_engine.producer.frames import RecordsLike
from txn_engine.producer.intake import Times, checked_call
from txn_engine.producer.partitioner import split_by_key
from txn_engine.producer.refused_batches import topic_deleted
from txn_engine.producer.sender import most_bytes
from txn_engine.producer.states import Call
from txn_engine.protocol.file_names import DataFileName
from txn_engine.types import RecordMetadata

_FilesOfTopic = Callable[[Topic, list[tuple[int, EncodedFile]]], Future[list[RecordMetadata]]]


class TakesRecords(Protocol):
    """What a load hands its records to: `Uploads`, or a `Producer` whose transaction is open."""

    def produce(
        self, topic: str, table: RecordsLike, *, partition: int | None = None, timestamp_ms: Times = None
    ) -> object:
        """Take records in the topic's schema."""


class Uploads:
    """Data files that a producer puts on the store for its next transaction, however long that takes.

    A transaction can be open for `transaction.timeout.ms` at most, and readers wait for it. So a load that reads for
    long uploads first, and opens its transaction only to name the files (`send`), which takes seconds. Until then
    nobody sees the records. Files that are never named are orphans, which clean-up removes.

    The files carry the producer's epoch: they are for the next transaction alone. One thread at a time may use it.
    """

    def __init__(
        self, tools: ProducerTools, settings: ProducerSettings, cell: Cell, name_files: _FilesOfTopic
    ) -> None:
        self._tools = tools
        self._settings = settings
        self._cell = cell
        self._name_files = name_files
        self._identity = cell.now.identity
        self._topics: dict[str, Topic] = {}
        self._files: dict[str, list[tuple[int, Future[list[EncodedFile]]]]] = {}
        self._under_way: deque[tuple[int, Future[list[EncodedFile]]]] = deque()
        self._bytes_under_way = 0
        self._turn = 0

    @property
    def has_records(self) -> bool:
        """Whether any were handed over."""
        return bool(self._files)

    def produce(
        self, topic: str, table: RecordsLike, *, partition: int | None = None, timestamp_ms: Times = None
    ) -> None:
        """Upload records, split as `Producer.produce` splits them. Waits while `buffer.memory` is under way.

        Raises: as `Producer.produce`; and what an earlier upload failed with. Nothing is visible in any case.
        """
        self._check()
        info = self._topic(topic, 0 if partition is None else partition)
        call = checked_call(table, info, timestamp_ms, self._tools.logs.tools.clock, self._cell.now.actor)
        for part in call.parts(info):
            self._turn += 1
            shares = (
                [(partition, part)]
                if partition is not None
                else split_by_key(part, info.key, info.partitions, self._turn % info.partitions)
            )
            for number, records in shares:
                self._start(info, number, records, call.stamp)

    def wait(self) -> None:
        """Wait until everything is on the store. Raises what an upload failed with."""
        for uploads in self._files.values():
            for _, upload in uploads:
                upload.result()

    def send(self) -> dict[str, Future[list[RecordMetadata]]]:
        """Name all files in the producer's open transaction, each topic's in the order of the calls. By topic: a future
        as `Producer.produce` gives it.

        Raises: what an upload failed with. `IllegalStateError`: the files are another epoch's. As `produce_files`.
        """
        self._check()
        files = {
            topic: [(number, file) for number, uploaded in uploads for file in uploaded.result()]
            for topic, uploads in self._files.items()
        }
        self._files = {}
        return {topic: self._name_files(self._topics[topic], named) for topic, named in files.items()}

    def _check(self) -> None:
        events.allow(self._cell.now, Call.UPLOAD)
        if self._cell.now.identity != self._identity:
            raise IllegalStateError(
                f"records uploaded at epoch {self._identity.producer_epoch}",
                actor=self._cell.now.actor,
                expected="those of the producer's present epoch: upload them again",
            )

    def _topic(self, name: str, partition: int) -> Topic:
        found = self._tools.logs.topics.having(name, partition)
        known = self._topics.get(name)
        if known is not None and known.incarnation != found.incarnation:
            raise topic_deleted(name, known.incarnation, self._identity)
        self._topics[name] = found
        return found

    def _start(self, topic: Topic, partition: int, records: pa.Table, stamp: int) -> None:
        size = max(records.nbytes, 1)
        while self._under_way and self._bytes_under_way + size > self._settings.buffer_memory:
            done, upload = self._under_way.popleft()
            self._bytes_under_way -= done
            upload.result()
        upload = self._tools.senders.submit(self._upload, topic, partition, records, stamp)
        self._under_way.append((size, upload))
        self._bytes_under_way += size
        self._files.setdefault(topic.name, []).append((partition, upload))

    def _upload(self, topic: Topic, partition: int, records: pa.Table, stamp: int) -> list[EncodedFile]:
        """One file, or several where it would be too large (as Kafka's accumulator splits batches)."""
        logs = self._tools.logs
        log = logs.get(topic.name, topic.incarnation, partition)
        log_end = (log.recent() if log.is_loaded else log.refresh()).log_end_offset
        name = DataFileName(log_end, *self._identity, logs.tools.new_id())
        data, encoded = encode_data_file(records, topic.schemas.layout, name, stamp)
        most = most_bytes(topic, self._settings)
        if len(data) <= most:
            put_data_file(logs.tools.objects, str(log.keys.prefix), data, encoded)
            return [encoded]
        if encoded.record_count == 1:
            raise too_large(str(log.keys.prefix), 1, len(data), most)
        half = records.num_rows // 2
        first, second = records.slice(0, half), records.slice(half)
        return [
            *self._upload(topic, partition, first, stamp),
            *self._upload(topic, partition, second, stamp),
        ]
