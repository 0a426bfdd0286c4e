"""The data files that cuts and tables hold though the log does not read them any more: replaced, trimmed, forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from txn_engine.verify.audited_partition import AuditedPartition
from txn_engine.verify.file_table import DataFile, FileTable
from txn_engine.verify.findings import Place
from txn_engine.verify.limits import SNAPSHOT
from txn_engine.verify.objects import ObjectReader
from txn_engine.verify.raw_object import Damaged
from txn_engine.verify.snapshot_audit import snapshot_rows


class Holder(NamedTuple):
    """What reads a partition as it was: the state that a snapshot says, below an offset.

    name: in words. key: the object that says so; it may be gone by now, or what is at `until` ended it.
    """

    snapshot: int
    offset: int
    name: str
    key: str
    until: str = ""


Held = Mapping[Place, tuple[Holder, ...]]


class HeldFiles:
    """Of one partition the files that holders read, and that its log does not list as live."""

    def __init__(self, reader: ObjectReader, place: Place) -> None:
        self._reader = reader
        self._place = place
        self._holders: dict[str, list[Holder]] = {}
        self.files = FileTable()

    def find(self, holders: Iterable[Holder], state: AuditedPartition) -> None:
        """Read the snapshots of these holders. One that is missing or damaged is named by the audits of snapshots, cuts
        and tables.
        """
        by_snapshot: dict[int, list[Holder]] = {}
        for holder in holders:
            by_snapshot.setdefault(holder.snapshot, []).append(holder)
        for snapshot, held_by in sorted(by_snapshot.items()):
            for file in self._live_in(snapshot):
                readers = [each for each in held_by if file.base_offset < each.offset]
                left = state.erased.get(file.data_path, file)
                if readers and left is not None and not _is_read(state, left):
                    self._holders.setdefault(left.data_path, []).extend(readers)
                    if left.data_path not in self.files:
                        self.files.put(left._replace(status="live", died_ms=-1))

    def holder_of(self, path: str) -> str | None:
        """What still reads this file, in words; None where nothing does any more."""
        return next((each.name for each in self._holders.get(path, ()) if self._still_holds(each)), None)

    def _live_in(self, snapshot: int) -> list[DataFile]:
        key = f"{self._place.prefix}/snapshots/{snapshot:020d}.parquet"
        found = self._reader.read(
            key,
            lambda raw: [
                DataFile._make(row)
                for section, row in snapshot_rows(raw.parquet(SNAPSHOT))
                if section == "file"
            ],
        )
        files = [] if found is None or isinstance(found, Damaged) else found
        return [file for file in files if file.status == "live"]

    def _still_holds(self, holder: Holder) -> bool:
        if holder.until and self._reader.read(holder.until, lambda _: True) is not None:
            return False
        return self._reader.read(holder.key, lambda _: True) is not None


def _is_read(state: AuditedPartition, file: DataFile) -> bool:
    """Whether the audit of the log reads this file: one that is live, or that died and is still there."""
    known = state.files.get(file.data_path)
    return known is not None and (known.status == "live" or state.files.is_present(file.data_path))
