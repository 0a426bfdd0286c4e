"""Objects larger than their kind may be: the engine names them and does not read them, whatever they
contain."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support import damage
from tests.support.refusals import damaged_at
from txn_engine import Engine, connect

JSON, ENTRY, SNAPSHOT = 4 << 20, 16 << 20, 1 << 30
VERIFY_AT_ONCE = 8 << 20


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("oversized") / "ledger"
    damage.build(root)
    return root


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "ledger")
    return tmp_path / "ledger"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes that each read of a file returned."""
    found: list[int] = []
    read = os.read

    def counted(descriptor: int, length: int) -> bytes:
        data = read(descriptor, length)
        found.append(len(data))
        return data

    monkeypatch.setattr("storage.local.os.read", counted)
    return found


def grow(root: Path, pattern: str, size: int) -> str:
    """Make the newest of these files one byte larger than allowed. It is a sparse file, so it takes no
    space."""
    path = max(root.glob(pattern))
    os.truncate(path, size + 1)
    return path.relative_to(root).as_posix()


def produce(engine: Engine) -> None:
    with engine.producer() as producer:
        producer.produce("balances", damage.records(1), partition=0)


def refused(engine: Engine) -> list[str]:
    """The errors for everything that cannot be read."""
    survey, looked = engine.look_at_everything()
    return [str(each.error) for each in (*survey.unreadable, *looked.unreadable)]


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("topics/payments/0.json", JSON),
        ("topics/payments/0/0/log/*.parquet", ENTRY),
        (f"topics/__transaction_state/0/{damage.HURT_HOME}/log/*.parquet", ENTRY),
        (f"topics/__consumer_offsets/0/{damage.HURT_GROUP_HOME}/log/*.parquet", ENTRY),
    ],
)
def test_an_oversized_object_is_named_and_not_read(
    root: Path, reads: list[int], pattern: str, size: int
) -> None:
    """An oversized object stops only its own place, and is not read. `verify` reads it in parts, for its
    checksum."""
    key = grow(root, pattern, size)
    with connect(root.as_uri()) as engine:
        (error,) = refused(engine)
        assert key in error
        assert f"{size + 1} bytes" in error
        assert f"expected at most {size}" in error
        assert max(reads, default=0) < 1 << 20
        assert len(damage.accounts(engine, "balances")) == 14
        reads.clear()
        assert key in {finding.object for finding in engine.admin.verify().findings}
        assert max(reads, default=0) <= VERIFY_AT_ONCE


def test_an_oversized_snapshot_is_passed_over(root: Path, reads: list[int]) -> None:
    key = grow(root, "topics/payments/0/0/snapshots/*.parquet", SNAPSHOT)
    with connect(root.as_uri()) as engine:
        assert refused(engine) == []
        assert max(reads, default=0) < 1 << 20
        reads.clear()
        verified = engine.maintenance.clean("payments")
        assert verified.failures == ()
        assert max(reads, default=0) < 1 << 20
    assert (root / key).stat().st_size == SNAPSHOT + 1


def test_an_oversized_store_object(root: Path, reads: list[int]) -> None:
    grow(root, "store.json", JSON)
    with damaged_at("store.json"):
        connect(root.as_uri())
    assert max(reads, default=0) < 1 << 20


def test_a_lost_race_to_a_giant_is_an_error_about_it(root: Path, reads: list[int]) -> None:
    """If the next slot holds an object larger than any writer can put, the append fails with an error about
    it and does not read it."""
    with connect(root.as_uri()) as engine:
        end = damage.offsets_of(engine, "balances")[0]
        reads.clear()
        giant = root / f"topics/balances/0/0/log/{end:020d}.parquet"
        giant.write_bytes(b"")
        os.truncate(giant, 1 << 40)
        with damaged_at(giant.name):
            produce(engine)
        assert max(reads, default=0) < 1 << 20
