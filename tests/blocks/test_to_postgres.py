"""TxnToPostgresOperator writes a group's new records into a real Postgres, each once, however often the task
is tried."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.blocks.conftest import DAY, RunTasks
from tests.blocks.killed import OUTBOX, task
from tests.blocks.payments import commit, leave_open, payments
from tests.support.database import VARIABLE, connection_text, fill, ids
from tests.support.kills import run_until_killed
from tests.support.servers import free_port
from tests.support.stores import accounts_in
from txn_engine import Engine

pytestmark = [pytest.mark.airflow, pytest.mark.slow]


@pytest.fixture
def database(dsn: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The database of the connection `postgres_default`."""
    monkeypatch.setenv(VARIABLE, connection_text(dsn))
    return dsn


def write(**settings: Any) -> Any:
    """The task `write`, into the table `arrived`."""
    from txn_engine_airflow import TxnToPostgresOperator

    chosen = {"topics": "payments", "group_id": "out", "table": "arrived", "create": True} | settings
    return TxnToPostgresOperator(task_id="write", **chosen)


def test_new_records_are_written_once(engine: Engine, database: str, run_tasks: RunTasks) -> None:
    """Records up to the last stable offsets are written in batches. A cleared run and a backfill write only
    what is new."""
    commit(engine, payments(0, 25))
    leave_open(engine, payments(700, 5), "open")
    make = lambda: write(max_records=10)  # noqa: E731
    run = run_tasks(make)
    assert run.state == "success", run.errors
    assert ids(database, "arrived") == list(range(25))
    told = run.xcom("write")
    assert (told["records"], told["batches"]) == (25, 3)
    assert sum(told["positions"].values()) >= 25
    assert {at.lag for at in engine.admin.describe_group("out").partitions} == {0}

    assert run_tasks(make).xcom("write")["records"] == 0
    engine.admin.fence_producers(["open"])
    commit(engine, payments(50, 5))
    assert run_tasks(make, date=DAY - timedelta(days=30)).xcom("write")["records"] == 5
    assert ids(database, "arrived") == [*range(25), *range(50, 55)]


def test_a_function_writes_what_it_likes(engine: Engine, database: str, run_tasks: RunTasks) -> None:
    """A function may write anything in the transaction of the positions. What it wrote before it failed is
    rolled back, and the retry writes it once."""
    commit(engine, payments(0, 6))
    calls: list[str] = []

    def sums(connection: Any, records: Any, dag_run: Any, into: str) -> None:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {into} (account_id bigint)")
        connection.cursor().executemany(
            f"INSERT INTO {into} VALUES (%s)", [(n,) for n in records["account_id"].to_pylist()]
        )
        calls.append(dag_run.run_id)
        if len(calls) == 1:
            raise ConnectionError("the worker lost its network")

    make = lambda: write(  # noqa: E731
        table=None, create=False, python_callable=sums, op_kwargs={"into": "{{ 'sums' }}"}
    )
    run = run_tasks(make, retries=1)
    assert run.state == "success", run.errors
    assert (ids(database, "sums"), len(calls)) == (list(range(6)), 2)


def test_mapped_tasks_write_side_by_side(engine: Engine, database: str, run_tasks: RunTasks) -> None:
    """Mapped tasks have groups of their own: one writes the latest record of each key, another one a
    history."""
    from txn_engine_airflow import TxnToPostgresOperator

    for _ in range(2):
        commit(engine, payments(0, 3))

    def make() -> None:
        TxnToPostgresOperator.partial(task_id="write", topics="payments", create=True).expand_kwargs(
            [
                {"group_id": "latest", "table": "latest", "mode": "upsert", "key": "account_id"},
                {"group_id": "all", "table": "history", "mode": "append"},
            ]
        )

    for _ in range(2):
        run = run_tasks(make)
        assert run.state == "success", run.errors
    assert ids(database, "latest") == [0, 1, 2]
    assert ids(database, "history") == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("settings", "code", "subject"),
    [
        ({"mode": "upsert"}, "bad_argument", "key"),
        ({"mode": "merge"}, "bad_argument", "mode"),
        ({"key": "account_id"}, "bad_argument", "key"),
        ({"create": False}, "DATABASE_REFUSED", None),
    ],
)
def test_what_cannot_be_written_fails_at_once(
    engine: Engine,
    database: str,
    run_tasks: RunTasks,
    settings: dict[str, Any],
    code: str,
    subject: str | None,
) -> None:
    """Records that cannot be written fail the task in one line, without a retry."""
    commit(engine, payments(0, 1))
    run = run_tasks(lambda: write(**settings), retries=1)
    assert run.state == "failed"
    assert len(run.errors) == 1
    assert (run.codes, run.are_final) == ([code], True)
    assert getattr(run.failures[0], "subject", None) == subject


@pytest.mark.parametrize(
    "settings",
    [
        {"python_callable": print},
        {"table": None},
        {"table": None, "python_callable": print, "key": "a"},
        {"max_records": 0},
    ],
)
def test_what_cannot_be_meant_is_no_task(settings: dict[str, Any]) -> None:
    """An invalid task is refused when the DAG is parsed."""
    with pytest.raises(ValueError, match="task 'write'"):
        write(**settings)


def test_no_password_is_ever_shown(
    engine: Engine, dsn: str, run_tasks: RunTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password is in no log, error, XCom or rendered field, whether it is right or wrong."""
    from airflow.models.renderedtifields import RenderedTaskInstanceFields
    from airflow.utils.session import create_session
    from sqlalchemy import select

    commit(engine, payments(0, 1))
    right = json.loads(connection_text(dsn))["password"]
    secret = "deepest-secret"
    bad = [
        ({"password": secret}, "the server refuses login or password"),
        ({"password": secret, "port": free_port()}, "nobody listens there"),
        ({"password": secret, "schema": "nowhere", "login": "nobody"}, "connection 'postgres_default'"),
        ({"host": f"postgresql://a:{secret}@localhost/db"}, "host or schema is a URL"),
        ({"extra": json.dumps({"sslpassword": secret, "sslmode": "sideways"})}, "libpq does not take"),
        ({"extra": json.dumps({"colour": secret})}, "extra.colour; expected what libpq takes"),
        ({"extra": f"[{secret}"}, "extra cannot be read"),
        ({"conn_type": "mysql", "password": secret}, "of type 'mysql'; expected postgres"),
    ]
    seen = []
    for other, said in bad:
        monkeypatch.setenv(VARIABLE, connection_text(dsn, **other))
        run = run_tasks(write, dag_id="passwords")
        assert run.state == "failed"
        assert said in run.errors[0], run.errors
        seen.append(run.log)
    monkeypatch.setenv(VARIABLE, connection_text(dsn, extra=json.dumps({"application_name": "ours"})))
    run = run_tasks(write, dag_id="passwords")
    assert run.state == "success", run.errors
    with create_session() as session:
        rendered = [row.rendered_fields for row in session.scalars(select(RenderedTaskInstanceFields))]
    seen += [run.log, str(run.xcom("write")), str(rendered)]
    assert not [text for text in seen if right in text or secret in text]


# `make test` kills the same jobs, without Airflow, in tests/postgres/test_kills.py
@pytest.mark.shard("airflow")
@pytest.mark.parametrize("kind", ["outbox", "out", "query"])
def test_a_killed_worker_leaves_each_row_once(
    engine: Engine, database: str, tmp_path: Path, run_tasks: RunTasks, kind: str
) -> None:
    """If a worker is killed right after the commit that counts, the next try writes only what is missing."""
    if kind == "out":
        commit(engine, payments(0, 10))
    else:
        fill(database, "incoming" if kind == "query" else "outbox", 0, 10, "" if kind == "query" else OUTBOX)
    environment = {name: value for name, value in os.environ.items() if name != "AIRFLOW_HOME"}
    run_until_killed("tests.blocks.killed", kind, environment=environment | {"TMPDIR": str(tmp_path)})
    there = ids(database, "arrived") if kind == "out" else accounts_in(engine)
    assert len(there) == {"out": 4, "query": 10, "outbox": 4}[kind]
    run = run_tasks(lambda: task(kind), dag_id=f"killed_{kind}")
    assert run.state == "success", run.errors
    there = ids(database, "arrived") if kind == "out" else accounts_in(engine)
    assert there == list(range(10))
    assert engine.admin.verify().findings == ()
    if kind == "outbox":
        with psycopg.connect(database) as connection:
            assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
