"""Records go out of topics into a real Postgres, each once with its position, whatever dies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, LiteralString

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from psycopg import Connection
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from psycopg.sql import SQL

from tests.loading.refusals import because
from tests.postgres.conftest import SCHEMA, payments, produce
from tests.postgres.every_type import RECORDS
from tests.suite.tiers import in_shard
from tests.support.waiting import LIMIT_S
from txn_engine import Engine
from txn_engine.consumer import Consumer
from txn_engine.errors import (
    IllegalStateError,
    InvalidGroupIdError,
    InvalidRecordError,
    InvalidRequestError,
    OffsetsMovedError,
    TxnEngineError,
)
from txn_engine.postgres import (
    DatabaseError,
    DatabaseOutcomeUnknownError,
    DatabaseUnavailableError,
    Write,
    append_to,
    consume_into,
    insert_into,
    load_query,
    upsert_into,
)
from txn_engine.postgres.positions import CREATE
from txn_engine.postgres.writers import PostgresWriter
from txn_engine.reasons import Reason

pytestmark = pytest.mark.slow


def consumer_of(engine: Engine, topic: str = "payments", **settings: Any) -> Consumer:
    consumer = engine.consumer({"group.id": "to-postgres", "auto.offset.reset": "earliest"} | settings)
    consumer.subscribe([topic])
    return consumer


def accounts(connection: Connection[Any], table: str = "payments") -> list[int]:
    with connection.transaction():
        return [row[0] for row in connection.execute(f"SELECT account_id FROM {table} ORDER BY 1")]  # type: ignore[arg-type]


def test_each_record_is_there_once(engine: Engine, connection: Connection[Any]) -> None:
    """Records are written batch by batch, without aborted ones. A second call writes what has come since, and
    the group follows."""
    produce(engine, payments(*range(100)))
    produce(engine, payments(*range(900, 910)), commit=False)
    write = insert_into("payments", create=True)
    first = consume_into(connection, consumer_of(engine), write, max_records=30)
    assert (first.records, first.batches >= 4, first.group_error) == (100, True, None)
    assert accounts(connection) == list(range(100))
    assert consume_into(connection, consumer_of(engine), write).records == 0
    produce(engine, payments(*range(100, 120)))
    second = consume_into(connection, consumer_of(engine), write)
    assert (second.records, accounts(connection)) == (20, list(range(120)))
    with engine.consumer(group_id="to-postgres") as other:
        other.subscribe(["payments"])
        assert {tp: at.offset for tp, at in other.committed(other.assignment()).items()} == second.positions
        assert set(other.lag().values()) == {0}


def test_a_call_ends_though_records_keep_coming(engine: Engine, connection: Connection[Any]) -> None:
    """A call ends at the ends that it saw when it began, or one batch after them, even if records keep
    coming. The next call writes the rest."""
    produce(engine, payments(*range(50)))
    insert, coming = insert_into("payments", create=True), iter(range(50, 100))

    def and_one_more(connection: Connection[Any], records: pa.Table) -> None:
        insert(connection, records)
        produce(engine, payments(next(coming)))

    done = consume_into(connection, consumer_of(engine), and_one_more, max_records=20)
    assert done.batches <= 4
    consume_into(connection, consumer_of(engine), insert)
    assert accounts(connection) == list(range(50 + done.batches))


def test_the_database_decides_where_a_run_begins(
    engine: Engine, dsn: str, connection: Connection[Any]
) -> None:
    """The position in the database decides where a run begins, not the group's: a group that is ahead skips
    nothing, one behind repeats nothing, and an empty database is filled."""
    produce(engine, payments(1, 2, 3, 4))
    consume_into(connection, consumer_of(engine), insert_into("payments", create=True))
    produce(engine, payments(5, 6, 7, 8))
    ahead = consumer_of(engine)
    while ahead.poll() is not None:
        pass
    ahead.commit()
    assert consume_into(connection, consumer_of(engine), insert_into("payments")).records == 4
    assert accounts(connection) == [1, 2, 3, 4, 5, 6, 7, 8]
    connection.execute("DROP TABLE payments, txn_engine_positions")
    connection.commit()
    assert consume_into(connection, consumer_of(engine), insert_into("payments", create=True)).records == 8


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_write_that_fails_leaves_nothing(engine: Engine, connection: Connection[Any], when: str) -> None:
    """If a write fails, neither rows nor positions of its batch are there. Earlier batches stay, and the next
    call goes on."""
    produce(engine, payments(*range(50)))
    write = insert_into("payments", create=True)
    calls = 0

    def failing(to: Connection[Any], records: pa.Table) -> None:
        nonlocal calls
        calls += 1
        if calls == 3 and when == "before":
            raise RuntimeError("mine")
        write(to, records)
        if calls == 3:
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        consume_into(connection, consumer_of(engine), failing, max_records=10)
    assert len(accounts(connection)) == 20
    assert consume_into(connection, consumer_of(engine), write, max_records=10).records == 30
    assert accounts(connection) == list(range(50))


def _goes_on(to: Connection[Any], _: pa.Table) -> None:
    to.execute("INSERT INTO kept VALUES (2)")
    with suppress(psycopg.Error):
        to.execute("INSERT INTO kept VALUES (1)")


def _ends_quietly(to: Connection[Any], _: pa.Table) -> None:
    to.execute("INSERT INTO kept VALUES (2)")
    raise psycopg.Rollback


def _rolls_back(to: Connection[Any], _: pa.Table) -> None:
    to.execute("ROLLBACK")
    to.execute("INSERT INTO kept VALUES (2)")


def _commits(to: Connection[Any], _: pa.Table) -> None:
    to.execute("COMMIT")
    to.execute("INSERT INTO kept VALUES (2)")


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (_goes_on, Reason.WRITE_HID_AN_ERROR),
        (_ends_quietly, Reason.WRITE_ENDED_TRANSACTION),
        (_rolls_back, Reason.WRITE_ENDED_TRANSACTION),
        (_commits, Reason.WRITE_ENDED_TRANSACTION),
    ],
)
def test_a_write_that_ends_the_transaction(
    engine: Engine, connection: Connection[Any], write: Write, reason: Reason
) -> None:
    """If a write function ends the transaction, that is an error, nothing that it wrote is there, and the
    group does not follow."""
    produce(engine, payments(1))
    connection.execute("CREATE TABLE kept (a int UNIQUE)")
    connection.execute("INSERT INTO kept VALUES (1)")
    connection.commit()
    with pytest.raises(TxnEngineError, check=because(reason)):
        consume_into(connection, consumer_of(engine), write)
    assert connection.info.transaction_status is TransactionStatus.IDLE
    assert connection.execute("SELECT a FROM kept").fetchall() == [(1,)]
    connection.rollback()
    with engine.consumer(group_id="to-postgres") as other:
        other.subscribe(["payments"])
        assert not other.committed(other.assignment())


def test_two_first_runs_at_once(engine: Engine, dsn: str, connection: Connection[Any]) -> None:
    """Of two first runs at the same time, one creates the table of positions and the other finds it."""
    produce(engine, payments(*range(5)))
    done: list[int] = []

    def other() -> None:
        with psycopg.connect(dsn, row_factory=dict_row) as mine:
            write = insert_into("payments", create=True)
            done.append(consume_into(mine, consumer_of(engine), write).records)

    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('txn_engine_positions', 0))")
    connection.execute(CREATE)
    thread = threading.Thread(target=other)
    thread.start()
    with psycopg.connect(dsn, autocommit=True) as third:
        while third.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
            assert thread.is_alive()
    connection.commit()
    thread.join()
    assert done == [5]


def test_two_at_once_one_is_refused(engine: Engine, dsn: str, connection: Connection[Any]) -> None:
    """Of two runs at the same time one is refused, during the other's write and after it, and each record is
    there once."""
    produce(engine, payments(*range(40)))
    write = insert_into("payments", create=True)
    consume_into(connection, consumer_of(engine), write, max_records=10, max_batches=1)
    inside, go_on = threading.Event(), threading.Event()

    def slow(to: Connection[Any], records: pa.Table) -> None:
        inside.set()
        assert go_on.wait(LIMIT_S)
        write(to, records)

    done: list[int] = []

    def other() -> None:
        with psycopg.connect(dsn) as mine:
            done.append(consume_into(mine, consumer_of(engine), slow, max_records=10, max_batches=1).records)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(LIMIT_S)
    with pytest.raises(OffsetsMovedError, check=because(Reason.ANOTHER_RUN_WRITING)):
        consume_into(connection, consumer_of(engine), write)
    go_on.set()
    thread.join()
    assert done == [10]

    def overtaken(to: Connection[Any], records: pa.Table) -> None:
        write(to, records)
        if records.num_rows == 7:  # once
            with psycopg.connect(dsn) as mine, pytest.raises(OffsetsMovedError):
                consume_into(mine, consumer_of(engine), write)

    assert consume_into(connection, consumer_of(engine), overtaken, max_records=7).records == 20
    assert accounts(connection) == list(range(40))


def test_a_run_that_was_overtaken_writes_nothing(
    engine: Engine, dsn: str, connection: Connection[Any]
) -> None:
    """A run whose range was written by another run between its read and its write is refused and writes
    nothing."""
    produce(engine, payments(*range(40)))
    write = insert_into("payments", create=True)
    consume_into(connection, consumer_of(engine), write, max_records=10, max_batches=1)
    consumer = consumer_of(engine)
    poll = consumer.poll

    def late(*words: Any) -> pa.Table | None:
        records = poll(*words)
        with psycopg.connect(dsn) as mine:
            consume_into(mine, consumer_of(engine), write)
        return records

    consumer.poll = late  # type: ignore[method-assign]
    with pytest.raises(OffsetsMovedError, check=because(Reason.POSITION_MOVED)):
        consume_into(connection, consumer, write, max_records=10)
    assert accounts(connection) == list(range(40))


def kill(dsn: str, connection: Connection[Any]) -> None:
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))


DYING_AT_THE_COMMIT = """
    CREATE TABLE late (a int);
    CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER dying AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION die();
    INSERT INTO late VALUES (1)
"""


def test_a_connection_that_is_lost(engine: Engine, dsn: str, connection: Connection[Any]) -> None:
    """If the connection is lost in the middle, nothing of the batch is there. If it is lost at the commit,
    the outcome is unknown, and the next call finds out."""
    produce(engine, payments(*range(20)))
    write = insert_into("payments", create=True)

    def dying(to: Connection[Any], records: pa.Table) -> None:
        kill(dsn, to)
        write(to, records)

    with pytest.raises(DatabaseUnavailableError) as caught:
        consume_into(connection, consumer_of(engine), dying)
    assert not isinstance(caught.value, DatabaseOutcomeUnknownError)

    def dying_late(to: Connection[Any], records: pa.Table) -> None:
        write(to, records)
        to.execute(DYING_AT_THE_COMMIT)

    with psycopg.connect(dsn) as second, pytest.raises(DatabaseOutcomeUnknownError):
        consume_into(second, consumer_of(engine), dying_late)
    with psycopg.connect(dsn) as third:
        consume_into(third, consumer_of(engine), write)
        assert accounts(third) == list(range(20))


def test_partitions_and_topics_that_come_and_go(engine: Engine, connection: Connection[Any]) -> None:
    """A new partition is read from its beginning. A topic that was created again is refused, because its
    records are others."""
    produce(engine, payments(*range(30)))
    write = insert_into("payments", create=True)
    consumer = consumer_of(engine)
    consume_into(connection, consumer, write)
    engine.admin.add_partitions_to_topic("payments", 5)
    produce(engine, payments(*range(30, 60)))
    consume_into(connection, consumer, write, max_records=7)
    assert accounts(connection) == list(range(60))
    engine.admin.delete_topic("payments")
    engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
    produce(engine, payments(1))
    with pytest.raises(InvalidRequestError, check=because(Reason.TOPIC_MADE_AGAIN)):
        consume_into(connection, consumer_of(engine), write)


# --- what is written ----------------------------------------------------------------------------------------------


def test_upserts_and_tombstones(engine: Engine, connection: Connection[Any]) -> None:
    """An upsert writes the last record of each key. A tombstone deletes its row if that was asked for."""
    write = upsert_into("payments", ["account_id"], create=True, delete_tombstones=True)
    produce(engine, pa.concat_tables([payments(1, 2, amount="1.00"), payments(1, amount="2.00")]))
    consume_into(connection, consumer_of(engine), write)
    produce(engine, pa.concat_tables([payments(1, amount="3.00"), payments(3, amount="9.00")]))
    gone = pa.table({"account_id": [2], "amount": [None], "note": [None]}, schema=SCHEMA)
    produce(engine, gone)
    consume_into(connection, consumer_of(engine), write)
    rows = connection.execute("SELECT account_id, amount::text FROM payments ORDER BY 1").fetchall()
    assert rows == [(1, "3.00"), (3, "9.00")]


def test_a_history_has_places(engine: Engine, connection: Connection[Any]) -> None:
    produce(engine, payments(*range(10)))
    consume_into(connection, consumer_of(engine), append_to("history", create=True))
    rows = connection.execute("SELECT _partition, _offset, account_id FROM history ORDER BY 1, 2").fetchall()
    scanned = engine.scan("payments").to_table(["_partition", "_offset", "account_id"])
    assert rows == sorted(zip(*(column.to_pylist() for column in scanned.columns), strict=True))


@pytest.mark.parametrize(
    ("definition", "reason", "column"),
    [
        ("account_id bigint, amount numeric(18,2)", Reason.MISSING_COLUMN, "note"),
        ("account_id integer, amount numeric(18,2), note text", Reason.TYPE_MISMATCH, "account_id"),
        ("account_id bigint, amount numeric(10,2), note text", Reason.TYPE_MISMATCH, "amount"),
        ("account_id bigint, amount numeric(20,1), note text", Reason.TYPE_MISMATCH, "amount"),
        ("account_id bigint, amount double precision, note text", Reason.TYPE_MISMATCH, "amount"),
        ("account_id bigint, amount numeric(18,2), note text NOT NULL", Reason.NULL_IN_NOT_NULL, "note"),
        ("account_id bigint, amount numeric(18,2), note char(9)", Reason.TYPE_MISMATCH, "note"),
        ("account_id bigint, amount numeric, note text, more text NOT NULL", Reason.NULL_IN_NOT_NULL, "more"),
        (
            "account_id bigint GENERATED ALWAYS AS (1) STORED, amount numeric, note text",
            Reason.GENERATED_COLUMN,
            "account_id",
        ),
    ],
)
def test_a_table_that_would_lose_something(
    engine: Engine, connection: Connection[Any], definition: str, reason: Reason, column: str
) -> None:
    """A table that would lose something is refused in one line before the first row, and no position
    moves."""
    connection.execute(f"CREATE TABLE payments ({definition})")  # type: ignore[arg-type]
    connection.commit()
    produce(engine, payments(1, note=None))
    with pytest.raises(DatabaseError, check=because(reason)) as caught:
        consume_into(connection, consumer_of(engine), insert_into("payments"))
    assert repr(column) in caught.value.seen
    assert connection.execute("SELECT count(*) FROM txn_engine_positions").fetchone() == (0,)


def test_a_text_that_is_too_long_is_not_quoted(engine: Engine, connection: Connection[Any]) -> None:
    connection.execute("CREATE TABLE payments (account_id bigint, amount numeric, note varchar(5))")
    connection.commit()
    produce(engine, payments(1, note="secret-and-long"))
    with pytest.raises(DatabaseError, check=because(Reason.TEXT_TOO_LONG)) as caught:
        consume_into(connection, consumer_of(engine), insert_into("payments"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "values",
    in_shard(
        "engines",
        [
            pytest.param(pa.array(["fine", "secret\0"]), id="text"),
            pytest.param(pa.array(["fine", "secret\0"], pa.string_view()), id="text view"),
            pytest.param(pa.array([0, -719_163], pa.date32()), id="date"),
            pytest.param(pa.array([0, -62_135_596_800_001], pa.timestamp("ms", "UTC")), id="moment"),
        ],
        keep=lambda values: not pa.types.is_string_view(values.type),
    ),
)
def test_a_value_that_postgres_has_not(
    engine: Engine, connection: Connection[Any], values: pa.Array[Any]
) -> None:
    """A value that Postgres does not have is named by its place."""
    engine.admin.create_topic("odd", partitions=1, schema=pa.schema([("value", values.type)]))
    produce(engine, pa.table({"value": values}), "odd")
    with pytest.raises(InvalidRecordError, check=because(Reason.INEXACT_VALUE)) as caught:
        consume_into(connection, consumer_of(engine, "odd"), insert_into("odd", create=True))
    assert "record at 0@1" in caught.value.seen
    assert "secret" not in str(caught.value)


NANS = pa.array(np.array([0x7FC00000, 0xFFC00000, 0x3F800000], np.uint32).view(np.float32))
"""Two NaNs of other bits, and 1.0."""


@pytest.mark.parametrize(
    ("kind", "keys", "left"),
    in_shard(
        "engines",
        [
            pytest.param("double precision", pa.array([0.0, -0.0, 1.0]), [-0.0, 1.0], id="doubles"),
            pytest.param("double precision", NANS.cast(pa.float64()), [float("nan"), 1.0], id="NaNs"),
            pytest.param("real", NANS, [float("nan"), 1.0], id="small NaNs"),
            pytest.param("text", pa.array(["a", "a", "b"], pa.string_view()), ["a", "b"], id="texts"),
            pytest.param("bytea", pa.array([b"a", b"a", b"b"], pa.binary_view()), [b"a", b"b"], id="bytes"),
        ],
        keep=["doubles", "NaNs", "texts"],
    ),
)
def test_keys_of_any_type(
    engine: Engine, connection: Connection[Any], kind: str, keys: pa.Array[Any], left: list[Any]
) -> None:
    """Keys that the database considers equal are one key, whatever their type. The last record counts, also for how the
    key is written."""
    schema = pa.schema([("name", keys.type), ("value", pa.string_view())])
    engine.admin.create_topic("odd", partitions=1, schema=schema)
    produce(engine, pa.table({"name": keys, "value": pa.array(["1", "2", "3"], pa.string_view())}), "odd")
    connection.execute(SQL("CREATE TABLE odd (name {} PRIMARY KEY, value varchar(3))").format(SQL(kind)))
    connection.commit()
    consume_into(connection, consumer_of(engine, "odd"), upsert_into("odd", ["name"]))
    found = connection.execute("SELECT name, value FROM odd ORDER BY value").fetchall()
    assert list(map(repr, found)) == list(map(repr, zip(left, ["2", "3"], strict=True)))
    connection.commit()
    again = pa.table({"name": keys.slice(0, 1), "value": pa.array(["4"], pa.string_view())})
    produce(engine, again, "odd")
    consume_into(connection, consumer_of(engine, "odd"), upsert_into("odd", ["name"]))
    kept = connection.execute("SELECT name FROM odd WHERE value = '4'").fetchall()
    assert repr(kept) == repr([(keys[0].as_py(),)])


@pytest.mark.parametrize(
    ("state", "error"),
    [("53100", DatabaseUnavailableError), ("58030", DatabaseUnavailableError), ("P0001", DatabaseError)],
)
@pytest.mark.parametrize("deferred", in_shard("engines", ["", "DEFERRABLE INITIALLY DEFERRED"], keep=1))
def test_what_may_pass_is_worth_a_retry(
    engine: Engine, connection: Connection[Any], state: str, error: type[DatabaseError], deferred: str
) -> None:
    """An error that may pass, like a full disk, is worth a retry. Its outcome is known, at the commit too."""
    produce(engine, payments(1))
    connection.execute("CREATE TABLE payments (account_id bigint, amount numeric(18,2), note text)")
    connection.execute(
        SQL(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION USING ERRCODE = {}; END $$"
        ).format(state)
    )
    connection.execute(
        SQL(
            "CREATE CONSTRAINT TRIGGER refusing AFTER INSERT ON payments {} FOR EACH ROW EXECUTE FUNCTION refuse()"
        ).format(SQL(deferred))
    )
    connection.commit()
    with pytest.raises(DatabaseError) as caught:
        consume_into(connection, consumer_of(engine), insert_into("payments"))
    assert type(caught.value) is error


def test_every_type_comes_back_as_it_was(engine: Engine, connection: Connection[Any]) -> None:
    """Records of every type are the same after they were written into a table that was made for the topic and
    loaded with `load_query`."""
    for topic in ("kinds", "again"):
        engine.admin.create_topic(topic, partitions=1, schema=RECORDS.schema)
    produce(engine, RECORDS, "kinds")
    consume_into(connection, consumer_of(engine, "kinds"), insert_into("kinds", create=True))
    load_query(engine, connection, "SELECT * FROM kinds", "again", run_id="1")
    names = RECORDS.column_names
    assert engine.scan("again").to_table(names).equals(engine.scan("kinds").to_table(names))


@pytest.mark.parametrize("encoding", in_shard("engines", ["LATIN1", "UTF8", "SQL_ASCII"], keep=["SQL_ASCII"]))
def test_texts_whatever_the_connection_speaks(engine: Engine, dsn: str, encoding: str) -> None:
    """Texts are the same whatever encoding the connection has."""
    produce(engine, payments(1, note="Zoë"))
    with psycopg.connect(dsn, client_encoding=encoding) as connection:
        consume_into(connection, consumer_of(engine), insert_into("payments", create=True))
        assert consume_into(connection, consumer_of(engine), insert_into("payments")).records == 0
        assert connection.execute("SELECT note = U&'Zo\\00EB' FROM payments").fetchall() == [(True,)]
        connection.commit()
        engine.admin.create_topic("again", partitions=1, schema=SCHEMA)
        load_query(engine, connection, "SELECT * FROM payments", "again", run_id="1")
    assert engine.scan("again").to_table(["note"])["note"].to_pylist() == ["Zoë"]


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.date32()])
def test_a_year_that_has_no_text(engine: Engine, connection: Connection[Any], kind: Any) -> None:
    """The years 1 to 32767 are exact. A time outside of them, as what DuckDB has for infinity, is refused with the
    place of its record."""
    per_day = 1 if kind == pa.date32() else 86_400 * {"ms": 10**3, "us": 10**6}[kind.unit]
    first, last = -719_162 * per_day, 11_248_737 * per_day + per_day - 1
    infinity = 2 ** (31 if kind == pa.date32() else 63) - 1
    whole = pa.int32() if kind == pa.date32() else pa.int64()
    for number, moments in enumerate(
        [[first, last], [0, first - 1], [0, last + 1], [0, infinity], [0, -infinity]]
    ):
        topic = f"times{number}"
        engine.admin.create_topic(topic, partitions=1, schema=pa.schema([("at", kind)]))
        produce(engine, pa.table({"at": pa.array(moments, whole).cast(kind)}), topic)
        if number == 0:
            consume_into(connection, consumer_of(engine, topic), insert_into(topic, create=True))
            days = "SELECT extract(year FROM at), at::date - '1970-01-01'::date FROM times0 ORDER BY at"
            connection.execute("SET timezone = 'UTC'")
            rows = connection.execute(days).fetchall()
            assert [tuple(map(int, row)) for row in rows] == [(1, -719_162), (32_767, 11_248_737)]
            connection.commit()
            continue
        with pytest.raises(InvalidRecordError, check=because(Reason.INEXACT_VALUE)) as caught:
            consume_into(connection, consumer_of(engine, topic), insert_into(topic, create=True))
        assert "0@1" in (caught.value.seen or "")


def test_a_zone_that_is_seconds_off(engine: Engine, connection: Connection[Any]) -> None:
    kind = pa.timestamp("us", "Africa/Monrovia")
    times = pa.table({"at": pa.array([0, 1], kind)})
    engine.admin.create_topic("times", partitions=1, schema=times.schema)
    produce(engine, times, "times")
    consume_into(connection, consumer_of(engine, "times"), insert_into("times", create=True))
    rows = connection.execute("SELECT extract(epoch FROM at) * 1000000 FROM times ORDER BY 1").fetchall()
    assert [int(each) for (each,) in rows] == [0, 1]


def test_spaces_that_would_be_cut(engine: Engine, connection: Connection[Any]) -> None:
    connection.execute("CREATE TABLE payments (account_id bigint, amount numeric, note varchar(3))")
    connection.commit()
    produce(engine, payments(1, note="abc   "))
    with pytest.raises(DatabaseError, check=because(Reason.TEXT_TOO_LONG)):
        consume_into(connection, consumer_of(engine), insert_into("payments"))


def test_a_key_that_is_null(engine: Engine, connection: Connection[Any]) -> None:
    connection.execute("CREATE TABLE payments (account_id bigint, amount numeric, note text UNIQUE)")
    connection.commit()
    produce(engine, payments(1, note=None))
    with pytest.raises(InvalidRecordError, check=because(Reason.NULL_IN_KEY)):
        consume_into(connection, consumer_of(engine), upsert_into("payments", ["note"]))


def test_the_words_of_a_trigger_are_not_told(engine: Engine, connection: Connection[Any]) -> None:
    connection.execute("CREATE TABLE payments (account_id bigint, amount numeric, note text)")
    connection.execute(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'bad note %', new.note; END $$"
    )
    connection.execute("CREATE TRIGGER no BEFORE INSERT ON payments FOR EACH ROW EXECUTE FUNCTION no()")
    connection.commit()
    produce(engine, payments(1, note="4111-SECRET"))
    with pytest.raises(DatabaseError) as caught:
        consume_into(connection, consumer_of(engine), insert_into("payments"))
    assert isinstance(caught.value.__cause__, psycopg.errors.RaiseException)
    assert "SECRET" not in str(caught.value)


def test_positions_in_a_schema_that_is_not_searched(engine: Engine, connection: Connection[Any]) -> None:
    """If the table of positions is in a schema that is not searched, the run is refused instead of beginning
    again."""
    produce(engine, payments(1))
    consume_into(connection, consumer_of(engine), insert_into("payments", create=True))
    connection.execute("CREATE SCHEMA app")
    connection.execute("SET search_path = app")
    connection.commit()
    with pytest.raises(InvalidRequestError, check=because(Reason.POSITIONS_IN_ANOTHER_SCHEMA)):
        consume_into(connection, consumer_of(engine), insert_into("payments", create=True))


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda engine, connection: (connection, engine.consumer()), InvalidGroupIdError),
        (lambda engine, connection: (connection, engine.consumer(group_id="g")), IllegalStateError),
        (lambda engine, connection: (_in_transaction(connection), consumer_of(engine)), IllegalStateError),
        (lambda engine, connection: (_closed(connection), consumer_of(engine)), IllegalStateError),
    ],
)
def test_what_cannot_be_done(
    engine: Engine,
    connection: Connection[Any],
    make: Callable[[Engine, Connection[Any]], tuple[Connection[Any], Consumer]],
    error: type[TxnEngineError],
) -> None:
    to, consumer = make(engine, connection)
    with pytest.raises(error) as caught:
        consume_into(to, consumer, insert_into("payments"))
    assert "\n" not in str(caught.value)


def _in_transaction(connection: Connection[Any]) -> Connection[Any]:
    connection.execute("SELECT 1")
    return connection


def _closed(connection: Connection[Any]) -> Connection[Any]:
    connection.close()
    return connection


_SWALLOW = """
CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN
        IF coalesce(new.account_id, old.account_id) = 2 THEN RETURN NULL; END IF;
        RETURN coalesce(new, old);
    END $$;
CREATE TRIGGER swallow BEFORE INSERT OR DELETE ON payments FOR EACH ROW EXECUTE FUNCTION swallow()"""


@pytest.mark.parametrize("write", [insert_into("payments"), upsert_into("payments", ["account_id"])])
def test_records_that_a_trigger_keeps_out_are_not_counted(
    engine: Engine, connection: Connection[Any], write: Write
) -> None:
    """A record that a trigger keeps out of the table stops the batch, and its position stays. Without the trigger the
    records are written."""
    produce(engine, payments(1, 2, 3))
    connection.execute(
        "CREATE TABLE payments (account_id bigint PRIMARY KEY, amount numeric(18,2), note text)"
    )
    connection.execute(_SWALLOW)
    connection.commit()
    for _ in range(2):
        with pytest.raises(DatabaseError, check=because(Reason.ROWS_NOT_WRITTEN)):
            consume_into(connection, consumer_of(engine), write)
        assert accounts(connection) == []
    connection.execute("DROP TRIGGER swallow ON payments")
    connection.commit()
    assert consume_into(connection, consumer_of(engine), write).records == 3
    assert accounts(connection) == [1, 2, 3]


def test_a_trigger_may_leave_alone_what_is_there_and_may_not_keep_what_is_deleted(
    engine: Engine, connection: Connection[Any]
) -> None:
    """Postgres' own trigger against redundant updates leaves a row as it is that has the same values. One that keeps a
    row that a tombstone deletes is refused."""
    connection.execute(
        "CREATE TABLE payments (account_id bigint PRIMARY KEY, amount numeric(18,2), note text)"
    )
    connection.execute(
        "CREATE TRIGGER same BEFORE UPDATE ON payments FOR EACH ROW"
        " EXECUTE FUNCTION suppress_redundant_updates_trigger()"
    )
    connection.commit()
    write = upsert_into("payments", ["account_id"], delete_tombstones=True)
    for _ in range(2):
        produce(engine, payments(1, 2))
        assert consume_into(connection, consumer_of(engine), write).records == 2
    connection.execute(_SWALLOW)
    connection.commit()
    dead = pa.table({"account_id": [2], "amount": [None], "note": [None]}, schema=SCHEMA)
    produce(engine, dead)
    with pytest.raises(DatabaseError, check=because(Reason.ROWS_NOT_DELETED)):
        consume_into(connection, consumer_of(engine), write)
    assert accounts(connection) == [1, 2]


_TAKE = """
CREATE TABLE audit (account_id bigint);
CREATE FUNCTION take() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO audit VALUES (new.account_id);
    IF new.account_id = 2 THEN DELETE FROM payments WHERE account_id IN (2, 9); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER take AFTER INSERT OR UPDATE ON payments FOR EACH ROW EXECUTE FUNCTION take()"""


@pytest.mark.parametrize("parts", ["none", "partitions", "children"])
@pytest.mark.parametrize("write", [insert_into("payments"), upsert_into("payments", ["account_id"])])
def test_rows_that_a_trigger_deletes_are_noticed(
    engine: Engine, connection: Connection[Any], write: PostgresWriter, parts: str
) -> None:
    """A trigger that deletes rows of the table stops the batch. It may write to other tables."""
    connection.execute(
        SQL(
            "CREATE TABLE payments (account_id bigint PRIMARY KEY, amount numeric(18,2), note text)"
            + (" PARTITION BY RANGE (account_id)" if parts == "partitions" else "")
        )
    )
    if parts == "partitions":
        connection.execute("CREATE TABLE few PARTITION OF payments FOR VALUES FROM (0) TO (100)")
    if parts == "children":
        connection.execute("CREATE TABLE few () INHERITS (payments)")
        connection.execute("INSERT INTO few VALUES (9)")
    else:
        connection.execute("INSERT INTO payments VALUES (9)")
    connection.execute(_TAKE.replace("IN (2, 9)", "= 9") if parts == "children" else _TAKE)
    connection.commit()
    produce(engine, payments(1))
    if parts == "children" and write.key:
        with pytest.raises(DatabaseError, check=because(Reason.HAS_INHERITING_TABLES)):
            consume_into(connection, consumer_of(engine), write)
        return
    assert consume_into(connection, consumer_of(engine), write).records == 1
    produce(engine, payments(2, 3))
    with pytest.raises(DatabaseError, check=because(Reason.OTHER_ROWS_CHANGED)):
        consume_into(connection, consumer_of(engine), write)
    assert accounts(connection) == [1, 9]
    assert accounts(connection, "audit") == [1]


def test_a_server_that_does_not_count_what_is_deleted(engine: Engine, connection: Connection[Any]) -> None:
    """If the server does not count deleted rows, a table with a trigger is refused, and one without is written."""
    connection.execute(
        "CREATE TABLE payments (account_id bigint PRIMARY KEY, amount numeric(18,2), note text)"
    )
    connection.execute(_TAKE)
    connection.execute("SET track_counts = off")
    connection.commit()
    produce(engine, payments(1))
    for write in (insert_into("payments"), upsert_into("payments", ["account_id"])):
        with pytest.raises(DatabaseError, check=because(Reason.DELETES_NOT_COUNTED)):
            consume_into(connection, consumer_of(engine), write)
    assert accounts(connection) == []
    assert consume_into(connection, consumer_of(engine), insert_into("plain", create=True)).records == 1


def test_a_tombstone_that_deletes_other_rows_is_noticed(engine: Engine, connection: Connection[Any]) -> None:
    """A foreign key that deletes other rows of the table with a tombstone's row stops the batch. It does no harm where
    the batch deletes these rows too."""
    schema = pa.schema([("id", pa.int64()), ("parent", pa.int64())])
    engine.admin.create_topic("tree", partitions=1, schema=schema)
    connection.execute(
        "CREATE TABLE tree (id bigint PRIMARY KEY, parent bigint REFERENCES tree (id) ON DELETE CASCADE)"
    )
    connection.commit()
    write = upsert_into("tree", ["id"], delete_tombstones=True)
    produce(engine, pa.table({"id": [1, 2], "parent": [1, 1]}, schema=schema), "tree")
    consume_into(connection, consumer_of(engine, "tree"), write)
    produce(engine, pa.table({"id": [1], "parent": [None]}, schema=schema), "tree")
    with pytest.raises(DatabaseError, check=because(Reason.OTHER_ROWS_CHANGED)):
        consume_into(connection, consumer_of(engine, "tree"), write)
    produce(engine, pa.table({"id": [2], "parent": [None]}, schema=schema), "tree")
    assert consume_into(connection, consumer_of(engine, "tree"), write).records == 2
    with connection.transaction():
        assert connection.execute("SELECT id FROM tree").fetchall() == []


_NAMED_BY_INDEX: LiteralString = """
CREATE TABLE named (name text, value bigint);
CREATE UNIQUE INDEX ON named (name COLLATE nocase);
CREATE UNIQUE INDEX ON named (name, value)"""


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE named (name text COLLATE nocase PRIMARY KEY, value bigint)",
        _NAMED_BY_INDEX,
    ],
    ids=["the column's collation", "the index's collation"],
)
def test_keys_that_the_database_takes_for_equal_are_one_key(
    engine: Engine, connection: Connection[Any], table: LiteralString
) -> None:
    """Of keys that a collation takes for equal, the last record counts, within a batch as from one batch to the next,
    also where an earlier one of them is a tombstone. The row has the last record's key."""
    connection.execute(
        "CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    connection.execute(table)
    connection.commit()
    schema = pa.schema([("name", pa.string()), ("value", pa.int64())])
    engine.admin.create_topic("named", partitions=1, schema=schema)
    rows = {"name": ["a", "A", "b", "a", "A"], "value": [1, 2, 3, None, 5]}
    produce(engine, pa.table(rows, schema=schema), "named")
    write = upsert_into("named", ["name"], delete_tombstones=True)
    consume_into(connection, consumer_of(engine, "named"), write)
    kept: LiteralString = "SELECT name, value FROM named ORDER BY value"
    found = connection.execute(kept).fetchall()
    connection.commit()
    assert found == [("b", 3), ("A", 5)]
    produce(engine, pa.table({"name": ["B", "a"], "value": [8, 9]}, schema=schema), "named")
    consume_into(connection, consumer_of(engine, "named"), write)
    found = connection.execute(kept).fetchall()
    connection.commit()
    assert found == [("B", 8), ("a", 9)]
    produce(engine, pa.table({"name": ["A", "a"], "value": [6, None]}, schema=schema), "named")
    consume_into(connection, consumer_of(engine, "named"), write)
    assert connection.execute(kept).fetchall() == [("B", 8)]


@pytest.mark.parametrize("columns", [["name"], ["name", "note"]])
def test_a_trigger_that_leaves_a_row_in_another_case(
    engine: Engine, connection: Connection[Any], columns: list[str]
) -> None:
    """A trigger that keeps back an update, because a collation without case sees no change, is noticed."""
    connection.execute(
        "CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    connection.execute("CREATE TABLE named (name text COLLATE nocase PRIMARY KEY, note text COLLATE nocase)")
    connection.execute(
        "CREATE FUNCTION same() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF (old.name, old.note) IS NOT DISTINCT FROM (new.name, new.note) THEN RETURN NULL; END IF;"
        " RETURN new; END $$"
    )
    connection.execute("CREATE TRIGGER same BEFORE UPDATE ON named FOR EACH ROW EXECUTE FUNCTION same()")
    connection.commit()
    schema = pa.schema([(name, pa.string()) for name in columns])
    engine.admin.create_topic("named", partitions=1, schema=schema)
    for text in "aA":
        produce(engine, pa.table({name: [text] for name in columns}, schema=schema), "named")
        if text == "A":
            with pytest.raises(DatabaseError, check=because(Reason.ROWS_NOT_WRITTEN)):
                consume_into(connection, consumer_of(engine, "named"), upsert_into("named", ["name"]))
        else:
            consume_into(connection, consumer_of(engine, "named"), upsert_into("named", ["name"]))


def test_identity_columns_and_deferrable_keys(engine: Engine, connection: Connection[Any]) -> None:
    """A key that is an identity column takes the records' values. Another identity column, and a key that is checked
    late, are refused before a row is written."""
    produce(engine, payments(1, 2))
    always: LiteralString = "bigint GENERATED ALWAYS AS IDENTITY"
    connection.execute(
        SQL("CREATE TABLE keyed (account_id {} PRIMARY KEY, amount numeric, note text)").format(SQL(always))
    )
    connection.execute(
        SQL("CREATE TABLE other (account_id {}, amount numeric, note text PRIMARY KEY)").format(SQL(always))
    )
    connection.execute(
        "CREATE TABLE late (account_id bigint PRIMARY KEY DEFERRABLE, amount numeric, note text)"
    )
    connection.commit()
    for _ in range(2):
        consume_into(connection, consumer_of(engine), upsert_into("keyed", ["account_id"]))
        assert accounts(connection, "keyed") == [1, 2]
    other = consumer_of(engine, **{"group.id": "other"})
    with pytest.raises(DatabaseError, check=because(Reason.GENERATED_COLUMN)):
        consume_into(connection, other, upsert_into("other", ["note"]))
    late = consumer_of(engine, **{"group.id": "late"})
    with pytest.raises(DatabaseError, check=because(Reason.DEFERRABLE_KEY)):
        consume_into(connection, late, upsert_into("late", ["account_id"]))


def test_a_table_that_others_inherit_from(engine: Engine, connection: Connection[Any]) -> None:
    """An upsert into it is refused, because a key could be in a table that inherits from it, which the unique index
    does not see. Into a partitioned table, and into a table that inherits itself, keys are replaced."""
    produce(engine, payments(1, 2))
    columns: LiteralString = "account_id bigint PRIMARY KEY, amount numeric, note text"
    connection.execute(SQL("CREATE TABLE parent ({})").format(SQL(columns)))
    connection.execute("CREATE TABLE child (PRIMARY KEY (account_id)) INHERITS (parent)")
    connection.execute("INSERT INTO child VALUES (1, 100, 'theirs')")
    connection.execute(SQL("CREATE TABLE parted ({}) PARTITION BY RANGE (account_id)").format(SQL(columns)))
    connection.execute("CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (1000)")
    connection.commit()
    with pytest.raises(DatabaseError, check=because(Reason.HAS_INHERITING_TABLES)):
        consume_into(connection, consumer_of(engine), upsert_into("parent", ["account_id"]))
    connection.rollback()
    assert connection.execute("SELECT count(*) FROM parent").fetchone() == (1,)
    connection.rollback()
    for table in ("parted", "child"):
        consumer = consumer_of(engine, **{"group.id": table})
        consume_into(connection, consumer, upsert_into(table, ["account_id"]))
        assert accounts(connection, table) == [1, 2]
