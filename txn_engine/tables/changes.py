"""What changed in a topic's visible files between two cuts, and in which steps a table may show it.

Visible at a cut are the files that are live and lie wholly below its offset. Additions lie at or above the earlier
cut's offset, removals are rows between the two states: so what is read is what is new (`following`). Where those rows
are sealed, the lists that the two cuts keep are compared (`comparing`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import Final

from storage import LogKeys
from txn_engine.errors import InvalidRequestError, OutcomeUnknownError
from txn_engine.log.as_of import EarlierLog, missing_entry
from txn_engine.log.cut_format import LogCut
from txn_engine.log.entry_format import USER_LOG
from txn_engine.log.logs import Logs
from txn_engine.log.topic_cut import TopicCut
from txn_engine.log.topics import Topic
from txn_engine.protocol.batches import BatchDescriptor
from txn_engine.protocol.partition import PartitionState
from txn_engine.reasons import Reason
from txn_engine.tables.comparing import compared
from txn_engine.tables.files import (
    NOWHERE,
    PartitionChange,
    RewriteKind,
    Rewritten,
    TableFile,
    visible_files,
)
from txn_engine.tables.following import Followed, follow
from txn_engine.unreadable import one_place


class StepKind(StrEnum):
    """What a step does to a table's records, by Iceberg's words: adds some; none; changes some; takes some away."""

    APPEND = "append"
    REPLACE = "replace"
    OVERWRITE = "overwrite"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Step:
    """Files that a table adds and removes at once, removed ones by their paths.

    A reader that follows a table is given what is added by APPEND, and nothing else: so new records are in such a step
    alone, and each once.
    """

    kind: StepKind
    added: tuple[TableFile, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """A topic's visible files between two cuts, by partition; `earlier` is None where there was none. `later` knows its
    log starts.
    """

    earlier: TopicCut | None
    later: TopicCut
    partitions: tuple[PartitionChange, ...]

    @property
    def added(self) -> list[TableFile]:
        """Files that are visible at the later cut, and were not at the earlier one."""
        appended = (file for partition in self.partitions for file in partition.appended)
        return [*appended, *(file for each in self._rewritten() for file in each.added)]

    @property
    def passing(self) -> tuple[TableFile, ...]:
        """Files with new records that are visible at neither cut: see `steps`."""
        return tuple(each for rewritten in self._rewritten() for each in rewritten.passing)

    def steps(self, kept: Collection[str]) -> list[Step]:
        """How a table gets from the earlier cut to the later one: up to four steps, in an order that shows no record
        twice, and no transaction by half; none that is empty.

        kept: paths of `passing` files that stay as long as the table's states that name them. A merge of old files with
        such ones is shown as what it was: the new ones are appended first, then all are replaced. Where one is gone all
        is a single OVERWRITE, for its records come with the merged file, and who follows the table has to be told.
        """
        appended = [each for partition in self.partitions for each in partition.appended]
        every = list(self._rewritten())
        if any(each.hides or any(file.path not in kept for file in each.passing) for each in every):
            whole = _Gathered(appended)
            for each in every:
                whole.take(each)
            return [whole.step(StepKind.OVERWRITE)]
        by_kind = {kind: _Gathered() for kind in _STEP_OF.values()}
        for each in every:
            appended += each.passing
            by_kind[_STEP_OF[each.kind]].take(each, [file.path for file in each.passing])
        steps = [
            Step(StepKind.APPEND, tuple(appended), ()),
            *(found.step(kind) for kind, found in by_kind.items()),
        ]
        return [step for step in steps if step.added or step.removed]

    def _rewritten(self) -> Iterator[Rewritten]:
        return chain.from_iterable(partition.rewritten for partition in self.partitions)


_STEP_OF: Final = {
    RewriteKind.MERGE: StepKind.REPLACE,
    RewriteKind.COMPACTION: StepKind.OVERWRITE,
    RewriteKind.RETENTION: StepKind.DELETE,
}
"""In the order of the steps."""


class _Gathered:
    """Rewrites that are shown in one step."""

    def __init__(self, added: Iterable[TableFile] = ()) -> None:
        self._added = list(added)
        self._removed: list[str] = []

    def take(self, rewritten: Rewritten, more: Iterable[str] = ()) -> None:
        self._added += rewritten.added
        self._removed += [*rewritten.removed, *more]

    def step(self, kind: StepKind) -> Step:
        return Step(kind, tuple(self._added), tuple(self._removed))


class Visible:
    """The files of one topic at its cuts, and what changed between two."""

    def __init__(self, logs: Logs, topic: Topic) -> None:
        self._logs = logs
        self._topic = topic

    def at(self, cut: TopicCut) -> list[TableFile]:
        """All visible files, by partition and offset: reads the lists that the cut keeps. Raises
        `ConcurrentTransactionsError` where the cut goes through a file.
        """
        states = self._logs.workers.map(self._state, range(len(cut.partitions)), cut.partitions)
        return [
            file
            for partition, (state, at) in enumerate(zip(states, cut.partitions, strict=True))
            for file in visible_files(partition, state, at, cut.number)
        ]

    def erased_at(self, cut: TopicCut) -> str | None:
        """A file that is visible at the cut and of which records were erased since; None where there is none."""
        for partition, at in enumerate(cut.partitions):
            erased = self._log(partition).state_now().erased
            for file in self._state(partition, at).live.values() if erased else ():
                if file.file.data_path in erased:
                    return f"{self._topic.prefix(partition)}/{file.file.data_path}"
        return None

    def changes(self, earlier: TopicCut | None, later: TopicCut) -> Changes:
        """What changed from the earlier cut to the later one. Raises `InvalidRequestError` where that one is not the
        later one in every partition, `ConcurrentTransactionsError` where it goes through a file.

        Where the earlier one does not know its log starts, its list is read for each trim.
        """
        new = later.partitions
        old = () if earlier is None else earlier.partitions
        ways = list(zip((*old, *[NOWHERE] * (len(new) - len(old))), new, strict=False))
        if earlier is not None:
            self._check_order(earlier, later, ways)
        starts = [*(() if earlier is None else earlier.log_starts), *[0] * len(new)][: len(new)]
        reads = [
            partial(self._change, partition, before, after, later.number, start)
            for partition, ((before, after), start) in enumerate(zip(ways, starts, strict=True))
        ]
        found = list(self._logs.workers.map(lambda read: read(), reads))
        ends = tuple(end for _, end in found)
        return Changes(earlier, replace(later, log_starts=ends), tuple(change for change, _ in found))

    def _check_order(self, earlier: TopicCut, later: TopicCut, ways: Sequence[tuple[LogCut, LogCut]]) -> None:
        behind = [
            partition
            for partition, (before, after) in enumerate(ways)
            if after.offset < before.offset or after.snapshot < before.snapshot
        ]
        is_smaller = len(later.partitions) < len(earlier.partitions)
        if later.number < earlier.number or is_smaller or behind:
            where = f"{self._topic.name}-{behind[0]}" if behind else self._topic.name
            raise InvalidRequestError(
                f"cut {later.number} after cut {earlier.number}",
                place=where,
                expected=f"one that is later than cut {earlier.number} in every partition",
                action="publish at a newer cut of all topics",
                reason=Reason.CUTS_OUT_OF_ORDER,
            )

    # --- one partition --------------------------------------------------------------------------------------

    def _change(
        self, partition: int, before: LogCut, after: LogCut, number: int, log_start: int
    ) -> tuple[PartitionChange, int]:
        """What changed, and where the partition begins by then."""
        if before == after:
            return PartitionChange(), log_start
        with one_place(self._topic.name, partition):
            if before.snapshot == 0:
                state = self._state(partition, after)
                return PartitionChange(
                    tuple(visible_files(partition, state, after, number))
                ), state.log_start_offset
            try:
                followed = follow(self._rows(partition, before, after), partition, before)
            except OutcomeUnknownError:  # sealed
                return self._compared(partition, before, after, number)
            change = followed.change(after, number)
            if followed.trimmed_to > log_start:
                change = self._with_trimmed(change, followed, number)
            return change, max(log_start, followed.trimmed_to)

    def _rows(self, partition: int, before: LogCut, after: LogCut) -> Iterator[BatchDescriptor]:
        keys = self._keys(partition)
        end = before.slot
        for slot in self._log(partition).slots(before.slot):
            if slot.base_offset >= after.snapshot:
                break
            end = slot.end
            yield from slot.batches
        if end < after.snapshot:
            raise missing_entry(keys, end)

    def _with_trimmed(self, change: PartitionChange, followed: Followed, number: int) -> PartitionChange:
        """Also the files of the earlier cut that lie below the new log start: its list names them."""
        state = self._state(followed.partition, followed.earlier)
        gone = {path for rewritten in change.rewritten for path in rewritten.removed}
        trimmed = tuple(
            file.path
            for file in visible_files(followed.partition, state, followed.earlier, number)
            if file.log_file.last_offset < followed.trimmed_to and file.path not in gone
        )
        if not trimmed:
            return change
        retention = Rewritten(RewriteKind.RETENTION, trimmed, ())
        return replace(change, rewritten=(*change.rewritten, retention))

    def _compared(
        self, partition: int, before: LogCut, after: LogCut, number: int
    ) -> tuple[PartitionChange, int]:
        old, new = self._state(partition, before), self._state(partition, after)
        is_compacted = self._topic.is_compacted
        change = compared(partition, old, before, new, after, number, is_compacted=is_compacted)
        return change, new.log_start_offset

    def _keys(self, partition: int) -> LogKeys:
        return LogKeys(self._topic.prefix(partition))

    def _log(self, partition: int) -> EarlierLog:
        return EarlierLog(self._logs.tools, self._keys(partition), USER_LOG)

    def _state(self, partition: int, at: LogCut) -> PartitionState:
        return self._log(partition).snapshot(at.snapshot)
