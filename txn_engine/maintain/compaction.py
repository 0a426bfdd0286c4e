"""Compaction of small files: neighbours become one larger file, and a `rewrite` puts it in their place.

Which files are merged is `runs`; that every record keeps its offset and time is `merging`. Compaction by key (Kafka's
cleaner: of each key the latest record) would be another way to choose and to merge, with this same rewrite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage import stored_checksum
from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.log.topics import Topic
from txn_engine.maintain.merging import FileMerger
from txn_engine.maintain.policy import MaintenancePolicy
from txn_engine.maintain.reports import Compacted
from txn_engine.maintain.target import Target
from txn_engine.protocol.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, FileRef
from txn_engine.protocol.file_names import DataFileName
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.protocol.proposals import Appended, RewriteProposal

_ROWS_MAX = 1 << 24
_SPANS_A_RETENTION = 10
_ANY_SPAN_MS = 2**63
_FILES_MAX = 1_000  # the rewrite's row names each of them
Run = tuple[LogFile, ...]


@dataclass
class _Count:
    files: int = 0
    bytes: int = 0
    outputs: int = 0
    output_bytes: int = 0
    records: int = 0
    overtaken: int = 0

    def add(self, run: Run, output_bytes: int) -> None:
        self.files += len(run)
        self.bytes += sum(file.file.data_bytes for file in run)
        self.outputs += 1
        self.output_bytes += output_bytes
        self.records += sum(file.record_count for file in run)


def compact(target: Target, topic: Topic, policy: MaintenancePolicy, *, dry_run: bool) -> Compacted | None:
    """Merge the partition's small committed files, a run of neighbours at a time; None where that is not worth it.

    Readers see the same records before, during and after; what they planned on stays for 24 hours. A run that stops
    anywhere leaves at most a file that no entry names.
    """
    state = target.read_back()
    merger = FileMerger(target.objects, target.tools.executor, topic, target.partition)
    count = _Count()
    span_ms = topic.retention_ms // _SPANS_A_RETENTION if topic.retention_ms >= 0 else _ANY_SPAN_MS
    for run in runs(committed_files(state), policy, span_ms):
        if dry_run:
            count.add(run, sum(file.file.data_bytes for file in run))
            continue
        output = _upload(target, merger, run, state.log_end_offset)
        try:
            verdict = target.log.append_one(RewriteProposal(run, (output,)))
        except InvalidRequestError:  # somebody replaced or trimmed an input meanwhile
            count.overtaken += 1
            continue
        if isinstance(verdict, Appended):
            count.add(run, output.file.data_bytes)
    if not count.outputs and not count.overtaken:
        return None
    return Compacted(
        target.topic,
        target.partition,
        files=count.files,
        bytes=count.bytes,
        outputs=count.outputs,
        output_bytes=count.output_bytes,
        records=count.records,
        overtaken=count.overtaken,
    )


def committed_files(state: PartitionState) -> list[LogFile]:
    """The files whose records every reader sees for good, by offset."""
    stable = state.last_stable_offset
    return [file for _, file in sorted(state.live.items()) if file.last_offset < stable]


def runs(files: Sequence[LogFile], policy: MaintenancePolicy, span_ms: int) -> list[Run]:
    """The neighbours to merge: none above half the target, together at most the target, and enough of them.

    All records of a run are within `span_ms`: retention goes by a file's newest record, and an old one must not outlive
    its time because it was merged with young ones. A first file that is larger than all the others of its run together
    stays out, so that a record is rewritten only where its file at least doubles: log2(target / file) times, however
    often compaction runs.
    """
    found: list[Run] = []
    run = _Run(policy.target_file_bytes, span_ms)
    for file in files:
        if not run.add(file):
            found += run.worthwhile(policy.min_files)
            run = _Run(policy.target_file_bytes, span_ms)
            run.add(file)
    return found + run.worthwhile(policy.min_files)


class _Run:
    """Neighbours, as long as one more fits."""

    def __init__(self, target_bytes: int, span_ms: int) -> None:
        self._target_bytes = target_bytes
        self._span_ms = span_ms
        self._files: list[LogFile] = []
        self._bytes = self._rows = 0
        self._oldest, self._newest = _ANY_SPAN_MS, -_ANY_SPAN_MS

    def add(self, file: LogFile) -> bool:
        """Take the file; False where it does not fit."""
        size, rows = self._bytes + file.file.data_bytes, self._rows + file.record_count
        oldest = min(self._oldest, file.first_timestamp)
        newest = max(self._newest, file.max_timestamp)
        is_large = 2 * file.file.data_bytes > self._target_bytes
        is_full = size > self._target_bytes or rows > _ROWS_MAX or len(self._files) == _FILES_MAX
        if is_large or is_full or newest - oldest > self._span_ms:
            return False
        self._files.append(file)
        self._bytes, self._rows, self._oldest, self._newest = size, rows, oldest, newest
        return True

    def worthwhile(self, min_files: int) -> list[Run]:
        """What of it is to be merged: nothing or one run."""
        rest = self._bytes
        for start, file in enumerate(self._files):
            rest -= file.file.data_bytes
            if file.file.data_bytes <= rest:
                run = tuple(self._files[start:])
                return [run] if len(run) >= min_files else []
        return []


def _upload(target: Target, merger: FileMerger, run: Run, log_end: int) -> LogFile:
    name = DataFileName(log_end, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, target.tools.new_id())
    data = merger.merge(run, name.write_id)
    key = f"{target.keys.prefix}/{name.data_path}"
    if not target.objects.create(key, data).won:
        raise CorruptObjectError("another object", place=key, expected="a fresh name for every data file")
    return LogFile(
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_offset=run[0].base_offset,
        last_offset=run[-1].last_offset,
        record_count=sum(file.record_count for file in run),
        first_timestamp=min(file.first_timestamp for file in run),
        max_timestamp=max(file.max_timestamp for file in run),
        file=FileRef(name.data_path, len(data), stored_checksum(data)),
    )
