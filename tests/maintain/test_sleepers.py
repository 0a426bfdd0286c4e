"""A writer that sleeps during maintenance is refused clearly when it wakes up, and nothing is lost or
doubled."""

from __future__ import annotations

import pytest

from tests.engine.conftest import payments
from tests.maintain.ledgers import EAGER, P0, TOPIC, accounts, commit, ledger, open_engine, upload
from tests.suite.tiers import in_shard
from tests.support.faults import Fault, FaultyStore, Operation
from tests.support.refusals import refused
from tests.support.stores import assert_sound
from txn_engine import Engine
from txn_engine.errors import (
    InvalidProducerEpochError,
    InvalidRequestError,
    OutcomeUnknownError,
    TxnEngineError,
)
from txn_engine.log.data_files import EncodedFile
from txn_engine.maintain.policy import DAY_MS
from txn_engine.protocol.proposals import DataProposal
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock


def everything(engine: Engine, clock: ManualClock) -> None:
    """Run a day of the DAGs: sweeps, snapshots, retention of entries, seals, expiry and clean-up."""
    clock.advance(2 * DAY_MS)
    engine.coordinator.abort_timed_out_transactions()
    engine.coordinator.write_pending_markers()
    for _ in range(3):
        engine.admin.snapshot()
        commit(engine, 200)
    engine.admin.snapshot()
    jobs = engine.maintenance
    for report in (
        jobs.retain(policy=EAGER),
        jobs.seal(),
        jobs.expire_producers(),
        jobs.clean(policy=EAGER),
    ):
        assert report.failures == ()


def batch(uploaded: EncodedFile, **producer: int) -> DataProposal:
    return DataProposal(
        uploaded.record_count, uploaded.first_timestamp, uploaded.max_timestamp, uploaded.file, **producer
    )


def seal_up_to_now(engine: Engine) -> None:
    """Seal all but the youngest entries, without forgetting a producer or collecting a file."""
    for _ in range(3):
        engine.admin.snapshot()
        commit(engine, 200)
    engine.admin.snapshot()
    assert engine.maintenance.retain(policy=EAGER).failures == ()
    assert engine.maintenance.seal().failures == ()


def test_a_plain_append_on_a_sealed_slot() -> None:
    """If a plain append's slot was filled and sealed while its writer slept, its outcome is unknown, and
    nothing is sent."""
    store, clock = ledger()
    with open_engine(store, clock) as sleeper, open_engine(store, clock) as awake:
        uploaded = upload(sleeper, 300)
        log = sleeper.logs.get(TOPIC, 0, 0)
        slot = log.view().log_end_offset
        seal_up_to_now(awake)
        assert awake.partition(TOPIC, 0).state.entries_start > slot
        with pytest.raises(OutcomeUnknownError):
            log.append_one(batch(uploaded))
        assert 300 not in accounts(awake, "read_uncommitted")
        log.append_one(batch(upload(sleeper, 301)))
        assert accounts(awake, "read_uncommitted").count(301) == 1
        assert_sound(awake)


def test_an_idempotent_batch_on_a_sealed_slot() -> None:
    """If an idempotent batch's slot was sealed while its writer slept, the batch is appended once at the end,
    because the state shows that it is not in the log."""
    store, clock = ledger()
    with open_engine(store, clock) as sleeper, open_engine(store, clock) as awake:
        producer = sleeper.producer()
        producer.produce(TOPIC, payments(300), partition=0).result()
        slot = sleeper.logs.get(TOPIC, 0, 0).view().log_end_offset
        seal_up_to_now(awake)
        assert awake.partition(TOPIC, 0).state.entries_start > slot
        producer.produce(TOPIC, payments(301), partition=0).result()
        seen = accounts(awake, "read_uncommitted")
        assert (seen.count(300), seen.count(301), seen[-1]) == (1, 1, 301)
        assert_sound(awake)


def test_an_idempotent_batch_whose_reply_was_lost() -> None:
    """An idempotent batch that was stored without a reply and then sealed is not written again, because the
    state knows it."""
    store, clock = ledger()
    deaf = FaultyStore(store)
    unheard: set[str] = set()

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        if f"{TOPIC}/0/0/log/" not in key:
            return None
        if operation == "put_if_absent":
            unheard.add(key)
            return "after"
        return "before" if key in unheard else None

    with open_engine(deaf, clock) as sleeper, open_engine(store, clock) as awake:
        log = sleeper.logs.get(TOPIC, 0, 0)
        identity = {"producer_id": 900, "producer_epoch": 0}
        again = batch(upload(sleeper, 300, **identity), **identity, base_sequence=0)
        deaf.decide = decide
        with pytest.raises(OutcomeUnknownError):
            log.append_one(again)
        deaf.decide = None
        (landed,) = unheard
        seal_up_to_now(awake)
        assert int(landed[-28:-8]) < awake.partition(TOPIC, 0).state.entries_start
        told = log.append_one(again)
        assert told.base_offset == int(landed[-28:-8])
        assert accounts(awake, "read_uncommitted").count(300) == 1
        assert_sound(awake)


@pytest.mark.parametrize("has_looked", in_shard("kills", [False, True], keep=[True]))
def test_a_transaction_that_slept_through_it_all(has_looked: bool) -> None:
    """After a transaction has timed out, been aborted, expired and sealed, its writer's next batch is
    refused, and none of it is seen.

    A writer that sleeps between its look at the log's end and its put finds the seal.
    """
    store, clock = ledger()
    with open_engine(store, clock) as sleeper, open_engine(store, clock) as awake:
        producer = sleeper.producer(transactional_id="sleeper")
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(TOPIC, payments(300), partition=0).result()
        everything(awake, clock)
        if has_looked:
            sleeper.logs.get(TOPIC, 0, 0)._seen_ms = clock()
        with pytest.raises(TxnEngineError) as caught:
            producer.produce(TOPIC, payments(301), partition=0).result()
        assert caught.value.code == ("OUTCOME_UNKNOWN" if has_looked else "INVALID_PRODUCER_EPOCH")
        with pytest.raises(TxnEngineError):
            producer.commit_transaction()
        assert not {300, 301} & set(accounts(awake))
        assert 301 not in accounts(awake, "read_uncommitted")
        assert_sound(awake)
        again = awake.producer(transactional_id="sleeper")
        again.init_transactions()
        with again.transaction():
            again.produce(TOPIC, payments(302), partition=0)
        assert accounts(awake)[-1] == 302
        assert_sound(awake)


@pytest.mark.parametrize("looks_again", in_shard("kills", [False, True], keep=[True]))
def test_a_first_write_that_slept_through_it_all(looks_again: bool) -> None:
    """The first write of a transaction that was ended meanwhile is refused: on an old view it finds a seal,
    and on a new one the coordinator refuses it."""
    store, clock = ledger()
    with open_engine(store, clock) as sleeper, open_engine(store, clock) as awake:
        producer = sleeper.producer(transactional_id="sleeper")
        producer.init_transactions()
        producer.begin_transaction()
        target = sleeper.coordinator.resolve(P0)
        (lane,) = producer._sender.lanes_for([target])
        producer._effects.join([target])
        everything(awake, clock)
        lane.log._seen_ms = 0 if looks_again else clock()
        with pytest.raises(TxnEngineError) as caught:
            producer.produce(TOPIC, payments(300), partition=0).result()
        refused = ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "TRANSACTION_ABORTABLE")
        assert caught.value.code in (refused if looks_again else ("OUTCOME_UNKNOWN",))
        assert 300 not in accounts(awake, "read_uncommitted")
        assert awake.partition(TOPIC, 0).last_stable_offset == awake.partition(TOPIC, 0).high_watermark
        assert_sound(awake)


def test_a_marker_of_an_old_decision() -> None:
    """A coordinator that wakes up with a marker for a transaction that was completed and sealed long ago
    writes nothing."""
    store, clock = ledger()
    with open_engine(store, clock) as sleeper, open_engine(store, clock) as awake:
        producer = sleeper.producer(transactional_id="sleeper")
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(TOPIC, payments(300), partition=0).result()
        log = sleeper.partition(TOPIC, 0)
        epoch = producer.producer_epoch
        clock.advance(120_000)
        awake.coordinator.abort_timed_out_transactions()
        end = awake.partition(TOPIC, 0).high_watermark
        for _ in range(3):
            awake.admin.snapshot()
            commit(awake, 200)
        awake.admin.snapshot()
        awake.maintenance.retain(policy=EAGER)
        awake.maintenance.seal()
        assert awake.partition(TOPIC, 0).state.entries_start > end
        with pytest.raises(InvalidProducerEpochError):
            log.append_marker(
                producer_id=producer.producer_id,
                producer_epoch=epoch,
                committed=True,
                coordinator_epoch=10**6,
            )
        assert 300 not in accounts(awake)
        assert_sound(awake)


def test_a_put_without_an_answer_whose_slot_was_sealed() -> None:
    """A plain append with an unknown outcome whose slot was sealed stays unknown. It is not sent again, and
    other writers go on."""
    store, clock = ledger()
    deaf = FaultyStore(store)

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        return "before" if f"{TOPIC}/0/0/log/" in key else None

    with open_engine(deaf, clock) as sleeper, open_engine(store, clock) as awake:
        log = sleeper.logs.get(TOPIC, 0, 0)
        first, second = upload(sleeper, 300), upload(sleeper, 301)
        deaf.decide = decide
        with pytest.raises(OutcomeUnknownError):
            log.append_one(batch(first))
        deaf.decide = None
        seal_up_to_now(awake)
        log.append_one(batch(second))
        seen = accounts(awake, "read_uncommitted")
        assert (seen.count(300), seen.count(301)) == (0, 1)
        assert_sound(awake)


def test_a_file_that_was_collected() -> None:
    """A writer that names its file after clean-up has deleted it is refused, and readers miss no file."""
    store, clock = ledger()
    with open_engine(store, clock) as sleeper, open_engine(store, clock) as awake:
        log = sleeper.logs.get(TOPIC, 0, 0)
        uploaded = upload(sleeper, 300)
        commit(awake, 200)
        clock.advance(1)
        (cleaned,) = awake.maintenance.clean(TOPIC, policy=EAGER).partitions
        assert cleaned.orphans == 2
        with refused(InvalidRequestError, Reason.FILE_BELOW_FLOOR):
            log.append_one(batch(uploaded))
        assert 300 not in accounts(awake, "read_uncommitted")
        log.append_one(batch(upload(sleeper, 301)))
        assert accounts(awake, "read_uncommitted")[-1] == 301
        assert_sound(awake)


def test_a_duplicate_is_recognised_before_its_file_is_looked_at() -> None:
    """A batch that is in the log already gets its old offsets when it is sent again, although its file's name
    is below the floor by now."""
    store, clock = ledger()
    with open_engine(store, clock) as sleeper, open_engine(store, clock) as awake:
        log = sleeper.partition(TOPIC, 0)
        first = log.append(payments(300), producer_id=900, producer_epoch=0, base_sequence=0)
        named = awake.partition(TOPIC, 0).state.live[first.base_offset].file
        upload(awake, 301)
        for _ in range(3):
            commit(awake, 200)
        clock.advance(1)
        assert awake.maintenance.clean(TOPIC, policy=EAGER).partitions[0].floor > first.base_offset
        stamp = clock()
        again = sleeper.logs.get(TOPIC, 0, 0).append_one(
            DataProposal(1, stamp, stamp, named, producer_id=900, producer_epoch=0, base_sequence=0)
        )
        assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
        assert_sound(awake)
