"""Large tables go in and out by Spark's JDBC, with the driver's jar."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

import txn_engine
from tests.docs.test_code_blocks import PAYMENTS
from tests.support.servers import REPOSITORY
from txn_engine.spark.jars import postgres_jar_settings

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.mark.shard("engines")
def test_a_table_goes_in_and_out_once(dsn: str, tmp_path: Path) -> None:
    """A table that is written twice is there once, both ways: by the run id, and by the records' places."""
    url = f"file://{tmp_path}/ledger"
    with txn_engine.connect(url) as engine, psycopg.connect(dsn) as connection:
        engine.admin.create_topic("payments", partitions=2, schema=PAYMENTS, key="account_id")
        connection.execute(
            "CREATE TABLE incoming AS SELECT n::bigint AS account_id, (n / 4.0)::numeric(18,2) AS amount"
            " FROM generate_series(0, 999) AS of (n)"
        )
        connection.execute(
            "CREATE TABLE history (account_id bigint, amount numeric(18,2), _partition int, _offset bigint,"
            " UNIQUE (_partition, _offset))"
        )
        connection.commit()
        done = subprocess.run(
            [sys.executable, "-m", "tests.postgres.by_spark", url, dsn, "2"],
            cwd=REPOSITORY,
            env=dict(os.environ),
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        rows: list[Any] = connection.execute("SELECT account_id, amount FROM history ORDER BY 1").fetchall()
        expected = connection.execute("SELECT account_id, amount FROM incoming ORDER BY 1").fetchall()
        found = engine.scan("payments").to_table(["account_id", "amount"]).to_pydict()
    assert rows == expected
    assert sorted(zip(found["account_id"], found["amount"], strict=True)) == expected


def test_the_driver_is_the_one_that_the_list_names() -> None:
    """The list names one jar of the driver, and its checksum is correct."""
    (jar,) = postgres_jar_settings()["spark.jars"].split(",")
    assert Path(jar).name == "org.postgresql.postgresql-42.7.14.jar"
