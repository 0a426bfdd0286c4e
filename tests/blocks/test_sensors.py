"""Sensors as tasks: they defer, the trigger answers, and the task goes on with what it found."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from tests.blocks.conftest import RunTasks
from tests.blocks.payments import commit, leave_open, payments
from tests.blocks.test_triggers import move_group
from txn_engine import Engine

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("quick_looks")]

UNNAMED = {"poke_interval": 0.1, "timeout": 300}
FAST = UNNAMED | {"task_id": "wait"}


@contextmanager
def meanwhile(work: Any) -> Iterator[None]:
    """Do something once the sensor has begun to wait."""
    import txn_engine_airflow.sensors as sensors

    begun, real = threading.Event(), sensors.StoreSensor.defer

    def defer(sensor: Any, **wait: Any) -> None:
        begun.set()
        real(sensor, **wait)

    def later() -> None:
        assert begun.wait(300)
        time.sleep(0.3)
        work()

    thread = threading.Thread(target=later)
    with mock.patch.object(sensors.StoreSensor, "defer", defer):
        thread.start()
        try:
            yield
        finally:
            begun.set()
            thread.join()


def test_new_records_are_waited_for(engine: Engine, run_tasks: RunTasks) -> None:
    """A sensor waits for records that come after its start. With a group, it waits for records that the group
    has not read."""
    from txn_engine_airflow import NewRecordsSensor

    commit(engine, payments(0, 10))
    with meanwhile(lambda: commit(engine, payments(100, 6))):
        run = run_tasks(lambda: NewRecordsSensor(topic="payments", records_min=5, **FAST), date=None)
    assert run.state == "success", run.errors
    told = run.xcom("wait")
    assert told["records"] == 6
    at_once = run_tasks(lambda: NewRecordsSensor(topic="payments", group_id="nobody", **FAST), date=None)
    assert (at_once.state, at_once.xcom("wait")["records"]) == ("success", 16)
    ends = told["start_offsets"]
    from_there = run_tasks(lambda: NewRecordsSensor(topic="payments", start_offsets=ends, **FAST), date=None)
    assert from_there.xcom("wait")["records"] == 6


def test_a_group_is_waited_for_until_it_has_what_was_committed(engine: Engine, run_tasks: RunTasks) -> None:
    """A sensor waits until the group has read what was committed at its start. What is committed later does
    not count."""
    from txn_engine_airflow import GroupCaughtUpSensor

    commit(engine, payments(0, 10))

    def read_then_more() -> None:
        move_group(engine)
        commit(engine, payments(100, 10))

    with meanwhile(read_then_more):
        run = run_tasks(lambda: GroupCaughtUpSensor(topic="payments", group_id="balances", **FAST), date=None)
    assert run.state == "success", run.errors
    assert run.xcom("wait")["group_id"] == "balances"


def test_a_transaction_is_waited_for_until_readers_are_past_it(engine: Engine, run_tasks: RunTasks) -> None:
    """A sensor waits while the transaction is open, and while it is decided without its markers, until it is
    final."""
    from txn_engine_airflow import TransactionFinalSensor

    producer = leave_open(engine, payments(0, 3), "load")
    with meanwhile(producer.commit_transaction):
        run = run_tasks(lambda: TransactionFinalSensor(transactional_id="load", **FAST), date=None)
    assert run.state == "success", run.errors
    assert run.xcom("wait") == {"transactional_id": "load", "state": "CompleteCommit"}

    def decide_then_mark() -> None:
        commit(engine, payments(20, 3), "run", run_id="monday", markers="deferred")
        time.sleep(0.5)
        engine.coordinator.write_pending_markers()

    with meanwhile(decide_then_mark):
        run = run_tasks(
            lambda: TransactionFinalSensor(transactional_id="run", run_id="monday", **FAST), date=None
        )
    assert run.state == "success", run.errors
    assert run.xcom("wait")["state"] == "CompleteCommit"


def test_what_will_never_be_fails_at_once_in_one_line(engine: Engine, run_tasks: RunTasks) -> None:
    """A sensor fails at once in one line for an id that nobody used or a topic that does not exist, and also
    if the topic is deleted while it waits."""
    from txn_engine_airflow import GroupCaughtUpSensor, NewRecordsSensor, TransactionFinalSensor

    run = run_tasks(lambda: TransactionFinalSensor(transactional_id="nobody", **FAST), date=None, retries=1)
    assert run.faults == [("unknown_transactional_id", "nobody", "")]
    run = run_tasks(lambda: GroupCaughtUpSensor(topic="nowhere", group_id="g", **FAST), date=None, retries=1)
    (line,) = run.errors
    assert "'nowhere'" in line
    with meanwhile(lambda: engine.admin.delete_topic("payments")):
        run = run_tasks(lambda: NewRecordsSensor(topic="payments", **FAST), date=None, retries=1)
    assert run.state == "failed"
    assert "topic 'payments' was deleted" in run.errors[-1]


def test_a_sensor_without_time_only_looks(engine: Engine, run_tasks: RunTasks) -> None:
    """A sensor with a time-out of 0 looks once without a triggerer, and then fails, or skips with
    `soft_fail`."""
    from txn_engine_airflow import NewRecordsSensor

    settings = FAST | {"timeout": 0, "topic": "payments"}
    run = run_tasks(lambda: NewRecordsSensor(**settings), date=None)
    assert run.state == "failed"
    assert "AirflowSensorTimeout: it is not there, and the run does not wait" in run.log
    run = run_tasks(lambda: NewRecordsSensor(soft_fail=True, **settings), date=None)
    assert run.tasks == {"wait": "skipped"}
    assert "Trigger completed" not in run.log


@pytest.mark.parametrize(
    ("code", "kind", "tries"),
    [
        ("NETWORK_EXCEPTION", "AirflowException", 2),
        ("CLUSTER_AUTHORIZATION_FAILED", "AirflowFailException", 1),
    ],
)
def test_an_error_while_it_waits_is_never_a_skip(
    engine: Engine, run_tasks: RunTasks, monkeypatch: pytest.MonkeyPatch, code: str, kind: str, tries: int
) -> None:
    """An error during the wait is never a skip, even with `soft_fail`: the sensor fails, is retried if that
    can help, and later tasks do not run."""
    import txn_engine_airflow.triggers as triggers
    from txn_engine.errors import StoreAccessError, StoreUnavailableError
    from txn_engine_airflow import NewRecordsSensor, TxnConsumeOperator

    looks = iter(range(100))
    error = {each.code: each for each in (StoreAccessError, StoreUnavailableError)}[code]

    def look(trigger: Any, engine: Engine) -> None:
        if next(looks) % 2:  # the sensor's own look finds nothing, the triggerer's does not get so far
            raise error("refused", place="s3://ledger")

    monkeypatch.setattr(triggers.NewRecordsTrigger, "look", look)
    monkeypatch.setattr(triggers, "FAILURES_MAX", 1)

    def make() -> None:
        wait = NewRecordsSensor(topic="payments", group_id="g", soft_fail=True, **FAST)
        read = TxnConsumeOperator(task_id="read", topics="payments", group_id="g", python_callable=print)
        wait >> read

    run = run_tasks(make, date=None, retries=1)
    assert (run.state, run.tasks) == ("failed", {"wait": "failed", "read": "upstream_failed"})
    assert run.dag_run.get_task_instance("wait").try_number == tries
    assert len(run.errors) == tries
    assert run.errors[0].startswith(f"airflow.sdk.exceptions.{kind}: refused")


def test_only_time_that_ran_out_is_a_skip() -> None:
    """Only a wait that took too long is a skip. A trigger that died is an error."""
    from airflow.sdk.bases.operator import TriggerFailureReason
    from airflow.sdk.exceptions import (
        AirflowSensorTimeout,
        AirflowSkipException,
        TaskDeferralError,
        TaskDeferralTimeout,
    )

    from txn_engine_airflow import NewRecordsSensor

    late = {"error": TriggerFailureReason.TRIGGER_TIMEOUT}
    patient = NewRecordsSensor(topic="payments", soft_fail=True, **FAST)
    with pytest.raises(AirflowSkipException, match="not there after 300 seconds"):
        patient.resume_execution("__fail__", late, {})
    with pytest.raises(AirflowSensorTimeout, match="not there after 300 seconds"):
        NewRecordsSensor(topic="payments", **FAST).resume_execution("__fail__", late, {})
    with pytest.raises(TaskDeferralError) as told:
        patient.resume_execution("__fail__", {"error": TriggerFailureReason.TRIGGER_FAILURE}, {})
    assert not isinstance(told.value, TaskDeferralTimeout)


def test_the_smaller_of_two_limits_counts() -> None:
    """A sensor waits no longer than its execution_timeout, which is never a skip."""
    from airflow.sdk.bases.operator import TriggerFailureReason
    from airflow.sdk.exceptions import AirflowSkipException, AirflowTaskTimeout, TaskDeferred

    from txn_engine_airflow import NewRecordsSensor

    def wait(seconds: float) -> Any:
        return NewRecordsSensor(
            topic="payments", soft_fail=True, execution_timeout=timedelta(seconds=seconds), **FAST
        )

    for seconds, expected in ((20, 20), (900, 300)):
        with pytest.raises(TaskDeferred) as deferred:
            wait(seconds)._defer(mock.MagicMock())
        assert deferred.value.timeout == timedelta(seconds=expected)
    late = {"error": TriggerFailureReason.TRIGGER_TIMEOUT}
    with pytest.raises(AirflowTaskTimeout):
        wait(20).resume_execution("__fail__", late, {})
    with pytest.raises(AirflowSkipException):
        wait(900).resume_execution("__fail__", late, {})


@pytest.mark.parametrize("rendered", [None, 0, 7, "None", " None "])
def test_a_template_that_found_no_run(engine: Engine, rendered: object) -> None:
    """A sensor for a run fails if its template gave no run: the load before it did not happen. It also fails for an
    invalid id."""
    from txn_engine_airflow import TransactionFinalSensor
    from txn_engine_airflow.errors import TaskError

    commit(engine, payments(0, 1), transactional_id="load")
    sensor = TransactionFinalSensor(transactional_id="load", run_id="{{ a_template }}", **FAST)
    sensor.run_id = rendered
    with pytest.raises(TaskError, match="run_id"):
        sensor.wait_for(engine)
    sensor = TransactionFinalSensor(transactional_id="{{ a_template }}", **FAST)
    sensor.transactional_id = rendered
    with pytest.raises(TaskError, match="transactional_id"):
        sensor.execute({})


@pytest.mark.parametrize("as_text", [str, json.dumps, lambda offsets: offsets], ids=["str", "JSON", "native"])
def test_offsets_by_template(
    engine: Engine, run_tasks: RunTasks, as_text: Callable[[dict[str, int]], Any]
) -> None:
    """Offsets may come from a template, as text or as a mapping. A partition that the topic does not have is named."""
    from txn_engine_airflow import GroupCaughtUpSensor, NewRecordsSensor

    commit(engine, payments(0, 10))
    ends = {
        str(at.partition): found.last_stable_offset
        for at, found in engine.admin.list_offsets("payments").items()
    }
    since: Any = as_text({"0": 0, "1": ends["1"]})
    run = run_tasks(lambda: NewRecordsSensor(topic="payments", start_offsets=since, **FAST), date=None)
    assert run.xcom("wait")["start_offsets"] == {"0": 0, "1": ends["1"]}
    move_group(engine)
    until: Any = as_text(ends)
    run = run_tasks(
        lambda: GroupCaughtUpSensor(topic="payments", group_id="balances", end_offsets=until, **FAST),
        date=None,
    )
    assert run.state == "success", run.errors
    for unknown in (as_text({"0": 0, "7": 1}), as_text({"0": -1})):
        run = run_tasks(
            lambda given=unknown: NewRecordsSensor(topic="payments", start_offsets=given, **FAST), date=None
        )
        assert run.faults == [("bad_argument", "start_offsets", "")]


def test_what_a_dag_asks_of_all_its_sensors(engine: Engine, run_tasks: RunTasks) -> None:
    """Options in `default_args` are for other sensors too: here they have no effect, and break nothing."""
    from airflow.sdk import DAG, TaskGroup

    from txn_engine_airflow import NewRecordsSensor

    of_all = {"mode": "reschedule", "exponential_backoff": True, "silent_fail": True}
    with DAG("for_all", schedule=None, default_args=of_all):
        assert NewRecordsSensor(topic="payments", **FAST).mode == "poke"
    commit(engine, payments(0, 1))

    def make() -> None:
        with TaskGroup("group", default_args=of_all):
            NewRecordsSensor(task_id="alone", topic="payments", group_id="nobody", **UNNAMED)
            NewRecordsSensor.partial(task_id="mapped", topic="payments", **UNNAMED).expand(
                group_id=["nobody", "nobody_else"]
            )

    run = run_tasks(make, date=None)
    assert set(run.tasks.values()) == {"success"}
    assert len(run.tasks) == 3


def test_a_mapped_sensor_without_a_run(engine: Engine, run_tasks: RunTasks) -> None:
    """A mapped sensor for runs fails for the element that is None: that load did not happen. The others are
    green."""
    from txn_engine_airflow import TransactionFinalSensor

    commit(engine, payments(0, 1), transactional_id="load", run_id="monday")

    def make() -> None:
        TransactionFinalSensor.partial(task_id="wait", transactional_id="load", **UNNAMED).expand(
            run_id=["monday", None, ""]
        )

    run = run_tasks(make, date=None)
    assert run.faults == [("bad_argument", "run_id", "")]
    assert run.tasks == {"wait[0]": "success", "wait[1]": "failed", "wait[2]": "success"}


def test_wrong_sensors_are_refused_when_the_file_is_parsed() -> None:
    """An invalid sensor is refused in one line when its file is parsed."""
    from txn_engine_airflow import NewRecordsSensor

    with pytest.raises(ValueError, match="group_id and start_offsets"):
        NewRecordsSensor(topic="payments", group_id="g", start_offsets={"0": 1}, **FAST)
    for name, value in (("mode", "reschedule"), ("exponential_backoff", True), ("silent_fail", True)):
        with pytest.raises(ValueError, match=f"{name} has no effect"):
            NewRecordsSensor(topic="payments", **FAST, **{name: value})
    with pytest.raises(ValueError, match="records_min=0"):
        NewRecordsSensor(topic="payments", records_min=0, **FAST)
    with pytest.raises(ValueError, match="never_fail; expected soft_fail, or an error that is seen"):
        NewRecordsSensor(topic="payments", never_fail=True, **FAST)
