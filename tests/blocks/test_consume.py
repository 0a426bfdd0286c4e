"""TxnConsumeOperator puts a group's new records into committed output once each, however often the task is
tried."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.blocks.conftest import PAYMENTS, RunTasks
from tests.blocks.payments import commit, events, leave_open, payments
from tests.support.stores import accounts_in, states
from txn_engine import Engine

pytestmark = pytest.mark.airflow


def consume(function: Any, **settings: Any) -> Any:
    """The task `consume`, with an output topic."""
    from txn_engine_airflow import TxnConsumeOperator

    chosen = {"topics": "payments", "group_id": "balances", "output_topic": "balances"} | settings
    return TxnConsumeOperator(task_id="consume", python_callable=function, **chosen)


def same(table: pa.Table) -> pa.Table:
    """The records as they came."""
    return table.select(PAYMENTS.names)


def lags(engine: Engine) -> set[int]:
    """The lags of the group."""
    return {at.lag for at in engine.admin.describe_group("balances").partitions}


def test_new_records_become_output_with_the_groups_position(engine: Engine, run_tasks: RunTasks) -> None:
    """The task consumes batch by batch up to the LSO. A second run finds nothing and writes nothing, and a
    third takes what has come since."""
    commit(engine, payments(0, 25))
    leave_open(engine, payments(700, 5), "open")
    sizes: list[int] = []

    def function(table: pa.Table) -> pa.Table:
        sizes.append(table.num_rows)
        return same(table)

    make = lambda: consume(function, max_records=10)  # noqa: E731
    run = run_tasks(make, date=None)
    assert run.state == "success", run.errors
    assert accounts_in(engine, "balances") == list(range(25))
    assert max(sizes) <= 10
    told = run.xcom("consume")
    assert (told["records"], told["output"]["records"]) == (25, 25)
    assert [uri.rsplit("/", 1)[1] for uri, _ in events(run)] == ["balances"]

    idle = run_tasks(make, date=None)
    assert (idle.state, idle.xcom("consume")["records"], events(idle)) == ("success", 0, [])
    engine.admin.fence_producers(["open"])  # the open transaction is aborted: its records never count
    commit(engine, payments(50, 5))
    assert run_tasks(make, date=None).state == "success"
    assert accounts_in(engine, "balances") == [*range(25), *range(50, 55)]
    assert lags(engine) == {0}
    assert engine.admin.verify().findings == ()


def test_the_position_moves_over_what_is_no_record(engine: Engine, run_tasks: RunTasks) -> None:
    """If there is only an aborted transaction, the task reads no record and the group has no lag
    afterwards."""
    commit(engine, payments(0, 10))
    assert run_tasks(lambda: consume(same), date=None).state == "success"
    leave_open(engine, payments(100, 10), "gone").abort_transaction()
    assert lags(engine) != {0}
    run = run_tasks(lambda: consume(same), date=None)
    assert (run.state, run.xcom("consume")["records"]) == ("success", 0)
    assert lags(engine) == {0}
    assert accounts_in(engine, "balances") == list(range(10))


def test_a_try_that_dies_between_output_and_commit_is_done_again(
    engine: Engine, run_tasks: RunTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a try dies between its output and its commit, its output is never visible, its pending offsets are
    ended, and each record comes out once."""
    from txn_engine.producer import Producer

    commit(engine, payments(0, 20))
    real, calls = Producer.commit_transaction, []

    def die_at_the_second(producer: Producer, **kwargs: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            monkeypatch.setattr(Producer, "abort_transaction", lambda _: None)  # the process is gone
            raise ConnectionError("the worker lost its network")
        real(producer, **kwargs)

    monkeypatch.setattr(Producer, "commit_transaction", die_at_the_second)
    run = run_tasks(lambda: consume(same, max_records=8), date=None, retries=1)
    assert run.state == "success", run.errors
    assert len(calls) > 2
    assert accounts_in(engine, "balances") == list(range(20))
    assert lags(engine) == {0}


def test_a_try_that_dies_before_it_tells_of_its_output(
    engine: Engine, run_tasks: RunTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a try dies after its commit and before its event, the retry reads no record and sends the event of
    the output."""
    from txn_engine_airflow import TxnConsumeOperator

    commit(engine, payments(0, 20))
    real, calls = TxnConsumeOperator._consume, []

    def dying(*given: Any) -> Any:
        done = real(*given)
        calls.append(done[0])
        if len(calls) == 1:
            raise ConnectionError("the worker is gone")
        return done

    monkeypatch.setattr(TxnConsumeOperator, "_consume", dying)
    run = run_tasks(lambda: consume(same), date=None, retries=1)
    assert (run.state, calls, accounts_in(engine, "balances")) == ("success", [20, 0], list(range(20)))
    assert [extra["topic"] for _, extra in events(run)] == ["balances"]


def test_a_function_without_output_is_called_at_least_once(engine: Engine, run_tasks: RunTasks) -> None:
    """If a function without an output topic fails, it is called again with the same records. No transactional
    id is used."""
    commit(engine, payments(0, 6))
    seen: list[list[int]] = []

    def function(table: pa.Table, dag_run: Any) -> None:
        seen.append(sorted(table.column("account_id").to_pylist()))
        assert dag_run.run_id
        if len(seen) == 1:
            raise ConnectionError("the mail server is away")

    run = run_tasks(lambda: consume(function, output_topic=None), date=None, retries=1)
    assert run.state == "success", run.errors
    assert seen == [list(range(6))] * 2
    assert lags(engine) == {0}
    assert list(states(engine)) == ["someone"]
    assert "output" not in run.xcom("consume")


def test_of_two_runs_over_the_same_records_one_is_refused_and_tries_again(
    engine: Engine, run_tasks: RunTasks
) -> None:
    """If another producer consumes the same records first, the run's commit is refused by the group's
    position, and the run is tried again."""
    commit(engine, payments(0, 10))
    calls: list[int] = []

    def overtaken(table: pa.Table) -> pa.Table:
        calls.append(1)
        if len(calls) == 1:
            with (
                engine.producer(transactional_id="other") as producer,
                engine.consumer(group_id="balances") as reader,
            ):
                producer.init_transactions()
                reader.subscribe(["payments"])
                records = reader.poll()
                assert records is not None
                with producer.transaction():
                    producer.send_offsets_to_transaction(reader.positions(), reader.group_metadata())
                    producer.produce("balances", same(records))
        return same(table)

    run = run_tasks(lambda: consume(overtaken), date=None, retries=1)
    assert run.state == "success", run.errors
    assert "OFFSETS_MOVED" in run.log
    assert calls == [1]
    assert accounts_in(engine, "balances") == list(range(10))


def test_wrong_arguments_fence_nobody(engine: Engine, run_tasks: RunTasks) -> None:
    """If an argument is wrong, the task fails before it changes anything: somebody else's transaction under
    the same transactional id stays open."""
    producer = leave_open(engine, payments(0, 5), "someone")
    before = {info.key for info in engine.store.list("")}
    for wrong in (
        {"topics": "nope"},
        {"topics": ["payments", ""]},
        {"group_id": "a\nb"},
        {"output_topic": "nope"},
    ):
        run = run_tasks(lambda given=wrong: consume(same, transactional_id="someone", **given), date=None)
        assert run.state == "failed"
        assert {info.key for info in engine.store.list("")} == before
    producer.commit_transaction()
    assert accounts_in(engine) == list(range(5))


@pytest.mark.parametrize("settings", [{"max_records": 0}, {"transaction_timeout_s": 0}])
def test_a_wrong_task_is_refused_when_its_file_is_parsed(settings: dict[str, Any]) -> None:
    """An invalid task is refused with its name when its file is parsed."""
    with pytest.raises(ValueError, match=r"task 'consume': .* expected 1 or more"):
        consume(same, **settings)
