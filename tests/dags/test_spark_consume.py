"""txn_spark_consume: the real Spark job as a task, and the asset event after it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.dags.ledger import SUMS, load, sums
from tests.quality.ledger import ROWS, payments_table
from tests.suite.tiers import in_shard
from tests.support.finished_run import RunDag
from txn_engine import Engine, TopicPartition

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.slow,
]


# `make test` has the same on S3, in test_spark_consume_s3.py
@pytest.mark.shard("airflow")
def test_a_topic_is_consumed_once_however_often_the_dag_runs(
    payments: Engine, store_url: str, run_dag: RunDag
) -> None:
    """The first run sums up the payments and emits an event with the offsets, the next one finds nothing, and
    the third takes what has come since."""
    run = run_dag("txn_spark_consume")
    assert run.state == "success", run.errors
    done = run.xcom("consume")
    assert (done["records"], done["input"]["records"], done["committed_before"]) == (3, len(ROWS), False)
    assert sums(payments) == SUMS
    ends = payments.admin.list_offsets("payments")
    assert done["input"]["end"] == {str(at.partition): ends[at].last_stable_offset for at in ends}
    group = payments.admin.describe_group("balances")
    assert {at.lag for at in group.partitions} == {0}
    waited = run.xcom("wait_for_records")
    assert (waited["records"], waited["end_offsets"]) == (len(ROWS), done["input"]["end"])

    ((name, uri, extra),) = run.events
    place = store_url.removeprefix("file:///")
    assert (name, uri) == (f"{place}/balances", f"txn-engine://{place}/balances")
    assert run.aliases == {"txn_spark_consume", "txn_engine_default/balances"}
    assert extra["offsets"] == done["offsets"]
    assert sum(last - first + 1 for first, last in extra["offsets"].values()) == 3
    assert extra["run_id"] == f"txn_spark_consume/consume@{run.dag_run.logical_date.isoformat()}"
    balances_end = payments.admin.list_offsets("balances")
    assert extra["end_offsets"] == {
        str(at.partition): balances_end[at].last_stable_offset for at in balances_end
    }

    again = run_dag("txn_spark_consume", wait_s=0)
    assert again.state == "success"
    assert again.tasks == {"wait_for_records": "skipped", "consume": "skipped"}
    assert again.events == []
    assert sums(payments) == SUMS

    load(payments, "load-2")
    third = run_dag("txn_spark_consume")
    assert third.xcom("consume")["input"]["records"] == len(ROWS)
    assert {account: count for account, (_, count) in sums(payments).items()} == {1: 6, 2: 6, 3: 4}
    assert len(third.events) == 1
    assert payments.admin.verify().findings == ()


def test_a_dry_run_says_what_would_be_read_and_writes_nothing(payments: Engine, run_dag: RunDag) -> None:
    """A dry run says from where to where it would read and how many records, and waits for none."""
    before = {info.key: info.size for info in payments.store.list("")}
    run = run_dag("txn_spark_consume", dry_run=True)
    assert run.state == "success", run.errors
    assert run.tasks == {"wait_for_records": "success", "consume": "skipped"}
    found = run.xcom("wait_for_records")
    assert (found["records"], found["start_offsets"]) == (len(ROWS), {"0": 0, "1": 0})
    ends = payments.admin.list_offsets("payments")
    assert found["end_offsets"] == {str(at.partition): ends[at].last_stable_offset for at in ends}
    assert "found: {'topic': 'payments'" in run.log
    assert {info.key: info.size for info in payments.store.list("")} == before
    assert run.events == []
    with payments.consumer(group_id="balances") as consumer:
        consumer.subscribe(["payments"])
        while consumer.poll() is not None:
            pass
        consumer.commit()
    nothing = run_dag("txn_spark_consume", dry_run=True)
    assert nothing.tasks == {"wait_for_records": "skipped", "consume": "skipped"}


def test_a_try_that_died_after_its_commit_is_recognised_and_its_event_still_sent(
    payments: Engine, monkeypatch: pytest.MonkeyPatch, run_dag: RunDag
) -> None:
    """If a try died after its commit, the retry writes nothing and sends the event that the first try could
    not send."""
    import txn_engine_airflow.consume as consume

    described = consume.described
    died: list[int] = []

    def die_once(*args: Any) -> dict[str, Any]:
        if not died:
            died.append(1)
            raise ConnectionError("the worker lost its network")
        return described(*args)

    monkeypatch.setattr(consume, "described", die_once)
    run = run_dag("txn_spark_consume", retries=1)
    assert died
    assert run.state == "success", run.errors
    done = run.xcom("consume")
    assert (done["records"], done["offsets"], done["committed_before"]) == (0, {}, True)
    assert (done["input"]["start"], done["input"]["end"]) == ({}, {})
    assert sums(payments) == SUMS
    ((_, uri, extra),) = run.events
    assert uri.endswith("/balances")
    assert extra["committed_before"] is True
    assert sum(extra["end_offsets"].values()) > 0


@pytest.mark.parametrize(
    ("params", "code"),
    in_shard(
        "airflow",
        [
            ({"topic": "no-such-topic"}, "UNKNOWN_TOPIC_OR_PARTITION"),
            ({"transform": "no_such_module:balances"}, "bad_transform"),
            ({"transform": "builtins:divmod"}, "bad_transform"),
            ({"transform": "builtins:len"}, "transform_failed"),
            ({"transform": "builtins:repr"}, "bad_output"),
            ({"transform": "txn_engine.spark.balances:nothing"}, "bad_transform"),
            ({"transform": "txn_engine.spark.balances:BALANCES_SCHEMA"}, "bad_transform"),
        ],
        keep=5,
    ),
)
def test_a_wrong_call_fails_in_one_line_and_moves_nothing(
    payments: Engine, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, params: dict[str, str], code: str
) -> None:
    """An invalid call fails in one line, moves nothing and is not retried, even if the deployment itself
    names something that is not a transform."""
    monkeypatch.setenv("TXN_ENGINE_TRANSFORMS", params.get("transform", ""))
    monkeypatch.setenv("TXN_ENGINE_INPUT_TOPICS", params.get("topic", ""))
    run = run_dag("txn_spark_consume", retries=2, **params)
    assert run.state == "failed"
    assert (run.codes, run.are_final) == ([code], True)
    assert payments.admin.list_groups() == []
    assert run.events == []


def test_a_transform_that_fails_leaves_nothing_to_be_seen(payments: Engine, run_dag: RunDag) -> None:
    """If the transform refuses a payment that is neither credit nor debit, output and position stay as they
    were."""
    producer = payments.producer(transactional_id="strange")
    producer.init_transactions()
    with producer.transaction():
        producer.produce("payments", payments_table([(999, 7, "930101", "GESCHENK", "1.00", "")]))
    run = run_dag("txn_spark_consume")
    assert run.state == "failed"
    (line,) = run.errors
    assert "[USER_RAISED_EXCEPTION]" in line
    assert "999" not in line  # a record's key: neither here nor in the alert
    assert "999" not in run.log.partition("ALERT txn-engine")[2].partition("Log:")[0]
    (spark_log,) = re.findall(r"\S*/txn-engine-spark-\w*/spark\.log", run.log)
    assert Path(spark_log).parent.stat().st_mode & 0o777 == 0o700
    assert sums(payments) == {}
    assert payments.admin.list_groups() == []
    assert payments.partition("balances", 0).high_watermark == 0


def test_it_starts_on_what_operators_write_and_on_what_the_watch_sees(
    dag_bag: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The DAG is scheduled on the topic by its connection, on the topic's asset if the environment names the
    store, and on a watch for anybody's records."""
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk import Asset, AssetAlias

    from tests.support.airflow_home import DAGS

    def schedule() -> list[Any]:
        dag = DagBag(dag_folder=DAGS / "txn_spark_consume.py").dags["txn_spark_consume"]
        return list(dag.schedule.objects)

    monkeypatch.delenv("AIRFLOW_CONN_TXN_ENGINE_DEFAULT", raising=False)
    monkeypatch.delenv("TXN_ENGINE_URL", raising=False)
    alias, watch = schedule()
    assert alias == AssetAlias("txn_engine_default/payments")
    assert watch.uri == "txn-engine-watch://txn_engine_default/payments?group=balances"
    assert len(watch.watchers) == 1
    monkeypatch.setenv("TXN_ENGINE_URL", "s3://ledger/prod")
    assets = [each.uri for each in schedule() if isinstance(each, Asset)]
    assert assets == ["txn-engine://ledger/prod/payments", watch.uri]


# `make test` allows another group in test_deployment.py, and has the position in the first test
@pytest.mark.shard("airflow")
def test_a_position_is_kept_by_partition(
    payments: Engine, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's committed offsets are those that the task returned. The deployment permits the group and
    the id."""
    monkeypatch.setenv("TXN_ENGINE_GROUPS", "another")
    monkeypatch.setenv("TXN_ENGINE_TRANSACTIONAL_IDS", "another")
    run = run_dag("txn_spark_consume", group_id="another", transactional_id="another")
    assert run.state == "success", run.errors
    committed = payments.consumer(group_id="another").committed(
        [TopicPartition("payments", 0), TopicPartition("payments", 1)]
    )
    assert {str(at.partition): offset.offset for at, offset in committed.items()} == run.xcom("consume")[
        "input"
    ]["end"]
