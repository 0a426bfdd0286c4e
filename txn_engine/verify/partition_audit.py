"""One partition: its log replayed row by row under the rules, its snapshots compared, its data files read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from txn_engine.verify.audited_partition import AuditedPartition, apply
from txn_engine.verify.cut_spans import Spans
from txn_engine.verify.data_file_audit import ALL_FILES, DataFileAudit, FilesToRead, RecordSchema
from txn_engine.verify.descriptors import ROW_COLUMNS, MalformedError
from txn_engine.verify.erasures import erased_offsets
from txn_engine.verify.file_table import FileTable
from txn_engine.verify.findings import FindingLog, Place
from txn_engine.verify.held_files import HeldFiles, Holder
from txn_engine.verify.judged_entry import JudgedEntry, Rule
from txn_engine.verify.key_audit import KeyAudit, KeyRules
from txn_engine.verify.layout import Topic
from txn_engine.verify.log_walk import Entry, LogWalk, Seal
from txn_engine.verify.objects import ObjectReader
from txn_engine.verify.report import PartitionStats, Tally
from txn_engine.verify.settings_audit import SettingsAudit
from txn_engine.verify.snapshot_shelf import SnapshotShelf

Progress = Callable[[str, int, int], None]
PROGRESS_EVERY = 64
_SNAPSHOTS_KEPT = 2
_DROPPING = frozenset({"trim", "rewrite", "erase"})


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

    before: an earlier audit of the log, which could not go on; the data files that it read are not read again.
    """

    def __init__(
        self, audit: Audit, place: Place, rules: Sequence[Rule], before: PartitionAudit | None = None
    ) -> None:
        self.place = place
        self.state = AuditedPartition()
        self.sound = True
        self.broken_at: int | None = None
        self.starts_at = 0  # above 0 where the entries before are sealed: they are not judged
        # Producer id -> its epoch and its last decision's offset, as the snapshot says that the log starts from.
        self.known_at_start: dict[int, tuple[int, int]] = {}
        self.spans = Spans()
        self._audit = audit
        self._rules = rules
        self._snapshots = SnapshotShelf(place, audit.reader, audit.findings)
        self._walk = LogWalk(place, audit.reader, audit.findings)
        self._seal: Seal | None = None  # the highest
        self._hidden = False  # behind a seal, where no state is known yet
        self._entries = 0
        self._batches = 0
        self._records = 0
        self._stable = 0
        self._has_dropped = False  # files that were live once may not be any more
        self._held_files = FileTable()
        self._schema: str | None = None  # that the data files were judged by
        self._keys: tuple[int, KeyRules] | None = None  # judged up to this log end, by these rules
        self._files_before = None if before is None else before.state.files
        if before is not None:
            self._schema = before._schema

    def advance(self) -> None:
        """Replay and judge the entries there are, or those that came since the last call."""
        self._replay()
        if self._has_illegal_seal():  # the trim that allowed it stood before it: behind what was listed
            self._replay()

    def note_lost(self) -> None:
        """The log is empty and went further once: whatever it said is hidden."""
        self._break()

    def is_as_it_was(self) -> bool:
        """Whether what an earlier audit read of this log is there, unchanged, so that this one can go on from it."""
        return self._walk.is_unchanged() and self._snapshots.list_again(self.state.log_end_offset)

    def count_again(self) -> None:
        """Count what an earlier audit read, before this one goes on."""
        tally = self._audit.tally
        tally.entries += self._entries
        tally.batches += self._batches
        tally.records += self._records
        tally.unchanged += len(self._walk.slots) + self._snapshots.judged
        tally.latest_append_time = max(tally.latest_append_time, self.state.last_append_time)
        if self.sound:
            self._snapshots.judge(self.state)  # it may have been written since

    def _replay(self) -> None:
        for found, done, total in self._walk.entries():
            if isinstance(found, Seal):
                self._seal, self._hidden = found, True
            elif found is None:
                self._break()
            else:
                self._take(found)
            if done % PROGRESS_EVERY == 0 or done == total:
                self._audit.progress(f"{self.place} entries", done, total)
        if self._hidden:
            self._resume()

    def finish(
        self, topic: Topic | None, *, to_read: FilesToRead | None, now_ms: int, holders: Sequence[Holder] = ()
    ) -> PartitionStats:
        """Judge what only the end of the log tells: snapshots nobody passed, the LSO, the data files and their keys.

        `to_read`: which data files are read; None: none is. `holders`: what else reads data files of this log.
        """
        self._snapshots.judge_left(self.state.log_end_offset, self.starts_at, sound=self.sound)
        self._judge_sealing()
        self._judge_undecided()
        state = self.state
        present = orphans = 0
        if self.place.topic not in ROW_COLUMNS:
            present, orphans = self._judge_files(topic, to_read, now_ms, holders)
        return PartitionStats(
            topic=self.place.topic,
            incarnation=self.place.incarnation,
            partition=self.place.partition,
            log_start_offset=state.log_start_offset,
            last_stable_offset=state.last_stable_offset,
            log_end_offset=state.log_end_offset,
            entries=self._entries,
            batches=self._batches,
            records=dict(sorted(state.files.records().items())),
            data_files=present,
            orphan_files=orphans,
            snapshots=self._snapshots.count,
            judged=self.sound,
        )

    def _judge_files(
        self, topic: Topic | None, to_read: FilesToRead | None, now_ms: int, holders: Sequence[Holder]
    ) -> tuple[int, int]:
        reader, findings, state = self._audit.reader, self._audit.findings, self.state
        schema, keys = (topic.schema, topic.keys) if topic else (None, None)
        if self._files_before is not None:
            state.files.carry_reads(self._files_before)
            self._files_before = None
        erased = erased_offsets(reader, findings, self.place)
        digest = None if schema is None else schema.digest
        digest = f"{digest} {len(erased)}" if len(erased) else digest
        if digest != self._schema:
            state.files.forget_reads()
            self._held_files.forget_reads()
            self._schema = digest
        schema_now = None if topic is None else partial(_schema_now, topic, reader)
        files = DataFileAudit(
            self.place, reader, findings, schema, to_read, state.rewritten, erased, schema_now
        )
        counted = files.run(state.files, now_ms=now_ms, sound=self.sound, progress=self._file_progress)
        self._audit.tally.unchanged += files.unchanged
        counted = counted[0], counted[1] - self._judge_held(files, holders, now_ms)
        if keys is not None and to_read == ALL_FILES and self.sound:
            judged = (state.log_end_offset, keys)
            if files.read or self._keys != judged:
                KeyAudit(self.place, reader, findings, keys).run(state, now_ms)
            self._keys = judged
        return counted

    def _judge_held(self, of_log: DataFileAudit, holders: Sequence[Holder], now_ms: int) -> int:
        """Judge the files that cuts and tables read, and that the log's own audit did not read; how many are there."""
        if not (holders and self._has_dropped):
            return 0
        held = HeldFiles(self._audit.reader, self.place)
        held.find(holders, self.state)
        held.files.carry_reads(self._held_files)
        self._held_files = held.files
        if not len(held.files):
            return 0
        files = replace(of_log, rewritten={}, holder_of=held.holder_of, read=0, unchanged=0, _orphans=0)
        present, _ = files.run(held.files, now_ms=now_ms, sound=self.sound, progress=self._file_progress)
        self._audit.tally.unchanged += files.unchanged
        return present

    # --- entries ------------------------------------------------------------------------------------------

    def _take(self, entry: Entry) -> None:
        if not entry.follows:
            self._break()
        elif self._hidden:
            self._resume()
        tally = self._audit.tally
        self._entries += 1
        tally.entries += 1
        if entry.base_offset < self.starts_at:
            self._judge_start(entry)
            return
        judged = JudgedEntry(self.place, entry.key, self._audit.findings, self._walk.slots, self.sound)
        for batch in entry.batches:
            for rule in self._rules:
                rule.judge(self.state, batch, judged)
            if self.sound:
                self.spans.note(self.state, batch)
            apply(self.state, batch)
            self._has_dropped = self._has_dropped or batch.control in _DROPPING
            if batch.data_path:
                tally.records += batch.record_count
                self._records += batch.record_count
        self._batches += len(entry.batches)
        tally.batches += len(entry.batches)
        tally.latest_append_time = max(tally.latest_append_time, self.state.last_append_time)
        self._judge_stable_offset(entry)
        if self.sound:
            self._snapshots.judge(self.state)

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
        paths = (path for paths in self.state.undecided.values() for path in paths)
        undecided = (file for path in paths if (file := self.state.files.get(path)) is not None)
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

    # --- seals ----------------------------------------------------------------------------------------

    def _resume(self) -> None:
        """Behind seals: go on from the oldest sound snapshot that reaches beyond them (invariant 9)."""
        seal, self._hidden = self._seal, False
        if seal is None or not self.sound:
            return
        state = self._snapshots.start_beyond(seal.base_offset)
        if state is not None:
            self.state = state
            self._has_dropped = True
            self.starts_at = state.log_end_offset
            self.known_at_start = {
                producer_id: (producer.producer_epoch, producer.coordinator_epoch)
                for producer_id, producer in state.producers.items()
            }
            self._stable = state.last_stable_offset
            return
        self._audit.findings.add(
            "sealed-without-snapshot",
            f"{self.place.prefix}/snapshots/",
            f"no sound snapshot beyond the sealed offset {seal.base_offset} ({self.place} is not judged further)",
            expected="the two newest snapshots to be kept",
            place=self.place,
        )
        self._break()

    def _judge_start(self, entry: Entry) -> None:
        """An entry that the replay's first snapshot holds already: the snapshot ends with one, at its time."""
        last = entry.batches[-1]
        start, time_ms = self.starts_at, self.state.last_append_time
        if last.last_offset >= start:
            seen = f"a snapshot up to offset {start}, inside the entry of {entry.base_offset} to {last.last_offset}"
            self._snapshots.note_start(start, "snapshot-misplaced", seen, "a snapshot between two entries")
            self._break()
        elif last.last_offset == start - 1 and last.append_time != time_ms:
            seen = f"partition: last_append_time {time_ms}"
            self._snapshots.note_start(
                start, "snapshot-differs", seen, f"{last.append_time}, as its last entry gives"
            )

    def _has_illegal_seal(self) -> bool:
        seal = self._seal if self.sound else None
        return seal is not None and not seal.misplaced and seal.base_offset >= self.state.entries_start

    def _judge_sealing(self) -> None:
        """Only what stands in two snapshots may be sealed, and only below an `entries_start` that a trim has set."""
        start = self.state.entries_start
        if self._seal is not None and self._has_illegal_seal():
            self._audit.findings.add(
                "seal-illegal",
                self._seal.key,
                f"a seal at offset {self._seal.base_offset}",
                expected=f"seals below entries_start {start} only, which a trim has to raise before",
                place=self.place,
                offsets=(self._seal.base_offset, self._seal.base_offset),
            )
        if not self.sound or start == 0:
            return
        held = self._snapshots.sound_beyond(start, _SNAPSHOTS_KEPT)
        if held < _SNAPSHOTS_KEPT:
            self._audit.findings.add(
                "snapshots-too-few",
                f"{self.place.prefix}/snapshots/",
                f"{held} sound snapshots beyond entries_start {start}, below which entries may be sealed",
                expected=f"{_SNAPSHOTS_KEPT}: one may be lost, and the sealed rows stand nowhere else",
                place=self.place,
                offsets=(0, start - 1),
            )

    def _file_progress(self, done: int, total: int) -> None:
        if done % PROGRESS_EVERY == 0 or done == total:
            self._audit.progress(f"{self.place} data files", done, total)


def _schema_now(topic: Topic, reader: ObjectReader) -> RecordSchema | None:
    """The versions of the topic's schema that there are by now."""
    changes = SettingsAudit(reader, FindingLog()).of_topic(topic.name, topic.incarnation)
    try:
        return None if topic.schema is None else RecordSchema(topic.schema.versions[0].columns, changes)
    except MalformedError:
        return None
