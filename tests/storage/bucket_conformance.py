"""What every store in a bucket must do as well. A subclass gives the raw access and a neighbour."""

from __future__ import annotations

import faulthandler
import hashlib
import io
import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from minio import Minio

from storage import BucketStore, ObjectNotFoundError, ObjectStore, OversizedObjectError, settle_put_if_absent
from tests.storage.conformance import StoreConformance, StoreCore, run_race_in_processes
from tests.support.faults import keys_of
from tests.support.waiting import LIMIT_S


class BucketCore(StoreCore):
    """The basic behaviour of a store in a bucket. The fixture `store` is at the prefix `pre/fix` of an empty
    bucket."""

    def neighbour(self, prefix: str) -> ObjectStore:
        """A store at another prefix of the same bucket."""
        raise NotImplementedError

    def test_a_prefix_is_a_wall(self, store: ObjectStore) -> None:
        """Two prefixes of one bucket are two stores, and a prefix that only begins alike is a third."""
        store.put("a", b"x")
        neighbours = [self.neighbour(prefix) for prefix in ("pre/fi", "pre/fix2", "pre", "")]
        assert [keys_of(other.list("")) for other in neighbours] == [[], [], ["fix/a"], ["pre/fix/a"]]
        assert [other.uri("a") for other in neighbours[2:]] == [
            store.uri("a").replace("/pre/fix/", "/pre/"),
            store.uri("a").replace("/pre/fix/", "/"),
        ]

    def test_a_pickle_opens_the_same(self, store: ObjectStore) -> None:
        """A pickled store opens the same store, with the settings that were given by keyword. No `repr` shows
        them. The same holds for the store that executors get."""
        assert isinstance(store, BucketStore)
        store.put("a", b"x")
        for sent in (store, store.with_credentials_of_now()):
            assert pickle.loads(pickle.dumps(sent)).get("a") == b"x"
            shown = repr(sent) + repr(sent.config) + sent.described() + str(sent.credentials_found())
            secrets = [sent.access()[each.keyword] for each in sent.backend.settings if each.secret]
            assert [secret for secret in secrets if secret and secret in shown] == []

    def test_the_doctor_finds_the_bucket(self, store: ObjectStore) -> None:
        """The doctor finds that the bucket answers and exists, and that nothing in it makes the store
        unusable."""
        assert isinstance(store, BucketStore)
        found = list(store.inspected())
        assert [each.name for each in found[:2]] == ["reachable", "bucket"]
        assert {each.status for each in found} <= {"ok", "warning"}


class BucketConformance(BucketCore, StoreConformance):
    """All that a store in a bucket must do."""

    def run_race(self, store: ObjectStore, writers: int) -> list[tuple[list[int], list[bytes]]]:
        return run_race_in_processes(store, writers)

    def test_a_large_object_is_not_held_in_memory(
        self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A large object is read into a file without a name. A small one is read into memory, and so is a
        large one if there is no room for files."""
        assert isinstance(store, BucketStore)
        large = os.urandom(1 << 20) * 96
        store.put("large", large)
        store.put("small", b"small")
        digest = hashlib.sha256(large).digest()
        del large
        store.get_range("large", 0, 1)  # the client is there by now
        before = held_bytes()
        view = store.spool("large", max_bytes=96 << 20)
        assert held_bytes() - before < 48 << 20
        assert hashlib.sha256(view).digest() == digest
        assert view.readonly
        assert bytes(store.spool("small", max_bytes=5)) == b"small"
        with pytest.raises(OversizedObjectError):
            store.spool("large", max_bytes=(96 << 20) - 1)
        with pytest.raises(ObjectNotFoundError):
            store.spool("absent", max_bytes=1)
        monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
        assert hashlib.sha256(store.spool("large", max_bytes=96 << 20)).digest() == digest

    def test_a_fork_gets_clients_of_its_own(self, store: ObjectStore) -> None:
        """A child forked after the parent used the store can use it too, instead of waiting for ever."""
        store.put("parent", b"x")

        def child() -> bytes:
            won = settle_put_if_absent(store, "child", b"made by the child").won
            lost = not store.put_if_absent("parent", b"y")
            try:
                store.get("nothing")
            except ObjectNotFoundError:
                return b"%d %d %s" % (won, lost, store.get("parent"))
            return b"absent object found"

        assert in_forked_child(child) == b"1 1 x"
        assert store.get("child") == b"made by the child"

    def test_a_fork_of_a_fork(self, store: ObjectStore) -> None:
        """The child of a forked child can use the store too (Airflow forks twice)."""
        store.put("a", b"x")
        assert (
            in_forked_child(
                lambda: store.get("a") + in_forked_child(lambda: store.get("a") + b"2", timeout_s=LIMIT_S)
            )
            == b"xx2"
        )


def held_bytes() -> int:
    """The anonymous memory of this process: memory that does not belong to a file."""
    (line,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")
    )
    return int(line.split()[1]) * 1024


def in_forked_child(work: Callable[[], bytes], timeout_s: float = 2 * LIMIT_S) -> bytes:
    """Fork, call, and return what the child wrote. A child that does not answer prints where it waits, and ends."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(
                signal.SIGALRM, signal.SIG_DFL
            )  # a handler in Python does not run where C code waits
            # No thread's watch: a watch that the parent had at the fork is waited for, and never ends here.
            faulthandler.register(signal.SIGALRM, file=sys.__stderr__, chain=True)
            signal.setitimer(signal.ITIMER_REAL, timeout_s)
            os.write(writer, work())
        except BaseException as error:  # noqa: BLE001 -- the parent shows it
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        said = b""
        while part := os.read(reader, 65_536):
            said += part
        return said
    finally:
        os.kill(pid, signal.SIGKILL)  # it has answered, or the test has waited too long for it
        os.waitpid(pid, 0)
        os.close(reader)


class CoreByMinio(BucketCore):
    """minio-py reaches the objects next to the store. The fixture `store` sets both attributes.

    place: the bucket; raw: a client of minio-py.
    """

    place: Any
    raw: Minio

    def raw_put(self, _store: ObjectStore, key: str, data: bytes) -> None:
        self.raw.put_object(self.place.name, f"pre/fix/{key}", io.BytesIO(data), len(data))

    def raw_get(self, _store: ObjectStore, key: str) -> bytes:
        answer = self.raw.get_object(self.place.name, f"pre/fix/{key}")
        try:
            return bytes(answer.read())
        finally:
            answer.close()
            answer.release_conn()

    def raw_exists(self, _store: ObjectStore, key: str) -> bool:
        found = self.raw.list_objects(self.place.name, prefix=f"pre/fix/{key}")
        return any(each.object_name == f"pre/fix/{key}" for each in found)


class ConformanceByMinio(CoreByMinio, BucketConformance):
    """All that a store in a bucket must do, with minio-py next to it."""
