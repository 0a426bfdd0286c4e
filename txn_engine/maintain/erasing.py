"""Erasing records from one partition, by their offsets: from every file that holds them (PROTOCOL.md, section 6).

A record keeps its offset, so the offsets say which of a file's records go, whichever file it is: live, replaced by a
merge, aborted, or kept for a cut alone. The log is told what stands for each; only then may a file be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from storage import ObjectInfo, stored_checksum
from txn_engine.errors import ConcurrentTransactionsError, CorruptObjectError, InvalidRequestError
from txn_engine.log.cuts import Holds
from txn_engine.log.erasures import Offsets
from txn_engine.log.topics import Topic
from txn_engine.maintain.merging import FileMerger
from txn_engine.maintain.target import Target
from txn_engine.protocol.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, FileRef
from txn_engine.protocol.file_names import DataFileName, parse_data_path
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.protocol.proposals import Appended, EraseProposal
from txn_engine.schemas.layout import OFFSET

_TRIES: Final = 50
_FILES_A_ROW: Final = 200


@dataclass(slots=True)
class ErasedFrom:
    """What was done in one partition: files of which records were erased, by what they were, and what was deleted."""

    live: int = 0
    dead: int = 0
    records: int = 0
    deleted: int = 0
    deleted_bytes: int = 0

    def add(self, other: ErasedFrom) -> None:
        """Count what was done elsewhere too."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may hold records that are to go. status: `live`, `replaced`, `aborted`, or `kept`: the log does not
    list it any more, and a cut or a table does.
    """

    file: LogFile
    status: str


def candidates(target: Target, state: PartitionState, holds: Holds) -> Iterator[Candidate]:
    """Every file of which the log, a cut or a table can tell the records' offsets, decided and not erased yet; it may
    be gone by now unless it is live.
    """
    stable = state.last_stable_offset
    yield from (
        Candidate(file, "live") for _, file in sorted(state.live.items()) if file.last_offset < stable
    )
    for path, dead in sorted(state.dead.items()):
        if path not in state.erased:
            yield Candidate(dead.log_file, dead.status)
    forgotten = {
        left.file.data_path: left
        for left in state.erased.values()
        if left is not None and left.file.data_path not in state.named
    }
    if state.floor:  # without one nothing was ever forgotten
        unknown = [each for each in target.present() if each.data_path not in state.named]
        forgotten |= target.files_as_listed(holds, unknown)
    yield from (
        Candidate(file, "kept") for path, file in sorted(forgotten.items()) if path not in state.erased
    )


def is_overtaken(target: Target, state: PartitionState) -> bool:
    """Whether others have erased from the partition since this state: a file that was live may be gone at once then."""
    return not set(target.read_back().erased) <= set(state.erased)


class PartitionEraser:
    """The erasure of the records at these offsets from one partition. May be killed anywhere and run by several at
    once: what is left to do is what the store says.
    """

    def __init__(self, target: Target, topic: Topic, erasure: int, offsets: Offsets) -> None:
        self._target = target
        self._topic = topic
        self._erasure = erasure
        self._offsets = offsets
        self._merger = FileMerger(target.objects, target.tools.executor, topic, target.partition)
        self._clear: set[str] = set()  # files that hold none of the records
        self.done = ErasedFrom()

    def run(self) -> None:
        """Let the log say of each file what stands for it. Raises `ConcurrentTransactionsError` where others were
        quicker each time.
        """
        for _ in range(_TRIES):
            state = self._target.read_back()
            holds = self._target.holds()
            try:
                found = [each for each in candidates(self._target, state, holds) if self._is_to_go(each)]
            except CorruptObjectError:
                if not is_overtaken(self._target, state):
                    raise
                continue
            if not found:
                return
            for at in range(0, len(found), _FILES_A_ROW):
                if not self._erase(found[at : at + _FILES_A_ROW], state, holds):
                    break
        raise ConcurrentTransactionsError(
            f"other maintenance was quicker {_TRIES} times",
            actor="erase",
            place=f"{self._topic.name}-{self._target.partition}",
            action="run it again: it goes on",
        )

    def _is_to_go(self, candidate: Candidate) -> bool:
        """Whether it holds one of the records; what is gone holds none."""
        file, path = candidate.file, candidate.file.file.data_path
        first, behind = np.searchsorted(self._offsets, [file.base_offset, file.last_offset + 1])
        if first == behind or path in self._clear:
            return False
        if candidate.status != "live" and not self._target.objects.exists(self._key(path)):
            return False
        try:
            if not self._staying(file).all():
                return True
        except CorruptObjectError:
            if candidate.status == "live" or self._target.objects.exists(self._key(path)):
                raise
            return False  # clean-up was quicker
        self._clear.add(path)
        return False

    def _staying(self, file: LogFile) -> NDArray[np.bool_]:
        tables = (table for _, tables in self._merger.read([file], [OFFSET]) for table in tables)
        parts = [np.isin(table.column(OFFSET).to_numpy(), self._offsets) for table in tables]
        return ~np.concatenate(parts) if parts else np.empty(0, np.bool_)

    def _erase(self, found: Sequence[Candidate], state: PartitionState, holds: Holds) -> bool:
        """Append a row for these; False where one of them is not any more what it was."""
        dead = [parse_data_path(each.file.file.data_path) for each in found if each.status == "replaced"]
        held = self._target.files_held(holds, dead, state.erased)
        pairs: list[tuple[LogFile, LogFile | None]] = []
        try:
            for each in found:
                pairs.append((each.file, self._left(each, state, holds.is_open, held)))  # noqa: PERF401 -- as far as it came
        except CorruptObjectError:
            if all(self._target.objects.exists(self._key(each.file.file.data_path)) for each in found):
                raise
            return self._taken_back(pairs)
        try:
            verdict = self._target.log.append_one(EraseProposal(self._erasure, tuple(pairs)))
        except InvalidRequestError:
            return self._taken_back(pairs)
        if isinstance(verdict, Appended):
            self._count(found, pairs)
        return True

    def _taken_back(self, pairs: Sequence[tuple[LogFile, LogFile | None]]) -> bool:
        self._target.take_back([left for _, left in pairs if left is not None])
        return False

    def _left(
        self, candidate: Candidate, state: PartitionState, is_open: bool, held: frozenset[str]
    ) -> LogFile | None:
        """What stands for the file; a dead one that nobody needs has nothing in its place."""
        file = candidate.file
        is_needed = candidate.status in ("live", "kept") or (
            candidate.status == "replaced" and (is_open or file.file.data_path in held)
        )
        if not is_needed:
            return None
        staying = self._staying(file)
        return self._upload(file, staying, state.log_end_offset) if staying.any() else None

    def _upload(self, file: LogFile, staying: NDArray[np.bool_], log_end: int) -> LogFile:
        name = DataFileName(log_end, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, self._target.tools.new_id())
        target = self._target
        merger = FileMerger.of_its_columns(
            target.objects, target.tools.executor, self._topic, target.partition, file
        )
        merged = merger.merge([file], name.write_id, staying)
        key = self._key(name.data_path)
        if not self._target.objects.create(key, merged.data, max_bytes=len(merged.data)).won:
            raise CorruptObjectError("another object", place=key, expected="a fresh name for every data file")
        return LogFile(
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            merged.first_offset,
            merged.last_offset,
            merged.record_count,
            merged.first_timestamp,
            merged.max_timestamp,
            FileRef(name.data_path, len(merged.data), stored_checksum(merged.data)),
        )

    def _count(
        self,
        found: Sequence[Candidate],
        pairs: Sequence[tuple[LogFile, LogFile | None]],
    ) -> None:
        for candidate, (file, left) in zip(found, pairs, strict=True):
            if candidate.status == "live":
                self.done.live += 1
                self.done.records += file.record_count - (0 if left is None else left.record_count)
            else:
                self.done.dead += 1

    def _key(self, data_path: str) -> str:
        return f"{self._target.keys.prefix}/{data_path}"


def delete_erased(target: Target, done: ErasedFrom) -> None:
    """Delete the files of which records were erased: the log says what stands for them."""
    for info in erased_files(target):
        target.objects.remove(info.key)
        done.deleted += 1
        done.deleted_bytes += info.size


def erased_files(target: Target) -> Iterator[ObjectInfo]:
    """The files of which records were erased, as the log says, and that are there still."""
    erased = target.read_back().erased
    if not erased:
        return
    for info, segment in target.objects.ours(target.keys.data_prefix, target.keys.parse_data):
        if f"data/{segment}" in erased:
            yield info
