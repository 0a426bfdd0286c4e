"""Deleting what nobody needs: snapshots, files that died, files that no entry ever named (PROTOCOL.md, section 6).

The only place that deletes. A key is taken apart and built again by `storage.keys`; an object of any other name, or in
any other folder, is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from immutables import Map

from txn_engine.errors import InvalidRequestError
from txn_engine.log.ages import LogAges
from txn_engine.log.as_of import EarlierLog
from txn_engine.log.entry_format import OFFSETS_LOG
from txn_engine.log.store_time import Moment
from txn_engine.maintain.overtaken import OvertakenError
from txn_engine.maintain.policy import MaintenancePolicy
from txn_engine.maintain.reports import Cleaned
from txn_engine.maintain.target import Target
from txn_engine.protocol.controls import GRACE_MS
from txn_engine.protocol.file_names import DataFileName, parse_data_path
from txn_engine.protocol.partition import DeadFile, PartitionState
from txn_engine.protocol.proposals import FloorProposal


@dataclass
class _Deleted:
    """How much went, of one kind."""

    objects: int = 0
    bytes: int = 0


class Cleaner:
    """The clean-up of one partition. In a dry run it only counts."""

    def __init__(self, target: Target, policy: MaintenancePolicy, moment: Moment, *, dry_run: bool) -> None:
        self._target = target
        self._policy = policy
        self._moment = moment
        self._now_ms = moment.now_ms
        self._dry_run = dry_run
        self._dead_a_day_ago: Map[str, DeadFile] | None = None
        self._snapshots, self._dead, self._orphans = _Deleted(), _Deleted(), _Deleted()

    def run(self) -> Cleaned | None:
        """Delete what may go; None where there was nothing."""
        before = self._target.read_back()
        self._clean_snapshots(before)
        floor = before.floor
        if self._target.records is not None:
            oldest_unnamed = self._clean_dead(before)
            floor = self._raise_floor(before, oldest_unnamed)
            if oldest_unnamed is not None and oldest_unnamed < floor:
                self._clean_orphans(floor)
        gone = (self._snapshots, self._dead, self._orphans)
        if floor == before.floor and not any(kind.objects for kind in gone):
            return None
        return Cleaned(
            topic=self._target.topic,
            partition=self._target.partition,
            floor_before=before.floor,
            floor=floor,
            snapshots=self._snapshots.objects,
            snapshot_bytes=self._snapshots.bytes,
            dead_files=self._dead.objects,
            dead_bytes=self._dead.bytes,
            orphans=self._orphans.objects,
            orphan_bytes=self._orphans.bytes,
        )

    # --- snapshots ------------------------------------------------------------------------------------------

    def _clean_snapshots(self, state: PartitionState) -> None:
        """Delete those that are older than two which were verified just now, and not kept for another reason."""
        snapshots = self._target.snapshots
        newest = snapshots.newest_sound(2)
        if len(newest) < 2 or snapshots.all[:2] == newest:
            return
        holds = self._target.holds()
        if holds.is_open:
            return
        below = newest[0].end
        if self._target.log.kind is OFFSETS_LOG:
            below = min(below, state.entries_start)  # a later cut may still come down to any that is not
        gone = snapshots.deletable(below, state.entries_start, holds.snapshots, self._moment)
        if not gone:
            return
        snapshots.verify(newest, state.entries_start)
        for snapshot in gone:
            self._delete(self._target.keys.snapshot(snapshot.end), snapshot.bytes, self._snapshots)

    # --- data files -----------------------------------------------------------------------------------------

    def _clean_dead(self, state: PartitionState) -> int | None:
        """Delete the dead files whose grace is over. Returns the lowest log end in the name of a file that no entry
        names, None where there is no such file.
        """
        oldest: int | None = None
        gone = []
        for key, size, name in self._data_files():
            dead = state.dead.get(name.data_path)
            if dead is not None and self._is_over(dead, state):
                gone.append((key, size, name))
            elif name.data_path not in state.named:
                oldest = name.log_end if oldest is None else min(oldest, name.log_end)
        self._delete_files(gone, self._dead, state)
        return oldest

    def _raise_floor(self, state: PartitionState, oldest_unnamed: int | None) -> int:
        """Append a floor where that lets anything go, a file or the memory of one; the floor that holds then."""
        forgettable = [
            parse_data_path(path).log_end for path, dead in state.dead.items() if self._is_over(dead, state)
        ]
        lowest = min([*forgettable, *([] if oldest_unnamed is None else [oldest_unnamed])], default=None)
        if lowest is None:
            return state.floor
        ages = LogAges(self._target.log, state, self._moment)
        floor = ages.end_by_entries(self._now_ms - self._policy.orphan_age_ms + 1)
        if floor is None:
            return state.floor
        if floor <= max(state.floor, lowest):
            return state.floor
        if not self._dry_run:
            self._append_floor(floor)
        return floor

    def _is_over(self, dead: DeadFile, state: PartitionState) -> bool:
        """Whether nobody can still hold a list of files with this one: it died a day ago by the log's time. Where that
        lies ahead of the store's clock, a writer was ahead: then it was dead in what the store had a day ago.
        """
        if not self._moment.dates_objects or dead.died_ms <= self._now_ms:
            return grace_is_over(dead, self._now_ms)
        if self._dead_a_day_ago is None:
            ages = LogAges(self._target.log, state, self._moment)
            end = ages.stored_by_entries(self._now_ms - GRACE_MS)
            earlier = EarlierLog(self._target.tools, self._target.keys, self._target.log.kind)
            self._dead_a_day_ago = Map() if end is None else earlier.state_at(end).dead
        return dead.log_file.file.data_path in self._dead_a_day_ago

    def _append_floor(self, floor: int) -> None:
        try:
            self._target.log.append_one(FloorProposal(floor))
        except InvalidRequestError as error:
            raise OvertakenError(str(error)) from error  # another run has raised it further

    def _clean_orphans(self, floor: int) -> None:
        """Delete the files strictly below the floor that a replay through the floor's own entry does not name.

        Whoever would name one from then on is refused, so that this replay cannot be too old, as one that ends before
        the floor's entry is. The floor is the one read back.
        """
        state = self._target.read_back()
        settled = floor if self._dry_run else state.floor
        gone = [
            (key, size, name)
            for key, size, name in self._data_files()
            if name.log_end < settled and name.data_path not in state.named
        ]
        self._delete_files(gone, self._orphans, state)

    def _delete_files(
        self, gone: list[tuple[str, int, DataFileName]], counted: _Deleted, state: PartitionState
    ) -> None:
        """Delete these, which the state that was read does not need, unless a cut does. The log forgets such a file
        like any other: then only the cut's own snapshot still tells of it.
        """
        holds = self._target.holds() if gone else None
        if holds is None:
            return
        if holds.is_open:
            gone = [each for each in gone if each[2].data_path in state.erased]
        held = self._target.files_held(holds, [name for _, _, name in gone], state.erased)
        for key, size, name in gone:
            if name.data_path not in held:
                self._delete(key, size, counted)

    def _data_files(self) -> Iterator[tuple[str, int, DataFileName]]:
        """Key, size and name of what is in the partition's data folder and named as the format says."""
        keys = self._target.keys
        for info, segment in self._target.objects.ours(keys.data_prefix, keys.parse_data):
            try:
                name = parse_data_path(f"data/{segment}")
            except InvalidRequestError:
                continue  # not ours
            yield keys.data(segment), info.size, name

    def _delete(self, key: str, size: int, counted: _Deleted) -> None:
        if not self._dry_run:
            self._target.objects.remove(key)
        counted.objects += 1
        counted.bytes += size


def grace_is_over(dead: DeadFile, now_ms: int) -> bool:
    """Whether a file that died at that time of the log has been dead for as long as dead files stay."""
    return now_ms - dead.died_ms >= GRACE_MS
