"""Looking for the records: in every file of a partition, once, by the predicate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from storage import open_parquet
from txn_engine.erasing.matching import Matcher
from txn_engine.erasing.report import PartitionFound
from txn_engine.errors import ConcurrentTransactionsError, CorruptObjectError, InvalidRequestError
from txn_engine.log.data_files import Chosen, begun, choose, read_data_file, version_of
from txn_engine.log.erasures import Offsets
from txn_engine.log.objects import store_errors
from txn_engine.log.topics import Topic
from txn_engine.maintain.erasing import candidates, is_overtaken
from txn_engine.maintain.merging import begun_ahead
from txn_engine.maintain.target import Target
from txn_engine.protocol.file_names import DataFileName, parse_data_path
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.schemas.layout import OFFSET, PARTITION, TIMESTAMP

_TRIES: Final = 10
_ROWS_ASKED: Final = 1 << 17
_BYTES_ASKED: Final = 16 << 20


@dataclass(slots=True)
class Found:
    """What one partition has of the records. offsets: of those below the last stable offset, in whichever files.

    later: how many there are at or above it, of those that were there at the first look, whatever became of them since.
    log_end: of that look. unnamed: uploads that hold some, and `unread` those that nobody can read. uploads: those that
    were unnamed at any look. kept: files that a cut or a table lists, and that the log has forgotten.
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
    kept: frozenset[str] = frozenset()

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
        self._topic = topic.held
        self._matcher = matcher

    def search(self) -> Found:
        """Every file that there is. Raises where one that readers need cannot be read: what it holds nobody knows."""
        for _ in range(_TRIES):
            state = self._target.read_back()
            try:
                return self._search(state)
            except CorruptObjectError:
                if not is_overtaken(self._target, state):
                    raise
        raise ConcurrentTransactionsError(
            f"other erasures were quicker {_TRIES} times",
            actor="erase",
            place=f"{self._target.topic}-{self._target.partition}",
            action="run it again when they have ended",
        )

    def _search(self, state: PartitionState) -> Found:
        holds = self._target.holds()
        found = Found(self._target.partition, state.last_stable_offset, np.empty(0, np.int64))
        found.log_end = state.log_end_offset
        chosen: list[Offsets] = []
        every = list(candidates(self._target, state, holds))
        live = frozenset(each.file.file.data_path for each in every if each.status == "live")
        found.kept = frozenset(each.file.file.data_path for each in every if each.status == "kept")
        for file, offsets in self._offsets([each.file for each in every], must_be_there=live):
            path = file.file.data_path
            if path in live:
                found.all_records += file.record_count
                found.records += len(offsets)
            if len(offsets):
                (found.live_files if path in live else found.dead_files).append(path)
                chosen.append(offsets)
        if chosen:
            found.offsets = np.unique(np.concatenate(chosen))
        self._look_later(state, found)
        self._look_at_unnamed(state, found)
        return found

    def _look_later(self, state: PartitionState, found: Found) -> None:
        dead = {path: each.log_file for path, each in state.dead.items() if path not in state.erased}
        live = {file.file.data_path: file for file in (*state.live.values(), *state.undecided.values())}
        asked = [
            file
            for path, file in (dead | live).items()
            if (file.last_offset >= found.searched_to and file.base_offset < found.log_end)
            or path in found.uploads
        ]
        for _, offsets in self._offsets(asked):
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
            if path in state.named or path in state.erased or path in listed or path in found.kept:
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

    def _offsets(
        self, files: Sequence[LogFile], *, must_be_there: frozenset[str] = frozenset()
    ) -> Iterator[tuple[LogFile, Offsets]]:
        """The offsets of the records in each file; a few are read ahead. What is dead may be gone at any time: then
        none. must_be_there: the paths of those that may not.
        """
        asked = _Asked(self._matcher)
        found: list[tuple[LogFile, list[Offsets]]] = []
        submit = self._target.tools.executor.submit
        for file, future in begun_ahead(files, lambda each: submit(self._read, each)):
            parts: list[Offsets] = []
            try:
                for table in future.result():
                    asked.add(table, parts)
            except CorruptObjectError:
                path = file.file.data_path
                if path in must_be_there or self._target.objects.exists(f"{self._target.keys.prefix}/{path}"):
                    raise
                parts = []
            found.append((file, parts))
        asked.answer()
        for file, parts in found:
            yield file, np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _read(self, file: LogFile) -> Iterator[pa.Table]:
        columns = list(dict.fromkeys([*self._matcher.columns, OFFSET]))
        target, topic = self._target, self._topic
        return begun(
            read_data_file(
                target.objects,
                target.keys.prefix,
                file,
                topic.schemas,
                target.partition,
                columns,
                topic=topic.name,
            )
        )


class _Asked:
    """Records of several files, of which the matcher is asked together: a long condition takes a second to plan."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._looked_at = list(matcher.columns) or [OFFSET]
        self._held: list[tuple[pa.Table, list[Offsets]]] = []
        self._rows = self._bytes = 0

    def add(self, records: pa.Table, into: list[Offsets]) -> None:
        """Put the offsets of those that are meant `into` that list, at the latest with the next `answer`."""
        self._held.append((records, into))
        self._rows += records.num_rows
        self._bytes += records.nbytes
        if self._rows >= _ROWS_ASKED or self._bytes >= _BYTES_ASKED:
            self.answer()

    def answer(self) -> None:
        """Ask for what was added."""
        if not self._held:
            return
        held, self._held, self._rows, self._bytes = self._held, [], 0, 0
        mask = self._matcher.matches(pa.concat_tables([each.select(self._looked_at) for each, _ in held]))
        at = 0
        for records, into in held:
            chosen = mask[at : at + records.num_rows]
            at += records.num_rows
            if chosen.any():
                into.append(records.column(OFFSET).to_numpy()[chosen])
