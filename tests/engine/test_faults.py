"""A consume-transform-produce job that dies, or meets an error, at every single store operation: exactly once
all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pyarrow as pa
import pytest

from storage import MemoryStore, ObjectStore
from tests.engine.conftest import SCHEMA, payments
from tests.suite.tiers import in_shard
from tests.support.faults import Fault, FaultyStore, Operation, no_pause
from tests.support.internal import FEW_INTERNAL
from tests.support.kills import Death, ProcessDiedError
from tests.support.stores import accounts_in
from txn_engine import Engine, TopicPartition
from txn_engine.errors import (
    OffsetsMovedError,
    OutcomeUnknownError,
    ProducerFencedError,
    TransactionAbortableError,
    TxnEngineError,
)
from txn_engine.testing import ManualClock, write_transaction_state

INPUT = list(range(12))
_NAMES = count()


def prepared_store(clock: ManualClock) -> MemoryStore:
    """A store with twelve payments in two partitions, and an empty output topic."""
    store = MemoryStore(f"faults-{next(_NAMES)}")
    with Engine(store, clock=clock, configs=FEW_INTERNAL) as engine:
        for topic in ("payments", "out"):
            engine.admin.create_topic(topic, partitions=2, schema=SCHEMA, key="account_id")
        with engine.producer(transactional_id="load") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.produce("payments", payments(*INPUT))
    return store


def run_job(engine: Engine) -> None:
    """Copy what the group has not read yet, output and offsets in one transaction."""
    consumer = engine.consumer(group_id="copy")
    consumer.subscribe(["payments"])
    batch = consumer.poll()
    if batch is None:
        return
    producer = engine.producer(transactional_id="copy-job")
    producer.init_transactions()
    with producer.transaction(run_id="r1"):
        producer.produce("out", batch.select(SCHEMA.names))
        producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())


def recover_and_check(store: ObjectStore, clock: ManualClock) -> None:
    """The sweeps run, the job is run again by another process, and everything is there once."""
    clock.advance(120_000)
    with Engine(store, clock=clock) as engine:
        assert engine.coordinator.abort_timed_out_transactions().failures == ()
        assert engine.coordinator.write_pending_markers().failures == ()
        run_job(engine)
    with Engine(store, clock=clock) as engine:  # the one before has waited for its Complete row
        assert accounts_in(engine, "out") == INPUT
        group = engine.admin.describe_group("copy")
        assert [(part.lag, part.pending_offset) for part in group.partitions] == [(0, -1), (0, -1)]
        states = {engine.admin.describe_transaction(name).state for name in ("load", "copy-job")}
        assert states == {"CompleteCommit"}
        for topic in ("payments", "out"):
            for offsets in engine.admin.list_offsets(topic).values():
                assert offsets.last_stable_offset == offsets.high_watermark
        report = engine.admin.verify()
        assert report.ok, [str(finding) for finding in report.findings]


def operations_of_a_clean_run() -> int:
    """How many store operations the job takes when nothing goes wrong."""
    clock = ManualClock()
    store = FaultyStore(prepared_store(clock))
    with Engine(store, clock=clock) as engine:
        run_job(engine)
    return len(store.calls)


def attempt(store: ObjectStore, clock: ManualClock) -> None:
    """A try that may end in any way, as a task that Airflow will run again."""
    engine: Engine | None = None
    try:
        engine = Engine(store, clock=clock, pause=no_pause)
        run_job(engine)
    except (TxnEngineError, ProcessDiedError):
        pass  # what the try left behind is judged after the recovery
    finally:
        if engine is not None:
            engine.close()


@pytest.mark.parametrize(
    ("effect", "step"), in_shard("kills", [("after", 8), ("before", 1), ("after", 1)], keep=1)
)
def test_dying_at_any_operation(effect: Fault, step: int) -> None:
    """Whichever store operation is a process's last, and whether or not it took effect: nothing is lost, doubled or
    torn. `make test` tries every eighth operation, the shard tries all.
    """
    total = operations_of_a_clean_run()
    assert total > 20
    for at in range(0, total, step):
        clock = ManualClock()
        inner = prepared_store(clock)
        attempt(Death(f"dies {effect}", at).of(inner), clock)
        recover_and_check(inner, clock)


@pytest.mark.parametrize(
    ("fault", "step"),
    in_shard("kills", [("taken_after", 8), ("before", 1), ("after", 1), ("taken_after", 1)], keep=1),
)
def test_an_error_at_any_operation(fault: Fault, step: int) -> None:
    """Any store operation fails once, before or after it took effect, or its own retry reports "already there".

    `make test` tries every eighth operation, the shard tries all.
    """

    def failing_at(at: int) -> Callable[[Operation, str, int], Fault | None]:
        def decide(operation: Operation, key: str, number: int) -> Fault | None:
            if number != at or (fault == "taken_after" and operation != "put_if_absent"):
                return None
            return fault

        return decide

    for at in range(0, operations_of_a_clean_run(), step):
        clock = ManualClock()
        inner = prepared_store(clock)
        attempt(FaultyStore(inner, decide=failing_at(at)), clock)
        recover_and_check(inner, clock)


def test_two_overlapping_runs_of_a_group() -> None:
    """Two runs fetched the same position. One commits, and the other is refused and leaves nothing visible."""
    clock = ManualClock()
    store = prepared_store(clock)
    with Engine(store, clock=clock) as first, Engine(store, clock=clock) as second:
        batches: list[pa.Table] = []
        consumers = []
        for engine in (first, second):
            consumer = engine.consumer(group_id="copy")
            consumer.subscribe(["payments"])
            batch = consumer.poll()
            assert batch is not None
            batches.append(batch)
            consumers.append(consumer)
        for number, engine in enumerate((first, second)):
            producer = engine.producer(transactional_id=f"job-{number}")
            producer.init_transactions()
            producer.begin_transaction()
            producer.produce("out", batches[number].select(SCHEMA.names))
            offsets, group = consumers[number].positions(), consumers[number].group_metadata()
            if number == 0:
                producer.send_offsets_to_transaction(offsets, group)
                producer.commit_transaction()
                continue
            with pytest.raises(OffsetsMovedError):
                producer.send_offsets_to_transaction(offsets, group)
            producer.abort_transaction()
        assert accounts_in(first, "out") == INPUT
        assert first.admin.verify().ok


def test_a_commit_whose_answer_was_lost_is_answered_by_the_log() -> None:
    """The decision is made, the answer is lost, a successor fences the producer: commit_transaction says committed."""
    clock = ManualClock()
    inner = prepared_store(clock)
    store = FaultyStore(inner)
    with Engine(store, clock=clock, pause=no_pause) as engine, Engine(inner, clock=clock) as other:
        producer = engine.producer(transactional_id="copy-job")
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("out", payments(1, 2)).result()
        deaf = {"on": False}

        def decide(operation: Operation, key: str, number: int) -> Fault | None:
            if "__transaction_state" in key and operation == "put_if_absent":
                deaf["on"] = True
                return "after"
            return "before" if deaf["on"] else None

        store.decide = decide
        with pytest.raises(OutcomeUnknownError):
            producer.commit_transaction()
        store.decide = None
        successor = other.producer(transactional_id="copy-job")
        successor.init_transactions()
        producer.commit_transaction()
        assert accounts_in(other, "out") == [1, 2]
        with pytest.raises(ProducerFencedError):
            producer.begin_transaction()


def test_a_stalled_first_write_asks_the_coordinator_again() -> None:
    """A batch that would open a transaction here, on a view loaded after its AddPartitions, needs the
    coordinator's word.
    """
    clock = ManualClock()
    with Engine(prepared_store(clock), clock=clock) as engine:
        producer = engine.producer(transactional_id="copy-job")
        producer.init_transactions()
        producer.begin_transaction()
        target = engine.coordinator.resolve(TopicPartition("out", 0))
        (lane,) = producer._sender.lanes_for([target])
        producer._effects.join([target])
        lane.log._state = None  # the next look loads another view
        write_transaction_state(
            engine, "copy-job", state="Ongoing", producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch, partitions=[TopicPartition("out", 1)],
        )  # fmt: skip
        with pytest.raises(TransactionAbortableError):
            producer.produce("out", payments(1), partition=0).result()
        assert engine.partition("out", 0).high_watermark == 0
