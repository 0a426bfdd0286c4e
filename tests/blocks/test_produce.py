"""TxnProduceOperator: once for each run, however often and by whomever it is tried."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage import open_store
from tests.blocks.conftest import DAY, PAYMENTS, RunTasks
from tests.blocks.payments import accounts, commit, events, leave_open, payments, states
from tests.faults import Fault, FaultyStore, no_pause
from txn_engine import Engine

pytestmark = pytest.mark.airflow

FAILED = "airflow.sdk.exceptions.AirflowFailException: "


def load(**settings: Any) -> Any:
    """The task `load`."""
    from txn_engine_airflow import TxnProduceOperator

    return TxnProduceOperator(**{"task_id": "load", "topic": "payments"} | settings)


# --- what a run does --------------------------------------------------------------------------------------


def test_a_run_loads_once_and_tells_of_it(engine: Engine, store_url: str, run_tasks: RunTasks) -> None:
    """In one transaction under the task's id and the logical date; the topic's asset gets an event with the offsets."""
    run = run_tasks(lambda: load(python_callable=payments, op_kwargs={"count": 7}))
    assert run.state == "success", run.errors
    assert accounts(engine) == list(range(7))
    told = run.xcom("load")
    assert told["transactional_id"] == "test_a_run_loads_once_and_tells_of_it/load"
    assert (told["records"], told["run_id"]) == (7, "2026-03-01T00:00:00+00:00")
    assert sum(last - first + 1 for first, last in told["offsets"].values()) == 7
    ends = engine.admin.list_offsets("payments")
    assert told["end_offsets"] == {str(at.partition): ends[at].last_stable_offset for at in ends}
    ((uri, extra),) = events(run)
    assert uri == f"txn-engine://{store_url.removeprefix('file:///')}/payments"
    assert extra == {name: value for name, value in told.items() if name != "transactional_id"}


def test_a_callable_may_ask_for_the_context_and_give_parts(engine: Engine, run_tasks: RunTasks) -> None:
    """Tables, batches and readers, one after the other; a run without a logical date goes by the DAG run's id."""

    def parts(dag_run: Any, first: int) -> Any:
        assert dag_run.logical_date is None
        yield payments(first, 3)
        yield payments(first + 3, 2).to_batches()[0]
        yield pa.RecordBatchReader.from_batches(PAYMENTS, payments(first + 5, 4).to_batches())

    run = run_tasks(lambda: load(python_callable=parts, op_kwargs={"first": 10}), date=None)
    assert run.state == "success", run.errors
    assert accounts(engine) == list(range(10, 19))
    assert run.xcom("load")["run_id"] == run.dag_run.run_id


def test_files_are_read_as_the_command_line_reads_them(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks
) -> None:
    """Several in one transaction; paths and options are templates."""
    (tmp_path / "one.csv").write_text("account_id;amount\n1;2.50\n2;0.75\n")
    (tmp_path / "two.csv").write_text("amount;account_id\n9.99;3\n")
    paths = [f"{tmp_path}/{{{{ params.first }}}}.csv", f"{tmp_path}/two.csv"]
    make = lambda: load(path=paths, read_options={"delimiter": "{{ ';' }}"}, params={"first": "one"})  # noqa: E731
    run = run_tasks(make)
    assert run.state == "success", run.errors
    assert accounts(engine) == [1, 2, 3]
    assert len(states(engine)) == 1


def test_a_run_with_nothing_to_load_is_a_run_without_an_event(engine: Engine, run_tasks: RunTasks) -> None:
    """And is known for committed all the same."""
    calls: list[int] = []
    make = lambda: load(python_callable=lambda: calls.append(1))  # noqa: E731
    run = run_tasks(make)
    assert run.state == "success", run.errors
    assert (run.xcom("load")["records"], events(run)) == (0, [])
    assert run_tasks(make).xcom("load")["committed_before"] is True
    assert calls == [1]


def test_deferred_markers_are_announced_to_who_writes_them(engine: Engine, run_tasks: RunTasks) -> None:
    """The coordinator's alias gets an event; readers see the records when the markers are written."""
    run = run_tasks(lambda: load(python_callable=payments, markers="deferred"))
    assert run.state == "success", run.errors
    assert accounts(engine) == []
    assert [uri.rsplit("/", 1)[1] for uri, _ in events(run)] == ["payments", "__transaction_state"]
    engine.coordinator.write_pending_markers()
    assert accounts(engine) == list(range(10))


def test_mapped_tasks_have_ids_of_their_own(engine: Engine, run_tasks: RunTasks) -> None:
    """So they load side by side and do not fence one another, and each part is recognised when it runs again."""
    from txn_engine_airflow import TxnProduceOperator, topic_alias

    def make() -> None:
        TxnProduceOperator.partial(
            task_id="load", topic="payments", python_callable=payments, outlets=[topic_alias("payments")]
        ).expand(op_kwargs=[{"first": 0}, {"first": 100}])

    run = run_tasks(make, dag_id="mapped")
    assert run.state == "success", run.errors
    assert sorted(states(engine)) == ["mapped/load/0", "mapped/load/1"]
    assert accounts(engine) == [*range(10), *range(100, 110)]
    assert [extra["records"] for _, extra in events(run)] == [10, 10]
    again = run_tasks(make, dag_id="mapped")
    assert [again.xcom("load", map_index=part)["committed_before"] for part in (0, 1)] == [True, True]
    assert len(accounts(engine)) == 20


# --- run again --------------------------------------------------------------------------------------------


def test_a_cleared_task_run_again_does_not_load_twice(engine: Engine, run_tasks: RunTasks) -> None:
    """The callable is not even called, and the event is sent again."""
    calls: list[int] = []

    def source() -> Any:
        calls.append(1)
        return payments(100 * len(calls), 3)

    first = run_tasks(lambda: load(python_callable=source))
    again = run_tasks(lambda: load(python_callable=source))
    assert (first.state, again.state) == ("success", "success")
    assert first.dag_run.run_id == again.dag_run.run_id
    assert (len(calls), accounts(engine)) == (1, [100, 101, 102])
    assert again.xcom("load")["committed_before"] is True
    assert [extra["committed_before"] for _, extra in events(again)] == [False, True]


def test_a_backfill_of_two_dates_loads_both(engine: Engine, run_tasks: RunTasks) -> None:
    """Whichever comes first; each once."""
    source = lambda ds: payments(int(ds[-2:]) * 100, 2)  # noqa: E731
    for day in (9, 3, 9):
        run = run_tasks(lambda: load(python_callable=source), date=DAY.replace(day=day))
        assert run.state == "success", run.errors
    assert accounts(engine) == [300, 301, 900, 901]
    assert list(states(engine)) == ["test_a_backfill_of_two_dates_loads_both/load"]


def test_a_retry_after_a_commit_whose_reply_was_lost_loads_nothing(
    engine: Engine, run_tasks: RunTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try dies with its transaction committed; the second finds that out, and sends the event."""
    from txn_engine.producer import Producer

    real, calls = Producer.commit_transaction, []

    def commit_and_die(producer: Producer) -> None:
        real(producer)
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("the worker lost its network")

    monkeypatch.setattr(Producer, "commit_transaction", commit_and_die)
    run = run_tasks(lambda: load(python_callable=payments), retries=1)
    assert run.state == "success", run.errors
    assert calls == [1]
    assert accounts(engine) == list(range(10))
    assert run.xcom("load")["committed_before"] is True
    assert len(events(run)) == 1


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_commit_without_an_answer_is_asked_for_again(
    engine: Engine, store_url: str, run_tasks: RunTasks, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """In the same try: the store is away while the decision is put, whether or not that got there."""
    import txn_engine_airflow.hook as hook

    answers: list[bool] = []

    def decide(operation: str, key: str, _: int) -> Fault | None:
        if not answers or "__transaction_state" not in key or len(answers) > 12:
            return None
        answers.append(False)
        return fault if operation == "put_if_absent" else "before"

    def away_from_now_on() -> Any:
        yield payments()
        answers.append(True)

    def connect_to(_: Any) -> Engine:
        return Engine(FaultyStore(open_store(store_url), decide=decide), pause=no_pause)

    monkeypatch.setattr(hook, "connect_to", connect_to)
    run = run_tasks(lambda: load(python_callable=away_from_now_on))
    assert run.state == "success", run.errors
    assert "it is asked for again" in run.log
    assert accounts(engine) == list(range(10))
    assert run.xcom("load")["committed_before"] is False


def test_what_a_dead_try_left_open_is_ended_by_the_next(engine: Engine, run_tasks: RunTasks) -> None:
    """Its records are never seen."""
    leave_open(engine, payments(500), "open/load")
    run = run_tasks(lambda: load(python_callable=payments), dag_id="open")
    assert run.state == "success", run.errors
    assert accounts(engine) == list(range(10))
    assert states(engine) == {"open/load": "CompleteCommit"}


def test_of_two_runs_side_by_side_the_fenced_one_is_retried_and_both_load(
    engine: Engine, run_tasks: RunTasks
) -> None:
    """One line says what happened; what the fenced try had sent is never seen."""
    tries: list[int] = []

    def overtaken() -> Any:
        tries.append(1)
        yield payments(0, 3)
        if len(tries) == 1:  # another run of the same task begins, and commits, meanwhile
            commit(engine, payments(900, 2), "side_by_side/load", run_id="2026-03-02T00:00:00+00:00")

    run = run_tasks(lambda: load(python_callable=overtaken), dag_id="side_by_side", retries=1)
    assert run.state == "success", run.errors
    assert accounts(engine) == [0, 1, 2, 900, 901]
    assert "another try or run of this task has taken over its transactional id" in run.log
    other = run_tasks(
        lambda: load(python_callable=payments), dag_id="side_by_side", date=DAY + timedelta(days=1)
    )
    assert other.xcom("load")["committed_before"] is True


def test_a_run_beyond_the_logs_memory_is_told_from_one_that_may_have_committed(
    engine: Engine, run_tasks: RunTasks
) -> None:
    """The log knows the last 100 runs of an id. What a task noted before its first transaction tells the rest; where
    that is forgotten too the task fails, and loads nothing.
    """

    def broken() -> Any:
        raise ConnectionError("the source is away")

    def others(first: int, count: int) -> None:
        producer = engine.producer(transactional_id="many/load")
        producer.init_transactions()
        for number in range(first, first + count):
            with producer.transaction(run_id=f"run {number}"):
                producer.produce("payments", payments(1_000, 1))

    assert run_tasks(lambda: load(python_callable=broken), dag_id="many").state == "failed"
    others(0, 101)
    early = run_tasks(lambda: load(python_callable=payments), dag_id="many", retries=1)
    assert early.state == "failed"
    (line,) = early.errors
    assert line.startswith(FAILED)
    assert "more than 100 runs have followed, so nobody can tell" in line

    late = DAY + timedelta(days=40)
    assert run_tasks(lambda: load(python_callable=broken), dag_id="many", date=late).state == "failed"
    others(101, 20)
    again = run_tasks(lambda: load(python_callable=payments), dag_id="many", date=late)
    assert again.state == "success", again.errors
    assert [account for account in accounts(engine) if account < 1_000] == list(range(10))


# --- refusals ---------------------------------------------------------------------------------------------


def test_a_fault_in_a_file_names_its_line_and_nothing_is_loaded(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks
) -> None:
    """In one line; not retried, for the file stays as it is."""
    file = tmp_path / "bad.csv"
    file.write_text("account_id,amount\n1,2.50\n2,two\n")
    run = run_tasks(lambda: load(path=str(file)), retries=2)
    assert run.state == "failed"
    (line,) = run.errors
    assert line.startswith(FAILED)
    assert f"{file}" in line
    assert "line 3" in line
    assert accounts(engine) == []
    assert set(states(engine).values()) <= {"Empty", "CompleteAbort"}


def test_a_callable_that_fails_leaves_nothing_to_be_seen(engine: Engine, run_tasks: RunTasks) -> None:
    """Its own error is the task's; the transaction is aborted at once, so readers do not wait for a time-out."""

    def source() -> Any:
        yield payments()
        raise ConnectionError("the source is away")

    run = run_tasks(lambda: load(python_callable=source))
    assert run.state == "failed"
    assert "ConnectionError: the source is away" in run.log
    assert accounts(engine) == []
    assert list(states(engine).values()) == ["CompleteAbort"]
    commit(engine, payments(50, 1))
    assert accounts(engine) == [50]
    assert events(run) == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"topic": "no-such-topic", "python_callable": payments}, "'no-such-topic'"),
        ({"python_callable": lambda: "payments"}, "the callable gave str; expected a pyarrow Table"),
        ({"python_callable": lambda: pa.table({"strange": [1]})}, "strange"),
        ({"python_callable": payments, "transactional_id": "{{ ' ' }}"}, "1 characters; expected 1 to 1000"),
        ({"python_callable": payments, "conn_id": "nowhere"}, "connection 'nowhere': it is not defined"),
        ({"python_callable": payments, "partition": 7}, "partition 7"),
    ],
)
def test_a_wrong_call_fails_in_one_line_and_is_not_retried(
    engine: Engine, run_tasks: RunTasks, settings: dict[str, Any], says: str
) -> None:
    """Saying what was seen and expected."""
    run = run_tasks(lambda: load(**settings), retries=2)
    assert run.state == "failed"
    (line,) = run.errors
    assert line.startswith(FAILED)
    assert says in line
    assert accounts(engine) == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "expected either path or python_callable"),
        ({"path": "a.csv", "python_callable": payments}, "expected either path or python_callable"),
        ({"path": "a.csv", "read_options": {"delimeter": ";"}}, r"read_options \['delimeter'\]"),
        ({"path": "a.csv", "transaction_timeout_s": 0}, "expected 1 or more"),
    ],
)
def test_a_wrong_task_is_refused_when_its_file_is_parsed(settings: dict[str, Any], says: str) -> None:
    """With the task's name."""
    with pytest.raises(ValueError, match=says):
        load(**settings)
