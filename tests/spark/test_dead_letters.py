"""Dead letters of Spark's writes: rows that do not fit are written in the same transaction as the rows that
do."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import great_expectations.expectations as gxe
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tests.loading.ledgers import DEAD, HEADER, MIXED, TOPIC, dead, dying_at_every_put, ids, set_up
from tests.loading.ledgers import load as load_here
from tests.spark.conftest import load
from tests.suite.tiers import in_shard
from tests.support.refusals import refused
from txn_engine import Engine, WidenColumn, connect
from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.loading import DEAD_LETTERS, replay
from txn_engine.reasons import Reason
from txn_engine.spark import (
    ConsumeResult,
    load_files,
    read_topic,
    run_consume_job,
    stream_topic,
    write_topic,
)
from txn_engine.spark.dead_letters import dead_letters_to
from txn_engine.spark.errors import SparkJobError
from txn_engine.spark.loading import FileReader
from txn_engine.spark.writing import FileRows, write_with
from txn_engine.types import TopicPartition

pytestmark = pytest.mark.spark

NARROW = pa.schema(
    [
        pa.field("trans_id", pa.int8()),
        pa.field("account_id", pa.int64(), nullable=False),
        pa.field("amount", pa.decimal128(5, 2)),
    ]
)
"""128 of the 300 payments have an id that fits."""


@pytest.fixture
def narrow(ledger: Engine) -> Engine:
    """`ledger` with a topic whose columns are narrower than those of the payments, and one for dead
    letters."""
    ledger.admin.create_topic("narrow", partitions=2, schema=NARROW, key="account_id")
    ledger.admin.create_topic(DEAD, partitions=2, schema=DEAD_LETTERS)
    return ledger


def narrowed(rows: DataFrame) -> DataFrame:
    """Each row with its source's place, and with null for account 3."""
    account = sf.when(sf.col("account_id") != 3, sf.col("account_id"))
    return rows.select("trans_id", account.alias("account_id"), "amount", "_partition", "_offset")


def written(engine: Engine) -> list[int]:
    return sorted(engine.scan("narrow").to_table(["trans_id"]).column("trans_id").to_pylist())


def fits(trans_id: int) -> bool:
    """Whether the payment with this number fits into the narrow topic."""
    return trans_id < 128 and trans_id % 7 != 3


def consume(spark: SparkSession, engine: Engine, **options: Any) -> ConsumeResult:
    """Consume the new payments into the narrow topic."""
    return run_consume_job(
        spark,
        engine,
        topic="payments",
        group_id="narrow",
        transactional_id="narrow",
        transform=narrowed,
        output_topic="narrow",
        dead_letter_topic=DEAD,
        **options,
    )


def test_input_is_output_and_dead_letters(spark: SparkSession, narrow: Engine) -> None:
    """A consume job puts each record of its range into the output or into the dead letters, once, and each
    letter names its record."""
    load(narrow, 0, 300)
    found = consume(spark, narrow, run_id="monday")
    good = [number for number in range(300) if fits(number)]
    assert written(narrow) == good
    assert (found.records_in, found.records_out, found.dead_letters) == (300, len(good), 300 - len(good))
    letters = dead(narrow)
    assert len(letters) == found.dead_letters
    at = {
        (row["_partition"], row["_offset"]): row["trans_id"]
        for row in narrow.scan("payments").to_table().to_pylist()
    }
    sources = {(row["source_partition"], row["source_offset"]): row for row in letters}
    assert {at[place] for place in sources} == set(range(300)) - set(good)
    for place, row in sources.items():
        columns = json.loads(row["columns"])
        assert set(columns) == set(NARROW.names)
        assert columns["trans_id"] == at[place]
        is_number = at[place] > 127
        assert row["reason"] == (
            "trans_id does not fit; expected int8"
            if is_number
            else "account_id is empty; expected int64: the column takes no null"
        )
    assert {(row["topic"], row["source_topic"], row["run_id"], row["tries"]) for row in letters} == {
        ("narrow", "payments", "monday", 1)
    }
    assert {row["error_class"] for row in letters} == {"InvalidRecordError"}
    write = found.writes["narrow"]
    assert sum(write.reasons.values()) == write.dead_letters == found.dead_letters
    assert "172 of: trans_id does not fit; expected int8" in write.told_reasons
    again = consume(spark, narrow)
    assert (again.skipped, len(dead(narrow)), written(narrow)) == (True, len(letters), good)
    narrow.admin.alter_topic("narrow", [WidenColumn("trans_id", pa.int64())])
    done = replay(narrow, DEAD)
    assert (done.letters, done.records) == (
        len(letters),
        len([number for number in range(128, 300) if number % 7 != 3]),
    )
    assert len(written(narrow)) + done.failed_again == 300


@pytest.mark.parametrize("most", in_shard("spark", [5, "10%"], keep=["10%"]))
def test_above_the_limit_nothing_is_visible(spark: SparkSession, narrow: Engine, most: int | str) -> None:
    """If there are more dead letters than the limit, neither records nor letters are visible and the position
    does not move, whether the limit is a number or a share."""
    load(narrow, 0, 300)
    with refused(InvalidRecordError, Reason.TOO_MANY_BAD_ROWS):
        consume(spark, narrow, max_dead_letters=most)
    assert (written(narrow), dead(narrow)) == ([], [])
    assert not narrow.consumer(group_id="narrow").committed([TopicPartition("payments", 0)])
    assert consume(spark, narrow, max_dead_letters="80%").dead_letters == 300 - len(written(narrow))


@pytest.mark.shard("spark")
def test_a_stream(spark: SparkSession, narrow: Engine, tmp_path: Path) -> None:
    """In a stream, the run of each letter is its micro-batch. When the stream is started again, it writes
    nothing twice."""
    load(narrow, 0, 250)
    for _ in range(2):
        query = stream_topic(
            spark,
            narrow,
            "payments",
            each=lambda rows, _: {"narrow": narrowed(rows)},
            checkpoint=tmp_path / "checkpoint",
            transactional_id="streamer",
            trigger={"availableNow": True},
            max_offsets_per_trigger=200,
            dead_letter_topic=DEAD,
            max_dead_letters="100%",
        )
        query.awaitTermination()
    assert written(narrow) == [number for number in range(250) if fits(number)]
    letters = dead(narrow)
    assert len(written(narrow)) + len(letters) == 250
    assert {row["run_id"] for row in letters} == {"streamer/0", "streamer/1"}
    assert {row["source_topic"] for row in letters} == {"payments"}


def test_what_is_refused(spark: SparkSession, narrow: Engine) -> None:
    """Before anything is written, these are refused: a limit without a dead-letter topic, one that does not
    exist or is also an output, and other columns."""
    load(narrow, 0, 10)
    rows = narrowed(read_topic(spark, narrow, "payments").df)

    def write(df: DataFrame = rows, topic: str = "narrow", **options: Any) -> None:
        write_topic(df, narrow, topic, transactional_id="job", **options)

    with refused(InvalidRequestError, Reason.NO_DEAD_LETTER_TOPIC):
        write(max_dead_letters=1)
    with refused(InvalidRequestError, Reason.NOT_A_DEAD_LETTER_TOPIC):
        write(dead_letter_topic="payments")
    with refused(InvalidRequestError, Reason.ALSO_AN_OUTPUT):
        write(topic=DEAD, dead_letter_topic=DEAD)
    with refused(InvalidRecordError, Reason.OTHER_COLUMNS):
        write()
    with refused(InvalidRecordError, Reason.TYPE_MISMATCH):
        write(rows.drop("_partition", "_offset"))
    with refused(InvalidRecordError, Reason.TYPE_MISMATCH):
        write(rows.withColumn("amount", sf.col("amount").cast("string")), dead_letter_topic=DEAD)
    with refused(InvalidRecordError, Reason.OTHER_COLUMNS):
        write(rows.withColumn("_offset", sf.lit("x")), dead_letter_topic=DEAD)
    assert (written(narrow), dead(narrow)) == ([], [])


def test_rows_that_fail_a_check(spark: SparkSession, narrow: Engine) -> None:
    """Rows that fail a row check become dead letters in the tasks, and the other checks vote on the rows that
    are left. A replay checks them again."""
    load(narrow, 0, 100)
    cheap = gxe.ExpectColumnValuesToBeBetween(
        column="amount", max_value=50, meta={"on_failure": "dead_letter", "name": "cheap"}
    )
    counted = gxe.ExpectTableRowCountToEqual(value=len([at for at in range(50) if fits(at)]))
    found = consume(spark, narrow, checks=[cheap, counted])
    write = found.writes["narrow"]
    assert write.checks is not None
    assert [check.status for _, check in write.checks.checks] == ["passed"]
    assert written(narrow) == [at for at in range(50) if fits(at)]
    assert found.dead_letters == 100 - len(written(narrow))
    (reason,) = {row["reason"] for row in dead(narrow) if row["reason"].startswith("check")}
    assert reason.startswith("check cheap failed; expected")
    assert replay(narrow, DEAD).records == 0
    without = replay(narrow, DEAD, without_checks=True)
    assert without.records == len([at for at in range(50, 100) if fits(at)])
    rows = narrowed(read_topic(spark, narrow, "payments").df)
    with refused(InvalidRequestError, Reason.CHECK_NEEDS_DEAD_LETTER_TOPIC):
        write_topic(rows, narrow, "narrow", transactional_id="job", checks=[cheap])
    other = cheap.copy(update={"column": "none"})
    with refused(InvalidRequestError, Reason.UNKNOWN_COLUMN) as caught:
        write_topic(rows, narrow, "narrow", transactional_id="job", checks=[other], dead_letter_topic=DEAD)
    assert caught.value.actor == "load: check cheap"


@pytest.fixture
def file_ledger(tmp_path: Path) -> Iterator[Engine]:
    with connect(f"file://{tmp_path}/files") as engine:
        set_up(engine)
        yield engine


@pytest.mark.shard("spark")
def test_files_as_one_process_reads_them(
    spark: SparkSession, file_ledger: Engine, write: Callable[..., Path]
) -> None:
    """Loading files gives the same records as in one process, and the same letters in every column but the
    time."""
    path = write("f.csv", MIXED)
    found = load_files(spark, file_ledger, TOPIC, str(path), run_id="monday", dead_letter_topic=DEAD)
    assert (found.records, found.dead_letters) == (2, 3)
    again = load_files(spark, file_ledger, TOPIC, str(path), run_id="monday", dead_letter_topic=DEAD)
    assert again.already_committed
    with refused(InvalidRecordError, Reason.TOO_MANY_BAD_ROWS):
        load_files(
            spark,
            file_ledger,
            TOPIC,
            str(path),
            run_id="2",
            dead_letter_topic=DEAD,
            max_dead_letters="59%",
        )
    own = {
        "failed_at": 0,
        "_timestamp": 0,
        "_offset": 0,
        "reading": "",
    }  # which the other has without defaults
    ours = [{**row, **own} for row in dead(file_ledger)]
    load_here(file_ledger, path, transactional_id="here")
    theirs = [{**row, **own} for row in dead(file_ledger)[3:]]
    assert ours == theirs
    assert ids(file_ledger) == [1, 1, 3, 3]


class _OneProcess:
    """The parts of a DataFrame of files that a write needs. Its one task runs here, on the engine's own
    store."""

    def __init__(self, path: Path) -> None:
        self._names = pa.RecordBatch.from_pylist([{"path": str(path)}])

    def mapInArrow(self, task: Any, _schema: object) -> _OneProcess:
        task.__self__.store.close = lambda: None  # type: ignore[method-assign]
        self._rows = [tuple(row.values()) for batch in task(iter([self._names])) for row in batch.to_pylist()]
        return self

    def collect(self) -> list[tuple[Any, ...]]:
        return self._rows


def load_in_one_process(engine: Engine, path: Path) -> None:
    """Do the driver's part of a load by Spark, and the task's part too."""
    letters = dead_letters_to(engine, DEAD, None, actor="test", run_id="monday")
    rows = FileRows(_OneProcess(path), FileReader(engine.logs.topics.look_up(TOPIC), {}))  # type: ignore[arg-type]
    with engine.producer(transactional_id="spark") as producer:
        producer.init_transactions()
        write_with(engine, producer, {TOPIC: rows}, offsets=None, run_id="monday", letters=letters)


@pytest.mark.shard("spark")
@pytest.mark.parametrize("after", [False, True])
def test_dying_at_every_put(write: Callable[..., Path], after: bool) -> None:
    """If the load dies at any put of tasks or driver and runs again, each row is once in one of the two
    topics, and never one topic without the other."""
    path = write("f.csv", MIXED)
    at = -1
    for url in dying_at_every_put(set_up, lambda engine: load_in_one_process(engine, path), after=after):
        at += 1
        with connect(url) as engine:
            engine.coordinator.write_pending_markers()
            seen = ids(engine), [row["source_line"] for row in dead(engine)]
            assert seen in (([], []), ([1, 3], [3, 5, 6]))
            load_in_one_process(engine, path)
            assert (ids(engine), [row["source_line"] for row in dead(engine)]) == ([1, 3], [3, 5, 6])
    assert at >= 6


def test_reasons_without_number_are_cut_short(
    spark: SparkSession, file_ledger: Engine, tmp_path: Path
) -> None:
    """A task reports at most 20 reasons to the driver, but each letter has its own reason."""
    lines = [",".join("x" * fields) for fields in range(5, 30)]
    (tmp_path / "f.csv").write_text(HEADER + "\n".join(lines) + "\n")
    found = load_files(spark, file_ledger, TOPIC, str(tmp_path / "f.csv"), run_id="1", dead_letter_topic=DEAD)
    assert found.reasons["other reasons"] == 5
    assert len(found.reasons) == 21
    assert len({row["reason"] for row in dead(file_ledger)}) == 25


@pytest.mark.shard("spark")
def test_rows_that_are_too_large(spark: SparkSession, file_ledger: Engine, tmp_path: Path) -> None:
    """Rows that are too large become letters, from files and from a DataFrame. If the letter itself is too
    large, the error names the file's line."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string())])
    file_ledger.admin.create_topic("notes", partitions=1, schema=schema, max_message_bytes=20_000)
    large = random.Random(18).randbytes(15_000).hex()
    (tmp_path / "f.csv").write_text(f"id,note\n1,a\n2,{large}\n3,c\n")
    path = str(tmp_path / "f.csv")
    done = load_files(spark, file_ledger, "notes", path, run_id="1", dead_letter_topic=DEAD)
    assert (done.records, done.dead_letters) == (2, 1)
    rows = spark.createDataFrame([(1, "a"), (2, large)], "id long, note string")
    frame = write_topic(
        rows, file_ledger, "notes", transactional_id="rows", run_id="1", dead_letter_topic=DEAD
    )
    assert (frame.records, frame.dead_letters) == (1, 1)
    assert [row["source_line"] for row in dead(file_ledger)] == [3, None]
    assert {row["reason"][:26] for row in dead(file_ledger)} == {"a record that is too large"}
    file_ledger.admin.alter_configs({"max.message.bytes": 20_000}, topic=DEAD)
    with refused(SparkJobError, Reason.DEAD_LETTER_TOO_LARGE) as failed:
        load_files(spark, file_ledger, "notes", path, run_id="2", dead_letter_topic=DEAD)
    assert "'payments-dead'" in str(failed.value)
    assert "f.csv line 3" in str(failed.value)
