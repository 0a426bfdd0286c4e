"""TxnAbortOperator aborts open transactions, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.blocks.conftest import RunTasks
from tests.blocks.payments import commit, leave_open, payments
from tests.suite.tiers import in_shard
from tests.support.stores import accounts_in, states
from txn_engine import Engine
from txn_engine.errors import ProducerFencedError

pytestmark = pytest.mark.airflow


def abort(**settings: Any) -> Any:
    """The task `abort`."""
    from txn_engine_airflow import TxnAbortOperator

    return TxnAbortOperator(task_id="abort", **settings)


def test_an_open_transaction_is_aborted_and_its_producer_fenced(engine: Engine, run_tasks: RunTasks) -> None:
    """An open transaction is aborted, its producer is fenced, and readers go on at once. A second run finds
    nothing open."""
    producer = leave_open(engine, payments(0, 5), "stuck")
    commit(engine, payments(50, 1))
    run = run_tasks(lambda: abort(transactional_id="stuck"), date=None)
    assert run.state == "success", run.errors
    assert run.xcom("abort") == {"what": "transactional id 'stuck'", "aborted": True}
    assert accounts_in(engine) == [50]
    with pytest.raises(ProducerFencedError):
        producer.commit_transaction()
    again = run_tasks(lambda: abort(transactional_id="stuck"), date=None)
    assert (again.state, again.xcom("abort")["aborted"]) == ("success", False)


def test_what_was_decided_to_commit_is_not_aborted(engine: Engine, run_tasks: RunTasks) -> None:
    """For a transaction that was decided to commit, the task fails in one line and is not retried."""
    commit(engine, payments(0, 5), "decided", markers="deferred")
    run = run_tasks(lambda: abort(transactional_id="decided"), date=None, retries=2)
    assert run.state == "failed"
    assert run.faults == [("decided_to_commit", "decided", "")]
    engine.coordinator.write_pending_markers()
    assert accounts_in(engine) == list(range(5))


def test_a_hanging_transaction_is_ended_at_its_offset(engine: Engine, run_tasks: RunTasks) -> None:
    """A hanging transaction, which no coordinator row knows, is aborted at its offset, which may be a
    template. A second run aborts nothing."""
    log = engine.partition("payments", 0)
    log.append(payments(0, 3), producer_id=900, producer_epoch=0, base_sequence=0, is_transactional=True)
    make = lambda: abort(topic="payments", partition="{{ 0 }}", start_offset="0")  # noqa: E731
    run = run_tasks(make, date=None)
    assert run.state == "success", run.errors
    assert run.xcom("abort")["aborted"] is True
    assert log.last_stable_offset == log.high_watermark
    assert run_tasks(make, date=None).xcom("abort")["aborted"] is False


def test_a_transaction_with_an_owner_is_not_taken_for_a_hanging_one(
    engine: Engine, run_tasks: RunTasks
) -> None:
    """A transaction with a coordinator's row is not aborted as a hanging one."""
    leave_open(engine, payments(0, 1), "alive")
    (partition,) = [tp.partition for tp in engine.admin.describe_transaction("alive").partitions]
    run = run_tasks(lambda: abort(topic="payments", partition=partition, start_offset=0), date=None)
    assert run.state == "failed"
    assert "has a coordinator" in run.errors[0]
    assert states(engine)["alive"] == "Ongoing"


@pytest.mark.parametrize("wrong", in_shard("airflow", ["", True, -1, " ", 0.0, "1.5", "-1", "first"], keep=3))
def test_a_place_that_is_not_a_number_aborts_nothing(
    engine: Engine, run_tasks: RunTasks, wrong: object
) -> None:
    """A partition or offset that is not a number aborts nothing: a blank template is not 0. The error names
    the field, and the task is not retried."""
    log = engine.partition("payments", 0)
    log.append(payments(0, 3), producer_id=900, producer_epoch=0, base_sequence=0, is_transactional=True)
    for field, settings in (
        ("partition", {"partition": wrong, "start_offset": 0}),
        ("start_offset", {"partition": 0, "start_offset": wrong}),
    ):
        run = run_tasks(lambda given=settings: abort(topic="payments", **given), date=None, retries=1)
        assert run.state == "failed"
        assert run.faults == [("bad_argument", field, "")]
    assert log.last_stable_offset == 0


def test_a_blank_transactional_id_is_refused(engine: Engine, run_tasks: RunTasks) -> None:
    """A blank transactional id is refused. It would be an id without an open transaction, and the task would
    succeed."""
    run = run_tasks(lambda: abort(transactional_id="{{ '' }}"), date=None)
    assert run.state == "failed"
    assert run.faults == [("bad_argument", "transactional_id", "")]


@pytest.mark.parametrize(
    "settings",
    [{}, {"transactional_id": "a", "topic": "payments"}, {"topic": "payments", "partition": 0}],
)
def test_a_wrong_task_is_refused_when_its_file_is_parsed(settings: dict[str, Any]) -> None:
    """A task with half a place, or with an id and a place, is refused when its file is parsed."""
    with pytest.raises(
        ValueError, match="expected either transactional_id, or topic, partition and start_offset"
    ):
        abort(**settings)
