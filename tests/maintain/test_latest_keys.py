"""The latest record of each key is found as a dictionary finds it, with any amount of memory, and a full disk
is an error."""

from __future__ import annotations

import errno
import random
import resource
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from tests.support.refusals import refused
from txn_engine.errors import SpillFullError
from txn_engine.maintain import latest_keys
from txn_engine.maintain.key_hash import BUCKETS, buckets_of
from txn_engine.maintain.latest_keys import LatestKeys
from txn_engine.reasons import Reason

KINDS = [pa.int64(), pa.int32(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]


def latest(
    keys: list[Any], kind: pa.DataType, *, memory: int, draw: random.Random, spill: int = 1 << 20
) -> tuple[list[int], int]:
    """The positions of the latest records, when keys come in parts of any size, and how many bytes went to
    the disk."""
    made = LatestKeys(kind, len(keys), memory_bytes=memory, spill_bytes=spill, what="a test")
    with made:
        at = 0
        while at < len(keys):
            size = draw.randint(1, 40)
            parts = [keys[at : at + size // 2], keys[at + size // 2 : at + size]]
            made.add(pa.chunked_array([pa.array(part, kind) for part in parts], kind))
            at += size
        bits = made.latest()
        return np.nonzero(np.unpackbits(bits))[0].tolist(), made.spilled_bytes


def drawn(kind: pa.DataType, draw: random.Random, count: int) -> list[Any]:
    """Keys many of which repeat: short, long, empty, and alike at their beginning and at their end."""
    if pa.types.is_integer(kind):
        return [draw.choice((draw.randint(-9, 9), -(2**31), 2**31 - 1)) for _ in range(count)]
    texts = ["", "a", "a\0", "\0", "ä" * 9, "x" * 600, "x" * 600 + "y", "12345678", "123456789"]
    chosen = [draw.choice([*texts, f"key-{draw.randint(0, 30)}-tail"]) for _ in range(count)]
    return (
        chosen if pa.types.is_string(kind) or pa.types.is_large_string(kind) else [c.encode() for c in chosen]
    )


@pytest.mark.parametrize("memory", [1, 3_000, 1 << 24])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_against_a_dictionary(kind: pa.DataType, memory: int) -> None:
    """The last record of each key is found, whether all keys are in memory, or all go to the disk and come back in
    parts.
    """
    draw = random.Random(f"{kind} {memory}")
    for count in (1, 7, 8, 9, 700):
        keys = drawn(kind, draw, count)
        found, spilled = latest(keys, kind, memory=memory, draw=draw)
        assert found == sorted({key: at for at, key in enumerate(keys)}.values())
        if count == 700:
            assert (spilled > 0) == (memory < 1 << 24)


@pytest.mark.parametrize("memory", [1, 1 << 24])
def test_keys_that_share_a_bucket_are_different_keys(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Different keys whose hashes are equal stay different: the result is the same if all of them collide."""
    monkeypatch.setattr(latest_keys, "buckets_of", lambda keys: np.zeros(len(keys), np.uint8))
    draw = random.Random(5)
    keys = drawn(pa.string(), draw, 500)
    found, _ = latest(keys, pa.string(), memory=memory, draw=draw)
    assert found == sorted({key: at for at, key in enumerate(keys)}.values())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_keys_are_spread(kind: pa.DataType) -> None:
    """Equal keys fall into one bucket wherever they are in an array, and no bucket gets more than twice its
    share."""
    numbers = range(0, 1_000 * BUCKETS, 4)
    values = (
        numbers if pa.types.is_integer(kind) else [f"account-{number:09}-of-the-bank" for number in numbers]
    )
    keys = pa.array(values, pa.int64() if pa.types.is_integer(kind) else pa.string()).cast(kind)
    buckets = buckets_of(keys)
    assert np.bincount(buckets, minlength=BUCKETS).max() < 2 * len(keys) / BUCKETS
    assert np.array_equal(buckets_of(keys[777:]), buckets[777:])


def test_none_at_all() -> None:
    """Without any keys there are no positions."""
    assert latest([], pa.int64(), memory=1, draw=random.Random(1)) == ([], 0)


# --- the disk -----------------------------------------------------------------------------------------------


def test_more_than_it_may_take() -> None:
    """If the keys need more than `spill_bytes`, the error says in one line where the room ran out and what
    helps, and no file stays."""
    before = sorted(Path(tempfile.gettempdir()).iterdir())
    with pytest.raises(SpillFullError) as raised:
        latest(list(range(10_000)), pa.int64(), memory=800, draw=random.Random(2), spill=1_000)
    said = str(raised.value)
    assert "a test: " in said
    assert "room for at most 1000 bytes" in said
    assert tempfile.gettempdir() in said
    assert "--engine spark" in said
    assert sorted(Path(tempfile.gettempdir()).iterdir()) == before


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_disk_with_less_room_than_all_keys_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk has less room than all keys need, the error is raised when the first keys are put aside."""
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: _Usage(9_000, 8_000, 1_000))
    with refused(SpillFullError, Reason.DISK_FULL):
        latest(list(range(10_000)), pa.int64(), memory=800, draw=random.Random(3))


def test_a_disk_that_is_full_on_the_way() -> None:
    """A write that the system refuses is the same error. A limit on the file's size takes the place of a full
    disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
    try:
        with refused(SpillFullError, Reason.DISK_FULL) as full:
            latest(list(range(10_000)), pa.int64(), memory=800, draw=random.Random(4))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert isinstance(full.value.__cause__, OSError)
    assert full.value.__cause__.errno == errno.EFBIG


def test_a_folder_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If TMPDIR names a folder that no longer exists, the error is the same."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with refused(SpillFullError, Reason.FOLDER_UNUSABLE):
        latest(list(range(100)), pa.int64(), memory=1, draw=random.Random(6))


def test_nothing_is_left_of_what_was_put_aside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keys that are put aside are in no named file, even during the work, so a killed process leaves
    nothing."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = LatestKeys(pa.int64(), 1_000, memory_bytes=1, spill_bytes=1 << 20, what="a test")
    with made:
        made.add(pa.chunked_array([pa.array(range(500)), pa.array(range(500))]))
        assert made.spilled_bytes > 0
        assert list(tmp_path.iterdir()) == []
        assert np.unpackbits(made.latest()).tolist() == [0] * 500 + [1] * 500
