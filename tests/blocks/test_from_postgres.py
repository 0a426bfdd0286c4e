"""PostgresToTxnOperator loads a query's rows or an outbox into a topic, each row once, however often the task
is tried."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.blocks.conftest import DAY, PAYMENTS, RunTasks
from tests.blocks.killed import OUTBOX, QUERY
from tests.blocks.payments import events
from tests.support.database import VARIABLE, connection_text, drain, fill, ids
from tests.support.stores import accounts_in, states
from txn_engine import Engine
from txn_engine.loading import DEAD_LETTERS
from txn_engine.reasons import Reason

pytestmark = [pytest.mark.airflow, pytest.mark.slow]


@pytest.fixture
def database(dsn: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The database of the connection `postgres_default`, with ten payments in `incoming`."""
    monkeypatch.setenv(VARIABLE, connection_text(dsn))
    fill(dsn, "incoming", 0, 10)
    return dsn


def load(**settings: Any) -> Any:
    """The task `load`."""
    from txn_engine_airflow import PostgresToTxnOperator

    return PostgresToTxnOperator(**{"task_id": "load", "topic": "payments"} | settings)


def test_a_query_is_loaded_once_a_run(engine: Engine, database: str, run_tasks: RunTasks) -> None:
    """A run loads a query once, and its event says up to where. When it is cleared, it loads nothing and
    sends the event again."""
    make = lambda: load(sql=QUERY + " WHERE account_id < %(below)s", parameters={"below": 7})  # noqa: E731
    run = run_tasks(make, dag_id="once")
    assert run.state == "success", run.errors
    assert accounts_in(engine) == list(range(7))
    told = run.xcom("load")
    assert (told["records"], told["transactional_id"]) == (7, "once/load")
    assert told["run_id"] == "once/load@2026-03-01T00:00:00+00:00"
    assert sum(last - first + 1 for first, last in told["offsets"].values()) == 7
    again = run_tasks(make, dag_id="once")
    assert again.xcom("load")["committed_before"] is True
    assert [extra["records"] for _, extra in events(again)] == [7, 0]
    assert accounts_in(engine) == list(range(7))
    other = run_tasks(lambda: load(sql=QUERY), dag_id="once")
    assert other.state == "failed"
    assert [reason for reason, *_ in other.faults] == ["other_arguments"]


def test_a_run_takes_its_data_interval(engine: Engine, database: str, run_tasks: RunTasks) -> None:
    """Each run loads the rows of its data interval once, backfilled in any order and cleared. So does a manual run
    in the interval of another one. A run without an interval is refused."""
    from airflow.timetables.interval import CronDataIntervalTimetable

    with psycopg.connect(database) as connection:
        connection.execute("ALTER TABLE incoming ADD paid_at timestamptz")
        connection.execute(
            "UPDATE incoming SET paid_at = timestamptz '2026-03-01Z' + account_id * interval '12 h'"
        )
    moment = pa.field("paid_at", pa.timestamp("us", "UTC"))
    engine.admin.create_topic("timed", partitions=1, schema=PAYMENTS.append(moment))
    sql = "SELECT account_id, amount, paid_at FROM incoming"
    make = lambda: load(topic="timed", sql=sql, interval_column="paid_at")  # noqa: E731
    refused = run_tasks(make, dag_id="none")
    assert refused.faults == [("no_data_interval", "interval_column", "")]
    daily = CronDataIntervalTimetable("0 0 * * *", timezone="UTC")
    for day in (5, 3, 5, 2, 4, 6, 3):
        run = run_tasks(make, dag_id="daily", date=DAY.replace(day=day), schedule=daily)
        assert run.state == "success", run.errors
    assert accounts_in(engine, "timed") == list(range(10))
    by_hand = run_tasks(make, dag_id="daily", date=DAY.replace(day=4, hour=9, minute=30), schedule=daily)
    assert by_hand.xcom("load")["committed_before"] is True
    assert accounts_in(engine, "timed") == list(range(10))


def test_a_query_without_rows_may_load_what_comes_late(
    engine: Engine, database: str, run_tasks: RunTasks
) -> None:
    """A run whose query returned no rows sends no event and is not remembered, so it may load later rows."""
    make = lambda: load(sql=QUERY + " WHERE account_id >= 10")  # noqa: E731
    run = run_tasks(make)
    assert (run.state, run.xcom("load")["run_id"], events(run)) == ("success", "", [])
    fill(database, "incoming", 10, 3)
    for _ in range(2):
        assert run_tasks(make).state == "success"
    assert accounts_in(engine) == [10, 11, 12]


def test_mapped_queries_have_ids_of_their_own(engine: Engine, database: str, run_tasks: RunTasks) -> None:
    """Each mapped query has a transactional id of its own, so none fences another. When they are cleared,
    they load nothing."""
    from txn_engine_airflow import PostgresToTxnOperator, topic_alias

    def make() -> None:
        PostgresToTxnOperator.partial(
            task_id="load",
            topic="payments",
            sql=QUERY + " WHERE account_id BETWEEN %s AND %s",
            outlets=[topic_alias("payments")],
        ).expand(parameters=[[0, 4], [5, 9]])

    for _ in range(2):
        run = run_tasks(make, dag_id="mapped_queries")
        assert run.state == "success", run.errors
    assert len(states(engine)) == 2
    assert accounts_in(engine) == list(range(10))


def test_an_outbox_is_drained_by_whoever_comes(engine: Engine, database: str, run_tasks: RunTasks) -> None:
    """An outbox's id belongs to the table, not to the task, so any task takes over the claim of a task that
    is gone."""
    fill(database, "outbox", 0, 10, OUTBOX)
    with psycopg.connect(database) as connection:
        connection.execute(
            "UPDATE outbox SET txn_engine_run = %s WHERE account_id < 3",
            (f"{engine.config.store_id}/payments/0/load-outbox/{connection.info.dbname}/public/outbox/dead",),
        )
        connection.execute("UPDATE outbox SET txn_engine_run = 'else/where' WHERE account_id = 9")
    run = run_tasks(lambda: load(outbox="outbox", batch_rows=4), dag_id="draining")
    assert run.state == "success", run.errors
    assert accounts_in(engine) == list(range(9))
    told = run.xcom("load")
    assert (told["records"], told["batches"], told["claimed_by_others"]) == (9, 3, 1)
    assert sum(last - first + 1 for first, last in told["offsets"].values()) >= 9
    assert [extra["records"] for _, extra in events(run)] == [9]
    assert ids(database, "outbox") == [9]
    idle = run_tasks(lambda: load(outbox="public.outbox"), dag_id="another")
    assert (idle.state, idle.xcom("load")["records"], events(idle)) == ("success", 0, [])


def test_an_outbox_whose_worker_was_overtaken_is_tried_again(
    engine: Engine, database: str, run_tasks: RunTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If an outbox's worker is fenced between its claim and its load, it says so in one line, and the retry
    loads the rest."""
    from txn_engine.postgres import outbox as outbox_module

    fill(database, "outbox", 0, 10, OUTBOX)
    claim, calls = outbox_module.Outbox.claim, []

    def overtaken(outbox: Any, run_id: str, rows: int) -> int:
        found = claim(outbox, run_id, rows)
        calls.append(found)
        if len(calls) == 1:
            with psycopg.connect(database) as other:
                drain(engine, other)
        return found

    monkeypatch.setattr(outbox_module.Outbox, "claim", overtaken)
    run = run_tasks(lambda: load(outbox="outbox", batch_rows=4), retries=1)
    assert run.state == "success", run.errors
    assert run.codes == ["taken_over"]
    assert accounts_in(engine) == list(range(10))


def test_an_outbox_whose_worker_died_before_it_told_of_its_load(
    engine: Engine, database: str, run_tasks: RunTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a worker dies after its load and before its event, the retry loads nothing and sends the topic's
    event."""
    from txn_engine import postgres

    fill(database, "outbox", 0, 10, OUTBOX)
    drained, calls = postgres.load_outbox, []

    def dying(*given: Any, **settings: Any) -> Any:
        done = drained(*given, **settings)
        calls.append(done.records)
        if len(calls) == 1:
            raise ConnectionError("the worker is gone")
        return done

    monkeypatch.setattr(postgres, "load_outbox", dying)
    run = run_tasks(lambda: load(outbox="outbox"), retries=1)
    assert (run.state, calls, accounts_in(engine)) == ("success", [10, 0], list(range(10)))
    ((_, extra),) = events(run)
    ends = engine.admin.list_offsets("payments")
    assert extra["end_offsets"] == {str(at.partition): ends[at].last_stable_offset for at in ends}


@pytest.mark.parametrize("source", [{"sql": QUERY + " ORDER BY account_id"}, {"outbox": "outbox"}])
def test_rows_that_do_not_fit_are_dead_letters(
    engine: Engine, database: str, run_tasks: RunTasks, source: dict[str, Any]
) -> None:
    """Rows that do not fit become dead letters in the same transaction. Above the limit the task fails, and
    nothing is loaded."""
    engine.admin.create_topic("dead", partitions=1, schema=DEAD_LETTERS)
    table = "outbox" if "outbox" in source else "incoming"
    fill(database, "outbox", 0, 10, OUTBOX)
    with psycopg.connect(database) as connection:
        connection.execute(f"UPDATE {table} SET amount = 0.001 WHERE account_id IN (3, 7)")  # type: ignore[arg-type]
    make = lambda most: lambda: load(**source, dead_letter_topic="dead", max_dead_letters=most)  # noqa: E731
    failed = run_tasks(make("19%"))
    assert failed.engine_reasons == [Reason.TOO_MANY_BAD_ROWS]
    assert (accounts_in(engine), engine.scan("dead").to_table().num_rows) == ([], 0)
    run = run_tasks(make("{{ 20 }}%"), date=DAY + timedelta(days=1))
    assert run.state == "success", run.errors
    assert accounts_in(engine) == [0, 1, 2, 4, 5, 6, 8, 9]
    assert run.xcom("load", "dead_letters") == 2
    assert engine.scan("dead").to_table(["source_line"])["source_line"].to_pylist() == [4, 8]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"sql": QUERY, "outbox": "outbox"},
        {"outbox": "outbox", "interval_column": "at"},
        {"outbox": "outbox", "parameters": [1]},
        {"sql": QUERY, "mark_column": "at"},
        {"sql": QUERY, "max_dead_letters": 1},
        {"outbox": "outbox", "batch_rows": 0},
    ],
)
def test_what_cannot_be_meant_is_no_task(settings: dict[str, Any]) -> None:
    """An invalid task is refused when the DAG is parsed."""
    with pytest.raises(ValueError, match="task 'load'"):
        load(**settings)
