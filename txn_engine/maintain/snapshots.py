"""A partition's snapshots: which are sound, which a replay agrees with, and which may go (PROTOCOL.md, section 6)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from storage import LogKeys
from txn_engine.errors import CorruptObjectError, StoreAccessError
from txn_engine.log.entry_log import LogTools
from txn_engine.log.snapshot_format import SNAPSHOT_LIMITS, decode_snapshot
from txn_engine.log.store_time import Moment
from txn_engine.maintain.overtaken import OvertakenError
from txn_engine.maintain.policy import DAY_MS
from txn_engine.maintain.slots import Slots
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.proposals import VerifiedSnapshot
from txn_engine.protocol.replay import apply


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that is there: up to which offset, of how many bytes, and since when by the store's clock."""

    end: int
    bytes: int
    stored_ms: int


class Snapshots:
    """The snapshots of one partition as a listing gives them, oldest first, each read only where it is asked what is in
    it: a cut a minute leaves ten thousand in a week. Deletes nothing.
    """

    def __init__(self, tools: LogTools, keys: LogKeys, slots: Slots) -> None:
        self._objects = tools.objects
        self._keys = keys
        self._slots = slots
        self.all = [
            Snapshot(end, info.size, info.modified_ms)
            for info, end in self._objects.ours(keys.snapshots_prefix, keys.parse_snapshot)
        ]
        self._times: dict[int, int | None] = {}

    def newest_sound(self, count: int, above: int = -1) -> list[Snapshot]:
        """The newest that are whole and end above that offset, oldest first; fewer where there are not so many."""
        found = (each for each in reversed(self.all) if each.end > above and self._time(each) is not None)
        return list(islice(found, count))[::-1]

    def two_at(self, moment: Moment, age_ms: int) -> list[Snapshot]:
        """The newest sound one of that age that is not the last, and the one behind it; none where there are no such
        two. By bisection: neither the store's time nor the log's goes back.
        """
        low, high = 0, len(self.all)
        while low < high:
            middle = (low + high) // 2
            found = self._sound_between(middle, high)
            if found is None or self._written_ms(self.all[found], moment) > moment.now_ms - age_ms:
                high = middle
            else:
                low = found + 1
        if low == 0:
            return []
        behind = self._sound_between(low, len(self.all))
        if behind is not None:
            return [self.all[low - 1], self.all[behind]]
        newest = self.newest_sound(2)
        return newest if len(newest) == 2 else []

    def _written_ms(self, snapshot: Snapshot, moment: Moment) -> int:
        """When what it holds was in the log, at the latest: by the store's time, and by the log's unless that lies
        ahead of the store's clock.
        """
        log_ms = self._time(snapshot) or 0
        if not moment.dates_objects:
            return log_ms
        return snapshot.stored_ms if log_ms > moment.now_ms else max(log_ms, snapshot.stored_ms)

    def _sound_between(self, low: int, high: int) -> int | None:
        return next((at for at in range(low, high) if self._time(self.all[at]) is not None), None)

    def _time(self, snapshot: Snapshot) -> int | None:
        """The log's time there; None for a damaged one."""
        if snapshot.end not in self._times:
            state = self._sound(snapshot.end)
            self._times[snapshot.end] = None if state is None else state.last_append_time
        return self._times[snapshot.end]

    def deletable(
        self, below: int, entries_start: int, held: Collection[int], moment: Moment
    ) -> list[Snapshot]:
        """Of those that end below, and that no cut needs: which nobody needs once two newer sound ones were verified.

        What stays is the oldest one from which the entries that are left can be replayed, and the first of each later
        day: `entries_start` moves from one of them to the next.
        """
        return [
            snapshot
            for at, snapshot in enumerate(self.all)
            if snapshot.end < below
            and snapshot.end not in held
            and (snapshot.end < entries_start or not self._is_first_of_a_day(at, entries_start, moment))
        ]

    def _is_first_of_a_day(self, at: int, entries_start: int, moment: Moment) -> bool:
        if self._time(self.all[at]) is None:
            return False
        earlier = (self.all[before] for before in range(at - 1, -1, -1))
        for snapshot in takewhile(lambda each: each.end >= entries_start, earlier):
            if self._time(snapshot) is not None:
                days = [self._written_ms(each, moment) // DAY_MS for each in (snapshot, self.all[at])]
                return days[0] < days[1]
        return True

    def verify(self, snapshots: Sequence[Snapshot], entries_start: int) -> tuple[VerifiedSnapshot, ...]:
        """What vouches for these snapshots (ascending): each is what a replay of the log gives.

        The replay begins at the newest sound one before them whose entries are still there, else at the log's first
        entry. Where that is sealed, the first of them is taken as it was read: all that is left to compare it with
        is the one that follows it. Raises `CorruptObjectError` for one that is damaged or differs.
        """
        first = snapshots[0].end
        state = self._begin(first, [each.end for each in self.all if entries_start <= each.end < first])
        verified = []
        for end in (each.end for each in snapshots):
            last_entry = self._slots.last_below(entries_start, end)
            for slot in self._slots.walk(state.log_end_offset, end):
                for batch in slot.batches:
                    state = apply(state, batch)
            if last_entry is None or self._sound(end) != state:
                raise CorruptObjectError(
                    "a damaged snapshot, or one of another state",
                    place=self._keys.snapshot(end),
                    expected="the state that replaying the log gives",
                    action="run `txn-engine verify`; nothing was deleted or sealed here",
                )
            verified.append(VerifiedSnapshot(end, last_entry))
        return tuple(verified)

    def _begin(self, first: int, older: Sequence[int]) -> PartitionState:
        for end in reversed(older):
            state = self._sound(end)
            if state is not None:
                return state
        if not self._slots.read(0).is_seal:
            return PartitionState()
        return self._sound(first) or PartitionState()

    def _sound(self, end: int) -> PartitionState | None:
        """The state of the snapshot at `end`, None where it is damaged or refused. `OvertakenError`: it was deleted."""
        key = self._keys.snapshot(end)
        try:
            data = self._objects.find(key, max_bytes=SNAPSHOT_LIMITS.object_bytes)
            if data is None:
                raise OvertakenError(f"{key} was deleted meanwhile")
            state = decode_snapshot(data, key=key)
        except (CorruptObjectError, StoreAccessError):
            return None
        return state if state.log_end_offset == end else None
