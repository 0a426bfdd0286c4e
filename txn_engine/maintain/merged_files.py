"""What compaction puts in the place of files, and how much of it there was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from storage import stored_checksum
from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.ids import IdSource
from txn_engine.log.topics import Topic
from txn_engine.maintain.merging import FileMerger
from txn_engine.maintain.neighbours import Run
from txn_engine.maintain.target import Target
from txn_engine.maintain.workers import By, Merged, Rule
from txn_engine.protocol.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, FileRef
from txn_engine.protocol.file_names import DataFileName
from txn_engine.protocol.partition import LogFile
from txn_engine.protocol.proposals import RewriteProposal, Verdict
from txn_engine.schemas.layout import OFFSET


@dataclass
class Count:
    """What was rewritten, in files, bytes and records."""

    files: int = 0
    bytes: int = 0
    outputs: int = 0
    output_bytes: int = 0
    records: int = 0
    dropped: int = 0
    overtaken: int = 0
    cleaned: bool = False
    by: By = field(default_factory=By)

    def note(self, by: By) -> None:
        """Who worked; what Spark was needed for is what is told."""
        if not self.by.why or by.engine != "local":
            self.by = by

    def add(self, merged: Merged) -> None:
        """Note one rewrite, or one that would be."""
        size = sum(file.file.data_bytes for file in merged.run)
        self.files += len(merged.run)
        self.bytes += size
        self.outputs += bool(merged.kept)
        self.output_bytes += size if merged.output is None and merged.kept else _bytes_of(merged.output)
        self.records += merged.kept
        self.dropped += merged.dropped


def _bytes_of(file: LogFile | None) -> int:
    return 0 if file is None else file.file.data_bytes


class RunMerger:
    """Makes one file of the records of a run, and puts it on the store; a rewrite has to name it.

    Memory: about three times the new file's size, and a byte for each record of the run.
    """

    def __init__(self, files: FileMerger, topic: Topic, partition: int, new_id: IdSource) -> None:
        self.files = files
        self._topic = topic
        self._prefix = topic.prefix(partition)
        self._new_id = new_id

    def merge(self, run: Run, mask: NDArray[np.bool_] | None, rule: Rule) -> Merged:
        """The records of the run that the mask has (None: all of them), without tombstones that are due."""
        mask = self._without_tombstones(run, mask, rule.tombstones_to)
        records = sum(file.record_count for file in run)
        kept = records if mask is None else int(mask.sum())
        is_left_alone = rule.by_key and kept == records
        if rule.dry_run or is_left_alone or not kept:
            return Merged(run, None, records - kept)
        return Merged(run, self._upload(run, None if kept == records else mask, rule.log_end), records - kept)

    def _without_tombstones(
        self, run: Run, mask: NDArray[np.bool_] | None, tombstones_to: int
    ) -> NDArray[np.bool_] | None:
        columns = self._topic.tombstone_columns
        if not columns or run[0].base_offset >= tombstones_to:
            return mask
        parts = [
            _is_tombstone(table, columns) & (table.column(OFFSET).to_numpy() < tombstones_to)
            for _, tables in self.files.read(run, [OFFSET, *columns])
            for table in tables
        ]
        stays = ~np.concatenate(parts)
        return stays if mask is None else mask & stays

    def _upload(self, run: Run, mask: NDArray[np.bool_] | None, log_end: int) -> LogFile:
        name = DataFileName(log_end, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, self._new_id())
        merged = self.files.merge(run, name.write_id, mask)
        data, key = merged.data, f"{self._prefix}/{name.data_path}"
        if not self.files.objects.create(key, data, max_bytes=len(data)).won:
            raise CorruptObjectError("another object", place=key, expected="a fresh name for every data file")
        return LogFile(
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_offset=merged.first_offset,
            last_offset=merged.last_offset,
            record_count=merged.record_count,
            first_timestamp=merged.first_timestamp,
            max_timestamp=merged.max_timestamp,
            file=FileRef(name.data_path, len(data), stored_checksum(data)),
        )


def _is_tombstone(table: pa.Table, columns: Sequence[str]) -> NDArray[np.bool_]:
    null: NDArray[np.bool_] = np.ones(table.num_rows, np.bool_)
    for name in columns:
        null &= pc.is_null(table.column(name)).to_numpy()
    return null


def replace_inputs(target: Target, rewrite: RewriteProposal) -> Verdict | None:
    """Append the rewrite; None where another run has replaced, trimmed or erased one of its inputs: then its outputs
    are gone again.

    Raises `InvalidRequestError` where it is refused though they are all live: then it is wrong.
    """
    try:
        return target.log.append_one(rewrite)
    except InvalidRequestError:
        live = target.read_back().live
        if all(live.get(file.base_offset) == file for file in rewrite.inputs):
            raise
        target.take_back(rewrite.outputs)
        return None
