"""The code of README and TABLES.md for engines in environments of their own works on a published topic."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_code_blocks import PAYMENTS, blocks, payments
from tests.readers.environments import SESSION, run
from txn_engine import Engine, connect

pytestmark = [pytest.mark.shard("engines"), pytest.mark.timeout(600)]

_SHOWN = "s3://ledger/prod"
_SPARKS_SHOWN = "s3a://ledger/prod"
TOTAL = str(3 * Decimal("2.50"))
SETTINGS: dict[str, dict[str, str]] = {
    "tables": {},
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.catalog.payments": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.payments.type": "hadoop",
    },
}
"""As TABLES.md says."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder: Path = tmp_path_factory.mktemp("blocks") / "ledger"
    with connect(f"file://{folder}") as engine:
        engine.admin.create_topic("payments", partitions=2, schema=PAYMENTS, key="account_id")
        with engine.producer() as producer:
            producer.produce("payments", payments(1, 2, 3)).result()
        engine.tables.publish("payments")
        yield engine


def shown(engine: Engine, environment: str, code: str = "", sql: str = "") -> list[Any]:
    """The answers of a page's code on this store."""
    place = engine.url.removeprefix("file://")
    code, sql = (text.replace(_SPARKS_SHOWN, place).replace(_SHOWN, place) for text in (code, sql))
    settings = dict(SETTINGS[environment])
    if environment == "iceberg":
        settings["spark.sql.catalog.payments.warehouse"] = f"{place}/topics/payments"
    lines = [line.partition("--")[0] for line in sql.splitlines()]
    statements = [each.strip() for each in "\n".join(lines).split(";") if each.strip()]
    request = {"environment": environment, "settings": settings, "code": code, "statements": statements}
    found: list[Any] = run(environment, "block", request)
    return found


def engines_of(*cases: tuple[int, str, int]) -> list[Any]:
    """These cases, each where a session of its engine runs already."""
    return [pytest.param(*case, marks=SESSION[case[1]]) for case in cases]


@pytest.mark.parametrize(
    ("number", "environment", "totals"), engines_of((3, "tables", 2), (4, "delta", 1), (5, "iceberg", 1))
)
def test_readme(engine: Engine, number: int, environment: str, totals: int) -> None:
    assert shown(engine, environment, blocks("README.md", "python")[number]) == [TOTAL] * totals


@pytest.mark.parametrize(
    ("number", "environment", "totals"), engines_of((0, "tables", 2), (1, "delta", 1), (2, "iceberg", 2))
)
def test_tables_page(engine: Engine, number: int, environment: str, totals: int) -> None:
    """The SQL of the page works, also as of the existing cut."""
    (status,) = (each for each in engine.tables.status("payments") if each.format == "iceberg")
    sql = blocks("docs/TABLES.md", "sql")[number].replace("cut-12", f"cut-{status.cut}")
    assert shown(engine, environment, sql=sql) == [TOTAL] * totals


def test_every_block_of_sql_is_run(engine: Engine) -> None:
    assert len(blocks("docs/TABLES.md", "sql")) == 3
    assert len(blocks("README.md", "sql")) == 0
