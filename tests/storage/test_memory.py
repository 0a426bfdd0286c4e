from __future__ import annotations

import pickle
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from storage import MemoryStore, ObjectStore, StorageError, open_store
from storage.reasons import StoreReason
from tests.storage.conformance import StoreConformance, race_writer
from tests.support.refusals import refused


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryStore(uuid.uuid4().hex)

    def raw_put(self, store: ObjectStore, key: str, data: bytes) -> None:
        assert isinstance(store, MemoryStore)
        store._shelf.put(key, data, 0)

    def raw_get(self, store: ObjectStore, key: str) -> bytes:
        assert isinstance(store, MemoryStore)
        held = store._shelf.get(key)
        assert held is not None
        return held[0]

    def raw_exists(self, store: ObjectStore, key: str) -> bool:
        assert isinstance(store, MemoryStore)
        return key in store._shelf

    def run_race(self, store: ObjectStore, writers: int) -> list[tuple[list[int], list[bytes]]]:
        with ThreadPoolExecutor(writers) as pool:
            return list(
                pool.map(lambda writer: race_writer(lambda: open_store(store.url), writer), range(writers))
            )

    def test_one_name_is_one_store(self) -> None:
        """Two handles of one name show the same objects. Stores with another name, or without a name, are
        separate."""
        name = uuid.uuid4().hex
        MemoryStore(name).put("a", b"x")
        assert MemoryStore(name).get("a") == b"x"
        assert list(MemoryStore(name + "2").list("")) == []
        nameless = MemoryStore()
        nameless.put("a", b"x")
        assert list(MemoryStore().list("")) == []

    def test_the_clock_is_the_caller_s(self) -> None:
        """The time of a write comes from the clock given."""
        store = MemoryStore(clock=lambda: 12_345)
        store.put("a", b"x")
        assert store.head("a").modified_ms == 12_345

    def test_bytes_are_copied_in(self) -> None:
        """Changing a buffer after the put does not change the object."""
        store, buffer = MemoryStore(), bytearray(b"first")
        store.put_if_absent("a", buffer)
        buffer[:] = b"later"
        assert store.get("a") == b"first"

    def test_pickling_is_refused(self) -> None:
        """A memory store says in one line that it cannot go to another process."""
        with refused(StorageError, StoreReason.NOT_PICKLABLE) as caught:
            pickle.dumps(MemoryStore("p"))
        assert caught.value.place == "memory://p"
