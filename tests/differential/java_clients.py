"""Kafka's own clients, from its jars, in a JVM beside this process (Py4J)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from py4j import java_gateway, protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from tests.differential.errors import CallError
from tests.differential.sides import Isolation, Place
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
        self._lock = threading.Lock()

    def properties(self, settings: Mapping[str, str]) -> Any:
        """`java.util.Properties`."""
        found = self.jvm.java.util.Properties()
        for name, value in settings.items():
            found.put(name, value)
        return found

    def admin(self, servers: str) -> Any:
        """An admin client, one for all."""
        with self._lock:
            if self._admin is None:
                settings = self.properties({"bootstrap.servers": servers, "enable.metrics.push": "false"})
                self._admin = self.jvm.org.apache.kafka.clients.admin.Admin.create(settings)
            return self._admin

    def close(self) -> None:
        """End the JVM."""
        self._gateway.shutdown()
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        java_gateway.get_return_value = self._answers


class JavaClients:
    """Kafka's clients as one program uses them."""

    def __init__(
        self, machine: ClientMachine, port: int, places: Mapping[Place, tuple[str, int]], prefix: str
    ) -> None:
        self._machine = machine
        self._jvm = machine.jvm
        self._servers = f"127.0.0.1:{port}"
        self._at = places
        self._prefix = prefix
        self._producers: dict[str, Any] = {}

    def close(self) -> None:
        """Let go of all producers, whatever they are at."""
        for producer in self._producers.values():
            producer.close(self._jvm.java.time.Duration.ZERO)

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
        _named(self._producer(actor).initTransactions)

    def begin_transaction(self, actor: str) -> None:
        _named(self._producer(actor).beginTransaction)

    def commit_transaction(self, actor: str) -> None:
        _named(self._producer(actor).commitTransaction)

    def abort_transaction(self, actor: str) -> None:
        _named(self._producer(actor).abortTransaction)

    def send(self, actor: str, place: Place, values: Sequence[bytes]) -> list[int]:
        topic, partition = self._at[place]
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord
        number = self._jvm.java.lang.Integer(partition)
        producer = self._producer(actor)

        def write() -> list[int]:
            futures = [producer.send(record(topic, number, None, value)) for value in values]
            producer.flush()
            return [future.get().offset() for future in futures]

        return _named(write)

    def send_offset(self, actor: str, group: str, place: Place, offset: int) -> None:
        metadata = self._jvm.org.apache.kafka.clients.consumer.ConsumerGroupMetadata(self._prefix + group)
        offsets = self._offsets(place, offset)
        _named(lambda: self._producer(actor).sendOffsetsToTransaction(offsets, metadata))

    # --- consumers ------------------------------------------------------------------------------------------

    def commit_offset(self, group: str, place: Place, offset: int) -> None:
        consumer = self._consumer("read_committed", group)
        try:
            _named(lambda: consumer.commitSync(self._offsets(place, offset)))
        finally:
            consumer.close()

    def committed(self, group: str, place: Place) -> int:
        """As the admin client tells it: a consumer asks for stable offsets only, and waits for them."""
        asked = self._machine.admin(self._servers).listConsumerGroupOffsets(self._prefix + group)
        found = _named(lambda: asked.partitionsToOffsetAndMetadata().get()).get(self._partition(place))
        return -1 if found is None else int(found.offset())

    def consume(self, place: Place, isolation: Isolation) -> tuple[list[tuple[int, bytes]], int, int]:
        consumer = self._consumer(isolation, None)
        partition = self._partition(place)
        try:
            consumer.assign(self._jvm.java.util.List.of(partition))
            consumer.seek(partition, 0)
            end = int(consumer.endOffsets(self._jvm.java.util.List.of(partition)).get(partition))
            found: list[tuple[int, bytes]] = []
            while int(consumer.position(partition)) < end:
                records = consumer.poll(self._jvm.java.time.Duration.ofMillis(100)).records(partition)
                found += [(int(record.offset()), bytes(record.value())) for record in records]
            return found, int(consumer.position(partition)), end
        finally:
            consumer.close()

    def _consumer(self, isolation: Isolation, group: str | None) -> Any:
        settings = {
            "bootstrap.servers": self._servers,
            "key.deserializer": f"{_BYTES}Deserializer",
            "value.deserializer": f"{_BYTES}Deserializer",
            "isolation.level": isolation,
            "enable.auto.commit": "false",
            "auto.offset.reset": "none",
            "fetch.max.wait.ms": "10",
            "retry.backoff.ms": "10",
            "enable.metrics.push": "false",
        }
        if group is not None:
            settings["group.id"] = self._prefix + group
        return self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self._machine.properties(settings))

    def _partition(self, place: Place) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(*self._at[place])

    def _offsets(self, place: Place, offset: int) -> Any:
        value = self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(
            self._jvm.java.lang.Long(offset)
        )
        return self._jvm.java.util.Map.of(self._partition(place), value)


def _named(call: Callable[[], T]) -> T:
    """An exception by what it means; the innermost cause says it."""
    try:
        return call()
    except Py4JJavaError as error:
        cause = error.java_exception
        text = str(cause.toString())
        while cause.getCause() is not None:
            cause = cause.getCause()
        name = str(cause.getClass().getSimpleName())
        raise CallError(_NAMES.get(name, name), text) from error
