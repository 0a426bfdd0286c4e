"""The shop of `example_txn_postgres` with its payments, outbox and balances, and workers of the pipeline that die."""

from __future__ import annotations

import json
from collections.abc import Collection
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.support.database import CONN_ID, connection_text
from tests.support.servers import REPOSITORY
from txn_engine import Engine
from txn_engine.loading import read_repaired, replay
from txn_engine.loading.letter_rows import repair_line
from txn_engine.loading.waiting import letters, waiting_from

DAG_ID: Final = "example_txn_postgres"
DEAD: Final = "example_shop_payments_dead"
PLACES: Final = (
    "load after claim",
    "load after commit_transaction",
    "sum_up before commit_transaction",
    "sum_up after commit_transaction",
    "store after executemany",
    "store before follow",
)
"""Where workers die. Between executemany and follow the database commits."""

_TABLES = """
CREATE TABLE shop_payments (id bigserial PRIMARY KEY, account_id bigint, amount numeric(18, 2));
CREATE TABLE example_outbox (id bigint PRIMARY KEY, account_id bigint, amount numeric, txn_engine_run text);
"""
_PAY = """
WITH payments AS (
    INSERT INTO shop_payments (account_id, amount)
    SELECT n %% 50, (n %% 997) / 100.0 FROM generate_series(1, %s) AS of (n) RETURNING *)
INSERT INTO example_outbox (id, account_id, amount)
SELECT id, account_id, CASE WHEN id %% 100 = 7 THEN amount + 4e-17 ELSE amount END FROM payments
"""
_RETRIES = ('"retries": 2, "retry_delay": timedelta(seconds=10)', '"retries": 9, "retry_delay": timedelta(0)')


def make_bundle(folder: Path) -> None:
    """Copy the example's DAG with more and immediate retries and with workers that can die. None of them is doomed
    yet.
    """
    (folder / "deaths").mkdir(parents=True)
    example = REPOSITORY / "plugins" / "txn_engine_airflow" / "example_dags" / f"{DAG_ID}.py"
    code = example.read_text(encoding="utf-8")
    assert _RETRIES[0] in code
    (folder / example.name).write_text(f"{code.replace(*_RETRIES)}\nimport deaths\n", encoding="utf-8")
    (folder / "deaths.py").write_bytes((REPOSITORY / "tests" / "live" / "deaths.py").read_bytes())


def doom(folder: Path) -> None:
    """From now on a worker dies in each of the places."""
    for place in PLACES:
        (folder / "deaths" / place).touch()


def connection(dsn: str) -> dict[str, Any]:
    """The connection as Airflow's API takes it."""
    return {"connection_id": CONN_ID.lower(), **json.loads(connection_text(dsn))}


def make_tables(dsn: str) -> None:
    with psycopg.connect(dsn) as database:
        database.execute(_TABLES)


def pay(dsn: str, payments: int) -> None:
    """Insert payments, and their rows into the outbox in the same transaction. One in a hundred has fractions
    of cents."""
    with psycopg.connect(dsn) as database:
        database.execute(_PAY, (payments,))


def in_outbox(dsn: str) -> int:
    with psycopg.connect(dsn) as database:
        ((count,),) = database.execute("SELECT count(*) FROM example_outbox").fetchall()
    return int(count)


def paid(dsn: str, *, without: Collection[int] = ()) -> dict[int, Decimal]:
    """The sum by account, from the source itself."""
    with psycopg.connect(dsn) as database:
        return dict(
            database.execute(
                "SELECT account_id, sum(amount) FROM shop_payments WHERE NOT id = ANY (%s) GROUP BY 1",
                (list(without),),
            ).fetchall()
        )


def balances(dsn: str) -> dict[int, Decimal]:
    """The balances that the pipeline has computed."""
    with psycopg.connect(dsn) as database:
        return dict(database.execute("SELECT account_id, balance FROM example_balances").fetchall())


def dead(engine: Engine) -> list[dict[str, Any]]:
    """The waiting letters."""
    waiting = letters(engine, DEAD, waiting_from(engine, DEAD))
    return [letter for batch in waiting for letter in batch.to_pylist()]


def mend_and_replay(engine: Engine, file: Path) -> int:
    """Round the amounts of the letters to cents, replay them, and return how many records that made."""
    lines = [json.loads(repair_line(letter)) for letter in dead(engine)]
    for line in lines:
        line["amount"] = f"{Decimal(line['amount']):.2f}"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    done = replay(engine, DEAD, repaired=read_repaired(file))
    assert done.failed_again == 0
    return done.records
