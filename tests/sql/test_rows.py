"""`engine.sql` has the rows and types of `scan` at the same cut, on every kind of store."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import txn_engine
from tests.conftest import S3Bucket
from tests.engine.conftest import payments
from tests.engine.test_cuts import mark
from tests.suite.tiers import in_shard
from tests.support.internal import FEW_INTERNAL
from tests.tables.ledgers import EAGER, Ledger, engine_on
from txn_engine import Engine
from txn_engine.errors import ConcurrentTransactionsError, CorruptObjectError
from txn_engine.log.cut_format import Cut
from txn_engine.quality.digest import digest_of
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock

UTC = dt.UTC
COLUMNS = ["_partition", "_offset", "_timestamp"]


@pytest.fixture(params=["memory", "folder", pytest.param("minio", marks=pytest.mark.minio)])
def any_store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> Iterator[Engine]:
    if request.param == "minio":
        bucket: S3Bucket = request.getfixturevalue("minio_bucket")
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        url = bucket.url
    else:
        # a folder that looks as if it had a column in its name
        (tmp_path / "amount=3").mkdir()
        url = (
            f"memory://sql-{uuid.uuid4().hex}"
            if request.param == "memory"
            else f"file://{tmp_path}/amount=3/l"
        )
    with txn_engine.connect(url, clock=clock, configs=FEW_INTERNAL) as engine:
        yield engine


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(clock: ManualClock) -> Iterator[Engine]:
    with engine_on(clock=clock) as made:
        yield made


def put(engine: Engine, topic: str, table: pa.Table, *, partition: int = 0) -> None:
    with engine.producer() as producer:
        producer.produce(topic, table, partition=partition).result()


def same_rows(engine: Engine, topic: str, cut: Any) -> None:
    """SQL returns the rows, columns and types of a scan."""
    expected = engine.scan(topic, cut=cut).to_table()
    found = engine.sql(f'SELECT * FROM "{topic}" ORDER BY _partition, _offset', cut=cut)
    assert found.column("_topic").to_pylist() == [topic] * expected.num_rows
    found = found.drop_columns(["_topic"])
    assert found.schema == expected.schema
    assert found.equals(expected)
    assert digest_of(found) == digest_of(expected)
    assert engine.sql(f'SELECT count(*) AS n FROM "{topic}"', cut=cut).to_pylist() == [{"n": len(expected)}]


ASKED = (
    "SELECT count(*) FROM payments",
    "SELECT count(*) AS n FROM payments p",
    "SELECT count(*) FROM payments WHERE _partition = 1",
    "SELECT _partition, count(*) FROM payments GROUP BY 1 ORDER BY 1",
    "SELECT max(_offset) FROM payments",
    "SELECT min(_offset) FROM payments WHERE _partition IN (1, 2)",
    "SELECT max(_offset), min(_offset) FROM payments",
    "SELECT max(_offset) FROM payments WHERE account > 3",
    "SELECT _partition, max(_offset) AS m FROM payments GROUP BY _partition ORDER BY m, _partition",
    "SELECT _partition, min(_offset) FROM payments GROUP BY 1 ORDER BY count(*), 1",
    "SELECT max(_offset) FROM payments HAVING count(*) > 3",
    "SELECT * FROM payments ORDER BY _offset, _partition LIMIT 3",
    "SELECT * FROM payments ORDER BY _offset DESC, _partition LIMIT 3 OFFSET 2",
    "SELECT * FROM payments ORDER BY _partition DESC, _offset LIMIT 5",
    "SELECT account, _offset FROM payments p WHERE p._partition <= 1 ORDER BY p._partition, _offset DESC LIMIT 4",
    "SELECT * FROM payments WHERE account = 3 ORDER BY _offset, _partition LIMIT 2",
    "SELECT DISTINCT account FROM payments ORDER BY account LIMIT 3",
    "SELECT * FROM payments WHERE _offset BETWEEN 3 AND 6 ORDER BY ALL",
    "SELECT * FROM payments WHERE 3 < _offset AND _offset <= 9 AND _partition != 1 ORDER BY ALL",
    "SELECT * FROM payments WHERE _offset >= 5 OR _partition = 0 ORDER BY ALL",
    "SELECT * FROM payments WHERE NOT _offset = 1 ORDER BY ALL",
    "SELECT * FROM payments WHERE _offset IN (0, 4, 8) AND account > -1 ORDER BY ALL",
    "SELECT * FROM payments WHERE _partition = 0 AND _offset = (SELECT max(_offset) FROM payments)",
    "SELECT account AS _offset FROM payments WHERE _offset < 4 ORDER BY _offset, account LIMIT 3",
    "SELECT * REPLACE (-_offset AS _offset) FROM payments ORDER BY _offset, _partition LIMIT 3",
    "SELECT a._offset FROM payments a JOIN payments b USING (account) WHERE a._offset < 3 ORDER BY ALL LIMIT 9",
    "SELECT _offset, row_number() OVER (ORDER BY _offset, _partition) AS r FROM payments ORDER BY _offset, r LIMIT 3",
)


def as_duckdb_has_it(engine: Engine, topic: str, cut: Cut) -> None:
    """SQL returns what DuckDB returns from a table of the same rows, where no file can be skipped."""
    rows = engine.scan(topic, cut=cut).to_table()
    with duckdb.connect() as beside:
        beside.execute("SET TimeZone = 'UTC'")
        at = rows.schema.get_field_index("_partition")
        beside.register("rows", rows.add_column(at, "_topic", pa.array([topic] * len(rows), pa.string())))
        beside.execute(f"CREATE TABLE {topic} AS FROM rows")
        for query in ASKED:
            expected = beside.sql(query).to_arrow_table()
            assert engine.sql(query, cut=cut).to_pylist() == expected.to_pylist(), query


# --- rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", in_shard("engines", range(8), keep=[5]))
def test_rows_are_those_of_a_scan_whatever_happened(seed: int) -> None:
    """SQL has the rows of a scan at every cut, after aborts, open transactions, merges, compaction by key,
    retention, seals and new partitions."""
    clock = ManualClock()
    with engine_on(clock=clock) as engine:
        ledger = Ledger(engine, clock, seed)
        cuts = []
        for _ in range(8):
            for _ in range(4):
                ledger.step()
            with suppress(ConcurrentTransactionsError):  # where entries were sealed before the first cut
                now = engine.sql("SELECT * EXCLUDE (_topic) FROM payments ORDER BY _partition, _offset")
                cuts.append(ledger.cut())
                assert now.equals(engine.scan("payments", cut=cuts[-1]).to_table())
        assert cuts
        for cut in cuts:
            same_rows(engine, "payments", cut)
        for cut in cuts[-2:]:
            as_duckdb_has_it(engine, "payments", cut)
        # all is decided: what is there now is what a scan sees
        ledger.close()
        engine.coordinator.write_pending_markers()
        found = engine.sql("SELECT account, amount FROM payments ORDER BY _partition, _offset")
        assert found.equals(engine.scan("payments").to_table(["account", "amount"]))


def test_every_kind_of_store(any_store: Engine, clock: ManualClock) -> None:
    ledger = Ledger(any_store, clock, 5)
    for _ in range(25):
        ledger.step()
    cut = ledger.cut()
    same_rows(any_store, "payments", cut)
    ledger.close()
    assert any_store.sql("SELECT sum(amount) AS s FROM payments", cut=cut).schema == pa.schema(
        [("s", pa.decimal128(38, 2))]
    )


def test_a_file_that_is_cut_gives_what_is_inside(engine: Engine) -> None:
    """Only the records inside the cut are returned of a merged file that reaches past it, whose transaction
    has no marker in the other partition yet."""
    engine.admin.create_topic("payments", partitions=2, schema=payments(1).schema)
    put(engine, "payments", payments(1))
    with engine.producer(transactional_id="half", markers="deferred") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("payments", payments(7), partition=partition).result()
        producer.commit_transaction()
        mark(engine, producer, "payments", 0)
        put(engine, "payments", payments(2))
        engine.maintenance.compact("payments", policy=EAGER)
        assert [file.record_count for file in engine.scan("payments").files()] == [3]
        cut = engine.cut()
        (part,) = engine.scan("payments", cut=cut).files()
        assert (part.first_row, part.end_row, part.record_count) == (0, 1, 3)
        same_rows(engine, "payments", cut)
        assert accounts(engine.sql("SELECT account_id FROM payments")) == [1]
        engine.coordinator.write_pending_markers()
        assert accounts(engine.sql("SELECT account_id FROM payments ORDER BY ALL")) == [1, 2, 7, 7]


def accounts(table: pa.Table) -> list[int]:
    return table.column("account_id").to_pylist()


def test_a_query_without_a_cut_sees_what_is_committed_now_and_leaves_nothing(engine: Engine) -> None:
    engine.admin.create_topic("payments", partitions=2, schema=payments(1).schema)
    put(engine, "payments", payments(1))
    before = sorted(each.key for each in engine.store.list(""))
    assert accounts(engine.sql("SELECT account_id FROM payments")) == [1]
    assert sorted(each.key for each in engine.store.list("")) == before
    assert engine.cuts() == []
    put(engine, "payments", payments(2), partition=1)
    assert sorted(accounts(engine.sql("SELECT account_id FROM payments"))) == [1, 2]


def test_a_named_cut_stays_as_it_is(engine: Engine) -> None:
    engine.admin.create_topic("payments", partitions=1, schema=payments(1).schema)
    put(engine, "payments", payments(1))
    cut = engine.cut()
    put(engine, "payments", payments(2))
    for named in (cut, cut.number, cut):
        assert accounts(engine.sql("SELECT account_id FROM payments", cut=named)) == [1]


def test_several_topics_at_one_cut(engine: Engine) -> None:
    engine.admin.create_topic("payments", partitions=1, schema=payments(1).schema)
    engine.admin.create_topic("fees", partitions=1, schema=payments(1).schema)
    with engine.producer(transactional_id="both", markers="deferred") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for topic in ("payments", "fees"):
            producer.produce(topic, payments(7), partition=0).result()
        producer.commit_transaction()
        assert engine.sql("SELECT * FROM payments JOIN fees USING (account_id)").num_rows == 0
        engine.coordinator.write_pending_markers()
    joined = engine.sql(
        "SELECT p._topic AS paid, f._topic AS charged, p.amount FROM payments p JOIN fees f USING (account_id)"
    )
    assert joined.to_pylist() == [{"paid": "payments", "charged": "fees", "amount": Decimal("1.00")}]


def test_a_transaction_that_is_marked_in_one_partition_alone_does_not_show_by_half(engine: Engine) -> None:
    engine.admin.create_topic("payments", partitions=2, schema=payments(1).schema)
    with engine.producer(transactional_id="half", markers="deferred") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("payments", payments(7), partition=partition).result()
        producer.commit_transaction()
        mark(engine, producer, "payments", 0)
        assert engine.scan("payments").to_table().num_rows == 1
        assert engine.sql("SELECT * FROM payments").num_rows == 0
        engine.coordinator.write_pending_markers()
        assert engine.sql("SELECT * FROM payments").num_rows == 2


# --- columns ----------------------------------------------------------------------------------------------------

D = Decimal


@pytest.mark.parametrize("files", [1, 6])
@pytest.mark.parametrize("damage", ["gone", "longer"])
def test_a_count_names_a_file_that_is_gone(engine: Engine, files: int, damage: str) -> None:
    """A count comes from the log without a look into files, and is still refused if a file is gone or has another size.
    A file of another partition that is asked for alone is not missed."""
    engine.admin.create_topic("payments", partitions=2, schema=payments(1).schema)
    for number in range(files):
        put(engine, "payments", payments(number))
    put(engine, "payments", payments(1), partition=1)
    cut = engine.cut()
    key = max(info.key for info in engine.store.list("topics/payments/0/0/data/"))
    whole = engine.store.get(key)
    count = "SELECT count(*) AS n FROM payments"
    assert engine.sql(count).to_pylist() == [{"n": files + 1}]
    engine.store.delete(key)
    if damage == "longer":
        engine.store.put(key, bytes(whole) + b"more")
    for at_cut in (None, cut):
        with pytest.raises(CorruptObjectError) as refused:
            engine.sql(count, cut=at_cut)
        assert (refused.value.place, refused.value.reason) == (key, Reason.DATA_FILE_MISSING)
    assert engine.sql(f"{count} WHERE _partition = 1").to_pylist() == [{"n": 1}]
    engine.store.put(key, whole)
    assert engine.sql(count).to_pylist() == [{"n": files + 1}]


def at(*parts: int) -> dt.datetime:
    """A time without a zone."""
    return dt.datetime(*parts)  # noqa: DTZ001 -- the types are of both kinds


KINDS: dict[str, tuple[Any, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "int8": (pa.int8(), [-128, 127]),
    "int16": (pa.int16(), [-(2**15), 5]),
    "int32": (pa.int32(), [-(2**31), 5]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1]),
    "uint8": (pa.uint8(), [255, 0]),
    "uint16": (pa.uint16(), [65_535, 0]),
    "uint32": (pa.uint32(), [2**32 - 1, 0]),
    "uint64": (pa.uint64(), [2**64 - 1, 0]),
    "float16": (pa.float16(), [np.float16(1.5), np.float16(-0.0)]),
    "float32": (pa.float32(), [1.1, float("-inf")]),
    "float64": (pa.float64(), [1.1, -0.0]),
    "string": (pa.string(), ["a", ""]),
    "large_string": (pa.large_string(), ["a", "ü"]),
    "string_view": (pa.string_view(), ["a", "x"]),
    "binary": (pa.binary(), [b"a", b"\xff\x00"]),
    "large_binary": (pa.large_binary(), [b"a", b"\xff\x00"]),
    "fixed": (pa.binary(3), [b"abc", b"\xff\x00a"]),
    "date32": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "date64": (pa.date64(), [dt.date(1970, 1, 1), dt.date(2020, 12, 31)]),
    "time_s": (pa.time32("s"), [dt.time(1, 2, 3), dt.time(0)]),
    "time_ms": (pa.time32("ms"), [dt.time(1, 2, 3), dt.time(23, 59, 59, 999_000)]),
    "time_us": (pa.time64("us"), [dt.time(1, 2, 3, 4), dt.time(0)]),
    "time_ns": (pa.time64("ns"), [1_234_567_891, 0]),
    "at_s": (pa.timestamp("s"), [at(2020, 1, 1), at(1, 1, 1)]),
    "at_ms": (pa.timestamp("ms"), [at(2020, 1, 1), at(9999, 1, 1)]),
    "at_us": (pa.timestamp("us"), [at(2020, 1, 1, 0, 0, 0, 1), at(1, 1, 1)]),
    "at_ns": (pa.timestamp("ns"), [1_234_567_891_234_567_891, 0]),
    "at_ms_utc": (pa.timestamp("ms", "UTC"), [dt.datetime(2020, 1, 1, tzinfo=UTC)] * 2),
    "at_ns_utc": (pa.timestamp("ns", "UTC"), [1_234_567_891_234_567_891, 0]),
    "at_prague": (pa.timestamp("ms", "Europe/Prague"), [dt.datetime(2020, 1, 1, tzinfo=UTC)] * 2),
    "decimal9": (pa.decimal128(9, 2), [D("1.23"), D("-1234567.89")]),
    "decimal38": (pa.decimal128(38, 10), [D("9999999999999999999999999999.0123456789"), D(0)]),
    "decimal32": (pa.decimal32(5, 2), [D("1.23"), D("-1.00")]),
    "decimal64": (pa.decimal64(15, 2), [D("1.23"), D("-1.00")]),
    "decimal256": (pa.decimal256(38, 5), [D("1.12345"), D("1.00000")]),
    "duration": (pa.duration("ms"), [dt.timedelta(1), dt.timedelta(0)]),
    "list": (pa.list_(pa.timestamp("ms")), [[at(2020, 1, 1), None], []]),
    "large_list": (pa.large_list(pa.int64()), [[1, None], []]),
    "fixed_list": (pa.list_(pa.int64(), 2), [[1, 2], [3, None]]),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.time32("s"))]), [{"a": 1, "b": dt.time(1)}, {"a": None}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], []]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["a", "b"]),
    "null": (pa.null(), [None, None]),
    "uuid": (pa.uuid(), [uuid.UUID(int=1).bytes, uuid.UUID(int=2).bytes]),
    "json": (pa.json_(), ['{"a":1}', "[]"]),
}  # fmt: skip


def test_every_type_comes_as_scan_gives_it(engine: Engine) -> None:
    schema = pa.schema([(name, kind) for name, (kind, _) in KINDS.items()])
    engine.admin.create_topic("typed", partitions=2, schema=schema)
    engine.admin.create_topic("empty", partitions=1, schema=schema)
    columns = [pa.array([*values, None], kind) for kind, values in KINDS.values()]
    put(engine, "typed", pa.table(columns, schema=schema))
    cut = engine.cut()
    same = engine.sql("SELECT * EXCLUDE (_topic) FROM typed ORDER BY _offset", cut=cut)
    assert same.equals(engine.scan("typed", cut=cut).to_table())
    empty = engine.sql("SELECT * EXCLUDE (_topic) FROM empty", cut=cut)
    assert empty.schema == engine.scan("empty", cut=cut).to_table().schema
    assert empty.num_rows == 0


def test_kafkas_own_schema(engine: Engine) -> None:
    engine.admin.create_topic("kafka", partitions=1)
    schema: Any = engine.admin.describe_topic("kafka").schema
    headers = [[{"key": "h", "value": b"\x00"}], None]
    put(engine, "kafka", pa.table([[b"k", None], [b"v", None], headers], schema=schema))
    found = engine.sql("SELECT key, value, headers FROM kafka ORDER BY _offset")
    assert found.equals(engine.scan("kafka").to_table(["key", "value", "headers"]))
    assert engine.sql("SELECT headers[1].key AS k FROM kafka WHERE key = 'k'::BLOB").to_pylist() == [
        {"k": "h"}
    ]


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("SELECT _timestamp FROM t", [pa.timestamp("ms", "UTC")]),
        ("SELECT _timestamp AS at FROM t", [pa.timestamp("ms", "UTC")]),
        ("SELECT x._timestamp FROM t x", [pa.timestamp("ms", "UTC")]),
        ("SELECT a.took, b.took AS other FROM t a JOIN t b USING (n)", [pa.duration("s")] * 2),
        ("SELECT took, count(*) FROM t GROUP BY took", [pa.duration("s"), pa.int64()]),
        ("SELECT * EXCLUDE (n, _topic, _partition, _offset, _timestamp) FROM t", [pa.duration("s")]),
        # what is computed has DuckDB's type, whatever its name is
        ("SELECT took + 1 AS took FROM t", [pa.int64()]),
        ("SELECT max(took) FROM t", [pa.int64()]),
        ("SELECT * REPLACE (took + 1 AS took) FROM t", None),
        ("SELECT took, took + 1 AS took FROM t", [pa.int64()] * 2),
        ("SELECT took FROM (SELECT took + 1 AS took FROM t)", [pa.int64()]),
        ("WITH t AS (SELECT took + 1 AS took FROM t) SELECT took FROM t", [pa.int64()]),
        ("SELECT took FROM t UNION ALL SELECT took FROM t", [pa.int64()]),
        ("SELECT _timestamp + INTERVAL 1 MICROSECOND AS _timestamp FROM t", [pa.timestamp("us", "UTC")]),
        ("SELECT COLUMNS('took') + 1 FROM t", [pa.int64()]),
    ],
)  # fmt: skip
def test_a_column_as_it_stands_has_its_topics_type(
    engine: Engine, query: str, kinds: list[pa.DataType] | None
) -> None:
    schema = pa.schema([("n", pa.int64()), ("took", pa.duration("s"))])
    engine.admin.create_topic("t", partitions=1, schema=schema)
    put(engine, "t", pa.table([[1], [dt.timedelta(seconds=5)]], schema=schema))
    found = engine.sql(query)
    if kinds is None:
        assert found.schema.field("took").type == pa.int64()
        assert found.schema.field("_timestamp").type == pa.timestamp("ms", "UTC")
    else:
        assert found.schema.types == kinds
    assert found.num_rows in (1, 2)


# --- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["a.b-c", "order", "select", "information_schema", "sqlite_master", "main", "duckdb_tables", "x.parquet",
     "1", "-", "main.payments", "payments_", "A" * 249],
)  # fmt: skip
def test_any_name_of_a_topic(engine: Engine, name: str) -> None:
    engine.admin.create_topic(name, partitions=1, schema=payments(1).schema)
    put(engine, name, payments(3))
    assert engine.sql(f'SELECT account_id, _topic FROM "{name}"').to_pylist() == [
        {"account_id": 3, "_topic": name}
    ]


def test_names_of_columns(engine: Engine) -> None:
    """A topic's columns may have the names of DuckDB's own columns, quotes, spaces and keywords."""
    names = ["file_index", "filename", "file_row_number", 'say "hi"', "it's", "select", "Größe", "rowid"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    engine.admin.create_topic("odd", partitions=2, schema=schema)
    for partition in (0, 1):
        for first in (0, 10):
            columns = [[first + number, first + number + 1] for number in range(len(names))]
            put(engine, "odd", pa.table(columns, schema=schema), partition=partition)
    same_rows(engine, "odd", engine.cut())


def test_case(engine: Engine) -> None:
    """A topic is found by its own name. Another spelling is the topic that it can only mean."""
    for name in ("Payments", "payments", "fees"):
        engine.admin.create_topic(name, partitions=1, schema=payments(1).schema)
    put(engine, "Payments", payments(1))
    put(engine, "payments", payments(2))
    put(engine, "fees", payments(3))
    assert accounts(engine.sql("SELECT account_id FROM Payments")) == [1]
    assert accounts(engine.sql("SELECT account_id FROM payments")) == [2]
    assert accounts(engine.sql("SELECT f.ACCOUNT_ID AS account_id FROM FEES f, Fees g")) == [3]


def test_names_that_a_query_makes_are_its_own(engine: Engine) -> None:
    engine.admin.create_topic("payments", partitions=1, schema=payments(1).schema)
    put(engine, "payments", payments(1, 2))
    for query in (
        "WITH payments AS (SELECT * FROM payments WHERE account_id = 2) SELECT account_id FROM payments",
        "WITH x AS (FROM payments), fees AS (FROM x WHERE account_id = 2) SELECT account_id FROM fees",
        "SELECT account_id FROM payments fees WHERE fees.account_id = 2 -- FROM nothing",
        "SELECT account_id FROM payments WHERE account_id = (SELECT max(account_id) FROM payments);",
        """WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 2)
            SELECT account_id FROM payments, r WHERE n = 2 AND account_id = n""",
    ):
        assert accounts(engine.sql(query)) == [2], query
    assert engine.sql("DESCRIBE payments").column("column_name").to_pylist()[-4:] == ["_topic", *COLUMNS]


def test_json_of_a_parse_is_not_confused_by_text(engine: Engine) -> None:
    engine.admin.create_topic("payments", partitions=1, schema=payments(1).schema)
    text = json.dumps({"type": "BASE_TABLE", "qualified_name": {"path": ["nothing"]}})
    assert engine.sql(f"SELECT '{text}' AS t FROM payments").num_rows == 0
