"""`engine.sql` refuses queries in one line, and cannot reach anything outside."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import txn_engine
from storage import ObjectStore, StoreUnreachableError
from tests.engine.conftest import payments
from tests.sql.test_rows import accounts, put
from tests.support.kills import in_a_child
from tests.support.refusals import damaged_at
from tests.support.servers import REPOSITORY
from tests.tables.ledgers import engine_on
from txn_engine import Engine
from txn_engine.errors import (
    CorruptObjectError,
    InvalidRequestError,
    StoreUnavailableError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.reasons import Reason
from txn_engine.sql.file_parts import FilePart
from txn_engine.sql.locked import LockedDuckDB


@pytest.fixture
def engine() -> Iterator[Engine]:
    with engine_on() as made:
        made.admin.create_topic("payments", partitions=1, schema=payments(1).schema)
        put(made, "payments", payments(1, 2, 3))
        yield made


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Engine]:
    with txn_engine.connect(f"file://{tmp_path}/ledger") as made:
        made.admin.create_topic("payments", partitions=1, schema=payments(1).schema)
        put(made, "payments", payments(1, 2, 3))
        yield made


def refused(engine: Engine, query: str, **named: object) -> str:
    with pytest.raises(TxnEngineError) as error:
        engine.sql(query, **named)  # type: ignore[arg-type]
    line = str(error.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (None, "query None"),
        ("", "no SQL; expected one SELECT"),
        ("-- nothing", "0 statements"),
        ("SELECT '\udcff' FROM payments", "SQL that is not UTF-8"),
        ("SELECT 1 FROM payments; DROP VIEW payments", "a statement of the kind DROP"),
        ("SELECT 1 FROM payments; SELECT 2", "2 statements"),
        ("INSERT INTO payments VALUES (1)", "a statement of the kind INSERT"),
        ("DELETE FROM payments", "a statement of the kind DELETE"),
        ("UPDATE payments SET amount = 0", "a statement of the kind UPDATE"),
        ("MERGE INTO payments USING payments p ON true WHEN MATCHED THEN DELETE", "kind MERGE INTO"),
        ("CREATE TABLE t AS FROM payments", "a statement of the kind CREATE"),
        ("WITH x AS (DELETE FROM payments RETURNING *) FROM x", "DELETE inside a query"),
        ("WITH x AS (INSERT INTO payments VALUES (1) RETURNING *) FROM x", "INSERT inside a query"),
        ("COPY payments TO '/tmp/x.csv'", "a statement of the kind COPY"),
        ("EXPORT DATABASE '/tmp/x'", "a statement of the kind EXPORT"),
        ("ATTACH '/tmp/x.db'", "a statement of the kind ATTACH"),
        ("INSTALL httpfs", "a statement of the kind LOAD"),
        ("LOAD httpfs", "a statement of the kind LOAD"),
        ("SET threads = 1", "a statement of the kind SET"),
        ("SET VARIABLE x = 1", "a statement of the kind SET"),
        ("PRAGMA database_list", "a statement of the kind PRAGMA"),
        ("CALL pragma_version()", "a statement of the kind CALL"),
        ("EXPLAIN ANALYZE FROM payments", "a statement of the kind EXPLAIN"),
        ("PIVOT payments ON account_id USING sum(amount)", "PIVOT without a list of values"),
        ("SELECT * FROM read_csv('/etc/passwd')", "the table function 'read_csv'; expected topics"),
        ("SELECT * FROM payments, READ_PARQUET('s3://other/x')", "the table function 'read_parquet'"),
        ("SELECT (SELECT content FROM read_text('/etc/hostname')) FROM payments", "'read_text'"),
        ("FROM main.read_blob('/etc/hostname')", "'read_blob'"),
        ("FROM payments, glob('/*')", "'glob'"),
        ("FROM payments, duckdb_settings()", "'duckdb_settings'"),
        ("FROM payments, arrow_scan(1, 2, 3)", "'arrow_scan'"),
        ("FROM payments, query('FROM payments')", "'query'"),
        ("SHOW TABLES", "a part of the kind SHOW_SPECIAL"),
        ("SELECT * FROM payments, (SHOW DATABASES)", "a part of the kind SHOW_SPECIAL"),
        ("SELECT current_setting('memory_limit') FROM payments", "the function 'current_setting'"),
        ("SELECT getvariable('x') FROM payments", "the function 'getvariable'"),
        ("SELECT main.current_setting('memory_limit') FROM payments", "the function 'current_setting'"),
        ("SELECT account_id.getenv() FROM payments", "the function 'getenv'"),
        ("FROM payments, main.read_csv('/etc/passwd')", "the table function 'read_csv'"),
        ("SELECT error(account_id) FROM payments", "the function 'error'"),
        ("SELECT sleep_ms(1) FROM payments", "the function 'sleep_ms'"),
        ("SELECT list_transform([1], lambda x: write_log(x)) FROM payments", "the function 'write_log'"),
        ("SELECT sun(account_id) FROM payments", "did you mean 'sum'?"),
        ("SELECT 1", "SQL that names no topic"),
        ("WITH payments AS (SELECT 1) FROM payments", "SQL that names no topic"),
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT * FROM a.b-c", 'near "-"; put a name that has dashes or dots in double quotes'),
        ("FROM ledger.payments", 'put it in double quotes: "ledger.payments"'),
        ("FROM information_schema.tables", "the table information_schema.tables"),
        ("SELECT amout FROM payments", 'Referenced column "amout" not found in FROM clause! Candidate'),
        ("SELECT nope(1) FROM payments", "the function 'nope'"),
        ("SELECT account_id::DATE FROM payments", "Unimplemented type for cast (BIGINT -> DATE)"),
        ("SELECT ? FROM payments", "a part of the kind PARAMETER"),
        ("FROM payments AT (VERSION => 1)", "time travel"),
        (f"SELECT {'(' * 3000}1{')' * 3000} FROM payments", "depth"),
        ("SELECT 1 FROM payments --" + "x" * 4_000_000, "at most 4,000,000"),
        ("SELECT 340282366920938463463374607431768211455::UHUGEINT AS u FROM payments", "u::VARCHAR"),
        ("SELECT '101'::BIT AS u FROM payments", "u::VARCHAR"),
        ("SELECT {'a': ['101'::BIT]} AS u FROM payments", "u::VARCHAR"),
        ("SELECT MAP {'a': 5::BIGNUM} AS u FROM payments", "u::VARCHAR"),
        ("SELECT union_value(k := TIMETZ '01:00:00+02') AS u FROM payments", "u::VARCHAR"),
    ],
)
def test_one_line(engine: Engine, query: str, told: str) -> None:
    line = refused(engine, query)
    assert told in line
    assert line.endswith("[INVALID_REQUEST]")
    assert accounts(engine.sql("SELECT account_id FROM payments")) == [1, 2, 3]


def test_every_type_that_arrow_has(engine: Engine) -> None:
    """A result may have any type of DuckDB whose values Arrow has, whatever its parts are called."""
    found = engine.sql(
        """SELECT {'BIT': [1]} AS s, 'BIT'::ENUM('BIT', 'TIME WITH TIME ZONE') AS e, array_value(1, 2) AS a,
        row(1, 2) AS t, MAP {'a': DATE '2026-01-01'} AS m, union_value(k := 1) AS u, INTERVAL 1 MONTH AS i,
        NULL AS n, 1::HUGEINT AS h, '1'::JSON AS j,
        TIMESTAMP_NS '2026-01-01' AS ns, TIMESTAMPTZ '2026-01-01' AS z, '01:00:00'::TIME_NS AS tn,
        1::UTINYINT AS b, 1.5::DECIMAL(18,2) AS d, 'x'::BLOB AS x, 1e0::FLOAT AS f FROM payments LIMIT 1"""
    )
    assert found.num_columns == 17
    assert found.select(["s", "e", "a"]).to_pylist() == [{"s": {"BIT": [1]}, "e": "BIT", "a": [1, 2]}]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name::INT FROM secrets",
        "SELECT CASE WHEN name LIKE 's%' THEN error(name) END FROM secrets",
        "SELECT strptime(name, '%Y') FROM secrets",
        "SELECT json_extract(name, '$.a') FROM secrets",
        "SELECT regexp_matches('x', name || '(') FROM secrets",
        "SELECT (account_id * 9223372036854775807)::BIGINT FROM secrets",
        "SELECT date_trunc(name, DATE '2026-01-01') FROM secrets",
        "SELECT nope FROM (PIVOT secrets ON name USING count(*))",
        "SELECT timezone(name, now()) FROM secrets",
        "SELECT now() AT TIME ZONE name FROM secrets",
        "SELECT * FROM secrets LIMIT (SELECT max(account_id) * 1000000000000000 FROM secrets)",
        "SELECT repeat(name, account_id * 1000000000) FROM secrets",
    ],
)
def test_no_error_quotes_a_value(engine: Engine, query: str) -> None:
    """An error goes to logs and alerts. Whoever may see the data asks the error for the value."""
    schema = pa.schema([("account_id", pa.int64()), ("name", pa.string())])
    if "secrets" not in engine.admin.list_topics():
        engine.admin.create_topic("secrets", partitions=1, schema=schema)
        put(
            engine,
            "secrets",
            pa.table({"account_id": [4444, 5555], "name": ["secret-a", "secret-b"]}, schema),
        )
    with pytest.raises(TxnEngineError) as caught:
        engine.sql(query)
    error: BaseException | None = caught.value
    told = "".join(traceback.format_exception(error))
    assert not any(value in told.replace(query, "") for value in ("secret-", "4444", "5555")), told
    assert pickle.loads(pickle.dumps(caught.value)).value is None


def test_an_unknown_topic_is_named_with_the_nearest(engine: Engine) -> None:
    assert "no topic 'paymets'; did you mean \"payments\"?" in refused(engine, "FROM paymets")
    engine.admin.create_topic("a.b-c", partitions=1)
    assert 'did you mean "a.b-c"?' in refused(engine, 'FROM "a.b_c"')
    engine.admin.delete_topic("a.b-c")
    with pytest.raises(UnknownTopicOrPartitionError):
        engine.sql('FROM "a.b-c"')
    for foreign in ("__consumer_offsets", "/etc/passwd", "x.parquet", "tables"):
        with pytest.raises(UnknownTopicOrPartitionError):
            engine.sql(f'FROM "{foreign}"')


@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE {file} AS (FROM {file} UNION ALL SELECT * FROM {file} WHERE false) FROM {file}, payments",
        "WITH RECURSIVE {file} AS (SELECT * FROM {file}) FROM {file}, payments",
        "WITH {file} AS (FROM {file}) FROM {file}, payments",
        "WITH a AS (FROM {file}), {file} AS (SELECT 1) FROM a, payments",
        "FROM payments, (WITH {file} AS (SELECT 1) FROM {file}) AS a, {file}",
        "SELECT (SELECT count(*) FROM {file}) FROM payments",
    ],
)
def test_a_name_that_with_defines_is_a_topic_elsewhere(local: Engine, query: str) -> None:
    """A file is not read by its path, although WITH defines its name in another place of the query."""
    (file,) = [info.key for info in local.store.list("topics/payments/") if "/data/" in info.key]
    name = f'"{local.store.uri(file)}"'
    with pytest.raises(UnknownTopicOrPartitionError):
        local.sql(query.format(file=name))


def test_letters_that_only_python_takes_for_the_same(engine: Engine) -> None:
    """WITH defines a name as DuckDB compares it: KELVIN SIGN is no k there, though it is in lower case in Python."""
    with pytest.raises(UnknownTopicOrPartitionError):
        engine.sql('WITH "boo\u212a" AS (SELECT 1) FROM payments, "book"')


def test_names_that_differ_by_case_alone(engine: Engine) -> None:
    engine.admin.create_topic("Payments", partitions=1, schema=payments(1).schema)
    assert "which SQL does not tell apart" in refused(engine, "FROM payments, Payments")
    assert "['Payments', 'payments'] as it is written" in refused(engine, "FROM PAYMENTS")
    columns = pa.schema([("a", pa.int64()), ("A", pa.int64())])
    engine.admin.create_topic("cased", partitions=1, schema=columns)
    assert "columns 'a' and 'A' of topic 'cased'" in refused(engine, "SELECT count(*) FROM cased")


def test_decimals_that_sql_does_not_have_are_never_rounded(engine: Engine) -> None:
    wide = pa.decimal256(39, 2)
    for name, kind in {"flat": wide, "deep": pa.list_(pa.struct([("x", wide)]))}.items():
        engine.admin.create_topic(name, partitions=1, schema=pa.schema([("x", kind)]))
        assert f"column 'x' of topic '{name}'" in refused(engine, f"FROM {name}")


def test_no_variable_of_the_program_is_a_table(engine: Engine) -> None:
    secret = pa.table({"x": [1]})
    assert secret.num_rows == 1
    assert "there is no topic 'secret'" in refused(engine, "FROM secret")


def test_a_cut_that_is_not_of_the_topic(engine: Engine) -> None:
    cut = engine.cut()
    engine.admin.create_topic("later", partitions=1)
    assert "is not in cut 0" in refused(engine, "FROM later", cut=cut)
    engine.admin.delete_topic("payments")
    engine.admin.create_topic("payments", partitions=1, schema=payments(1).schema)
    assert "was deleted and made again since cut 0" in refused(engine, "FROM payments", cut=0)
    engine.delete_cut(cut)
    assert "cut 0 was deleted" in refused(engine, "FROM payments", cut=0)
    assert "there is no cut 7" in refused(engine, "FROM payments", cut=7)


def test_what_the_query_does_not_name_is_not_looked_at(engine: Engine) -> None:
    engine.admin.create_topic("broken", partitions=1)
    engine.store.put("topics/broken/0.json", b"{}")
    assert accounts(engine.sql("SELECT account_id FROM payments")) == [1, 2, 3]
    with damaged_at("topics/broken/0.json"):
        engine.sql("FROM broken")


def test_functions_may_be_called_on_a_column(engine: Engine) -> None:
    """DuckDB calls the function on what stands before the point."""
    found = engine.sql(
        "SELECT account_id.greatest(2).least(3) AS x, main.abs(-1) AS y FROM payments ORDER BY x"
    )
    assert (found["x"].to_pylist(), found["y"].to_pylist()) == ([2, 2, 3], [1, 1, 1])


def test_a_query_that_quotes_a_file_is_no_damage(local: Engine) -> None:
    """An error of the query is not taken for one of the file that it names."""
    (path, *_) = sorted(Path(local.url.removeprefix("file://")).rglob("data/*.parquet"))
    for query in (
        f'SELECT * FROM payments WHERE account_id = "{path}"',
        f"SELECT '{path}'::INT FROM payments",
    ):
        with pytest.raises(InvalidRequestError):
            local.sql(query)


@pytest.mark.parametrize("descriptors_max", [0, 4_096])
def test_a_link_that_stands_for_a_data_file_is_not_followed(
    local: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, descriptors_max: int
) -> None:
    """It may lead to aborted records, or out of the store. The file is named, as a scan names it."""
    monkeypatch.setattr("txn_engine.sql.locked._DESCRIPTORS_MAX", descriptors_max)
    (file,) = local.scan("payments").files()
    path = Path(file.uri)
    assert local.sql("SELECT 1 FROM payments").num_rows == file.record_count
    path.rename(tmp_path / "elsewhere.parquet")
    path.symlink_to(tmp_path / "elsewhere.parquet")
    for query in ("FROM payments", "SELECT 1 FROM payments", "SELECT count(*) FROM payments"):
        with damaged_at(path.name):
            local.sql(query)


@pytest.mark.parametrize("damage", ["gone", "cut", "garbled"])
def test_a_damaged_file_is_named(local: Engine, damage: str) -> None:
    (file,) = local.scan("payments").files()
    path = Path(file.uri)
    data = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes(data[:-20] if damage == "cut" else b"PAR1" + b"\x00" * (len(data) - 8) + b"PAR1")
    with damaged_at(path.name) as error:
        local.sql("FROM payments")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("in_descriptors", [True, False])
def test_a_file_with_a_changed_byte_is_named(
    local: Engine, in_descriptors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever DuckDB fails at because of a changed byte, the file is named, and no value is blamed."""
    if not in_descriptors:
        monkeypatch.setattr("txn_engine.sql.locked._DESCRIPTORS_MAX", 0)
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    local.admin.create_topic("words", partitions=1, schema=schema)
    put(local, "words", pa.table({"id": range(50), "name": [f"secret-{at}" for at in range(50)]}, schema))
    (file,) = local.scan("words").files()
    path = Path(file.uri)
    data = path.read_bytes()
    errors: dict[int, TxnEngineError] = {}
    for at in range(4, len(data) - 8, 23):
        path.unlink()
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        try:
            local.sql("SELECT max(name), sum(id) FROM words")
        except TxnEngineError as error:
            errors[at] = error
    assert errors
    assert not {
        at: str(error)
        for at, error in errors.items()
        if not isinstance(error, CorruptObjectError) or path.name not in str(error)
    }
    assert "secret-" not in "".join(map(str, errors.values())) + repr(list(errors.values()))


def test_what_the_store_said_is_told(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> bytes:
        raise StoreUnreachableError("no answer", actor="s3", place="s3://ledger")

    with monkeypatch.context() as patched:
        patched.setattr(engine.store, "get_range", away)
        with pytest.raises(StoreUnavailableError) as caught:
            engine.sql("FROM payments")
        assert (caught.value.actor, caught.value.place) == ("s3", "s3://ledger")
    assert engine.sql("FROM payments").num_rows == 3


@pytest.mark.parametrize("named", [{"memory_mb": 0}, {"threads": -1}, {"threads": True}, {"memory_mb": "1"}])
def test_what_it_may_take(engine: Engine, named: dict[str, object]) -> None:
    ((name, value),) = named.items()
    assert f"{name}{'=' if type(value) is int else ' '}{value!r}" in refused(engine, "FROM payments", **named)


def test_what_it_may_take_by_the_environment(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory and threads are those of the call, or else of the environment."""
    taken: list[tuple[str, object]] = []

    class Noted(LockedDuckDB):
        def __init__(
            self, store: ObjectStore, parts: Sequence[FilePart], *, memory: str, threads: int
        ) -> None:
            super().__init__(store, parts, memory=memory, threads=threads)
            (found,) = self.connection.execute("SELECT current_setting('threads')").fetchall()
            taken.append((memory, *found))

    monkeypatch.setattr("txn_engine.sql.query.LockedDuckDB", Noted)
    monkeypatch.setenv("TXN_ENGINE_SQL_THREADS", "1")
    monkeypatch.setenv("TXN_ENGINE_SQL_MEMORY_MB", "100")
    engine.sql("FROM payments")
    engine.sql("FROM payments", threads=3, memory_mb=200)
    assert set(taken) == {("100000000B", 1), ("200000000B", 3)}
    monkeypatch.setenv("TXN_ENGINE_SQL_THREADS", "many")
    assert "TXN_ENGINE_SQL_THREADS='many'" in refused(engine, "FROM payments", memory_mb=100)


def test_queries_that_run_at_once_share_the_memory(local: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each query over a local store has a DuckDB of its own, and half of the memory that the one before it has."""
    taken: list[str] = []

    class Noted(LockedDuckDB):
        def __init__(
            self, store: ObjectStore, parts: Sequence[FilePart], *, memory: str, threads: int
        ) -> None:
            super().__init__(store, parts, memory=memory, threads=threads)
            if parts:
                taken.append(memory)
                if len(taken) < 3:
                    assert local.sql("FROM payments").num_rows == 3

    monkeypatch.setattr("txn_engine.sql.query.LockedDuckDB", Noted)
    assert local.sql("FROM payments").num_rows == 3
    assert local.sql("FROM payments").num_rows == 3
    assert taken == ["50.0%", "25.0%", "12.5%", "50.0%"]


def test_too_little_memory_says_what_to_do(engine: Engine) -> None:
    query = "SELECT list(r ORDER BY hash(r)) FROM payments, range(30_000_000) t(r)"
    assert "memory_mb, --memory-mb or TXN_ENGINE_SQL_MEMORY_MB" in refused(engine, query, memory_mb=50)


def test_without_duckdb_it_says_what_to_install(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("txn_engine.sql")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    line = refused(engine, "FROM payments")
    assert "the package 'duckdb' is not installed; pip install 'txn-engine[sql]' [MISSING_PACKAGE]" in line


def test_what_one_query_keeps_is_gone_with_the_engine(
    local: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    local.sql("FROM payments")
    assert [path.name[:15] for path in tmp_path.iterdir() if path.name != "ledger"] == ["txn-engine-sql-"]
    local.close()
    assert [path.name for path in tmp_path.iterdir()] == ["ledger"]


def test_threads_share_an_engine(engine: Engine) -> None:
    engine.admin.create_topic("fees", partitions=1, schema=payments(1).schema)
    put(engine, "fees", payments(9))
    found: list[list[int]] = []

    def ask(topic: str) -> None:
        found.extend(accounts(engine.sql(f"SELECT account_id FROM {topic}")) for _ in range(5))

    threads = [threading.Thread(target=ask, args=(topic,)) for topic in ("payments", "fees") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [[1, 2, 3]] * 10 + [[9]] * 10


def test_ctrl_c_ends_a_query(tmp_path: Path) -> None:
    """Ctrl-C ends a query that would run for hours, and the engine takes the next query."""
    code = """
import os, signal, sys, threading, txn_engine
engine = txn_engine.connect(sys.argv[1])
engine.sql("FROM payments")  # imports what a query needs: a signal in an import is another matter
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    engine.sql("SELECT count(*) FROM payments, range(10_000_000) a(x), range(10_000_000) b(y) WHERE x + y = 5")
except KeyboardInterrupt:
    print("stopped", engine.sql("FROM payments").num_rows)
engine.close()
"""
    url = f"file://{tmp_path}/ledger"
    with txn_engine.connect(url) as made:
        made.admin.create_topic("payments", partitions=1, schema=payments(1).schema)
        put(made, "payments", payments(1, 2, 3))
    done = subprocess.run(
        [sys.executable, "-c", code, url],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.stdout, done.stderr) == ("stopped 3\n", "")


def test_a_reader_needs_no_right_to_write(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> bool:
        raise AssertionError("something was written")

    for name in ("put_if_absent", "put", "delete"):
        monkeypatch.setattr(engine.store, name, forbidden)
    assert engine.sql("FROM payments").num_rows == 3


def test_a_fork_is_refused(engine: Engine) -> None:
    engine.sql("FROM payments")

    def call() -> None:
        with pytest.raises(TxnEngineError, check=lambda error: error.reason is Reason.CARRIED_OVER_A_FORK):
            engine.sql("FROM payments")

    assert in_a_child(call) == 0


def test_invalid_requests_say_who_refused(engine: Engine) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        engine.sql("DROP TABLE payments")
    assert caught.value.actor == "sql"
