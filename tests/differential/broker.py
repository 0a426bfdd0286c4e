"""Requests to a Kafka broker and their answers, in the versions of transactions V2 (KIP-890).

Kafka's clients choose between these requests. Here each can be sent at any time, with any producer id, epoch
and sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.differential.errors import CallError, check
from tests.differential.records import RecordBatch, decode_batches
from tests.differential.wire import Connection, Reader, Writer

FETCH_BYTES = 16 * 1024 * 1024
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
TRANSACTION_COORDINATOR = 1


class Fetched(NamedTuple):
    """The content of a partition from an offset on."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    batches: list[RecordBatch]


class ActiveProducer(NamedTuple):
    """One line of DescribeProducers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class Described(NamedTuple):
    """One answer of DescribeTransactions."""

    state: str
    timeout_ms: int
    producer_id: int
    producer_epoch: int
    partitions: list[tuple[str, int]]


class Broker:
    """The requests over one connection, for one thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # --- set-up ---------------------------------------------------------------------------------------------

    def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create topics, each with this number of partitions."""

        def write(writer: Writer, topic: tuple[str, int]) -> None:
            writer.string(topic[0]).int32(topic[1]).int16(1)
            writer.array((), Writer.int32).array((), Writer.int32).tags()

        body = Writer().array(topics.items(), write).int32(60_000).boolean(False)
        answer = self._connection.ask(19, 7, body)
        answer.int32()

        def read(reader: Reader) -> None:
            name = reader.string()
            reader.raw(16)
            error, text = reader.int16(), reader.string()
            reader.int32(), reader.int16()
            reader.structs(lambda each: (each.string(), each.string(), each.raw(3)))
            check(error, f"{name}: {text}")

        answer.structs(read)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        answer = self._connection.ask(20, 5, Writer().array([topic], Writer.string).int32(60_000))
        answer.int32()

        def read(reader: Reader) -> None:
            reader.string()
            check(reader.int16(), reader.string())

        answer.structs(read)

    def find_coordinator(self, key: str, key_type: int) -> None:
        """Make the broker set up the coordinator's internal topic. Raises an error until the topic exists."""
        answer = self._connection.ask(10, 4, Writer().int8(key_type).array([key], Writer.string))
        answer.int32()

        def read(reader: Reader) -> None:
            reader.string(), reader.int32(), reader.string(), reader.int32()
            check(reader.int16(), reader.string())

        answer.structs(read)

    # --- the partition --------------------------------------------------------------------------------------

    def produce(
        self, topic: str, partition: int, batch: bytes, *, transactional_id: str | None, version: int = 12
    ) -> int:
        """Append one batch and return its base offset. Version 12 adds the partition to the transaction by
        itself."""

        def write_partition(writer: Writer, _: object) -> None:
            writer.int32(partition).compact_bytes(batch).tags()

        def write_topic(writer: Writer, name: str) -> None:
            writer.string(name).array([None], write_partition).tags()

        body = Writer().string(transactional_id).int16(-1).int32(30_000).array([topic], write_topic)
        answer = self._connection.ask(0, version, body)

        def read(reader: Reader) -> int:
            reader.int32()
            error, base_offset = reader.int16(), reader.int64()
            reader.int64(), reader.int64()
            reader.structs(lambda each: (each.int32(), each.string()))
            check(error, reader.string())
            return base_offset

        return answer.structs(lambda each: (each.string(), each.structs(read)[0])[1])[0]

    def fetch(self, topic: str, partition: int, offset: int, *, isolation: int) -> Fetched:
        """Return everything from an offset on, up to the last record that the isolation level allows a reader
        to see."""

        def write_partition(writer: Writer, _: object) -> None:
            writer.int32(partition).int32(-1).int64(offset).int32(-1).int64(-1).int32(FETCH_BYTES).tags()

        def write_topic(writer: Writer, name: str) -> None:
            writer.string(name).array([None], write_partition).tags()

        body = Writer().int32(-1).int32(0).int32(0).int32(FETCH_BYTES).int8(isolation).int32(0).int32(-1)
        body.array([topic], write_topic).array((), Writer.int32).string("")
        answer = self._connection.ask(1, 12, body)
        answer.int32()
        check(answer.int16())
        answer.int32()

        def read(reader: Reader) -> Fetched:
            reader.int32()
            check(reader.int16())
            ends = reader.int64(), reader.int64(), reader.int64()
            aborted = reader.structs(lambda each: (each.int64(), each.int64()))
            reader.int32()
            return Fetched(*ends, aborted, list(decode_batches(reader.compact_bytes() or b"")))

        return answer.structs(lambda each: (each.string(), each.structs(read)[0])[1])[0]

    def list_offsets(self, topic: str, partition: int, timestamp: int, *, isolation: int) -> int:
        """Look up an offset by time. The time -1 gives the end, and -2 the start."""

        def write_partition(writer: Writer, _: object) -> None:
            writer.int32(partition).int32(-1).int64(timestamp).tags()

        def write_topic(writer: Writer, name: str) -> None:
            writer.string(name).array([None], write_partition).tags()

        answer = self._connection.ask(2, 7, Writer().int32(-1).int8(isolation).array([topic], write_topic))
        answer.int32()

        def read(reader: Reader) -> int:
            reader.int32()
            check(reader.int16())
            reader.int64()
            found = reader.int64()
            reader.int32()
            return found

        return answer.structs(lambda each: (each.string(), each.structs(read)[0])[1])[0]

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Move the start of the log to this offset (DeleteRecords)."""

        def write_partition(writer: Writer, _: object) -> None:
            writer.int32(partition).int64(before).tags()

        def write_topic(writer: Writer, name: str) -> None:
            writer.string(name).array([None], write_partition).tags()

        answer = self._connection.ask(21, 2, Writer().array([topic], write_topic).int32(30_000))
        answer.int32()

        def read(reader: Reader) -> None:
            reader.int32(), reader.int64()
            check(reader.int16())

        answer.structs(lambda each: (each.string(), each.structs(read)))

    def write_marker(
        self,
        topic: str,
        partition: int,
        *,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
    ) -> None:
        """Write a marker as a coordinator of transactions V2 does (WriteTxnMarkers)."""

        def write_marker(writer: Writer, _: object) -> None:
            writer.int64(producer_id).int16(producer_epoch).boolean(committed)
            _write_partitions(writer, [(topic, partition)])
            writer.int32(coordinator_epoch).int8(2).tags()

        answer = self._connection.ask(27, 2, Writer().array([None], write_marker))
        answer.structs(_check_marker)

    def describe_producers(self, topic: str, partition: int) -> list[ActiveProducer]:
        """Return what the partition's leader remembers of each producer."""
        answer = self._connection.ask(61, 0, _write_partitions(Writer(), [(topic, partition)]))
        answer.int32()

        def read_producer(reader: Reader) -> ActiveProducer:
            return ActiveProducer(
                reader.int64(), reader.int32(), reader.int32(), reader.int64(), reader.int32(), reader.int64()
            )

        def read(reader: Reader) -> list[ActiveProducer]:
            reader.int32()
            check(reader.int16(), reader.string())
            return reader.structs(read_producer)

        return answer.structs(lambda each: (each.string(), each.structs(read)[0])[1])[0]

    # --- the transaction coordinator ------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, producer_id: int, producer_epoch: int
    ) -> tuple[int, int]:
        """Ask InitProducerId for a producer id and an epoch."""
        body = Writer().string(transactional_id).int32(timeout_ms).int64(producer_id).int16(producer_epoch)
        return _identity(self._connection.ask(22, 5, body))

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[tuple[str, int]],
    ) -> None:
        """Add partitions as a broker adds them for a V2 client's produce (AddPartitionsToTxn)."""

        def write(writer: Writer, _: object) -> None:
            writer.string(transactional_id).int64(producer_id).int16(producer_epoch).boolean(False)
            _write_partitions(writer, partitions)
            writer.tags()

        answer = self._connection.ask(24, 5, Writer().array([None], write))
        answer.int32()
        check(answer.int16())
        answer.structs(_check_transaction)

    def end_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, committed: bool
    ) -> tuple[int, int]:
        """End a transaction (EndTxn), and return the producer id and epoch to go on with."""
        body = Writer().string(transactional_id).int64(producer_id).int16(producer_epoch).boolean(committed)
        return _identity(self._connection.ask(26, 5, body))

    def describe_transaction(self, transactional_id: str) -> Described:
        """Describe one transactional id (DescribeTransactions)."""
        answer = self._connection.ask(65, 0, Writer().array([transactional_id], Writer.string))
        answer.int32()

        def read(reader: Reader) -> Described:
            check(reader.int16())
            reader.string()
            state, timeout_ms = reader.string() or "", reader.int32()
            reader.int64()
            identity = reader.int64(), reader.int16()
            topics = reader.structs(lambda each: (each.string() or "", each.array(Reader.int32)))
            partitions = sorted((name, number) for name, numbers in topics for number in numbers)
            return Described(state, timeout_ms, *identity, partitions)

        return answer.structs(read)[0]

    def list_transactions(
        self, states: Sequence[str], producer_ids: Sequence[int], duration_ms: int, pattern: str | None
    ) -> list[tuple[str, int, str]]:
        """List transactions (ListTransactions) as (transactional id, producer id, state)."""
        body = Writer().array(states, Writer.string).array(producer_ids, Writer.int64)
        answer = self._connection.ask(66, 2, body.int64(duration_ms).string(pattern))
        answer.int32()
        check(answer.int16())
        if answer.array(Reader.string):
            raise CallError("INVALID_REQUEST", "an unknown state")
        found = answer.structs(lambda each: (each.string() or "", each.int64(), each.string() or ""))
        return sorted(found)

    # --- groups ---------------------------------------------------------------------------------------------

    def txn_offset_commit(
        self,
        transactional_id: str,
        group_id: str,
        producer_id: int,
        producer_epoch: int,
        topic: str,
        partition: int,
        offset: int,
    ) -> None:
        """Commit an offset in a transaction (TxnOffsetCommit). Version 5 adds the group's partition to the
        transaction by itself."""
        body = Writer().string(transactional_id).string(group_id).int64(producer_id).int16(producer_epoch)
        body.int32(-1).string("").string(None)
        answer = self._connection.ask(28, 5, _write_offset(body, topic, partition, offset))
        answer.int32()
        _check_partitions(answer)

    def offset_commit(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Commit an offset without being a member of the group."""
        body = Writer().string(group_id).int32(-1).string("").string(None)
        answer = self._connection.ask(8, 9, _write_offset(body, topic, partition, offset))
        answer.int32()
        _check_partitions(answer)

    def offset_fetch(self, group_id: str, topic: str, partition: int, *, require_stable: bool) -> int:
        """The group's offset, or -1 if it has none."""

        def write(writer: Writer, _: object) -> None:
            writer.string(group_id).string(None).int32(-1)
            _write_partitions(writer, [(topic, partition)])
            writer.tags()

        answer = self._connection.ask(9, 9, Writer().array([None], write).boolean(require_stable))
        answer.int32()

        def read(reader: Reader) -> int:
            reader.int32()
            offset = reader.int64()
            reader.int32(), reader.string()
            check(reader.int16())
            return offset

        def read_group(reader: Reader) -> int:
            reader.string()
            offsets = reader.structs(lambda each: (each.string(), each.structs(read))[1])
            check(reader.int16())
            return offsets[0][0]

        return answer.structs(read_group)[0]


def _identity(answer: Reader) -> tuple[int, int]:
    answer.int32()
    check(answer.int16())
    return answer.int64(), answer.int16()


def _write_partitions(writer: Writer, partitions: Sequence[tuple[str, int]]) -> Writer:
    topics = sorted({topic for topic, _ in partitions})

    def write(to: Writer, topic: str) -> None:
        to.string(topic).int32s(number for name, number in partitions if name == topic).tags()

    return writer.array(topics, write)


def _write_offset(writer: Writer, topic: str, partition: int, offset: int) -> Writer:
    def write_partition(to: Writer, _: object) -> None:
        to.int32(partition).int64(offset).int32(-1).string("").tags()

    def write_topic(to: Writer, name: str) -> None:
        to.string(name).array([None], write_partition).tags()

    return writer.array([topic], write_topic)


def _check_marker(reader: Reader) -> None:
    reader.int64()
    _check_partitions(reader)


def _check_transaction(reader: Reader) -> None:
    reader.string()
    _check_partitions(reader)


def _check_partitions(reader: Reader) -> None:
    """Raise the first error of an answer by topic and partition. Errors that cause others come first."""
    errors = [
        error
        for errors in reader.structs(
            lambda each: (each.string(), each.structs(lambda one: (one.int32(), one.int16())[1]))[1]
        )
        for error in errors
        if error
    ]
    for error in sorted(
        errors, key=lambda number: number == 55
    ):  # OPERATION_NOT_ATTEMPTED comes of another's
        check(error)
