"""A commit ran into a time-out, its handler called abort, and got "invalid transition from committing to
aborting".
"""

from __future__ import annotations

import pytest

from tests.incidents.scene import Scene, error_of, orders
from txn_engine.producer import Producer


def handler_commits_again(producer: Producer) -> None:
    """The right handler for an answer that did not come, which commits again."""
    producer.commit_transaction()


@pytest.mark.parametrize("landed", [False, True], ids=["decision lost", "decision landed"])
def test_timeout_then_invalid_transition(scene: Scene, landed: bool) -> None:
    """The nodes could not reach each other, and the commit's answer did not come in time.

    The code's only way out was an abort, which is not possible for a transaction that may be committed.
    Nobody knew whether it was committed.

    Here the abort is refused with the state and the only possible call, and breaks nothing. The repeated
    commit is answered from the log, committed and once, in both cases.
    """
    producer = scene.service.producer(transactional_id="worker-1")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", orders(1, 2, 3)).result()
    scene.outage(answer_lost="__transaction_state" if landed else None)
    unknown = error_of(producer.commit_transaction)
    assert unknown.code == "OUTCOME_UNKNOWN"
    refused = error_of(producer.abort_transaction)
    assert (refused.code, refused.fatal) == ("ILLEGAL_STATE", False)
    assert "COMMITTING" in refused.seen
    scene.over()

    handler_commits_again(producer)
    assert scene.orders() == [1, 2, 3]
    with producer.transaction():
        producer.produce("orders", orders(4))
    assert scene.orders() == [1, 2, 3, 4]
    assert scene.sound()


@pytest.mark.parametrize("landed", [False, True], ids=["decision lost", "decision landed"])
def test_timeout_and_the_process_is_gone(scene: Scene, landed: bool) -> None:
    """A caller that gives up and starts again asks the log whether the run was committed, and repeats it only
    if not."""
    producer = scene.service.producer(transactional_id="worker-1")
    producer.init_transactions()
    producer.begin_transaction(run_id="2024-04-03")
    producer.produce("orders", orders(1, 2, 3)).result()
    scene.outage(answer_lost="__transaction_state" if landed else None)
    assert error_of(producer.commit_transaction).code == "OUTCOME_UNKNOWN"

    with scene.others.producer(transactional_id="worker-1") as again:
        again.init_transactions()
        assert again.has_committed("2024-04-03") is landed
        if not again.has_committed("2024-04-03"):
            with again.transaction(run_id="2024-04-03"):
                again.produce("orders", orders(1, 2, 3))
    scene.over()
    refused = error_of(producer.abort_transaction)
    assert refused.code == "ILLEGAL_STATE"
    if landed:
        producer.commit_transaction()  # the log remembers that it was
    else:
        assert error_of(producer.commit_transaction).code == "PRODUCER_FENCED"
    assert scene.orders() == [1, 2, 3]
    assert scene.sound()
