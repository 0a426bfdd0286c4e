"""txn_verify_exactly_once runs the real Great Expectations suite as a task."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.quality.ledger import BALANCES, PAYMENTS, balances_table, payments_table, write_input
from tests.suite.tiers import in_shard
from tests.support.airflow_home import HOME
from tests.support.finished_run import RunDag
from tests.support.internal import FEW_INTERNAL
from txn_engine import Engine, OffsetAndMetadata, connect
from txn_engine.log.objects import Objects
from txn_engine.quality.proof import ProofShelf

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

DAG_PARAMS: dict[str, Any] = {
    "scope": "consumed",
    "topic": "payments",
    "record_id": "trans_id",
    "account": "account_id",
    "amount": "amount",
    "direction": "type",
    "credit_values": ["PRIJEM"],
    "output_topic": "balances",
    "output_account": "account_id",
    "output_total": "turnover",
    "output_count": "payments",
    "group_id": "balances",
    "input_file": None,
    "input_delimiter": ";",
    "input_date_format": "%y%m%d",
    "declaration": None,
    "whole": False,
    "engine": "auto",
    "spark_above": 1_000_000_000,
    "report_folder": "",
    "conn_id": "txn_engine_default",
}
SUMS = [(1, "661.95", 3), (2, "1002.90", 3), (3, "90071992547409.92", 2)]


@pytest.fixture
def ledger(store_url: str) -> Iterator[Engine]:
    """Payments and their balances, consumed exactly once."""
    with connect(store_url, configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=PAYMENTS, key="account_id")
        engine.admin.create_topic("balances", schema=BALANCES, key="account_id")
        with engine.producer(transactional_id="load") as load:
            load.init_transactions()
            with load.transaction():
                load.produce("payments", payments_table())
        _consume(engine, SUMS)
        yield engine


def _consume(engine: Engine, sums: list[tuple[int, str, int]]) -> None:
    consumer = engine.consumer(group_id="balances")
    consumer.subscribe(["payments"])
    while consumer.poll(max_records=1_000) is not None:
        pass
    ends = {
        at: OffsetAndMetadata(offsets.high_watermark)
        for at, offsets in engine.admin.list_offsets("payments").items()
    }
    with engine.producer(transactional_id="balances") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("balances", balances_table(sums))
            producer.send_offsets_to_transaction(ends, consumer.group_metadata())


def test_all_checks_pass_and_the_report_is_named(
    ledger: Engine, store_url: str, run_dag: RunDag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the input file all checks pass, and the report is in a folder of the run's own, whose path is in
    the XCom and the log."""
    monkeypatch.setenv("TXN_ENGINE_INPUT_ROOTS", str(tmp_path))
    file = str(write_input(tmp_path / "trans.csv"))
    run = run_dag("txn_verify_exactly_once", input_file=file, scope="everything")
    assert run.state == "success", run.errors
    returned = run.xcom("verify")
    report = Path(returned["report"])
    assert report.is_file()
    assert report.is_relative_to(HOME / "txn_engine_reports" / "txn_verify_exactly_once")
    assert run.xcom("verify", key="report") == str(report)
    assert f"report: {report}" in run.log
    assert returned["checks"] == returned["passed"] >= 16
    assert (returned["failed"], returned["errored"], returned["input_rows"]) == (0, 0, 8)
    assert Path(returned["json"]).is_file()
    folder = urlencode({"dag": "txn_verify_exactly_once", "run": report.parent.name})
    assert run.xcom("verify", key="_link_ReportLink").endswith(f"/txn-engine/report?{folder}")
    ((name, uri, extra),) = run.events
    place = store_url.removeprefix("file:///")
    assert (name, uri) == (f"{place}/balances/verified", f"txn-engine://{place}/balances/verified")
    assert (extra["topic"], extra["report"]) == ("balances", str(report))


def test_a_failed_check_turns_the_run_red_and_is_not_tried_again(
    ledger: Engine, run_dag: RunDag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If an account is counted twice, the run fails without a retry. One line names the check and the report,
    which exists."""
    again = ledger.producer(transactional_id="someone")
    again.init_transactions()
    with again.transaction():
        again.produce("balances", balances_table([(2, "3.00", 1)]))

    monkeypatch.setenv("TXN_ENGINE_REPORT_ROOTS", str(tmp_path))
    run = run_dag("txn_verify_exactly_once", retries=2, report_folder=str(tmp_path / "reports"))

    assert run.state == "failed"
    (line,) = run.errors
    assert line.startswith("txn_engine_airflow.alerts.AlertError: exactly-once check of payments: 2 of ")
    assert "checks failed, 0 could not be made: totals_in_balances (1 of 3 keys " in line
    assert "output_with_offsets (1 of " in line
    report = Path(run.xcom("verify", key="report"))
    assert line.endswith(f"report: {report}")
    assert report.is_relative_to(tmp_path / "reports" / "txn_verify_exactly_once")
    assert report.is_file()
    assert run.xcom("verify") is None
    assert "ALERT txn-engine: verification failed: payments" in run.log
    assert run.events == []  # what waits for the proof is held


def test_a_store_with_a_topic_alone_is_checked_for_what_it_has(ledger: Engine, run_dag: RunDag) -> None:
    """Params that are left empty are not checked: a topic can be proved without an output, a group or a
    file."""
    run = run_dag(
        "txn_verify_exactly_once", output_topic=None, group_id=None, direction=None, scope="everything"
    )
    assert run.state == "success", run.errors
    assert run.xcom("verify")["input_rows"] == -1


@pytest.mark.parametrize(
    "params",
    [
        {"output_topic": None},
        {"conn_id": "staging"},
        {"cut": 0, "scope": "everything"},
        pytest.param({"output_count": None}, marks=pytest.mark.shard("airflow")),
        pytest.param({"group_id": None, "scope": "everything"}, marks=pytest.mark.shard("airflow")),
        pytest.param(
            {
                "topic": "balances",
                "record_id": "account_id",
                "output_topic": None,
                "group_id": None,
                "direction": None,
                "account": None,
                "amount": None,
                "scope": "everything",
            },
            marks=pytest.mark.shard("airflow"),
        ),
    ],
)
def test_a_check_of_less_or_of_another_releases_nobody(
    ledger: Engine,
    store_url: str,
    run_dag: RunDag,
    params: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that proves less than the DAG's own check, or another store, does not announce anything, so
    nobody who may trigger the DAG can release downstream with a weak proof."""
    monkeypatch.setenv("TXN_ENGINE_CONNECTIONS", "txn_engine_default,staging")
    monkeypatch.setenv(
        "AIRFLOW_CONN_STAGING", json.dumps({"conn_type": "txn_engine", "extra": {"url": store_url}})
    )
    ledger.cut()
    run = run_dag("txn_verify_exactly_once", **params)
    assert run.state == "success", run.errors
    assert run.xcom("verify")["announced"] is False
    assert "not announced: " in run.log
    assert run.events == []


@pytest.mark.parametrize(
    ("own", "of_the_run", "announced"),
    in_shard(
        "airflow",
        [
            ({"scope": "consumed"}, {"scope": "everything", "input_file": "payments.csv"}, True),
            ({"scope": "everything", "input_file": "payments.csv"}, {"input_file": "other.csv"}, False),
            ({"scope": "consumed"}, {"scope": "everything"}, True),
            ({"scope": "everything"}, {"scope": "consumed"}, False),
            ({"scope": "everything", "input_file": "payments.csv"}, {"input_file": None}, False),
            ({"scope": "everything", "input_file": "payments.csv"}, {"report_folder": "elsewhere"}, True),
        ],
        keep=2,
    ),
)
def test_more_than_the_dags_own_check_is_as_good(
    ledger: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own: dict[str, str],
    of_the_run: dict[str, str | None],
    announced: bool,
) -> None:
    """A run that checks more than the DAG's own check, a file or the end of everything, is announced. A run
    that checks less is not."""
    from txn_engine_airflow.verification import verify_exactly_once

    for name in ("payments.csv", "other.csv"):
        write_input(tmp_path / name)
    monkeypatch.setenv("TXN_ENGINE_INPUT_ROOTS", str(tmp_path))
    monkeypatch.setenv("TXN_ENGINE_REPORT_ROOTS", str(tmp_path))

    def with_paths(params: dict[str, Any]) -> dict[str, Any]:
        paths = {
            name: str(tmp_path / params[name]) for name in ("input_file", "report_folder") if params[name]
        }
        return params | paths

    events: list[str] = []
    found = verify_exactly_once(
        with_paths(DAG_PARAMS | own | of_the_run),
        dag_id="own",
        run_id="run",
        own_check=with_paths(DAG_PARAMS | own),
        announce=lambda *_: None,
        emit=lambda asset, _: events.append(asset.uri),
    )
    assert (found["announced"], len(events)) == (announced, int(announced))


DECLARATION = """
topic: payments
record_id: trans_id
outputs:
  - topic: balances
    sql: {topic: "SELECT DISTINCT account_id FROM topic", output: "SELECT account_id FROM output"}
"""


def test_a_declaration_is_proved_again_from_where_the_last_run_went(
    ledger: Engine, run_dag: RunDag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A declaration that the deployment permits is proved, and each run goes on from the last one."""
    file = tmp_path / "payments.yaml"
    monkeypatch.setenv("TXN_ENGINE_DECLARATIONS", f"/elsewhere.yaml:{file}")
    file.write_text(DECLARATION)
    runs = [
        run_dag("txn_verify_exactly_once", declaration=str(file), whole=whole)
        for whole in (False, False, True)
    ]
    assert [run.state for run in runs] == ["success"] * 3, [run.errors for run in runs]
    told = [json.loads(Path(run.xcom("verify")["json"]).read_text()) for run in runs]
    assert [each["proof"] | {"scope": ""} for each in told] == [
        {"number": 0, "first": 0, "since": 0, "scope": ""},
        {"number": 1, "first": 0, "since": 0, "scope": ""},
        {"number": 2, "first": 0, "since": 2, "scope": ""},
    ]
    names = [{check["name"] for check in each["checks"]} for each in told]
    assert "sql_in_balances" in names[0]
    assert "totals_in_balances" not in names[0]
    assert names[2] - names[1] == {"digest_as_proved"}
    assert runs[0].xcom("verify")["announced"] is False  # it is not the DAG's own


# `make test` proves by Spark in tests/spark/test_reducing.py, and has a DAG's session of Spark in test_spark_consume.py
@pytest.mark.spark
@pytest.mark.shard("airflow")
def test_spark_proves_what_is_more_than_the_tasks_own(ledger: Engine, run_dag: RunDag) -> None:
    """Spark proves a topic above the limit, in a session with the deployment's settings. The verdict is the
    same, and the proof names Spark."""
    run = run_dag("txn_verify_exactly_once", spark_above=1)
    assert run.state == "success", run.errors
    told = json.loads(Path(run.xcom("verify")["json"]).read_text())
    proof, _ = ProofShelf(Objects(ledger.store), "payments", 0).read(told["proof"]["number"])
    assert proof.engine == "Spark"


def test_a_suite_of_the_declaration_holds_downstream(
    ledger: Engine, run_dag: RunDag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a suite that the deployment names fails, the run fails with the suite's name and count, and nothing
    is announced."""
    suite = tmp_path / "mine.json"
    held = {
        "name": "mine",
        "expectations": [{"type": "expect_column_values_to_be_null", "kwargs": {"column": "trans_id"}}],
    }
    suite.write_text(json.dumps(held))
    file = tmp_path / "payments.yaml"
    file.write_text(DECLARATION + "suites: [mine.json]\n")
    monkeypatch.setenv("TXN_ENGINE_DECLARATIONS", str(file))
    monkeypatch.setenv("TXN_ENGINE_VERIFY_SUITES", f"/elsewhere.json:{suite}")
    run = run_dag("txn_verify_exactly_once", declaration=str(file))
    assert run.state == "failed"
    (line,) = run.errors
    assert "payments: mine: expect_column_values_to_be_null(trans_id) (" in line
    assert run.events == []


def test_what_was_consumed_is_proved_while_loads_go_on(ledger: Engine, run_dag: RunDag) -> None:
    """After each consume, a load that was committed since and one that is open do not fail the check."""
    producers = [ledger.producer(transactional_id=name) for name in ("later", "open")]
    for producer in producers:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("payments", payments_table([(900, 1, "930105", "PRIJEM", "5.00", "")]))
        producer.flush()
    producers[0].commit_transaction()
    run = run_dag("txn_verify_exactly_once")
    assert run.state == "success", run.errors
    assert run.xcom("verify")["failed"] == 0
    assert len(run.events) == 1
    assert run.xcom("verify")["announced"] is True
    assert run_dag("txn_verify_exactly_once", scope="everything").state == "failed"


def test_output_of_another_job_is_not_judged_by_this_ones_columns() -> None:
    """A run that was started by events of another job only is skipped and says whose they are. A run by hand,
    or with an event of its own job, checks."""
    from airflow.sdk.exceptions import AirflowSkipException

    from txn_engine_airflow.verification import check_is_of_this_job

    params = {"topic": "payments", "group_id": "balances", "output_topic": "balances"}
    mine = {"topic": "balances", "input": {"topic": "payments", "group_id": "balances"}}
    other = {"topic": "turnover", "input": {"topic": "payments", "group_id": "turnover"}}
    check_is_of_this_job(params, [])
    check_is_of_this_job(params, [other, mine])
    with pytest.raises(AirflowSkipException, match="another job's \\(turnover: payments -> turnover\\)"):
        check_is_of_this_job(params, [other])


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"topic": "no-such-topic"}, "no-such-topic"),
        ({"record_id": "no_such_column"}, "no_such_column"),
        ({"input_file": "no.csv", "scope": "everything"}, "no.csv': it cannot be read: No such file"),
        ({"declaration": "of-another.yaml"}, "of-another.yaml has the topic 'loans'"),
        ({"declaration": "broken.yaml"}, "broken.yaml"),
        ({"declaration": "with-a-suite.yaml"}, "TXN_ENGINE_VERIFY_SUITES"),
        ({"declaration": "of-somebody.yaml"}, "TXN_ENGINE_DECLARATIONS"),
        ({"group_id": None}, "up_to_position is given without group_id"),
        ({"input_file": "there.csv"}, "up_to_position with the input file"),
        ({"cut": 3}, "there is no cut 3"),
    ],
)
def test_a_wrong_call_fails_in_one_line_before_anything_is_written(
    ledger: Engine,
    run_dag: RunDag,
    params: dict[str, str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An invalid call fails in one line before anything is written, without a retry."""
    for variable in ("TXN_ENGINE_INPUT_ROOTS", "TXN_ENGINE_REPORT_ROOTS"):
        monkeypatch.setenv(variable, str(tmp_path))
    params |= {name: str(tmp_path / params[name]) for name in ("input_file", "declaration") if name in params}
    permitted = ("of-another.yaml", "broken.yaml", "with-a-suite.yaml")
    monkeypatch.setenv("TXN_ENGINE_DECLARATIONS", ":".join(str(tmp_path / name) for name in permitted))
    (tmp_path / "of-somebody.yaml").write_text(DECLARATION)
    (tmp_path / "of-another.yaml").write_text(DECLARATION.replace("payments", "loans"))
    (tmp_path / "broken.yaml").write_text("topic: [")
    (tmp_path / "with-a-suite.yaml").write_text(DECLARATION + "suites: [mine.json]\n")
    write_input(tmp_path / "there.csv")
    run = run_dag("txn_verify_exactly_once", retries=2, report_folder=str(tmp_path / "reports"), **params)
    assert run.state == "failed"
    (line,) = run.errors
    assert run.are_final
    assert says in line
    assert not (tmp_path / "reports").exists()
