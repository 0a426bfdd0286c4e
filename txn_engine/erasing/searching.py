"""Looking for the records: in every file of a partition, once, by the predicate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage import open_parquet
from txn_engine.erasing.matching import Matcher
from txn_engine.erasing.report import PartitionFound
from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.log.data_files import Chosen, choose, read_data_file, version_of
from txn_engine.log.erasures import Offsets
from txn_engine.log.objects import store_errors
from txn_engine.log.topics import Topic
from txn_engine.maintain.erasing import candidates
from txn_engine.maintain.target import Target
from txn_engine.protocol.file_names import DataFileName, parse_data_path
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.schemas.layout import OFFSET, PARTITION, TIMESTAMP

_UNNAMED_MAX: Final = 1 << 31


@dataclass(slots=True)
class Found:
    """What one partition has of the records. offsets: of those below the last stable offset, in whichever files.

    later: how many there are at or above it, of those that were there at the first look, whatever became of them since.
    log_end: of that look. unnamed: uploads that hold some, and `unread` those that nobody can read. uploads: those that
    were unnamed at any look.
    """

    partition: int
    searched_to: int
    offsets: Offsets
    live_files: list[str] = field(default_factory=list)
    dead_files: list[str] = field(default_factory=list)
    records: int = 0
    all_records: int = 0
    later: int = 0
    unnamed: list[DataFileName] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    log_end: int = 0
    uploads: set[str] = field(default_factory=set)

    def told(self) -> PartitionFound:
        """For the report."""
        return PartitionFound(
            self.partition,
            self.searched_to,
            self.records,
            len(self.live_files),
            len(self.dead_files),
            len(self.unnamed),
            self.all_records,
        )


class Searcher:
    """Looks for the records in one partition."""

    def __init__(self, target: Target, topic: Topic, matcher: Matcher) -> None:
        self._target = target
        self._topic = topic
        self._matcher = matcher

    def search(self) -> Found:
        """Every file that there is. Raises where one that readers need cannot be read: what it holds nobody knows."""
        state = self._target.read_back()
        holds = self._target.holds()
        found = Found(self._target.partition, state.last_stable_offset, np.empty(0, np.int64))
        found.log_end = state.log_end_offset
        chosen: list[Offsets] = []
        for candidate in candidates(self._target, state, holds):
            file, path = candidate.file, candidate.file.file.data_path
            offsets = self._offsets(file, must_be_there=candidate.status == "live")
            if candidate.status == "live":
                found.all_records += file.record_count
                found.records += len(offsets)
            if len(offsets):
                (found.live_files if candidate.status == "live" else found.dead_files).append(path)
                chosen.append(offsets)
        if chosen:
            found.offsets = np.unique(np.concatenate(chosen))
        self._look_later(state, found)
        self._look_at_unnamed(state, found)
        return found

    def _look_later(self, state: PartitionState, found: Found) -> None:
        dead = {path: each.log_file for path, each in state.dead.items() if path not in state.erased}
        live = {file.file.data_path: file for file in (*state.live.values(), *state.undecided.values())}
        for path, file in (dead | live).items():
            was_there = file.last_offset >= found.searched_to and file.base_offset < found.log_end
            if was_there or path in found.uploads:
                offsets = self._offsets(file, must_be_there=False)
                found.later += int(np.count_nonzero(offsets >= found.searched_to))

    def look_again(self, found: Found) -> None:
        """What is there by now of uploads that no entry named, and of records that were not decided."""
        found.later, found.unnamed, found.unread = 0, [], []
        state = self._target.read_back()
        self._look_later(state, found)
        self._look_at_unnamed(state, found)

    def _look_at_unnamed(self, state: PartitionState, found: Found) -> None:
        listed = {left.file.data_path for left in state.erased.values() if left is not None}
        keys = self._target.keys
        for info, segment in self._target.objects.ours(keys.data_prefix, keys.parse_data):
            path = f"data/{segment}"
            try:
                name = parse_data_path(path)
            except InvalidRequestError:
                continue  # not ours
            if path in state.named or path in state.erased or path in listed:
                continue
            try:
                if self._matches_unnamed(info.key, info.size):
                    found.unnamed.append(name)
                    found.uploads.add(path)
            except CorruptObjectError:
                found.unread.append(path)

    def _matches_unnamed(self, key: str, size: int) -> bool:
        """Whether an upload holds one of the records. Its offsets nobody knows: they are null."""
        data = self._target.objects.find(key, max_bytes=max(size, 1))
        if data is None:
            return False
        wanted = [name for name in self._matcher.columns if name not in (OFFSET, PARTITION)] or [TIMESTAMP]
        found: list[Chosen] = []

        def stored(metadata: Mapping[str, str]) -> list[str]:
            version = version_of(metadata, key)
            topic = self._topic
            found.append(choose(topic.schemas, version, wanted, topic=topic.name, deltas=False))
            return found[0].stored

        with store_errors():
            opened = open_parquet(data, key=key, kind="data", columns=stored)
        (chosen,) = found
        if not set(chosen.stored) <= set(opened.file.schema_arrow.names):
            raise CorruptObjectError("other columns than the topic's", place=key)
        for batch in opened.file.iter_batches(columns=chosen.stored):
            read = pa.Table.from_batches([batch])
            made = [read.column(name) if name == TIMESTAMP else chosen.column(read, name) for name in wanted]
            if self._matcher.matches(self._with_own(pa.table(made, names=wanted))).any():
                return True
        return False

    def _with_own(self, records: pa.Table) -> pa.Table:
        count = records.num_rows
        if PARTITION in self._matcher.columns:
            records = records.append_column(PARTITION, pa.array([self._target.partition] * count, pa.int32()))
        if OFFSET in self._matcher.columns:
            records = records.append_column(OFFSET, pa.nulls(count, pa.int64()))
        return records

    def _offsets(self, file: LogFile, *, must_be_there: bool) -> Offsets:
        """The offsets of the records in one file. What is dead may be gone at any time."""
        try:
            parts = list(self._chosen(file))
        except CorruptObjectError:
            key = f"{self._target.keys.prefix}/{file.file.data_path}"
            if must_be_there or self._target.objects.exists(key):
                raise
            return np.empty(0, np.int64)
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _chosen(self, file: LogFile) -> Iterator[NDArray[np.int64]]:
        columns = list(dict.fromkeys([*self._matcher.columns, OFFSET]))
        target = self._target
        for table in read_data_file(
            target.objects,
            target.keys.prefix,
            file,
            self._topic.schemas,
            target.partition,
            columns,
            topic=self._topic.name,
        ):
            mask = self._matcher.matches(
                table.select(list(self._matcher.columns)) if self._matcher.columns else table
            )
            yield table.column(OFFSET).to_numpy()[mask]
