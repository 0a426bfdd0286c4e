"""What a real Postgres refuses is told in one sentence, with the place of the record, and without its values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, LiteralString

import psycopg
import pyarrow as pa
import pytest
from psycopg import Connection

from tests.loading.refusals import because
from tests.postgres.conftest import database_in, produce
from tests.postgres.test_consuming import consumer_of
from txn_engine import Engine
from txn_engine.postgres import DatabaseError, Write, consume_into, insert_into, upsert_into
from txn_engine.postgres.errors import translated
from txn_engine.reasons import Reason

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string())])
IDS = range(20)
BAD = 13
TABLE: LiteralString = "CREATE TABLE notes (id bigint PRIMARY KEY, note text); "
_RAISE: LiteralString = """
CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF coalesce(new.note, old.note) = 'secret' THEN RAISE '%', old.note || new.note USING ERRCODE = {}; END IF;
    RETURN coalesce(new, old);
END $$;
CREATE TRIGGER no BEFORE INSERT OR UPDATE OR DELETE ON notes FOR EACH ROW EXECUTE FUNCTION no()"""


@pytest.fixture
def notes(engine: Engine) -> Engine:
    """A topic of twenty notes, one of which is a secret."""
    engine.admin.create_topic("notes", partitions=1, schema=SCHEMA)
    texts = ["secret" if number == BAD else f"note {number}" for number in IDS]
    produce(engine, pa.table({"id": list(IDS), "note": texts}, schema=SCHEMA), "notes")
    return engine


_CONDITIONS = """0A000 21000 22012 22021 23505 25006 27000 2F005 38001 40P01 42P01 42601 44000 53100 54000 55006 57014
58030 72000 HV000 P0001 XX000"""


@pytest.mark.parametrize("code", _CONDITIONS.split())
def test_each_condition_has_a_sentence(code: str) -> None:
    """No error is the bare name of its condition, or has what the server says of values."""
    error = psycopg.errors.lookup(code)("the secret of a record")
    told = translated(error, "consume_into", "group 'g'")
    assert told.seen != type(error).__name__
    assert re.fullmatch(r"[a-z].* .*", told.seen)
    assert not re.search(r"[a-z][A-Z]|secret|\n", told.seen)


@pytest.mark.parametrize(
    "write", [insert_into("notes"), upsert_into("notes", ["id"])], ids=["insert", "upsert"]
)
@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE notes (id bigint PRIMARY KEY, note text CHECK (note <> 'secret'))",
        TABLE + "CREATE UNIQUE INDEX ON notes ((CASE WHEN note = 'secret' THEN 7 ELSE id END))",
        TABLE + "CREATE INDEX ON notes ((1 / (id - 13)))",
        TABLE + _RAISE.format("'P0001'"),
        TABLE + _RAISE.format("'42P01'"),
        TABLE + _RAISE.format("'ZZ123'"),
    ],
    ids=["check", "unique", "computed", "trigger", "trigger with a code of names", "code of its own"],
)
def test_a_record_that_is_refused_is_named(
    notes: Engine, connection: Connection[Any], table: LiteralString, write: Write
) -> None:
    """The error has the place of the first record that the database refuses, and quotes none of its values. Nothing of
    the batch is there."""
    connection.execute(table)
    connection.commit()
    for _ in range(2):
        with pytest.raises(DatabaseError, check=because(Reason.RECORD_REFUSED)) as caught:
            consume_into(connection, consumer_of(notes, "notes"), write)
        assert f"0@{BAD} " in caught.value.seen
        assert isinstance(caught.value.__cause__, psycopg.Error)
        assert "secret" not in str(caught.value)
    assert connection.execute("SELECT count(*) FROM notes").fetchone() == (0,)


def test_a_tombstone_that_is_refused_is_named(notes: Engine, connection: Connection[Any]) -> None:
    """The place is that of the tombstone, though other records of the batch are written in another statement."""
    connection.execute(TABLE)
    connection.commit()
    write = upsert_into("notes", ["id"], delete_tombstones=True)
    consume_into(connection, consumer_of(notes, "notes"), write)
    connection.execute("CREATE TABLE others (id bigint REFERENCES notes (id))")
    connection.execute("INSERT INTO others VALUES (7)")
    connection.commit()
    rows = {"id": [1, 2, 7, 3], "note": [None, "kept", None, None]}
    produce(notes, pa.table(rows, schema=SCHEMA), "notes")
    with pytest.raises(DatabaseError, check=because(Reason.RECORD_REFUSED)) as caught:
        consume_into(connection, consumer_of(notes, "notes"), write)
    assert f"0@{len(IDS) + 1 + 2} " in caught.value.seen  # a marker is between them


_TRUNCATE: LiteralString = """
CREATE FUNCTION empty() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN TRUNCATE notes; RETURN new; END $$;
CREATE TRIGGER empty BEFORE INSERT ON notes FOR EACH ROW EXECUTE FUNCTION empty()"""


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        (
            "CREATE RULE also AS ON INSERT TO notes DO ALSO UPDATE notes SET note = note WHERE id = new.id",
            psycopg.errors.FeatureNotSupported,
        ),
        (_TRUNCATE, psycopg.errors.ObjectInUse),
    ],
)
def test_what_is_no_records_fault_names_none(
    notes: Engine, connection: Connection[Any], more: LiteralString, cause: type[psycopg.Error]
) -> None:
    """A table that refuses every statement names no record, and the server's own text says why."""
    connection.execute(TABLE + more)
    connection.commit()
    with pytest.raises(DatabaseError, check=because(None)) as caught:
        consume_into(connection, consumer_of(notes, "notes"), upsert_into("notes", ["id"]))
    assert isinstance(caught.value.__cause__, cause)
    assert caught.value.seen == caught.value.__cause__.diag.message_primary
    assert "0@0" not in str(caught.value)


def test_a_refused_record_cannot_be_passed_over(notes: Engine, connection: Connection[Any]) -> None:
    """A function that hides the error does not get the batch committed without its records."""
    connection.execute("CREATE TABLE notes (id bigint PRIMARY KEY, note text CHECK (note <> 'secret'))")
    connection.commit()
    write = insert_into("notes")

    def hide(own: Connection[Any], records: pa.Table) -> None:
        with suppress(DatabaseError):
            write(own, records)

    with pytest.raises(DatabaseError, check=because(Reason.WRITE_HID_AN_ERROR)):
        consume_into(connection, consumer_of(notes, "notes"), hide)


@pytest.fixture(params=["LATIN1", "WIN1252"])
def narrow(dsn: str, request: pytest.FixtureRequest) -> Iterator[Connection[Any]]:
    """A database with an encoding of one byte a character."""
    with psycopg.connect(database_in(dsn, request.param)) as connection:
        yield connection


@pytest.mark.parametrize(
    "write", [insert_into("notes", create=True), upsert_into("notes", ["id"], create=True)]
)
def test_a_text_that_the_database_does_not_have(
    engine: Engine, narrow: Connection[Any], write: Write
) -> None:
    """A text with a character that the database's encoding lacks is named with its record."""
    engine.admin.create_topic("notes", partitions=1, schema=SCHEMA)
    produce(engine, pa.table({"id": [0, 1, 2], "note": ["caf\u00e9", "\u4e2d", "x"]}, schema=SCHEMA), "notes")
    with pytest.raises(DatabaseError, check=because(Reason.BAD_ENCODING)) as caught:
        consume_into(narrow, consumer_of(engine, "notes"), write)
    assert "0@1 " in caught.value.seen
