"""A write by Spark looks at all its arguments before it fences or changes anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import load, payments
from tests.spark.test_writing import small
from tests.support.odd_arguments import cases, changes_nothing
from txn_engine.engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.producer import Producer
from txn_engine.spark import load_files, write_topic, write_topics

pytestmark = pytest.mark.spark


@pytest.fixture
def held(ledger: Engine) -> Iterator[Producer]:
    """A producer with an open transaction, which a write under its id would abort."""
    load(ledger, 0, 5)
    producer = ledger.producer(transactional_id="job")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", payments(5, 5)).result()
    yield producer
    with suppress(TxnEngineError):
        producer.close()


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return small(spark)


def test_each_argument(ledger: Engine, held: Producer, rows: DataFrame) -> None:
    """Each parameter of write_topic is refused with each odd argument, and nothing has changed."""
    checked = cases(
        topic=(list, dict),
        offsets=(None,),
        run_id=(None,),
        forgotten_runs=(),
        transaction_timeout_ms=(int,),
        markers=(),
        sort_within_files=(bool,),
        by_partition=(bool, None),
        checks=(None,),
        dead_letter_topic=(None,),
        max_dead_letters=(None,),
    )
    for name, value in (each.values for each in checked):
        given: dict[str, Any] = {"topic": "balances", "transactional_id": "job", name: value}
        changes_nothing(ledger, lambda given=given: write_topic(rows, ledger, given.pop("topic"), **given))


def test_each_output(ledger: Engine, held: Producer, rows: DataFrame) -> None:
    """If one of several outputs is wrong, nothing has changed."""
    for wrong in ({}, {"balances": rows, "nope": rows}, {"balances": rows, "payments": rows}):
        changes_nothing(ledger, lambda wrong=wrong: write_topics(wrong, ledger, transactional_id="job"))


def test_each_load(ledger: Engine, held: Producer, spark: SparkSession, tmp_path: Path) -> None:
    """A load whose file is not there, or with a wrong argument, fences nobody."""
    file = tmp_path / "a.csv"
    file.write_text("trans_id,account_id,amount\n1,1,1.00\n")
    for wrong in (
        {"paths": str(tmp_path / "nowhere.csv")},
        {"paths": [str(file), str(tmp_path / "nowhere.csv")]},
        {"paths": []},
        {"transactional_id": ""},
        {"transaction_timeout_ms": 10**9},
        {"forgotten_runs": "never"},
        {"columns": {"trans_id": "account_id"}},
        {"dead_letter_topic": "nowhere"},
    ):
        given: dict[str, Any] = {"paths": str(file), "run_id": "r", "transactional_id": "job", **wrong}
        changes_nothing(
            ledger, lambda given=given: load_files(spark, ledger, "payments", given.pop("paths"), **given)
        )
