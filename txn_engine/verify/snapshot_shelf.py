"""A partition's snapshots: each compared with the replay that passes it, or the start of one (invariant 9)."""

from __future__ import annotations

from storage.store import ObjectInfo
from txn_engine.verify.audited_partition import AuditedPartition
from txn_engine.verify.findings import FindingLog, Place
from txn_engine.verify.limits import SNAPSHOT
from txn_engine.verify.objects import ObjectReader, mark_of
from txn_engine.verify.raw_object import Damaged
from txn_engine.verify.snapshot_audit import first_difference, restore, rows_of, snapshot_rows
from txn_engine.verify.store_keys import offset_in_name


class SnapshotShelf:
    """The snapshots of one partition as they were listed before its log was walked; each is read once.

    Another audit may list again what came meanwhile.
    """

    def __init__(self, place: Place, reader: ObjectReader, findings: FindingLog) -> None:
        self._place = place
        self._reader = reader
        self._findings = findings
        self._folder = f"{place.prefix}/snapshots/"
        self._waiting = self._listed()
        self._seen = set(self._waiting)
        self._sound: list[int] = []
        self._judged: dict[int, int] = {}  # by offset, the mark of the object that was read
        self.count = len(self._waiting)

    def list_again(self, log_end: int) -> bool:
        """See what came; False where what is there now of the log up to `log_end` is not what was judged."""
        listed = self._listed()
        new = {at: info for at, info in listed.items() if self._judged.get(at) != mark_of(info)}
        if any(at < log_end for at in new):
            return False
        self._waiting, self._seen, self.count = new, set(listed), len(listed)
        self._sound = [at for at in self._sound if at in listed and at not in new]
        self._judged = {at: mark for at, mark in self._judged.items() if at in listed and at not in new}
        return True

    @property
    def judged(self) -> int:
        """How many were read so far."""
        return len(self._judged)

    def judge(self, state: AuditedPartition) -> None:
        """Compare the snapshot at the end of `state`, where there is one, with the state."""
        info = self._waiting.pop(state.log_end_offset, None)
        if info is None:
            return
        self._judged[state.log_end_offset] = mark_of(info)
        found = self._reader.read(
            info.key,
            lambda raw: (first_difference(snapshot_rows(raw.parquet(SNAPSHOT)), rows_of(state)),),
            size=info.size,
        )
        if isinstance(found, Damaged):
            self._note_damage(info, found)
        elif found is not None:  # None: deleted since it was listed, as the clean-up may
            (difference,) = found
            if difference is None:
                self._sound.append(state.log_end_offset)
            else:
                seen, expected = difference
                expected = f"{expected}, as the log gives"
                self._note("snapshot-differs", info, seen, expected, since_ms=state.last_append_time)

    def start_beyond(self, offset: int) -> AuditedPartition | None:
        """The state of the oldest sound snapshot of more than `offset`; None where there is none.

        What was written since the listing counts too: the clean-up may have sealed on the strength of it.
        """
        return self._first_sound(self._waiting, offset) or self._first_sound(self._listed(), offset)

    def judge_left(self, log_end: int, starts_at: int, *, sound: bool) -> None:
        """Judge the snapshots that no replay passed: one ahead of the log, inside an entry, or before the start."""
        for offset, info in sorted(self._waiting.items()):
            self._judged[offset] = mark_of(info)
            found = self._reader.read(
                info.key, lambda raw: sum(1 for _ in snapshot_rows(raw.parquet(SNAPSHOT))), size=info.size
            )
            if isinstance(found, Damaged):
                self._note_damage(info, found)
            elif found is not None and sound and offset > log_end:
                seen = f"a snapshot of the log up to offset {offset}"
                self._note("snapshot-ahead", info, seen, f"at most {log_end}, where the log ends")
            elif found is not None and sound and offset > starts_at:
                seen = f"a snapshot up to offset {offset}, inside an entry"
                self._note("snapshot-misplaced", info, seen, "a snapshot between two entries")
        self._waiting.clear()

    def sound_beyond(self, offset: int, wanted: int) -> int:
        """How many snapshots beyond `offset` are sound; where they are fewer than `wanted`, new whole ones count."""
        found = sum(at > offset for at in self._sound)
        later = (at for at in self._listed() if at > offset and at not in self._seen)
        for at in later if found < wanted else ():
            key = f"{self._folder}{at:020d}.parquet"
            whole = self._reader.read(key, lambda raw: sum(1 for _ in snapshot_rows(raw.parquet(SNAPSHOT))))
            found += isinstance(whole, int)
        return found

    def note_start(self, offset: int, code: str, seen: str, expected: str) -> None:
        """Note something about the snapshot at `offset`, which a replay started from."""
        self._note(code, ObjectInfo(f"{self._folder}{offset:020d}.parquet", 0, 0), seen, expected)

    def _listed(self) -> dict[int, ObjectInfo]:
        found: dict[int, ObjectInfo] = {}
        for info in self._reader.listing(self._folder):
            offset = offset_in_name(info.key)
            if offset is not None and info.key.rpartition("/")[0] + "/" == self._folder:
                found[offset] = info
        return found

    def _first_sound(self, infos: dict[int, ObjectInfo], beyond: int) -> AuditedPartition | None:
        for offset in sorted(offset for offset in infos if offset > beyond):
            info = infos.pop(offset)
            self._seen.add(offset)
            self._judged[offset] = mark_of(info)
            found = self._reader.read(
                info.key, lambda raw: restore(snapshot_rows(raw.parquet(SNAPSHOT))), size=info.size
            )
            if isinstance(found, Damaged):
                self._note_damage(info, found)
            elif found is not None and self._is_consistent(info, offset, *found):
                self._sound.append(offset)
                return found[0]
        return None

    def _is_consistent(self, info: ObjectInfo, offset: int, state: AuditedPartition, stable: int) -> bool:
        """Whether it is the snapshot that its name says, and its last stable offset the one of its producers."""
        if state.log_end_offset != offset:
            seen = f"a snapshot of the log up to offset {state.log_end_offset}"
            self._note("snapshot-differs", info, seen, f"{offset}, as its name says")
        elif stable != state.last_stable_offset:
            seen, expected = f"partition: last_stable_offset {stable}", f"{state.last_stable_offset}"
            self._note("snapshot-differs", info, seen, f"{expected}, as its open transactions give")
        else:
            return True
        return False

    def _note_damage(self, info: ObjectInfo, found: Damaged) -> None:
        self._note("snapshot-damaged", info, found.reason, "the snapshot as it was written")

    def _note(
        self, code: str, info: ObjectInfo, seen: str, expected: str, *, since_ms: int | None = None
    ) -> None:
        offset = offset_in_name(info.key)
        self._findings.add(
            code,
            info.key,
            seen,
            expected=expected,
            place=self._place,
            offsets=None if offset is None else (0, max(offset - 1, 0)),
            since_ms=since_ms,
        )
