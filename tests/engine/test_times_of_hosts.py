"""A read by time, of records from hosts whose clocks differ (Kafka's `offsetsForTimes`: a record's own time counts)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

import txn_engine
from tests.conftest import S3Bucket
from tests.engine.conftest import SCHEMA, payments
from tests.support.aging import age
from tests.support.internal import FEW_INTERNAL
from txn_engine import TopicPartition
from txn_engine.clock import system_clock
from txn_engine.maintain import MaintenancePolicy
from txn_engine.scan import Scan

HOUR_MS = 3_600_000
P0 = TopicPartition("payments", 0)


def set_up(url: str) -> str:
    with txn_engine.connect(url, configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=SCHEMA, key="account_id")
    return url


@pytest.fixture
def url(tmp_path: Path) -> str:
    return set_up(f"file://{tmp_path}/ledger")


def write(url: str, account: int, off_ms: int = 0, timestamp_ms: int | None = None) -> None:
    """Append one payment from a host whose clock is off by so much."""
    with (
        txn_engine.connect(url, clock=lambda: system_clock() + off_ms) as engine,
        engine.producer() as producer,
    ):
        producer.produce("payments", payments(account), partition=0, timestamp_ms=timestamp_ms).result()


def scanned(url: str, start_ms: int) -> tuple[list[int], Scan]:
    with txn_engine.connect(url) as engine:
        scan = engine.scan("payments", start_timestamp=start_ms)
        return scan.to_table().column("account_id").to_pylist(), scan


def check_that_it_is_said(url: str, told: Callable[[], int]) -> None:
    since_ms = system_clock() - 2_000
    write(url, 1, -HOUR_MS)
    found, scan = scanned(url, since_ms)
    assert (found, list(scan.left_out), told()) == ([], [P0], 1)
    assert abs(scan.left_out[P0] - HOUR_MS) < 60_000
    found, scan = scanned(url, since_ms - scan.left_out[P0] - 60_000)
    assert (found, scan.left_out, told()) == ([1], {}, 1)
    write(url, 2)
    found, scan = scanned(url, since_ms)
    assert (found, list(scan.left_out), told()) == ([2], [P0], 2)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], int]:
    caplog.set_level(logging.WARNING, "txn_engine.scan")
    return lambda: sum(record.name == "txn_engine.scan" for record in caplog.records)


def test_records_of_a_host_behind_are_not_left_out_in_silence(url: str, told: Callable[[], int]) -> None:
    """A scan by time does not read what a host wrote just now whose clock is an hour behind, because the record's own
    time counts. It says so, and by how much, also where records of other hosts follow.
    """
    check_that_it_is_said(url, told)


@pytest.mark.minio
def test_on_a_real_server(
    minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch, told: Callable[[], int]
) -> None:
    """The same against a server, which dates the files."""
    for name, value in minio_bucket.environment.items():
        monkeypatch.setenv(name, value)
    check_that_it_is_said(set_up(f"{minio_bucket.url}/ledger"), told)


def test_nothing_is_said_without_a_reason(url: str, tmp_path: Path, told: Callable[[], int]) -> None:
    """Records that were written before the time that is asked for are left out without a word, also where compaction
    has written them anew.
    """
    for account in range(8):
        write(url, account, -2 * HOUR_MS)
    age(tmp_path / "ledger", 2 * HOUR_MS)
    now_ms = system_clock()
    for _ in range(2):
        found, scan = scanned(url, now_ms - HOUR_MS)
        assert (found, scan.left_out, told()) == ([], {}, 0)
        with txn_engine.connect(url) as engine:
            engine.maintenance.compact("payments", policy=MaintenancePolicy(min_files=2))
    write(url, 10)
    found, scan = scanned(url, now_ms - HOUR_MS)
    assert (found, scan.left_out, told()) == ([10], {}, 0)
