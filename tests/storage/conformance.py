"""What every store must do: a test class subclasses these, gives a `store` and raw access, and pytest runs
all tests."""

from __future__ import annotations

import functools
import multiprocessing
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from storage import (
    BACKENDS,
    DamagedObjectError,
    InvalidKeyError,
    MappableStore,
    ObjectNotFoundError,
    ObjectStore,
    OversizedObjectError,
    StorageError,
    prove_put_if_absent,
    settle_put_if_absent,
)
from tests.suite.tiers import in_shard
from tests.support.faults import keys_of

RACE_WRITERS = in_shard("engines", [3, 8], keep=1)
RACE_KEYS = 200

ILLEGAL_KEYS = [
    "", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/../b", "./a", "a/./b", "a\0b", "a\nb", "a b", "ä",
    "a\\b", "a%2fb", "a?b", "a#b", "a:b", "~a", "x" * 256, "/".join(["x" * 90] * 11), ".tmp/x", ".tmp",
]  # fmt: skip
LEGAL_KEYS = [
    "a",
    "a.b",
    ".a",
    "a/.b",
    "...",
    "a=b/c+d",
    "_x/-y",
    "A/z9",
    "x" * 255,
    "/".join(["x" * 80] * 11),
    ".tmpx/a",
]


def race_writer(open_store: Callable[[], ObjectStore], writer: int) -> tuple[list[int], list[bytes]]:
    """Put at every key of the race, in a process of its own. Returns the keys won and the bytes seen at each
    key."""
    store = open_store()
    won, seen = [], []
    for number in range(RACE_KEYS):
        outcome = settle_put_if_absent(store, f"race/{number:05d}", f"writer {writer} key {number}".encode())
        seen.append(outcome.winner)
        if outcome.won:
            won.append(number)
    return won, seen


def raised_by(call: Callable[[], object]) -> StorageError | None:
    """The store's error that this call raises, or None."""
    try:
        call()
    except StorageError as error:
        return error
    return None


class StoreCore:
    """The behaviour of an ObjectStore, as far as a few requests show it.

    Subclasses give the fixture `store`, which is empty, and the raw access below. `raw_put`, `raw_get` and `raw_exists`
    must not go through the code under test. A store that is known to differ from S3 says so by a flag. The tests check
    the flag too, so that it is removed when the store no longer differs.
    """

    lists_nested_folders_by_key = True
    forgets_emptied_folders = True

    @pytest.fixture
    def store(self) -> ObjectStore:
        raise NotImplementedError

    def raw_put(self, store: ObjectStore, key: str, data: bytes) -> None:
        raise NotImplementedError

    def raw_get(self, store: ObjectStore, key: str) -> bytes:
        raise NotImplementedError

    def raw_exists(self, store: ObjectStore, key: str) -> bool:
        raise NotImplementedError

    # -- get

    def test_no_more_is_read_than_may_be_there(self, store: ObjectStore) -> None:
        """get returns an object of at most max_bytes. A larger one is an error that names it."""
        self.raw_put(store, "a/b", b"12345")
        assert store.get("a/b", max_bytes=5) == store.get("a/b", max_bytes=1 << 40) == b"12345"
        for most in (4, 0):
            with pytest.raises(OversizedObjectError) as caught:
                store.get("a/b", max_bytes=most)
            assert caught.value.place.endswith("a/b")
        with pytest.raises(ObjectNotFoundError):
            store.get("a/c", max_bytes=0)
        self.raw_put(store, "empty", b"")
        assert store.get("empty", max_bytes=0) == b""

    def test_what_is_too_large_to_be_ours_is_raised_and_not_read_back(self, store: ObjectStore) -> None:
        """If a put finds an object larger than its limit, it raises an error without reading it. An object as
        large as its own is compared whole, whatever the limit."""
        self.raw_put(store, "a/b", b"x" * 1_000)
        with pytest.raises(OversizedObjectError):
            settle_put_if_absent(store, "a/b", b"ours", max_bytes=999, pause=lambda _: None)
        assert not settle_put_if_absent(store, "a/b", b"y" * 1_000, max_bytes=4).won

    # -- put_if_absent

    def test_a_fresh_key_takes_the_bytes(self, store: ObjectStore) -> None:
        """put_if_absent at a fresh key says True, and exactly these bytes are in the store."""
        assert store.put_if_absent("a/b/c", b"one\0two\xff") is True
        assert self.raw_get(store, "a/b/c") == b"one\0two\xff"

    def test_a_taken_key_keeps_its_bytes(self, store: ObjectStore) -> None:
        """put_if_absent at a taken key says False and changes nothing, whether the bytes differ or not."""
        self.raw_put(store, "a", b"first")
        assert store.put_if_absent("a", b"second, and longer") is False
        assert store.put_if_absent("a", b"first") is False
        assert self.raw_get(store, "a") == b"first"

    def test_a_deleted_key_is_fresh_again(self, store: ObjectStore) -> None:
        """put_if_absent succeeds after a delete, which is why clean-up seals entries and does not delete
        them."""
        store.put_if_absent("a/1", b"one")
        store.delete("a/1")
        assert store.put_if_absent("a/1", b"two") is True
        assert self.raw_get(store, "a/1") == b"two"

    def test_a_sealed_key_stays_taken(self, store: ObjectStore) -> None:
        """After put over an object, put_if_absent still fails there."""
        store.put_if_absent("a/1", b"entry")
        store.put("a/1", b"seal")
        assert store.put_if_absent("a/1", b"late writer") is False
        assert self.raw_get(store, "a/1") == b"seal"

    def test_put_if_absent_is_proved(self, store: ObjectStore) -> None:
        """The start-up proof passes and leaves nothing behind."""
        proof = prove_put_if_absent(store)
        assert (proof.first_won, proof.second_lost, proof.bytes_kept, proof.race_winners) == (
            True,
            True,
            True,
            1,
        )
        assert keys_of(store.list("")) == []

    # -- put, get, head, delete

    def test_put_overwrites(self, store: ObjectStore) -> None:
        """put creates, and replaces the whole object, a longer one too."""
        store.put("seal", b"long first bytes")
        store.put("seal", b"short")
        assert self.raw_get(store, "seal") == b"short"

    def test_get_reads_what_others_wrote(self, store: ObjectStore) -> None:
        """get returns what was put there by other means."""
        self.raw_put(store, "x/y", b"theirs")
        assert store.get("x/y") == b"theirs"

    def test_an_absent_object_is_not_found(self, store: ObjectStore) -> None:
        """get, get_range and head of an absent key raise ObjectNotFoundError, even if other objects lie
        above, below or next to it."""
        self.raw_put(store, "a/b", b"x")
        for key in ("nothing", "a", "a/b/c", "a/bb"):
            for read in (
                store.get,
                store.head,
                lambda k: store.get_range(k, 0, 1),
                lambda k: store.get_range(k, 0, 0),
            ):
                with pytest.raises(ObjectNotFoundError) as caught:
                    read(key)
                assert key in caught.value.place
                assert "\n" not in str(caught.value)

    def test_ranges_are_exact(self, store: ObjectStore) -> None:
        """get_range returns exactly the requested bytes. If the object ends before them, it is damaged."""
        self.raw_put(store, "r", b"0123456789")
        assert store.get_range("r", 0, 10) == b"0123456789"
        assert store.get_range("r", 3, 4) == b"3456"
        assert store.get_range("r", 9, 1) == b"9"
        assert store.get_range("r", 10, 0) == b""
        for start, length in ((0, 11), (9, 2), (10, 1), (20, 5)):
            with pytest.raises(DamagedObjectError):
                store.get_range("r", start, length)
        for start, length in ((-1, 2), (0, -1)):
            with pytest.raises(ValueError, match="range"):
                store.get_range("r", start, length)

    def test_head_tells_size_and_time(self, store: ObjectStore) -> None:
        """head gives key, size and the time of the write in milliseconds, as list does."""
        before = time.time_ns() // 1_000_000
        store.put_if_absent("h/1", b"12345")
        after = time.time_ns() // 1_000_000
        info = store.head("h/1")
        assert (info.key, info.size) == ("h/1", 5)
        assert before - 2_000 <= info.modified_ms <= after + 2_000
        assert [(i.key, i.size) for i in store.list("h")] == [("h/1", 5)]

    def test_delete_is_idempotent(self, store: ObjectStore) -> None:
        """delete removes the object. Deleting an absent object is no error."""
        self.raw_put(store, "d/1", b"x")
        store.delete("d/1")
        store.delete("d/1")
        store.delete("never/was")
        assert not self.raw_exists(store, "d/1")

    def test_map_is_get_without_a_copy(self, store: ObjectStore) -> None:
        """A store that can map shows the same bytes, read-only, and goes on showing them after an
        overwrite.
        """
        if not isinstance(store, MappableStore):
            pytest.skip("this store cannot map")
        store.put("m", b"first bytes")
        store.put("empty", b"")
        view = store.map("m")
        store.put("m", b"other")
        assert bytes(view) == b"first bytes"
        assert view.readonly
        assert bytes(store.map("empty")) == b""
        with pytest.raises(ObjectNotFoundError):
            store.map("absent")

    # -- list

    def test_list_is_in_key_order(self, store: ObjectStore) -> None:
        """list gives every key below the folder, at any depth, in byte order of the whole keys."""
        keys = ["l/a-b/x", "l/a.b", "l/a/x", "l/a/y/z", "l/a0", "l/B", "l/_", "l/b/c", "la", "l2/a"]
        for key in keys:
            self.raw_put(store, key, key.encode())
        below = sorted(key for key in keys if key.startswith("l/"))
        listed = keys_of(store.list("l"))
        assert keys_of(store.list("l/")) == listed
        assert sorted(listed) == below
        assert (listed == below) is self.lists_nested_folders_by_key
        assert sorted(keys_of(store.list(""))) == sorted(keys)
        assert keys_of(store.list("l/a/y")) == ["l/a/y/z"]
        assert keys_of(store.list("nothing")) == []

    def test_start_after_is_exclusive(self, store: ObjectStore) -> None:
        """start_after leaves out that key and all keys before it, at every depth, whether the key exists or
        not."""
        if not self.lists_nested_folders_by_key:
            pytest.skip("this store starts after a folder where it should start in it")
        keys = sorted(["s/a-b/x", "s/a/x", "s/a/y", "s/a0", "s/b/c/d", "s/b/c/e", "s/z"])
        for key in keys:
            self.raw_put(store, key, b"")
        for start in [*keys, "s/a", "s/a/xx", "s/b/c", "s/b/c/dd", "s/0", "s/zz", "r", "t"]:
            assert keys_of(store.list("s", start_after=start)) == [key for key in keys if key > start], start

    def test_a_folder_of_objects_is_a_sequence(self, store: ObjectStore) -> None:
        """The listing of a folder without folders, the only kind that the engine lists, is in byte order and
        goes on after any key."""
        names = sorted(
            ["0-b", "0.b", "0", "00", "00000000000000000118.parquet", "A", "_", "a", "a+b", "a.b", "z"]
        )
        keys = [f"q/{name}" for name in names]
        for key in keys:
            self.raw_put(store, key, b"")
        self.raw_put(store, "q2/0", b"")
        assert keys_of(store.list("q")) == keys
        for start in [*keys, "q/0.a", "q/00000000000000000117", "q/B", "q/zz", "q/+"]:
            assert keys_of(store.list("q", start_after=start)) == [key for key in keys if key > start], start

    def test_folders(self, store: ObjectStore) -> None:
        """list_folders names the folders right below, sorted, without objects, deeper folders and emptied
        ones.
        """
        for key in ("f/b/1", "f/a/x/1", "f/a/2", "f/c-d/1", "f/object", "g/1", "f/gone/deep/1"):
            self.raw_put(store, key, b"")
        store.delete("f/gone/deep/1")
        seen = ["a", "b", "c-d"] if self.forgets_emptied_folders else ["a", "b", "c-d", "gone"]
        assert store.list_folders("f") == seen
        assert store.list_folders("f/") == seen
        assert store.list_folders("f/a") == ["x"]
        assert store.list_folders("") == ["f", "g"]
        assert store.list_folders("nothing") == []

    # -- keys and names

    def test_illegal_keys_touch_nothing(self, store: ObjectStore) -> None:
        """Every operation refuses each illegal key before the backend is touched."""
        for key in ILLEGAL_KEYS:
            for call in (
                lambda key: store.put_if_absent(key, b"x"),
                lambda key: store.put(key, b"x"),
                store.get,
                lambda key: store.get_range(key, 0, 1),
                store.head,
                store.delete,
            ):
                assert isinstance(raised_by(functools.partial(call, key)), InvalidKeyError), repr(key)
        assert keys_of(store.list("")) == []

    def test_legal_keys_come_back(self, store: ObjectStore) -> None:
        """Every legal key holds an object on every backend, and is listed under the same name."""
        for key in LEGAL_KEYS:
            assert store.put_if_absent(key, b"x") is True, key
            assert store.get(key) == b"x", key
            assert keys_of(store.list("")) == [key]
            store.delete(key)
            assert keys_of(store.list("")) == [], key

    def test_a_store_is_named(self, store: ObjectStore) -> None:
        """url names the store, uri an object in it; the store passes for an ObjectStore at run time."""
        assert isinstance(store, ObjectStore)
        assert store.url.partition("://")[0] in ("file", "memory", *(each.schemes[0] for each in BACKENDS))
        assert store.uri("a/b").endswith("/a/b")

    def test_close_may_be_followed_by_use(self, store: ObjectStore) -> None:
        """A store can be used again after close."""
        store.put_if_absent("c", b"x")
        store.close()
        assert store.get("c") == b"x"
        store.close()


class StoreConformance(StoreCore):
    """Everything that an ObjectStore must do: the basic behaviour, and tests that need many requests, much
    data or several processes."""

    def run_race(self, store: ObjectStore, writers: int) -> list[tuple[list[int], list[bytes]]]:
        """Run `race_writer` for every writer at once, in processes if they can share the store."""
        raise NotImplementedError

    @pytest.mark.parametrize("writers", RACE_WRITERS)
    def test_a_race_has_one_winner_a_key(self, store: ObjectStore, writers: int) -> None:
        """Writers race for 200 keys: each key has one winner, and every loser sees the winner's bytes."""
        results = self.run_race(store, writers)
        assert len(results) == writers
        assert sorted(number for won, _ in results for number in won) == list(range(RACE_KEYS))
        for writer, (won, _) in enumerate(results):
            for number in won:
                assert self.raw_get(store, f"race/{number:05d}") == f"writer {writer} key {number}".encode()
        for number in range(RACE_KEYS):
            assert {seen[number] for _, seen in results} == {self.raw_get(store, f"race/{number:05d}")}

    def test_threads_share_a_store(self, store: ObjectStore) -> None:
        """One instance serves 8 threads at once: each key has one winner, with reads and lists in between."""
        start = threading.Barrier(8)

        def work(writer: int) -> int:
            start.wait()
            won = 0
            for number in range(20):
                won += settle_put_if_absent(store, f"t/{number:02d}", f"{writer}".encode()).won
                assert store.get(f"t/{number:02d}").isdigit()
                assert f"t/{number:02d}" in keys_of(store.list("t"))
            return won

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(work, range(8))) == 20

    def test_list_goes_past_a_page(self, store: ObjectStore) -> None:
        """A listing of more than 1,000 objects is complete and in order."""
        keys = [f"p/{number:05d}" for number in range(1_100)]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda key: self.raw_put(store, key, b"x"), keys))
        assert keys_of(store.list("p")) == keys
        assert keys_of(store.list("p", start_after=keys[1_050])) == keys[1_051:]

    @pytest.mark.parametrize("size", [0, 1, 4_096, 6 << 20])
    def test_sizes(self, store: ObjectStore, size: int) -> None:
        """Objects from empty to larger than a multipart limit are stored by one conditional put and read back
        whole."""
        data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        assert store.put_if_absent(f"sizes/{size}", data) is True
        assert store.put_if_absent(f"sizes/{size}", b"other") is False
        assert store.get(f"sizes/{size}") == data
        assert store.head(f"sizes/{size}").size == size


def run_race_in_processes(store: ObjectStore, writers: int) -> list[tuple[list[int], list[bytes]]]:
    """Run the race in processes that share nothing. Each gets the store pickled, like a Spark executor."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(writers) as pool:
        racers = [(functools.partial(_unpickled, store), writer) for writer in range(writers)]
        return pool.starmap(race_writer, racers, chunksize=1)


def _unpickled(store: ObjectStore) -> ObjectStore:
    return store
