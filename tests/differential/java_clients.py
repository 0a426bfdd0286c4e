"""Kafka's own clients, from its jars, in a JVM next to this process (Py4J)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from py4j import java_gateway, protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from tests.differential.broker import Broker
from tests.differential.clients import Ledger, Polled
from tests.differential.errors import KINDS_BY_STATE, CallError, Kind, TooSlowError
from tests.differential.sides import Hanging, Identity, Isolation, Place
from tests.differential.steps import SkippedError
from txn_engine.spark.java import find_java_home

T = TypeVar("T")

BLOCK_LIMIT_MS = 20_000
_BYTES = "org.apache.kafka.common.serialization.ByteArray"
_NAMES = {
    "IllegalStateException": "ILLEGAL_STATE",
    "ProducerFencedException": "FENCED",
    "InvalidProducerEpochException": "FENCED",
    "InvalidPidMappingException": "FENCED",
    "TransactionAbortableException": "ABORTABLE",
}


class ClientMachine:
    """A JVM with Kafka's clients in it; threads may share it."""

    def __init__(self, jars: Path) -> None:
        # PySpark, once used in this process, puts an exception handler of its own there that asks Spark's JVM.
        self._answers = java_gateway.get_return_value
        java_gateway.get_return_value = protocol.get_return_value
        port, token, self._process = launch_gateway(
            classpath=f"{jars}/*",
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
            java_path=str(find_java_home() / "bin" / "java"),
            javaopts=["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"],
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        self.jvm: Any = self._gateway.jvm
        self._admin: Any = None
        self._fields: tuple[Any, Any] | None = None
        self._lock = threading.Lock()

    def properties(self, settings: Mapping[str, str]) -> Any:
        """`java.util.Properties`."""
        found = self.jvm.java.util.Properties()
        for name, value in settings.items():
            found.put(name, value)
        return found

    def admin(self, servers: str) -> Any:
        """The admin client that all callers share."""
        with self._lock:
            if self._admin is None:
                settings = self.properties({"bootstrap.servers": servers, "enable.metrics.push": "false"})
                self._admin = self.jvm.org.apache.kafka.clients.admin.Admin.create(settings)
            return self._admin

    def kind(self, producer: Any) -> Kind:
        """The state that an error left, according to the producer itself
        (`TransactionManager.currentState`)."""
        if self._fields is None:
            manager = producer.getClass().getDeclaredField("transactionManager")
            manager.setAccessible(True)
            state = manager.get(producer).getClass().getDeclaredField("currentState")
            state.setAccessible(True)
            self._fields = manager, state
        manager, state = self._fields
        return KINDS_BY_STATE.get(str(state.get(manager.get(producer))), "refused")

    def close(self) -> None:
        """End the JVM."""
        self._gateway.shutdown()
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        java_gateway.get_return_value = self._answers


class Operator:
    """Kafka's admin client, for one thread at a time."""

    def __init__(self, machine: ClientMachine, port: int) -> None:
        self._jvm = machine.jvm
        self._admin = machine.admin(f"127.0.0.1:{port}")

    def abort_transaction(self, at: tuple[str, int], hanging: Hanging) -> None:
        """Abort a transaction as `kafka-transactions.sh abort` does."""
        spec = self._jvm.org.apache.kafka.clients.admin.AbortTransactionSpec(
            self._partition(at),
            self._jvm.java.lang.Long(hanging.producer_id),
            hanging.producer_epoch,
            max(hanging.coordinator_epoch, 0),
        )
        asked = self._admin.abortTransaction(spec)
        named(lambda: asked.all().get())

    def fence(self, transactional_ids: Iterable[str]) -> dict[str, Identity]:
        """Fence producers with `Admin.fenceProducers`."""
        names = list(transactional_ids)
        asked = self._admin.fenceProducers(self._jvm.java.util.List.of(*names))
        named(lambda: asked.all().get())
        return {
            name: Identity(int(asked.producerId(name).get()), int(asked.epochId(name).get()))
            for name in names
        }

    def _partition(self, at: tuple[str, int]) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(*at)


class JavaClients:
    """Kafka's clients as one program uses them. `broker` answers what no client can."""

    def __init__(
        self,
        machine: ClientMachine,
        port: int,
        places: Mapping[Place, tuple[str, int]],
        prefix: str,
        broker: Broker,
    ) -> None:
        self._machine = machine
        self._jvm = machine.jvm
        self._servers = f"127.0.0.1:{port}"
        self._at = places
        self._place_of = {at: place for place, at in places.items()}
        self._prefix = prefix
        self._broker = broker
        self._groups: dict[str, str] = {}
        self._producers: dict[str, Any] = {}
        self._readers: dict[str, Any] = {}
        self._lookers: dict[tuple[Isolation, str | None], Any] = {}
        self.ledger = Ledger()

    def close(self) -> None:
        """Close all clients, whatever they are doing."""
        for client in (*self._producers.values(), *self._readers.values(), *self._lookers.values()):
            client.close(self._jvm.java.time.Duration.ZERO)

    def _producer(self, actor: str) -> Any:
        if actor not in self._producers:
            raise SkippedError
        return self._producers[actor]

    # --- producers ------------------------------------------------------------------------------------------

    def open_producer(self, actor: str, transactional_id: str | None) -> None:
        settings = {
            "bootstrap.servers": self._servers,
            "key.serializer": f"{_BYTES}Serializer",
            "value.serializer": f"{_BYTES}Serializer",
            "max.block.ms": str(BLOCK_LIMIT_MS),
            "linger.ms": "1",
            "retry.backoff.ms": "10",
            "enable.metrics.push": "false",
        }
        if transactional_id is not None:
            settings["transactional.id"] = self._prefix + transactional_id
        if actor in self._producers:
            self._producers[actor].close(self._jvm.java.time.Duration.ZERO)
        producer = self._jvm.org.apache.kafka.clients.producer.KafkaProducer
        self._producers[actor] = producer(self._machine.properties(settings))

    def init_transactions(self, actor: str) -> None:
        self._ask(actor, lambda producer: producer.initTransactions())

    def begin_transaction(self, actor: str) -> None:
        self._ask(actor, lambda producer: producer.beginTransaction())

    def commit_transaction(self, actor: str) -> None:
        self._ask(actor, lambda producer: producer.commitTransaction())
        self._settle(actor)

    def abort_transaction(self, actor: str) -> None:
        self._ask(actor, lambda producer: producer.abortTransaction())
        self._settle(actor)

    def _settle(self, actor: str) -> None:
        """Wait until the markers are written, because Kafka answers before that."""
        name = f"{self._prefix}{self.ledger.ids[actor]}"
        self._until(
            lambda: not self._broker.describe_transaction(name).state.startswith("Prepare"),
            f"{name} is never complete",
        )

    def send(self, actor: str, place: Place, values: Sequence[bytes], stamp: int | None = None) -> list[int]:
        topic, partition = self._at[place]
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord
        number = self._jvm.java.lang.Integer(partition)

        def write(producer: Any) -> list[int]:
            futures = [producer.send(record(topic, number, stamp, None, value)) for value in values]
            producer.flush()
            return [future.get().offset() for future in futures]

        return self._ask(actor, write)

    def send_offset(self, actor: str, group: str, place: Place, offset: int) -> None:
        metadata = self._jvm.org.apache.kafka.clients.consumer.ConsumerGroupMetadata(self._group(group))
        offsets = self._offsets({place: offset})
        self._ask(actor, lambda producer: producer.sendOffsetsToTransaction(offsets, metadata))

    def _ask(self, actor: str, call: Callable[[Any], T]) -> T:
        """Call a producer. An error carries the state that it left, according to the producer itself.

        Kafka's client first wakes the caller and then changes the producer's state, so this waits for the new
        state.
        """
        producer = self._producer(actor)
        try:
            return named(lambda: call(producer))
        except CallError as error:
            if error.code != "ILLEGAL_STATE" and self.ledger.ids.get(actor) is not None:
                self._until(
                    lambda: self._machine.kind(producer) != "refused",
                    f"a producer does not hear of its failed call: {error}",
                )
            raise CallError(error.code, str(error), self._machine.kind(producer)) from error

    # --- consumers ------------------------------------------------------------------------------------------

    def _group(self, own: str) -> str:
        return self._prefix + self._groups.get(own, own)

    def rename_group(self, group: str) -> None:
        self._groups[group] = f"{self._groups.get(group, group)}-"

    def commit_offset(self, group: str, place: Place, offset: int) -> None:
        consumer = self._looker("read_committed", group)
        named(lambda: consumer.commitSync(self._offsets({place: offset})))

    def committed(self, group: str, place: Place) -> int:
        """The offset as the admin client reports it. A consumer asks only for stable offsets, and waits for
        them."""
        asked = self._machine.admin(self._servers).listConsumerGroupOffsets(self._group(group))
        found = named(lambda: asked.partitionsToOffsetAndMetadata().get()).get(self._partition(place))
        return -1 if found is None else int(found.offset())

    def is_unstable(self, group: str, place: Place) -> bool:
        try:
            self._broker.offset_fetch(self._group(group), *self._at[place], require_stable=True)
        except CallError as error:
            if error.code != "UNSTABLE_OFFSET_COMMIT":
                raise
            return True
        return False

    def consume(self, place: Place, isolation: Isolation) -> tuple[list[tuple[int, bytes, int]], int, int]:
        consumer = self._looker(isolation, None)
        partition = self._partition(place)
        consumer.assign(self._jvm.java.util.List.of(partition))
        consumer.seek(partition, 0)
        end = int(consumer.endOffsets(self._jvm.java.util.List.of(partition)).get(partition))
        found: list[tuple[int, bytes, int]] = []
        while int(consumer.position(partition)) < end:
            records = named(lambda: consumer.poll(self._jvm.java.time.Duration.ofMillis(100))).records(
                partition
            )
            found += [(int(each.offset()), bytes(each.value()), int(each.timestamp())) for each in records]
        return found, int(consumer.position(partition)), end

    def offset_for_time(self, place: Place, isolation: Isolation, stamp: int) -> int | None:
        partition = self._partition(place)
        consumer = self._looker(isolation, None)
        asked = self._jvm.java.util.HashMap()
        asked.put(partition, stamp)
        found = named(lambda: consumer.offsetsForTimes(asked)).get(partition)
        return None if found is None else int(found.offset())

    def _looker(self, isolation: Isolation, group: str | None) -> Any:
        """A consumer that is used many times, because creating one takes most of the time of a look."""
        key = isolation, None if group is None else self._group(group)
        if key not in self._lookers:
            self._lookers[key] = self._consumer(isolation, key[1], reset="none")
        return self._lookers[key]

    def _consumer(self, isolation: Isolation, group_id: str | None, *, reset: str) -> Any:
        settings = {
            "bootstrap.servers": self._servers,
            "key.deserializer": f"{_BYTES}Deserializer",
            "value.deserializer": f"{_BYTES}Deserializer",
            "isolation.level": isolation,
            "enable.auto.commit": "false",
            "auto.offset.reset": reset,
            "fetch.max.wait.ms": "10",
            "retry.backoff.ms": "10",
            "enable.metrics.push": "false",
        }
        if group_id is not None:
            settings["group.id"] = group_id
        return self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self._machine.properties(settings))

    # --- tasks ----------------------------------------------------------------------------------------------

    def open_reader(self, actor: str, group: str, places: Sequence[Place], *, subscribes: bool) -> None:
        """Open a reader. Before a subscribing reader opens, the earlier ones leave the group, so nobody waits
        for their sessions to end."""
        if subscribes:
            for member in self._readers.values():
                member.close(self._jvm.java.time.Duration.ofSeconds(5))
            self._readers.clear()
        consumer = self._consumer("read_committed", self._group(group), reset="earliest")
        if actor in self._readers:
            self._readers[actor].close(self._jvm.java.time.Duration.ZERO)
        self._readers[actor] = consumer
        if not subscribes:
            consumer.assign(self._partitions(places))
            return
        consumer.subscribe(self._jvm.java.util.List.of(*{self._at[place][0] for place in places}))
        self._until(
            lambda: (
                consumer.poll(self._jvm.java.time.Duration.ofMillis(20)).isEmpty()
                and consumer.assignment().size() == len(places)
            ),
            "the group gives it no partitions",
        )
        consumer.seekToBeginning(consumer.assignment())
        self._seek_to_committed(consumer)

    def poll(self, actor: str, limit: int | None) -> Polled:
        consumer = self._readers[actor]
        partitions = list(consumer.assignment())
        for partition in partitions:
            self._find_position(actor, consumer, partition)
        ends = consumer.endOffsets(consumer.assignment())
        found: Polled = []
        while (limit is None or len(found) < limit) and any(
            int(consumer.position(each)) < int(ends.get(each)) for each in partitions
        ):
            records = consumer.poll(self._jvm.java.time.Duration.ofMillis(100))
            for partition in partitions:
                place = self._place_of[str(partition.topic()), int(partition.partition())]
                read = records.records(partition)
                found += [(place, int(each.offset()), bytes(each.value())) for each in read]
        if limit is not None and len(found) > limit:  # of one partition
            found = found[:limit]
            consumer.seek(partitions[0], found[-1][1] + 1)
        return found

    def _find_position(self, actor: str, consumer: Any, partition: Any) -> None:
        """Find the group's position. Raises an error if the position is held back.

        A consumer shows that by waiting for all partitions without a position, whichever of them is asked
        for.
        """

        def is_found() -> bool:
            try:
                named(lambda: consumer.position(partition, self._jvm.java.time.Duration.ofMillis(200)))
            except CallError as error:
                if error.code != "TimeoutException":
                    raise
                group, places = self.ledger.groups[actor], self.ledger.reads[actor]
                if any(self.is_unstable(group, place) for place in places):
                    raise CallError("UNSTABLE_OFFSET_COMMIT", kind="retriable") from error
                return False
            return True

        self._until(is_found, "a consumer finds no position")

    def send_positions(self, actor: str, positions: Mapping[Place, int]) -> None:
        offsets, metadata = self._offsets(positions), self._readers[actor].groupMetadata()
        self._ask(actor, lambda producer: producer.sendOffsetsToTransaction(offsets, metadata))

    def seek_to_committed(self, actor: str) -> None:
        consumer = self._readers[actor]
        if int(consumer.subscription().size()):
            self._seek_to_committed(consumer)
            return
        partitions = self._jvm.java.util.ArrayList(consumer.assignment())
        consumer.unsubscribe()
        consumer.assign(partitions)  # without a position: the next poll begins where the group is

    def _seek_to_committed(self, consumer: Any) -> None:
        committed = consumer.committed(consumer.assignment())
        for partition in consumer.assignment():
            at = committed.get(partition)
            consumer.seek(partition, 0 if at is None else at.offset())

    def _until(self, is_so: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + BLOCK_LIMIT_MS / 1_000
        while not is_so():
            if time.monotonic() > deadline:
                raise TooSlowError(otherwise)

    def _partition(self, place: Place) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(*self._at[place])

    def _partitions(self, places: Sequence[Place]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for place in places:
            found.add(self._partition(place))
        return found

    def _offsets(self, offsets: Mapping[Place, int]) -> Any:
        found = self._jvm.java.util.HashMap()
        for place, offset in offsets.items():
            number = self._jvm.java.lang.Long(offset)
            value = self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(number)
            found.put(self._partition(place), value)
        return found


def named(call: Callable[[], T]) -> T:
    """Raise an exception by its meaning, which its innermost cause has."""
    try:
        return call()
    except Py4JJavaError as error:
        cause = error.java_exception
        text = str(cause.toString())
        while cause.getCause() is not None:
            cause = cause.getCause()
        name = str(cause.getClass().getSimpleName())
        raise CallError(_NAMES.get(name, name), text) from error
