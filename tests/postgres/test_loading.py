"""A query's rows are loaded out of a real Postgres into topics exactly, in one transaction, once for each
run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from psycopg import ClientCursor, Connection
from psycopg.rows import dict_row

from tests.loading.refusals import because
from tests.postgres.conftest import SCHEMA
from tests.suite.tiers import in_shard
from tests.support.refusals import refused
from tests.support.waiting import wait_for
from txn_engine import AddColumn, Engine
from txn_engine.errors import (
    IllegalStateError,
    InvalidRecordError,
    InvalidRequestError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.postgres import DatabaseError, DatabaseUnavailableError, copying, load_query
from txn_engine.reasons import Reason

pytestmark = pytest.mark.slow

QUERY = "SELECT account_id, amount, note FROM payments"
QUERY_OF_NONE = "SELECT 1::bigint AS account_id, 1.5 AS amount, 'x'::text AS note"
QUERY_OF_DAYS = "SELECT account_id, amount, note, day FROM payments"


@pytest.fixture
def table(connection: Connection[Any]) -> Connection[Any]:
    """A thousand payments."""
    connection.execute("CREATE TABLE payments (account_id bigint, amount numeric(18,2), note text, day date)")
    connection.execute(
        "INSERT INTO payments SELECT n, n / 100.0, CASE n % 3 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE 'x' END,"
        " DATE '2026-01-01' + n / 100 FROM generate_series(0, 999) AS of (n)"
    )
    connection.commit()
    return connection


def rows(engine: Engine) -> list[tuple[int, Decimal, str | None]]:
    found = engine.scan("payments").to_table(SCHEMA.names)
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_a_query_is_loaded_once(engine: Engine, table: Connection[Any]) -> None:
    """All rows are loaded, with nulls and empty texts kept apart. The same run again loads nothing."""
    first = load_query(engine, table, QUERY, "payments", run_id="2026-11-26")
    assert (first.records, first.committed_before) == (1_000, False)
    expected = [(n, Decimal(n) / 100, (None, "", "x")[n % 3]) for n in range(1_000)]
    assert rows(engine) == expected
    again = load_query(engine, table, QUERY, "payments", run_id="2026-11-26")
    assert (again.records, again.committed_before) == (0, True)
    assert rows(engine) == expected
    assert not engine.admin.verify().findings


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ("SELECT 1::bigint AS account_id, 1.5 AS amount, 'x' AS note; -- the end", "x"),
        ("SELECT 1::bigint AS account_id, 1.5 AS amount, 'x' AS note /* ; /* ; */ */ ;;", "x"),
        (r"SELECT 1::bigint AS account_id, 1.5 AS amount, E'\'; -- x' AS note;", "'; -- x"),
        ("SELECT 1::bigint AS account_id, 1.5 AS amount, $a$; -- x$a$ AS note;\n-- the end\n", "; -- x"),
        ("SELECT 1::bigint AS account_id, 1.5 AS amount, date'2026-01-31'::text AS note;--", "2026-01-31"),
    ],
)
def test_what_comes_after_the_end_of_a_query(
    engine: Engine, table: Connection[Any], query: str, note: str
) -> None:
    """Semicolons and comments may come after a query. In quotes they are part of it."""
    load_query(engine, table, query, "payments", run_id="1")
    assert [row[2] for row in rows(engine)] == [note]


def test_ranges_are_runs(engine: Engine, table: Connection[Any]) -> None:
    """Each range is loaded once under its own name, and together they are the table."""
    for start in (0, 500, 0, 500):
        load_query(engine, table, QUERY + ";", "payments", key_range=("account_id", start, start + 500))
    assert [account for account, _, _ in rows(engine)] == list(range(1_000))


def test_a_topic_made_again_has_loaded_nothing(engine: Engine, table: Connection[Any]) -> None:
    """After a topic was created again, the same run and the same range are loaded into it once, also with the
    caller's own id."""
    for _ in range(2):
        for name in ({"run_id": "monday"}, {"key_range": ("account_id", 0, 5)}):
            for committed_before in (False, True):
                done = load_query(engine, table, QUERY, "payments", transactional_id="mine", **name)
                assert (done.committed_before, "incarnation" in done.run_id) == (committed_before, False)
        assert len(rows(engine)) == 1_005
        engine.admin.delete_topic("payments")
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA)


@pytest.fixture
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log remembers the last 10 runs of a transactional id, not the last 100."""
    monkeypatch.setattr("txn_engine.protocol.transactions.MAX_RUN_IDS", 10)


@pytest.mark.usefixtures("few_runs")
def test_a_run_that_the_log_has_forgotten(engine: Engine, table: Connection[Any]) -> None:
    """A run that is older than all remembered runs is refused, because it may have been loaded."""

    def load(first: int, **more: Any) -> bool:
        return load_query(
            engine, table, QUERY, "payments", key_range=("account_id", first, first + 5), **more
        ).committed_before

    for number in range(11):
        assert not load(number * 5)
    assert load(50)
    with refused(InvalidRequestError, Reason.RUN_FORGOTTEN):
        load(55)
    for number in (11, 12):
        assert not load(number * 5, forgotten_runs="load")
    with refused(InvalidRequestError, Reason.RUN_FORGOTTEN):
        load(5)
    with refused(InvalidRequestError, Reason.RUN_FORGOTTEN):
        load_query(engine, table, QUERY, "payments", run_id="by hand")
    assert len(rows(engine)) == 65
    assert not load(600, transactional_id="of another month")
    assert len(rows(engine)) == 70


def test_a_range_is_of_its_query(engine: Engine, table: Connection[Any]) -> None:
    """A range that was loaded by another query, or with other parameters, is refused instead of counted as
    loaded. Changes of white space do not matter."""

    def load(query: str, key_range: tuple[str, Any, Any], **more: Any) -> int:
        return load_query(engine, table, query, "payments", key_range=key_range, **more).records

    assert load(QUERY, ("account_id", 0, 10)) == 10
    assert load(QUERY.replace(" FROM", "  FROM"), ("account_id", 0, 10)) == 0
    with pytest.raises(InvalidRequestError, check=because(Reason.LOADED_BY_ANOTHER_QUERY)):
        load(QUERY + " WHERE note = %s", ("account_id", 0, 10), parameters=["x"])
    assert load(QUERY + " WHERE note = %s", ("account_id", 0, 10), parameters=["x"], run_id="of x") == 3
    spaced = QUERY + " WHERE note <> 'a b'"
    assert load(spaced, ("account_id", 20, 30)) == 7
    assert load(spaced.replace(" FROM", "\n\tFROM"), ("account_id", 20, 30)) == 0
    with pytest.raises(InvalidRequestError, check=because(Reason.LOADED_BY_ANOTHER_QUERY)):
        load(spaced.replace("a b", "a  b"), ("account_id", 20, 30))
    assert load(QUERY + " --\nWHERE account_id > 35", ("account_id", 30, 40)) == 4
    with pytest.raises(InvalidRequestError, check=because(Reason.LOADED_BY_ANOTHER_QUERY)):
        load(QUERY + " -- WHERE account_id > 35", ("account_id", 30, 40))
    table.execute("INSERT INTO payments VALUES (5000, 1, 'B'), (5001, 1, 'D')")
    table.commit()
    assert load(QUERY, ("note", "A", 'C","D')) == 1
    assert load(QUERY, ("note", 'A","C', "E")) == 2
    for start, end in ((None, 5), (5, 5), (6, 5)):
        with pytest.raises(InvalidRequestError, check=because(Reason.EMPTY_KEY_RANGE)):
            load(QUERY, ("account_id", start, end))


def test_a_range_is_one_however_it_is_written(engine: Engine, table: Connection[Any]) -> None:
    """A range is loaded once, even if its bounds are written in another zone or as another kind of number."""

    def load(column: str, start: Any, end: Any) -> bool:
        return load_query(
            engine, table, QUERY_OF_DAYS, "payments", key_range=(column, start, end), parameters=[]
        ).committed_before

    day, berlin = datetime(2026, 1, 2, tzinfo=UTC), timezone(timedelta(hours=1))
    engine.admin.alter_topic("payments", [AddColumn(pa.field("day", pa.date32()))])
    ranges = [("day", day, day + timedelta(days=1)), ("account_id", 0, Decimal("1.0"))]
    for column, start, end in ranges:
        assert not load(column, start, end)
    assert load("day", day.astimezone(berlin), (day + timedelta(days=1)).astimezone(berlin))
    assert load("account_id", np.int64(0), np.int64(1))
    assert not load("day", day, day + timedelta(days=2))
    assert not load("day", day.replace(tzinfo=berlin), day)
    assert not load("account_id", 0, 2)


def test_a_topic_that_was_made_again_has_nothing(engine: Engine, table: Connection[Any]) -> None:
    for _ in range(2):
        assert load_query(engine, table, QUERY, "payments", key_range=("account_id", 0, 5)).records == 5
        engine.admin.delete_topic("payments")
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")


def test_parameters_and_nothing_found(engine: Engine, table: Connection[Any]) -> None:
    """Parameters are values, whatever text they have. A query without rows is a run too."""
    given = load_query(
        engine,
        table,
        QUERY + " WHERE note = %s -- a comment",
        "payments",
        run_id="1",
        parameters=["' OR true; --"],
    )
    assert given.records == 0
    assert load_query(engine, table, QUERY, "payments", run_id="1").committed_before
    assert load_query(engine, table, QUERY + " WHERE account_id = %(id)s", "payments", run_id="2",
                      parameters={"id": 7}).records == 1  # fmt: skip


def test_one_snapshot_whatever_changes_under_it(engine: Engine, table: Connection[Any], dsn: str) -> None:
    """A load sees one snapshot, although rows come and go while the query is read."""
    told: list[int] = []

    def meddle(records: int) -> None:
        if not told:
            with psycopg.connect(dsn) as other:
                other.execute("DELETE FROM payments WHERE account_id >= 500")
                other.execute("INSERT INTO payments (account_id) SELECT 5000")
        told.append(records)

    load_query(engine, table, QUERY + " ORDER BY account_id", "payments", run_id="1", progress=meddle)
    assert [account for account, _, _ in rows(engine)] == list(range(1_000))
    assert told[-1] == 1_000


@pytest.mark.parametrize(
    ("query", "reason", "cause"),
    [
        ("SELECT account_id, amount, note, day FROM payments", Reason.UNKNOWN_COLUMN, None),
        ("SELECT amount, note FROM payments", Reason.MISSING_COLUMN, None),
        ("SELECT account_id, amount, note, note FROM payments", Reason.DUPLICATE_COLUMN, None),
        (
            "SELECT account_id, amount::float8 AS amount, note FROM payments",
            Reason.TYPE_MISMATCH,
            None,
        ),
        (
            "SELECT account_id::text AS account_id, amount, note FROM payments",
            Reason.TYPE_MISMATCH,
            None,
        ),
        ("SELECT account_id, amount, day AS note FROM payments", Reason.TYPE_MISMATCH, None),
        ("SELECT nothing FROM payments", None, psycopg.errors.UndefinedColumn),
        ("SELECT * FROM nowhere", None, psycopg.errors.UndefinedTable),
        ("DELETE FROM payments RETURNING account_id, amount, note", None, psycopg.errors.SyntaxError),
    ],
)
def test_a_query_that_does_not_fit(
    engine: Engine,
    table: Connection[Any],
    query: str,
    reason: Reason | None,
    cause: type[psycopg.Error] | None,
) -> None:
    """A query that does not fit is refused in one line before the first row. Nothing is visible, and the next
    load works."""
    with pytest.raises(TxnEngineError, check=because(reason)) as caught:
        load_query(engine, table, query, "payments", run_id="1")
    assert cause is None or isinstance(caught.value.__cause__, cause)
    assert rows(engine) == []
    assert load_query(engine, table, QUERY, "payments", run_id="1").records == 1_000


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("1, 0.005, 'x'", Reason.BAD_DECIMAL),
        ("1, 'NaN', 'x'", Reason.BAD_DECIMAL),
        ("NULL, 1, 'x'", Reason.NULL_IN_NOT_NULL),
        ("99999999999999999999, 1, 'x'", Reason.BAD_INTEGER),
    ],
)
def test_a_value_that_does_not_fit(
    engine: Engine, table: Connection[Any], value: str, reason: Reason
) -> None:
    """A value that does not fit is named by its row and column and not shown, and nothing of the load is
    visible."""
    query = f"SELECT account_id::numeric, amount::numeric, note FROM payments UNION ALL SELECT {value}"
    with pytest.raises(InvalidRecordError, check=because(reason, "row 1001 of the query")):
        load_query(engine, table, query, "payments", run_id="1")
    assert rows(engine) == []


def test_a_value_that_begins_with_a_byte_order_mark(engine: Engine, table: Connection[Any]) -> None:
    """A text that begins with U+FEFF is loaded with it, also as the first value that the server sends, and beside a
    value that is judged."""
    engine.admin.create_topic(
        "marked", partitions=1, schema=pa.schema([("note", pa.string()), ("n", pa.int64())])
    )
    for run, number in enumerate(["1", "1.0"]):
        query = f"SELECT U&'\\FEFFa' AS note, {number} AS n"
        load_query(engine, table, query, "marked", run_id=str(run))
    assert engine.scan("marked").to_table(["note"])["note"].to_pylist() == ["\ufeffa"] * 2


@pytest.mark.parametrize("row", in_shard("engines", [900, 0], keep=1))
def test_a_bad_value_before_much_more(engine: Engine, table: Connection[Any], row: int) -> None:
    """A bad value ends a large query at once: the connection can be used, and each row has its own number."""
    from txn_engine.loading import DEAD_LETTERS

    big = f"""SELECT account_id, CASE account_id WHEN {row} THEN 0.001 ELSE amount::numeric END AS amount,
              repeat('x', 40000) AS note FROM payments ORDER BY account_id"""
    with pytest.raises(InvalidRecordError, check=because(Reason.BAD_DECIMAL, f"row {row + 1} of")):
        load_query(engine, table, big, "payments", run_id="1")
    assert rows(engine) == []
    engine.admin.create_topic("dead", partitions=1, schema=DEAD_LETTERS)
    done = load_query(engine, table, big, "payments", run_id="1", dead_letter_topic="dead")
    assert (done.records, done.dead_letters) == (999, 1)
    assert engine.scan("dead").to_table(["source_line"])["source_line"].to_pylist() == [row + 1]


def test_a_query_that_fails_behind_many_rows(engine: Engine, table: Connection[Any]) -> None:
    """If a query fails after many rows, the server's error is the cause, nothing is visible, and the
    connection can be used."""
    big = (
        "SELECT account_id / sign(900 - account_id)::bigint AS account_id, amount, repeat('x', 40000) AS note"
    )
    with pytest.raises(DatabaseError) as caught:
        load_query(engine, table, f"{big} FROM payments ORDER BY payments.account_id", "payments", run_id="1")
    assert isinstance(caught.value.__cause__, psycopg.errors.DivisionByZero)
    assert rows(engine) == []
    assert load_query(engine, table, QUERY, "payments", run_id="1").records == 1_000


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT interrupt the test, even if the shell has started it in the background, where SIGINT is
    ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_signal_while_the_first_row_is_awaited(
    engine: Engine, connection: Connection[Any], dsn: str
) -> None:
    """A load is interrupted while it waits for the first row, and the connection takes other commands
    afterwards."""
    signals = threading.Thread(target=_interrupt_when_copying, args=(dsn,))
    signals.start()
    with pytest.raises(KeyboardInterrupt):
        load_query(engine, connection, f"{QUERY_OF_NONE} FROM pg_sleep(60)", "payments", run_id="1")
    signals.join()
    assert connection.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("is_answered", [False, True])
def test_an_error_between_the_command_and_its_rows(connection: Connection[Any], *, is_answered: bool) -> None:
    """If an error comes after COPY was sent and before its rows were read, the connection takes other
    commands afterwards, whether the server has answered by then or not."""
    rows_and_a_pause = (
        b"SELECT repeat('x', 9000), CASE n WHEN 9 THEN pg_sleep(60)::text END FROM generate_series(1, 9) n"
    )
    connection.execute("SELECT 1")
    server = connection.pgconn

    def copy() -> None:
        with copying._ended(connection):
            server.send_query(b"COPY (%b) TO STDOUT" % rows_and_a_pause)
            while is_answered and server.is_busy():
                server.consume_input()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy()
    connection.rollback()
    assert connection.execute("SELECT 1").fetchall() == [(1,)]


def _interrupt_when_copying(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as other:
        query = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'COPY%' AND wait_event = 'PgSleep'"
        wait_for(lambda: other.execute(query).fetchone(), what="the server to sleep in the query")
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_a_load_that_is_interrupted(engine: Engine, table: Connection[Any]) -> None:
    """If a load is interrupted between two parts, the query ends, nothing is visible, and the connection can
    be used."""

    def interrupt(records: int) -> None:
        raise KeyboardInterrupt

    big = "SELECT account_id, amount, repeat('x', 40000) AS note FROM payments"
    with pytest.raises(KeyboardInterrupt):
        load_query(engine, table, big, "payments", run_id="1", progress=interrupt)
    assert rows(engine) == []
    assert load_query(engine, table, QUERY, "payments", run_id="1").records == 1_000


def test_a_server_that_goes_away(engine: Engine, table: Connection[Any], dsn: str) -> None:
    """If the server ends the connection in the middle of the query, nothing is visible, and the same run
    loads everything later."""

    def kill(records: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", (table.info.backend_pid,))

    big = "SELECT account_id, amount, repeat('x', 20000) AS note FROM payments"
    with pytest.raises(DatabaseUnavailableError):
        load_query(engine, table, big, "payments", run_id="1", progress=kill)
    assert rows(engine) == []
    with psycopg.connect(dsn) as again:
        assert load_query(engine, again, big, "payments", run_id="1").records == 1_000


def test_what_cannot_be_done(engine: Engine, table: Connection[Any]) -> None:
    with pytest.raises(InvalidRequestError, check=because(Reason.NO_RUN_ID)):
        load_query(engine, table, QUERY, "payments")
    with pytest.raises(UnknownTopicOrPartitionError):
        load_query(engine, table, QUERY, "paymants", run_id="1")
    table.execute("SELECT 1")
    with pytest.raises(IllegalStateError, check=because(Reason.TRANSACTION_OPEN)):
        load_query(engine, table, QUERY, "payments", run_id="1")
    table.rollback()
    with pytest.raises(DatabaseError) as caught:
        load_query(engine, table, QUERY, "payments", key_range=("account_id", "a", "b"))
    assert isinstance(caught.value.__cause__, psycopg.errors.InvalidTextRepresentation)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"key_range": ("account_id", 0, "9")}, Reason.INCOMPARABLE_VALUES),
        (
            {"key_range": ("day", datetime(2026, 1, 1), datetime(2026, 1, 2, tzinfo=UTC))},  # noqa: DTZ001
            Reason.INCOMPARABLE_VALUES,
        ),
        ({"key_range": ("account_id", 0)}, Reason.BAD_ARGUMENT),
        ({"key_range": "abc"}, Reason.BAD_ARGUMENT),
        ({"run_id": 20261126}, Reason.BAD_ARGUMENT),
        ({"query": None}, Reason.BAD_ARGUMENT),
        ({"parameters": "x"}, Reason.BAD_ARGUMENT),
        ({"parameters": {"a": 1}, "query": QUERY + " WHERE note = %s"}, Reason.BAD_ARGUMENT),
        ({"parameters": ["x"]}, None),
        (
            {"query": "SELECT account_id, note, ARRAY[amount] AS amount FROM payments"},
            Reason.TYPE_MISMATCH,
        ),
    ],
)
def test_words_of_another_kind(
    engine: Engine, table: Connection[Any], words: dict[str, Any], reason: Reason | None
) -> None:
    """Arguments of a wrong kind are refused in one line."""
    words = {"query": QUERY} | words | ({} if "key_range" in words else {"run_id": words.get("run_id", "1")})
    with pytest.raises(TxnEngineError, check=because(reason)):
        load_query(engine, table, words.pop("query"), "payments", **words)
    assert rows(engine) == []


def test_a_connection_that_makes_something_else_of_rows(
    engine: Engine, table: Connection[Any], dsn: str
) -> None:
    """A connection may return rows as dicts for its own statements, and put parameters into them on the
    client."""
    with psycopg.connect(dsn, row_factory=dict_row, cursor_factory=ClientCursor) as other:
        assert load_query(engine, other, QUERY, "payments", run_id="1").records == 1_000


@pytest.mark.parametrize(
    ("added", "default"),
    [
        (pa.field("currency", pa.string()), None),
        (pa.field("currency", pa.string()), "EUR"),
        (pa.field("currency", pa.string(), nullable=False), "EUR"),
    ],
)
def test_a_column_that_was_added(
    engine: Engine, table: Connection[Any], added: pa.Field[Any], default: str | None
) -> None:
    """A query may lack a column that was added to the topic, which then has its default or null. It may not
    lack one from the start."""
    engine.admin.alter_topic("payments", [AddColumn(added, default=default)])
    load_query(engine, table, QUERY + " WHERE account_id < 2", "payments", run_id="1")
    query = f"SELECT *, 'USD' AS currency FROM ({QUERY}) AS q WHERE account_id = 2"
    load_query(engine, table, query, "payments", run_id="2")
    found = engine.scan("payments").to_table(["account_id", "currency"]).sort_by("account_id")
    assert found["currency"].to_pylist() == [default, default, "USD"]
    with pytest.raises(InvalidRequestError, check=because(Reason.MISSING_COLUMN)):
        load_query(
            engine, table, "SELECT account_id, amount FROM payments WHERE false", "payments", run_id="3"
        )
    assert load_query(engine, table, QUERY + " WHERE account_id = 3", "payments", run_id="3").records == 1
