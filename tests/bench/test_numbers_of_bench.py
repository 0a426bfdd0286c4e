"""`txn-engine bench` measures every number next to a bare limit that puts the same objects. Speed is not tested."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from storage import LARGE, SMALL, LocalStore, ParquetProfile, encode_parquet
from tests.conftest import S3Bucket
from tests.support.servers import REPOSITORY
from txn_engine import connect
from txn_engine.bench import run_bench, scans, writes
from txn_engine.bench.bare import BareObject, BareWriter
from txn_engine.bench.measure import Measured
from txn_engine.bench.payments import SCHEMA, payments
from txn_engine.bench.scans import ScanSizes, scan_numbers
from txn_engine.bench.transactions import PARTITIONS, Ours, batches
from txn_engine.bench.watched import watching
from txn_engine.bench.writes import WriteSizes, write_numbers
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason

WRITES = WriteSizes(appends=2, transactions=2, blocks=1, block=2, large=1, flat=120)

NAMES = [
    "append of 100 rows",
    "transaction to visible",
    "transactions back to back",
    "processor time, transaction",
    "batches of 100,000 rows",
    "append no. 120",
    "scan by PyArrow, 0.02 M",
    "consumer.poll, 0.012 M",
]


def silent(_what: str, _done: int, _total: int) -> None:
    """Report no progress."""


def measure(url: str) -> list[Measured]:
    with connect(url) as engine:
        numbers = list(write_numbers(engine, "w", sizes=WRITES, progress=silent))
        return numbers + list(
            scan_numbers(engine, "s", sizes=ScanSizes(20_000, 1), spark=False, progress=silent)
        )


def expect(numbers: list[Measured]) -> None:
    assert [number.name for number in numbers] == NAMES
    assert all(number.ours > 0 and number.bare > 0 and number.ratio > 0 for number in numbers)
    assert all(number.aim and number.note and number.rounds for number in numbers)


def test_on_a_local_store(tmp_path: Path) -> None:
    """Every number of the table is measured with a few rows, and its note says what the bare limit did."""
    numbers = measure(f"file://{tmp_path}/ledger")
    expect(numbers)
    assert "bare: 15 objects of the same columns in four rounds" in numbers[1].note


@pytest.mark.minio
@pytest.mark.slow
@pytest.mark.shard("machine")
def test_on_minio(minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """On S3 the numbers are the same and have their own aims."""
    for name, value in minio_bucket.environment.items():
        monkeypatch.setenv(name, value)
    numbers = measure(f"s3://{minio_bucket.name}/bench-{uuid.uuid4().hex}")
    expect(numbers)
    assert (numbers[0].aim, numbers[1].aim) == ("at most 1.1", "at most 1.15")


@pytest.mark.spark
@pytest.mark.minio
@pytest.mark.slow
@pytest.mark.shard("machine")
def test_the_whole_command_on_minio(minio_bucket: S3Bucket) -> None:
    """The command works as it is typed, with Spark's scan, on a store whose endpoint only the command line
    names."""
    environment = os.environ | minio_bucket.environment
    environment.setdefault("TXN_ENGINE_CACHE", str(REPOSITORY / ".cache"))
    endpoint = environment.pop("TXN_ENGINE_S3_ENDPOINT")
    url = f"s3://{minio_bucket.name}/bench-{uuid.uuid4().hex}"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "txn_engine",
            "bench",
            "--quick",
            "--json",
            "--url",
            url,
            "--endpoint",
            endpoint,
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    numbers = json.loads(done.stdout)["numbers"]
    assert [number["name"] for number in numbers][-2:] == ["consumer.poll, 0.3 M", "scan by Spark, 0.5 M"]
    for number in numbers:  # each is told as soon as it is known
        assert f"{number['name']}: " in done.stderr


def test_the_command_on_a_temporary_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a store to measure on, the bench makes one in a folder that it removes, and prints a table with notes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(writes, "QUICK", WRITES)
    monkeypatch.setattr(scans, "QUICK", ScanSizes(20_000, 1))
    console = Console(file=io.StringIO(), width=120)
    assert run_bench(url=None, json_output=False, console=console, quick=True, spark=False) == 0
    assert list(tmp_path.iterdir()) == []
    assert isinstance(console.file, io.StringIO)
    printed, as_measured = console.file.getvalue(), capsys.readouterr().err
    for name in NAMES:
        assert name in printed
        assert f"{name}: " in as_measured


def test_a_store_in_memory_is_refused() -> None:
    """Other engines could not reach it to measure the bare limit."""
    with pytest.raises(InvalidRequestError) as refused:
        run_bench(url="memory://x", json_output=True, console=Console(), quick=True, spark=False)
    assert refused.value.reason is Reason.STORE_IN_MEMORY


@pytest.mark.parametrize("profile", [SMALL, LARGE])
def test_a_bare_object_is_the_same_information(profile: ParquetProfile) -> None:
    """A bare object has the columns, values, metadata and compression of the engine's object that it copies."""
    made = encode_parquet(payments(1_000), kind="data", profile=profile)
    before, after = (pq.ParquetFile(pa.BufferReader(data)) for data in (made, BareObject.of(made).encode()))
    assert after.read().equals(before.read())
    assert after.schema.equals(before.schema)
    assert after.metadata.metadata == before.metadata.metadata
    of = [file.metadata.row_group(0).column(0) for file in (before, after)]
    assert of[0].compression == of[1].compression
    assert of[0].is_stats_set == of[1].is_stats_set
    assert of[0].encodings == of[1].encodings


def test_the_bare_limit_puts_a_transactions_objects(tmp_path: Path) -> None:
    """The bare limit puts as many objects as a transaction needs, even if the engine has put more."""
    store = watching(LocalStore(tmp_path / "ledger"))
    with Engine(store) as engine, engine.producer(transactional_id="id") as producer:
        engine.admin.create_topic("t", partitions=PARTITIONS, schema=SCHEMA, key="account_id")
        producer.init_transactions()
        ours = Ours(store, producer, "t", batches())
        ours.timed()
        (seconds,) = ours.seconds()
        assert 0 < seconds.visible <= seconds.complete
        assert ours.objects() >= 3 + 3 * PARTITIONS
        remade = ours.bare()
    assert remade.objects == 3 + 3 * PARTITIONS
    writer = BareWriter(LocalStore(tmp_path / "bare"), "bare")
    for _ in range(2):
        writer.transact(remade)
    writer.rest()
    keys = [info.key for info in LocalStore(tmp_path / "bare").list("bare")]
    assert len(keys) == 2 * remade.objects
