"""Several outputs of one run commit together with the input's offsets, or not at all."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import accounts_of, balances_of, load, payments, sums, two_outputs
from tests.support.faults import no_pause
from tests.support.kills import DyingStore, ProcessDiedError, kill_when_it_says
from tests.support.refusals import refused
from txn_engine.engine import Engine, connect
from txn_engine.errors import (
    GroupIdNotFoundError,
    InvalidRecordError,
    InvalidRequestError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.reasons import Reason
from txn_engine.spark import read_topic, run_consume_job, write_topics, writing
from txn_engine.spark.balances import balances
from txn_engine.spark.opening import store_for_executors
from txn_engine.spark.writing import WriteResult

pytestmark = pytest.mark.spark
REPOSITORY = Path(__file__).resolve().parents[2]


def write_both(spark: SparkSession, engine: Engine) -> dict[str, WriteResult]:
    read = read_topic(spark, engine, "payments", group_id="balances")
    outputs = two_outputs(read.df.coalesce(1))
    return write_topics(outputs, engine, transactional_id="job", offsets=read.offsets, run_id="monday")


def assert_all_or_nothing(engine: Engine) -> bool:
    """Write the markers of what was decided, and check that both outputs and the group's position agree.
    Returns whether they are there."""
    engine.coordinator.write_pending_markers()
    try:
        lag = sum(part.lag for part in engine.admin.describe_group("balances").partitions)
    except GroupIdNotFoundError:
        lag = -1
    is_there = balances_of(engine) == sums(payments(0, 40))
    assert is_there or balances_of(engine) == {}
    assert accounts_of(engine) == (list(range(7)) if is_there else [])
    assert (lag == 0) == is_there
    return is_there


def test_both_outputs_and_the_offsets_go_together(spark: SparkSession, two_topics: Engine) -> None:
    """One transaction has the records of both topics and the group's position. The same run again writes
    nothing."""
    load(two_topics, 0, 40)
    results = write_both(spark, two_topics)
    assert {topic: (result.topic, result.records) for topic, result in results.items()} == {
        "balances": ("balances", 7),
        "accounts": ("accounts", 7),
    }
    assert assert_all_or_nothing(two_topics)
    again = write_topics(
        two_outputs(read_topic(spark, two_topics, "payments").df),
        two_topics,
        transactional_id="job",
        run_id="monday",
    )
    assert [result.already_committed for result in again.values()] == [True, True]
    assert assert_all_or_nothing(two_topics)


@pytest.mark.shard("spark")
def test_an_output_without_rows_is_one_of_the_outputs(spark: SparkSession, two_topics: Engine) -> None:
    """An output without rows has a result without files, and its run is remembered because of the other
    output."""
    load(two_topics, 0, 40)
    outputs = two_outputs(read_topic(spark, two_topics, "payments").df)
    outputs["accounts"] = outputs["accounts"].where("account_id < 0")
    results = write_topics(outputs, two_topics, transactional_id="job", run_id="monday")
    assert (results["balances"].records, results["accounts"].records, results["accounts"].files) == (7, 0, 0)
    again = write_topics(outputs, two_topics, transactional_id="job", run_id="monday")
    assert again["accounts"].already_committed


def test_what_is_wrong_with_one_output_is_found_before_any_is_written(
    spark: SparkSession, two_topics: Engine
) -> None:
    """Columns that do not fit and topics that do not exist are refused before anything is uploaded or
    begun."""
    load(two_topics, 0, 40)
    frame = read_topic(spark, two_topics, "payments").df
    good = balances(frame)
    with refused(InvalidRecordError, Reason.OTHER_COLUMNS):
        write_topics({"balances": good, "accounts": good}, two_topics, transactional_id="job")
    with pytest.raises(UnknownTopicOrPartitionError):
        write_topics({"balances": good, "nowhere": good}, two_topics, transactional_id="job")
    with refused(InvalidRequestError, Reason.NO_OUTPUTS):
        write_topics({}, two_topics, transactional_id="job")
    assert [row.transactional_id for row in two_topics.admin.list_transactions()] == ["load"]
    assert not list(Path(two_topics.url.removeprefix("file://"), "topics", "balances").rglob("data/*"))


@pytest.mark.shard("spark")
def test_a_job_that_gives_outputs_by_topic(spark: SparkSession, two_topics: Engine) -> None:
    """`run_consume_job` writes the DataFrames that the transform returns by topic, with the position,
    once."""
    load(two_topics, 0, 40)

    def run(transform: object = two_outputs, **more: object) -> object:
        return run_consume_job(
            spark,
            two_topics,
            topic="payments",
            group_id="balances",
            transactional_id="job",
            transform=transform,  # type: ignore[arg-type]
            **more,  # type: ignore[arg-type]
        )

    for transform, output_topic in ((two_outputs, "balances"), (balances, None), (lambda df: 1, None)):
        with refused(InvalidRequestError, Reason.OUTPUT_WITHOUT_TOPIC):
            run(transform, output_topic=output_topic)
    assert not assert_all_or_nothing(two_topics)
    result = run()
    assert (result.records_in, result.records_out, set(result.writes)) == (40, 14, {"balances", "accounts"})  # type: ignore[attr-defined]
    assert assert_all_or_nothing(two_topics)
    assert run().skipped  # type: ignore[attr-defined]


@pytest.mark.shard("spark")
@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_dying_at_any_put(
    spark: SparkSession, two_topics: Engine, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Whichever put of the driver is its last, both outputs and the offsets are there or none of them, and
    the next run writes them once."""
    load(two_topics, 0, 40)
    monkeypatch.setattr(
        writing, "store_for_executors", lambda store: store_for_executors(getattr(store, "inner", store))
    )
    folder = Path(two_topics.url.removeprefix("file://"))
    outcomes = []
    for at in range(100):
        copied = folder.with_name(f"copy{at}")
        shutil.copytree(folder, copied)
        store = DyingStore(copied.as_uri(), at, after=after)
        with suppress(ProcessDiedError, TxnEngineError), Engine(store, pause=no_pause) as dying:
            write_both(spark, dying)
        with connect(copied.as_uri()) as engine:
            outcomes.append(assert_all_or_nothing(engine))
            assert run_again(spark, engine) == outcomes[-1]
            assert assert_all_or_nothing(engine)
            assert engine.admin.verify().ok
        if store.puts <= at:
            break
    assert len(outcomes) > 12
    assert outcomes == sorted(outcomes)  # nothing up to the decision, all from there on
    assert set(outcomes) == {False, True}


@pytest.mark.shard("spark")
@pytest.mark.slow
@pytest.mark.parametrize("step", ["upload", "entry", "commit", "marker"])
def test_killed_and_run_again(spark: SparkSession, two_topics: Engine, step: str) -> None:
    """If a driver is killed between two outputs, or before or after its decision, everything is there or
    nothing."""
    load(two_topics, 0, 40)
    kill_when_it_says(step, "tests.spark.stalled_outputs", two_topics.url, step)
    is_there = assert_all_or_nothing(two_topics)
    assert is_there == (step == "marker")
    result = run_again(spark, two_topics)
    assert result == is_there
    assert assert_all_or_nothing(two_topics)


def run_again(spark: SparkSession, engine: Engine) -> bool:
    """Run the same ids once more. Returns whether the run had been committed before."""
    with engine.producer(transactional_id="job") as producer:
        producer.init_transactions()  # ends what is pending, as `run_consume_job` does before it reads
    return all(result.already_committed for result in write_both(spark, engine).values())
