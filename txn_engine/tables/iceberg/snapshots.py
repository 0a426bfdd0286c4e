"""A version's steps to snapshots: manifests that stay, that are written anew without some files, and that are new.

So that a publish costs what is new, manifests are put together by sizes: 32 of less than 32 files become one, and so do
those of up to 1,024 when they have 2,048 files together; larger ones stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import UNASSIGNED_SEQ, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.types import IntegerType, LongType

from txn_engine.errors import CorruptObjectError
from txn_engine.protocol.file_names import parse_data_path
from txn_engine.tables.changes import Step
from txn_engine.tables.files import TableFile
from txn_engine.tables.iceberg.manifests import Manifests

MANIFEST_FILES: Final = 2_048
SMALL_FILES: Final = 32
LARGE_FILES: Final = 1_024
TOGETHER: Final = 32
_TOTALS: Final = ("total-records", "total-data-files", "total-files-size")


@dataclass
class _Count:
    """Files, their records and their bytes."""

    files: int = 0
    records: int = 0
    bytes: int = 0

    def add(self, records: int, size: int) -> None:
        self.files += 1
        self.records += records
        self.bytes += size


@dataclass
class SnapshotWriter:
    """Makes the snapshots of one version, each on top of the one before.

    manifests: of the table's last snapshot. totals: of that one's summary. sequence: its number, which is its id too.
    schema_id: the version of the topic's schema.
    """

    store: Manifests
    version: int
    cut: int
    sequence: int
    parent: int | None
    manifests: list[ManifestFile]
    totals: dict[str, int]
    location: str
    schema_id: int = 0
    made: list[dict[str, Any]] = field(default_factory=list)

    def write(self, step: Step) -> None:
        """Put what one step needs but its snapshot, which is `made`."""
        self.sequence += 1
        added, removed = _Count(), _Count()
        stay = [
            each for each in self.manifests if _live(each)
        ]  # what the last snapshot left empty said so there
        written: list[ManifestFile] = []
        if step.removed:
            stay, written = self._without(stay, set(step.removed), removed)
        for part in _chunks(step.added):
            for each in part:
                added.add(each.log_file.record_count, each.log_file.file.data_bytes)
            entries = (self.store.added(file, self.sequence) for file in part)
            written.append(self.store.write(self.version, self.sequence, entries))
        self.manifests = [*self._merged(stay), *written]
        self._finish(step, added, removed)

    def _finish(self, step: Step, added: _Count, removed: _Count) -> None:
        changes = (added.records - removed.records, added.files - removed.files, added.bytes - removed.bytes)
        self.totals = {
            name: self.totals.get(name, 0) + change for name, change in zip(_TOTALS, changes, strict=True)
        }
        uri = self.store.write_list(self.version, self.sequence, self.parent, self.manifests)
        said = {
            "added-data-files": added.files,
            "added-records": added.records,
            "added-files-size": added.bytes,
            "deleted-data-files": removed.files,
            "deleted-records": removed.records,
            "removed-files-size": removed.bytes,
        }
        summary = {
            "operation": step.kind.value,
            **{name: str(number) for name, number in said.items() if number},
            **{name: str(number) for name, number in self.totals.items()},
            **dict.fromkeys(("total-delete-files", "total-position-deletes", "total-equality-deletes"), "0"),
            "txn-engine.cut": str(self.cut),
        }
        snapshot = {
            "snapshot-id": self.sequence,
            "sequence-number": self.sequence,
            "summary": summary,
            "manifest-list": uri,
            "schema-id": self.schema_id,
        }
        if self.parent is not None:
            snapshot["parent-snapshot-id"] = self.parent
        self.made.append(snapshot)
        self.parent = self.sequence
        for manifest in self.manifests:  # as the list has them: what was new has its sequence number by now
            if manifest.sequence_number == UNASSIGNED_SEQ:
                manifest.sequence_number = self.sequence
            if manifest.min_sequence_number == UNASSIGNED_SEQ:
                manifest.min_sequence_number = self.sequence

    # --- files that go --------------------------------------------------------------------------------------

    def _without(
        self, manifests: Sequence[ManifestFile], paths: set[str], removed: _Count
    ) -> tuple[list[ManifestFile], list[ManifestFile]]:
        """Those that have none of the files, and those that were written anew; `paths` is used up."""
        rewritten: dict[str, ManifestFile] = {}
        for manifest in manifests:
            if not _may_have(manifest, paths):
                continue
            entries = self.store.entries(manifest)
            gone = {path for entry in entries if (path := self.store.path_of(entry)) in paths}
            if gone:
                paths -= gone
                for entry in entries:
                    if self.store.path_of(entry) in gone:
                        removed.add(entry.data_file.record_count, entry.data_file.file_size_in_bytes)
                again = (self._again(entry, gone) for entry in entries)
                rewritten[manifest.manifest_path] = self.store.write(self.version, self.sequence, again)
        if paths:
            raise CorruptObjectError(
                f"{len(paths)} files that are not in the table, {min(paths)!r} the first",
                place=self.location,
                expected="files that were published before they were replaced",
                action="unpublish the table, then publish it anew; the topic itself is untouched",
            )
        return [each for each in manifests if each.manifest_path not in rewritten], list(rewritten.values())

    def _again(self, entry: ManifestEntry, gone: set[str]) -> ManifestEntry:
        if self.store.path_of(entry) in gone:
            return _with_status(entry, ManifestEntryStatus.DELETED, self.sequence)
        return _with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id)

    # --- manifests put together -----------------------------------------------------------------------------

    def _merged(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        small = [each for each in manifests if _live(each) < SMALL_FILES]
        medium = [each for each in manifests if SMALL_FILES <= _live(each) < LARGE_FILES]
        for group in (small, medium):
            if len(group) >= TOGETHER or sum(map(_live, group)) >= MANIFEST_FILES:
                together = {each.manifest_path for each in group}
                rest = [each for each in manifests if each.manifest_path not in together]
                return [*rest, *self._together(group)]
        return manifests

    def _together(self, group: Sequence[ManifestFile]) -> Iterator[ManifestFile]:
        entries = [entry for manifest in group for entry in self.store.entries(manifest)]
        for start in range(0, len(entries), 2 * MANIFEST_FILES):
            part = entries[start : start + 2 * MANIFEST_FILES]
            again = (_with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id) for entry in part)
            yield self.store.write(self.version, self.sequence, again)


def _with_status(entry: ManifestEntry, status: ManifestEntryStatus, snapshot: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def _live(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _chunks(files: Sequence[TableFile]) -> Iterator[Sequence[TableFile]]:
    for start in range(0, len(files), MANIFEST_FILES):
        yield files[start : start + MANIFEST_FILES]


def _may_have(manifest: ManifestFile, paths: set[str]) -> bool:
    """Whether it may have one of the files, by partition and by the log's end when a producer's upload began: its first
    offset is not below that.
    """
    partitions = manifest.partitions or ()
    if len(partitions) != 2:
        return True
    lowest, highest, last = partitions[0].lower_bound, partitions[0].upper_bound, partitions[1].upper_bound
    if lowest is None or highest is None or last is None:
        return True
    first_partition: Any = from_bytes(IntegerType(), lowest)
    last_partition: Any = from_bytes(IntegerType(), highest)
    last_offset: Any = from_bytes(LongType(), last)
    for path in paths:
        folder, _, data_path = path.partition("/")
        name = parse_data_path(data_path)
        is_there = first_partition <= int(folder) <= last_partition
        if is_there and (name.producer_id < 0 or name.log_end <= last_offset):
            return True
    return False
