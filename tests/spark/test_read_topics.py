"""read_topic reads several topics, and takes times as bounds."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import PLACE, SCHEMA, load, payments
from tests.suite.tiers import in_shard
from tests.support.refusals import refused
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason
from txn_engine.spark import read_topic, run_consume_job, stamps, write_topic

pytestmark = pytest.mark.spark
BY_TOPIC = [("_topic", "ascending"), *PLACE]


@pytest.fixture
def copies(ledger: Engine) -> Engine:
    """The ledger with a topic `copies` that has the columns of `payments`, and with records in both."""
    ledger.admin.create_topic("copies", partitions=2, schema=SCHEMA, key="account_id")
    load(ledger, 0, 90)
    with ledger.producer() as producer:
        producer.produce("copies", payments(500, 40)).result()
    return ledger


@pytest.mark.parametrize("are_packed", in_shard("spark", [True, False], keep=1))
def test_several_topics_are_one_dataframe(
    spark: SparkSession, copies: Engine, monkeypatch: pytest.MonkeyPatch, are_packed: bool
) -> None:
    """Each record has its topic, whether that is in the bits of a file's stamp or looked up by the file's
    number, also with bounds inside files."""
    if not are_packed:
        monkeypatch.setattr(stamps, "MILLIS_MAX", 1)
    names = ["payments", "copies"]
    end = {tp: at - 3 for tp, at in copies.scan(names).offsets.items()}
    for bounds in ({}, {"end": end}):
        read = read_topic(spark, copies, names, **bounds)
        found = read.df.toArrow().sort_by(BY_TOPIC)
        wanted = copies.scan(names, **bounds).to_table().sort_by(BY_TOPIC)
        for name in ("_topic", "_partition", "_offset", "trans_id", "amount"):
            assert found.column(name).to_pylist() == wanted.column(name).to_pylist(), name
        assert read.offsets.topics == ("payments", "copies")
        assert {tp.topic for tp in read.offsets.end} == set(names)
    assert read_topic(spark, copies, ["payments"]).df.columns[-1] == "_topic"
    assert "_topic" not in read_topic(spark, copies, "payments").df.columns


def test_offsets_of_several_topics_commit_together(spark: SparkSession, copies: Engine) -> None:
    """A group commits the offsets of both topics together, and its next read has no records of either."""
    copies.admin.create_topic("all", partitions=1, schema=SCHEMA)
    for expected in (130, 0):
        read = read_topic(spark, copies, ["payments", "copies"], group_id="both")
        assert read.record_count == expected
        write_topic(
            read.df.select(*SCHEMA.names), copies, "all", transactional_id="both", offsets=read.offsets
        )
    assert copies.scan("all").to_table().num_rows == 130


def test_topics_that_do_not_go_together(spark: SparkSession, copies: Engine) -> None:
    """Topics with different columns are refused, and so is an empty list."""
    with refused(InvalidRequestError, Reason.DIFFERENT_COLUMNS):
        read_topic(spark, copies, ["payments", "balances"])
    with refused(InvalidRequestError, Reason.BAD_ARGUMENT):
        read_topic(spark, copies, [])


@pytest.mark.shard("spark")
def test_times_bound_a_read(spark: SparkSession, ledger: Engine) -> None:
    """A read begins at the first record of a time or later, and ends before another time. If no record is as late, it
    is empty.
    """
    load(ledger, 0, 60)
    stamp = ledger.scan("payments").to_table(["_timestamp"]).column(0).cast(pa.int64())
    between = max(stamp.to_pylist()) + 1
    while ledger.clock() <= between:
        pass
    load(ledger, 60, 30)

    def ids(**bounds: int) -> list[int]:
        read = read_topic(spark, ledger, "payments", **bounds)
        scanned = ledger.scan("payments", **bounds)
        assert dict(read.offsets.start) == scanned.start_offsets
        assert dict(read.offsets.end) == scanned.offsets
        found = sorted(row["trans_id"] for row in read.df.select("trans_id").collect())
        assert found == sorted(scanned.to_table(["trans_id"]).column(0).to_pylist())
        assert read.record_count == len(found)
        return found

    assert ids(start_timestamp=between) == list(range(60, 90))
    assert ids(end_timestamp=between) == list(range(60))
    assert ids(start_timestamp=0, end_timestamp=between) == list(range(60))
    assert ids(start_timestamp=between + 10**9) == []
    assert ids(end_timestamp=between + 10**9) == list(range(90))


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"start_timestamp": -1}, Reason.BAD_ARGUMENT),
        ({"start_timestamp": "yesterday"}, Reason.BAD_ARGUMENT),
        ({"start_timestamp": 2, "end_timestamp": 1}, Reason.END_BEFORE_START),
    ],
)
def test_invalid_times_are_refused(
    spark: SparkSession, ledger: Engine, bounds: dict[str, int], reason: Reason
) -> None:
    """Invalid times are refused."""
    with refused(InvalidRequestError, reason):
        read_topic(spark, ledger, "payments", **bounds)


def test_two_starts_are_refused(spark: SparkSession, ledger: Engine) -> None:
    """An offset and a time for the same end of the read are refused."""
    start = dict.fromkeys(ledger.scan("payments").offsets, 0)
    with refused(InvalidRequestError, Reason.CONFLICTING_ARGUMENTS):
        read_topic(spark, ledger, "payments", start=start, start_timestamp=0)


@pytest.mark.shard("spark")
def test_a_read_of_a_group_begins_at_its_position(spark: SparkSession, ledger: Engine) -> None:
    """A read of a group begins at the group's position, unless a start time is given."""
    load(ledger, 0, 30)
    run_consume_job(
        spark,
        ledger,
        topic="payments",
        group_id="g",
        transactional_id="g",
        output_topic="balances",
        transform=lambda df: df.selectExpr(
            "account_id", "cast(amount as decimal(18,2)) turnover", "1L payments"
        ),
    )
    assert read_topic(spark, ledger, "payments", group_id="g").record_count == 0
    assert read_topic(spark, ledger, "payments", group_id="g", start_timestamp=0).record_count == 30
