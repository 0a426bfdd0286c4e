"""Gets that are under way before they are asked for: of single objects, and of a log's entries.

What is read ahead is a guess. It becomes an answer only where that very object is asked for afterwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import chain, islice
from typing import Self

from storage import LogKeys
from txn_engine.errors import CorruptObjectError
from txn_engine.log.entry_format import ENTRY_LIMITS
from txn_engine.log.objects import Objects

_ENTRIES_AHEAD = 64
_ENTRIES_ALONE = 4
_ENTRIES_ALONE_NEARBY = 256  # to read so many files takes as long as to list a folder of a hundred thousand
PAGE_KEYS = 1_000
"""How many keys a page of a listing has."""
_GUESSED_MAX = 1 << 62


class ReadAhead:
    """`find(key)` gives what the store answered for that key since it was expected, or answers now.

    What is expected and never asked for is dropped, its errors too.
    """

    def __init__(self, find: Callable[[str], bytes | None], executor: Executor) -> None:
        self._find = find
        self._executor = executor
        self._under_way: dict[str, Future[bytes | None]] = {}

    def expect(self, *keys: str) -> None:
        """Ask for these, all at once."""
        for key in keys:
            if key not in self._under_way:
                self._under_way[key] = self._executor.submit(self._find, key)

    def find(self, key: str) -> bytes | None:
        """The object, or None where there is none."""
        expected = self._under_way.pop(key, None)
        return self._find(key) if expected is None else expected.result()

    def drop(self) -> None:
        """Nothing more will be asked for."""
        for unread in self._under_way.values():
            unread.cancel()


@dataclass(frozen=True, slots=True)
class _Listing:
    """The bases of a log's entries in order: the first thousand, and what follows them, which may take another look."""

    first: list[int]
    rest: Iterator[int]

    def reaches(self, offset: int) -> bool:
        """Whether the first ones say what there is from this offset on."""
        return len(self.first) < PAGE_KEYS or self.first[-1] >= offset

    def bases(self, start: int) -> Iterator[int]:
        """All from `start` on; once."""
        return chain((base for base in self.first if base >= start), self.rest)


class EntriesAhead:
    """The entries of one log, slot by slot, for one replay.

    Guarantee: `find` gives what the store answered for that very slot since this was made. Listings and guesses say
    which slots to ask for ahead, and nothing else: the end of a log is a slot that the store says is empty.
    """

    def __init__(self, objects: Objects, keys: LogKeys, executor: Executor) -> None:
        self._objects = objects
        self._keys = keys
        self._executor = executor
        self._ahead = ReadAhead(self._find_now, executor)
        self._found = 0
        self._alone = _ENTRIES_ALONE_NEARBY if objects.is_near else _ENTRIES_ALONE
        self._whole: Future[_Listing] | None = None  # from the log's start
        self._coming: Future[_Listing] | None = None  # from where the replay is
        self._bases: Iterator[int] | None = None  # listed, and not read ahead yet
        self._next: deque[int] = deque()  # read ahead, and not asked for yet
        self._last = [-1, -1]

    # --- where the replay begins ------------------------------------------------------------------------------

    def begin(self) -> None:
        """Nothing is known of the log: list it and get its first slot, while the caller looks for a snapshot.

        Where an object is a file away it is listed once there are some entries: gets cost so little there, and a
        listing so much.
        """
        self._alone = _ENTRIES_ALONE
        if not self._objects.is_near:
            self._whole = self._list_from(0)
            self._ahead.expect(self._keys.entry(0))

    def begin_in_the_middle(self, offset: int, *, goes_on: bool) -> None:
        """The replay will begin in this slot and waits for nothing else: get it now, list what follows. Where it may
        be empty (not `goes_on`), list only once it is not.
        """
        if goes_on:
            self._alone = _ENTRIES_ALONE
            self.start_at(offset)
        elif not self._objects.is_near:
            self._alone = 1
            self._ahead.expect(self._keys.entry(offset))

    def start_at(self, offset: int) -> None:
        """The replay will begin in this slot: get what follows, while the caller gets its snapshot."""
        if self._objects.is_near:
            return
        self._ahead.expect(self._keys.entry(offset))
        self._next.clear()
        whole, self._whole = None if self._whole is None else self._whole.result(), None
        if whole is None or not whole.reaches(offset):
            self._coming = self._list_from(offset)
        else:
            self._bases = whole.bases(offset)
            self._read_ahead()

    # --- the replay -------------------------------------------------------------------------------------------

    def find(self, offset: int) -> bytes | None:
        """The entry in the slot that begins there, None where it is empty."""
        key = self._keys.entry(offset)
        if self._found == self._alone and self._bases is None:
            self._ahead.expect(key)
            self._coming = self._list_from(offset + 1)
        self._read_ahead()
        while self._next and self._next[0] <= offset:
            self._next.popleft()
        data = self._ahead.find(key)
        if data is None and self._next:
            data = self._find_now(key)  # a later entry was listed since, perhaps
        self._found += data is not None
        return data

    def check_end(self, offset: int) -> None:
        """Raise `CorruptObjectError` where a later entry stands behind the slot that `find` found empty: none was ever
        put there before that slot was filled. A listing may be wrong: the store is asked for the entry itself.
        """
        if self._next and self._objects.exists(listed := self._keys.entry(self._next[0])):
            raise CorruptObjectError(
                f"no such object, and a later entry {listed.rpartition('/')[2]}",
                actor="load",
                place=self._keys.entry(offset),
                expected="an entry in every slot up to the log's end",
            )

    def _find_now(self, key: str) -> bytes | None:
        return self._objects.find(key, max_bytes=ENTRY_LIMITS.object_bytes)

    # --- what to read ahead -----------------------------------------------------------------------------------

    def _list_from(self, offset: int) -> Future[_Listing]:
        after = self._keys.entry(offset - 1) if offset else None
        return self._executor.submit(self._list, after)

    def _list(self, after: str | None) -> _Listing:
        found = self._objects.ours(self._keys.log_prefix, self._keys.parse_entry, start_after=after)
        bases = (base for _, base in found)
        return _Listing(list(islice(bases, PAGE_KEYS)), bases)

    def _read_ahead(self) -> None:
        """Have so many gets under way as may be; at the end of what is listed those of slots that may come next."""
        if self._coming is not None:
            self._bases, self._coming = self._coming.result().bases(0), None
        if self._bases is None:
            return
        while len(self._next) < _ENTRIES_AHEAD:
            base = next(self._bases, None)
            if base is None:
                self._guess_the_end()
                return
            self._next.append(base)
            self._last = [self._last[1], base]
            self._ahead.expect(self._keys.entry(base))

    def _guess_the_end(self) -> None:
        """The slot behind the last entry, if that is a marker or a row, or as long as the one before it."""
        before, last = self._last
        if last >= 0 and not self._objects.is_near:
            likely = [last + 1] if before < 0 else [last + 1, 2 * last - before]
            self._ahead.expect(*(self._keys.entry(offset) for offset in likely if offset < _GUESSED_MAX))
            self._last = [-1, -1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ahead.drop()
