"""Rows of a real Postgres that do not fit their topic become dead letters in the same transaction."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import Connection
from psycopg.sql import SQL

from tests.loading.refusals import because
from tests.postgres.conftest import SCHEMA, database_in
from tests.postgres.every_type import RECORDS
from tests.suite.tiers import in_shard
from tests.support.stores import accounts_in
from txn_engine import Engine
from txn_engine.errors import InvalidRecordError, TxnEngineError
from txn_engine.loading import DEAD_LETTERS, replay
from txn_engine.postgres import load_outbox, load_query
from txn_engine.postgres import outbox as outbox_module
from txn_engine.reasons import Reason

pytestmark = pytest.mark.slow

QUERY = "SELECT account_id, amount, note FROM payments ORDER BY account_id NULLS LAST"


@pytest.fixture
def table(engine: Engine, connection: Connection[Any]) -> Connection[Any]:
    """A thousand payments, ten of which have an amount that is too fine and one no account, and a topic for
    dead letters."""
    engine.admin.create_topic("dead", partitions=1, schema=DEAD_LETTERS)
    connection.execute("CREATE TABLE payments (account_id bigint, amount numeric, note text)")
    connection.execute(
        "INSERT INTO payments SELECT n, CASE n % 100 WHEN 7 THEN 0.001 ELSE 1.5 END, 'x'"
        " FROM generate_series(0, 998) AS of (n)"
    )
    connection.execute("INSERT INTO payments VALUES (NULL, 1.5, 'x')")
    connection.commit()
    return connection


def letters(engine: Engine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = engine.scan("dead").to_table(DEAD_LETTERS.names).to_pylist()
    return found


def test_rows_are_records_or_dead_letters(engine: Engine, table: Connection[Any]) -> None:
    """Each row becomes a record or a dead letter, which has the row, the query, the reason and the run. The
    same run again loads nothing."""
    done = load_query(engine, table, QUERY, "payments", run_id="1", dead_letter_topic="dead")
    assert (done.records, done.dead_letters) == (989, 11)
    again = load_query(engine, table, QUERY, "payments", run_id="1", dead_letter_topic="dead")
    assert (again.committed_before, again.dead_letters) == (True, 0)
    found = letters(engine)
    dead = [json.loads(row["columns"])["account_id"] for row in found]
    assert dead == [*map(str, range(7, 999, 100)), None]
    assert accounts_in(engine) == [n for n in range(999) if n % 100 != 7]
    first, last = found[0], found[-1]
    assert first["topic"] == "payments"
    assert first["source_file"].startswith(f"database {table.info.dbname}, query ")
    assert (first["source_line"], last["source_line"]) == (8, 1_000)
    assert json.loads(first["columns"]) == {"account_id": "7", "amount": "0.001", "note": "x"}
    assert first["reason"].startswith("amount does not fit; expected decimal(18,2)")
    assert last["reason"] == "account_id is empty; expected int64: the column takes no null"
    assert (first["run_id"], first["tries"], first["error_class"]) == ("1", 1, "InvalidRecordError")
    assert not engine.admin.verify().findings


def test_a_row_that_is_too_large(engine: Engine, table: Connection[Any]) -> None:
    """A row that is too large for the topic becomes a dead letter, although all its values fit. Without a
    dead-letter topic the error names it."""
    engine.admin.alter_configs({"max.message.bytes": 20_000}, topic="payments")
    large = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 2000) AS of (i))"
    query = f"SELECT account_id, amount, CASE account_id WHEN 5 THEN {large} END AS note FROM payments"
    query += " WHERE account_id BETWEEN 1 AND 6 ORDER BY account_id"
    with pytest.raises(InvalidRecordError, check=because(Reason.ROW_TOO_LARGE, "row 5 of the query")):
        load_query(engine, table, query, "payments", run_id="1")
    done = load_query(engine, table, query, "payments", run_id="1", dead_letter_topic="dead")
    assert (done.records, done.dead_letters) == (5, 1)
    assert [row["source_line"] for row in letters(engine)] == [5]


@pytest.mark.parametrize("most", [10, "1%"])
def test_too_many_are_refused(engine: Engine, table: Connection[Any], most: int | str) -> None:
    """If there are more dead letters than the limit, nothing is loaded. The same run with a higher limit
    loads everything."""
    with pytest.raises(InvalidRecordError, check=because(Reason.TOO_MANY_BAD_ROWS)):
        load_query(
            engine, table, QUERY, "payments", run_id="1", dead_letter_topic="dead", max_dead_letters=most
        )
    assert (accounts_in(engine), letters(engine)) == ([], [])
    done = load_query(
        engine, table, QUERY, "payments", run_id="1", dead_letter_topic="dead", max_dead_letters="1.1%"
    )
    assert (done.records, done.dead_letters) == (989, 11)


@pytest.mark.parametrize(
    ("encoding", "good", "bad"),
    [
        ("SQL_ASCII", "caf\u00e9".encode(), b"caf\xe9"),
        ("WIN1252", b"caf\xe9", b"caf\x81"),
        ("LATIN1", b"caf\xe9", b""),
    ],
)
def test_a_text_that_has_no_utf8(engine: Engine, dsn: str, encoding: str, good: bytes, bad: bytes) -> None:
    """A text of the database that is not UTF-8, and cannot become it, is named by its row and column, or becomes a dead
    letter with its bytes. The others are exact, from a query as from an outbox."""
    engine.admin.create_topic("dead", partitions=1, schema=DEAD_LETTERS)
    with psycopg.connect(database_in(dsn, encoding)) as connection:
        connection.execute(SQL("SET client_encoding = {}").format(encoding))
        connection.execute(
            "CREATE TABLE payments (account_id bigint, amount numeric, note text, txn_engine_run text)"
        )
        for number, text in enumerate((good, bad, good)):
            stored = b"".join(b"\\x%02x" % byte for byte in text)
            connection.execute(b"INSERT INTO payments VALUES (%d, 1, E'%s')" % (number, stored))
        connection.commit()
        if bad:
            with pytest.raises(
                InvalidRecordError, check=because(Reason.BAD_ENCODING, "row 2 of the query")
            ) as caught:
                load_query(engine, connection, QUERY, "payments", run_id="1")
            assert "note" in caught.value.seen
        for load in (by_query, by_outbox):
            done = load(engine, connection, dead_letter_topic="dead")
            assert (done.records, done.dead_letters) == ((2, 1) if bad else (3, 0))
    notes = engine.scan("payments").to_table(["note"])["note"].to_pylist()
    assert sorted(notes) == sorted(["caf\u00e9"] * 4 + ([] if bad else [""] * 2))
    kept = [json.loads(row["columns"])["note"] for row in letters(engine)]
    assert kept == ([{"not_utf8": b64encode(bad).decode()}] * 2 if bad else [])


Load = Callable[..., Any]


def by_query(engine: Engine, connection: Connection[Any], **settings: Any) -> Any:
    return load_query(engine, connection, QUERY, "payments", run_id="1", **settings)


def by_outbox(engine: Engine, connection: Connection[Any], **settings: Any) -> Any:
    return load_outbox(engine, connection, "payments", "payments", order_by="account_id", **settings)


@pytest.mark.parametrize("load", in_shard("engines", [by_outbox, by_query], keep=[by_outbox]))
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"dead_letter_topic": "payments"}, Reason.NOT_A_DEAD_LETTER_TOPIC),
        ({"dead_letter_topic": "other"}, Reason.NOT_A_DEAD_LETTER_TOPIC),
        ({"dead_letter_topic": "nowhere"}, None),
        ({"dead_letter_topic": "dead", "max_dead_letters": "many"}, Reason.BAD_ARGUMENT),
        ({"max_dead_letters": 1}, Reason.NO_DEAD_LETTER_TOPIC),
    ],
)
def test_what_cannot_be_done(
    engine: Engine, table: Connection[Any], load: Load, settings: dict[str, Any], reason: Reason | None
) -> None:
    """Invalid settings are refused before a row is read or claimed."""
    engine.admin.create_topic("other", partitions=1, schema=SCHEMA)
    table.execute("ALTER TABLE payments ADD txn_engine_run text")
    table.commit()
    with pytest.raises(TxnEngineError, check=because(reason)):
        load(engine, table, **settings)
    row = table.execute("SELECT count(*) FROM payments WHERE txn_engine_run IS NOT NULL").fetchone()
    assert row == (0,)


@pytest.fixture
def outbox(table: Connection[Any]) -> Connection[Any]:
    """The thousand payments in an outbox, with numbers from 5001 on."""
    table.execute(
        "CREATE TABLE outbox (id bigint, account_id bigint, amount numeric, note text, txn_engine_run text,"
        " loaded_at timestamptz)"
    )
    table.execute("INSERT INTO outbox SELECT 5001 + row_number() OVER (ORDER BY account_id), * FROM payments")
    table.commit()
    return table


def open_rows(connection: Connection[Any]) -> Any:
    with connection.transaction():
        return connection.execute("SELECT count(*) FROM outbox WHERE loaded_at IS NULL").fetchone()


@pytest.mark.parametrize(
    ("mark", "died"),
    in_shard(
        "kills",
        [(None, False), (None, True), ("loaded_at", False), ("loaded_at", True)],
        keep=[(None, True), ("loaded_at", False)],
    ),
)
def test_a_dead_row_of_an_outbox_is_done_with(
    engine: Engine, outbox: Connection[Any], monkeypatch: pytest.MonkeyPatch, mark: str | None, died: bool
) -> None:
    """A dead row of an outbox is removed or marked like the others of its batch, even by the next worker, and
    its letter has its number."""
    settings: dict[str, Any] = {"mark_column": mark, "dead_letter_topic": "dead", "batch_rows": 300}
    if died:
        with monkeypatch.context() as patched:
            patched.setattr(
                outbox_module.Outbox, "take_away", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
            )
            with pytest.raises(KeyboardInterrupt):
                load_outbox(engine, outbox, "outbox", "payments", **settings)
    done = load_outbox(engine, outbox, "outbox", "payments", **settings)
    assert (done.records, done.dead_letters) == ((692, 8) if died else (989, 11))
    assert accounts_in(engine) == [n for n in range(999) if n % 100 != 7]
    found = letters(engine)
    assert [row["source_line"] for row in found] == [*range(5009, 6000, 100), 6001]
    assert {row["source_file"] for row in found} == {f"database {outbox.info.dbname}, table public.outbox"}
    assert open_rows(outbox) == (0,)
    assert sum(last - first + 1 for first, last in done.offsets.values()) >= done.records


def test_a_batch_of_dead_letters_alone(engine: Engine, outbox: Connection[Any]) -> None:
    """A batch of only dead letters is a run like any other. Above the limit it stays claimed, and is loaded
    when the limit is raised."""
    outbox.execute("DELETE FROM outbox WHERE amount <> 0.001")
    outbox.commit()
    with pytest.raises(InvalidRecordError, check=because(Reason.TOO_MANY_BAD_ROWS)):
        load_outbox(engine, outbox, "outbox", "payments", dead_letter_topic="dead", max_dead_letters=9)
    assert (letters(engine), open_rows(outbox)) == ([], (10,))
    done = load_outbox(engine, outbox, "outbox", "payments", dead_letter_topic="dead", max_dead_letters=10)
    assert (done.records, done.dead_letters, done.taken_over) == (0, 10, 1)
    assert (accounts_in(engine), open_rows(outbox)) == ([], (0,))


def test_a_letter_is_read_again_as_it_was(engine: Engine, connection: Connection[Any]) -> None:
    """A dead letter of every type can be replayed: after its wrong value was repaired, the record is the row,
    exactly."""
    fields = [field for field in RECORDS.schema if not pa.types.is_time(field.type)]
    schema = pa.schema([*fields, pa.field("price", pa.decimal128(5, 2))])
    engine.admin.create_topic("every", partitions=1, schema=schema)
    engine.admin.create_topic("dead", partitions=1, schema=DEAD_LETTERS)
    rows = RECORDS.select(schema.names[:-1])
    prices = ", ".join(schema.names)
    from txn_engine.postgres import insert_into

    good = rows.append_column("price", pa.array([Decimal("1.25")] * rows.num_rows, pa.decimal128(5, 2)))
    with connection.transaction():
        insert_into("every", create=True)(connection, good)
        connection.execute("ALTER TABLE every ALTER price TYPE numeric")
        connection.execute("UPDATE every SET price = 1.255")
    done = load_query(
        engine, connection, f"SELECT {prices} FROM every", "every", run_id="1", dead_letter_topic="dead"
    )
    assert (done.records, done.dead_letters) == (0, rows.num_rows)
    repaired = {}
    for row in engine.scan("dead").to_table().to_pylist():
        mended = json.dumps(json.loads(row["columns"]) | {"price": "1.25"})
        repaired[row["_partition"], row["_offset"]] = mended
    assert replay(engine, "dead", repaired=repaired).records == rows.num_rows
    assert engine.scan("every").to_table(schema.names).to_pylist() == good.to_pylist()
