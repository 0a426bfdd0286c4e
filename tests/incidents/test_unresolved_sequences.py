"""Acknowledgements never came, the client's retries ran out, and "it isn't safe to continue" was the end of
the producer.
"""

from __future__ import annotations

import pytest

from tests.incidents.scene import Scene, error_of, orders


@pytest.mark.parametrize("landed", [False, True], ids=["lost", "landed"])
def test_unresolved_sequences(scene: Scene, landed: bool) -> None:
    """A batch was sent, nobody knows whether it arrived, and its retries are used up.

    The old client could only be thrown away, and a caller that sent the records again with a new one risked
    having them twice.

    Here the batch's future says that the outcome is unknown, the commit is refused, and the abort settles the
    slot that was in doubt. The same producer then sends the records again, and each is there once, whatever
    had arrived.
    """
    producer = scene.service.producer(transactional_id="snapshots")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", orders(1, 2), partition=0).result()
    scene.outage(answer_lost="topics/orders/0/0/log/" if landed else None)
    unresolved = producer.produce("orders", orders(3, 4), partition=0)
    assert error_of(unresolved.result).code in ("OUTCOME_UNKNOWN", "NETWORK_EXCEPTION")
    refused = error_of(producer.commit_transaction)
    assert (refused.code, refused.abortable) == ("TRANSACTION_ABORTABLE", True)
    scene.over()

    producer.abort_transaction()
    assert scene.orders() == []
    with producer.transaction():
        producer.produce("orders", orders(1, 2, 3, 4), partition=0)
    assert scene.orders() == [1, 2, 3, 4]
    assert scene.sound()


@pytest.mark.parametrize("landed", [False, True], ids=["lost", "landed"])
def test_unresolved_sequences_of_an_idempotent_producer(scene: Scene, landed: bool) -> None:
    """Without transactions the producer cannot take anything back, so the log decides whether the batch is
    there."""
    producer = scene.service.producer()
    producer.produce("orders", orders(1, 2), partition=0).result()
    scene.outage(answer_lost="topics/orders/0/0/log/" if landed else None)
    sent = producer.produce("orders", orders(3, 4), partition=0)
    unknown = error_of(sent.result)
    assert unknown.code in ("OUTCOME_UNKNOWN", "NETWORK_EXCEPTION")
    scene.over()
    assert error_of(producer.flush).code == unknown.code
    missing = sorted({1, 2, 3, 4} - set(scene.orders(scene.service)))
    assert missing == ([] if landed else [3, 4])
    if missing:
        with scene.service.producer() as fresh:
            fresh.produce("orders", orders(*missing), partition=0)
    assert scene.orders() == [1, 2, 3, 4]
    assert scene.sound()
