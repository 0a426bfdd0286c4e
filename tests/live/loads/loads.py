"""DAGs with loads as people write them, for tests/live/test_loads_as_people_write_them.py.

Each topic is named after its DAG and its task. A task may be tried again, because a busy
Airflow takes some for dead.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, task
from airflow.timetables.interval import CronDataIntervalTimetable

from txn_engine_airflow import (
    GroupCaughtUpSensor,
    NewRecordsSensor,
    PostgresToTxnOperator,
    TransactionFinalSensor,
    TxnProduceOperator,
    topic_schedule,
)

FILES = Path(__file__).parent / "files"
START = datetime(2026, 1, 1, tzinfo=UTC)
OF_ALL = {"retries": 2, "retry_delay": timedelta(0)}
NOTHING = "{{ ti.xcom_pull(task_ids='nobody') }}"
"""A template that finds nothing: the word None, or None where rendering is native."""


def dag(name: str, **settings: Any) -> DAG:
    return DAG(name, **{"schedule": None, "start_date": START, "default_args": OF_ALL} | settings)


@task
def listing(folder: str) -> list[str]:
    return sorted(map(str, (FILES / folder).glob("*.csv")))


def with_an_id(path: str) -> dict[str, str]:
    return {"path": path, "transactional_id": f"mapped {Path(path).name}"}


with dag("mapped"):
    found = listing("mapped")
    TxnProduceOperator.partial(task_id="plain", topic="mapped_plain").expand(path=found)
    TxnProduceOperator.partial(task_id="by_id", topic="mapped_by_id").expand_kwargs(found.map(with_an_id))
    TxnProduceOperator.partial(
        task_id="by_manifest", topic="mapped_by_manifest", manifest="mapped_files"
    ).expand(path=found)

with dag("twice"):
    TxnProduceOperator.partial(task_id="load", topic="twice_load").expand(
        path=[str(FILES / "twice" / "a.csv")] * 2
    )

with dag("notes_gone"):
    TxnProduceOperator.partial(task_id="load", topic="notes_gone_load").expand(path=listing("notes_gone"))

with dag(
    "interval",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    end_date=datetime(2026, 3, 4, tzinfo=UTC),
    catchup=False,
):
    PostgresToTxnOperator(
        task_id="by_column",
        topic="interval_by_column",
        sql="SELECT id, paid_at FROM incoming",
        interval_column="paid_at",
    )
    of_the_run = [
        f"{FILES}/interval/from_{{{{ data_interval_start | ds }}}}.csv",
        f"{FILES}/interval/of_{{{{ ds }}}}.csv",
    ]
    TxnProduceOperator(task_id="by_path", topic="interval_by_path", path=of_the_run)
    TxnProduceOperator(
        task_id="by_manifest", topic="interval_by_manifest", path=of_the_run, manifest="interval_files"
    )

with dag("cleared"):
    TxnProduceOperator(task_id="plain", topic="cleared_plain", path=f"{FILES}/cleared/*.csv")
    TxnProduceOperator(
        task_id="by_manifest",
        topic="cleared_by_manifest",
        path=f"{FILES}/cleared/*.csv",
        manifest="cleared_files",
    )

with dag("waits"):
    NewRecordsSensor(
        task_id="wait",
        topic="waits_wait",
        timeout=3_600,
        execution_timeout=timedelta(minutes=1),
        soft_fail=True,
        poke_interval=1,
        retries=0,
    )

for name, is_native in (("as_text", False), ("as_native", True)):
    path = str(FILES / "templates.csv")
    params = {"path": path, "feed": "bank", "since": {"0": 0}}
    with dag(name, render_template_as_native_obj=is_native, params=params):
        topic = f"{name}_load"
        TxnProduceOperator(
            task_id="load",
            topic=topic,
            path="{{ params.path }}",
            transactional_id="{{ params.feed }}-{{ dag.dag_id }}",
        ) >> [
            NewRecordsSensor(task_id="new", topic=topic, start_offsets="{{ params.since }}", poke_interval=1),
            GroupCaughtUpSensor(
                task_id="caught_up",
                topic=topic,
                group_id=name,
                end_offsets="{{ ti.xcom_pull(task_ids='load')['end_offsets'] }}",
                poke_interval=1,
            ),
            TransactionFinalSensor(
                task_id="final",
                transactional_id="bank-{{ dag.dag_id }}",
                run_id="{{ ti.xcom_pull(task_ids='load')['run_id'] }}",
                poke_interval=1,
            ),
        ]
        TxnProduceOperator(task_id="bad_path", topic=topic, path=NOTHING)
        TxnProduceOperator(task_id="bad_id", topic=topic, path=path, transactional_id=NOTHING)
        TxnProduceOperator(task_id="bad_manifest", topic=topic, path=path, manifest=NOTHING)
        NewRecordsSensor(task_id="bad_partition", topic=topic, start_offsets="{{ {'7': 1} }}")
        TransactionFinalSensor(task_id="bad_run", transactional_id="bank", run_id=NOTHING)

with dag("forgotten"):
    TxnProduceOperator(
        task_id="load",
        topic="forgotten_load",
        path=str(FILES / "forgotten.csv"),
        forgotten_runs="{{ var.value.get('loads_forgotten_runs', 'refuse') }}",
    )

with dag("templated", params={"topic": "templated_load"}):
    TxnProduceOperator(task_id="load", topic="{{ params.topic }}", path=str(FILES / "templated.csv"))

with dag("after_templated", schedule=topic_schedule("templated_load")):
    EmptyOperator(task_id="follow")
