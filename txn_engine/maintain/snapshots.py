"""A partition's snapshots: which are sound, which a replay agrees with, and which may go (PROTOCOL.md, section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from storage import LogKeys
from txn_engine.errors import CorruptObjectError, StoreAccessError
from txn_engine.log.entry_log import LogTools
from txn_engine.log.snapshot_format import SNAPSHOT_LIMITS, decode_snapshot
from txn_engine.maintain.overtaken import OvertakenError
from txn_engine.maintain.policy import DAY_MS
from txn_engine.maintain.slots import Slots
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.proposals import VerifiedSnapshot
from txn_engine.protocol.replay import apply


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that was read: up to which offset, and the log's time there. `sound` is False for a damaged one."""

    end: int
    bytes: int
    sound: bool
    append_time: int = -1


class Snapshots:
    """Reads and checks the snapshots of one partition. Deletes nothing."""

    def __init__(self, tools: LogTools, keys: LogKeys, slots: Slots) -> None:
        self._objects = tools.objects
        self._keys = keys
        self._slots = slots

    def read_all(self) -> list[Snapshot]:
        """All that are there, oldest first, each read back as a whole. Objects of other names are left alone."""
        found = []
        for info, end in self._objects.ours(self._keys.snapshots_prefix, self._keys.parse_snapshot):
            state = self._sound(end)
            at = -1 if state is None else state.last_append_time
            found.append(Snapshot(end, info.size, state is not None, at))
        return found

    def verify(
        self, ends: Sequence[int], older: Sequence[int], entries_start: int
    ) -> tuple[VerifiedSnapshot, ...]:
        """What vouches for the snapshots at `ends` (ascending): each is what a replay of the log gives.

        The replay begins at the newest sound one of `older` whose entries are still there, else at the log's first
        entry. Where that is sealed, the first of `ends` is taken as it was read: all that is left to compare it with
        is the one that follows it. Raises `CorruptObjectError` for one that is damaged or differs.
        """
        state = self._begin(ends[0], [end for end in older if end >= entries_start])
        verified = []
        for end in ends:
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


def deletable(snapshots: Sequence[Snapshot], entries_start: int) -> list[Snapshot]:
    """Those that nobody needs once the two newest sound ones were verified.

    Beside these two stay the oldest one from which the entries that are left can be replayed, and of each later day of
    the log its first: `entries_start` moves from one of them to the next.
    """
    sound = [snapshot for snapshot in snapshots if snapshot.sound]
    if len(sound) < 2:
        return []
    replayable = [snapshot for snapshot in sound if snapshot.end >= entries_start]
    kept = {snapshot.end for snapshot in replayable[:1]}
    for before, later in pairwise(replayable):
        if before.append_time // DAY_MS < later.append_time // DAY_MS:
            kept.add(later.end)
    two_newer = sound[-2].end
    return [snapshot for snapshot in snapshots if snapshot.end < two_newer and snapshot.end not in kept]
