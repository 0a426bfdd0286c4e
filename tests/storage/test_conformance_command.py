"""`storage.conformance`, which users run on their own stores: sound stores pass it, and each of its checks
can fail."""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import (
    AccessDeniedError,
    LocalStore,
    MemoryStore,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStore,
    StoreUnreachableError,
)
from storage.conformance import Probes, checks, conformance
from tests.conftest import S3Bucket
from tests.support.faults import FaultyStore, OverwritingStore, keys_of, raising

FOLDER = "probes/conformance-0"


def failed(store: ObjectStore) -> dict[str, str]:
    """The checks that did not hold, with what was seen. All probes are removed afterwards."""
    probes = Probes(store, FOLDER, pause_s=0)
    found = list(conformance(probes))
    assert [each.name for each in found] == [name for name, _ in checks()]
    assert probes.remove() == 0
    return {each.name: f"{each.seen}; expected {each.expected}" for each in found if not each.held}


def test_a_sound_store_holds_all(tmp_path: Path) -> None:
    """A memory store and a local store pass all checks. No probe stays behind, and the store's own objects
    are not touched."""
    for store in (MemoryStore(), LocalStore(tmp_path / "store")):
        store.put("topics/t/0.json", b"own")
        assert failed(store) == {}
        assert keys_of(store.list("")) == ["topics/t/0.json"]


class LooksFirst(FaultyStore):
    """A store that looks and then writes: correct one call after another, and wrong in a race."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        try:
            self.inner.head(key)
        except ObjectNotFoundError:
            time.sleep(0.001)
            self.inner.put(key, data)
            return True
        return False


class Changed(FaultyStore):
    """A memory store with one fault. `inner` keeps what was put."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.before: dict[str, bytes] = {}
        self.lock = threading.Lock()


class ReadsLate(Changed):
    """A store in which a fresh object is not found at the first look."""

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        with self.lock:
            if "/read/" in key and key not in self.before:
                self.before[key] = b""
                raise ObjectNotFoundError("there is no such object", place=key)
        return super().get(key, max_bytes=max_bytes)


class ReadsOld(Changed):
    """A store in which an overwritten object is read as it was before."""

    def put(self, key: str, data: bytes) -> None:
        if "/over/" in key and key not in self.before:
            self.before[key] = data
        super().put(key, data)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        return self.before.get(key) or super().get(key, max_bytes=max_bytes)


class ListsLate(Changed):
    """A store whose listing lacks the newest object."""

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        found = builtins.list(super().list(prefix, start_after=start_after))
        return iter(found[:-1] if prefix.endswith("/list") else found)


class ListsBackwards(Changed):
    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        found = builtins.list(super().list(prefix, start_after=start_after))
        return reversed(found) if prefix.endswith("/order") else iter(found)


class ListsOnePage(Changed):
    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return iter(builtins.list(super().list(prefix, start_after=start_after))[:1_000])


class KeepsDeleted(Changed):
    """A store in which a deleted object can be read once more."""

    def delete(self, key: str) -> None:
        if "/deleted/" in key:
            self.before[key] = b"x"
        super().delete(key)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        return self.before.pop(key, None) or super().get(key, max_bytes=max_bytes)


class AbsentIsAway(Changed):
    """A store that reports an absent object as a server that does not answer."""

    def head(self, key: str) -> ObjectInfo:
        try:
            return super().head(key)
        except ObjectNotFoundError as error:
            raise StoreUnreachableError("a 404 from a proxy", place=key) from error


class ShortRanges(Changed):
    """A store that shortens a range that goes past the end."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return super().get(key)[start : start + length]


class CutsLargeObjects(Changed):
    def put_if_absent(self, key: str, data: bytes) -> bool:
        return super().put_if_absent(key, data[: 5 << 20])


class ForgetsCase(Changed):
    """A store in which names that differ only in case are the same."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return super().put_if_absent(key.lower() if "/names/" in key else key, data)


class NamesObjectsAsFolders(Changed):
    def list_folders(self, prefix: str) -> builtins.list[str]:
        return [*super().list_folders(prefix), "object"]


@pytest.mark.parametrize(
    ("store", "name"),
    [
        (lambda: OverwritingStore(MemoryStore()), "a fresh key takes the bytes, a taken one keeps them"),
        (lambda: LooksFirst(MemoryStore()), "of 16 writers of a key one wins"),
        (ReadsLate, "a write is read at once"),
        (ListsLate, "a write is listed at once"),
        (ReadsOld, "an overwrite is read at once, and its key stays taken"),
        (KeepsDeleted, "a deleted key is absent, and fresh again"),
        (AbsentIsAway, "what is not there is told from what cannot be asked"),
        (ShortRanges, "ranges are exact"),
        (CutsLargeObjects, "objects of every size in one put"),
        (ForgetsCase, "names and long keys come back"),
        (ListsBackwards, "a folder is listed in order, from any key on"),
        (ListsOnePage, "a listing goes past a page"),
        (NamesObjectsAsFolders, "folders are named"),
    ],
)
def test_each_check_can_fail(store: type[Changed], name: str) -> None:
    """Each check fails on a store with the fault that it looks for, and says what was seen and what was
    expected."""
    found = failed(store())
    assert name in found
    assert "expected " in found[name]
    assert "\n" not in found[name]


def test_every_check_is_among_those_that_fail() -> None:
    """Every check has a faulty store in these tests."""
    (cases,) = (mark.args[1] for mark in test_each_check_can_fail.pytestmark)  # type: ignore[attr-defined]
    assert [name for _, name in cases] == [name for name, _ in checks()]


def test_an_error_is_an_answer_and_the_rest_is_asked() -> None:
    """If a store refuses deletes, the check of a delete fails, all other checks hold, and the probes that
    stay are counted."""
    store = FaultyStore(
        MemoryStore(),
        decide=lambda operation, _key, _number: "before" if operation == "delete" else None,
        error=raising(AccessDeniedError),
    )
    probes = Probes(store, FOLDER, pause_s=0)
    found = {each.name: each for each in conformance(probes)}
    assert [name for name, each in found.items() if not each.held] == [
        "a deleted key is absent, and fresh again"
    ]
    assert "refused: delete" in found["a deleted key is absent, and fresh again"].seen
    assert probes.remove() == len(probes.keys) > 1_000


@pytest.mark.minio
@pytest.mark.shard("engines")  # `make test` has the command on this server: tests/cli/test_s3.py
def test_on_a_real_server(minio_bucket: S3Bucket) -> None:
    """A real server passes all checks, with a client of its own for each racer."""
    from storage import open_store

    keys = {"access_key": minio_bucket.access_key, "secret_key": minio_bucket.secret_key}
    store = open_store(f"{minio_bucket.url}/ledger", endpoint=minio_bucket.endpoint, **keys)
    assert failed(store) == {}
    assert keys_of(store.list("")) == []
