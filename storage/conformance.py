"""Does a store do what the protocol needs of it? Asked of the store itself, with nothing but its own operations.

What is asked is what `storage.store.ObjectStore` promises, put-if-absent first. A store that passes did so this time: a
race that nobody lost proves less than one that somebody did, and no look from outside proves what a service keeps after
its machines fail.
"""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier, Lock
from typing import Final, TypeVar

from storage.errors import DamagedObjectError, ObjectNotFoundError, StorageError
from storage.keys import KEY_CHARS_MAX
from storage.settle import settle_put_if_absent
from storage.store import ObjectStore

_T = TypeVar("_T")

RACERS: Final = 16
RACES: Final = 25
PAGE: Final = 1_000
"""Objects that a listing gives at once, on every service known."""
_AT_ONCE: Final = 16
_LONG_CHARS: Final = 250
_SIZES: Final = (0, 1, 4_096, (6 << 20) + 1)
_NAMES: Final = (
    "0",
    "00",
    "0-b",
    "0.b",
    "A",
    "_",
    "a",
    "a+b",
    "a.b",
    "a=b",
    "z",
    "00000000000000000118.parquet",
)


@dataclass(frozen=True, slots=True)
class Checked:
    """One thing that was asked for, whether it held, and what was seen. `ms`: how long that took."""

    name: str
    held: bool
    seen: str
    ms: float
    expected: str = ""


class _DiffersError(Exception):
    """What was seen is not what must be."""

    def __init__(self, seen: str, expected: str) -> None:
        super().__init__(seen)
        self.seen, self.expected = seen, expected


@dataclass(slots=True)
class Probes:
    """A folder of the store, and all that was put there. `pause_s` stands between two writes of one object: some
    services refuse more than one a second (Google's does), and the protocol seals each once.
    """

    store: ObjectStore
    folder: str
    pause_s: float = 1.1
    keys: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def key(self, name: str) -> str:
        """A key in the folder, to be removed at the end whatever becomes of it."""
        key = f"{self.folder}/{name}"
        with self._lock:
            self.keys.add(key)
        return key

    def fill(self, name: str, data: bytes = b"x") -> str:
        """Put an object that a check needs, and return its key. A lost connection is tried again, as writers do."""
        key = self.key(name)
        settle_put_if_absent(self.store, key, data)
        return key

    def another(self) -> ObjectStore:
        """The same place by another client, as another process has it; in memory there is but one."""
        try:
            other: ObjectStore = pickle.loads(pickle.dumps(self.store))
        except StorageError:
            return self.store
        return other

    def remove(self) -> int:
        """Remove all, and say how many objects could not be."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return sum(pool.map(self._is_left, sorted(self.keys)))

    def _is_left(self, key: str) -> bool:
        for _ in range(3):
            with contextlib.suppress(StorageError):
                self.store.delete(key)
                return False
        return True


def checks() -> list[tuple[str, Callable[[Probes], str]]]:
    """What is asked for, in order; each gives what it saw, or raises."""
    return [
        ("a fresh key takes the bytes, a taken one keeps them", _taken),
        (f"of {RACERS} writers of a key one wins", _race),
        ("a write is read at once", _read_after_write),
        ("a write is listed at once", _list_after_write),
        ("an overwrite is read at once, and its key stays taken", _overwrite),
        ("a deleted key is absent, and fresh again", _delete),
        ("what is not there is told from what cannot be asked", _absent),
        ("ranges are exact", _ranges),
        ("objects of every size in one put", _sizes),
        ("names and long keys come back", _names),
        ("a folder is listed in order, from any key on", _order),
        ("a listing goes past a page", _pages),
        ("folders are named", _folders),
    ]


def conformance(probes: Probes, asked: Callable[[str], None] = lambda _: None) -> Iterator[Checked]:
    """Ask one after the other; `asked` hears what is asked next. Errors of the store are answers too."""
    for name, check in checks():
        asked(name)
        started = time.perf_counter()
        expected = ""
        try:
            seen, held = check(probes), True
        except _DiffersError as error:
            seen, held, expected = error.seen, False, error.expected
        except StorageError as error:
            seen, held, expected = str(error), False, "an answer"
        yield Checked(name, held, seen, (time.perf_counter() - started) * 1_000, expected)


def _same(seen: object, expected: object, what: str) -> None:
    if seen != expected:
        raise _DiffersError(f"{what}: {seen!r:.200}", f"{expected!r:.200}")


def _refuses(call: Callable[[], object], kind: type[StorageError], what: str) -> None:
    try:
        found = call()
    except kind:
        return
    raise _DiffersError(f"{what}: {found!r:.80}", f"a refusal ({kind.__name__})")


def _each(count: int, work: Callable[[int], _T]) -> list[_T]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(work, range(count)))


def _taken(probes: Probes) -> str:
    store, key = probes.store, probes.key("taken")
    _same(settle_put_if_absent(store, key, b"first").won, True, "the put at a fresh key won")
    times = []
    for data in (b"second", b"first", b""):
        started = time.perf_counter()
        _same(store.put_if_absent(key, data), False, "a put at a taken key was said to be stored")
        times.append((time.perf_counter() - started) * 1_000)
        _same(store.get(key), b"first", "the bytes after a put that was refused")
    return f"three puts refused, {min(times):.1f} ms the quickest"


def _race(probes: Probes) -> str:
    stores = [probes.another() for _ in range(RACERS)]
    keys = [probes.key(f"race/{number:03d}") for number in range(RACES)]
    refused = 0
    start = Barrier(RACERS, timeout=60)

    def run(racer: int) -> list[tuple[bool, bytes]]:
        found = []
        for number, key in enumerate(keys):
            start.wait()
            outcome = settle_put_if_absent(stores[racer], key, f"{racer} {number}".encode())
            found.append((outcome.won, outcome.winner))
        return found

    with ThreadPoolExecutor(RACERS) as pool:
        results = list(pool.map(_unless_broken(run, start), range(RACERS)))
    for number, key in enumerate(keys):
        winners = [racer for racer in range(RACERS) if results[racer][number][0]]
        _same(len(winners), 1, f"writers of {key} that were told that they won")
        seen = {results[racer][number][1] for racer in range(RACERS)}
        _same(seen, {f"{winners[0]} {number}".encode()}, f"what the writers of {key} read")
        _same(probes.store.get(key), f"{winners[0]} {number}".encode(), f"what stands at {key}")
        refused += RACERS - 1
    return f"{RACES} keys, {RACES} winners, {refused} refused"


def _unless_broken(work: Callable[[int], _T], start: Barrier) -> Callable[[int], _T]:
    """Let nobody wait for a racer that an error has stopped."""

    def guarded(racer: int) -> _T:
        try:
            return work(racer)
        except StorageError:
            start.abort()
            raise

    return guarded


def _read_after_write(probes: Probes) -> str:
    other = probes.another()

    def look(number: int) -> None:
        key, data = probes.key(f"read/{number:03d}"), f"object {number}".encode()
        _same(settle_put_if_absent(probes.store, key, data).won, True, f"the put at {key} won")
        _same(other.get(key), data, f"{key}, read")
        _same(other.head(key).size, len(data), f"the size of {key}")
        _same(other.get_range(key, 1, 3), data[1:4], f"a range of {key}")

    _each(50, look)
    return "50 objects, each by another client"


def _list_after_write(probes: Probes) -> str:
    other = probes.another()
    for number in range(20):
        probes.fill(f"list/{number:03d}")
        listed = [info.key for info in other.list(f"{probes.folder}/list")]
        _same(
            listed,
            [f"{probes.folder}/list/{each:03d}" for each in range(number + 1)],
            "the listing after a put",
        )
    return "20 listings, each by another client"


def _overwrite(probes: Probes) -> str:
    other, key = probes.another(), probes.key("over/written")
    for number in range(3):
        data = b"x" * (100 - number)
        probes.store.put(key, data)
        _same(other.get(key), data, f"{key} after overwrite {number}")
        _same(
            [info.size for info in other.list(f"{probes.folder}/over")],
            [len(data)],
            "its size in the listing",
        )
        _same(other.put_if_absent(key, b"late"), False, "a put at an overwritten key was said to be stored")
        _same(other.get(key), data, f"{key} after a put that was refused")
        time.sleep(probes.pause_s)
    return "3 overwrites, each read by another client"


def _delete(probes: Probes) -> str:
    other, key = probes.another(), probes.key("deleted/1")
    for number in range(3):
        _same(
            settle_put_if_absent(probes.store, key, f"{number}".encode()).won,
            True,
            "the put after a delete won",
        )
        probes.store.delete(key)
        _refuses(lambda: other.get(key), ObjectNotFoundError, "a deleted object was read")
        _same([info.key for info in other.list(f"{probes.folder}/deleted")], [], "the listing after a delete")
        probes.store.delete(key)
        time.sleep(probes.pause_s)
    return "3 times, each looked at by another client"


def _absent(probes: Probes) -> str:
    store, folder = probes.store, probes.folder
    probes.fill("there/is/one")
    for key in (
        f"{folder}/nothing",
        f"{folder}/there/is",
        f"{folder}/there/is/one/below",
        f"{folder}/there/is/ones",
    ):
        _refuses(lambda key=key: store.get(key), ObjectNotFoundError, f"{key} was read")  # type: ignore[misc]
        _refuses(lambda key=key: store.head(key), ObjectNotFoundError, f"{key} was looked up")  # type: ignore[misc]
        _refuses(lambda key=key: store.get_range(key, 0, 1), ObjectNotFoundError, f"{key} was read")  # type: ignore[misc]
    _same(list(store.list(f"{folder}/nothing")), [], "the listing of nothing")
    return "4 keys, by get, head and range"


def _ranges(probes: Probes) -> str:
    store, data = probes.store, bytes(range(256)) * 16
    key = probes.fill("ranges", data)
    for start, length in ((0, 4_096), (0, 1), (4_095, 1), (100, 1_000), (4_096, 0)):
        _same(
            store.get_range(key, start, length), data[start : start + length], f"{length} bytes from {start}"
        )
    for start, length in ((0, 4_097), (4_095, 2), (4_096, 1), (9_999, 5)):
        _refuses(
            lambda start=start, length=length: store.get_range(key, start, length),  # type: ignore[misc]
            DamagedObjectError,
            f"{length} bytes from {start} of 4,096",
        )
    return "5 ranges, 4 beyond the end refused"


def _sizes_of(size: int) -> bytes:
    return (bytes(range(256)) * (size // 256 + 1))[:size]


def _sizes(probes: Probes) -> str:
    store = probes.store
    for size in _SIZES:
        key, data = probes.key(f"sizes/{size}"), _sizes_of(size)
        _same(settle_put_if_absent(store, key, data).won, True, f"the put of {size} bytes won")
        _same(store.put_if_absent(key, b"other"), False, f"a put over {size} bytes was said to be stored")
        _same(len(store.get(key)), size, f"bytes of {size} that came back")
        _same(store.get(key) == data, True, f"{size} bytes came back as they were")
        _same(store.head(key).size, size, "the size")
    return f"up to {_SIZES[-1]:,} bytes"


def _names(probes: Probes) -> str:
    store = probes.store
    room = KEY_CHARS_MAX - len(f"{probes.folder}/long/")
    long = "/".join(["x" * 80] * (room // 81))
    for name in (*_NAMES, "n" * _LONG_CHARS, long):
        key = probes.key(f"names/{name}" if "/" not in name else f"long/{name}")
        _same(settle_put_if_absent(store, key, name.encode()).won, True, f"the put at {key:.60} won")
        _same(store.get(key), name.encode(), f"{key:.60}, read")
    listed = {info.key for info in store.list(f"{probes.folder}/long")}
    _same(listed, {f"{probes.folder}/long/{long}"}, "the listing of the long key")
    return f"{len(_NAMES) + 2} names, a key of {len(probes.folder) + 6 + len(long)} characters"


def _order(probes: Probes) -> str:
    store, folder = probes.store, f"{probes.folder}/order"
    keys = sorted(f"{folder}/{name}" for name in _NAMES)
    for name in _NAMES:
        probes.fill(f"order/{name}")
    probes.fill("order2/0")

    def listed(start_after: str | None) -> list[str]:
        return [info.key for info in store.list(folder, start_after=start_after)]

    _same(listed(None), keys, "the listing")
    for start in (*keys, f"{folder}/0.a", f"{folder}/B", f"{folder}/zz"):
        _same(listed(start), [key for key in keys if key > start], f"the listing after {start}")
    return f"{len(keys)} names, from {len(keys) + 3} places"


def _pages(probes: Probes) -> str:
    count = PAGE + 50
    _each(count, lambda number: probes.fill(f"pages/{number:05d}"))
    keys = [f"{probes.folder}/pages/{number:05d}" for number in range(count)]
    _same(
        [info.key for info in probes.store.list(f"{probes.folder}/pages")] == keys,
        True,
        "all are listed, in order",
    )
    after = [info.key for info in probes.store.list(f"{probes.folder}/pages", start_after=keys[PAGE])]
    _same(after, keys[PAGE + 1 :], f"the listing after object {PAGE}")
    return f"{count:,} objects"


def _folders(probes: Probes) -> str:
    store = probes.store
    for name in ("b/1", "a/x/1", "a/2", "c-d/1", "object"):
        probes.fill(f"folders/{name}")
    _same(store.list_folders(f"{probes.folder}/folders"), ["a", "b", "c-d"], "the folders")
    _same(store.list_folders(f"{probes.folder}/folders/a"), ["x"], "the folders of a")
    _same(store.list_folders(f"{probes.folder}/nothing"), [], "the folders of nothing")
    return "3 of them, in order"


def all_held(found: Iterable[Checked]) -> bool:
    """Whether the store does all that was asked."""
    return all(each.held for each in found)
