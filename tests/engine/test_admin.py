"""Operators list, describe, find and end transactions."""

from __future__ import annotations

import pytest

from tests.engine.conftest import payments
from tests.support.refusals import refused
from tests.support.stores import accounts_in
from txn_engine import Engine, TopicPartition
from txn_engine.errors import (
    InvalidRegularExpressionError,
    InvalidRequestError,
    InvalidTxnStateError,
    TransactionalIdNotFoundError,
    TransactionCoordinatorFencedError,
)
from txn_engine.protocol.transaction_rows import TransactionState
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock, write_transaction_state

P0 = TopicPartition("payments", 0)
OFFSETS = "__consumer_offsets"
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")


@pytest.fixture
def listed(engine: Engine, clock: ManualClock) -> Engine:
    """A store with one id in every state. Each id began later than the one before it."""
    for number, state in enumerate(STATES):
        write_transaction_state(
            engine, f"id-{state}", state=state, producer_id=100 + number, producer_epoch=1,
            last_update_ms=clock() - 1_000 * (len(STATES) - number),
        )  # fmt: skip
    return engine


def names(engine: Engine, *filters: object, **more: object) -> list[str]:
    found = engine.admin.list_transactions(*filters, **more)  # type: ignore[arg-type]
    return [listing.transactional_id.removeprefix("id-") for listing in found]


def test_listing_all(listed: Engine) -> None:
    """Without a filter, every id but the expired one is listed by name, with its producer and state. An empty
    filter filters nothing."""
    alive = sorted(STATES[:-1])
    assert names(listed) == alive
    assert names(listed, [], [], None, "") == names(listed, None, None, -1, None) == alive
    (found,) = listed.admin.list_transactions(["Ongoing"])
    assert (found.transactional_id, found.producer_id, found.state) == ("id-Ongoing", 101, "Ongoing")


def test_listing_by_state_and_producer(listed: Engine) -> None:
    """An id is listed if it has one of the states, and one of the producer ids, that the caller names. `Dead`
    lists nothing, as in Kafka."""
    assert names(listed, ["Ongoing", "Empty"]) == ["Empty", "Ongoing"]
    assert names(listed, None, [101, 104, 999]) == ["CompleteCommit", "Ongoing"]
    assert names(listed, ["Empty"], [101]) == []
    assert names(listed, ["Dead"]) == names(listed, ["PrepareEpochFence"]) == []
    with pytest.raises(InvalidRequestError):
        names(listed, ["ongoing"])


def test_listing_by_duration(listed: Engine) -> None:
    """The filter lists the ids whose transaction began strictly longer ago than the duration. An id that
    never had a transaction counts as begun long ago."""
    assert names(listed, duration_ms=4_000) == ["Empty", "Ongoing", "PrepareCommit"]
    assert names(listed, duration_ms=3_999) == ["Empty", "Ongoing", "PrepareAbort", "PrepareCommit"]
    assert names(listed, duration_ms=10**9) == []
    listed.coordinator.init_producer_id("never")
    assert names(listed, duration_ms=10**9) == ["never"]


def test_listing_by_pattern(listed: Engine) -> None:
    """The pattern has to match the whole id. An invalid expression is INVALID_REGULAR_EXPRESSION."""
    assert names(listed, pattern="id-Prepare.*") == ["PrepareAbort", "PrepareCommit"]
    assert names(listed, pattern="Prepare") == []
    with pytest.raises(InvalidRegularExpressionError):
        names(listed, pattern="(")


def test_tc_21_describing(listed: Engine) -> None:
    """TC-21: an empty id is INVALID_REQUEST, an unknown or expired one TRANSACTIONAL_ID_NOT_FOUND."""
    with pytest.raises(InvalidRequestError):
        listed.admin.describe_transaction("")
    for unknown in ("nobody", "id-Dead"):
        with pytest.raises(TransactionalIdNotFoundError):
            listed.admin.describe_transaction(unknown)
    for state in STATES[:-1]:
        assert listed.admin.describe_transaction(f"id-{state}").state == state
    assert {state.value for state in TransactionState} == set(STATES)


# --- hanging transactions ---------------------------------------------------------------------------------

LIMIT_MS = 900_000


def hang(engine: Engine, producer_id: int = 900, *, timestamp_ms: int | None = None) -> None:
    """Open a transaction on payments-0 that no coordinator knows."""
    engine.partition("payments", 0).append(
        payments(1), producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True,
        timestamp_ms=timestamp_ms,
    )  # fmt: skip


def hanging(
    engine: Engine, topic: str | None = None, partition: int | None = None
) -> list[tuple[str, int, int]]:
    found = engine.admin.find_hanging_transactions(topic, partition)
    return [(each.topic, each.partition, each.producer_id) for each in found]


def test_cmd_01_hanging_is_last_written_longer_ago_than_any_may_be_open(
    engine: Engine, clock: ManualClock
) -> None:
    """CMD-01: a transaction hangs once its last batch is older, strictly and by the log's time, than any
    transaction may be open."""
    hang(engine)
    clock.advance(LIMIT_MS)
    assert hanging(engine) == []
    engine.partition("payments", 0).append(
        payments(2), producer_id=900, producer_epoch=0, base_sequence=1, is_transactional=True
    )
    clock.advance(LIMIT_MS)
    assert hanging(engine) == []
    clock.advance(1)
    (found,) = engine.admin.find_hanging_transactions("payments", 0)
    assert (found.start_offset, found.duration_ms) == (0, LIMIT_MS + 1)
    assert hanging(engine, "payments", 1) == []


@pytest.mark.parametrize("timestamp_ms", [0, 2**45])
def test_records_may_be_of_any_time(engine: Engine, clock: ManualClock, timestamp_ms: int) -> None:
    """Old records do not make a young transaction hang, and records of the future do not hide one."""
    engine.admin.alter_configs({"message.timestamp.after.max.ms": 2**63 - 1}, topic="payments")
    hang(engine, timestamp_ms=timestamp_ms)
    clock.advance(LIMIT_MS)
    assert hanging(engine) == []
    clock.advance(1)
    assert hanging(engine) == [("payments", 0, 900)]


def test_cmd_03_internal_topics_are_searched(engine: Engine, clock: ManualClock) -> None:
    """CMD-03: without a topic, `__consumer_offsets` is searched too. A caller may also name it, and can end a
    hanging transaction there."""
    consumer = engine.consumer(group_id="g")
    consumer.assign([P0])
    consumer.poll()
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({P0: 0}, consumer.group_metadata())
    home = engine.logs.group_partition("g").partition
    clock.advance(LIMIT_MS + 1)
    assert hanging(engine) == hanging(engine, OFFSETS) == []  # it has a coordinator
    write_transaction_state(
        engine, "job", state="Empty", producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
    )
    found = [(OFFSETS, home, producer.producer_id)]
    assert hanging(engine) == hanging(engine, OFFSETS) == hanging(engine, OFFSETS, home) == found
    engine.admin.abort_transaction(OFFSETS, home, 0)
    assert hanging(engine) == []
    assert engine.admin.describe_producers(OFFSETS, home)[0].current_transaction_start_offset == -1
    with pytest.raises(InvalidRequestError):
        engine.admin.find_hanging_transactions(partition=0)


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort"])
def test_what_has_an_owner_is_not_the_operators(engine: Engine, clock: ManualClock, state: str) -> None:
    """A transaction is neither found as hanging nor ended by an operator if any coordinator row shows its
    producer id as open or undecided in this partition."""
    hang(engine)
    write_transaction_state(engine, "owner", state=state, producer_id=900, producer_epoch=1, partitions=[P0])
    clock.advance(LIMIT_MS + 1)
    assert hanging(engine) == []
    with refused(InvalidTxnStateError, Reason.HAS_COORDINATOR):
        engine.admin.abort_transaction("payments", 0, 0)
    write_transaction_state(
        engine, "owner", state=state, producer_id=900, producer_epoch=1,
        partitions=[TopicPartition("payments", 1)],
    )  # fmt: skip
    assert hanging(engine) == [("payments", 0, 900)]
    engine.admin.abort_transaction("payments", 0, 0)
    assert accounts_in(engine, isolation_level="read_committed") == []


def test_ended_while_it_was_looked_at(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction does not hang if it is completed after the search has read the partition and before it
    reads the coordinator."""
    producer = engine.producer(transactional_id="job", transaction_timeout_ms=LIMIT_MS)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", payments(1), partition=0).result()
    clock.advance(LIMIT_MS + 1)
    rows = engine.coordinator.rows

    def complete_first() -> object:
        producer.commit_transaction()
        return rows()

    monkeypatch.setattr(engine.coordinator, "rows", complete_first)
    assert hanging(engine) == []


def test_cmd_04_an_operators_abort_bears_the_partitions_own_fence(engine: Engine) -> None:
    """CMD-04: an operator's abort takes the epoch and the coordinator epoch from the partition, where -1
    becomes 0. A later decision is not undone."""
    hang(engine)
    engine.admin.abort_transaction("payments", 0, 0)
    (state,) = engine.admin.describe_producers("payments", 0)
    assert (state.producer_epoch, state.coordinator_epoch) == (0, 0)
    log = engine.partition("payments", 0)
    log.append_marker(producer_id=900, producer_epoch=1, committed=True, coordinator_epoch=7)
    log.append(payments(2), producer_id=900, producer_epoch=1, base_sequence=0, is_transactional=True)
    engine.admin.abort_transaction("payments", 0, 3)
    (state,) = engine.admin.describe_producers("payments", 0)
    assert (state.producer_epoch, state.coordinator_epoch) == (1, 7)
    with pytest.raises(TransactionCoordinatorFencedError):
        log.append_marker(producer_id=900, producer_epoch=2, committed=True, coordinator_epoch=6)


def test_late_transactions(engine: Engine, clock: ManualClock) -> None:
    """PSM-18: a partition has a late transaction from five minutes after the longest time that a transaction
    may take, until all late ones are ended."""
    log = engine.partition("payments", 0)
    limit_ms = engine.limits.max_transaction_timeout_ms
    late_after_ms = limit_ms + 300_000
    hang(engine, 900)
    clock.advance(500)
    hang(engine, 901)

    def is_late() -> bool:
        return log.state.has_late_transaction(clock(), limit_ms)

    clock.advance(late_after_ms - 500)
    assert not is_late()
    clock.advance(1)
    assert is_late()
    engine.admin.abort_transaction("payments", 0, 0)
    assert not is_late()
    clock.advance(500)
    assert is_late()
    engine.admin.abort_transaction("payments", 0, 1)
    assert not is_late()


# --- fencing ----------------------------------------------------------------------------------------------


def test_fencing_ends_what_is_open(engine: Engine) -> None:
    """Fencing ids aborts their open transactions. An id that is new gets epoch 0."""
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", payments(1), partition=0).result()
    before = producer.producer_epoch
    fenced = engine.admin.fence_producers(["job", "new"])
    assert fenced["job"] == (producer.producer_id, before + 2)
    assert fenced["new"].producer_epoch == 0
    assert engine.admin.describe_transaction("new").transaction_timeout_ms == 30_000  # as of Kafka's client
    assert engine.partition("payments", 0).last_stable_offset == 2
    assert engine.admin.describe_transaction("job").state == "Empty"
