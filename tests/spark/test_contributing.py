"""The example of a test of Spark in CONTRIBUTING.md passes."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.docs.test_code_blocks import examples_of_contributing
from tests.spark.conftest import load
from tests.spark.test_source import read
from txn_engine import Engine

pytestmark = pytest.mark.spark


def test_the_example(spark: SparkSession, ledger: Engine) -> None:
    """The test that the page shows passes."""
    names = examples_of_contributing(1, {"load": load, "read": read, "pytest": pytest})
    names["test_of_spark"](spark, ledger)
