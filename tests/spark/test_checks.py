"""Checks vote before the commit: if one is red, no row is ever visible, and a later run with good rows
commits."""

from __future__ import annotations

import json
import stat
import sys
import threading
from pathlib import Path
from typing import Any

import great_expectations.expectations as gxe
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import accounts_of, balances_of, load, payments, sums, two_outputs
from tests.spark.test_loading import csv_of
from tests.spark.test_streaming import copy, ids
from tests.spark.test_writing import data_files, small
from tests.suite.tiers import in_shard
from tests.support.kills import kill_when_it_says
from tests.support.refusals import refused, refused_by_spark
from txn_engine import connect
from txn_engine.engine import Engine
from txn_engine.errors import (
    ChecksErroredError,
    ChecksFailedError,
    GroupIdNotFoundError,
    InvalidRequestError,
    MissingPackageError,
    UnknownTopicOrPartitionError,
)
from txn_engine.quality import NamedResult, check_rows, load_suite
from txn_engine.reasons import Reason
from txn_engine.spark import load_files, run_consume_job, write_topic, write_topics
from txn_engine.spark.balances import balances

pytestmark = pytest.mark.spark
REPOSITORY = Path(__file__).resolve().parents[2]

SECRET = 987_654_321
"""A value of a record, which must not appear in a log or an error."""
FEW = [gxe.ExpectColumnValuesToBeBetween(column="account_id", min_value=0, max_value=1_000)]
NO_SECRET_IN_SQL = [
    gxe.UnexpectedRowsExpectation(
        unexpected_rows_query=f"SELECT * FROM {{batch}} WHERE account_id = {SECRET}"
    )
]
NO_SUCH_COLUMN = [gxe.ExpectColumnValuesToNotBeNull(column="nowhere")]
IT_RAISES = [
    gxe.UnexpectedRowsExpectation(
        unexpected_rows_query="SELECT * FROM {batch} WHERE CAST(concat('of ', account_id) AS INT) > 0"
    )
]


def test_a_plain_dict_is_a_suite_and_not_suites_by_topic() -> None:
    """A dict with a list of expectations votes on every output. Any other dict names the suite of each topic."""
    from txn_engine.spark.voting import vote_of

    check = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "account_id"}}
    plain = {"name": "mine", "expectations": [check]}
    with connect("memory://") as engine:
        engine.admin.create_topic("copies")
        asked: dict[str, Any] = {
            "engine": engine,
            "outputs": ("copies", "rest"),
            "actor": "test",
            "letters": None,
        }
        every = vote_of(plain, None, **asked)
        one = vote_of({"copies": plain}, None, **asked)
    assert every is not None
    assert one is not None
    named = [vote.suite_of(topic) for vote in (every, one) for topic in ("copies", "rest")]
    assert [suite and suite.name for suite in named] == ["mine", "mine", "mine", None]


def a_check_fails() -> pytest.RaisesExc[ChecksFailedError]:
    """The block raises the error of a check that was made and failed."""
    return pytest.raises(ChecksFailedError, check=lambda error: type(error) is ChecksFailedError)


def with_secret(spark: SparkSession) -> DataFrame:
    """Rows one of which does not pass the checks."""
    return small(spark).selectExpr(
        f"if(account_id = 3, {SECRET}, account_id) account_id", "turnover", "payments"
    )


def state_of(engine: Engine) -> dict[str, Any]:
    """Everything that others could see: records of both isolation levels, ends of the logs, transactions, and
    the group."""
    topics = ("balances", "accounts") if "accounts" in engine.admin.list_topics() else ("balances",)
    try:
        group: Any = engine.admin.describe_group("balances").partitions
    except GroupIdNotFoundError:
        group = None
    return {
        "records": [
            engine.scan(topic, isolation_level=level).to_table().num_rows
            for topic in topics
            for level in ("read_committed", "read_uncommitted")
        ],
        "ends": [dict(engine.admin.list_offsets(topic)) for topic in topics],
        "open": [row.transactional_id for row in engine.admin.list_transactions() if row.state == "Ongoing"],
        "group": group,
    }


def write(spark: SparkSession, engine: Engine, frame: DataFrame, checks: Any, **given: Any) -> Any:
    return write_topic(
        frame, engine, "balances", transactional_id="job", run_id="monday", checks=checks, **given
    )


def test_red_is_never_visible_and_good_rows_commit_under_the_same_run(
    spark: SparkSession, ledger: Engine, tmp_path: Path
) -> None:
    """With a red check, no reader, offset or transaction shows the run, its files are left for clean-up, and
    the report says why. The same run with good rows then commits."""
    before = state_of(ledger)
    with pytest.raises(ChecksFailedError) as caught:
        write(spark, ledger, with_secret(spark), FEW, report_folder=tmp_path / "report")
    assert state_of(ledger) == before
    assert data_files(ledger, "balances") > 0
    text = str(caught.value)
    assert "balances: expect_column_values_to_be_between(account_id) (1 of 10 unexpected)" in text
    assert f"report {tmp_path}/report/index.html" in text
    assert str(SECRET) not in text
    assert caught.value.__cause__ is None
    assert (caught.value.retry_helps, caught.value.is_refusal) == (False, True)
    report = (tmp_path / "report" / "index.html").read_text()
    assert "Checks: red" in report
    assert str(SECRET) in report
    assert stat.S_IMODE((tmp_path / "report").stat().st_mode) == 0o700
    kept = json.loads((tmp_path / "report" / "validation.json").read_text())
    assert kept["suites"][0]["great_expectations"][0]["statistics"]["unsuccessful_expectations"] == 1

    result = write(spark, ledger, small(spark), FEW, report_folder=tmp_path / "report")
    assert (result.records, result.already_committed, result.checks.success) == (10, False, True)
    assert sorted(balances_of(ledger)) == list(range(10))
    assert "Checks: passed" in (tmp_path / "report" / "index.html").read_text()


def test_a_run_that_was_committed_is_not_checked_again(spark: SparkSession, ledger: Engine) -> None:
    """A run that is already committed is not checked again, whatever it would write now."""
    write(spark, ledger, small(spark), None)
    calls: list[int] = []
    again = write(spark, ledger, with_secret(spark), lambda rows: calls.append(rows.count()))
    assert again.already_committed
    assert calls == []


@pytest.mark.shard("spark")
@pytest.mark.parametrize("red", ["balances", "accounts"])
def test_one_red_output_stops_all_of_them_and_the_offsets(
    spark: SparkSession, two_topics: Engine, red: str
) -> None:
    """If one of several topics has a red check, no topic is visible and the group does not move. A run with green
    checks then commits.
    """
    load(two_topics, 0, 40)
    before = state_of(two_topics)
    limits = {"balances": 1_000, "accounts": 1_000, red: 2}
    suites = {
        topic: [gxe.ExpectColumnValuesToBeBetween(column="account_id", max_value=limit)]
        for topic, limit in limits.items()
    }

    def run(checks: Any) -> Any:
        return run_consume_job(
            spark,
            two_topics,
            topic="payments",
            group_id="balances",
            transactional_id="job",
            transform=two_outputs,
            run_id="monday",
            checks=checks,
        )

    with pytest.raises(ChecksFailedError, match=rf"1 of 2 checks failed: {red}: .* \(4 of 7 unexpected\)"):
        run(suites)
    assert state_of(two_topics) == before
    result = run(FEW)
    assert (result.records_in, result.records_out, result.skipped) == (40, 14, False)
    assert [about for about, _ in result.writes["accounts"].checks.checks] == ["balances", "accounts"]
    assert balances_of(two_topics) == sums(payments(0, 40))
    assert accounts_of(two_topics) == list(range(7))
    assert run(FEW).skipped


@pytest.mark.shard("spark")
def test_a_warning_is_logged_and_does_not_block(
    spark: SparkSession, ledger: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning of an expectation, of a suite, or of a check that could not be made lets the rows through,
    and the log names it."""
    warning = [gxe.ExpectColumnValuesToBeBetween(column="account_id", max_value=1_000, severity="warning")]
    for number, checks in enumerate(
        (warning, load_suite(FEW, severity="warning"), load_suite(NO_SUCH_COLUMN, severity="warning"))
    ):
        result = write_topic(
            with_secret(spark), ledger, "balances", transactional_id="job", run_id=str(number), checks=checks
        )
        assert result.records == 10
        assert result.checks is not None
        assert len(result.checks.warnings) == 1
    lines = [record.getMessage() for record in caplog.records if record.name == "txn_engine.spark.voting"]
    assert len(lines) == 3
    assert "(1 of 10 unexpected); a warning, it goes on" in lines[0]
    assert "could not be made" in lines[2]
    assert str(SECRET) not in caplog.text


def raising(rows: DataFrame) -> bool:
    raise ValueError(f"account {rows.agg({'account_id': 'max'}).collect()[0][0]}")


@pytest.mark.parametrize(
    ("checks", "why"),
    in_shard(
        "spark",
        [
            (NO_SUCH_COLUMN, "Great Expectations raised an exception"),
            (IT_RAISES, "Great Expectations raised an exception"),
            (raising, "ValueError was raised"),
            (lambda rows: None, "it returned NoneType; expected a bool, or a list"),
            (lambda rows: [], "it returned list; expected a bool, or a list"),
            (lambda rows: rows, "it returned DataFrame; expected a bool, or a list"),
            (lambda rows: [NamedResult("a", True), True], "it returned list; expected a bool, or a list"),
        ],
        keep=lambda each: each[0] is raising,
    ),
)
def test_what_cannot_be_made_blocks_and_quotes_nothing(
    spark: SparkSession,
    ledger: Engine,
    tmp_path: Path,
    checks: Any,
    why: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A check that cannot be made is errored and blocks. No log, stream or exception shows a value of a
    record; the report may."""
    caplog.set_level("INFO")
    before = state_of(ledger)
    with pytest.raises(ChecksErroredError) as caught:
        write(spark, ledger, with_secret(spark), checks, report_folder=tmp_path / "report")
    assert state_of(ledger) == before
    assert "1 of 1 could not be made" in str(caught.value)
    assert why in str(caught.value)
    assert caught.value.retry_helps
    told = capfd.readouterr()
    for text in (repr(caught.value), str(caught.value), caplog.text, told.out, told.err):
        assert str(SECRET) not in text
    (suite,) = json.loads((tmp_path / "report" / "validation.json").read_text())["suites"]
    assert [check["status"] for check in suite["checks"]] == ["errored"]
    assert write(spark, ledger, small(spark), FEW).records == 10


def test_checks_see_the_columns_that_readers_know_and_all_the_rows(
    spark: SparkSession, ledger: Engine
) -> None:
    """Checks see the topic's columns with their names and types, partition and time, from the very files that
    the transaction names."""
    seen: dict[str, Any] = {}

    def look(rows: DataFrame) -> list[NamedResult]:
        seen["schema"] = {field.name: field.dataType.simpleString() for field in rows.schema}
        seen["rows"] = sorted(tuple(row) for row in rows.select("account_id", "_partition").collect())
        seen["plan"] = rows._jdf.queryExecution().toString()
        return [NamedResult("rows are there", rows.count() == 10)]

    write(spark, ledger, small(spark), look)
    assert seen["schema"] == {
        "account_id": "bigint",
        "turnover": "decimal(18,2)",
        "payments": "bigint",
        "_partition": "int",
        "_timestamp": "timestamp",
    }
    written = ledger.scan("balances").to_table()
    committed = zip(
        written.column("account_id").to_pylist(), written.column("_partition").to_pylist(), strict=True
    )
    assert seen["rows"] == sorted(committed)
    assert "FileScan parquet" in seen["plan"]


@pytest.mark.shard("spark")
def test_an_output_without_rows_is_voted_on(spark: SparkSession, ledger: Engine) -> None:
    """An output without rows is checked too, because a missing row may be the fault that a check looks
    for."""
    load(ledger, 0, 10)
    before = state_of(ledger)
    at_least_one = [gxe.ExpectTableRowCountToBeBetween(min_value=1)]
    with a_check_fails():
        run_consume_job(
            spark,
            ledger,
            topic="payments",
            group_id="balances",
            transactional_id="job",
            transform=lambda read: balances(read.where("amount < 0")),
            output_topic="balances",
            checks=at_least_one,
        )
    with pytest.raises(ChecksFailedError):
        write(spark, ledger, small(spark).where("account_id < 0"), at_least_one)
    assert state_of(ledger) == before
    assert write(spark, ledger, small(spark), at_least_one).records == 10


def test_sql_sees_these_rows_alone(spark: SparkSession, ledger: Engine) -> None:
    """A check in SQL sees only these rows, although Great Expectations uses one view name for every query."""
    small(spark, 3).createOrReplaceTempView("tmp_view")
    with a_check_fails():
        write(spark, ledger, with_secret(spark), NO_SECRET_IN_SQL)
    assert write(spark, ledger, small(spark), NO_SECRET_IN_SQL).records == 10
    assert spark.table("tmp_view").count() == 3
    spark.catalog.dropTempView("tmp_view")
    other = spark.newSession()
    with pytest.raises(ChecksFailedError):
        write_topic(with_secret(other), ledger, "balances", transactional_id="other", checks=NO_SECRET_IN_SQL)


@pytest.mark.shard("spark")
def test_no_time_out_runs_and_nobody_waits_while_checks_do(spark: SparkSession, ledger: Engine) -> None:
    """Checks may take longer than a transaction, because the transaction begins after them. Readers see what others
    commit meanwhile.
    """
    meanwhile: dict[str, Any] = {}

    def slow(rows: DataFrame) -> bool:
        threading.Event().wait(1.5)
        swept = ledger.coordinator.abort_timed_out_transactions()
        write_topic(small(spark, 3), ledger, "balances", transactional_id="other")
        meanwhile["swept"] = swept
        meanwhile["open"] = [row for row in ledger.admin.list_transactions() if row.state == "Ongoing"]
        meanwhile["visible"] = ledger.scan("balances").to_table().num_rows
        return rows.count() == 10

    result = write(spark, ledger, small(spark), slow, transaction_timeout_ms=1_000)
    assert result.records == 10
    assert meanwhile["open"] == []
    assert meanwhile["visible"] == 3
    assert ledger.scan("balances").to_table().num_rows == 13


@pytest.mark.parametrize(
    ("checks", "reason"),
    [
        ({"balance": FEW}, Reason.CHECKS_OF_NO_OUTPUT),
        ({"balances": 7}, Reason.NOT_A_SUITE),
        ([], Reason.NO_EXPECTATIONS),
        ("/nowhere/suite.json", Reason.FILE_UNREADABLE),
    ],
)
def test_invalid_checks_are_refused_before_anything_is_written(
    spark: SparkSession, ledger: Engine, checks: Any, reason: Reason
) -> None:
    """Invalid checks are refused in one line before anything is written and before a job has run."""
    with refused(InvalidRequestError, reason) as caught:
        write(spark, ledger, small(spark), checks)
    assert len(str(caught.value).splitlines()) == 1
    assert data_files(ledger, "balances") == 0
    with refused(InvalidRequestError, Reason.REPORT_WITHOUT_CHECKS):
        write(spark, ledger, small(spark), None, report_folder="/nowhere")


def test_a_job_without_a_known_output_refuses_topics_that_are_not_there(
    spark: SparkSession, ledger: Engine
) -> None:
    """Checks for a topic that the transform does not return are refused, because a mistyped topic would let
    all outputs through unchecked."""
    with pytest.raises(UnknownTopicOrPartitionError):
        run_consume_job(
            spark,
            ledger,
            topic="payments",
            group_id="balances",
            transactional_id="job",
            transform=two_outputs,
            checks={"balance": FEW},
        )


def test_without_great_expectations_one_sentence_says_how_to_get_it(
    spark: SparkSession, ledger: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Great Expectations is missing, checks are an error that says how to install it. They are not
    skipped."""
    monkeypatch.setitem(sys.modules, "great_expectations", None)
    with refused(MissingPackageError, Reason.MISSING_PACKAGE) as caught:
        write(spark, ledger, small(spark), lambda rows: True)
    assert "txn-engine[quality]" in str(caught.value.action)


@pytest.mark.shard("spark")
def test_files_that_are_loaded_are_voted_on(spark: SparkSession, ledger: Engine, tmp_path: Path) -> None:
    """`load_files` checks the records that it makes from the files."""
    (tmp_path / "day.csv").write_text(csv_of(payments(0, 20)))
    checks = [gxe.ExpectColumnValuesToBeBetween(column="trans_id", max_value=9)]
    with a_check_fails():
        load_files(spark, ledger, "payments", str(tmp_path / "day.csv"), run_id="may", checks=checks)
    assert ledger.scan("payments", isolation_level="read_uncommitted").to_table().num_rows == 0
    (tmp_path / "day.csv").write_text(csv_of(payments(0, 10)))
    done = load_files(spark, ledger, "payments", str(tmp_path / "day.csv"), run_id="may", checks=checks)
    assert (done.records, done.already_committed) == (10, False)


@pytest.mark.shard("spark")
def test_a_red_batch_stops_the_stream_and_is_done_again(
    spark: SparkSession,
    copies: Engine,
    tmp_path: Path,
) -> None:
    """A red batch ends the query with the error, and nothing of the batch is visible. When the query is
    started again with checks that pass, it does the batch again."""
    few = [gxe.ExpectColumnValuesToBeBetween(column="trans_id", max_value=29)]
    load(copies, 0, 30)
    copy(spark, copies, tmp_path / "ck", checks=few)
    assert ids(copies) == list(range(30))
    load(copies, 30, 10)
    for _ in range(2):
        with refused_by_spark(ChecksFailedError, None) as red:
            copy(spark, copies, tmp_path / "ck", checks=few, report_folder=tmp_path / "report")
        assert "(10 of 10 unexpected)" in str(red.value)
        assert ids(copies) == list(range(30))
        assert copies.scan("copies", isolation_level="read_uncommitted").to_table().num_rows == 30
        assert "Checks: red" in (tmp_path / "report" / "index.html").read_text()
    copy(spark, copies, tmp_path / "ck", checks=NO_RED)
    assert ids(copies) == list(range(40))


NO_RED = [gxe.ExpectColumnValuesToBeUnique(column="trans_id")]


def test_a_sink_has_no_checks(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """The sink refuses the option `checks` by its name, because it would otherwise be ignored."""
    stream = spark.readStream.format("rate").load().selectExpr("value trans_id")
    writer = stream.writeStream.format("txn_engine").option("url", copies.url).option("topic", "copies")
    with refused_by_spark(InvalidRequestError, Reason.UNKNOWN_OPTION) as unknown:
        writer.option("checks", "suite.json").option(
            "checkpointLocation", str(tmp_path)
        ).start().awaitTermination()
    for name in ("'checks'", "write_topic", "run_consume_job", "stream_topic"):
        assert name in str(unknown.value)


@pytest.mark.shard("spark")
@pytest.mark.slow
def test_killed_while_checks_run(spark: SparkSession, ledger: Engine) -> None:
    """If a run is killed while its checks run, nothing is visible and nothing is open. Run again, it
    commits."""
    load(ledger, 0, 40)
    before = state_of(ledger)
    kill_when_it_says("checking 7", "tests.spark.stalled_checks", ledger.url)
    assert data_files(ledger, "balances") > 0
    assert state_of(ledger) == before
    result = run_consume_job(
        spark,
        ledger,
        topic="payments",
        group_id="balances",
        transactional_id="balances",
        transform=balances,
        output_topic="balances",
        run_id="monday",
        checks=FEW,
    )
    assert (result.records_out, result.skipped) == (7, False)
    assert balances_of(ledger) == sums(payments(0, 40))


@pytest.mark.shard("spark")
def test_of_two_runs_one_commits_though_both_have_passed(spark: SparkSession, ledger: Engine) -> None:
    """If another run commits while a run's checks are running, its offsets are refused although both have
    passed, because a vote is not a lock."""
    from txn_engine.errors import OffsetsMovedError

    load(ledger, 0, 40)

    def run(checks: Any, name: str) -> Any:
        return run_consume_job(
            spark,
            ledger,
            topic="payments",
            group_id="balances",
            transactional_id=name,
            transform=balances,
            output_topic="balances",
            checks=checks,
        )

    def overtaken(rows: DataFrame) -> bool:
        run(FEW, "other")
        return True

    with pytest.raises(OffsetsMovedError):
        run(overtaken, "job")
    assert balances_of(ledger) == sums(payments(0, 40))


def test_write_topics_takes_a_suite_for_one_of_its_topics(spark: SparkSession, two_topics: Engine) -> None:
    """`write_topics` accepts checks for one of its topics only, and writes the others unchecked."""
    load(two_topics, 0, 40)
    outputs = {"balances": small(spark), "accounts": with_secret(spark).select("account_id")}
    written = write_topics(outputs, two_topics, transactional_id="job", checks={"balances": FEW})
    assert written["accounts"].records == 10
    assert written["accounts"].checks is not None
    assert [result.about for result in written["accounts"].checks.results] == ["balances"]


def test_a_regular_expression_is_matched_in_linear_time(spark: SparkSession) -> None:
    """In Spark too, an expression that takes a backtracking engine years has the right answer at once."""
    rows = spark.createDataFrame([("a" * 60 + "!",), (None,), ("a" * 60,)], "text string")
    run = check_rows(
        rows,
        [
            gxe.ExpectColumnValuesToMatchRegex(column="text", regex="^(a|aa|a+)+$"),
            gxe.ExpectColumnValuesToNotMatchRegex(column="text", regex="^(a|aa|a+)+$"),
            gxe.ExpectColumnValuesToMatchRegexList(column="text", regex_list=["^(a|aa|a+)+$", "z"]),
            gxe.ExpectColumnValuesToMatchRegexList(column="text", regex_list=["^a", "!"], match_on="all"),
            gxe.ExpectColumnValuesToNotMatchRegexList(column="text", regex_list=["^(a|aa|a+)+$", "z"]),
        ],
    )
    assert [(check.status, check.wrong) for _, check in run.checks] == [("failed", 1)] * 5
