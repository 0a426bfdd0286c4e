"""Rows are written out of topics into a file of SQLite, and back, each once and exactly."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txn_engine
from storage import open_store
from tests.loading.refusals import because
from tests.postgres.every_type import RECORDS
from tests.support.kills import in_a_child, kill_myself
from tests.support.refusals import refused
from tests.support.stores import accounts_in
from txn_engine import AddColumn, Engine
from txn_engine.backup import restore
from txn_engine.consumer import Consumer
from txn_engine.databases import consuming
from txn_engine.errors import (
    IllegalStateError,
    InvalidRecordError,
    InvalidRequestError,
    OffsetsMovedError,
    TxnEngineError,
)
from txn_engine.loading import DEAD_LETTERS, replay
from txn_engine.reasons import Reason
from txn_engine.sqlite import (
    DatabaseError,
    DatabaseUnavailableError,
    Write,
    append_to,
    consume_into,
    insert_into,
    load_query,
    upsert_into,
)
from txn_engine.sqlite.errors import translated

SCHEMA = pa.schema(
    [
        pa.field("account_id", pa.int64(), nullable=False),
        pa.field("amount", pa.decimal128(18, 2)),
        pa.field("note", pa.string()),
    ]
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with txn_engine.connect(f"file://{tmp_path}/ledger") as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
        yield engine


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def connection(file: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(file, timeout=0)
    yield connection
    connection.close()


def payments(*accounts: int, amount: str | None = "1.50", note: str | None = "paid") -> pa.Table:
    price = None if amount is None else Decimal(amount)
    columns = {"account_id": accounts, "amount": [price] * len(accounts), "note": [note] * len(accounts)}
    return pa.table(columns, schema=SCHEMA)


def produce(engine: Engine, table: pa.Table, topic: str = "payments") -> None:
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce(topic, table)


def consumer_of(engine: Engine, topic: str = "payments") -> Consumer:
    consumer = engine.consumer({"group.id": "to-sqlite", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    return consumer


def accounts(connection: sqlite3.Connection, table: str = "payments") -> list[int]:
    return [row[0] for row in connection.execute(f"SELECT account_id FROM {table} ORDER BY 1")]


# --- out ----------------------------------------------------------------------------------------------------


def test_each_record_is_there_once(engine: Engine, connection: sqlite3.Connection) -> None:
    """Records are written batch by batch, with amounts as exact texts. A second call writes what has come
    since, whatever the group's position is."""
    produce(engine, payments(*range(100)))
    write = insert_into("payments", create=True)
    first = consume_into(connection, consumer_of(engine), write, max_records=30)
    assert (first.records, first.batches >= 4, first.group_error) == (100, True, None)
    assert consume_into(connection, consumer_of(engine), write).records == 0
    produce(engine, payments(*range(100, 120)))
    with consumer_of(engine) as ahead:
        ahead.poll()
        ahead.commit()
    assert consume_into(connection, consumer_of(engine), write).records == 20
    assert accounts(connection) == list(range(120))
    assert connection.execute("SELECT DISTINCT amount, typeof(amount), note FROM payments").fetchall() == [
        ("1.50", "text", "paid")
    ]


def test_a_run_that_finds_nothing_keeps_where_it_was(engine: Engine, connection: sqlite3.Connection) -> None:
    """A run that finds nothing stores its position. By "latest" the next run would otherwise begin at another
    end and never see what came in between."""
    produce(engine, payments(1, 2))
    write = insert_into("payments", create=True)
    settings = {"group.id": "new-ones", "auto.offset.reset": "latest"}
    for written in ([], [3], [3, 4]):
        if written:
            produce(engine, payments(written[-1]))
        with engine.consumer(settings) as consumer:
            consumer.subscribe(["payments"])
            done = consume_into(connection, consumer, write)
        ends = {tp: at.last_stable_offset for tp, at in engine.admin.list_offsets("payments").items()}
        assert done.positions == ends
        assert (accounts(connection) if written else []) == written
    assert consume_into(connection, consumer_of(engine), insert_into("others", create=True)).records == 4


def test_a_restored_store_does_not_write_all_of_it_again(
    engine: Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """If the database has positions of the store from whose backup this store was restored, the run is
    refused until they are handed over."""
    produce(engine, payments(*range(20)))
    write = insert_into("payments", create=True)
    consume_into(connection, consumer_of(engine), write)
    manifest = engine.backup(f"file://{tmp_path}/backups")
    source, target = (open_store(f"file://{tmp_path}/{name}", create=True) for name in ("backups", "again"))
    restore(source, target)
    with txn_engine.connect(f"file://{tmp_path}/again") as again:
        with pytest.raises(InvalidRequestError, check=because(Reason.STORE_RESTORED)) as told:
            consume_into(connection, consumer_of(again), write)
        assert engine.config.store_id in told.value.seen
        assert again.config.store_id in str(told.value.action)
        assert accounts(connection) == list(range(20))
        for at, end in manifest.offsets.items():
            connection.execute(
                "UPDATE txn_engine_positions SET store_id = ?, next_offset = min(next_offset, ?)"
                " WHERE store_id = ? AND group_id = ? AND topic = ? AND partition = ?",
                (again.config.store_id, end, engine.config.store_id, "to-sqlite", *at),
            )
        connection.commit()
        produce(again, payments(*range(20, 30)))
        assert consume_into(connection, consumer_of(again), write).records == 10
        another = again.consumer({"group.id": "another", "auto.offset.reset": "earliest"})
        another.subscribe(["payments"])
        assert consume_into(connection, another, insert_into("others", create=True)).records == 30
    assert accounts(connection) == list(range(30))
    third = open_store(f"file://{tmp_path}/third", create=True)
    restore(source, third)  # the positions are the second store's by now, of which this one knows nothing
    with (
        txn_engine.connect(f"file://{tmp_path}/third") as once_more,
        pytest.raises(InvalidRequestError, check=because(Reason.STORE_RESTORED)),
    ):
        consume_into(connection, consumer_of(once_more), write)
    assert accounts(connection) == list(range(30))


def test_what_may_be_aborted_later_is_not_taken(engine: Engine, connection: sqlite3.Connection) -> None:
    produce(engine, payments(1))
    with engine.consumer({"group.id": "g", "isolation.level": "read_uncommitted"}) as consumer:
        consumer.subscribe(["payments"])
        with pytest.raises(InvalidRequestError, check=because(Reason.READS_UNCOMMITTED)):
            consume_into(connection, consumer, insert_into("payments", create=True))


@pytest.mark.parametrize("moment", ["write", "follow"])
def test_a_process_that_is_killed(
    engine: Engine, connection: sqlite3.Connection, file: Path, tmp_path: Path, moment: str
) -> None:
    """If a process is killed with the second batch written and not committed, or committed and not reported,
    each record is there once."""
    produce(engine, payments(*range(20)))
    calls, insert = 0, insert_into("payments", create=True)

    def dying(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            kill_myself()

    def write(own: sqlite3.Connection, records: pa.Table) -> None:
        insert(own, records)
        if moment == "write":
            dying()

    def consume() -> None:
        if moment == "follow":
            consuming.ConsumeRun.follow = dying  # type: ignore[method-assign]
        with txn_engine.connect(f"file://{tmp_path}/ledger") as own:
            consume_into(sqlite3.connect(file), consumer_of(own), write, max_records=6)

    assert in_a_child(consume) == -signal.SIGKILL
    there = len(accounts(connection))
    done = consume_into(connection, consumer_of(engine), insert_into("payments"))
    assert 0 < there < 20
    assert done.records == 20 - there
    assert accounts(connection) == list(range(20))


def test_two_at_once_one_is_refused(engine: Engine, connection: sqlite3.Connection, file: Path) -> None:
    """While one run writes, another is refused, and so is a run whose range was written since it began."""
    produce(engine, payments(*range(10)))
    insert = insert_into("payments", create=True)
    refused: list[type[BaseException]] = []

    def overtaken(own: sqlite3.Connection, records: pa.Table) -> None:
        other = sqlite3.connect(file, timeout=0)
        try:
            consume_into(other, consumer_of(engine), insert)
        except TxnEngineError as error:
            refused.append(type(error))
        other.close()
        insert(own, records)

    consume_into(connection, consumer_of(engine), overtaken)
    assert refused == [DatabaseUnavailableError]
    produce(engine, payments(*range(10, 20)))
    slow = consumer_of(engine)
    poll = slow.poll

    def poll_late(*words: Any) -> pa.Table | None:
        found = poll(*words)
        if not refused[1:]:
            refused.append(OffsetsMovedError)
            other = sqlite3.connect(file)
            consume_into(other, consumer_of(engine), insert)
            other.close()
        return found

    slow.poll = poll_late  # type: ignore[method-assign,assignment]
    with pytest.raises(OffsetsMovedError):
        consume_into(connection, slow, insert)
    assert accounts(connection) == list(range(20))


def test_upserts_tombstones_and_a_history(engine: Engine, connection: sqlite3.Connection) -> None:
    produce(engine, payments(1, 2, 3, amount="1.00"))
    produce(engine, payments(2, amount="2.00"))
    produce(engine, payments(3, amount=None, note=None))
    latest = upsert_into("latest", ["account_id"], create=True, delete_tombstones=True)

    def both(own: sqlite3.Connection, records: pa.Table) -> None:
        latest(own, records)
        append_to("history", create=True)(own, records)

    consume_into(connection, consumer_of(engine), both)
    assert connection.execute("SELECT account_id, amount FROM latest ORDER BY 1").fetchall() == [
        (1, "1.00"),
        (2, "2.00"),
    ]
    assert accounts(connection, "history") == [1, 2, 2, 3, 3]
    assert connection.execute(
        "SELECT count(DISTINCT _partition || '@' || _offset) FROM history"
    ).fetchone() == (5,)


@pytest.mark.parametrize("write", [insert_into("payments"), upsert_into("payments", ["account_id"])])
def test_records_that_a_trigger_keeps_out_are_not_counted(
    engine: Engine, connection: sqlite3.Connection, write: Write
) -> None:
    """A record that a trigger ignores stops the batch, and its position stays. A trigger that leaves a row alone that
    is there already does no harm."""
    produce(engine, payments(1, 2))
    connection.executescript(
        "CREATE TABLE payments (account_id INTEGER PRIMARY KEY, amount TEXT, note TEXT);"
        "CREATE TRIGGER ignoring BEFORE INSERT ON payments WHEN new.account_id = 2"
        " BEGIN SELECT RAISE(IGNORE); END"
    )
    with pytest.raises(DatabaseError, check=because(Reason.ROWS_NOT_WRITTEN)):
        consume_into(connection, consumer_of(engine), write)
    assert accounts(connection) == []
    connection.executescript(
        "DROP TRIGGER ignoring;"
        "CREATE TRIGGER same BEFORE UPDATE ON payments WHEN old.amount IS new.amount"
        " BEGIN SELECT RAISE(IGNORE); END"
    )
    assert consume_into(connection, consumer_of(engine), write).records == 2
    if write.key:
        produce(engine, payments(1))
        assert consume_into(connection, consumer_of(engine), write).records == 1
    assert accounts(connection) == [1, 2]


_TABLE = "CREATE TABLE payments (account_id INTEGER{}, amount TEXT, note TEXT{});"


@pytest.mark.parametrize(
    ("statements", "write", "reason"),
    [
        (_TABLE.format(" PRIMARY KEY ON CONFLICT REPLACE", ""), insert_into("payments"), Reason.RECORD_REFUSED),
        (
            _TABLE.format(
                " UNIQUE ON CONFLICT REPLACE",
                ", _topic TEXT, _partition INTEGER, _offset INTEGER, _timestamp TEXT",
            ),
            append_to("payments"),
            Reason.RECORD_REFUSED,
        ),
        (
            _TABLE.format(" PRIMARY KEY", " UNIQUE ON CONFLICT REPLACE"),
            upsert_into("payments", ["account_id"]),
            Reason.RECORD_REFUSED,
        ),
        (
            _TABLE.format("", ", UNIQUE (account_id) ON CONFLICT REPLACE")
            + "CREATE TRIGGER audited AFTER INSERT ON payments BEGIN INSERT INTO audit VALUES (new.account_id); END;",
            insert_into("payments"),
            Reason.OTHER_ROWS_CHANGED,
        ),
        (
            _TABLE.format("", "")
            + "CREATE TRIGGER taking AFTER INSERT ON payments WHEN new.account_id = 2"
            " BEGIN DELETE FROM payments WHERE account_id = 2; END;",
            insert_into("payments"),
            Reason.OTHER_ROWS_CHANGED,
        ),
        (
            _TABLE.format(" PRIMARY KEY", "")
            + "CREATE TEMP TRIGGER taking AFTER INSERT ON main.payments WHEN new.account_id = 1"
            " BEGIN DELETE FROM payments WHERE account_id = 9; END;",
            upsert_into("payments", ["account_id"]),
            Reason.OTHER_ROWS_CHANGED,
        ),
        (
            _TABLE.format("", "")
            + "CREATE TRIGGER doubling AFTER INSERT ON payments"
            " BEGIN INSERT INTO payments VALUES (new.account_id, new.amount, new.note); END;",
            insert_into("payments"),
            Reason.OTHER_ROWS_CHANGED,
        ),
    ],
    ids=["key", "history", "other key", "key and trigger", "deletes new", "deletes old", "adds"],
)  # fmt: skip
def test_rows_that_disappear_or_are_added_are_noticed(
    engine: Engine, connection: sqlite3.Connection, statements: str, write: Write, reason: Reason
) -> None:
    """A constraint that replaces rows, and a trigger that deletes or adds rows, stop the batch. The table stays as it
    was."""
    produce(engine, payments(1, 2))
    produce(engine, payments(1))
    connection.executescript("CREATE TABLE audit (id INTEGER);" + statements)
    connection.execute("INSERT INTO payments (account_id, note) VALUES (8, NULL), (9, 'paid')")
    connection.commit()
    before = accounts(connection)
    with pytest.raises(DatabaseError, check=because(reason)) as caught:
        consume_into(connection, consumer_of(engine), write)
    if reason is Reason.RECORD_REFUSED:
        assert isinstance(caught.value.__cause__, sqlite3.IntegrityError)
    assert accounts(connection) == before


@pytest.mark.parametrize("write", [insert_into("payments"), upsert_into("payments", ["account_id"])])
@pytest.mark.parametrize("act", ["ABORT", "FAIL", "ROLLBACK"])
def test_a_record_that_is_refused_is_named(
    engine: Engine, connection: sqlite3.Connection, write: Write, act: str
) -> None:
    """The error has the place of the record that a trigger refuses, and quotes nothing of it. Where the trigger ends
    the transaction nobody can look for the record."""
    produce(engine, payments(4, 5))
    connection.executescript(
        "CREATE TABLE payments (account_id INTEGER PRIMARY KEY, amount TEXT, note TEXT);"
        "CREATE TRIGGER no BEFORE INSERT ON payments WHEN new.account_id = 5"
        f" BEGIN SELECT RAISE({act}, 'the secret'); END"
    )
    reason = None if act == "ROLLBACK" else Reason.RECORD_REFUSED
    with pytest.raises(DatabaseError, check=because(reason)) as caught:
        consume_into(connection, consumer_of(engine), write)
    assert ("@" in caught.value.seen) == (act != "ROLLBACK")
    assert "SQLITE_CONSTRAINT_TRIGGER" in caught.value.seen
    assert "secret" not in str(caught.value)
    assert accounts(connection) == []


@pytest.mark.parametrize("code", ["ABORT", "AUTH", "CONSTRAINT", "CORRUPT", "ERROR", "FULL", "INTERRUPT", "INTERNAL",
    "LOCKED", "MISMATCH", "NOTADB", "PERM", "READONLY", "SCHEMA", "TOOBIG"])  # fmt: skip
def test_each_code_has_a_sentence(code: str) -> None:
    """No error is the bare name of its code, or has what SQLite says of values."""
    error = sqlite3.DatabaseError("the secret of a record")
    error.sqlite_errorname = f"SQLITE_{code}"
    error.sqlite_errorcode = getattr(sqlite3, error.sqlite_errorname)
    told = translated(error, "consume_into", "group 'g'")
    assert re.fullmatch(r"[a-z].* .* \(SQLITE_[A-Z]+\)", told.seen)
    assert "secret" not in str(told)


def test_a_tombstone_that_deletes_other_rows_is_noticed(
    engine: Engine, connection: sqlite3.Connection
) -> None:
    """A foreign key that deletes other rows of the table with a tombstone's row stops the batch. It does no harm where
    the batch deletes these rows too."""
    schema = pa.schema([("id", pa.int64()), ("parent", pa.int64())])
    engine.admin.create_topic("tree", partitions=1, schema=schema)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(
        "CREATE TABLE tree (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES tree (id) ON DELETE CASCADE)"
    )
    write = upsert_into("tree", ["id"], delete_tombstones=True)
    produce(engine, pa.table({"id": [1, 2], "parent": [1, 1]}, schema=schema), "tree")
    consume_into(connection, consumer_of(engine, "tree"), write)
    produce(engine, pa.table({"id": [1], "parent": [None]}, schema=schema), "tree")
    with pytest.raises(DatabaseError, check=because(Reason.OTHER_ROWS_CHANGED)):
        consume_into(connection, consumer_of(engine, "tree"), write)
    assert connection.execute("SELECT id FROM tree").fetchall() == [(1,), (2,)]
    produce(engine, pa.table({"id": [2], "parent": [None]}, schema=schema), "tree")
    assert consume_into(connection, consumer_of(engine, "tree"), write).records == 2
    assert connection.execute("SELECT id FROM tree").fetchall() == []


def test_triggers_that_write_to_other_tables_do_their_work(
    engine: Engine, connection: sqlite3.Connection
) -> None:
    """A trigger writes to another table with the conflict clause that it has itself, and may keep a column of the row
    that the records do not have."""
    produce(engine, payments(1, 2))
    connection.executescript(
        "CREATE TABLE payments (account_id INTEGER PRIMARY KEY, amount TEXT, note TEXT, changed TEXT);"
        "CREATE TABLE audit (note TEXT PRIMARY KEY, account_id INTEGER);"
        "CREATE TRIGGER audited AFTER INSERT ON payments BEGIN"
        " INSERT OR REPLACE INTO audit VALUES (new.note, new.account_id);"
        " UPDATE payments SET changed = 'now' WHERE account_id = new.account_id; END;"
    )
    write = upsert_into("payments", ["account_id"])
    for records in (payments(), payments(2, 3)):
        produce(engine, records)
        consume_into(connection, consumer_of(engine), write)
    assert connection.execute("SELECT account_id, changed FROM payments").fetchall() == [
        (1, "now"), (2, "now"), (3, "now"),
    ]  # fmt: skip
    assert connection.execute("SELECT note, account_id FROM audit").fetchall() == [("paid", 3)]


@pytest.mark.parametrize(("column", "index", "left"), [("NOCASE", "BINARY", ["a"]), ("BINARY", "NOCASE", [])])
def test_a_tombstone_deletes_by_the_collation_of_the_key(
    engine: Engine, connection: sqlite3.Connection, column: str, index: str, left: list[str]
) -> None:
    """The unique index, not the column, decides which rows have a tombstone's key."""
    schema = pa.schema([("name", pa.string()), ("value", pa.int64())])
    engine.admin.create_topic("named", partitions=1, schema=schema)
    connection.execute(f"CREATE TABLE named (name TEXT COLLATE {column}, value INTEGER)")
    connection.execute(f"CREATE UNIQUE INDEX only ON named (name COLLATE {index})")
    write = upsert_into("named", ["name"], delete_tombstones=True)
    for rows in ({"name": ["a"], "value": [1]}, {"name": ["A"], "value": [None]}):
        produce(engine, pa.table(rows, schema=schema), "named")
        consume_into(connection, consumer_of(engine, "named"), write)
    assert [name for (name,) in connection.execute("SELECT name FROM named")] == left


def test_keys_that_a_collation_takes_for_equal_are_one_key(
    engine: Engine, connection: sqlite3.Connection
) -> None:
    """Of keys that a collation takes for equal, the last record counts, also where an earlier one is a tombstone. The
    row has the last record's key, wherever a batch ends."""
    schema = pa.schema([("name", pa.string()), ("value", pa.int64())])
    engine.admin.create_topic("named", partitions=1, schema=schema)
    connection.execute("CREATE TABLE named (name TEXT COLLATE NOCASE PRIMARY KEY, value INTEGER)")
    rows = {"name": ["a", "A", "b", "a", "A"], "value": [1, 2, 3, None, 5]}
    produce(engine, pa.table(rows, schema=schema), "named")
    write = upsert_into("named", ["name"], delete_tombstones=True)
    consume_into(connection, consumer_of(engine, "named"), write)
    kept = "SELECT name, value FROM named ORDER BY value"
    assert connection.execute(kept).fetchall() == [("b", 3), ("A", 5)]
    produce(engine, pa.table({"name": ["B", "a"], "value": [8, 9]}, schema=schema), "named")
    consume_into(connection, consumer_of(engine, "named"), write)
    assert connection.execute(kept).fetchall() == [("B", 8), ("a", 9)]
    connection.execute(
        "CREATE TRIGGER same BEFORE UPDATE ON named WHEN old.name = new.name COLLATE NOCASE"
        " BEGIN SELECT RAISE(IGNORE); END"
    )
    produce(engine, pa.table({"name": ["b"], "value": [8]}, schema=schema), "named")
    with pytest.raises(DatabaseError, check=because(Reason.ROWS_NOT_WRITTEN)):
        consume_into(connection, consumer_of(engine, "named"), write)


@pytest.mark.parametrize(
    ("columns", "reason", "column"),
    [
        ("account_id INTEGER, amount DECIMAL(18,2), note TEXT", Reason.TYPE_MISMATCH, "amount"),
        ("account_id REAL, amount TEXT, note TEXT", Reason.TYPE_MISMATCH, "account_id"),
        ("account_id INTEGER, amount TEXT", Reason.MISSING_COLUMN, "note"),
        ("account_id INTEGER, amount TEXT, note TEXT, more TEXT NOT NULL", Reason.NULL_IN_NOT_NULL, "more"),
        ("account_id INTEGER, amount TEXT, note TEXT NOT NULL", Reason.NULL_IN_NOT_NULL, "note"),
        ("account_id INTEGER, amount TEXT, note TEXT AS (amount)", Reason.GENERATED_COLUMN, "note"),
    ],
)
def test_a_table_that_would_lose_something(
    engine: Engine, connection: sqlite3.Connection, columns: str, reason: Reason, column: str
) -> None:
    """A table whose column affinities would change a value is refused in one line before the first row, and
    no position moves."""
    produce(engine, payments(1, note=None))
    connection.execute(f"CREATE TABLE payments ({columns})")
    with pytest.raises(DatabaseError, check=because(reason)) as caught:
        consume_into(connection, consumer_of(engine), insert_into("payments"))
    assert repr(column) in caught.value.seen
    assert connection.execute("SELECT count(*) FROM txn_engine_positions").fetchone() == (0,)


@pytest.mark.parametrize("key", ["INTEGER PRIMARY KEY", "INTEGER NOT NULL UNIQUE", "INT PRIMARY KEY"])
def test_a_null_in_a_key_is_named_as_such(engine: Engine, connection: sqlite3.Connection, key: str) -> None:
    """An upsert refuses a record without a key, whatever the column takes."""
    engine.admin.create_topic("keyed", partitions=1, schema=pa.schema([("id", pa.int64())]))
    produce(engine, pa.table({"id": pa.array([1, None], pa.int64())}), "keyed")
    connection.execute(f"CREATE TABLE keyed (id {key})")
    with pytest.raises(InvalidRecordError, check=because(Reason.NULL_IN_KEY)):
        consume_into(connection, consumer_of(engine, "keyed"), upsert_into("keyed", ["id"]))


@pytest.mark.parametrize(
    ("columns", "is_refused"),
    [
        ("id INTEGER PRIMARY KEY", True),
        ("id integer, note TEXT, PRIMARY KEY (id)", True),
        ("id INTEGER PRIMARY KEY DESC", False),
        ("id INT PRIMARY KEY", False),
        ("id INTEGER, note TEXT, PRIMARY KEY (id, note)", False),
        ("id INTEGER", False),
    ],
)
def test_a_null_does_not_become_a_number(
    engine: Engine, connection: sqlite3.Connection, columns: str, is_refused: bool
) -> None:
    """A null is refused for a column that stands for the rowid, because SQLite would make up a number for it. Records
    without that column are written, and any other column keeps the null."""
    for topic, kind in (("numbered", pa.field("id", pa.int64())), ("noted", pa.field("note", pa.string()))):
        engine.admin.create_topic(topic, partitions=1, schema=pa.schema([kind]))
        produce(engine, pa.table({kind.name: pa.array([None], kind.type)}), topic)
    connection.execute(f"CREATE TABLE numbered ({columns})")
    if is_refused:
        with pytest.raises(DatabaseError, check=because(Reason.NULL_IN_NOT_NULL)):
            consume_into(connection, consumer_of(engine, "numbered"), insert_into("numbered"))
    else:
        consume_into(connection, consumer_of(engine, "numbered"), insert_into("numbered"))
    expected = [] if is_refused else [(None,)]
    assert connection.execute("SELECT id FROM numbered").fetchall() == expected
    if "note" in columns:
        consume_into(connection, consumer_of(engine, "noted"), insert_into("numbered"))
        assert connection.execute("SELECT note FROM numbered").fetchall()[-1] == (None,)


@pytest.mark.parametrize(
    ("kind", "value"), [(pa.uint64(), 2**63), (pa.float64(), float("nan")), (pa.float32(), float("nan")),
     (pa.float64(), -0.0), (pa.float16(), -0.0)],
)  # fmt: skip
def test_a_value_that_sqlite_does_not_have(
    engine: Engine, connection: sqlite3.Connection, kind: pa.DataType, value: Any
) -> None:
    """A value that SQLite does not have is named by its place. Otherwise it would become null or another
    number."""
    engine.admin.create_topic("odd", partitions=1, schema=pa.schema([("value", kind)]))
    produce(engine, pa.table({"value": pa.array([1, value], kind)}), "odd")
    with pytest.raises(InvalidRecordError, check=because(Reason.INEXACT_VALUE)) as caught:
        consume_into(connection, consumer_of(engine, "odd"), insert_into("odd", create=True))
    assert "0@1" in (caught.value.seen or "")


def test_a_column_without_a_type_keeps_the_sign_of_zero(
    engine: Engine, connection: sqlite3.Connection
) -> None:
    """A column without a type keeps -0.0, which a REAL column would keep as 0."""
    for topic in ("odd", "again"):
        engine.admin.create_topic(topic, partitions=1, schema=pa.schema([("value", pa.float64())]))
    produce(engine, pa.table({"value": [0.0, None, -0.0]}), "odd")
    connection.execute("CREATE TABLE odd (value)")
    consume_into(connection, consumer_of(engine, "odd"), insert_into("odd"))
    load_query(engine, connection, "SELECT value FROM odd", "again", run_id="1")
    assert [str(value) for value in engine.scan("again").to_table()["value"].to_pylist()] == [
        "0.0",
        "None",
        "-0.0",
    ]


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), pa.date32()]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_year_that_has_no_text(
    engine: Engine, connection: sqlite3.Connection, kind: Any, sign: int
) -> None:
    """The years -32767 to 32767 are exact. A time outside of them, as the infinity of other databases, is refused with
    the place of its record."""
    per_day = 1 if kind == pa.date32() else 86_400 * {"ms": 10**3, "us": 10**6}[kind.unit]
    last = 11_248_737 * per_day + per_day - 1 if sign > 0 else -12_687_428 * per_day
    infinity = sign * (2 ** (31 if kind == pa.date32() else 63) - 1)
    for topic, moments in (("right", [last]), ("next", [0, last + sign]), ("infinity", [0, infinity])):
        engine.admin.create_topic(topic, partitions=1, schema=pa.schema([("at", kind)]))
        numbers = pa.array(moments, pa.int32() if kind == pa.date32() else pa.int64())
        produce(engine, pa.table({"at": numbers.cast(kind)}), topic)
        if topic == "right":
            consume_into(connection, consumer_of(engine, topic), insert_into(topic, create=True))
            (text,) = connection.execute(f"SELECT at FROM {topic}").fetchone()
            assert text.startswith("32767-12-31" if sign > 0 else "-32767-01-01")
            continue
        with pytest.raises(InvalidRecordError, check=because(Reason.INEXACT_VALUE)) as caught:
            consume_into(connection, consumer_of(engine, topic), insert_into(topic, create=True))
        assert "0@1" in (caught.value.seen or "")


def test_a_zone_that_is_seconds_off(engine: Engine, connection: sqlite3.Connection) -> None:
    """The moments of a zone whose offset has seconds are stored in UTC."""
    schema = pa.schema([("at", pa.timestamp("us", "Europe/Amsterdam"))])
    for topic in ("old", "again"):
        engine.admin.create_topic(topic, partitions=1, schema=schema)
    moments = pa.array([-2_208_988_800_000_000, 0, None], schema.field("at").type)
    produce(engine, pa.table({"at": moments}), "old")
    consume_into(connection, consumer_of(engine, "old"), insert_into("old", create=True))
    assert connection.execute("SELECT at FROM old").fetchone() == ("1900-01-01 00:00:00.000000Z",)
    load_query(engine, connection, "SELECT * FROM old", "again", run_id="1")
    assert engine.scan("again").to_table(["at"])["at"].to_pylist() == moments.to_pylist()


def _commits(to: sqlite3.Connection, _: pa.Table) -> None:
    to.commit()
    to.execute("INSERT INTO kept VALUES (2)")


def _commits_by_block(to: sqlite3.Connection, _: pa.Table) -> None:
    with to:
        pass
    to.execute("INSERT INTO kept VALUES (2)")


def _rolls_back(to: sqlite3.Connection, _: pa.Table) -> None:
    to.rollback()


@pytest.mark.parametrize("write", [_commits, _commits_by_block, _rolls_back])
def test_a_write_that_ends_the_transaction(
    engine: Engine, connection: sqlite3.Connection, write: Write
) -> None:
    """If a write function ends the transaction, that is an error, and nothing that it wrote is there."""
    produce(engine, payments(1))
    connection.execute("CREATE TABLE kept (a int)")
    with pytest.raises(IllegalStateError, check=because(Reason.WRITE_ENDED_TRANSACTION)):
        consume_into(connection, consumer_of(engine), write)
    assert not connection.in_transaction
    assert connection.execute("SELECT * FROM kept").fetchall() == []


def test_a_connection_that_makes_something_else_of_rows(
    engine: Engine, connection: sqlite3.Connection
) -> None:
    """A connection may return rows as dicts for its own statements. One that returns texts as bytes is
    refused."""
    produce(engine, payments(*range(5)))
    connection.row_factory = lambda cursor, row: {
        column[0]: value for column, value in zip(cursor.description, row, strict=True)
    }
    write = upsert_into("payments", ["account_id"], create=True)
    assert consume_into(connection, consumer_of(engine), write).records == 5
    assert consume_into(connection, consumer_of(engine), write).records == 0
    query = "SELECT account_id + 5 AS account_id, amount, note FROM payments"
    assert load_query(engine, connection, query, "payments", run_id="1").records == 5
    assert set(engine.scan("payments").to_table(["note"])["note"].to_pylist()) == {"paid"}
    connection.text_factory = bytes
    with pytest.raises(IllegalStateError, check=because(Reason.OWN_TEXT_FACTORY)):
        load_query(engine, connection, query, "payments", run_id="2")


def test_converters_and_adapters_of_the_program(
    engine: Engine, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values are loaded as they are stored, whatever converters the connection has, by declared types or by names.
    Positions are read the same way. An adapter that would write other values is refused."""
    for name in ("MYTEXT", "TEXT", "INTEGER"):
        monkeypatch.setitem(sqlite3.converters, name, lambda data: data.decode("latin-1") + "!")
    both = sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES
    with closing(sqlite3.connect(file, detect_types=both)) as connection:
        connection.execute("CREATE TABLE t (account_id INTEGER, amount MYTEXT, q TEXT)")
        connection.execute("INSERT INTO t VALUES (1, '2.50', 'é')")
        connection.commit()
        query = 'SELECT account_id, amount, q AS "note [mytext]" FROM t ORDER BY 1'
        key_range = ("account_id", 0, 2)
        load_query(engine, connection, query, "payments", key_range=key_range)
        found = engine.scan("payments").to_table(SCHEMA.names).to_pylist()
        assert found == [{"account_id": 1, "amount": Decimal("2.50"), "note": "é"}]
        for count in (1, 0):
            write = insert_into("payments", create=True)
            assert consume_into(connection, consumer_of(engine), write).records == count
        monkeypatch.setitem(sqlite3.adapters, (str, sqlite3.PrepareProtocol), str.upper)
        with pytest.raises(IllegalStateError, check=because(Reason.OWN_ADAPTER)):
            consume_into(connection, consumer_of(engine), insert_into("payments"))


def test_every_type_comes_back_as_it_was(engine: Engine, connection: sqlite3.Connection) -> None:
    """Records of every type are the same after they were written and loaded into another topic, except for
    numbers above 64 bits."""
    names = [name for name in RECORDS.column_names if name != "counted"]
    records = RECORDS.select(names)
    for topic in ("every", "again"):
        engine.admin.create_topic(topic, partitions=1, schema=records.schema)
    produce(engine, records, "every")
    consume_into(connection, consumer_of(engine, "every"), insert_into("every", create=True))
    load_query(engine, connection, "SELECT * FROM every", "again", run_id="1")
    assert engine.scan("again").to_table(names).to_pylist() == records.to_pylist()


# --- in -----------------------------------------------------------------------------------------------------

QUERY = "SELECT account_id, amount, note FROM incoming"


@pytest.fixture
def table(connection: sqlite3.Connection) -> sqlite3.Connection:
    """A table of a thousand payments."""
    connection.execute("CREATE TABLE incoming (account_id INTEGER, amount, note TEXT)")
    rows = [(n, f"{n // 100}.{n % 100:02}", (None, "", "x")[n % 3]) for n in range(1_000)]
    connection.executemany("INSERT INTO incoming VALUES (?, ?, ?)", rows)
    connection.commit()
    return connection


def test_a_query_is_loaded_once(engine: Engine, table: sqlite3.Connection) -> None:
    """A query is loaded once by its run id or its range. Nulls and empty texts stay different."""
    for start in (0, 500, 0):
        load_query(engine, table, QUERY + ";", "payments", key_range=("account_id", start, start + 500))
    named = load_query(
        engine, table, QUERY + " WHERE account_id < :below", "payments", run_id="1", parameters={"below": 3}
    )
    again = load_query(engine, table, QUERY, "payments", run_id="1")
    assert (named.records, again.committed_before) == (3, True)
    marked = load_query(engine, table, QUERY + " WHERE account_id >= ?", "payments",
                        key_range=("account_id", 0, 999), parameters=[998], transactional_id="other")  # fmt: skip
    assert marked.records == 1
    assert accounts_in(engine) == sorted([*range(1_000), 0, 1, 2, 998])
    first = engine.scan("payments").to_table(SCHEMA.names).to_pylist()
    assert {(row["amount"], row["note"]) for row in first if row["account_id"] == 7} == {
        (Decimal("0.07"), "")
    }


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ("SELECT 1 AS account_id, NULL AS amount, 'x' AS note; -- the end", "x"),
        ("SELECT 1 AS account_id, NULL AS amount, 'x' AS note /* ; */ ;; /* the end", "x"),
        ("SELECT 1 AS account_id, NULL AS amount, '; -- ''x' AS note -- ;", "; -- 'x"),
        (
            "SELECT 1 AS account_id, NULL AS amount, [;--] AS note FROM (SELECT 'x' AS `;--`);\n-- the end\n",
            "x",
        ),
        ('SELECT 1 AS account_id, NULL AS amount, "; -- x" AS note FROM (SELECT 5 - -3 AS "; -- x");', None),
    ],
)
def test_what_comes_after_the_end_of_a_query(
    engine: Engine, connection: sqlite3.Connection, query: str, note: str | None
) -> None:
    """Semicolons and comments may come after a query. In quotes they are part of it."""
    if note is None:
        with pytest.raises(InvalidRecordError, check=because(Reason.BAD_STRING)):
            load_query(engine, connection, query, "payments", run_id="1")
        return
    load_query(engine, connection, query, "payments", run_id="1")
    assert engine.scan("payments").to_table(["note"])["note"].to_pylist() == [note]


@pytest.mark.parametrize("query", ["SELECT 1 AS account_id; DELETE FROM incoming", "SELECT 1; SELECT 2; --"])
def test_two_statements_are_refused(engine: Engine, table: sqlite3.Connection, query: str) -> None:
    with pytest.raises(DatabaseError):
        load_query(engine, table, query, "payments", run_id="1")
    assert table.execute("SELECT count(*) FROM incoming").fetchone() == (1_000,)


def test_one_moment_of_the_file(engine: Engine, table: sqlite3.Connection, file: Path) -> None:
    """A load sees one state of the file, although others write while it reads."""
    table.execute("PRAGMA journal_mode = WAL")
    table.execute("INSERT INTO incoming SELECT account_id + 1000, amount, note FROM incoming")
    for _ in range(4):
        table.execute("INSERT INTO incoming SELECT account_id, amount, note FROM incoming")
    table.commit()
    calls: list[int] = []

    def meddle(records: int) -> None:
        if not calls:
            other = sqlite3.connect(file)
            other.execute("DELETE FROM incoming")
            other.commit()
            other.close()
        calls.append(records)

    assert load_query(engine, table, QUERY, "payments", run_id="1", progress=meddle).records == 32_000
    assert len(calls) == 4


@pytest.mark.parametrize(
    ("value", "column", "reason"),
    [
        ("'x', '1.00', 'x'", "account_id", Reason.BAD_INTEGER),
        ("1.5, '1.00', 'x'", "account_id", Reason.BAD_INTEGER),
        ("NULL, '1.00', 'x'", "account_id", Reason.NULL_IN_NOT_NULL),
        ("1, 0.5, 'x'", "amount", Reason.BAD_DECIMAL),
        ("1, '0.005', 'x'", "amount", Reason.BAD_DECIMAL),
        ("1, 'abc', 'x'", "amount", Reason.BAD_DECIMAL),
        ("1, '1.00', x'00'", "note", Reason.BAD_STRING),
        ("1, '1.00', 5", "note", Reason.BAD_STRING),
        ("1, '1.00', CAST(x'ff41' AS TEXT)", "note", Reason.BAD_ENCODING),
        ("1, '1.00', hex(randomblob(20000))", "a record", Reason.ROW_TOO_LARGE),
    ],
)
def test_a_value_that_does_not_fit(
    engine: Engine, table: sqlite3.Connection, value: str, column: str, reason: Reason
) -> None:
    """SQLite accepts any value in any column, so each value is checked and named by its row."""
    query = f"{QUERY} UNION ALL SELECT {value}"
    engine.admin.alter_configs({"max.message.bytes": 20_000}, topic="payments")
    with pytest.raises(InvalidRecordError, check=because(reason, "row 1001 of the query")) as caught:
        load_query(engine, table, query, "payments", run_id="1")
    assert caught.value.seen.startswith(column)
    assert accounts_in(engine) == []
    assert not table.in_transaction
    engine.admin.create_topic("dead", partitions=1, schema=DEAD_LETTERS)
    done = load_query(engine, table, query, "payments", run_id="1", dead_letter_topic="dead")
    assert (done.records, done.dead_letters) == (1_000, 1)
    (letter,) = engine.scan("dead").to_table().to_pylist()
    assert letter["source_file"].startswith("SQLite shop.db, query ")
    assert letter["source_line"] == 1_001
    mended = json.loads(letter["columns"]) | {"account_id": "7", "amount": "1.00", "note": "x"}
    assert replay(engine, "dead", repaired={(0, letter["_offset"]): json.dumps(mended)}).records == 1


@pytest.mark.parametrize(
    ("query", "reason", "cause"),
    [
        ("SELECT account_id, amount, note, 1 AS day FROM incoming", Reason.UNKNOWN_COLUMN, None),
        ("SELECT amount, note FROM incoming", Reason.MISSING_COLUMN, None),
        ("SELECT nowhere FROM incoming", None, "no such column"),
        ("SELECT * FROM nowhere", None, "no such table"),
        ("DELETE FROM incoming", None, "syntax error"),
        ("SELECT account_id, amount, '\ud800' AS note FROM incoming", Reason.BAD_ENCODING, None),
    ],
)
def test_a_query_that_does_not_fit(
    engine: Engine, table: sqlite3.Connection, query: str, reason: Reason | None, cause: str | None
) -> None:
    """A query that does not fit is refused in one line, and nothing is visible."""
    with pytest.raises(TxnEngineError, check=because(reason)) as caught:
        load_query(engine, table, query, "payments", run_id="1")
    assert cause is None or cause in str(caught.value.__cause__)
    assert accounts_in(engine) == []


def test_a_text_that_is_none(engine: Engine, table: sqlite3.Connection) -> None:
    """A text that is not UTF-8 becomes a dead letter with its bytes, which no replay takes for text. The
    connection reads texts as before."""
    table.execute("UPDATE incoming SET note = CAST(x'ff41' AS TEXT) WHERE account_id = 7")
    table.commit()
    engine.admin.create_topic("dead", partitions=1, schema=DEAD_LETTERS)
    done = load_query(engine, table, QUERY, "payments", run_id="1", dead_letter_topic="dead")
    assert (done.records, done.dead_letters) == (999, 1)
    (letter,) = engine.scan("dead").to_table().to_pylist()
    assert (letter["source_line"], json.loads(letter["columns"])["note"]) == (8, {"not_utf8": "/0E="})
    assert replay(engine, "dead").failed_again == 1
    assert table.text_factory is str
    with pytest.raises(sqlite3.OperationalError, match="UTF-8"):
        table.execute("SELECT note FROM incoming WHERE account_id = 7").fetchall()
    table.rollback()


def test_a_column_that_was_added(engine: Engine, table: sqlite3.Connection) -> None:
    """A query may lack a column that was added to the topic, which then has its default. It may not lack one
    from the start."""
    currency = pa.field("currency", pa.string(), nullable=False)
    engine.admin.alter_topic("payments", [AddColumn(currency, default="EUR")])
    done = load_query(engine, table, QUERY, "payments", run_id="1")
    found = engine.scan("payments").to_table(["currency"])["currency"].to_pylist()
    assert found == ["EUR"] * done.records
    with pytest.raises(InvalidRequestError, check=because(Reason.MISSING_COLUMN)):
        load_query(engine, table, "SELECT account_id, amount FROM incoming LIMIT 0", "payments", run_id="2")


@pytest.mark.parametrize(("number", "is_double"), [(2**53, True), (2**53 + 1, False), (-(2**62), True)])
def test_a_whole_number_for_a_double(
    engine: Engine, connection: sqlite3.Connection, number: int, is_double: bool
) -> None:
    """A whole number for a double column is loaded exactly, or refused."""
    engine.admin.create_topic("odd", partitions=1, schema=pa.schema([("value", pa.float64())]))
    query = f"SELECT {number} AS value"
    if is_double:
        load_query(engine, connection, query, "odd", run_id="1")
        assert engine.scan("odd").to_table(["value"])["value"].to_pylist() == [number]
    else:
        with pytest.raises(InvalidRecordError, check=because(Reason.BAD_FLOAT)):
            load_query(engine, connection, query, "odd", run_id="1")


@pytest.mark.parametrize(
    ("kind", "number", "is_exact"),
    [
        (pa.float32(), "0.1", False),
        (pa.float32(), "0.10000000149011612", True),
        (pa.float32(), "16777217", False),
        (pa.float32(), "16777216", True),
        (pa.float32(), "1e39", False),
        (pa.float32(), "9e999", True),
        (pa.float32(), "1e-46", False),
        (pa.float16(), "0.1", False),
        (pa.float16(), "0.5", True),
        (pa.float16(), "65520.0", False),
    ],
)
def test_a_double_for_a_smaller_float(
    engine: Engine, connection: sqlite3.Connection, kind: pa.DataType, number: str, is_exact: bool
) -> None:
    """A REAL is a double. It is loaded into a smaller float's column exactly, or is a bad row."""
    for topic, schema in (("odd", pa.schema([("value", kind)])), ("dead", DEAD_LETTERS)):
        engine.admin.create_topic(topic, partitions=1, schema=schema)
    query = f"SELECT {number} AS value UNION ALL SELECT NULL"
    done = load_query(engine, connection, query, "odd", run_id="1", dead_letter_topic="dead")
    assert (done.records, done.dead_letters) == ((2, 0) if is_exact else (1, 1))
    loaded = engine.scan("odd").to_table(["value"])["value"].cast(pa.float64()).to_pylist()
    assert loaded == ([float(number), None] if is_exact else [None])
    if not is_exact:
        with pytest.raises(InvalidRecordError, check=because(Reason.BAD_FLOAT)):
            load_query(engine, connection, query, "odd", run_id="2")


def test_what_cannot_be_done(engine: Engine, table: sqlite3.Connection, file: Path) -> None:
    with pytest.raises(InvalidRequestError, check=because(Reason.NO_RUN_ID)):
        load_query(engine, table, QUERY, "payments")
    with pytest.raises(InvalidRequestError, check=because(Reason.EMPTY_KEY_RANGE)):
        load_query(engine, table, QUERY, "payments", key_range=("account_id", 5, 5))
    table.execute("BEGIN")
    with pytest.raises(IllegalStateError, check=because(Reason.TRANSACTION_OPEN)):
        load_query(engine, table, QUERY, "payments", run_id="1")
    table.rollback()
    closed = sqlite3.connect(file)
    closed.close()
    with pytest.raises(IllegalStateError, check=because(Reason.CONNECTION_CLOSED)):
        consume_into(closed, consumer_of(engine), insert_into("payments"))
    produce(engine, payments(1))
    for limit in ({"max_records": "5"}, {"max_batches": 0}, {"max_batches": -1}, {"max_batches": True}):
        with pytest.raises(InvalidRequestError, check=because(Reason.BAD_ARGUMENT)):
            consume_into(table, consumer_of(engine), insert_into("incoming"), **limit)
    with pytest.raises(DatabaseError, check=because(Reason.NO_UNIQUE_INDEX)):
        consume_into(table, consumer_of(engine), upsert_into("incoming", ["account_id"]))

    with refused(InvalidRequestError, Reason.BAD_ARGUMENT):
        load_query(engine, table, QUERY, "payments", run_id="1", parameters="x")
    for words, cause in (
        ({"query": f"{QUERY} WHERE account_id = ?", "parameters": [2**70]}, sqlite3.DataError),
        ({"query": f"{QUERY} WHERE note = ?", "parameters": ["\ud800"]}, sqlite3.DataError),
        ({"key_range": ("account_id", Decimal(1), Decimal(2))}, sqlite3.ProgrammingError),
    ):
        with pytest.raises(DatabaseError) as refusal:
            load_query(engine, table, words.pop("query", QUERY), "payments", run_id="1", **words)
        assert type(refusal.value.__cause__) is cause
    with pytest.raises(DatabaseError) as refusal:
        consume_into(table, consumer_of(engine), insert_into("nowhere.payments", create=True))
    assert "unknown database" in str(refusal.value.__cause__)

    def broken(own: sqlite3.Connection, _: pa.Table) -> None:
        own.execute("SELECT 'deepest secret' FROM (")

    def reading(own: sqlite3.Connection, _: pa.Table) -> None:
        own.execute("SELECT CAST(x'ff' || 'deepest secret' AS TEXT) AS note").fetchone()

    for write, reason in ((broken, None), (reading, Reason.BAD_ENCODING)):
        with pytest.raises(DatabaseError, check=because(reason)) as caught:
            consume_into(table, consumer_of(engine), write)
        assert "secret" not in str(caught.value)
