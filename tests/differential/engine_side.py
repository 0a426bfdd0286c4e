"""The engine behind the adapter, for one program: a store in memory, a clock set by hand, two engines taking turns.

Two, as two processes would be: what one has written the other finds out from the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import ParamSpec, Self, TypeVar

import pyarrow as pa

from storage import MemoryStore
from tests.differential.errors import CallError
from tests.differential.records import RecordBatch
from tests.differential.sides import Batch, Ends, Identity, Isolation, KnownProducer, KnownTransaction, Place
from txn_engine import OffsetAndMetadata, TopicPartition
from txn_engine.engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.log.topics import KAFKA_SCHEMA
from txn_engine.partition_log import PartitionLog
from txn_engine.protocol.batches import Control
from txn_engine.protocol.offset_commits import OffsetCommit, OffsetKey
from txn_engine.protocol.proposals import OffsetCommitProposal
from txn_engine.testing import ManualClock, write_transaction_state

P = ParamSpec("P")
T = TypeVar("T")


def _by_code(call: Callable[P, T]) -> Callable[P, T]:
    """The engine's errors as the adapter's, by code."""

    @wraps(call)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except TxnEngineError as error:
            raise CallError(error.code, str(error)) from error

    return wrapped


class EngineSide:
    """The engine as one program sees it."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.clock = ManualClock()
        store = MemoryStore(clock=self.clock)
        self._engines = [Engine(store, clock=self.clock), Engine(store, clock=self.clock)]
        self._turn = 0
        partitions: dict[str, int] = {}
        for place in places:
            partitions[place.topic] = max(partitions.get(place.topic, 0), place.partition + 1)
        for topic, count in partitions.items():
            self.engine.admin.create_topic(topic, partitions=count)

    @property
    def engine(self) -> Engine:
        """The one whose turn it is."""
        self._turn += 1
        return self._engines[self._turn % len(self._engines)]

    def close(self) -> None:
        """Let go of the engines' threads."""
        for engine in self._engines:
            engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write_transaction_state(
        self, transactional_id: str, state: str, identity: Identity, place: Place
    ) -> None:
        """Put a row into the coordinator's log as it is; an open one has `place` in it."""
        write_transaction_state(
            self.engine,
            transactional_id,
            state=state,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            transaction_timeout_ms=900_000,
            partitions=[TopicPartition(*place)] if state == "Ongoing" else [],
        )

    # --- a producer and its coordinator ---------------------------------------------------------------------

    @_by_code
    def init_producer_id(self, transactional_id: str | None, timeout_ms: int, expected: Identity) -> Identity:
        given = self.engine.coordinator.init_producer_id(
            transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.producer_epoch,
        )
        return Identity(*given)

    @_by_code
    def add_partitions(self, transactional_id: str, who: Identity, places: Sequence[Place]) -> None:
        self.engine.coordinator.add_partitions(
            transactional_id, *who, [TopicPartition(*place) for place in places]
        )

    @_by_code
    def end_transaction(
        self, transactional_id: str, who: Identity, *, committed: bool, settle: bool
    ) -> Identity:
        ended = self.engine.coordinator.end_transaction(
            transactional_id, *who, committed=committed, markers="inline" if settle else "deferred"
        )
        return Identity(*ended)

    @_by_code
    def produce(self, transactional_id: str | None, who: Identity, place: Place, batch: Batch) -> int:
        """As a V2 broker takes it: the partition joins the transaction unless one of this epoch is open there."""
        partition = self.engine.partition(*place)
        if transactional_id is not None and not _is_open(partition, who):
            self.engine.coordinator.add_partitions(transactional_id, *who, [TopicPartition(*place)])
        return self._append(partition, who, batch, is_transactional=transactional_id is not None)

    @_by_code
    def send_offset(
        self, transactional_id: str, who: Identity, group: str, place: Place, offset: int
    ) -> None:
        engine = self.engine
        target = engine.logs.group_partition(group)
        if not _is_open(engine.partition(target.topic, target.partition), who):
            where = [TopicPartition(target.topic, target.partition)]
            engine.coordinator.add_partitions(transactional_id, *who, where)
        commit = OffsetCommit(
            OffsetKey(group, place.topic, 0, place.partition), offset, commit_ms=self.clock()
        )
        engine.logs.of(target).append_one(OffsetCommitProposal(commit, *who))

    @_by_code
    def settle(self, transactional_id: str) -> None:
        self.engine.coordinator.write_pending_markers()

    @_by_code
    def wait_for_time_outs(self, transactional_ids: Sequence[str], timeout_ms: int) -> None:
        self.clock.advance(timeout_ms + 1)
        self.engine.coordinator.abort_timed_out_transactions()

    # --- a partition alone ----------------------------------------------------------------------------------

    @_by_code
    def append(self, who: Identity, place: Place, batch: Batch, *, is_transactional: bool) -> int:
        return self._append(self.engine.partition(*place), who, batch, is_transactional=is_transactional)

    def _append(self, partition: PartitionLog, who: Identity, batch: Batch, *, is_transactional: bool) -> int:
        written = partition.append(
            _records(batch.values),
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            base_sequence=batch.base_sequence,
            is_transactional=is_transactional,
        )
        return written.base_offset

    @_by_code
    def append_marker(self, who: Identity, place: Place, *, committed: bool, coordinator_epoch: int) -> bool:
        written = self.engine.partition(*place).append_marker(
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            committed=committed,
            coordinator_epoch=coordinator_epoch,
        )
        return not written.is_duplicate

    # --- groups ---------------------------------------------------------------------------------------------

    @_by_code
    def commit_offset(self, group: str, place: Place, offset: int) -> None:
        with self.engine.consumer(group_id=group) as consumer:
            consumer.commit({TopicPartition(*place): OffsetAndMetadata(offset)})

    @_by_code
    def fetch_offset(self, group: str, place: Place, *, require_stable: bool) -> int:
        isolation: Isolation = "read_committed" if require_stable else "read_uncommitted"
        with self.engine.consumer(group_id=group, isolation_level=isolation) as consumer:
            found = consumer.committed([TopicPartition(*place)])
        return found[TopicPartition(*place)].offset if found else -1

    # --- looking --------------------------------------------------------------------------------------------

    @_by_code
    def read(self, place: Place, isolation: Isolation) -> list[tuple[int, bytes]]:
        table = self.engine.partition(*place).read(0, isolation_level=isolation)
        return [(row["_offset"], row["value"]) for row in table.select(["_offset", "value"]).to_pylist()]

    @_by_code
    def log(self, place: Place) -> list[RecordBatch]:
        engine = self.engine
        values = dict(self.read(place, "read_uncommitted"))
        incarnation = engine.admin.describe_topic(place.topic).incarnation
        found = []
        for batch in engine.logs.get(place.topic, incarnation, place.partition).batches():
            offsets = range(batch.base_offset, batch.last_offset + 1)
            control = batch.control is not Control.NONE
            found.append(
                RecordBatch(
                    batch.base_offset,
                    batch.last_offset,
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.base_sequence,
                    batch.is_transactional,
                    batch.control.value,
                    () if control else tuple(values[offset] for offset in offsets),
                )
            )
        return found

    @_by_code
    def ends(self, place: Place) -> Ends:
        found = self.engine.admin.list_offsets(place.topic, [place.partition])[TopicPartition(*place)]
        return Ends(found.log_start_offset, found.last_stable_offset, found.high_watermark)

    @_by_code
    def aborted(self, place: Place, start: int) -> list[tuple[int, int]]:
        partition = self.engine.partition(*place)
        if start >= partition.last_stable_offset:  # a fetch gets nothing there, and so nothing to tell apart
            return []
        found = partition.aborted_transactions(start, partition.high_watermark)
        return sorted((each.producer_id, each.first_offset) for each in found)

    @_by_code
    def producers(self, place: Place) -> list[KnownProducer]:
        return [
            KnownProducer(
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.coordinator_epoch,
                each.current_transaction_start_offset,
            )
            for each in self.engine.admin.describe_producers(*place)
        ]

    @_by_code
    def describe(self, transactional_id: str) -> KnownTransaction:
        found = self.engine.admin.describe_transaction(transactional_id)
        places = {
            Place("offsets", 0) if part.topic.startswith("__") else Place(*part) for part in found.partitions
        }
        return KnownTransaction(
            found.state,
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            tuple(sorted(places)),
        )

    @_by_code
    def list_transactions(
        self, states: Sequence[str], producer_ids: Sequence[int]
    ) -> list[tuple[str, int, str]]:
        found = self.engine.admin.list_transactions(states or None, producer_ids or None)
        return [(each.transactional_id, each.producer_id, each.state) for each in found]


def _is_open(partition: PartitionLog, who: Identity) -> bool:
    return any(
        (each.producer_id, each.producer_epoch) == who and each.current_transaction_start_offset >= 0
        for each in partition.producers()
    )


def _records(values: Sequence[bytes]) -> pa.Table:
    rows = [{"key": None, "value": value, "headers": None} for value in values]
    return pa.Table.from_pylist(rows, schema=KAFKA_SCHEMA)
