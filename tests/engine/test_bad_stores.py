"""Stores that are damaged, foreign, or not what the protocol needs: the engine says so in one readable line
and makes nothing worse."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import txn_engine
from storage import (
    MemoryStore,
    PutIfAbsentUnsupportedError,
    decode_json,
    decode_parquet,
    encode_json,
    encode_parquet,
)
from tests.conftest import S3Bucket
from tests.engine.conftest import SCHEMA, payments
from tests.support.faults import OverwritingStore
from tests.support.refusals import damaged_at, refused
from tests.support.stores import accounts_in
from txn_engine import Engine
from txn_engine.cli.main import cli
from txn_engine.errors import (
    CorruptObjectError,
    InvalidRequestError,
    StoreAccessError,
    StoreUnavailableError,
    TxnEngineError,
    UnsupportedFormatError,
)
from txn_engine.log.snapshot_format import decode_snapshot
from txn_engine.reasons import Reason


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A local store with three transactions, snapshots of them, and a fourth transaction after the
    snapshots."""
    with txn_engine.connect(f"file://{tmp_path}/ledger") as engine:
        engine.admin.create_topic("payments", partitions=1, schema=SCHEMA, key="account_id")
        with engine.producer(transactional_id="load") as producer:
            producer.init_transactions()
            for turn in range(4):
                with producer.transaction():
                    producer.produce("payments", payments(turn, turn + 10))
                if turn == 2:
                    engine.admin.snapshot()
    return tmp_path / "ledger"


def change_one_byte(path: Path) -> None:
    """Flip one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.chmod(path.stat().st_mode | stat.S_IWUSR)
    path.write_bytes(bytes(content))


def first(ledger: Path, pattern: str) -> Path:
    return min(ledger.glob(f"topics/payments/0/0/{pattern}"))


def last(ledger: Path, pattern: str) -> Path:
    return max(ledger.glob(f"topics/payments/0/0/{pattern}"))


@pytest.mark.parametrize(
    ("which", "pattern"), [(last, "log/*"), (first, "data/*")], ids=["entry", "data file"]
)
def test_a_damaged_object_is_named(ledger: Path, which: Callable[[Path, str], Path], pattern: str) -> None:
    """If one byte of an entry or a data file has changed, reading names the object, and appending leaves the
    log as it is."""
    victim = which(ledger, pattern)
    change_one_byte(victim)
    with txn_engine.connect(f"file://{ledger}") as engine:
        with damaged_at(victim.name) as caught:
            engine.scan("payments").to_table()
        assert "\n" not in str(caught.value)
        findings = engine.admin.verify().findings
        assert any(victim.name in finding.object for finding in findings)
    assert len(list(ledger.glob("topics/payments/0/0/log/*"))) == 8


def test_a_damaged_snapshot_is_passed_over(ledger: Path) -> None:
    """A reader falls back from a damaged snapshot and loses nothing. The audit names the snapshot, and nobody
    deletes it."""
    victim = first(ledger, "snapshots/*")
    change_one_byte(victim)
    with txn_engine.connect(f"file://{ledger}") as engine:
        assert accounts_in(engine) == [0, 1, 2, 3, 10, 11, 12, 13]
        assert any(victim.name in finding.object for finding in engine.admin.verify().findings)
    assert victim.exists()


def test_a_missing_data_file_is_named(ledger: Path) -> None:
    """A committed file that is gone is an error that names it, never a shorter answer."""
    victim = first(ledger, "data/*")
    victim.unlink()
    with (
        txn_engine.connect(f"file://{ledger}") as engine,
        damaged_at(victim.name),
    ):
        engine.scan("payments").to_table()


def test_a_store_without_put_if_absent_is_refused() -> None:
    """A store that overwrites is refused before anything is set up there."""
    inner = MemoryStore("overwriting")
    with pytest.raises(StoreAccessError) as refusal:
        Engine(OverwritingStore(inner))
    assert isinstance(refusal.value.__cause__, PutIfAbsentUnsupportedError)
    assert [info.key for info in inner.list("") if not info.key.startswith("probes/")] == []


def test_a_reader_needs_no_right_to_write(ledger: Path) -> None:
    """A reader without the right to write can read a store that is set up."""
    for path in sorted(ledger.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    ledger.chmod(0o555)
    before = sorted(path.name for path in ledger.rglob("*"))
    try:
        with txn_engine.connect(f"file://{ledger}") as engine:
            assert len(accounts_in(engine)) == 8
            assert engine.admin.verify().ok
    finally:
        for path in [ledger, *ledger.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert sorted(path.name for path in ledger.rglob("*")) == before


def test_topics_without_a_store_json(ledger: Path) -> None:
    """A store whose store.json is gone is not set up a second time."""
    (ledger / "store.json").unlink()
    with refused(InvalidRequestError, Reason.STORE_JSON_GONE):
        txn_engine.connect(f"file://{ledger}")
    assert not (ledger / "store.json").exists()


@pytest.mark.parametrize("field", ["store_id", "put_if_absent_proof", "limits", "internal_partitions"])
def test_a_store_json_that_lacks_something(ledger: Path, field: str) -> None:
    """A store.json with a correct checksum but without a field that the protocol needs is damage. The error
    names the field."""
    rewrite_json(ledger / "store.json", "store", lambda values: values.pop(field))
    with refused(CorruptObjectError, Reason.MISSING_FIELD) as caught:
        txn_engine.connect(f"file://{ledger}")
    assert caught.value.place == "store.json"
    assert field in caught.value.seen


def rewrite_json(path: Path, kind: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the fields of a JSON object; its checksum is right again."""
    values = decode_json(path.read_bytes(), key=path.name, kind=kind)
    change(values)
    path.chmod(0o644)
    path.write_bytes(encode_json(values, kind))


@pytest.mark.parametrize(
    ("part", "field"),
    [("limits", "max_transaction_timeout_ms"), ("internal_partitions", "__consumer_offsets")],
)
def test_a_store_json_that_lacks_a_part(ledger: Path, part: str, field: str) -> None:
    """No default takes the place of a missing limit or partition count, because two versions would then keep
    the same store by different rules."""
    rewrite_json(ledger / "store.json", "store", lambda values: values[part].pop(field))
    with refused(CorruptObjectError, Reason.MISSING_FIELD) as caught:
        txn_engine.connect(f"file://{ledger}")
    assert caught.value.place == "store.json"
    assert field in caught.value.seen


@pytest.mark.parametrize("field", ["cleanup_policy", "min_compaction_lag_ms", "key", "arrow_schema"])
def test_a_topic_that_lacks_something(ledger: Path, field: str) -> None:
    """The error names the object and the missing field. The auditor names the object too."""
    rewrite_json(ledger / "topics/payments/0.json", "topic", lambda values: values.pop(field))
    with txn_engine.connect(f"file://{ledger}") as engine:
        with refused(CorruptObjectError, Reason.MISSING_FIELD) as caught:
            engine.scan("payments")
        assert caught.value.place == "topics/payments/0.json"
        assert field in caught.value.seen
        findings = [str(finding) for finding in engine.admin.verify().findings]
        assert any("topics/payments/0.json" in found and f"no {field}" in found for found in findings)


def test_a_topic_whose_schema_cannot_be_read(ledger: Path) -> None:
    """The damage is reported at the topic's object."""
    broken = {"arrow_schema": "AAAA"}
    rewrite_json(ledger / "topics/payments/0.json", "topic", lambda values: values.update(broken))
    with (
        txn_engine.connect(f"file://{ledger}") as engine,
        damaged_at("topics/payments/0.json"),
    ):
        engine.scan("payments")


def test_a_growth_that_lacks_its_number(ledger: Path) -> None:
    """A growth of a topic that lacks its number of partitions is damage, and the error names its object."""
    with txn_engine.connect(f"file://{ledger}") as engine:
        engine.admin.add_partitions_to_topic("payments", 2)
    (path,) = ledger.glob("topics/payments/0/partitions/*.json")
    rewrite_json(path, "partitions", lambda values: values.pop("partitions"))
    with (
        txn_engine.connect(f"file://{ledger}") as engine,
        damaged_at(path.name),
    ):
        engine.scan("payments")


def test_a_snapshot_that_lacks_a_number(ledger: Path) -> None:
    """A snapshot that lacks a number is damage: the auditor names it and readers use another one."""
    victim = last(ledger, "snapshots/*")
    table, _ = decode_parquet(victim.read_bytes(), key=victim.name, kind="snapshot")
    rows = table.to_pylist()
    header = json.loads(rows[0]["fields"])
    del header["tombstones_to"]
    rows[0]["fields"] = json.dumps(header)
    victim.chmod(0o644)
    victim.write_bytes(encode_parquet(pa.Table.from_pylist(rows, table.schema), kind="snapshot"))
    with damaged_at(victim.name):
        decode_snapshot(victim.read_bytes(), key=victim.name)
    with txn_engine.connect(f"file://{ledger}") as engine:
        assert accounts_in(engine) == [0, 1, 2, 3, 10, 11, 12, 13]
        assert any(victim.name in finding.object for finding in engine.admin.verify().findings)


@pytest.mark.parametrize("written", ["1", "3"])
def test_a_store_of_another_version(ledger: Path, written: str) -> None:
    """A store of another format version is refused in one line when it is opened, whether the store or the
    code is newer."""
    path = ledger / "store.json"
    fields = decode_json(path.read_bytes(), key="store.json", kind="store")
    path.chmod(0o644)
    path.write_bytes(encode_json(fields, "store", written_format=written))
    with pytest.raises(UnsupportedFormatError) as caught:
        txn_engine.connect(f"file://{ledger}")
    assert str(caught.value).startswith(
        f"format '{written}' (at store.json); expected format '2'; open the store with"
    )
    assert "\n" not in str(caught.value)
    said = CliRunner().invoke(cli, ["verify", "--url", f"file://{ledger}"])
    assert said.exit_code == 1
    assert len(said.stderr.splitlines()) == 1
    assert f"format '{written}' (at store.json); expected format '2'" in said.stderr


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    """If the store's path is a file, or its parent folder does not exist, the error is one readable line."""
    (tmp_path / "file").write_text("not a folder")
    for place in ("file", "nowhere/at/all"):
        with pytest.raises(TxnEngineError) as caught:
            txn_engine.connect(f"file://{tmp_path}/{place}")
        assert "\n" not in str(caught.value)


def test_no_store_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting without a URL and without TXN_ENGINE_URL is refused, and so is a URL with an unknown
    scheme."""
    monkeypatch.delenv("TXN_ENGINE_URL", raising=False)
    with pytest.raises(InvalidRequestError):
        txn_engine.connect()
    with pytest.raises(InvalidRequestError):
        txn_engine.connect("hdfs://somewhere/else")


@pytest.mark.parametrize("url", ["ftp://x", "file://relative", "s3://", "memory://a/b"])
def test_what_is_no_url_of_a_store(url: str) -> None:
    """A URL that names no store is an invalid request, not a lack of rights."""
    with pytest.raises(InvalidRequestError):
        txn_engine.connect(url)


def test_an_unreachable_store() -> None:
    """If nothing listens at the endpoint, the error is StoreUnavailableError."""
    with pytest.raises(StoreUnavailableError):
        txn_engine.connect(
            "s3://bucket/prefix",
            endpoint="http://127.0.0.1:1",
            access_key="a",
            secret_key="b",
            region="us-east-1",
        )


@pytest.mark.minio
def test_the_same_on_minio(minio_bucket: S3Bucket) -> None:
    """Transactions work on a real MinIO. A missing bucket and wrong credentials are access errors of one line
    each, without the secret."""
    how = {"endpoint": minio_bucket.endpoint, "region": "us-east-1"}
    keys = {"access_key": minio_bucket.access_key, "secret_key": minio_bucket.secret_key}
    with txn_engine.connect(f"{minio_bucket.url}/ledger", **how, **keys) as engine:
        engine.admin.create_topic("payments", partitions=4, schema=SCHEMA, key="account_id")
        producer = engine.producer(transactional_id="load")
        producer.init_transactions()
        for turn in range(3):
            with producer.transaction():
                producer.produce("payments", payments(*range(turn * 20, turn * 20 + 20)))
        producer.begin_transaction()
        producer.produce("payments", payments(999)).result()
        producer.abort_transaction()
        assert accounts_in(engine) == list(range(60))
        engine.admin.snapshot()
        assert engine.admin.verify().ok
    with pytest.raises(StoreAccessError):
        txn_engine.connect("s3://no-such-bucket-here", **how, **keys)
    wrong = os.urandom(8).hex()
    with pytest.raises(StoreAccessError) as caught:
        txn_engine.connect(minio_bucket.url, **how, access_key=minio_bucket.access_key, secret_key=wrong)
    assert wrong not in str(caught.value)
    assert "\n" not in str(caught.value)
