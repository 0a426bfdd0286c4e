"""Power fails at a node's site. After it the producers of a service are fenced, and stay in their error
state."""

from __future__ import annotations

import pytest

from tests.incidents.scene import Scene, error_of, orders


def open_transaction(scene: Scene):  # type: ignore[no-untyped-def]
    producer = scene.service.producer(transactional_id="price-engine-0")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", orders(1, 2, 3)).result()
    return producer


@pytest.mark.parametrize("answer_lost", [False, True], ids=["write refused", "write landed"])
def test_node_outage_then_fenced(scene: Scene, answer_lost: bool) -> None:
    """The store is gone for longer than the transaction's timeout, and a sweep that still reaches it aborts
    the open transaction.

    In the incident the service then committed, got an error, aborted in its handler as all of them do, and
    was refused again and again.

    Here the commit says at once and in one line what happened and what to do. The abort in the handler does
    not hide it with another error, a new producer under the same id starts afresh, and each order is there
    once.
    """
    producer = open_transaction(scene)
    scene.outage(answer_lost="topics/orders/" if answer_lost else None)
    sent = producer.produce("orders", orders(4, 5, 6))
    assert error_of(sent.result).code in ("OUTCOME_UNKNOWN", "NETWORK_EXCEPTION")
    scene.clock.advance(60_001)
    assert scene.others.coordinator.abort_timed_out_transactions().transactional_ids == ("price-engine-0",)
    scene.over()

    refused = error_of(producer.commit_transaction)
    assert refused.code == "TRANSACTION_ABORTABLE"
    assert "abort_transaction()" in str(refused.action)
    producer.abort_transaction()  # the handler's: it finds the sweep's abort, and that is what was asked for
    with producer.transaction():
        producer.produce("orders", orders(1, 2, 3, 4, 5, 6))
    assert scene.orders() == [1, 2, 3, 4, 5, 6]
    assert scene.sound()


def test_node_outage_between_the_last_write_and_the_commit(scene: Scene) -> None:
    """In the same outage every write was acknowledged before, and only the commit comes too late. In the old
    client the handler's abort failed with "we are in an error state"."""
    producer = open_transaction(scene)
    scene.outage()
    scene.clock.advance(60_001)
    scene.others.coordinator.abort_timed_out_transactions()
    scene.over()

    refused = error_of(producer.commit_transaction)
    assert (refused.code, refused.fatal) == ("INVALID_TXN_STATE", True)
    assert refused.actor == "transactional id 'price-engine-0'"
    assert "CompleteAbort" in refused.seen
    assert error_of(producer.abort_transaction) is refused  # the same words, not a new riddle
    assert error_of(producer.begin_transaction) is refused
    producer.close()

    with scene.service.producer(transactional_id="price-engine-0") as fresh:
        fresh.init_transactions()
        with fresh.transaction():
            fresh.produce("orders", orders(1, 2, 3))
    assert scene.orders() == [1, 2, 3]
    assert scene.sound()


def test_node_outage_and_a_successor(scene: Scene) -> None:
    """The service was started a second time during the outage. The first instance is fenced for good when it
    is back, and its successor is not disturbed."""
    producer = open_transaction(scene)
    scene.outage()
    with scene.others.producer(transactional_id="price-engine-0") as successor:
        successor.init_transactions()
        with successor.transaction():
            successor.produce("orders", orders(1, 2, 3))
        scene.over()
        refused = error_of(producer.commit_transaction)
        assert (refused.code, refused.fatal) == ("PRODUCER_FENCED", True)
        assert error_of(producer.abort_transaction) is refused
        with successor.transaction():
            successor.produce("orders", orders(4))
    assert scene.orders() == [1, 2, 3, 4]
    assert scene.sound()
