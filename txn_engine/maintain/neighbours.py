"""Which files are put together: neighbours that follow one another, up to the size of one file."""

from __future__ import annotations

from collections.abc import Sequence

from txn_engine.log.topics import Topic
from txn_engine.maintain.policy import MaintenancePolicy
from txn_engine.protocol.partition import LogFile, PartitionState

ANY_SPAN_MS = 2**63
_ROWS_MAX = 1 << 24
_SPANS_A_RETENTION = 10
_FILES_MAX = 1_000  # the rewrite's row names each of them
Run = tuple[LogFile, ...]


def committed_files(state: PartitionState) -> list[LogFile]:
    """The files whose records every reader sees for good, by offset."""
    stable = state.last_stable_offset
    return [file for _, file in sorted(state.live.items()) if file.last_offset < stable]


def span_of(topic: Topic) -> int:
    """How far apart in time the records of one file may lie: retention goes by a file's newest record, and an old one
    must not outlive its time because it was merged with young ones.
    """
    trims_after_ms = topic.trims_after_ms
    return ANY_SPAN_MS if trims_after_ms is None else trims_after_ms // _SPANS_A_RETENTION


def groups(
    files: Sequence[LogFile], kept: Sequence[int], target_bytes: int, span_ms: int
) -> list[tuple[int, int]]:
    """All the files, as few runs as the target and the span allow: each the first of its files, and the one behind
    its last. `kept`: how many records of each file will stay, by which its size is guessed; one that is larger than
    the target is a run of its own.
    """
    found: list[tuple[int, int]] = []
    run, start = _Run(target_bytes, span_ms), 0
    for number, (file, records) in enumerate(zip(files, kept, strict=True)):
        size = file.file.data_bytes * records // max(file.record_count, 1)
        if not run.add(file, size):
            found.append((start, number))
            run, start = _Run(target_bytes, span_ms), number
            run.add(file, size)
    return [*found, (start, len(files))] if run.files else found


def runs(files: Sequence[LogFile], policy: MaintenancePolicy, span_ms: int) -> list[tuple[int, int]]:
    """The neighbours to merge: none above half the target, together at most the target, and enough of them. As `groups`
    has them.

    A first file that is larger than all the others of its run together stays out, so that a record is rewritten only
    where its file at least doubles: log2(target / file) times, however often compaction runs.
    """
    found: list[tuple[int, int]] = []
    run = _Run(policy.target_file_bytes, span_ms)
    for end, file in enumerate(files):
        is_large = 2 * file.file.data_bytes > policy.target_file_bytes
        if is_large or not run.add(file, file.file.data_bytes):
            found += run.worthwhile(end, policy.min_files)
            run = _Run(policy.target_file_bytes, span_ms)
            if not is_large:
                run.add(file, file.file.data_bytes)
    return found + run.worthwhile(len(files), policy.min_files)


class _Run:
    """Neighbours, as long as one more fits; the first one always does."""

    def __init__(self, target_bytes: int, span_ms: int) -> None:
        self._target_bytes = target_bytes
        self._span_ms = span_ms
        self._files: list[LogFile] = []
        self._bytes = self._rows = 0
        self._oldest, self._newest = ANY_SPAN_MS, -ANY_SPAN_MS

    @property
    def files(self) -> Run:
        """All of them."""
        return tuple(self._files)

    def add(self, file: LogFile, file_bytes: int) -> bool:
        """Take the file; False where it does not fit."""
        size, rows = self._bytes + file_bytes, self._rows + file.record_count
        oldest = min(self._oldest, file.first_timestamp)
        newest = max(self._newest, file.max_timestamp)
        is_full = size > self._target_bytes or rows > _ROWS_MAX or len(self._files) == _FILES_MAX
        if self._files and (is_full or newest - oldest > self._span_ms):
            return False
        self._files.append(file)
        self._bytes, self._rows, self._oldest, self._newest = size, rows, oldest, newest
        return True

    def worthwhile(self, end: int, min_files: int) -> list[tuple[int, int]]:
        """What of it is to be merged, where `end` is the number behind its last file: nothing or one run."""
        rest = self._bytes
        for start, file in enumerate(self._files):
            rest -= file.file.data_bytes
            if file.file.data_bytes <= rest:
                count = len(self._files) - start
                return [(end - count, end)] if count >= min_files else []
        return []
