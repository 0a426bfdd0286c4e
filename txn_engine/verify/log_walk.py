"""Walking a log's entries in order: each whole, in its place, and following the one before (invariant 1)."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from storage.store import ObjectInfo
from txn_engine.verify.descriptors import (
    CONTROLS,
    DESCRIPTOR,
    Batch,
    MalformedError,
    bounded,
    check_columns,
    decode_batches,
    plain_batches,
)
from txn_engine.verify.findings import FindingLog, Place
from txn_engine.verify.known_footers import KnownFooters
from txn_engine.verify.limits import ENTRY, LATEST_MS
from txn_engine.verify.objects import Listing, ObjectReader, mark_of
from txn_engine.verify.raw_object import Damaged, RawObject
from txn_engine.verify.store_keys import offset_in_name, offset_of

KNOWN_FOOTERS: Final = KnownFooters(ENTRY, None, tuple(DESCRIPTOR))
"""The footers of log entries that were read before."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry in its place. `follows` is False where something before it is missing or unreadable."""

    key: str
    base_offset: int
    batches: list[Batch]
    follows: bool


@dataclass(frozen=True, slots=True)
class Seal:
    """A slot that the clean-up sealed: filled for ever, its rows stand in a snapshot only."""

    key: str
    base_offset: int
    misplaced: bool = False


@dataclass(frozen=True, slots=True)
class SlotDecoder:
    """Reads what a key of the log holds: an entry's rows, or a seal."""

    place: Place

    def __call__(self, raw: RawObject) -> list[Batch] | Seal:
        """The rows, or the seal; MalformedError for anything else."""
        found = raw.parquet_like(KNOWN_FOOTERS)
        if found.kind == "seal":
            if found.rows:
                raise MalformedError(f"a seal of {found.rows} rows")
            return Seal(raw.key, offset_in_name(raw.key) or 0)
        if found.kind != "entry":
            raise MalformedError(f"kind {found.kind!r}, not 'entry' or 'seal'")
        check_columns(found.schema, self.place)
        columns = found.values()
        return decode_batches(found.table(), self.place) if columns is None else plain_batches(columns)

    def part(self, _keys: Collection[str]) -> SlotDecoder:
        """The same for every key."""
        return self


class LogWalk:
    """Walks one log, and can be asked again later for the entries that were written meanwhile."""

    def __init__(self, place: Place, reader: ObjectReader, findings: FindingLog) -> None:
        self._place = place
        self._reader = reader
        self._findings = findings
        self._folder = f"{place.prefix}/log/"
        self._decode = SlotDecoder(place)
        self.slots = array("q")  # the base offsets that are taken and were walked, ascending
        self._marks = array("Q")  # of each slot's object as it was listed
        self._ahead: tuple[Listing, array[int]] | None = None  # listed, and not walked yet
        self._last_key: str | None = None
        self._next: int | None = 0  # the base offset to come; None where damage hides it
        self._last_append_time = 0
        self._last_entry: str | None = None
        self._after_seal = False

    def entries(self) -> Iterator[tuple[Entry | Seal | None, int, int]]:
        """Yield each new entry (None: an unreadable one) with how many of how many are done."""
        if self._ahead is None:
            self._ahead = self._list(self._last_key)
        (listed, marks), self._ahead = self._ahead, None
        walked = zip(self._reader.read_in_order(listed, self._decode), marks, strict=True)
        for number, ((info, found), mark) in enumerate(walked, start=1):
            self.slots.append(offset_in_name(info.key) or 0)
            self._marks.append(mark)
            self._last_key = info.key
            yield self._placed(info, found), number, len(listed)

    def is_unchanged(self) -> bool:
        """Whether the objects walked so far are there as they were: none gone, none written again."""
        listed, marks = self._list(None)
        walked = len(self._marks)
        if marks[:walked] != self._marks:
            return False
        self._ahead = listed.behind(walked), marks[walked:]
        return True

    def _list(self, start_after: str | None) -> tuple[Listing, array[int]]:
        listed, marks = Listing(self._folder), array("Q")
        for base, info in self._listed(start_after):
            listed.add(base, info.size)
            marks.append(mark_of(info))
        return listed, marks

    def _listed(self, start_after: str | None) -> Iterator[tuple[int, ObjectInfo]]:
        for info in self._reader.listing(self._folder, start_after=start_after):
            base = offset_of(info.key.removeprefix(self._folder))
            if base is not None:  # a foreign key: the survey of all keys names it
                yield base, info

    def _is_sealed(self, key: str) -> bool:
        """Whether that slot is sealed now."""
        return isinstance(self._reader.read(key, self._decode), Seal)

    def _placed(self, info: ObjectInfo, found: list[Batch] | Seal | Damaged | None) -> Entry | Seal | None:
        base = offset_in_name(info.key) or 0
        if isinstance(found, Seal):
            return self._placed_seal(info.key, found)
        if found is None:
            self._broken("entry-missing", info.key, base, "an entry that was listed and is gone", "the entry")
            return None
        if isinstance(found, Damaged):
            code = "entry-malformed" if found.malformed else "entry-damaged"
            self._broken(code, info.key, base, found.reason, "the entry as it was written")
            return None
        if not self._is_in_place(info.key, base, found):
            return None
        follows = self._follows(info.key, base)
        self._after_seal = False
        self._judge_times(info.key, found, follows=follows)
        self._next = found[-1].last_offset + 1
        self._last_entry = info.key
        return Entry(info.key, base, [bounded(row) for row in found], follows)

    def _placed_seal(self, key: str, seal: Seal) -> Seal:
        """A seal stands before entries only: the clean-up seals upwards. It may have overtaken this walk."""
        misplaced = self._last_entry is not None and not self._is_sealed(self._last_entry)
        if misplaced:
            self._note(
                "seal-misplaced",
                key,
                "a seal behind an entry that still holds its rows",
                "seals before entries only",
            )
        self._last_entry = None
        self._next = None
        self._after_seal = True
        return replace(seal, misplaced=misplaced)

    def _is_in_place(self, key: str, base: int, rows: list[Batch]) -> bool:
        """Whether the rows belong at this key and follow one another; otherwise the entry is as good as lost."""
        if not rows:
            self._broken("entry-malformed", key, base, "an entry without rows", "at least one row")
            return False
        if rows[0].base_offset != base:
            self._broken(
                "entry-misnamed",
                key,
                base,
                f"rows from offset {rows[0].base_offset} on",
                f"rows from {base} on",
            )
            return False
        expected = base
        for row in rows:
            if row.base_offset != expected or row.last_offset < row.base_offset:
                seen = f"a row at offsets {row.base_offset} to {row.last_offset}"
                self._broken("entry-malformed", key, base, seen, f"a row from {expected} on")
                return False
            if row.control not in CONTROLS:
                seen = f"control kind {row.control!r} at offset {row.base_offset}"
                self._broken("control-unknown", key, base, seen, "a control kind of format 2")
                return False
            expected = row.last_offset + 1
        return True

    def _follows(self, key: str, base: int) -> bool:
        if self._next is None:
            return self._after_seal
        if base > self._next:
            missing = f"{self._folder}{self._next:020d}.parquet"
            seen = f"nothing between offset {self._next} and the entry at {base}"
            self._broken("entry-missing", missing, self._next, seen, "an entry", last=base - 1)
            return False
        if base < self._next:
            seen = f"an entry at {base} inside the one before, which ends at {self._next - 1}"
            self._broken("entry-overlaps", key, base, seen, f"the next entry at {self._next}")
            return False
        return True

    def _judge_times(self, key: str, rows: list[Batch], *, follows: bool) -> None:
        before = self._last_append_time if follows else 0
        if any(row.append_time != rows[0].append_time for row in rows):
            self._note(
                "append-time-falls",
                key,
                "rows of different append times",
                "one append time in an entry",
                rows[0],
            )
        elif rows[0].append_time < before:
            self._note(
                "append-time-falls", key, f"append time {rows[0].append_time}", f"at least {before}", rows[0]
            )
        elif rows[0].append_time > LATEST_MS:
            seen = f"append time {rows[0].append_time}, of a clock gone mad: it counts as {LATEST_MS}"
            self._note("append-time-falls", key, seen, "a time before the year 10000", rows[0])
        self._last_append_time = min(max(before, *(row.append_time for row in rows)), LATEST_MS)

    def _broken(
        self, code: str, key: str, base: int, seen: str, expected: str, *, last: int | None = None
    ) -> None:
        """Note what breaks the log here. Nothing that follows from it is reported again."""
        self._findings.add(
            code,
            key,
            f"{seen} ({self._place} is not judged further from offset {base})",
            expected=expected,
            place=self._place,
            offsets=(base, base if last is None else last),
            since_ms=self._last_append_time or None,
        )
        self._next = None
        self._after_seal = False

    def _note(self, code: str, key: str, seen: str, expected: str, row: Batch | None = None) -> None:
        self._findings.add(
            code,
            key,
            seen,
            expected=expected,
            place=self._place,
            offsets=row.offsets if row else None,
            producer_id=row.producer_id if row and row.producer_id >= 0 else None,
            since_ms=row.append_time if row else None,
        )
