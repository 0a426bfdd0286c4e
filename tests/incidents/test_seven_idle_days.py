"""After a week without work a commit "succeeded", but the records were aborted, because the id had
expired."""

from __future__ import annotations

import pytest

from tests.incidents.scene import Scene, error_of, orders
from txn_engine.producer import Producer
from txn_engine.reasons import Reason

DAY_MS = 86_400_000


@pytest.fixture
def producer(scene: Scene) -> Producer:
    """A producer that has committed once."""
    made = scene.service.producer(transactional_id="weekly-report")
    made.init_transactions()
    with made.transaction():
        made.produce("orders", orders(1))
    made._effects.wait_for_completion()
    return made


def test_seven_idle_days(scene: Scene, producer: Producer) -> None:
    """A service that had nothing to send for seven days sent again.

    Neither client nor broker showed an error, but the reader skipped every record, because the coordinator
    had forgotten the id.

    Here the first call after the expiry says that the id is unknown and what to do. Nothing is written under
    the id, a new producer starts afresh, and its committed records are read.
    """
    scene.clock.advance(7 * DAY_MS)
    assert scene.others.coordinator.expire_transactional_ids().transactional_ids == ("weekly-report",)
    before = [offsets.high_watermark for offsets in scene.others.admin.list_offsets("orders").values()]

    def work() -> None:
        with producer.transaction():
            producer.produce("orders", orders(2))

    refused = error_of(work)
    assert (refused.code, refused.fatal) == ("INVALID_PRODUCER_ID_MAPPING", True)
    assert refused.reason is Reason.UNKNOWN_TRANSACTIONAL_ID
    assert "init_transactions()" in str(refused.action)
    assert error_of(work) is refused
    after = [offsets.high_watermark for offsets in scene.others.admin.list_offsets("orders").values()]
    assert after == before
    producer.close()

    with scene.service.producer(transactional_id="weekly-report") as fresh:
        fresh.init_transactions()
        assert fresh.producer_id != producer.producer_id
        with fresh.transaction():
            fresh.produce("orders", orders(2))
    assert scene.orders() == [1, 2]
    assert scene.sound()


def test_seven_idle_days_without_a_sweep(scene: Scene, producer: Producer) -> None:
    """The week is over but no sweep has run yet, so the id is still the producer's, and the commit is a
    commit."""
    scene.clock.advance(8 * DAY_MS)
    with producer.transaction():
        producer.produce("orders", orders(2))
    assert scene.others.coordinator.expire_transactional_ids().transactional_ids == ()
    assert scene.orders() == [1, 2]
    assert scene.sound()


def test_seven_days_with_a_transaction_open(scene: Scene, producer: Producer) -> None:
    """A service that sent records and then slept for a week before the commit gets an error, which says that
    its transaction was aborted."""
    producer.begin_transaction()
    producer.produce("orders", orders(2)).result()
    for _ in range(8):
        scene.clock.advance(DAY_MS)
        scene.others.coordinator.abort_timed_out_transactions()
        scene.others.coordinator.expire_transactional_ids()
        scene.others.maintenance.expire_producers()
    refused = error_of(producer.commit_transaction)
    assert refused.fatal
    assert refused.code in ("INVALID_PRODUCER_ID_MAPPING", "INVALID_TXN_STATE")
    assert scene.orders() == [1]
    assert scene.sound()


def test_seven_days_of_a_sleeping_first_write(scene: Scene, producer: Producer) -> None:
    """In the worst case the write itself slept, from AddPartitions until the time-out, the marker, and the
    expiry of the id and of the producer in the partition. It is refused, so no record is left that nobody
    will ever decide."""
    slept = {"done": False}

    def decide(operation, key, _):  # type: ignore[no-untyped-def]
        if operation == "put_if_absent" and key.startswith("topics/orders/0/1/log/") and not slept["done"]:
            slept["done"] = True
            for _day in range(9):
                scene.clock.advance(DAY_MS)
                scene.others.coordinator.abort_timed_out_transactions()
                scene.others.coordinator.expire_transactional_ids()
                scene.others.maintenance.expire_producers()
        return

    scene.store.decide = decide
    producer.begin_transaction()
    refused = error_of(lambda: producer.produce("orders", orders(2), partition=1).result())
    assert slept["done"]
    assert refused.code in ("INVALID_PRODUCER_ID_MAPPING", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
    scene.over()
    assert scene.orders() == [1]
    assert scene.sound()
