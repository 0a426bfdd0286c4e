"""Tasks made of the building blocks, run by Airflow in this process on a database and a store of the test's
own."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest

from tests.support.airflow_home import make_database
from tests.support.bundles import use_bundle
from tests.support.finished_run import FinishedRun
from tests.support.internal import FEW_INTERNAL
from tests.support.running import collected_failures, quick
from txn_engine import Engine, connect

DAY = datetime(2026, 3, 1, tzinfo=UTC)
PAYMENTS = pa.schema([("account_id", pa.int64()), ("amount", pa.decimal128(18, 2))])

RunTasks = Callable[..., FinishedRun]
_OWNERS: dict[str, str] = {}


def _name_of(test: pytest.Item) -> str:
    """A DAG id from the test's name, which no other test has. If the name has letters that are not allowed,
    they are replaced and a digest is added."""
    name = re.sub(r"[^\w.-]+", "_", test.name)
    return name if name == test.name else f"{name}{crc32(test.nodeid.encode()):08x}"


@pytest.fixture(scope="session", autouse=True)
def airflow_database(airflow_imported: None) -> None:
    """A database that can hold runs."""
    make_database()


@pytest.fixture
def own_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder as the only source of DAGs, because each run parses all of them."""
    (tmp_path / "dags").mkdir()
    use_bundle(tmp_path / "dags", monkeypatch)


@pytest.fixture
def cleared_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `dag.test()` go on with a run that it has cleared. Otherwise it would delete the run and make
    another."""
    from airflow.models import dagrun
    from sqlalchemy import select

    make = dagrun.get_or_create_dagrun

    def go_on(*, dag: Any, logical_date: datetime | None, session: Any, **settings: Any) -> Any:
        known = logical_date and session.scalar(
            select(dagrun.DagRun).where(
                dagrun.DagRun.dag_id == dag.dag_id, dagrun.DagRun.logical_date == logical_date
            )
        )
        if not known:
            return make(dag=dag, logical_date=logical_date, session=session, **settings)
        known.dag = dag
        known.state = "running"
        session.commit()
        return known

    monkeypatch.setattr(dagrun, "get_or_create_dagrun", go_on)


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let triggers look ten times a second. Otherwise one look a second is the limit."""
    import txn_engine_airflow.triggers as triggers

    monkeypatch.setattr(triggers, "POLL_INTERVAL_MIN_S", 0.1)


@pytest.fixture
def engine(store_url: str) -> Iterator[Engine]:
    """The store with empty topics `payments` and `balances` of two partitions."""
    with connect(store_url, configs=FEW_INTERNAL) as engine:
        for topic in ("payments", "balances"):
            engine.admin.create_topic(topic, partitions=2, schema=PAYMENTS, key="account_id")
        yield engine


@pytest.fixture
def run_tasks(
    own_bundle: None,
    cleared_runs: None,
    request: pytest.FixtureRequest,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> RunTasks:
    """Run the tasks that `make` puts into a DAG to their end, as the run of a logical date (None: a run
    without one).

    `dag.test()` does it. An existing run of that date is cleared and runs again, as if a person had cleared
    it.
    """
    from airflow.sdk import DAG

    from tests.support.bundles import keep

    def run(
        make: Callable[[], Any],
        *,
        date: datetime | None = DAY,
        retries: int = 0,
        dag_id: str = "",
        schedule: Any = None,
        catchup: bool = False,
        **conf: Any,
    ) -> FinishedRun:
        name = dag_id or _name_of(request.node)
        owner = _OWNERS.setdefault(name, request.node.nodeid)
        assert owner == request.node.nodeid, (
            f"{owner} has a DAG {name!r} too: Airflow keeps runs and events of both"
        )
        settings = {"retries": retries, "retry_delay": timedelta(seconds=0)}
        with DAG(
            name,
            schedule=schedule,
            start_date=datetime(2026, 1, 1, tzinfo=UTC),
            catchup=catchup,
            default_args=settings,
        ) as dag:
            make()
        capfd.readouterr()
        caplog.clear()
        caplog.set_level(logging.INFO)
        with quick(), collected_failures() as failures:
            keep(dag)
            dag_run = dag.test(logical_date=date, run_conf=conf or None)
        out, err = capfd.readouterr()
        found = FinishedRun(dag_run, out + err + caplog.text, failures)
        print(f"{name}: {found.state}", *found.errors, sep="\n")
        return found

    return run
