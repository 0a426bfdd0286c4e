"""Compaction runs in this process, or in Spark if a partition is too large for that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.maintain.ledgers import START_MS, new_store
from tests.maintain.tables import ALWAYS, SCHEMA, held, new_table, put, rows, table_of
from tests.support.refusals import refused
from tests.support.stores import assert_sound
from txn_engine import Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.maintain import Compacted, MaintenancePolicy, MaintenanceReport
from txn_engine.maintain.by_size import workers_for
from txn_engine.maintain.in_process import InProcess
from txn_engine.maintain.workers import Workers
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock
from txn_engine.types import EngineChoice

SMALL = "1 records and 128.0 GB for one process"


@pytest.fixture
def engine() -> Engine:
    """Six records of one key and one of another."""
    made = new_table(new_store(), ManualClock(START_MS))
    for number in range(6):
        put(made, ("a", number))
    put(made, ("b", 1))
    return made


class Cluster:
    """A stand-in for Spark that counts how often it is asked for."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked = 0
        self._error = error

    def __call__(self) -> Workers:
        self.asked += 1
        if self._error is not None:
            raise self._error
        return InProcess(ALWAYS)


def compact(
    engine: Engine, choice: EngineChoice, spark: Callable[[], Workers], policy: MaintenancePolicy = ALWAYS
) -> MaintenanceReport[Compacted]:
    return engine.maintenance.compact(policy=policy, workers=workers_for(choice, policy, spark))


@pytest.mark.parametrize(
    ("choice", "policy", "by", "why"),
    [
        ("local", replace(ALWAYS, spark_above_records=0), "local", ""),
        ("auto", ALWAYS, "local", "7 records in {size}: within 1,000,000,000 records and 128.0 GB for one process"),
        ("auto", replace(ALWAYS, spark_above_records=6), "spark", "more than 6 records and 128.0 GB for one process"),
        ("auto", replace(ALWAYS, spark_above_bytes=500), "spark", "more than 1,000,000,000 records and 500 bytes"),
        ("auto", replace(ALWAYS, key_memory_bytes=1, spill_bytes=1), "spark", "expected room for at most 1 bytes"),
        ("spark", ALWAYS, "spark", "Spark was asked for"),
    ],
)  # fmt: skip
def test_who_it_is_and_why(
    engine: Engine, choice: EngineChoice, policy: MaintenancePolicy, by: str, why: str
) -> None:
    """The number of records, the number of bytes and the room on the disk decide which engine compacts, and
    the report says why."""
    cluster = Cluster()
    (done,) = compact(engine, choice, cluster, policy).partitions
    assert done.engine == by
    assert why.replace("{size}", f"{done.bytes / 1000:.1f} kB") in done.why
    assert cluster.asked == (by == "spark")
    assert table_of(held(engine)) == {"a": 5, "b": 1}
    assert_sound(engine)


def test_merges_are_measured_by_what_is_merged(engine: Engine) -> None:
    """A merge is measured by the files that it merges. A large file that stays as it is does not count."""
    engine.admin.create_topic("plain", partitions=1, schema=SCHEMA, key="key")
    log = engine.partition("plain", 0)

    log.append(rows(*((f"key-{n}", n) for n in range(2_000))))
    for number in range(5):
        log.append(rows(("a", number)))
    policy = replace(ALWAYS, spark_above_records=10, target_file_bytes=20_000)
    cluster = Cluster()
    report = engine.maintenance.compact("plain", policy=policy, workers=workers_for("auto", policy, cluster))
    (done,) = report.partitions
    assert (done.engine, done.files, cluster.asked) == ("local", 5, 0)
    assert done.why.startswith("5 records in ")
    report = engine.maintenance.compact("plain", policy=policy, workers=workers_for("auto", policy, cluster))
    assert report.partitions == ()


@pytest.mark.parametrize("choice", ["auto", "spark"])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ModuleNotFoundError("no", name="pyspark"), "the package 'pyspark' is not installed"),
        (InvalidRequestError("Java 11 is too old"), "Java 11 is too old"),
    ],
)
def test_no_spark_where_one_is_needed(
    engine: Engine, choice: EngineChoice, error: Exception, words: str
) -> None:
    """If a partition needs Spark and Spark cannot start, the failure says in one line how large the partition
    is, why Spark is missing and how to get it. Spark is asked for once, and nothing changes."""
    engine.admin.create_topic("other", partitions=2, schema=SCHEMA, key="key", cleanup_policy="compact")
    for partition in range(2):
        for number in range(2):
            engine.partition("other", partition).append(rows(("a", number)))
    cluster = Cluster(error)
    report = compact(engine, choice, cluster, replace(ALWAYS, spark_above_records=1))
    assert report.partitions == ()
    assert cluster.asked == 1
    assert len(report.failures) == 3
    for failure in report.failures:
        assert (failure.code, failure.retry_helps) == ("POLICY_VIOLATION", False)
        assert words in failure.message
        assert "install txn-engine[spark]" in failure.message
        assert "\n" not in failure.message
        if choice == "auto":
            assert f"more than {SMALL}" in failure.message
    assert len(held(engine)) == 7


def test_a_limit_below_nothing_is_refused() -> None:
    for name in ("spark_above_records", "spark_above_bytes"):
        with refused(InvalidRequestError, Reason.BAD_ARGUMENT):
            MaintenancePolicy(**{name: -1})  # type: ignore[arg-type]
