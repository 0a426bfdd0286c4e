"""One store, and one Spark session, for the whole table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support import jvm
from tests.types.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One store for the whole table."""
    made = World(tmp_path_factory.mktemp("types"))
    yield made
    made.close()


@pytest.fixture(scope="package", autouse=True)
def spark_ends_with_its_tests() -> Iterator[None]:
    """End the session that the modules of this package share."""
    yield
    jvm.end_session()


@pytest.fixture
def spark(spark_jvm: None) -> SparkSession:
    """The session of this package."""
    from txn_engine.spark import spark_session

    return spark_session("file:///", master="local[2,3]")
