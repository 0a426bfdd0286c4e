"""run_consume_job puts each input record into committed output once, however it is run, killed and run
again."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import balances_of, load, payments, sums
from tests.support.kills import kill_when_it_says
from tests.support.refusals import refused
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError, OffsetsMovedError, UnstableOffsetCommitError
from txn_engine.reasons import Reason
from txn_engine.spark import ConsumeResult, read_topic, run_consume_job, write_topic
from txn_engine.spark.balances import balances
from txn_engine.spark.errors import SparkJobError

pytestmark = pytest.mark.spark
REPOSITORY = Path(__file__).resolve().parents[2]


def run(
    spark: SparkSession, engine: Engine, transactional_id: str = "balances", **more: object
) -> ConsumeResult:
    arguments = {"transform": balances, "output_topic": "balances"} | more
    return run_consume_job(
        spark,
        engine,
        topic="payments",
        group_id="balances",
        transactional_id=transactional_id,
        **arguments,  # type: ignore[arg-type]
    )


def test_each_run_takes_what_is_new(spark: SparkSession, ledger: Engine) -> None:
    """Each run continues after the last one, and the sums over all runs are exactly those of all payments."""
    load(ledger, 0, 150)
    first = run(spark, ledger)
    assert (first.records_in, first.records_out, first.skipped) == (150, 7, False)
    load(ledger, 150, 10, commit=False)
    load(ledger, 150, 75)
    assert run(spark, ledger).records_in == 75
    assert balances_of(ledger) == sums(payments(0, 225))


def test_nothing_new_writes_nothing(spark: SparkSession, ledger: Engine) -> None:
    """A run without new records leaves every object of the store as it is."""
    load(ledger, 0, 20)
    run(spark, ledger)

    def objects() -> set[Path]:
        return {path for path in Path(ledger.url.removeprefix("file://")).rglob("*") if path.is_file()}

    before = objects()
    result = run(spark, ledger)
    assert (result.skipped, result.records_in, result.records_out) == (True, 0, 0)
    assert objects() == before


def test_a_range_without_records_is_stepped_over(spark: SparkSession, ledger: Engine) -> None:
    """If the range has only aborted records there is nothing to sum up, but the group moves to the end."""
    load(ledger, 0, 20)
    run(spark, ledger)
    load(ledger, 20, 20, commit=False)
    result = run(spark, ledger)
    assert (result.skipped, result.records_in) == (True, 0)
    assert [part.lag for part in ledger.admin.describe_group("balances").partitions] == [0, 0, 0]
    assert balances_of(ledger) == sums(payments(0, 20))


def test_no_output_at_all(spark: SparkSession, ledger: Engine) -> None:
    """A transform may write nothing, and the position moves. A value that is not a DataFrame is refused."""
    load(ledger, 0, 20)
    with refused(InvalidRequestError, Reason.NOT_A_DATAFRAME):
        run(spark, ledger, transform=lambda _: {"balances": "x"}, output_topic=None)
    result = run(spark, ledger, transform=lambda _: {}, output_topic=None, run_id="first")
    assert (result.records_in, result.records_out, result.skipped) == (20, 0, False)
    assert run(spark, ledger).records_in == 0
    assert balances_of(ledger) == {}
    load(ledger, 20, 30)
    run(spark, ledger, run_id="second")
    load(ledger, 50, 10)
    assert run(spark, ledger, transform=lambda _: {}, output_topic=None, run_id="second").skipped
    assert run(spark, ledger).records_in == 10


@pytest.mark.slow
def test_killed_before_its_commit_and_run_again(spark: SparkSession, ledger: Engine) -> None:
    """A run that is killed right before its decision shows nothing. Run again, it ends the old transaction
    and commits."""
    load(ledger, 0, 100)
    kill_when_it_says("about to commit", "tests.spark.stalled_job", ledger.url)
    assert ledger.scan("balances").to_table().num_rows == 0
    with pytest.raises(UnstableOffsetCommitError):
        run(spark, ledger, transactional_id="somebody else")
    assert ledger.admin.describe_transaction("balances").state == "Ongoing"
    result = run(spark, ledger)
    assert (result.records_in, result.skipped) == (100, False)
    assert balances_of(ledger) == sums(payments(0, 100))
    assert run(spark, ledger).skipped


def test_an_overlapping_run_is_refused(spark: SparkSession, ledger: Engine) -> None:
    """A run that read before another one committed, and would commit after it, is refused, and the sums stay
    right."""
    load(ledger, 0, 100)

    def meanwhile(df: DataFrame) -> DataFrame:
        run(spark, ledger, transactional_id="the other")
        return balances(df)

    with pytest.raises(OffsetsMovedError):
        run(spark, ledger, transform=meanwhile)
    assert balances_of(ledger) == sums(payments(0, 100))


@pytest.mark.shard("spark")
def test_a_second_try_of_a_committed_run(spark: SparkSession, ledger: Engine) -> None:
    """A retried run that has already committed writes nothing, even if new records have come since."""
    load(ledger, 0, 100)
    run(spark, ledger, run_id="scheduled 1")
    load(ledger, 100, 10)
    again = run(spark, ledger, run_id="scheduled 1")
    assert (again.skipped, again.records_in, again.records_out) == (True, 0, 0)
    assert run(spark, ledger, run_id="scheduled 2").records_in == 10
    assert balances_of(ledger) == sums(payments(0, 110))


@pytest.mark.shard("spark")
def test_before_commit_comes_when_all_is_written(spark: SparkSession, ledger: Engine) -> None:
    """The hook is called in the open transaction with its output and offsets. If the hook raises, everything
    is aborted."""
    load(ledger, 0, 30)
    seen: list[str] = []

    def refuse() -> None:
        seen.append(ledger.admin.describe_transaction("balances").state)
        assert ledger.scan("balances", isolation_level="read_uncommitted").to_table().num_rows == 7
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(spark, ledger, before_commit=refuse)
    assert seen == ["Ongoing"]
    assert ledger.admin.describe_transaction("balances").state == "CompleteAbort"
    assert run(spark, ledger).records_in == 30


@pytest.mark.shard("spark")
def test_deferred_markers(spark: SparkSession, ledger: Engine) -> None:
    """With markers="deferred" the run ends at the decision, and readers see it after the marker sweep."""
    load(ledger, 0, 30)
    run(spark, ledger, markers="deferred")
    assert ledger.scan("balances").to_table().num_rows == 0
    ledger.coordinator.write_pending_markers()
    assert balances_of(ledger) == sums(payments(0, 30))


@pytest.mark.shard("spark")
def test_a_sum_beyond_the_outputs_type_is_refused(spark: SparkSession, ledger: Engine) -> None:
    """A sum that does not fit is refused, even if the session makes null of it (`spark.sql.ansi.enabled`
    off), so no money is lost silently."""
    most = payments(0, 2).to_pylist()
    for row in most:
        row |= {"account_id": 1, "type": "PRIJEM", "amount": Decimal("9999999999999999.99")}
    frame = spark.createDataFrame(most, read_topic(spark, ledger, "payments").df.select(*most[0]).schema)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(SparkJobError, match="does not fit"):
            write_topic(balances(frame), ledger, "balances", transactional_id="job")
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert ledger.scan("balances").to_table().num_rows == 0


@pytest.mark.shard("spark")
def test_payments_that_cannot_be_summed(spark: SparkSession, ledger: Engine) -> None:
    """A payment of an unknown type, or without an amount, stops the run and is named. Nothing is left out
    silently."""
    unknown = payments(0, 3).to_pylist()
    unknown[1]["type"] = "DAR"
    missing = payments(3, 3).to_pylist()
    missing[2]["amount"] = None
    for number, rows in ((1, unknown), (5, missing)):
        frame = spark.createDataFrame(rows, read_topic(spark, ledger, "payments").df.select(*rows[0]).schema)
        with pytest.raises(SparkJobError, match=f"trans_id {number}"):
            write_topic(balances(frame), ledger, "balances", transactional_id="job")
    assert ledger.scan("balances").to_table().num_rows == 0
