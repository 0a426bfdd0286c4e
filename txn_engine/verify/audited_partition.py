"""The auditor's own replay of one log: what a partition's state is after each row (docs/FORMAT.md, "Snapshots").

Replay takes every row as it stands, legal or not; the rules judge it before it is applied.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from txn_engine.verify.descriptors import (
    Batch,
    OffsetCommit,
    OffsetKey,
    TransactionRow,
    parse_data_path,
)
from txn_engine.verify.file_table import DataFile, FileTable
from txn_engine.verify.limits import CONTROL_CHARS_MAX, bounded_time
from txn_engine.verify.store_keys import MAX_OFFSET

BATCHES_KEPT = 5
GRACE_MS = (
    24 * 3_600_000
)  # a dead file stays listed, and on the store, at least this long (PROTOCOL.md, section 6)


Ranges: TypeAlias = "array[int]"
"""Offsets in ascending ranges: first and last of each, both inclusive, one after another."""


class KeptBatch(NamedTuple):
    """One of a producer's last five batches."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class Producer:
    """A producer as one partition knows it; -1 for what is not there."""

    producer_epoch: int
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    append_time: int = -1
    open_first_offset: int = -1
    batches: tuple[KeptBatch, ...] = ()


class AbortedEntry(NamedTuple):
    """A row of the aborted index; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


_ABORTED_WIDTH = len(AbortedEntry._fields)


class AbortedIndex:
    """The aborted transactions, by their markers' offsets, in 32 bytes each."""

    def __init__(self) -> None:
        self._numbers = array("q")

    def __len__(self) -> int:
        return len(self._numbers) // _ABORTED_WIDTH

    def __iter__(self) -> Iterator[AbortedEntry]:
        for at in range(0, len(self._numbers), _ABORTED_WIDTH):
            yield AbortedEntry._make(self._numbers[at : at + _ABORTED_WIDTH])

    def add(self, entry: AbortedEntry) -> None:
        """Add the entry of a marker behind all others."""
        self._numbers.extend(entry)

    def drop_below(self, offset: int) -> None:
        """Let go of what ended below `offset`."""
        kept = sum(entry.last_offset < offset for entry in self)
        del self._numbers[: kept * _ABORTED_WIDTH]


class StoredTransaction(NamedTuple):
    """An id's latest row, the offset it stands at, and the log's time there and where its transaction began."""

    offset: int
    append_time: int
    start_append_time: int
    row: TransactionRow


class StoredCommit(NamedTuple):
    """A group's row, the offset it stands at, and the log's time there."""

    offset: int
    append_time: int
    commit: OffsetCommit


@dataclass(slots=True)
class AuditedPartition:
    """A partition after a replay up to `log_end_offset`."""

    log_end_offset: int = 0
    last_append_time: int = 0
    log_start_offset: int = 0
    entries_start: int = 0
    floor: int = 0
    cleaned_to: int = 0
    tombstones_to: int = 0
    horizon_to: int = 0
    horizon_ms: int = -1
    producers: dict[int, Producer] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)  # producer id -> first offset, in the order of opening
    files: FileTable = field(default_factory=FileTable)
    undecided: dict[int, list[str]] = field(default_factory=dict)  # producer id -> paths
    rewritten: dict[str, Ranges] = field(
        default_factory=dict
    )  # path of a rewrite's output -> its records' offsets
    erased: dict[str, DataFile | None] = field(default_factory=dict)  # path -> what stands for it now
    aborted: AbortedIndex = field(default_factory=AbortedIndex)
    transactions: dict[str, StoredTransaction] = field(default_factory=dict)
    committed: dict[OffsetKey, StoredCommit] = field(default_factory=dict)
    pending: dict[int, dict[OffsetKey, StoredCommit]] = field(default_factory=dict)

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest open transaction, else the log end; never below the log's start."""
        first = min(self.open.values(), default=None)
        return self.log_end_offset if first is None else max(first, self.log_start_offset)


def apply(state: AuditedPartition, batch: Batch) -> None:
    """Bring `state` to after `batch`."""
    if batch.is_marker:
        _apply_marker(state, batch)
    elif batch.control == "none":
        _apply_rows(state, batch)
    else:
        _apply_control(state, batch)
    state.log_end_offset = batch.last_offset + 1
    state.last_append_time = max(state.last_append_time, batch.append_time)


def _apply_rows(state: AuditedPartition, batch: Batch) -> None:
    row = batch.row
    if isinstance(row, TransactionRow):
        before = state.transactions.get(row.transactional_id)
        began = _start(before, row, batch.append_time)
        state.transactions[row.transactional_id] = StoredTransaction(
            batch.base_offset, batch.append_time, began, row
        )
    elif isinstance(row, OffsetCommit):
        stored = StoredCommit(batch.base_offset, batch.append_time, row)
        if batch.is_transactional:
            state.pending.setdefault(batch.producer_id, {})[row.key] = stored
        else:
            state.committed[row.key] = stored
    if batch.data_path:
        _add_file(state, batch)
    if batch.producer_id >= 0:
        _apply_producer(state, batch)


def _start(before: StoredTransaction | None, row: TransactionRow, append_time: int) -> int:
    """When the row's transaction began, by the log's time."""
    at_rest = row.state in ("Empty", "Dead")
    if at_rest and row.start_ms < 0:
        return -1
    if at_rest or before is None or before.start_append_time < 0:
        return append_time
    if row.state == "Ongoing":
        held = (before.row.state, before.row.producer_id, before.row.producer_epoch)
        goes_on = held == ("Ongoing", row.producer_id, row.producer_epoch)
    else:
        goes_on = not (row.state.startswith("Prepare") and before.row.state.startswith("Complete"))
    return before.start_append_time if goes_on else append_time


def _add_file(state: AuditedPartition, batch: Batch) -> None:
    file = DataFile(
        "undecided" if batch.is_transactional else "live",
        -1,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_offset,
        batch.last_offset,
        batch.record_count,
        batch.first_timestamp,
        batch.max_timestamp,
        batch.data_path,
        batch.data_bytes,
        batch.checksum,
    )
    state.files.put(file)
    if batch.is_transactional:
        state.undecided.setdefault(batch.producer_id, []).append(batch.data_path)


def _apply_producer(state: AuditedPartition, batch: Batch) -> None:
    producer = state.producers.get(batch.producer_id)
    if producer is None:
        producer = state.producers[batch.producer_id] = Producer(batch.producer_epoch)
    if batch.producer_epoch != producer.producer_epoch:
        producer.producer_epoch = batch.producer_epoch
        producer.batches = ()
    if batch.base_sequence >= 0:
        kept = KeptBatch(
            batch.base_sequence,
            batch.last_sequence,
            batch.base_offset,
            batch.last_offset,
            batch.max_timestamp,
        )
        producer.batches = (*producer.batches, kept)[-BATCHES_KEPT:]
    producer.last_timestamp = batch.max_timestamp
    producer.append_time = batch.append_time
    if batch.is_transactional and producer.open_first_offset < 0:
        producer.open_first_offset = batch.base_offset
        state.open[batch.producer_id] = batch.base_offset


def _apply_marker(state: AuditedPartition, marker: Batch) -> None:
    producer_id = marker.producer_id
    producer = state.producers.get(producer_id)
    if producer is None:
        producer = state.producers[producer_id] = Producer(marker.producer_epoch)
    opened_at = producer.open_first_offset
    if marker.producer_epoch != producer.producer_epoch:
        producer.producer_epoch = marker.producer_epoch
        producer.batches = ()
    producer.coordinator_epoch = marker.coordinator_epoch
    producer.last_timestamp = marker.max_timestamp
    producer.append_time = marker.append_time
    producer.open_first_offset = -1
    state.open.pop(producer_id, None)
    committed = marker.control == "commit"
    for path in state.undecided.pop(producer_id, ()):
        if committed:
            state.files.settle(path, "live", -1)
        else:
            state.files.settle(path, "aborted", marker.append_time)
    commits = state.pending.pop(producer_id, {})
    if committed:
        state.committed.update(commits)
    elif opened_at >= 0:
        stable = min(state.open.values(), default=marker.base_offset + 1)
        state.aborted.add(AbortedEntry(producer_id, opened_at, marker.base_offset, stable))


_CONTROL_FIELDS: Mapping[str, Mapping[str, type]] = {
    "rewrite": {"inputs": str, "outputs": dict, "tombstones_to": int},
    "clean": {"cleaned_to": int, "tombstones_to": int},
    "trim": {"log_start_offset": int, "entries_start": int},
    "expire": {"producer_ids": int},
    "floor": {"floor": int},
    "erase": {"erasure": int, "files": dict},
}
_LISTS = frozenset({"inputs", "outputs", "producer_ids", "files"})
_TEXTS = frozenset({"status", "data_path", "checksum"})
_TIMES = frozenset({"first_timestamp", "max_timestamp"})
_LARGEST = {"record_count": 2**31 - 1, "producer_epoch": 2**15 - 1}


def control_value(batch: Batch) -> dict[str, Any] | None:
    """The JSON of a rewrite, clean, trim, expire, floor or erase row; None where it is not what the format says."""
    if len(batch.control_value) > CONTROL_CHARS_MAX:
        return None
    try:
        value = json.loads(batch.control_value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or batch.control not in _CONTROL_FIELDS:
        return None
    for name, kind in _CONTROL_FIELDS[batch.control].items():
        held = value.get(name)
        items = held if name in _LISTS else [held]
        if not isinstance(items, list) or not all(_fits(item, kind) for item in items):
            return None
    if any(output_file(output) is None for output in value.get("outputs", ())):
        return None
    if any(not _is_exchange(each) for each in value.get("files", ())):
        return None
    return value


def _is_exchange(each: Mapping[str, Any]) -> bool:
    left = each.get("output", "")
    is_file = left is None or (isinstance(left, dict) and output_file(left) is not None)
    return isinstance(each.get("input"), str) and is_file and isinstance(each.get("live"), bool)


def exchanged(value: Mapping[str, Any]) -> dict[str, DataFile | None]:
    """By the path of each file that an erase row names what stands for it."""
    return {
        each["input"]: None if each["output"] is None else output_file(each["output"])
        for each in value["files"]
    }


def _fits(item: object, kind: type) -> bool:
    if kind is not int:
        return isinstance(item, kind)
    return isinstance(item, int) and not isinstance(item, bool) and -1 <= item <= MAX_OFFSET


def output_file(output: Mapping[str, Any]) -> DataFile | None:
    """A rewrite's output as the live file it becomes; None where a field is absent, of the wrong type or too large."""
    held = {**output, "status": "live", "died_ms": -1}
    for name in DataFile._fields:
        wanted = str if name in _TEXTS else int
        value = held.get(name)
        if not isinstance(value, wanted) or isinstance(value, bool):
            return None
        if name in _TIMES and isinstance(value, int):
            held[name] = bounded_time(value)
        elif isinstance(value, int) and not -1 <= value <= _LARGEST.get(name, MAX_OFFSET):
            return None
    return DataFile(**{name: held[name] for name in DataFile._fields})


def _apply_control(state: AuditedPartition, batch: Batch) -> None:
    value = control_value(batch)
    if value is None:
        return
    if batch.control == "trim":
        state.log_start_offset = max(state.log_start_offset, value["log_start_offset"])
        state.entries_start = max(state.entries_start, value["entries_start"])
        _trim(state, batch.append_time)
    elif batch.control == "floor":
        state.floor = max(state.floor, value["floor"])
        _forget_files(state, batch.append_time)
    elif batch.control == "expire":
        for producer_id in value["producer_ids"]:
            state.producers.pop(producer_id, None)
            state.open.pop(producer_id, None)
    elif batch.control == "rewrite":
        _rewrite(state, value, batch.append_time)
        state.tombstones_to = max(state.tombstones_to, value["tombstones_to"])
    elif batch.control == "erase":
        _erase(state, exchanged(value), batch.append_time)
    elif batch.control == "clean":
        state.cleaned_to = max(state.cleaned_to, value["cleaned_to"])
        state.tombstones_to = max(state.tombstones_to, value["tombstones_to"])
        if state.horizon_to <= state.tombstones_to:
            state.horizon_to, state.horizon_ms = state.cleaned_to, batch.append_time


def _trim(state: AuditedPartition, time_ms: int) -> None:
    """Live files wholly below the log's start are replaced, by nothing; aborted transactions there are no more."""
    for file in state.files.ending_below(state.log_start_offset):
        state.files.settle(file.data_path, "replaced", time_ms)
    state.aborted.drop_below(state.log_start_offset)


def _forget_files(state: AuditedPartition, time_ms: int) -> None:
    """Files dead for a day leave the list once the floor refuses their names."""
    for file in state.files.dead_by(time_ms - GRACE_MS):
        name = parse_data_path(file.data_path)
        if name is not None and name.log_end < state.floor:
            state.files.forget([file.data_path])
            state.rewritten.pop(file.data_path, None)


def _rewrite(state: AuditedPartition, value: dict[str, Any], time_ms: int) -> None:
    inputs = [file for path in value["inputs"] if (file := state.files.get(path)) is not None]
    outputs = [file for output in value["outputs"] if (file := output_file(output)) is not None]
    legal = len(inputs) == len(value["inputs"]) and all(file.status == "live" for file in inputs)
    held = _ranges(state, inputs) if legal else None
    for file in inputs:
        state.files.settle(file.data_path, "replaced", time_ms)
    for file in outputs:
        state.files.put(file)
        if held is not None:
            state.rewritten[file.data_path] = _inside(held, file)


def _inside(held: Sequence[tuple[int, int]], file: DataFile) -> Ranges:
    """The ranges as far as the file reaches."""
    cut = ((max(first, file.base_offset), min(last, file.last_offset)) for first, last in held)
    return array("q", (bound for first, last in cut if first <= last for bound in (first, last)))


def _erase(state: AuditedPartition, files: Mapping[str, DataFile | None], time_ms: int) -> None:
    """What stands for a live file is live; for a dead or forgotten one, dead from now on."""
    for path, left in files.items():
        held = state.files.get(path)
        if left is not None:
            ranges = None if held is None else _ranges(state, [held])
            if ranges is not None:
                state.rewritten[left.data_path] = _inside(ranges, left)
            is_live = held is not None and held.status == "live"
            state.files.put(left if is_live else left._replace(status="replaced", died_ms=time_ms))
        state.files.settle(path, "erased", time_ms)
    for path, stands in state.erased.items():
        if stands is not None and stands.data_path in files:
            state.erased[path] = files[stands.data_path]
    state.erased |= files


def _ranges(state: AuditedPartition, files: Sequence[DataFile]) -> list[tuple[int, int]] | None:
    """Where these files' records are, ascending; None where that cannot be told (outputs known from a snapshot)."""
    held: list[tuple[int, int]] = []
    for file in sorted(files, key=lambda file: file.base_offset):
        ranges: Ranges | None = array("q", (file.base_offset, file.last_offset))
        if file.record_count != file.last_offset - file.base_offset + 1:
            ranges = state.rewritten.get(file.data_path)
        if ranges is None:
            return None
        for first, last in zip(ranges[::2], ranges[1::2], strict=True):
            if held and held[-1][1] + 1 == first:
                held[-1] = (held[-1][0], last)
            else:
                held.append((first, last))
    return held
