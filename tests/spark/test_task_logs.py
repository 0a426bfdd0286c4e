"""What the log of a failed task says first."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import load
from txn_engine.engine import Engine
from txn_engine.spark import read_topic, write_topic
from txn_engine.spark.errors import SparkJobError
from txn_engine_airflow.spark_tasks import task_spark

pytestmark = [pytest.mark.spark, pytest.mark.shard("spark")]


def fails(batches: Any) -> Any:
    yield from batches
    raise RuntimeError("this task fails")


def copy_in_a_task(engine: Engine) -> None:
    """A task that fails on an executor."""
    with task_spark(engine.url, {}, app_name="a task") as session:
        rows = read_topic(session, engine, "payments").df.drop("_partition", "_offset", "_timestamp")
        write_topic(rows.mapInArrow(fails, rows.schema), engine, "copies", transactional_id="copy")


def test_the_sentence_comes_before_the_traceback(
    spark: SparkSession, copies: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """The error that a failed job raises has Java's stack as its cause, and a traceback shows the cause first. So the
    task logs the error's one line before it raises the error.
    """
    load(copies, 0, 10)
    caplog.set_level(logging.ERROR, "txn_engine_airflow.spark_tasks")
    with pytest.raises(SparkJobError) as failed:
        copy_in_a_task(copies)
    assert "\n" not in str(failed.value)
    assert failed.value.__cause__ is not None
    assert [record.getMessage() for record in caplog.records] == [str(failed.value)]
