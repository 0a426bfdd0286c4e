"""The calls that Spark makes of `format("txn_engine")`, made here in Spark's order and without its JVM.

What Spark makes of the answers is tested in test_source.py and test_checkpoints.py.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType

import txn_engine
from tests.spark.conftest import SCHEMA, load, payments
from tests.support.refusals import refused
from txn_engine import AddColumn
from txn_engine.engine import Engine
from txn_engine.errors import (
    InvalidRegularExpressionError,
    InvalidRequestError,
    InvalidTxnStateError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    SchemaChangedError,
    UnknownTopicOrPartitionError,
)
from txn_engine.maintain import MaintenancePolicy
from txn_engine.reasons import Reason
from txn_engine.spark.columns import spark_schema
from txn_engine.spark.source import TxnEngineSource
from txn_engine.spark.source.options import SinkOptions, StoreOptions
from txn_engine.spark.source.reading import StreamReader
from txn_engine.spark.source.sink import StreamRun, StreamWriter

QUERY, ANOTHER_QUERY = "5f0c8f3e-0000-4000-8000-000000000001", "5f0c8f3e-0000-4000-8000-000000000002"
Part = TypeVar("Part")


def sent(part: Part) -> Part:
    """What another process of Spark's gets of it."""
    copied: Part = pickle.loads(pickle.dumps(part))
    return copied


def source(engine: Engine, **options: object) -> TxnEngineSource:
    given = {"url": engine.url} | {name: str(value) for name, value in options.items()}
    if not options.keys() & {"topic", "subscribePattern", "assign"}:
        given.setdefault("subscribe", "payments")
    return TxnEngineSource(given)


def rows_of(reader: Any, partitions: Any) -> pa.Table:
    batches = [batch for task in partitions for batch in sent(reader).read(sent(task))]
    return pa.Table.from_batches(batches) if batches else pa.table({})


def batch_read(engine: Engine, *columns: str, **options: object) -> pa.Table:
    """A whole batch read, as Spark does it."""
    asked = source(engine, **options)
    schema = asked.schema()
    reader = asked.reader(StructType([schema[name] for name in columns]) if columns else schema)
    return rows_of(reader, reader.partitions())


def stream(engine: Engine, **options: object) -> StreamReader:
    asked = source(engine, **options)
    return asked.streamReader(asked.schema())


def trans_ids(table: pa.Table) -> list[int]:
    ids: list[Any] = table.column("trans_id").to_pylist() if table.num_columns else []
    return sorted(ids)


def copied(engine: Engine) -> list[int]:
    return trans_ids(engine.scan("copies").to_table(["trans_id"]))


# --- reads ------------------------------------------------------------------------------------------------


def test_a_batch_read_in_pieces(ledger: Engine) -> None:
    """Each record comes once, under the names that were asked for, Kafka's among them."""
    load(ledger, 0, 300)
    load(ledger, 300, 20, commit=False)
    names = ("trans_id", "topic", "partition", "offset", "timestamp", "timestampType", "_topic", "_offset")
    found = batch_read(ledger, *names, includeKafkaColumns="true", maxRecordsPerPartition="40")
    assert trans_ids(found) == list(range(300))
    assert found.column_names == list(names)
    assert found.column("topic").unique().to_pylist() == ["payments"]
    assert found.column("timestampType").unique().to_pylist() == [0]
    assert found.column("offset").equals(found.column("_offset"))
    assert batch_read(ledger, "_topic").num_rows == 300
    assert trans_ids(batch_read(ledger, isolationLevel="read_uncommitted")) == list(range(320))


def test_topics_of_a_read(copies: Engine) -> None:
    """Topics come by name, by a pattern, or as single partitions. They have the same columns, or are refused."""
    load(copies, 0, 60)
    with copies.producer() as producer:
        producer.produce("copies", payments(500, 10), partition=1).result()
    assert batch_read(copies, subscribePattern="(pay|cop).*").num_rows == 70
    assert trans_ids(batch_read(copies, assign='{"copies": [1]}')) == list(range(500, 510))
    for given, kind, reason in (
        ({"subscribePattern": "pay"}, UnknownTopicOrPartitionError, Reason.NO_MATCHING_TOPIC),
        ({"subscribePattern": "pay("}, InvalidRegularExpressionError, Reason.BAD_OPTION_VALUE),
        ({"subscribe": "payments,balances"}, InvalidRequestError, Reason.DIFFERENT_COLUMNS),
        ({"includeHeaders": "true"}, InvalidRequestError, Reason.NO_HEADERS),
    ):
        with refused(kind, reason):
            source(copies, **given).schema()
    copies.admin.create_topic("moved", schema=pa.schema(list(SCHEMA)[::-1]))
    with refused(InvalidRequestError, Reason.DIFFERENT_COLUMNS) as moved:
        source(copies, subscribe="payments,moved").schema()
    assert "their order differs" in str(moved.value)


def test_a_schema_that_was_given(ledger: Engine) -> None:
    """By `.schema(...)` a read takes some of the columns, as they are."""
    load(ledger, 0, 10)
    for field, reason in (
        (StructField("nothing", StringType()), Reason.UNKNOWN_COLUMN),
        (StructField("trans_id", StringType()), Reason.TYPE_MISMATCH),
    ):
        with refused(InvalidRequestError, reason):
            source(ledger).reader(StructType([field])).partitions()
        with refused(InvalidRequestError, reason):
            source(ledger).streamReader(StructType([field])).initialOffset()


def test_bounds_that_are_refused(ledger: Engine) -> None:
    """The error says which option and which partition it is about."""
    load(ledger, 0, 90)
    ends = {tp.partition: end for tp, end in ledger.scan("payments").offsets.items()}
    all_of = {str(number): -2 for number in ends}
    for start, end, kind, reason in (
        ({"0": 5}, {}, InvalidRequestError, Reason.OTHER_PARTITIONS),
        (all_of | {"7": 1}, {}, InvalidRequestError, Reason.OTHER_PARTITIONS),
        (all_of | {"0": 1_000}, {}, OffsetOutOfRangeError, Reason.OFFSET_NOT_IN_LOG),
        (all_of | {"0": 5}, dict.fromkeys(all_of, 2), OffsetOutOfRangeError, Reason.END_BEFORE_START),
    ):
        given = {"startingOffsets": json.dumps({"payments": start})}
        if end:
            given["endingOffsets"] = json.dumps({"payments": end})
        with refused(kind, reason):
            batch_read(ledger, **given)


def test_times_bound_a_read(ledger: Engine) -> None:
    """A read begins at the first record of a time or later. Where there is no such record, the strategy decides."""
    load(ledger, 0, 60)
    stamps: list[Any] = (
        ledger.scan("payments").to_table(["_timestamp"]).column(0).cast(pa.int64()).to_pylist()
    )
    between = max(stamps) + 1
    load(ledger, 60, 30)
    assert min(trans_ids(batch_read(ledger, startingTimestamp=between))) >= 60
    assert trans_ids(batch_read(ledger, endingTimestamp=between)) == list(range(60))
    times = json.dumps({"payments": dict.fromkeys(("0", "1", "2"), between + 10**9)})
    with refused(OffsetOutOfRangeError, Reason.NO_RECORD_SINCE):
        batch_read(ledger, startingOffsetsByTimestamp=times)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert batch_read(ledger, startingOffsetsByTimestamp=times, **latest).num_rows == 0


# --- streams ----------------------------------------------------------------------------------------------


def test_a_stream_from_offset_to_offset(ledger: Engine) -> None:
    """Micro-batches follow one another without a gap, within the limit, and the group follows them."""
    reader = stream(ledger, startingOffsets="earliest", maxOffsetsPerTrigger=25, groupId="followers")
    at = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    load(ledger, 0, 100)
    load(ledger, 100, 10, commit=False)
    seen: list[int] = []
    while (end := reader.latestOffset(at, limit)) != at:
        tasks = reader.partitions(at, end)
        assert reader.partitions(at, end) is tasks
        found = trans_ids(rows_of(reader, tasks))
        assert len(found) <= 25
        seen += found
        reader.commit(end)
        at = end
    assert sorted(seen) == list(range(100))
    reported = reader.reportLatestOffset()
    assert reported is not None
    assert "_logEnd" in reported
    lag = {lag.partition: lag.lag for lag in ledger.admin.describe_group("followers").partitions}
    assert set(lag.values()) == {0}
    reader.stop()


def test_a_batch_that_waits_for_more(ledger: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """`minOffsetsPerTrigger` holds a batch back until `maxTriggerDelay` has passed. A run that only takes what is there
    does not wait.
    """
    now_ms = 1_000
    monkeypatch.setattr("txn_engine.spark.source.reading.monotonic_ms", lambda: now_ms)
    load(ledger, 0, 30)
    given = {"startingOffsets": "earliest", "minOffsetsPerTrigger": 1_000, "maxTriggerDelay": "20s"}
    reader = stream(ledger, **given)
    at = reader.initialOffset()
    assert reader.latestOffset(at, ReadAllAvailable()) == at
    now_ms += 19_000
    assert reader.latestOffset(at, ReadAllAvailable()) == at
    now_ms += 2_000
    end = reader.latestOffset(at, ReadAllAvailable())
    assert trans_ids(rows_of(reader, reader.partitions(at, end))) == list(range(30))

    once = stream(ledger, **given)
    once.prepareForTriggerAvailableNow()
    load(ledger, 30, 30)
    end = once.latestOffset(at, ReadAllAvailable())
    assert trans_ids(rows_of(once, once.partitions(at, end))) == list(range(30))
    assert once.latestOffset(end, ReadAllAvailable()) == end


def remake(engine: Engine, *, schema: pa.Schema = SCHEMA, partitions: int = 3) -> None:
    engine.admin.delete_topic("payments")
    engine.admin.create_topic("payments", partitions=partitions, schema=schema)


def test_a_topic_that_was_made_again(ledger: Engine) -> None:
    """It is data loss for the stream that read it, before a batch is planned and after. Where data loss is no error,
    the new topic is read from its beginning.
    """
    load(ledger, 0, 30)
    strict = stream(ledger, startingOffsets="earliest")
    at = strict.initialOffset()
    end = strict.latestOffset(at, ReadAllAvailable())
    with refused(OffsetOutOfRangeError, Reason.PARTITION_GONE):
        stream(ledger, assign='{"payments": [0, 1]}').latestOffset(end, ReadAllAvailable())
    remake(ledger, partitions=2)
    with ledger.producer() as producer:
        producer.produce("payments", payments(700, 25)).result()
    with refused(OffsetOutOfRangeError, Reason.TOPIC_MADE_AGAIN):
        stream(ledger).partitions(at, end)
    with refused(OffsetOutOfRangeError, Reason.TOPIC_MADE_AGAIN):
        stream(ledger).latestOffset(end, ReadAllAvailable())
    lenient = stream(ledger, failOnDataLoss="false")
    assert rows_of(lenient, lenient.partitions(at, end)).num_rows == 0
    new = lenient.latestOffset(end, ReadAllAvailable())
    assert trans_ids(rows_of(lenient, lenient.partitions(end, new))) == list(range(700, 725))


def test_records_that_retention_took(ledger: Engine) -> None:
    """What a stream did not read in time is data loss, and a topic that is gone is as well."""
    load(ledger, 0, 30)
    schema = source(ledger).schema()
    reader = stream(ledger, startingOffsets="earliest")
    at = reader.initialOffset()
    ledger.admin.alter_configs({"retention.ms": 1}, topic="payments")
    time.sleep(0.1)
    ledger.maintenance.retain("payments", policy=MaintenancePolicy(trim_step=1))
    load(ledger, 30, 30)
    with refused(OffsetOutOfRangeError, Reason.RECORDS_GONE):
        reader.latestOffset(at, ReadAllAvailable())
    lenient = stream(ledger, failOnDataLoss="false")
    end = lenient.latestOffset(at, ReadAllAvailable())
    assert trans_ids(rows_of(lenient, lenient.partitions(at, end))) == list(range(30, 60))
    ledger.admin.delete_topic("payments")
    with refused(UnknownTopicOrPartitionError, Reason.TOPIC_DELETED):
        source(ledger).streamReader(schema).partitions(at, end)


def test_checkpoints_that_are_not_the_streams(ledger: Engine, tmp_path: Path) -> None:
    """Offsets of another store, or past the end of the log, are refused."""
    load(ledger, 0, 30)
    reader = stream(ledger, startingOffsets="earliest")
    at = reader.initialOffset()
    end = reader.latestOffset(at, ReadAllAvailable())
    past = end | {"payments": dict.fromkeys(end["payments"], 10_000)}
    with refused(OffsetOutOfRangeError, Reason.CHECKPOINT_PAST_LOG_END):
        reader.partitions(at, past)
    with txn_engine.connect(f"file://{tmp_path}/another") as another:
        another.admin.create_topic("payments", partitions=3, schema=SCHEMA)
        with refused(InvalidRequestError, Reason.CHECKPOINT_OF_ANOTHER_STORE):
            stream(another).latestOffset(end, ReadAllAvailable())


def test_columns_that_change_under_a_stream(ledger: Engine) -> None:
    """A column that was added does not disturb a stream. One that is gone ends it."""
    load(ledger, 0, 30)
    reader = stream(ledger, startingOffsets="earliest", failOnDataLoss="false")
    at = reader.initialOffset()
    ledger.admin.alter_topic("payments", AddColumn(pa.field("note", pa.string())))
    end = reader.latestOffset(at, ReadAllAvailable())
    assert trans_ids(rows_of(reader, reader.partitions(at, end))) == list(range(30))
    remake(ledger, schema=pa.schema([("trans_id", pa.string())]))
    with refused(SchemaChangedError, Reason.TYPE_MISMATCH):
        reader.latestOffset(end, ReadAllAvailable())


def test_a_group_that_cannot_follow(ledger: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """The stream goes on, and says so."""
    load(ledger, 0, 30)
    reader = stream(ledger, startingOffsets="earliest", groupId="followers")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    ledger.admin.delete_topic("payments")
    reader.commit(end)
    assert "'followers' does not follow" in caplog.text


# --- writes -----------------------------------------------------------------------------------------------


def uploaded(writer: Any, *tasks: pa.Table) -> list[WriterCommitMessage | None]:
    """Plan a write, and run its tasks."""
    planned = sent(writer)
    return [sent(planned).write(iter(task.to_batches())) for task in tasks]


def batch_writer(engine: Engine, **options: object) -> Any:
    schema = spark_schema(SCHEMA, topic="copies")
    return source(engine, topic="copies", **options).writer(schema, overwrite=False)


def test_a_batch_write(copies: Engine) -> None:
    """Nothing is visible before the commit, and under a run id it is written once however often it is tried."""
    named = {"transactionalId": "copy", "runId": "monday"}
    done: list[int] = []
    for _ in range(2):
        writer = batch_writer(copies, **named)
        messages = uploaded(writer, payments(0, 50), payments(50, 40))
        assert copied(copies) == done
        sent(writer).commit(messages)
        assert copied(copies) == list(range(90))
        done = copied(copies)
    unnamed = batch_writer(copies)
    unnamed.commit([])
    unnamed.abort(uploaded(unnamed, payments(900, 5)))
    assert copied(copies) == list(range(90))
    with refused(InvalidRequestError, Reason.RUN_ID_ALONE):
        batch_writer(copies, runId="monday")


def test_a_topic_made_again_during_a_write(copies: Engine) -> None:
    """The write is refused, and the new topic stays empty."""
    writer = batch_writer(copies)
    messages = uploaded(writer, payments(0, 50))
    copies.admin.delete_topic("copies")
    copies.admin.create_topic("copies", schema=SCHEMA)
    with refused(UnknownTopicOrPartitionError, Reason.TOPIC_MADE_AGAIN):
        sent(writer).commit(messages)
    assert copied(copies) == []


def test_rows_of_kafkas_sink(ledger: Engine) -> None:
    """A topic with Kafka's columns takes text for bytes, and columns that are not there are null."""
    ledger.admin.create_topic("events", partitions=1)
    schema = StructType([StructField("value", StringType()), StructField("key", StringType())])
    writer = source(ledger, topic="events").writer(schema, overwrite=False)
    messages = uploaded(writer, pa.table({"value": ["n0", "n1"], "key": ["a", None]}))
    sent(writer).commit(messages)
    found = ledger.scan("events").to_table(["key", "value", "headers"]).to_pylist()
    assert [(row["key"], row["value"], row["headers"]) for row in found] == [
        (b"a", b"n0", None),
        (None, b"n1", None),
    ]
    for fields in (
        [StructField("key", StringType())],
        [StructField("value", StringType()), StructField("topic", StringType())],
    ):
        with pytest.raises(pickle.PickleError, match=r"\['key', 'value', 'headers'\]"):
            sent(source(ledger, topic="events").writer(StructType(fields), overwrite=False))


def test_what_is_no_append(copies: Engine) -> None:
    """A log keeps what was written, so overwriting is refused in both kinds of write."""
    schema = spark_schema(SCHEMA, topic="copies")
    with refused(InvalidRequestError, Reason.APPEND_ONLY):
        source(copies, topic="copies").writer(schema, overwrite=True)
    with refused(InvalidRequestError, Reason.APPEND_ONLY):
        source(copies, topic="copies", checkpointLocation="file:///ck").streamWriter(schema, overwrite=True)
    with refused(InvalidRequestError, Reason.NO_SINK_ID):
        source(copies, topic="copies").streamWriter(schema, overwrite=False)


# --- streaming writes -------------------------------------------------------------------------------------


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """This process is a task of a query, whose properties can be changed."""
    context = TaskContext._getOrCreate()
    properties = {"sql.streaming.queryId": QUERY}
    monkeypatch.setattr(context, "_localProperties", properties, raising=False)
    monkeypatch.setattr(context, "_partitionId", 0, raising=False)
    yield properties
    TaskContext._taskContext = None


class Journal:
    """A query's checkpoint, with the files that Spark writes before it plans a micro-batch."""

    def __init__(self, folder: Path, query_id: str = QUERY) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "metadata").write_text(json.dumps({"id": query_id}))
        (folder / "offsets").mkdir()

    def plan(self, batch_id: int, offset: object) -> None:
        """Journal how far a micro-batch goes."""
        text = f"v1\n{json.dumps({'batchTimestampMs': 1})}\n{json.dumps(offset)}"
        (self.folder / "offsets" / str(batch_id)).write_text(text)


def stream_writer(engine: Engine, journal: Journal, **options: object) -> StreamWriter:
    schema = spark_schema(SCHEMA, topic="copies")
    given = {"checkpointLocation": f"file://{journal.folder}", **options}
    return source(engine, topic="copies", **given).streamWriter(schema, overwrite=False)


def write_batch(writer: StreamWriter, batch_id: int, *tasks: pa.Table) -> None:
    """Write a micro-batch. Spark makes a new writer for each."""
    messages = uploaded(writer, *tasks)
    sent(writer).commit(messages, batch_id)


@pytest.mark.usefixtures("query")
def test_a_micro_batch_is_written_once(copies: Engine, tmp_path: Path) -> None:
    """A micro-batch that is tried again with its plan is done. With another plan it is refused, and so is one before
    the last.
    """
    journal = Journal(tmp_path / "ck")
    for number in range(2):
        journal.plan(number, {"payments": {"0": 50 * (number + 1)}})
        for _ in range(2):
            tasks = (payments(50 * number, 30), payments(50 * number + 30, 20))
            write_batch(stream_writer(copies, journal), number, *tasks)
            assert copied(copies) == list(range(50 * (number + 1)))
    stream_writer(copies, journal).commit([], 2)
    with refused(InvalidTxnStateError, Reason.OLDER_CHECKPOINT):
        write_batch(stream_writer(copies, journal), 0, payments(0, 50))
    journal.plan(1, {"payments": {"0": 101}})
    with refused(InvalidTxnStateError, Reason.OLDER_CHECKPOINT):
        write_batch(stream_writer(copies, journal), 1, payments(200, 50))
    assert copied(copies) == list(range(100))


@pytest.mark.usefixtures("query")
def test_rows_decide_where_offsets_do_not(copies: Engine, tmp_path: Path) -> None:
    """A source whose offset is a counter names no rows, so the rows of the second try are compared."""
    journal = Journal(tmp_path / "ck")
    journal.plan(0, 7)
    write_batch(stream_writer(copies, journal), 0, payments(0, 50))
    write_batch(stream_writer(copies, journal), 0, payments(30, 20), payments(0, 30))
    with refused(InvalidTxnStateError, Reason.UNKNOWN_ROWS):
        write_batch(stream_writer(copies, journal), 0, payments(1, 50))
    assert copied(copies) == list(range(50))


def test_checkpoints_of_other_queries(copies: Engine, tmp_path: Path, query: dict[str, str]) -> None:
    """A new checkpoint under the id of another query is refused unless it takes over. A checkpoint that was moved is
    refused, and so is a folder that is another query's.
    """
    journal = Journal(tmp_path / "one")
    journal.plan(0, {"payments": {"0": 50}})
    write_batch(stream_writer(copies, journal), 0, payments(0, 50))
    moved = Journal(tmp_path / "moved")
    moved.plan(0, {"payments": {"0": 50}})
    with refused(InvalidTxnStateError, Reason.QUERY_UNDER_ANOTHER_ID):
        write_batch(stream_writer(copies, moved), 0, payments(0, 50))

    query["sql.streaming.queryId"] = ANOTHER_QUERY
    with refused(InvalidRequestError, Reason.UNRESOLVED_CHECKPOINT):
        write_batch(stream_writer(copies, journal), 0, payments(50, 10))
    (journal.folder / "metadata").write_text(json.dumps({"id": ANOTHER_QUERY}))
    with refused(InvalidTxnStateError, Reason.ID_OF_ANOTHER_QUERY):
        write_batch(stream_writer(copies, journal), 0, payments(50, 10))
    assert copied(copies) == list(range(50))
    write_batch(stream_writer(copies, journal, takeOver="true"), 0, payments(50, 10))
    assert copied(copies) == list(range(60))


@pytest.mark.usefixtures("query")
def test_a_query_that_was_overtaken(copies: Engine, tmp_path: Path) -> None:
    """A commit after another client claimed the id is refused."""
    journal = Journal(tmp_path / "ck")
    journal.plan(0, {"payments": {"0": 50}})
    writer = stream_writer(copies, journal, transactionalId="copier")
    messages = uploaded(writer, payments(0, 50))
    with copies.producer(transactional_id="copier") as producer:
        producer.init_transactions()
    with refused(ProducerFencedError, Reason.QUERY_OVERTAKEN):
        sent(writer).commit(messages, 0)
    assert copied(copies) == []


OPTIONS = SinkOptions(StoreOptions("file:///ledger"), "copies")
TAKES_OVER = SinkOptions(StoreOptions("file:///ledger"), "copies", take_over=True)
BATCH = StreamRun(QUERY, 4, 10, "plan", "rows")


@pytest.mark.parametrize(
    ("committed", "options", "names_rows", "answer"),
    [
        (None, OPTIONS, True, False),
        (str(BATCH), OPTIONS, True, True),
        (str(BATCH), OPTIONS, False, True),
        (f"{QUERY}/3/10/plan/rows", OPTIONS, True, False),
        (f"{QUERY}/4/99/plan/other", OPTIONS, True, True),
        (f"{QUERY}/4/99/plan/other", OPTIONS, False, Reason.UNKNOWN_ROWS),
        (f"{QUERY}/4/10//other", OPTIONS, True, Reason.UNKNOWN_ROWS),
        (f"{QUERY}/4/10//rows", OPTIONS, True, True),
        (f"{QUERY}/4/11//rows", OPTIONS, True, Reason.UNKNOWN_ROWS),
        (f"{QUERY}/4/10/plan2/rows", OPTIONS, True, Reason.OLDER_CHECKPOINT),
        (f"{QUERY}/5/10/plan/rows", OPTIONS, True, Reason.OLDER_CHECKPOINT),
        (f"{ANOTHER_QUERY}/4/10/plan/rows", OPTIONS, True, Reason.ID_OF_ANOTHER_QUERY),
        (f"{ANOTHER_QUERY}/4/10/plan/rows", TAKES_OVER, True, False),
        ("monday", OPTIONS, True, Reason.ID_OF_ANOTHER_QUERY),
        ("a/x/10/plan/rows", OPTIONS, True, Reason.ID_OF_ANOTHER_QUERY),
    ],
)
def test_whether_a_batch_is_done(
    committed: str | None, options: SinkOptions, names_rows: bool, answer: bool | Reason
) -> None:
    """By the latest transaction of its id a micro-batch is done, or is to be written, or is refused."""
    before = [] if committed is None else [f"{QUERY}/0/1//", committed]
    if isinstance(answer, bool):
        assert BATCH.is_done(before, options, names_rows=names_rows) is answer
        return
    with refused(InvalidTxnStateError, answer):
        BATCH.is_done(before, options, names_rows=names_rows)
