"""What changed in one partition, by the lists of files that two cuts keep: pure; it costs what there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from txn_engine.log.cut_format import LogCut
from txn_engine.protocol.partition import PartitionState
from txn_engine.tables.files import PartitionChange, RewriteKind, Rewritten, TableFile, visible_files


@dataclass
class _Group:
    """Files whose offsets overlap, so that some stand in the place of others."""

    removed: list[TableFile] = field(default_factory=list)
    added: list[TableFile] = field(default_factory=list)
    passed: list[TableFile] = field(default_factory=list)
    end: int = -1


def compared(
    partition: int,
    before: PartitionState,
    earlier: LogCut,
    after: PartitionState,
    later: LogCut,
    number: int,
    *,
    is_compacted: bool,
) -> PartitionChange:
    """What `following` finds in the rows between, from the states that the two cuts keep.

    Where files that passed between the two may be forgotten by now, a rewrite counts as one that left records out, and
    hides new ones. A floor is what lets the log forget.
    """
    old = {each.path: each for each in visible_files(partition, before, earlier, number)}
    new = {each.path: each for each in visible_files(partition, after, later, number)}
    removed = [each for path, each in old.items() if path not in new]
    added = [each for path, each in new.items() if path not in old]
    passed = [
        TableFile(partition, dead.log_file, dead.died_ms)
        for dead in after.dead.values()
        if dead.status == "replaced" and earlier.offset <= dead.log_file.base_offset < later.offset
    ]
    appended: list[TableFile] = []
    rewritten = []
    forgets = after.floor != before.floor
    for group in _groups(removed, added, passed):
        if group.removed:
            found = _rewritten(group, after.log_start_offset, is_compacted)
            is_merge = found.kind is RewriteKind.MERGE
            reaches = any(each.log_file.last_offset >= earlier.offset for each in found.added)
            rewritten.append(replace(found, hides=forgets and reaches and not is_merge))
        else:
            appended += group.added
    return PartitionChange(tuple(appended), tuple(rewritten))


def _groups(
    removed: Iterable[TableFile], added: Iterable[TableFile], passed: Iterable[TableFile]
) -> Iterable[_Group]:
    """Files that overlap, in offset order."""
    each_kind = (
        [(file, 0) for file in removed] + [(file, 1) for file in added] + [(file, 2) for file in passed]
    )
    group = _Group()
    for file, kind in sorted(each_kind, key=lambda each: (each[0].log_file.base_offset, each[1])):
        if file.log_file.base_offset > group.end and group.end >= 0:
            yield group
            group = _Group()
        (group.removed, group.added, group.passed)[kind].append(file)
        group.end = max(group.end, file.log_file.last_offset)
    yield group


def _rewritten(group: _Group, log_start: int, is_compacted: bool) -> Rewritten:
    removed = tuple(each.path for each in group.removed)
    if not group.added and all(each.log_file.last_offset < log_start for each in group.removed):
        return Rewritten(RewriteKind.RETENTION, removed, ())
    passing = _outermost(group.passed)
    is_merge = not is_compacted and _extent(group.added) == _extent([*group.removed, *passing])
    kind = RewriteKind.MERGE if is_merge else RewriteKind.COMPACTION
    return Rewritten(kind, removed, tuple(group.added), tuple(passing))


def _outermost(files: Sequence[TableFile]) -> list[TableFile]:
    """Without those that were merged into another one of them, before that was replaced together with older ones."""
    found: list[TableFile] = []
    for each in sorted(files, key=lambda each: (each.log_file.base_offset, -each.log_file.last_offset)):
        if not found or each.log_file.base_offset > found[-1].log_file.last_offset:
            found.append(each)
    return found


def _extent(files: Sequence[TableFile]) -> tuple[int, int, int] | None:
    """The first offset, the last one, and how many records."""
    if not files:
        return None
    logged = [each.log_file for each in files]
    return (
        min(each.base_offset for each in logged),
        max(each.last_offset for each in logged),
        sum(each.record_count for each in logged),
    )
