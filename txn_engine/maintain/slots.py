"""A log's slots as they stand on the store now: nothing here comes from a view that somebody holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from storage import LogKeys
from txn_engine.errors import CorruptObjectError
from txn_engine.log.entry_format import ENTRY_LIMITS, LogKind, decode_entry
from txn_engine.log.entry_log import LogTools
from txn_engine.log.objects import Objects
from txn_engine.maintain.overtaken import OvertakenError
from txn_engine.protocol.batches import BatchDescriptor

_READ_AHEAD = 64


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot that was read: the entry's batches, none of them in a seal."""

    base_offset: int
    batches: tuple[BatchDescriptor, ...]
    bytes: int

    @property
    def is_seal(self) -> bool:
        """Whether clean-up has been here."""
        return not self.batches

    @property
    def end(self) -> int:
        """The base offset of the next slot; only an entry knows it."""
        return self.batches[-1].last_offset + 1


class Slots:
    """Reads the slots of one log. Raises `CorruptObjectError` for what is damaged or missing."""

    def __init__(self, tools: LogTools, keys: LogKeys, kind: LogKind) -> None:
        self._objects: Objects = tools.objects
        self._executor = tools.executor
        self._keys = keys
        self._kind = kind

    def read(self, base_offset: int) -> Slot:
        """The slot at this offset, which must be there."""
        return self._slot(base_offset, self._find(self._keys.entry(base_offset)))

    def _find(self, key: str) -> bytes | None:
        return self._objects.find(key, max_bytes=ENTRY_LIMITS.object_bytes)

    def walk(self, start: int, end: int) -> Iterator[Slot]:
        """The entries from `start` to `end`, each beginning where the one before ends. `OvertakenError`: a seal."""
        base = start
        while base < end:
            for slot in self._chunk(base, end):
                if slot.is_seal:
                    raise OvertakenError(f"{self._keys.entry(slot.base_offset)} was sealed meanwhile")
                if slot.base_offset != base or slot.end > end:
                    raise CorruptObjectError(
                        f"an entry from offset {slot.base_offset} to {slot.end - 1}",
                        place=self._keys.log_prefix,
                        expected=f"one from offset {base} on, and one that ends at {end - 1}",
                        action="run `txn-engine verify`",
                    )
                base = slot.end
                yield slot

    def _chunk(self, start: int, end: int) -> Iterator[Slot]:
        bases = list(islice(self._bases(start, end), _READ_AHEAD)) or [start]
        keys = [self._keys.entry(base) for base in bases]
        for base, data in zip(bases, self._executor.map(self._find, keys), strict=True):
            yield self._slot(base, data)

    def first(self, start: int, end: int, is_past: Callable[[Slot], bool]) -> int | None:
        """The first slot in [start, end) that is past something, as all that follow it must be; None where none is."""
        found: int | None = None
        while start < end:
            middle = (start + end) // 2
            base = next(self._bases(middle, end), None)
            if base is None:
                end = middle
            elif is_past(self.read(base)):
                found, end = base, middle
            else:
                start = base + 1
        return found

    def last_below(self, start: int, end: int) -> int | None:
        """The last slot in [start, end)."""
        found: int | None = None
        while start < end:
            middle = (start + end) // 2
            base = next(self._bases(middle, end), None)
            if base is None:
                end = middle
            else:
                found, start = base, base + 1
        return found

    def _bases(self, start: int, end: int) -> Iterator[int]:
        before = None if start == 0 else self._keys.entry(start - 1)
        found = self._objects.ours(self._keys.log_prefix, self._keys.parse_entry, start_after=before)
        for _, base in found:
            if base >= end:
                return
            yield base

    def _slot(self, base_offset: int, data: bytes | None) -> Slot:
        key = self._keys.entry(base_offset)
        if data is None:
            raise CorruptObjectError("no such object", place=key, expected="a slot that is filled")
        return Slot(
            base_offset,
            tuple(decode_entry(self._kind, data, key=key, base_offset=base_offset).batches),
            len(data),
        )
