"""The example of a test of Spark in CONTRIBUTING.md passes."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.docs.test_code_blocks import blocks
from tests.spark.conftest import load
from tests.spark.test_source import read
from txn_engine import Engine

pytestmark = pytest.mark.spark


def test_the_example(spark: SparkSession, ledger: Engine) -> None:
    """The test that the page shows passes."""
    names: dict[str, Any] = {"load": load, "read": read, "pytest": pytest}
    code = blocks("CONTRIBUTING.md", "python")[1]
    exec(compile("from __future__ import annotations\n" + code, "CONTRIBUTING.md", "exec"), names)
    names["test_of_spark"](spark, ledger)
