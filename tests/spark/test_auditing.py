"""`verify` on Spark gives the report of one machine, whatever is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import txn_engine
from tests.spark.conftest import SCHEMA, Command, load
from tests.suite.tiers import in_shard
from txn_engine.engine import Engine
from txn_engine.errors import UnknownTopicOrPartitionError
from txn_engine.spark import audit_store
from txn_engine.verify import VerifyReport, verify_store

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    """Three partitions with two loads, an aborted one between them, and snapshots."""
    with txn_engine.connect(f"file://{tmp_path}/store") as engine:
        engine.admin.create_topic("payments", partitions=3, schema=SCHEMA, key="account_id")
        for first, commit in ((1, True), (101, False), (201, True)):
            load(engine, first, 100, commit=commit)
        engine.admin.snapshot()
        yield engine


def _as_told(report: VerifyReport) -> tuple[object, ...]:
    return report.findings, replace(report.stats, seconds=0)


@pytest.mark.parametrize(
    "damage", in_shard("spark", ["nothing", "byte", "entry", "marker", "snapshot"], keep=["entry"])
)
def test_the_report_is_that_of_one_machine(spark: SparkSession, store: Engine, damage: str) -> None:
    """An audit on Spark has the findings, the figures and the results by partition of an audit on one
    machine."""
    partition = Path(store.store.uri("topics/payments/0/1"))
    entries = sorted((partition / "log").iterdir())
    if damage == "byte":
        path = min((partition / "data").iterdir())
        path.write_bytes(path.read_bytes()[:-1])
    elif damage == "entry":
        entries[0].unlink()
    elif damage == "marker":
        entries[-1].unlink()
    elif damage == "snapshot":
        path = min((partition / "snapshots").iterdir())
        path.write_bytes(path.read_bytes()[::-1])
    here = verify_store(store.store, now_ms=0)
    there = audit_store(spark, store, now_ms=0)
    assert _as_told(there) == _as_told(here)
    assert there.ok == (damage == "nothing")
    told: list[str] = []
    part = audit_store(
        spark, store, topics=["payments"], check_data=False, progress=lambda *seen: told.append(str(seen))
    )
    assert _as_told(part) == _as_told(verify_store(store.store, topics=["payments"], check_data=False))
    assert any("partitions" in each for each in told)


def test_an_unknown_topic(spark: SparkSession, store: Engine) -> None:
    """An unknown topic is the same error as on one machine."""
    with pytest.raises(UnknownTopicOrPartitionError):
        audit_store(spark, store, topics=["nothing"])


def test_the_command(store: Engine, command: Command) -> None:
    """The session ends with the command, and the exit code says whether there is a finding."""
    done = command(store, "verify", "--engine", "spark", "--spark-conf", "spark.master=local[1]", "--json")
    assert done.code == 0, done.stderr
    assert done.json["stats"]["records"] == 300
    assert SparkContext._active_spark_context is None
    min(Path(store.store.uri("topics/payments/0/1/data")).iterdir()).unlink()
    damaged = command(store, "verify", "--engine", "spark", "--spark-conf", "spark.master=local[1]")
    assert damaged.code == 1
    assert "data-file-missing" in damaged.stdout


def test_what_does_not_go_with_spark(store: Engine, command: Command, tmp_path: Path) -> None:
    """The options `--state` and `--processes` are usage errors with Spark."""
    for option in (["--state", str(tmp_path / "kept")], ["--processes", "2"]):
        answer = command(store, "verify", "--engine", "spark", *option)
        assert answer.code == 2
        assert "not with --state, --processes" in answer.stderr
