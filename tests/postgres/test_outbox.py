"""Each row of an outbox in a real Postgres goes into the topic once, even if workers die, overlap and take
over."""

from __future__ import annotations

import threading
from itertools import product
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pyarrow as pa
import pytest
from psycopg import Connection
from psycopg.rows import dict_row

import txn_engine
from storage import open_store
from tests.loading.refusals import because
from tests.postgres.conftest import SCHEMA
from tests.suite.tiers import in_shard
from tests.support.kills import ProcessDiedError, die
from tests.support.stores import accounts_in
from txn_engine import AddColumn, Engine
from txn_engine.backup import restore
from txn_engine.errors import InvalidRequestError, ProducerFencedError, TxnEngineError
from txn_engine.postgres import DatabaseError, load_outbox
from txn_engine.postgres import outbox as outbox_module
from txn_engine.reasons import Reason

pytestmark = pytest.mark.slow


@pytest.fixture
def outbox(connection: Connection[Any]) -> Connection[Any]:
    """An outbox of a hundred rows."""
    connection.execute(
        "CREATE TABLE outbox (id bigserial PRIMARY KEY, account_id bigint, amount numeric(18,2), note text,"
        " txn_engine_run text, loaded_at timestamptz)"
    )
    insert(connection, 0, 100)
    return connection


def insert(connection: Connection[Any], first: int, count: int) -> None:
    connection.execute(
        "INSERT INTO outbox (account_id, amount) SELECT n, 1 FROM generate_series(%s::int, %s::int) AS of (n)",
        (first, first + count - 1),
    )
    connection.commit()


def left(connection: Connection[Any], where: str = "true") -> int:
    row = connection.execute(f"SELECT count(*) FROM outbox WHERE {where}").fetchone()  # type: ignore[arg-type]
    connection.commit()
    assert row is not None
    return int(row[0])


def test_an_outbox_is_drained(engine: Engine, outbox: Connection[Any]) -> None:
    """An outbox is drained in batches until nothing is left. Rows that come later are the next call's."""
    done = load_outbox(engine, outbox, "outbox", "payments", batch_rows=30)
    assert (done.records, done.batches, done.taken_over, done.claimed_by_others) == (100, 4, 0, 0)
    assert accounts_in(engine) == list(range(100))
    assert left(outbox) == 0
    insert(outbox, 100, 5)
    assert load_outbox(engine, outbox, "outbox", "payments").records == 5
    assert load_outbox(engine, outbox, "outbox", "payments").records == 0
    assert accounts_in(engine) == list(range(105))
    assert not engine.admin.verify().findings


def test_a_call_ends_though_rows_keep_coming(engine: Engine, outbox: Connection[Any], dsn: str) -> None:
    """A call ends although rows keep coming one at a time, because its last claim was not full."""

    def one_more(records: int) -> None:
        with psycopg.connect(dsn) as other:
            insert(other, records, 1)

    assert load_outbox(engine, outbox, "outbox", "payments", batch_rows=60, progress=one_more).records == 101
    assert left(outbox) == 1


def test_rows_may_stay_and_be_marked(engine: Engine, outbox: Connection[Any]) -> None:
    for _ in range(2):
        load_outbox(engine, outbox, "outbox", "payments", mark_column="loaded_at")
    assert accounts_in(engine) == list(range(100))
    assert left(outbox, "loaded_at IS NOT NULL") == 100


def test_a_row_that_commits_late_is_not_skipped(engine: Engine, outbox: Connection[Any], dsn: str) -> None:
    """A row that commits late is loaded, although it has a lower number than rows that were loaded before."""
    with psycopg.connect(dsn) as late:
        late.execute("INSERT INTO outbox (account_id, amount) VALUES (1000, 1)")
        insert(outbox, 100, 1)
        load_outbox(engine, outbox, "outbox", "payments")
        assert accounts_in(engine) == list(range(101))
    load_outbox(engine, outbox, "outbox", "payments")
    assert accounts_in(engine) == [*range(101), 1000]


def die_behind_the_commit(
    engine: Engine, connection: Connection[Any], monkeypatch: pytest.MonkeyPatch, **more: Any
) -> None:
    """Let a worker die that has loaded a batch and not removed it."""
    with monkeypatch.context() as patched:
        patched.setattr(
            outbox_module.Outbox, "take_away", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            load_outbox(engine, connection, "outbox", "payments", **more)


def test_an_id_that_begins_like_another_is_another(
    engine: Engine, outbox: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    die_behind_the_commit(engine, outbox, monkeypatch, transactional_id="worker/2")
    assert load_outbox(engine, outbox, "outbox", "payments", transactional_id="worker").claimed_by_others == 1
    assert load_outbox(engine, outbox, "outbox", "payments", transactional_id="worker/2").finished == 1
    assert accounts_in(engine) == list(range(100))


def test_a_restored_store_takes_over_what_was_claimed(
    engine: Engine, outbox: Connection[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A restored store takes over the claims of the store from whose backup it is: a batch that the backup
    has is removed, and a later one is loaded."""
    die_behind_the_commit(engine, outbox, monkeypatch, batch_rows=60)
    engine.backup(f"file://{tmp_path}/backups")
    with monkeypatch.context() as patched:
        patched.setattr(outbox_module._Worker, "take_over", lambda _: None)
        die_behind_the_commit(engine, outbox, monkeypatch, batch_rows=60)
    assert (accounts_in(engine), left(outbox)) == (list(range(100)), 100)
    source, target = (open_store(f"file://{tmp_path}/{name}", create=True) for name in ("backups", "again"))
    restore(source, target)
    with txn_engine.connect(f"file://{tmp_path}/again") as again:
        assert len(accounts_in(again)) == 60
        done = load_outbox(again, outbox, "outbox", "payments")
        assert (done.records, done.taken_over, done.finished, done.claimed_by_others) == (40, 2, 1, 0)
        assert (accounts_in(again), left(outbox)) == (list(range(100)), 0)


@pytest.mark.parametrize("name", in_shard("engines", ["worker//2", "worker/", "/"], keep=1))
def test_an_id_with_slashes_takes_over(
    engine: Engine, outbox: Connection[Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    die_behind_the_commit(engine, outbox, monkeypatch, transactional_id=name)
    for other in ("worker", "worker/2"):
        assert load_outbox(engine, outbox, "outbox", "payments", transactional_id=other).taken_over == 0
    assert load_outbox(engine, outbox, "outbox", "payments", transactional_id=name).finished == 1
    assert (accounts_in(engine), left(outbox)) == (list(range(100)), 0)


def test_a_column_that_was_added_to_the_topic(engine: Engine, outbox: Connection[Any], dsn: str) -> None:
    """A column that was added to the topic has the value of older records until the outbox has the column.
    The connection may return rows as dicts."""
    currency = pa.field("currency", pa.string(), nullable=False)
    engine.admin.alter_topic("payments", [AddColumn(currency, default="EUR")])
    with psycopg.connect(dsn, row_factory=dict_row) as other:
        assert load_outbox(engine, other, "outbox", "payments").records == 100
    outbox.execute("ALTER TABLE outbox ADD currency text NOT NULL DEFAULT 'USD'")
    insert(outbox, 100, 1)
    assert load_outbox(engine, outbox, "outbox", "payments").records == 1
    found = engine.scan("payments").to_table(["account_id", "currency"]).sort_by("account_id")
    assert found["currency"].to_pylist() == ["EUR"] * 100 + ["USD"]


@pytest.fixture
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log remembers the last 10 runs of a transactional id, not the last 100."""
    monkeypatch.setattr("txn_engine.protocol.transactions.MAX_RUN_IDS", 10)


@pytest.mark.usefixtures("few_runs")
def test_a_worker_dies_after_more_runs_than_the_log_keeps(
    engine: Engine, outbox: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a worker dies between claim and load, or after its commit, the log still has the run before the
    claim, so the next worker knows what was loaded."""
    insert(outbox, 100, 3)
    load_outbox(engine, outbox, "outbox", "payments", batch_rows=9, max_batches=11)
    with monkeypatch.context() as patched:
        patched.setattr(outbox_module, "load_run", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            load_outbox(engine, outbox, "outbox", "payments", batch_rows=1)
    once = load_outbox(engine, outbox, "outbox", "payments", batch_rows=1, max_batches=1)
    assert (once.taken_over, once.finished) == (1, 0)
    die_behind_the_commit(engine, outbox, monkeypatch, batch_rows=1)
    assert load_outbox(engine, outbox, "outbox", "payments").finished == 1
    assert (accounts_in(engine), left(outbox)) == (list(range(103)), 0)


@pytest.mark.usefixtures("few_runs")
def test_a_claim_that_the_log_has_forgotten_is_refused(
    engine: Engine, outbox: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If two outboxes share one id, a claim of the first may be older than all remembered runs. It is
    refused, because it may have been loaded."""
    die_behind_the_commit(engine, outbox, monkeypatch, transactional_id="one", batch_rows=10)
    outbox.execute("CREATE TABLE second AS SELECT * FROM outbox WHERE txn_engine_run IS NULL LIMIT 6")
    outbox.execute("INSERT INTO second SELECT id + 1000, account_id + 1000, amount, note FROM second")
    outbox.commit()
    load_outbox(engine, outbox, "second", "payments", transactional_id="one", batch_rows=1)
    before = accounts_in(engine)
    with pytest.raises(InvalidRequestError, check=because(Reason.CLAIMED_BY_UNKNOWN_RUN)):
        load_outbox(engine, outbox, "outbox", "payments", transactional_id="one")
    assert accounts_in(engine) == before


def test_what_claims_call_a_run_by_stays() -> None:
    """The short name of a run in claims may not change, because databases have claims of older versions."""
    assert outbox_module._short("payments/0/worker/1") == "86b6a0e216758209"


@pytest.mark.parametrize("mark", [None, "loaded_at"])
def test_an_outbox_in_partitions(engine: Engine, connection: Connection[Any], mark: str | None) -> None:
    """In a partitioned outbox every row is loaded, although a row's place is unique only in its own
    partition."""
    connection.execute(
        "CREATE TABLE outbox (id bigint, account_id bigint, amount numeric(18,2), note text, txn_engine_run text,"
        " loaded_at timestamptz) PARTITION BY RANGE (id)"
    )
    for first in (0, 100):
        connection.execute(
            f"CREATE TABLE outbox_{first} PARTITION OF outbox FOR VALUES FROM ({first}) TO ({first + 100})"  # type: ignore[arg-type]
        )
    for first, count in ((0, 3), (100, 5)):
        connection.execute(
            "INSERT INTO outbox (id, account_id) SELECT n, n FROM generate_series(%s::int, %s::int) AS of (n)",
            (first, first + count - 1),
        )
        connection.commit()
        load_outbox(engine, connection, "outbox", "payments", mark_column=mark)
    assert accounts_in(engine) == [0, 1, 2, 100, 101, 102, 103, 104]


STEPS = ("claimed", "loaded", "taken away")


@pytest.mark.parametrize(
    ("step", "mark"),
    in_shard(
        "kills",
        product(STEPS, [None, "loaded_at"]),
        keep=[("claimed", None), ("loaded", "loaded_at"), ("taken away", None)],
    ),
)
def test_whoever_takes_over_loads_the_same_rows(
    engine: Engine, outbox: Connection[Any], monkeypatch: pytest.MonkeyPatch, step: str, mark: str | None
) -> None:
    """If a worker ends after any of the three steps of its second batch, the next worker loads the same
    rows."""

    calls = 0

    def dying(name: str, work: Any) -> Any:
        def run(*words: Any, **more: Any) -> Any:
            nonlocal calls
            found = work(*words, **more)
            calls += name == step
            if name == step and calls == 2:
                die()
            return found

        return run

    kind = outbox_module.Outbox
    with monkeypatch.context() as patched:
        patched.setattr(kind, "claim", dying("claimed", kind.claim))
        patched.setattr(kind, "take_away", dying("taken away", kind.take_away))
        patched.setattr(outbox_module, "load_run", dying("loaded", outbox_module.load_run))
        with pytest.raises(ProcessDiedError):
            load_outbox(engine, outbox, "outbox", "payments", batch_rows=30, mark_column=mark)
    insert(outbox, 100, 7)
    done = load_outbox(engine, outbox, "outbox", "payments", batch_rows=50, mark_column=mark)
    assert (done.taken_over, done.finished) == {"claimed": (1, 0), "loaded": (1, 1), "taken away": (0, 0)}[
        step
    ]
    assert accounts_in(engine) == list(range(107))
    assert left(outbox, "true" if mark is None else "loaded_at IS NULL") == 0


def test_a_worker_that_was_fenced_loads_nothing_more(
    engine: Engine, outbox: Connection[Any], dsn: str
) -> None:
    """A worker that was fenced between two batches loads nothing more, and its next claim belongs to its
    successor."""

    def taken_over(records: int) -> None:
        with psycopg.connect(dsn) as other:
            load_outbox(engine, other, "outbox", "payments", max_batches=1, batch_rows=10)

    with pytest.raises(ProducerFencedError):
        load_outbox(engine, outbox, "outbox", "payments", batch_rows=30, progress=taken_over)
    assert left(outbox, "txn_engine_run IS NOT NULL") > 0
    load_outbox(engine, outbox, "outbox", "payments")
    assert accounts_in(engine) == list(range(100))


def test_workers_of_different_ids_share_the_rows(engine: Engine, outbox: Connection[Any], dsn: str) -> None:
    """Workers with different ids share the rows and leave each other's claims alone."""
    insert(outbox, 100, 400)
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            with psycopg.connect(dsn) as mine:
                load_outbox(engine, mine, "outbox", "payments", batch_rows=40, transactional_id=name)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"worker-{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert accounts_in(engine) == list(range(500))
    outbox.execute("INSERT INTO outbox (account_id, txn_engine_run) VALUES (9999, 'somebody/else')")
    outbox.commit()
    assert load_outbox(engine, outbox, "outbox", "payments").claimed_by_others == 1
    assert accounts_in(engine) == list(range(500))


@pytest.fixture
def bad(outbox: Connection[Any]) -> Connection[Any]:
    outbox.execute("ALTER TABLE outbox ALTER amount TYPE numeric")
    outbox.execute("UPDATE outbox SET amount = 0.001 WHERE account_id = 50")
    outbox.commit()
    return outbox


def test_a_row_that_does_not_fit_stays_where_it_is(engine: Engine, bad: Connection[Any]) -> None:
    """The batch of a row that does not fit stays claimed, and is loaded after the row was corrected."""
    with pytest.raises(TxnEngineError, check=because(Reason.BAD_DECIMAL, "row 51 of")):
        load_outbox(engine, bad, "outbox", "payments")
    assert accounts_in(engine) == []
    assert left(bad) == 100
    bad.execute("UPDATE outbox SET amount = 1 WHERE account_id = 50")
    bad.commit()
    assert load_outbox(engine, bad, "outbox", "payments").taken_over == 1
    assert accounts_in(engine) == list(range(100))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("ALTER TABLE outbox ALTER txn_engine_run TYPE character(500)", Reason.TYPE_MISMATCH),
        ("ALTER TABLE outbox ALTER txn_engine_run TYPE name", Reason.TYPE_MISMATCH),
        ("ALTER TABLE outbox ALTER loaded_at SET DEFAULT now()", Reason.MARKED_FROM_THE_START),
        (
            "CREATE DOMAIN moment AS timestamptz DEFAULT now(); ALTER TABLE outbox ALTER loaded_at TYPE moment",
            Reason.MARKED_FROM_THE_START,
        ),
        (
            "ALTER TABLE outbox RENAME TO rows; CREATE VIEW outbox AS SELECT * FROM rows",
            Reason.NOT_A_TABLE,
        ),
    ],
)
def test_a_table_that_keeps_no_claims(
    engine: Engine, outbox: Connection[Any], change: LiteralString, reason: Reason
) -> None:
    """A table that cuts or pads claims, or marks rows from the start, is refused before anything is claimed,
    because its rows would never be taken over."""
    outbox.execute(change)
    outbox.commit()
    with pytest.raises(DatabaseError, check=because(reason)):
        load_outbox(engine, outbox, "outbox", "payments", mark_column="loaded_at")
    assert (left(outbox, "txn_engine_run IS NULL"), accounts_in(engine)) == (100, [])


@pytest.mark.parametrize(
    "change",
    [
        "CREATE DOMAIN run AS text; ALTER TABLE outbox ALTER txn_engine_run TYPE run",
        "ALTER TABLE outbox ALTER txn_engine_run TYPE varchar(400)",
        "ALTER TABLE outbox ALTER loaded_at TYPE timestamptz(3), ALTER loaded_at SET DEFAULT NULL",
    ],
)
def test_a_table_that_keeps_claims(engine: Engine, outbox: Connection[Any], change: LiteralString) -> None:
    """A domain counts as its base type, and a default of null, which Postgres notes for some types, counts as
    no default."""
    outbox.execute(change)
    outbox.commit()
    assert load_outbox(engine, outbox, "outbox", "payments", mark_column="loaded_at").records == 100


def test_a_connection_that_gives_bytes(
    engine: Engine, outbox: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that returns texts as bytes, as with SQL_ASCII, works: claims and columns are
    recognised."""
    outbox.execute("SET client_encoding = 'SQL_ASCII'")
    outbox.execute("ALTER TABLE outbox ADD COLUMN currency text DEFAULT 'CHF'")
    outbox.commit()
    currency = pa.field("currency", pa.string(), nullable=False)
    engine.admin.alter_topic("payments", [AddColumn(currency, default="EUR")])
    die_behind_the_commit(engine, outbox, monkeypatch, batch_rows=60)
    done = load_outbox(engine, outbox, "outbox", "payments")
    assert (done.records, done.finished, left(outbox), accounts_in(engine)) == (40, 1, 0, list(range(100)))
    assert set(engine.scan("payments").to_table()["currency"].to_pylist()) == {"CHF"}


_KEEP: LiteralString = """
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} END $$;
CREATE TRIGGER keep {} ON outbox FOR EACH ROW EXECUTE FUNCTION keep()"""


@pytest.mark.parametrize(
    ("event", "body", "reason", "count"),
    [
        ("BEFORE UPDATE", "RETURN NULL;", Reason.ROWS_NOT_STAMPED, 0),
        (
            "BEFORE UPDATE",
            "IF old.id = 7 THEN RETURN NULL; END IF; new.note = 'touched'; RETURN new;",
            Reason.ROWS_NOT_STAMPED,
            0,
        ),
        (
            "BEFORE UPDATE",
            "IF old.id = 7 THEN new.txn_engine_run = NULL; END IF; RETURN new;",
            Reason.ROWS_NOT_STAMPED,
            0,
        ),
        (
            "AFTER UPDATE",
            "IF new.id = 7 THEN new.id = 1007; INSERT INTO outbox SELECT new.*; END IF; RETURN NULL;",
            Reason.ROWS_NOT_STAMPED,
            0,
        ),
        ("BEFORE DELETE", "RETURN NULL;", Reason.ROWS_NOT_DELETED, 100),
    ],
    ids=["all", "one, and the others change", "one by its stamp", "one more", "as they are deleted"],
)
def test_a_trigger_that_keeps_rows_as_they_are(
    engine: Engine,
    outbox: Connection[Any],
    event: LiteralString,
    body: LiteralString,
    reason: Reason,
    count: int,
) -> None:
    """If a trigger silently keeps rows as they are, one of them or all, the load is an error. Loaded rows are loaded
    once, and after the trigger is dropped the rest is loaded."""
    outbox.execute(_KEEP.format(body, event))
    outbox.commit()
    for _ in range(2):
        with pytest.raises(DatabaseError, check=because(reason)):
            load_outbox(engine, outbox, "outbox", "payments")
        assert len(accounts_in(engine)) == count
    outbox.execute("DROP TRIGGER keep ON outbox")
    outbox.commit()
    load_outbox(engine, outbox, "outbox", "payments")
    assert (accounts_in(engine), left(outbox)) == (list(range(100)), 0)


_TOUCH: LiteralString = """
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN new.note = clock_timestamp()::text; RETURN new; END $$;
CREATE FUNCTION touch_later() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN UPDATE outbox SET note = 'touched' WHERE id = new.id; RETURN NULL; END $$;
CREATE TRIGGER touch {}"""


@pytest.mark.parametrize(
    "when",
    [
        "BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION touch()",
        "AFTER UPDATE OF txn_engine_run ON outbox FOR EACH ROW EXECUTE FUNCTION touch_later()",
    ],
    ids=["before", "after"],
)
def test_a_trigger_that_changes_rows_as_they_are_claimed(
    engine: Engine, outbox: Connection[Any], when: LiteralString
) -> None:
    """If a claim would change a column that is loaded, nothing is claimed. A trigger that leaves such rows alone, and a
    column that is not loaded, do no harm."""
    outbox.execute(_TOUCH.format(when))
    outbox.commit()
    with pytest.raises(DatabaseError, check=because(Reason.ROWS_CHANGED_BY_CLAIM)):
        load_outbox(engine, outbox, "outbox", "payments")
    assert (accounts_in(engine), left(outbox, "txn_engine_run IS NULL AND note IS NULL")) == ([], 100)
    outbox.execute("DROP TRIGGER touch ON outbox")
    outbox.execute(
        "CREATE TRIGGER touch BEFORE UPDATE ON outbox FOR EACH ROW"
        " WHEN (old.txn_engine_run IS NOT DISTINCT FROM new.txn_engine_run) EXECUTE FUNCTION touch()"
    )
    outbox.execute(
        "CREATE FUNCTION mark() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN new.loaded_at = now(); RETURN new; END $$;"
        "CREATE TRIGGER mark BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION mark()"
    )
    outbox.commit()
    assert load_outbox(engine, outbox, "outbox", "payments").records == 100
    assert set(engine.scan("payments").to_table()["note"].to_pylist()) == {None}


def undefined(kind: type[psycopg.Error], name: str) -> pytest.RaisesExc[DatabaseError]:
    """Postgres does not have a table or a column of this name."""
    return pytest.raises(
        DatabaseError,
        check=lambda error: isinstance(error.__cause__, kind) and f'"{name}"' in str(error.__cause__),
    )


def test_what_cannot_be_done(engine: Engine, outbox: Connection[Any]) -> None:
    with undefined(psycopg.errors.UndefinedTable, "nowhere"):
        load_outbox(engine, outbox, "nowhere", "payments")
    with undefined(psycopg.errors.UndefinedColumn, "claims"):
        load_outbox(engine, outbox, "outbox", "payments", run_column="claims")
    for number in (0, "5", None, 10**10):
        with pytest.raises(InvalidRequestError, check=because(Reason.BAD_ARGUMENT)):
            load_outbox(engine, outbox, "outbox", "payments", batch_rows=number)  # type: ignore[arg-type]
    for number in (0, -1, "5", 1.5):
        with pytest.raises(InvalidRequestError, check=because(Reason.BAD_ARGUMENT)):
            load_outbox(engine, outbox, "outbox", "payments", max_batches=number)  # type: ignore[arg-type]
    engine.admin.create_topic(
        "wider", partitions=1, schema=SCHEMA.append(SCHEMA.field("note").with_name("more"))
    )
    with undefined(psycopg.errors.UndefinedColumn, "more"):
        load_outbox(engine, outbox, "outbox", "wider")
    assert load_outbox(engine, outbox, "outbox", "payments").records == 100
