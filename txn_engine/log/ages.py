"""How old what a log holds is, as far as anything goes by its age (decision 33).

The store's times decide: an entry was in the log by the modified time of its object, and by that of any object that was
made after it. They are of one clock, whoever writes. The log's own times, which its writers gave and which never fall,
are asked besides: what they call young stays too, unless they lie ahead of the store's clock and so are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from storage import ObjectInfo
from txn_engine.errors import CorruptObjectError, InvalidRequestError, InvalidTimestampError
from txn_engine.log.entry_format import ENTRY_LIMITS, decode_entry
from txn_engine.log.entry_log import EntryLog
from txn_engine.log.store_time import CLOCK_LIMIT_MS, Moment
from txn_engine.protocol.file_names import parse_data_path
from txn_engine.protocol.log_time import EARLIEST_MS
from txn_engine.protocol.partition import PartitionState
from txn_engine.reasons import Reason


@dataclass(frozen=True, slots=True)
class _Found:
    """The first slot that is young: where it begins and its object, None for none. is_known: an older one was seen."""

    slot: tuple[int, ObjectInfo] | None
    is_known: bool


class LogAges:
    """The ages of what a log holds, by its state as it was read and by listings made now. Writes nothing."""

    def __init__(self, log: EntryLog, state: PartitionState, moment: Moment) -> None:
        self._objects = log.objects
        self._keys = log.keys
        self._kind = log.kind
        self._state = state
        self._times: dict[int, int] = {}
        self.moment = moment

    def end_at(self, time_ms: int) -> int:
        """An offset below which everything was in the log before that time, by the store's times and by the log's; 0
        where nothing proves it of any.

        `InvalidTimestampError` where the proof would be the time of an object from the future.
        """
        by_entries = self.end_by_entries(time_ms)
        return self._end_by_others(time_ms) if by_entries is None else by_entries

    def stored_end_at(self, time_ms: int) -> int:
        """As `end_at`, by the store's times alone: for rows whose own times were looked at."""
        if not self.moment.dates_objects:
            return self._state.log_end_offset
        by_entries = self.stored_by_entries(time_ms)
        return self._end_by_others(time_ms) if by_entries is None else by_entries

    def end_by_entries(self, time_ms: int) -> int | None:
        """As `end_at`, by the entries that are no seals; None where these are all younger, or there is none."""
        start, end = self._state.entries_start, self.stored_by_entries(time_ms)
        if end is None or start == end:
            return end
        young = self._first(start, end, lambda base, _: self._append_time(base) >= time_ms)
        if young.slot is None or self._is_ahead(self._append_time(young.slot[0])):
            return end
        return young.slot[0] if young.is_known else None

    def stored_by_entries(self, time_ms: int) -> int | None:
        """As `end_by_entries`, by the store's times alone: where a slot begins, or the log ends."""
        start, end = self._state.entries_start, self._state.log_end_offset
        if not self.moment.dates_objects:
            return end
        young = self._first(start, end, lambda _, info: info.modified_ms >= time_ms)
        if not young.is_known:
            return None
        if young.slot is None:
            return end
        end, info = young.slot
        self._check_not_ahead(info)
        return end

    def _end_by_others(self, time_ms: int) -> int:
        """By what else was written once the log was so long: seals, snapshots, and data files, whose names say it."""
        if not self.moment.dates_objects:
            return self._state.entries_start
        sealed = self._first(0, self._state.entries_start, lambda _, info: info.modified_ms >= time_ms)
        ends = (
            [self._state.entries_start if sealed.slot is None else sealed.slot[0]] if sealed.is_known else []
        )
        ends += (end for info, end in self._witnesses() if info.modified_ms < time_ms)
        return max((end for end in ends if end <= self._state.log_end_offset), default=0)

    def _witnesses(self) -> Iterator[tuple[ObjectInfo, int]]:
        """Objects, each with an end that the log had reached when it was written."""
        keys = self._keys
        yield from self._objects.ours(keys.snapshots_prefix, keys.parse_snapshot)
        for info, segment in self._objects.ours(keys.data_prefix, keys.parse_data):
            with suppress(InvalidRequestError):  # not ours
                yield info, parse_data_path(f"data/{segment}").log_end

    # --- by bisection: times do not go back along a log -------------------------------------------------------

    def _first(self, start: int, end: int, is_young: Callable[[int, ObjectInfo], bool]) -> _Found:
        """The first slot in [start, end) that is young, as all behind it must be."""
        found: tuple[int, ObjectInfo] | None = None
        is_known = False
        while start < end:
            middle = (start + end) // 2
            slot = self._slot(middle, end)
            if slot is None:
                end = middle
            elif is_young(*slot):
                found, end = slot, middle
            else:
                start, is_known = slot[0] + 1, True
        return _Found(found, is_known)

    def _slot(self, start: int, end: int) -> tuple[int, ObjectInfo] | None:
        """The first slot in [start, end)."""
        after = None if start == 0 else self._keys.entry(start - 1)
        listed = self._objects.ours(self._keys.log_prefix, self._keys.parse_entry, start_after=after)
        info, base = next(listed, (None, end))
        return None if info is None or base >= end else (base, info)

    def _append_time(self, base: int) -> int:
        """Of the entry at `base`. What another run has sealed meanwhile is old: the log's time has said so."""
        if base not in self._times:
            key = self._keys.entry(base)
            data = self._objects.find(key, max_bytes=ENTRY_LIMITS.object_bytes)
            if data is None:
                raise CorruptObjectError("no such object", place=key, expected="a slot that is filled")
            batches = decode_entry(self._kind, data, key=key, base_offset=base).batches
            self._times[base] = batches[0].append_time if batches else EARLIEST_MS
        return self._times[base]

    # --- times that lie ahead -------------------------------------------------------------------------------

    def _is_ahead(self, time_ms: int) -> bool:
        """Whether a time that the log gives is wrong, so that it says nothing. Without the store's times there is no
        other.
        """
        return self.moment.dates_objects and time_ms > self.moment.now_ms

    def _check_not_ahead(self, info: ObjectInfo) -> None:
        ahead_ms = info.modified_ms - self.moment.now_ms
        if ahead_ms > CLOCK_LIMIT_MS:
            raise InvalidTimestampError(
                f"an object that the store dates {ahead_ms // 1_000} s after its own clock's time now",
                place=info.key,
                expected="a time that has passed: the age of this object and of what follows is unknown",
                action="set the clock of the disk's machine; if the clock is right, `touch` the file so that its age"
                " begins now",
                reason=Reason.STORED_IN_THE_FUTURE,
            )
