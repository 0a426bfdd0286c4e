"""One partition: its log replayed row by row under the rules, its snapshots compared, its data files read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from storage.store import ObjectInfo
from txn_engine.verify.data_file_audit import DataFileAudit, RecordSchema
from txn_engine.verify.descriptors import ROW_COLUMNS
from txn_engine.verify.findings import FindingLog, Place
from txn_engine.verify.log_walk import Entry, LogWalk, Seal, offset_in_name
from txn_engine.verify.objects import Damaged, ObjectReader, open_parquet
from txn_engine.verify.partition_state import PartitionState, apply
from txn_engine.verify.report import PartitionStats, Tally
from txn_engine.verify.scene import Rule, Scene
from txn_engine.verify.snapshot_audit import (
    SnapshotImage,
    decode_snapshot,
    first_difference,
    image_of,
    restore,
)

Progress = Callable[[str, int, int], None]
_PROGRESS_EVERY = 64


@dataclass(frozen=True, slots=True)
class Audit:
    """What every part of an audit needs: where to read from, where to note, and whom to tell how far it is."""

    reader: ObjectReader
    findings: FindingLog
    tally: Tally
    progress: Progress


class PartitionAudit:
    """The audit of one log, which can go on later with what was written meanwhile.

    After damage the replay goes on, so that later objects are still checked, but `sound` is False and nothing that
    depends on the state before is judged (no flood of findings that only follow from the first).
    """

    def __init__(self, audit: Audit, place: Place, rules: Sequence[Rule]) -> None:
        self.place = place
        self.state = PartitionState()
        self.sound = True
        self.broken_at: int | None = None
        self.starts_at = 0  # above 0 where the entries before are sealed: they are not judged
        self._audit = audit
        self._rules = rules
        self._walk = LogWalk(place, audit.reader, audit.findings)
        self._snapshots: dict[int, ObjectInfo] | None = None
        self._snapshot_count = 0
        self._sealed_to = -1
        self._entries = 0
        self._batches = 0
        self._records: Counter[str] = Counter()
        self._stable = 0

    def advance(self) -> None:
        """Replay and judge the entries there are, or those that came since the last call."""
        if self._snapshots is None:
            self._snapshots = self._list_snapshots()
        for found, done, total in self._walk.entries():
            if isinstance(found, Seal):
                self._sealed_to = max(self._sealed_to, found.base_offset)
            elif found is None:
                self._break()
            else:
                self._take(found)
            if done % _PROGRESS_EVERY == 0 or done == total:
                self._audit.progress(f"{self.place} entries", done, total)
        if self._sealed_to >= 0 and self.starts_at == 0 and self.sound:
            self._start_from_snapshot()

    def finish(self, schema: RecordSchema | None, *, check_data: bool, now_ms: int) -> PartitionStats:
        """Judge what only the end of the log tells: snapshots nobody passed, the LSO, and the data files."""
        self._judge_left_snapshots()
        self._judge_undecided()
        state = self.state
        present = orphans = 0
        if self.place.topic not in ROW_COLUMNS:
            files = DataFileAudit(self.place, self._audit.reader, self._audit.findings, schema, check_data)
            present, orphans = files.run(
                state.files, now_ms=now_ms, sound=self.sound, progress=self._file_progress
            )
        for file in state.files.values():
            self._records[file.status] += file.record_count
        return PartitionStats(
            topic=self.place.topic,
            incarnation=self.place.incarnation,
            partition=self.place.partition,
            log_start_offset=state.log_start_offset,
            last_stable_offset=state.last_stable_offset,
            log_end_offset=state.log_end_offset,
            entries=self._entries,
            batches=self._batches,
            records=dict(sorted(self._records.items())),
            data_files=present,
            orphan_files=orphans,
            snapshots=self._snapshot_count,
            judged=self.sound,
        )

    # --- entries ------------------------------------------------------------------------------------------

    def _take(self, entry: Entry) -> None:
        if not entry.follows:
            self._break()
        elif self._sealed_to >= 0 and self.starts_at == 0:
            self._start_from_snapshot()
        tally = self._audit.tally
        self._entries += 1
        tally.entries += 1
        if entry.base_offset < self.starts_at:
            return  # what it holds is in the snapshot that the replay started from
        scene = Scene(self.place, entry.key, self._audit.findings, self.sound)
        for batch in entry.batches:
            for rule in self._rules:
                rule.judge(self.state, batch, scene)
            apply(self.state, batch)
            if batch.data_path:
                tally.records += batch.record_count
        self._batches += len(entry.batches)
        tally.batches += len(entry.batches)
        tally.latest_append_time = max(tally.latest_append_time, self.state.last_append_time)
        self._judge_stable_offset(entry)
        self._judge_snapshot()

    def _break(self) -> None:
        if self.broken_at is None:
            self.broken_at = self.state.log_end_offset
        self.sound = False

    def _judge_stable_offset(self, entry: Entry) -> None:
        stable, end = self.state.last_stable_offset, self.state.log_end_offset
        if self.sound and not self._stable <= stable <= end:
            self._audit.findings.add(
                "lso-wrong",
                entry.key,
                f"last stable offset {stable}",
                expected=f"between {self._stable}, where it was, and the log end {end}",
                place=self.place,
                offsets=(entry.base_offset, end - 1),
                since_ms=self.state.last_append_time,
            )
        self._stable = max(self._stable, stable)

    def _judge_undecided(self) -> None:
        """The LSO by another road: no file of an undecided transaction lies below it."""
        if not self.sound:
            return
        undecided = [file for files in self.state.undecided.values() for file in files]
        first = min(undecided, key=lambda file: file.base_offset, default=None)
        if first is not None and first.base_offset < self.state.last_stable_offset:
            self._audit.findings.add(
                "lso-wrong",
                f"{self.place.prefix}/{first.data_path}",
                f"last stable offset {self.state.last_stable_offset}",
                expected=f"at most {first.base_offset}, where undecided records begin",
                place=self.place,
                offsets=(first.base_offset, first.last_offset),
                producer_id=first.producer_id,
            )

    # --- snapshots ----------------------------------------------------------------------------------------

    def _list_snapshots(self) -> dict[int, ObjectInfo]:
        found: dict[int, ObjectInfo] = {}
        for info in self._audit.reader.listing(f"{self.place.prefix}/snapshots/"):
            offset = offset_in_name(info.key)
            if offset is None:
                self._note_snapshot(
                    "object-misnamed", info, "an object among the snapshots", "<20 digits>.parquet"
                )
            else:
                found[offset] = info
        self._snapshot_count = len(found)
        return found

    def _read_snapshot(self, info: ObjectInfo) -> SnapshotImage | None:
        found = self._audit.reader.read(info.key, lambda key, data: decode_snapshot(open_parquet(key, data)))
        if isinstance(found, Damaged):
            self._note_snapshot("snapshot-damaged", info, found.reason, "the snapshot as it was written")
            return None
        return found  # None: deleted since it was listed, as the clean-up may

    def _judge_snapshot(self) -> None:
        snapshots = self._snapshots or {}
        if not self.sound or self.state.log_end_offset not in snapshots:
            return
        info = snapshots.pop(self.state.log_end_offset)
        image = self._read_snapshot(info)
        difference = first_difference(image, image_of(self.state)) if image is not None else None
        if difference is not None:
            seen, expected = difference
            self._note_snapshot("snapshot-differs", info, seen, f"{expected}, as the log gives")

    def _judge_left_snapshots(self) -> None:
        for offset, info in sorted((self._snapshots or {}).items()):
            if self._read_snapshot(info) is None or not self.sound:
                continue
            end = self.state.log_end_offset
            if offset > end:
                seen = f"a snapshot of the log up to offset {offset}"
                self._note_snapshot("snapshot-ahead", info, seen, f"at most {end}, where the log ends")
            elif offset > self.starts_at:  # one before it is older than where the replay could start
                seen = f"a snapshot up to offset {offset}, inside an entry"
                self._note_snapshot("snapshot-misplaced", info, seen, "a snapshot between two entries")
        self._snapshots = {}

    def _start_from_snapshot(self) -> None:
        """After seals: take the oldest whole snapshot that reaches beyond them for the start (invariant 9)."""
        for offset in sorted(offset for offset in self._snapshots or {} if offset > self._sealed_to):
            image = self._read_snapshot((self._snapshots or {}).pop(offset))
            if image is not None and image.sections["partition"][0][0] == offset:
                self.state = restore(image)
                self._stable = self.state.last_stable_offset
                self.starts_at = offset
                return
        self._audit.findings.add(
            "sealed-without-snapshot",
            f"{self.place.prefix}/snapshots/",
            f"no whole snapshot beyond the sealed offset {self._sealed_to} ({self.place} is not judged further)",
            expected="the two newest snapshots to be kept",
            place=self.place,
        )
        self._sealed_to = -1
        self._break()

    def _note_snapshot(self, code: str, info: ObjectInfo, seen: str, expected: str) -> None:
        offset = offset_in_name(info.key)
        offsets = None if offset is None else (0, max(offset - 1, 0))
        self._audit.findings.add(code, info.key, seen, expected=expected, place=self.place, offsets=offsets)

    def _file_progress(self, done: int, total: int) -> None:
        if done % _PROGRESS_EVERY == 0 or done == total:
            self._audit.progress(f"{self.place} data files", done, total)
