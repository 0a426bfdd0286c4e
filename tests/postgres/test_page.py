"""The examples of docs/POSTGRES.md run on a real Postgres."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from tests.docs.test_code_blocks import PAYMENTS, blocks, run_block
from txn_engine import Engine

pytestmark = pytest.mark.slow


def test_each_block(
    engine: Engine, connection: Connection[Any], dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query and an outbox are loaded into the topic, each row once, and the topic is written into a
    table."""
    engine.admin.delete_topic("payments")
    engine.admin.create_topic("payments", partitions=2, schema=PAYMENTS, key="account_id")
    connection.execute("CREATE TABLE incoming AS SELECT n::bigint AS account_id, 2.50 AS amount"
                       " FROM generate_series(1, 3) AS of (n)")  # fmt: skip
    connection.execute(
        "CREATE TABLE outbox (id bigserial, account_id bigint, amount numeric(18,2), txn_engine_run text)"
    )
    connection.execute("INSERT INTO outbox (account_id, amount) SELECT account_id + 10, amount FROM incoming")
    connection.commit()
    out, query, outbox, _, sqlite = blocks("docs/POSTGRES.md", "python")
    names = run_block(out, "", {"engine": engine, "dsn": dsn})
    run_block(query, "", names)
    assert (names["first"].records, names["again"].committed_before) == (3, True)
    run_block(outbox, "", names)
    assert names["drained"].records == 3
    run_block(out, "", names)
    rows = connection.execute("SELECT account_id, amount::text FROM payments ORDER BY 1").fetchall()
    assert rows == [(account, "2.50") for account in (1, 2, 3, 11, 12, 13)]
    monkeypatch.chdir(tmp_path)
    run_block(sqlite, "", names)
    assert (names["kept"].records, names["found"].records) == (6, 6)
    names["shop"].close()
