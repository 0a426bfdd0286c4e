"""The worker's environment decides which connections, files, folders, jobs, functions and settings a run's
params may name.

Each of these attacks was possible: any file of the worker was read and quoted, reports were written anywhere,
a Spark setting ran code, and anybody who may trigger a DAG could use every connection.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.dags.test_parse import DAG_IDS
from tests.support.airflow_home import HOME, REPO
from tests.support.finished_run import RunDag
from txn_engine import Engine

pytestmark = pytest.mark.airflow

SECRET = "s3cret"


def fault(error: Any) -> tuple[str, str, str]:
    """The fields of a `TaskError` that programs read."""
    return str(error.reason), error.subject, error.variable


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file outside of every root. Its first line is a password."""
    path = tmp_path / "outside" / "passwords"
    path.parent.mkdir()
    path.write_text(f"{SECRET};x\n1;2\n")
    return path


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    folder = tmp_path / "roots" / "in"
    folder.mkdir(parents=True)
    return folder


def paths(inside: Path, outside: Path) -> dict[str, str]:
    """Paths that lead out of a folder."""
    (inside / "link.csv").symlink_to(outside)
    (inside / "folder").symlink_to(outside.parent)
    os.mkfifo(inside / "fifo")
    (inside / "sub").mkdir()
    return {
        "another place": str(outside),
        "a link": str(inside / "link.csv"),
        "below a link": str(inside / "folder" / outside.name),
        "dots": f"{inside}/sub/../../../outside/{outside.name}",
        "dots that stay": f"{inside}/sub/../sub/x",
        "relative": "passwords",
        "home": "~/passwords",
        "empty byte": f"{inside}/a\0b",
        "a sibling of the same name": f"{inside}-too/x",
        "process": "/proc/self/environ",
        "not there": "/no/such/file",
    }


def test_a_file_is_read_below_a_root_alone(
    inside: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is read only below a root, and links are followed and checked. A refusal tells neither what is
    in the file nor whether it exists."""
    from txn_engine_airflow.deployment import permitted_input_file
    from txn_engine_airflow.errors import TaskError

    monkeypatch.delenv("TXN_ENGINE_INPUT_ROOTS", raising=False)
    monkeypatch.setenv("TXN_ENGINE_REPORT_ROOTS", str(inside))  # for writing is not for reading
    (inside / "deep").mkdir()
    good = inside / "deep" / "good.csv"
    good.write_text("a;b\n")
    (inside / "alias.csv").symlink_to(good)
    with pytest.raises(TaskError) as unset:
        permitted_input_file(str(good))
    not_permitted = ("not_permitted", "input_file", "TXN_ENGINE_INPUT_ROOTS")
    assert fault(unset.value) == not_permitted
    monkeypatch.setenv("TXN_ENGINE_INPUT_ROOTS", f"relative:{inside}")
    assert permitted_input_file(str(good)) == permitted_input_file(str(inside / "alias.csv")) == good
    assert permitted_input_file(str(good)).inside == str(inside)  # where it has to be when it is opened, too
    for what, path in paths(inside, outside).items():
        with pytest.raises(TaskError) as refused:
            permitted_input_file(path)
        assert fault(refused.value) == not_permitted, what
        assert "\n" not in str(refused.value), what
        assert "No such" not in str(refused.value), what
    for path in (inside / "fifo", inside / "deep"):
        with pytest.raises(TaskError) as special:
            permitted_input_file(str(path))
        assert fault(special.value) == ("not_a_file", "input_file", "")
    with pytest.raises(TaskError) as missing:
        permitted_input_file(str(inside / "no.csv"))
    assert fault(missing.value) == ("unreadable_file", "input_file", "")
    monkeypatch.setenv("TXN_ENGINE_INPUT_ROOTS", "/")
    with pytest.raises(TaskError) as device:
        permitted_input_file("/dev/null")
    assert fault(device.value) == ("not_a_file", "input_file", "")


def test_a_report_is_written_below_a_root_alone(
    inside: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report is written only below a root, even into a new folder. Nothing in the root leads a write out of
    it."""
    from txn_engine_airflow.deployment import check_nothing_leads_out, permitted_report_folder
    from txn_engine_airflow.errors import TaskError

    monkeypatch.delenv("TXN_ENGINE_REPORT_ROOTS", raising=False)
    monkeypatch.setenv("TXN_ENGINE_INPUT_ROOTS", str(inside))
    with pytest.raises(TaskError) as unset:
        permitted_report_folder(str(inside / "new"))
    not_permitted = ("not_permitted", "report_folder", "TXN_ENGINE_REPORT_ROOTS")
    assert fault(unset.value) == not_permitted
    monkeypatch.setenv("TXN_ENGINE_REPORT_ROOTS", str(inside))
    assert permitted_report_folder(str(inside / "new" / "deep")) == inside / "new" / "deep"
    assert permitted_report_folder(str(inside)) == inside
    for path in (*paths(inside, outside).values(), str(inside.parent)):
        with pytest.raises(TaskError) as refused:
            permitted_report_folder(path)
        assert fault(refused.value) == not_permitted
    with pytest.raises(TaskError) as through:
        permitted_report_folder(str(inside / "fifo" / "x"))
    assert fault(through.value) == ("not_a_folder", "report_folder", "")
    check_nothing_leads_out(inside / "not-there")
    with pytest.raises(TaskError) as leads_out:
        check_nothing_leads_out(inside)
    assert leads_out.value.reason == "unsafe_folder"


def test_no_file_of_the_worker_is_read_or_written(
    run_dag: RunDag, engine: Engine, outside: Path, tmp_path: Path
) -> None:
    """By default a run may read no file of the worker and write no report of its own: it fails at once, and
    its log and alert show no line of the file."""
    run = run_dag("txn_verify_exactly_once", retries=2, input_file=str(outside), scope="everything")
    assert run.state == "failed"
    assert run.faults == [("not_permitted", "input_file", "TXN_ENGINE_INPUT_ROOTS")]
    assert SECRET not in run.log
    run = run_dag("txn_verify_exactly_once", retries=2, report_folder=str(tmp_path / "reports"))
    assert run.faults == [("not_permitted", "report_folder", "TXN_ENGINE_REPORT_ROOTS")]
    assert not (tmp_path / "reports").exists()


def test_two_runs_never_share_a_report_folder() -> None:
    """No two run ids have the same report folder, and none leads out of the DAG's folder."""
    from txn_engine_airflow.verification import report_folder

    ids = [
        "a:b",
        "a_b",
        "a/b",
        "a b",
        ".",
        "..",
        "...",
        "a" * 250,
        "a" * 249,
        "é",
        "a~b",
        "manual__2026-01-01T00:00",
    ]
    folders = [report_folder(None, dag_id="dag", run_id=run_id) for run_id in ids]
    assert len(set(folders)) == len(ids)
    for folder in folders:
        assert folder.parent == HOME / "txn_engine_reports" / "dag"
        assert len(folder.name) <= 255
        assert folder.name.strip(".")
    assert folders[1].name == "a_b"


def a_form_that_offers_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the DAG processor's environment permit everything that these tests ask for. The worker's does
    not."""
    from airflow.sdk import Param

    from txn_engine_airflow import dag_defaults, deployment

    open_forms = {
        "conn_id_param": Param("txn_engine_default", type="string"),
        "transform_param": Param("txn_engine.spark.balances:balances", type="string"),
        "spark_settings_param": Param({}, type="object"),
        "checks_param": Param(None, type=["null", "string"]),
    }
    for name, form in open_forms.items():
        monkeypatch.setattr(dag_defaults, name, lambda form=form: form)
    monkeypatch.setattr(
        dag_defaults, "job_param", lambda name, _: Param(deployment.OWN_JOB[name], type="string")
    )
    monkeypatch.setattr(
        dag_defaults, "days_param", lambda _, default, __: Param(default, type=["null", "number"])
    )


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_a_run_acts_on_connections_that_the_deployment_names_alone(
    engine: Engine,
    store_url: str,
    run_dag: RunDag,
    dag_bag: Any,
    monkeypatch: pytest.MonkeyPatch,
    dag_id: str,
) -> None:
    """The form offers a connection that the worker's environment does not name: the run fails, and nothing of
    that store is read."""
    monkeypatch.setenv(
        "AIRFLOW_CONN_PAYROLL", f'{{"conn_type": "txn_engine", "extra": {{"url": "{store_url}"}}}}'
    )
    before = sorted(info.key for info in engine.store.list(""))
    a_form_that_offers_anything(monkeypatch)
    run = run_dag(dag_id, conn_id="payroll")
    assert run.state == "failed"
    assert set(run.faults) == {("not_permitted", "conn_id", "TXN_ENGINE_CONNECTIONS")}
    assert "store file:" not in run.log
    assert sorted(info.key for info in engine.store.list("")) == before


def test_the_form_offers_what_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The form offers the connections that the environment names, without asking Airflow for them, because a
    parser cannot."""
    from airflow.sdk import Connection

    from txn_engine_airflow import dag_defaults

    def ask(*_: object) -> None:
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr(Connection, "get", ask)
    assert dag_defaults.conn_id_param().schema["enum"] == ["txn_engine_default"]
    assert dag_defaults.transform_param().schema["enum"] == ["txn_engine.spark.balances:balances"]
    assert dag_defaults.job_param("group_id", "").schema["enum"] == ["balances"]
    assert dag_defaults.days_param("group_offsets_days", None, "").schema["minimum"] == 7
    monkeypatch.setenv("TXN_ENGINE_CONNECTIONS", "prod, test,prod,")
    monkeypatch.setenv("TXN_ENGINE_TRANSFORMS", "jobs.sums:totals")
    monkeypatch.setenv("TXN_ENGINE_SPARK_PARAMS", "spark.executor.cores,spark.scheduler.pool")
    monkeypatch.setenv("TXN_ENGINE_GROUPS", "monthly, balances")
    monkeypatch.setenv("TXN_ENGINE_GROUP_OFFSETS_DAYS", "0.5")
    group = dag_defaults.job_param("group_id", "")
    assert (group.value, group.schema["enum"]) == ("balances", ["balances", "monthly"])
    assert dag_defaults.days_param("group_offsets_days", None, "").schema["minimum"] == 0.5
    found = dag_defaults.conn_id_param()
    assert (found.value, found.schema["enum"]) == ("prod", ["prod", "test"])
    assert dag_defaults.transform_param().schema["enum"][1] == "jobs.sums:totals"
    assert sorted(dag_defaults.spark_settings_param().schema["properties"]) == [
        "spark.executor.cores",
        "spark.scheduler.pool",
    ]
    monkeypatch.setenv("TXN_ENGINE_CONNECTIONS", "")
    assert dag_defaults.conn_id_param().value == "txn_engine_default"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.jars", "http://elsewhere/x.jar"),
        ("spark.jars.packages", "a:b:1"),
        ("spark.plugins", "x.Y"),
        ("spark.master", "spark://elsewhere:7077"),
        ("spark.driver.extraJavaOptions", "-javaagent:/tmp/x.jar"),
        ("spark.executor.extraClassPath", "/tmp"),
        ("spark.hadoop.fs.s3a.access.key", "KEY"),
        ("spark.sql.extensions", "x.Y"),
        ("spark.executorEnv.LD_PRELOAD", "/tmp/x.so"),
        ("spark.pyspark.python", "/tmp/x"),
        ("spark.submit.pyFiles", "/tmp/x.py"),
        ("spark.driver.memory", "1g -XX:OnError=sh"),
        ("spark.driver.memory", "1g\n"),
        ("spark.driver.memory", ["1g"]),
        ("spark.sql.shuffle.partitions", 1.5),
        ("spark.sql.shuffle.partitions", 0),
    ],
)
def test_no_spark_setting_of_a_run_names_code_a_place_or_a_key(
    name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may only set Spark settings of an allow-list. A name that the deployment adds may only have a
    plain word."""
    from txn_engine_airflow.deployment import HARMLESS_SPARK_SETTINGS, permitted_spark_settings
    from txn_engine_airflow.errors import TaskError

    with pytest.raises(TaskError) as refused:
        permitted_spark_settings({name: value})
    by_default = ("bad_setting", name, ""), ("not_permitted", "spark_settings", "TXN_ENGINE_SPARK_PARAMS")
    assert fault(refused.value) == by_default[name not in HARMLESS_SPARK_SETTINGS]
    monkeypatch.setenv("TXN_ENGINE_SPARK_PARAMS", name)
    if name.startswith("spark.sql.ext") or name in ("spark.plugins", "spark.hadoop.fs.s3a.access.key"):
        return  # a plain word: then it is the deployment's wish
    with pytest.raises(TaskError) as unusable:
        permitted_spark_settings({name: value})
    assert fault(unusable.value) == ("bad_setting", name, "")


def test_harmless_settings_are_given_as_spark_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers and booleans of a form become text. The deployment's own settings count for each job."""
    from txn_engine_airflow.deployment import deployment_spark_conf, permitted_spark_settings
    from txn_engine_airflow.errors import TaskError

    given = {
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": 8,
        "spark.sql.adaptive.enabled": False,
    }
    assert permitted_spark_settings(given) == {
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.adaptive.enabled": "false",
    }
    assert permitted_spark_settings(None) == deployment_spark_conf() == {}
    monkeypatch.setenv("TXN_ENGINE_SPARK_CONF", '{"spark.master": "local[4]"}')
    assert deployment_spark_conf() == {"spark.master": "local[4]"}
    for text in ('["x"]', '{"spark.hadoop.key": 5, "k": "SECRET"', '{"SECRET": 1}'):
        monkeypatch.setenv("TXN_ENGINE_SPARK_CONF", text)
        with pytest.raises(TaskError) as refused:
            deployment_spark_conf()
        assert fault(refused.value) == ("bad_setting", "", "TXN_ENGINE_SPARK_CONF")
        assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize(
    ("params", "setting"),
    [
        ({"transactional_id": "loader"}, "TXN_ENGINE_TRANSACTIONAL_IDS"),
        ({"group_id": "monthly"}, "TXN_ENGINE_GROUPS"),
        ({"output_topic": "payments"}, "TXN_ENGINE_OUTPUT_TOPICS"),
        ({"topic": "balances"}, "TXN_ENGINE_INPUT_TOPICS"),
        ({"transform": "builtins:len"}, "TXN_ENGINE_TRANSFORMS"),
        ({"transform": "os:system"}, "TXN_ENGINE_TRANSFORMS"),
        ({"spark_settings": {"spark.jars": "x.jar"}}, "TXN_ENGINE_SPARK_PARAMS"),
        ({"checks": "/etc/passwd"}, "TXN_ENGINE_SUITES"),
    ],
)
def test_a_job_that_is_not_permitted_fails_once_in_its_first_task(
    engine: Engine, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, params: dict[str, Any], setting: str
) -> None:
    """A job that is not permitted fails in its first task, once, before Spark starts, before anything is
    waited for, and before the store gets a name of the run."""
    before = sorted(info.key for info in engine.store.list(""))

    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("txn_engine_airflow.consume.task_spark", start)
    a_form_that_offers_anything(monkeypatch)
    run = run_dag("txn_spark_consume", retries=3, **params)
    assert run.tasks == {"wait_for_records": "failed", "consume": "upstream_failed"}
    ((reason, subject, variable),) = run.faults
    assert (reason, subject, variable) == ("not_permitted", next(iter(params)), setting)
    assert sorted(info.key for info in engine.store.list("")) == before


def test_a_run_is_held_against_a_suite_that_the_deployment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the deployment names suites, a run has to use one of them. Without a suite its output would be let
    through unchecked."""
    from txn_engine_airflow import dag_defaults
    from txn_engine_airflow.deployment import permitted_suite
    from txn_engine_airflow.errors import TaskError

    assert permitted_suite(None) is None
    assert (dag_defaults.checks_param().value, dag_defaults.checks_param().schema["enum"]) == (None, [None])
    monkeypatch.setenv("TXN_ENGINE_SUITES", "/suites/a.json:/suites/b.yaml:relative.json:")
    param = dag_defaults.checks_param()
    assert (param.value, param.schema["enum"]) == ("/suites/a.json", ["/suites/a.json", "/suites/b.yaml"])
    assert permitted_suite("/suites/b.yaml") == "/suites/b.yaml"
    for other in (
        None,
        "",
        "relative.json",
        "/suites/../suites/a.json",
        "/suites/c.json",
        ["/suites/a.json"],
        7,
    ):
        with pytest.raises(TaskError) as refused:
            permitted_suite(other)
        assert fault(refused.value) == ("not_permitted", "checks", "TXN_ENGINE_SUITES")


@pytest.mark.parametrize(
    ("param", "days", "variable", "least"),
    [
        ("group_offsets_days", 6.9, "TXN_ENGINE_GROUP_OFFSETS_DAYS", None),
        ("entries_days", 7, "TXN_ENGINE_ENTRIES_DAYS", "30"),
        ("orphan_days", 7, "TXN_ENGINE_ORPHAN_DAYS", "-1"),
        *(
            pytest.param(*values, marks=pytest.mark.shard("airflow"))
            for values in (
                ("group_offsets_days", 0.001, "TXN_ENGINE_GROUP_OFFSETS_DAYS", "1"),
                ("group_offsets_days", 0, "TXN_ENGINE_GROUP_OFFSETS_DAYS", "0.5"),
                ("group_offsets_days", -1, "TXN_ENGINE_GROUP_OFFSETS_DAYS", None),
                ("group_offsets_days", 30, "TXN_ENGINE_GROUP_OFFSETS_DAYS", "x"),
                ("entries_days", 0.9, "TXN_ENGINE_ENTRIES_DAYS", None),
                ("orphan_days", 0, "TXN_ENGINE_ORPHAN_DAYS", None),
            )
        ),
    ],
)
def test_no_run_takes_away_what_is_younger_than_the_deployment_says(
    engine: Engine,
    run_dag: RunDag,
    monkeypatch: pytest.MonkeyPatch,
    param: str,
    days: float,
    variable: str,
    least: str | None,
) -> None:
    """A run may not remove anything younger than the deployment allows. The first task says so once, and no
    job runs."""
    a_form_that_offers_anything(monkeypatch)
    if least is not None:
        monkeypatch.setenv(variable, least)
    run = run_dag("txn_maintain", retries=1, **{param: days})
    assert run.state == "failed"
    ((reason, subject, named),) = run.faults
    assert named == variable
    assert (reason, subject) in {("not_permitted", param), ("bad_setting", "")}


def test_the_page_for_operators_names_every_variable() -> None:
    """The operators' page names every variable and what it permits, in one table."""
    from txn_engine_airflow import dag_defaults, deployment, pools

    table = (
        (REPO / "docs" / "operations.md")
        .read_text()
        .partition("## What params may name")[2]
        .partition("\n- ")[0]
    )
    names = {
        value
        for module in (dag_defaults, deployment, pools)
        for name, value in vars(module).items()
        if name.endswith("_VARIABLE")
    } | {variable for variable, _ in deployment.AGES.values()}
    assert len(names) == 22
    assert {line.split("|")[1].strip(" `") for line in table.splitlines() if line.startswith("| `")} == names


def test_checks_of_an_operator_may_be_the_name_of_a_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name stands for the one file of TXN_ENGINE_SUITES that is called so. Paths, dicts and functions stay as they
    are, and a name that no file has, or two have, is refused."""
    from txn_engine_airflow.deployment import named_checks
    from txn_engine_airflow.errors import TaskError

    monkeypatch.setenv(
        "TXN_ENGINE_SUITES", "/srv/suites/payments.json:/srv/suites/twice.json:/srv/other/twice.yaml"
    )
    assert named_checks("payments") == "/srv/suites/payments.json"
    assert named_checks({"copies": "payments", "rest": "/srv/x.json"}) == {
        "copies": "/srv/suites/payments.json",
        "rest": "/srv/x.json",
    }
    plain = {"name": "payments", "expectations": []}
    for given in ("suites/payments", "payments.json", plain, [{"type": "x"}], len, None):
        assert named_checks(given) is given
    for name in ("twice", "nobody"):
        with pytest.raises(TaskError) as refused:
            named_checks(name)
        assert fault(refused.value) == ("bad_argument", "checks", "TXN_ENGINE_SUITES")
