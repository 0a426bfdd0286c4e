"""One Spark session for all tests of this folder, and a ledger for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import txn_engine
from tests.support import jvm
from tests.support.internal import FEW_INTERNAL
from txn_engine.engine import Engine
from txn_engine.spark import spark_session
from txn_engine.spark.balances import BALANCES_SCHEMA, balances

if TYPE_CHECKING:
    from tests.cli.conftest import Answer

SCHEMA = pa.schema(
    [
        pa.field("trans_id", pa.int64()),
        pa.field("account_id", pa.int64()),
        pa.field("date", pa.date32()),
        pa.field("type", pa.string()),
        pa.field("amount", pa.decimal128(18, 2)),
    ]
)
TYPES = ("PRIJEM", "VYDAJ", "VYBER")
PLACE = [("_partition", "ascending"), ("_offset", "ascending")]


def payments(first: int, count: int) -> pa.Table:
    """Payments number `first` to `first + count - 1`, of 7 accounts, with amounts that no float holds
    exactly."""
    ids = range(first, first + count)
    columns = [
        pa.array(ids, pa.int64()),
        pa.array([number % 7 for number in ids], pa.int64()),
        pa.array([9_000 + number % 400 for number in ids], pa.int32()).cast(pa.date32()),
        pa.array([TYPES[number % 3] for number in ids]),
        pa.array([Decimal(number * 100 + 10) / 100 for number in ids], pa.decimal128(18, 2)),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def load(engine: Engine, first: int, count: int, *, commit: bool = True) -> None:
    """Produce these payments in one transaction."""
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("payments", payments(first, count)).result()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def sums(table: pa.Table) -> dict[int, tuple[Decimal, int]]:
    """Turnover and number of payments by account, computed by hand."""
    found: dict[int, tuple[Decimal, int]] = {}
    for row in table.to_pylist():
        amount = row["amount"] if row["type"] == "PRIJEM" else -row["amount"]
        turnover, count = found.get(row["account_id"], (Decimal(0), 0))
        found[row["account_id"]] = (turnover + amount, count + 1)
    return found


ACCOUNTS_SCHEMA = pa.schema([pa.field("account_id", pa.int64())])


def two_outputs(read: DataFrame) -> dict[str, DataFrame]:
    """The balances of the payments, and the accounts that have any."""
    return {"balances": balances(read), "accounts": read.select("account_id").distinct()}


def accounts_of(engine: Engine) -> list[int]:
    """The committed rows of `accounts`, sorted."""
    table = engine.scan("accounts").to_table(["account_id"])
    return sorted(table.column("account_id").to_pylist())


def balances_of(engine: Engine) -> dict[int, tuple[Decimal, int]]:
    """The sums of the committed rows of `balances`."""
    found: dict[int, tuple[Decimal, int]] = {}
    for row in engine.scan("balances").to_table().to_pylist():
        turnover, count = found.get(row["account_id"], (Decimal(0), 0))
        found[row["account_id"]] = (turnover + row["turnover"], count + row["payments"])
    return found


@pytest.fixture(scope="package", autouse=True)
def spark_ends_with_its_tests() -> Iterator[None]:
    """End the session that the modules of this package share."""
    yield
    jvm.end_session()


@pytest.fixture
def spark(spark_jvm: None) -> SparkSession:
    """The session of this package, with two task slots and three tries for each task. If a command that ran
    before has stopped it, this is a new one."""
    return spark_session("file:///", master="local[2,3]")


Command = Callable[..., "Answer"]


@pytest.fixture
def command(spark_jvm: None) -> Command:
    """Call a command in this process, on an engine's store. The command starts and stops a session of its
    own."""
    from click.testing import CliRunner

    from tests.cli.conftest import Answer
    from txn_engine.cli.main import cli

    def run(engine: Engine, *arguments: str) -> Answer:
        jvm.end_session()
        given = [*arguments, "--url", engine.url]
        result = CliRunner().invoke(cli, given, prog_name="txn-engine", catch_exceptions=False)
        return Answer(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def two_topics(ledger: Engine) -> Engine:
    """`ledger` with a second empty output topic, `accounts`."""
    ledger.admin.create_topic("accounts", partitions=2, schema=ACCOUNTS_SCHEMA, key="account_id")
    return ledger


@pytest.fixture
def copies(ledger: Engine) -> Engine:
    """`ledger` with an empty topic `copies` that has the columns of `payments`."""
    ledger.admin.create_topic("copies", partitions=2, schema=SCHEMA, key="account_id")
    return ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Engine]:
    """A store with an empty `payments` (3 partitions) and an empty `balances` (2). It is audited at the
    end."""
    with txn_engine.connect(f"file://{tmp_path}/ledger", configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic("payments", partitions=3, schema=SCHEMA, key="account_id")
        engine.admin.create_topic("balances", partitions=2, schema=BALANCES_SCHEMA, key="account_id")
        yield engine
        report = engine.admin.verify()
        assert report.ok, report.findings
