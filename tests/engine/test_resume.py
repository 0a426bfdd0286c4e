"""One process initialises an identity and another one goes on with it: `engine.producer(resume=...)`."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.engine.conftest import payments
from tests.support.stores import accounts_in
from txn_engine import Engine, ProducerIdAndEpoch
from txn_engine.errors import (
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from txn_engine.producer import Producer
from txn_engine.producer import machine as events
from txn_engine.producer.states import ProducerState
from txn_engine.protocol.transaction_rows import TransactionPartition, TransactionRow, TransactionState


def initialised(engine: Engine) -> ProducerIdAndEpoch:
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        return ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch)


def resumed(engine: Engine, identity: ProducerIdAndEpoch) -> Producer:
    producer = engine.producer(transactional_id="load", resume=identity)
    producer.init_transactions()
    return producer


def test_what_one_initialised_another_commits(engine: Engine) -> None:
    """A resumed producer takes over the identity and the known run ids as they are, and goes on like any
    other producer."""
    with engine.producer(transactional_id="load") as first:
        first.init_transactions()
        with first.transaction("run-1"):
            first.produce("payments", payments(1))
    identity = initialised(engine)
    with resumed(engine, identity) as producer:
        assert (producer.producer_id, producer.producer_epoch) == identity
        assert producer.committed_run_ids == ("run-1",)
        with producer.transaction("run-2"):
            producer.produce("payments", payments(2))
        with producer.transaction("run-3"):
            producer.produce("payments", payments(3))
        producer.init_transactions()
        assert producer.committed_run_ids == ("run-1", "run-2", "run-3")
    assert accounts_in(engine) == [1, 2, 3]


def test_an_identity_that_was_fenced(engine: Engine) -> None:
    """An identity cannot be resumed after the id was initialised again. The later identity can."""
    identity = initialised(engine)
    later = initialised(engine)
    with pytest.raises(ProducerFencedError):
        resumed(engine, identity)
    assert resumed(engine, later).producer_epoch == later.producer_epoch


def test_an_epoch_under_which_something_was_added(engine: Engine) -> None:
    """An identity whose transaction is open cannot be resumed, because its first batches may be another
    producer's. The open transaction is left as it is."""
    identity = initialised(engine)
    first = resumed(engine, identity)
    first.begin_transaction()
    first.produce("payments", payments(1)).result()
    with pytest.raises(InvalidTxnStateError):
        resumed(engine, identity)
    first.commit_transaction()
    assert accounts_in(engine) == [1]
    with pytest.raises(ProducerFencedError):  # the end of a transaction moves the epoch
        resumed(engine, identity)


def test_of_two_that_resumed_one_identity_one_writes(engine: Engine) -> None:
    """If two producers resume one identity before either writes, only the first to write succeeds. Otherwise
    the second one's batches would pass for retries of the first one's."""
    identity = initialised(engine)
    first, second = resumed(engine, identity), resumed(engine, identity)
    first.begin_transaction("run-1")
    second.begin_transaction("run-1")
    first.produce("payments", payments(1)).result()
    with pytest.raises(InvalidTxnStateError):
        second.produce("payments", payments(2)).result()
    first.commit_transaction()
    assert accounts_in(engine) == [1]


@pytest.mark.parametrize("end", ["close", "abort_transaction"])
@pytest.mark.parametrize("is_awaited", [True, False])
def test_who_comes_second_ends_nothing_of_the_firsts(engine: Engine, end: str, is_awaited: bool) -> None:
    """The second producer of a resumed identity does not end the first one's transaction, whether its own row
    was refused or it gives up before that."""
    identity = initialised(engine)
    first, second = resumed(engine, identity), resumed(engine, identity)
    first.begin_transaction()
    first.produce("payments", payments(1)).result()
    second.begin_transaction()
    sent = second.produce("payments", payments(2))
    if is_awaited:
        with pytest.raises(InvalidTxnStateError):
            sent.result()
        assert second.state is ProducerState.FATAL_ERROR
    with suppress(InvalidTxnStateError):
        getattr(second, end)()
    first.commit_transaction()
    assert accounts_in(engine) == [1]


def test_offsets_alone_are_something_added(engine: Engine) -> None:
    """A transaction that only commits offsets counts as begun too, so the second producer is refused."""
    identity = initialised(engine)
    first, second = resumed(engine, identity), resumed(engine, identity)
    with engine.consumer(group_id="readers") as consumer:
        consumer.subscribe(["payments"])
        group = consumer.group_metadata()
        position = dict.fromkeys(consumer.positions(), 0)
        first.begin_transaction()
        first.send_offsets_to_transaction(position, group)
        second.begin_transaction()
        with pytest.raises(InvalidTxnStateError):
            second.send_offsets_to_transaction(position, group)
        first.commit_transaction()


def test_what_cannot_be_resumed(engine: Engine) -> None:
    """An id that nobody initialised cannot be resumed, and neither can a producer without an id."""
    with pytest.raises(InvalidProducerIdMappingError):
        resumed(engine, ProducerIdAndEpoch(0, 0))
    with pytest.raises(InvalidRequestError):
        engine.producer(resume=ProducerIdAndEpoch(0, 0))


def test_an_abort_that_finds_itself_finished_asks_for_nothing() -> None:
    """If a rival under the same identity has begun first, this producer's row is refused while its abort
    waits. The abort then fails and does not end the rival's transaction."""
    identity = ProducerIdAndEpoch(7, 0)
    row = TransactionRow("load", TransactionState.EMPTY, *identity)
    machine, _ = events.init_called(events.new_machine("load"))
    machine, _ = events.initialised(machine, identity, row, is_resumed=True)
    machine, _ = events.begun(machine, None)
    machine, _ = events.wanted(machine, [TransactionPartition("payments", 0, 0)])
    machine, _ = events.join_begins(machine)
    machine, _ = events.aborting(machine)
    machine, _ = events.join_failed(machine, InvalidTxnStateError("something was added"))
    assert machine.state is ProducerState.FATAL_ERROR
    with pytest.raises(InvalidTxnStateError):
        events.aborted(machine)
