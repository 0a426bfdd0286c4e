"""txn_maintain: compaction, retention, sealing and clean-up as a chain of tasks."""

from __future__ import annotations

import inspect
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dags.conftest import make_payments
from tests.dags.payments import commit, committed_rows, damage_log, leave_open, rows
from tests.suite.tiers import in_shard
from tests.support.aging import age, written_ago
from tests.support.finished_run import RunDag
from tests.support.internal import FEW_INTERNAL
from txn_engine import Engine, OffsetAndMetadata, TopicPartition, connect
from txn_engine.testing import ManualClock

pytestmark = pytest.mark.airflow

DAY_MS = 86_400_000
LOADS = 12
JOBS = [
    "publish_tables",
    "compact",
    "retain",
    "seal",
    "expire_producers",
    "clean",
    "remove_deleted_topics",
    "expire_group_offsets",
]


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with small loads a month ago and a snapshot of each day."""
    folder = tmp_path_factory.mktemp("month") / "ledger"
    with connect(f"file://{folder}", configs=FEW_INTERNAL) as engine:
        make_payments(engine)
        clock = ManualClock(engine.clock() - 30 * DAY_MS)
        with connect(f"file://{folder}", clock=clock) as earlier:
            for number in range(LOADS):
                commit(earlier, f"load-{number}")
                earlier.admin.snapshot()
                clock.advance(DAY_MS)
                age(folder, DAY_MS)
        age(folder, (30 - LOADS) * DAY_MS)
        commit(engine, "today")
        engine.admin.snapshot()
    return folder


@pytest.fixture
def aged(store_url: str, month: Path) -> Iterator[Engine]:
    """A copy of that store, with files to merge, entries to seal and idle producers."""
    shutil.copytree(month, store_url.removeprefix("file://"))
    with connect(store_url) as engine:
        yield engine


def test_a_ledger_of_a_month_is_compacted_trimmed_sealed_and_cleaned(aged: Engine, run_dag: RunDag) -> None:
    """The jobs run in their order. Readers see the same records, the audit finds nothing, and a second run
    has less to do."""
    before = aged.scan("payments").to_table().sort_by([("_partition", "ascending"), ("_offset", "ascending")])
    run = run_dag("txn_maintain", min_files=2)
    assert run.state == "success", run.errors
    assert run.tasks == dict.fromkeys(["check_params", *JOBS[:-1], "all_done"], "success") | {
        "expire_group_offsets": "skipped"
    }
    started = [run.started(job) for job in JOBS[:-1]]
    assert started == sorted(started)
    report = {job: run.xcom(job, key="report") for job in JOBS[:-1]}
    assert report == {job: run.xcom(job) for job in JOBS[:-1]}
    merged = dict(zip(report["compact"]["columns"], report["compact"]["rows"][0], strict=True))
    assert (merged["topic"], merged["partition"]) == ("payments", 0)
    assert merged["files"] >= LOADS
    for job in ("retain", "seal", "expire_producers"):
        assert any(row[0] == "payments" for row in report[job]["rows"]), job
    after = aged.scan("payments").to_table().sort_by([("_partition", "ascending"), ("_offset", "ascending")])
    assert after.equals(before)
    assert aged.admin.verify().findings == ()

    again = run_dag("txn_maintain", min_files=2)
    assert again.state == "success"
    assert again.xcom("compact")["rows"] == again.xcom("seal")["rows"] == []


def test_a_dry_run_says_what_is_due_and_writes_nothing(aged: Engine, store_url: str, run_dag: RunDag) -> None:
    """A dry run says what is due and changes no object of the store."""
    for name in ("listed", "broken"):
        aged.admin.create_topic(name, tables_publish="delta")
    with written_ago(store_url, 40 * DAY_MS) as earlier:
        earlier.consumer(group_id="monthly").commit({TopicPartition("payments", 0): OffsetAndMetadata(0)})
        earlier.admin.create_topic("gone", partitions=1, schema=aged.admin.describe_topic("payments").schema)
        earlier.partition("gone", 0).append(rows())
        earlier.admin.delete_topic("gone")
    before = {info.key: info.size for info in aged.store.list("")}
    run = run_dag("txn_maintain", dry_run=True, min_files=2, group_offsets_days=7)
    assert run.state == "success", run.errors
    assert run.xcom("compact")["rows"]
    assert run.xcom("publish_tables")["rows"] == [
        [name, "delta", -1, -1, -1, -1] for name in ("broken", "listed")
    ]
    assert run.xcom("expire_group_offsets")["rows"] == [["monthly", "payments", 0, 0]]
    ((topic, incarnation, objects, size),) = run.xcom("remove_deleted_topics")["rows"]
    assert (topic, incarnation) == ("gone", 0)
    assert objects > 0 < size
    assert "compacted (a dry run: nothing was written): 2" in run.log
    assert {info.key: info.size for info in aged.store.list("")} == before


def test_one_topic_or_one_partition_may_be_named(aged: Engine, run_dag: RunDag) -> None:
    """A run for one topic, or one partition of it, does not touch the others."""
    aged.admin.create_topic("other")
    run = run_dag("txn_maintain", topic="payments", partition=1, min_files=2)
    assert run.state == "success", run.errors
    touched = {(row[0], row[1]) for job in JOBS[:-1] for row in run.xcom(job)["rows"]}
    assert touched == {("payments", 1)}


# `make test` has offsets that go as the store says, or the run in one partition, below
@pytest.mark.shard("airflow")
def test_group_offsets_go_only_where_the_run_says_how_old_they_must_be(
    store_url: str, engine: Engine, run_dag: RunDag
) -> None:
    """Group offsets expire only if the run says how old they must be. Under the schedule, a group that reads
    once a month keeps its place."""
    at = TopicPartition("payments", 0)
    with written_ago(store_url, 40 * DAY_MS) as earlier:
        earlier.consumer(group_id="monthly").commit({at: OffsetAndMetadata(0)})
    engine.consumer(group_id="daily").commit({at: OffsetAndMetadata(0)})
    assert run_dag("txn_maintain").tasks["expire_group_offsets"] == "skipped"
    assert engine.admin.list_groups() == ["daily", "monthly"]
    run = run_dag("txn_maintain", group_offsets_days=30)
    assert run.state == "success", run.errors
    assert run.xcom("expire_group_offsets")["rows"] == [["monthly", "payments", 0, 0]]
    assert engine.admin.list_groups() == ["daily"]
    assert engine.admin.verify().findings == ()


def test_group_offsets_go_as_the_store_says(store_url: str, engine: Engine, run_dag: RunDag) -> None:
    """If an operator has set offsets.retention.minutes, group offsets expire under the schedule too."""
    at = TopicPartition("payments", 0)
    with written_ago(store_url, 40 * DAY_MS) as earlier:
        earlier.consumer(group_id="monthly").commit({at: OffsetAndMetadata(0)})
    engine.consumer(group_id="daily").commit({at: OffsetAndMetadata(0)})
    engine.admin.alter_configs({"offsets.retention.minutes": 30 * 1_440})
    run = run_dag("txn_maintain")
    assert run.state == "success", run.errors
    assert run.xcom("expire_group_offsets")["rows"] == [["monthly", "payments", 0, 0]]
    assert engine.admin.list_groups() == ["daily"]


@pytest.mark.parametrize(
    ("scope", "gone"),
    [
        pytest.param({}, {"payments-0", "payments-1", "other-0"}, marks=pytest.mark.shard("airflow")),
        pytest.param({"topic": "payments"}, {"payments-0", "payments-1"}, marks=pytest.mark.shard("airflow")),
        ({"topic": "payments", "partition": 1}, {"payments-1"}),
    ],
)
def test_group_offsets_go_only_in_the_topic_and_partition_that_are_named(
    store_url: str, engine: Engine, run_dag: RunDag, scope: dict[str, Any], gone: set[str]
) -> None:
    """Group offsets expire only in the named topic and partition."""
    engine.admin.create_topic("other")
    places = [TopicPartition("payments", 0), TopicPartition("payments", 1), TopicPartition("other", 0)]
    with written_ago(store_url, 40 * DAY_MS) as earlier:
        earlier.consumer(group_id="monthly").commit(dict.fromkeys(places, OffsetAndMetadata(0)))
    run = run_dag("txn_maintain", group_offsets_days=30, **scope)
    assert run.state == "success", run.errors
    assert {f"{row[1]}-{row[2]}" for row in run.xcom("expire_group_offsets")["rows"]} == gone
    left = engine.consumer(group_id="monthly").committed(places)
    assert {str(at) for at in left} == {str(at) for at in places} - gone


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"topic": "no-such-topic"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"topic": "payments", "partition": 9}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"topic": "__transaction_state", "partition": 999}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"partition": 1}, "bad_argument"),
        ({"entries_days": 1, "orphan_days": 7}, "INVALID_REQUEST"),
    ],
)
def test_params_that_cannot_be_meant_are_told_once_and_no_job_is_run(
    engine: Engine, run_dag: RunDag, params: dict[str, Any], code: str
) -> None:
    """Params that are not valid are reported once by the first task, in one line, without a retry, and no job
    runs."""
    run = run_dag("txn_maintain", retries=1, group_offsets_days=30, **params)
    assert run.tasks == dict.fromkeys([*JOBS, "all_done"], "upstream_failed") | {"check_params": "failed"}
    assert (run.codes, run.are_final) == ([code], True)
    assert run.log.count("ALERT txn-engine:") == run.log.count("ALERT txn-engine: txn_maintain.check_params")


def test_topics_are_published_where_their_setting_says_so(engine: Engine, run_dag: RunDag) -> None:
    """Topics are published if their setting says so. One that cannot be published fails the run, and the
    others are published and all jobs are done."""
    for name in ("listed", "broken"):
        engine.admin.create_topic(name, tables_publish="delta")
    engine.store.put("topics/broken/0/_delta_log/00000000000000000000.json", b"{}\n")
    run = run_dag("txn_maintain")
    assert run.state == "failed"
    assert run.tasks["compact"] == run.tasks["clean"] == "success"
    (line,) = run.errors
    assert "broken needs somebody's eye: a commit that txn-engine did not write" in line
    assert run.xcom("publish_tables", key="report")["rows"] == [["listed", "delta", -1, 0, -1, 0]]
    assert [each.topic for each in engine.tables.status()] == ["listed"]


def test_internal_topics_may_be_named(aged: Engine, run_dag: RunDag) -> None:
    """A run can be for an internal topic, like for any other."""
    run = run_dag("txn_maintain", topic="__transaction_state", partition=0)
    assert run.state == "success", run.errors


def test_a_partition_that_needs_an_eye_turns_the_run_red_and_the_rest_is_done(
    aged: Engine, run_dag: RunDag
) -> None:
    """Each job that finds a damaged log names it. The other partitions and the later jobs are done, and the
    run fails."""
    aged.admin.create_topic("broken")
    entry = damage_log(aged, "broken")
    before = committed_rows(aged)

    run = run_dag("txn_maintain", min_files=2)

    assert run.state == "failed"
    assert run.tasks == dict.fromkeys(JOBS[:-1], "failed") | {
        "check_params": "success",
        "publish_tables": "success",  # no topic has tables
        "remove_deleted_topics": "success",  # it looks at no partition
        "expire_group_offsets": "skipped",
        "all_done": "upstream_failed",
    }
    assert len(run.errors) == 5
    assert run.are_final  # a retry cannot repair an object
    for line in run.errors:
        assert "broken-0 needs somebody's eye" in line
        assert entry in line
    assert any(row[0] == "payments" for row in run.xcom("compact", key="report")["rows"])
    assert run.xcom("compact") is None
    assert "ALERT txn-engine: txn_maintain.compact failed" in run.log
    assert committed_rows(aged) == before


# `make test` has five jobs that fail, and the jobs after them, in the test above
@pytest.mark.shard("airflow")
@pytest.mark.parametrize("job", JOBS[:-1])
def test_a_job_that_fails_holds_up_none_of_those_behind_it(
    engine: Engine, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    """If a job fails, the later ones run all the same, and the run fails at the end."""
    from txn_engine.errors import StoreUnavailableError
    from txn_engine.maintain import Maintenance
    from txn_engine.tables import Tables

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailableError("no answer", actor="store")

    if job == "publish_tables":
        monkeypatch.setattr(Tables, "publish_due", away)
    else:
        monkeypatch.setattr(Maintenance, job, away)
    run = run_dag("txn_maintain", group_offsets_days=30)
    assert run.state == "failed"
    assert run.tasks == dict.fromkeys(["check_params", *JOBS], "success") | {
        job: "failed",
        "all_done": "upstream_failed",
    }


def test_no_job_but_the_last_may_skip(dag_bag: Any) -> None:
    """Only the last job may skip, because Airflow would skip everything after a job that skips."""
    dag = dag_bag.dags["txn_maintain"]
    assert dag.get_task(JOBS[-1]).downstream_task_ids == {"all_done"}
    for before, behind in itertools.pairwise(JOBS):
        assert dag.get_task(before).downstream_task_ids == {behind, "all_done"}
    assert not [task.task_id for task in dag.tasks if task._pre_execute_hook is not None]
    from txn_engine_airflow import maintenance

    jobs = {name: inspect.getsource(getattr(maintenance, name)) for name in JOBS}
    assert [name for name, source in jobs.items() if "SkipException" in source] == [JOBS[-1]]
    assert {task.task_type for task in dag.tasks} == {"_PythonDecoratedOperator"}


def test_a_run_that_was_overtaken_is_not_red(
    engine: Engine, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that another run overtook is a success, because the next run does the rest."""
    from txn_engine.maintain import Maintenance, MaintenanceReport, PartitionFailure

    def overtaken(*_: object, **__: object) -> MaintenanceReport[object]:
        return MaintenanceReport(
            (), (PartitionFailure("payments", 0, "OVERTAKEN", "another run was quicker"),)
        )

    monkeypatch.setattr(Maintenance, "seal", overtaken)
    run = run_dag("txn_maintain")
    assert run.state == "success", run.errors
    assert "payments-0: another run was quicker" in run.log


def test_open_transactions_are_left_alone(
    aged: Engine, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing from the last stable offset on is merged or trimmed, and the open producer commits
    afterwards."""
    monkeypatch.setenv("TXN_ENGINE_ENTRIES_DAYS", "0.000000001")
    monkeypatch.setenv("TXN_ENGINE_ORPHAN_DAYS", "0.000000001")
    producer = leave_open(aged, "open")
    before = committed_rows(aged)
    run = run_dag("txn_maintain", min_files=2, entries_days=1e-9, orphan_days=1e-9)
    assert run.state == "success", run.errors
    assert committed_rows(aged) == before
    producer.commit_transaction()
    assert committed_rows(aged) == before + 12
    assert aged.admin.verify().findings == ()


def test_what_is_left_of_a_deleted_topic_goes_after_a_day(
    store_url: str, engine: Engine, run_dag: RunDag
) -> None:
    """What a deleted topic has left is removed after a day, except for its tombstone and the incarnation's
    own object."""
    with written_ago(store_url, 2 * DAY_MS) as earlier:
        commit(earlier, "load")
        earlier.admin.delete_topic("payments")
    before = len(list(engine.store.list("topics/payments/")))
    run = run_dag("txn_maintain")
    assert run.state == "success", run.errors
    ((topic, incarnation, objects, size),) = run.xcom("remove_deleted_topics")["rows"]
    assert (topic, incarnation) == ("payments", 0)
    assert objects > 0 < size
    assert len(list(engine.store.list("topics/payments/"))) == before - objects
    assert engine.maintenance.remove_deleted_topics().partitions == ()
    assert engine.admin.verify().findings == ()


@pytest.mark.parametrize(
    "scope", in_shard("airflow", [{"topic": "payments"}, {"topic": "payments", "partition": 0}], keep=1)
)
def test_a_deleted_topic_may_still_be_named(
    store_url: str, engine: Engine, run_dag: RunDag, scope: dict[str, Any]
) -> None:
    """A run for a deleted topic removes what is left of it and its group offsets. The jobs for partitions say
    that it has none."""
    at = TopicPartition("payments", 0)
    with written_ago(store_url, 40 * DAY_MS) as earlier:
        commit(earlier, "load")
        earlier.consumer(group_id="monthly").commit({at: OffsetAndMetadata(0)})
        earlier.admin.delete_topic("payments")
    run = run_dag("txn_maintain", group_offsets_days=30, **scope)
    assert run.state == "success", run.errors
    assert run.tasks == dict.fromkeys(["check_params", *JOBS, "all_done"], "success")
    assert [run.xcom(job)["rows"] for job in JOBS[:5]] == [[]] * 5
    assert run.log.count("topic 'payments' was deleted: it has no partitions to work on") >= 5
    removed = [row[:2] for row in run.xcom("remove_deleted_topics")["rows"]]
    assert removed == ([] if "partition" in scope else [["payments", 0]])
    assert run.xcom("expire_group_offsets")["rows"] == [["monthly", "payments", 0, 0]]
    assert engine.admin.list_groups() == []
    assert engine.admin.verify().findings == ()


def test_a_compacted_topic_keeps_of_each_key_the_latest_record(engine: Engine, run_dag: RunDag) -> None:
    """Of three loads of the same accounts, a compacted topic keeps the latest record of each."""
    schema = engine.admin.describe_topic("payments").schema
    engine.admin.create_topic(
        "latest", partitions=2, schema=schema, key="account_id", cleanup_policy="compact"
    )
    for number in range(3):
        producer = engine.producer(transactional_id=f"load-{number}")
        producer.init_transactions()
        with producer.transaction():
            producer.produce("latest", rows())
    assert engine.scan("latest").to_table().num_rows == 36
    run = run_dag("txn_maintain", topic="latest", dirty_ratio=0)
    assert run.state == "success", run.errors
    assert engine.scan("latest").to_table().num_rows == 12
    report = run.xcom("compact")
    assert sum(row[report["columns"].index("dropped")] for row in report["rows"]) == 24
    assert engine.admin.verify().findings == ()


@pytest.mark.shard("airflow")
@pytest.mark.spark
def test_a_partition_above_the_limit_is_sparks(engine: Engine, run_dag: RunDag) -> None:
    """A partition above the limit is compacted by Spark, in a session with the deployment's settings. The
    report says which engine did it and why."""
    schema = engine.admin.describe_topic("payments").schema
    engine.admin.create_topic(
        "latest", partitions=1, schema=schema, key="account_id", cleanup_policy="compact"
    )
    for _ in range(2):
        engine.partition("latest", 0).append(rows())
    run = run_dag("txn_maintain", topic="latest", dirty_ratio=0, spark_above=1)
    assert run.state == "success", run.errors
    report = run.xcom("compact")
    (row,) = report["rows"]
    done = dict(zip(report["columns"], row, strict=True))
    assert (done["engine"], done["records"], done["dropped"]) == ("spark", 12, 12)
    assert "more than 1 records" in done["why"]
    assert engine.scan("latest").to_table().num_rows == 12
    assert engine.admin.verify().findings == ()
