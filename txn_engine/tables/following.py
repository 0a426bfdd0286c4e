"""What changed in one partition, by the rows of its log between two cuts: pure.

A small replay that knows of the files at the earlier cut nothing but that any file it has not met is one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from txn_engine.log.cut_format import LogCut
from txn_engine.protocol.batches import BatchDescriptor, Control
from txn_engine.protocol.controls import KEEPS_ALL, Erase, Rewrite, Trim, decode_control
from txn_engine.protocol.partition import LogFile
from txn_engine.tables.files import (
    PartitionChange,
    RewriteKind,
    Rewritten,
    TableFile,
    table_path,
    whole_below,
)


@dataclass
class _Group:
    """Rewrites that have files in common: what they replaced, and what of their outputs is live."""

    removed: dict[str, None] = field(default_factory=dict)
    passing: dict[str, TableFile] = field(default_factory=dict)
    added: dict[str, LogFile] = field(default_factory=dict)
    leaves_out: bool = False

    def take(self, other: _Group) -> None:
        """This one and the other are one."""
        self.removed |= other.removed
        self.passing |= other.passing
        self.added |= other.added
        self.leaves_out |= other.leaves_out

    def of_paths(self, partition: int, at: LogCut, number: int) -> Rewritten:
        """What it came to."""
        removed = tuple(table_path(partition, path) for path in self.removed)
        added = whole_below((TableFile(partition, file) for file in self.added.values()), at, number)
        if not added and not self.leaves_out:
            return Rewritten(RewriteKind.RETENTION, removed, ())
        kind = RewriteKind.COMPACTION if self.leaves_out else RewriteKind.MERGE
        return Rewritten(kind, removed, tuple(added), tuple(self.passing.values()))


@dataclass
class Followed:
    """What the rows have told so far. `trimmed_to`: the log start that rows behind the earlier state name."""

    partition: int
    earlier: LogCut
    fresh: dict[str, LogFile] = field(default_factory=dict)
    groups: list[_Group] = field(default_factory=list)
    trimmed_to: int = 0
    _undecided: dict[int, dict[str, LogFile]] = field(default_factory=dict)

    def see(self, row: BatchDescriptor) -> None:
        """The next row of the log, from `earlier.slot` on."""
        if row.control is Control.NONE:
            self._batch(row)
        elif row.control.is_marker:
            decided = self._undecided.pop(row.producer_id, {})
            if row.control is Control.COMMIT:
                self.fresh |= decided
        elif row.control in (Control.REWRITE, Control.TRIM, Control.ERASE):
            value = decode_control(row)
            if isinstance(value, Rewrite):
                self._rewrite(value, row)
            elif isinstance(value, Erase):
                for each in value.files:
                    left = () if each.output is None else (each.output,)
                    if each.is_live:
                        self._rewrite(Rewrite((each.input,), left, tombstones_to=0), row)
            elif isinstance(value, Trim):
                self._trim(value.log_start_offset, row)

    def change(self, later: LogCut, number: int) -> PartitionChange:
        """What it comes to at cut `number`."""
        fresh = (TableFile(self.partition, file) for file in self.fresh.values())
        rewritten = (group.of_paths(self.partition, later, number) for group in self.groups)
        return PartitionChange(
            tuple(whole_below(fresh, later, number)), tuple(each for each in rewritten if each.removed)
        )

    def _batch(self, row: BatchDescriptor) -> None:
        if row.file is None or row.base_offset < self.earlier.offset:
            return
        file = LogFile(
            row.producer_id,
            row.producer_epoch,
            row.base_offset,
            row.last_offset,
            row.record_count,
            row.first_timestamp,
            row.max_timestamp,
            row.file,
        )
        held = self._undecided.setdefault(row.producer_id, {}) if row.is_transactional else self.fresh
        held[row.file.data_path] = file

    def _rewrite(self, value: Rewrite, row: BatchDescriptor) -> None:
        """Of files with new records alone comes such a file. One with a file of the earlier cut is a group."""
        inputs = set(value.inputs)
        fresh = {path: file for path, file in self.fresh.items() if path in inputs}
        taken = [group for group in self.groups if not inputs.isdisjoint(group.added)]
        known = set(fresh).union(*(group.added for group in taken))
        old = [path for path in value.inputs if path not in known]
        if old and row.base_offset < self.earlier.snapshot:
            return  # the earlier cut's own list says so; what is above its offset has inputs that are known
        for path in fresh:
            del self.fresh[path]
        outputs = {output.file.data_path: output for output in value.outputs}
        if not old and not taken:
            self.fresh |= outputs
            return
        group = _Group()
        for each in taken:
            group.take(each)
        self.groups = [each for each in self.groups if each not in taken]
        for path in inputs & group.added.keys():
            del group.added[path]
        group.removed |= dict.fromkeys(old)
        group.passing |= {
            path: TableFile(self.partition, file, row.append_time) for path, file in fresh.items()
        }
        group.added |= outputs
        group.leaves_out |= value.tombstones_to != KEEPS_ALL
        self.groups.append(group)

    def _trim(self, log_start: int, row: BatchDescriptor) -> None:
        if row.base_offset >= self.earlier.snapshot:
            self.trimmed_to = max(self.trimmed_to, log_start)
        self.fresh = {path: file for path, file in self.fresh.items() if file.last_offset >= log_start}
        for group in self.groups:
            left = {path: file for path, file in group.added.items() if file.last_offset >= log_start}
            if len(left) < len(group.added):
                group.leaves_out = bool(left)  # else all of it is gone, and so is what was left out
            group.added = left


def follow(rows: Iterable[BatchDescriptor], partition: int, earlier: LogCut) -> Followed:
    """What these rows tell, all from `earlier.slot` up to where the later cut's state ends."""
    followed = Followed(partition, earlier)
    for row in rows:
        followed.see(row)
    return followed
