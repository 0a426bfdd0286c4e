"""The auditor's own replay of one log: what a partition's state is after each row (docs/FORMAT.md, "Snapshots").

Replay takes every row as it stands, legal or not; the rules judge it before it is applied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from txn_engine.verify.descriptors import Batch, OffsetCommit, OffsetKey, TransactionRow

BATCHES_KEPT = 5


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
    open_first_offset: int = -1
    batches: tuple[KeptBatch, ...] = ()


@dataclass(slots=True)
class DataFile:
    """A data file that an entry named, and what became of it: live, undecided, aborted, replaced."""

    status: str
    died_ms: int
    producer_id: int
    producer_epoch: int
    base_offset: int
    last_offset: int
    record_count: int
    first_timestamp: int
    max_timestamp: int
    data_path: str
    data_bytes: int
    checksum: str


class AbortedEntry(NamedTuple):
    """A row of the aborted index; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class StoredTransaction(NamedTuple):
    """An id's latest row and the offset it stands at."""

    offset: int
    row: TransactionRow


class StoredCommit(NamedTuple):
    """A group's row and the offset it stands at."""

    offset: int
    commit: OffsetCommit


@dataclass(slots=True)
class PartitionState:
    """A partition after a replay up to `log_end_offset`."""

    log_end_offset: int = 0
    last_append_time: int = 0
    log_start_offset: int = 0
    entries_start: int = 0
    floor: int = 0
    producers: dict[int, Producer] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)  # producer id -> first offset, in the order of opening
    files: dict[str, DataFile] = field(default_factory=dict)
    undecided: dict[int, list[DataFile]] = field(default_factory=dict)
    aborted: list[AbortedEntry] = field(default_factory=list)
    transactions: dict[str, StoredTransaction] = field(default_factory=dict)
    committed: dict[OffsetKey, StoredCommit] = field(default_factory=dict)
    pending: dict[int, dict[OffsetKey, StoredCommit]] = field(default_factory=dict)

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest open transaction, else the log end; never below the log's start."""
        first = min(self.open.values(), default=None)
        return self.log_end_offset if first is None else max(first, self.log_start_offset)


def apply(state: PartitionState, batch: Batch) -> None:
    """Bring `state` to after `batch`."""
    if batch.is_marker:
        _apply_marker(state, batch)
    elif batch.control == "none":
        _apply_rows(state, batch)
    else:
        _apply_control(state, batch)
    state.log_end_offset = batch.last_offset + 1
    state.last_append_time = max(state.last_append_time, batch.append_time)


def _apply_rows(state: PartitionState, batch: Batch) -> None:
    row = batch.row
    if isinstance(row, TransactionRow):
        state.transactions[row.transactional_id] = StoredTransaction(batch.base_offset, row)
    elif isinstance(row, OffsetCommit):
        stored = StoredCommit(batch.base_offset, row)
        if batch.is_transactional:
            state.pending.setdefault(batch.producer_id, {})[row.key] = stored
        else:
            state.committed[row.key] = stored
    if batch.data_path:
        _add_file(state, batch)
    if batch.producer_id >= 0:
        _apply_producer(state, batch)


def _add_file(state: PartitionState, batch: Batch) -> None:
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
    state.files[batch.data_path] = file
    if batch.is_transactional:
        state.undecided.setdefault(batch.producer_id, []).append(file)


def _apply_producer(state: PartitionState, batch: Batch) -> None:
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
    if batch.is_transactional and producer.open_first_offset < 0:
        producer.open_first_offset = batch.base_offset
        state.open[batch.producer_id] = batch.base_offset


def _apply_marker(state: PartitionState, marker: Batch) -> None:
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
    producer.open_first_offset = -1
    state.open.pop(producer_id, None)
    committed = marker.control == "commit"
    for file in state.undecided.pop(producer_id, ()):
        file.status = "live" if committed else "aborted"
        file.died_ms = -1 if committed else marker.append_time
    commits = state.pending.pop(producer_id, {})
    if committed:
        state.committed.update(commits)
    elif opened_at >= 0:
        stable = min(state.open.values(), default=marker.base_offset + 1)
        state.aborted.append(AbortedEntry(producer_id, opened_at, marker.base_offset, stable))


_CONTROL_FIELDS: Mapping[str, Mapping[str, type]] = {
    "rewrite": {"inputs": str, "outputs": dict},
    "trim": {"log_start_offset": int, "entries_start": int},
    "expire": {"producer_ids": int},
    "floor": {"floor": int},
}
_LISTS = frozenset({"inputs", "outputs", "producer_ids"})


def control_value(batch: Batch) -> dict[str, Any] | None:
    """The JSON of a rewrite, trim, expire or floor row; None where it is not what the format says."""
    try:
        value = json.loads(batch.control_value)
    except ValueError:
        return None
    if not isinstance(value, dict) or batch.control not in _CONTROL_FIELDS:
        return None
    for name, kind in _CONTROL_FIELDS[batch.control].items():
        held = value.get(name)
        items = held if name in _LISTS else [held]
        if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
            return None
    if any(output_file(output) is None for output in value.get("outputs", ())):
        return None
    return value


def _apply_control(state: PartitionState, batch: Batch) -> None:
    value = control_value(batch)
    if value is None:
        return
    if batch.control == "trim":
        state.log_start_offset = max(state.log_start_offset, value["log_start_offset"])
        state.entries_start = max(state.entries_start, value["entries_start"])
        _trim_files(state, batch.append_time)
    elif batch.control == "floor":
        state.floor = max(state.floor, value["floor"])
    elif batch.control == "expire":
        for producer_id in value["producer_ids"]:
            state.producers.pop(producer_id, None)
            state.open.pop(producer_id, None)
    elif batch.control == "rewrite":
        _rewrite(state, value, batch.append_time)


def _trim_files(state: PartitionState, time_ms: int) -> None:
    for file in state.files.values():
        if file.status == "live" and file.last_offset < state.log_start_offset:
            file.status, file.died_ms = "replaced", time_ms


def _rewrite(state: PartitionState, value: dict[str, Any], time_ms: int) -> None:
    for path in value["inputs"]:
        file = state.files.get(path)
        if file is not None:
            file.status, file.died_ms = "replaced", time_ms
    for output in value["outputs"]:
        file = output_file(output)
        if file is not None:
            state.files[file.data_path] = file


def output_file(output: Mapping[str, Any]) -> DataFile | None:
    """A rewrite's output as the live file it becomes; None where a field is absent or of the wrong type."""
    held = {"status": "live", "died_ms": -1, **output}
    texts = {"status", "data_path", "checksum"}
    names = DataFile.__slots__
    if not all(isinstance(held.get(name), str if name in texts else int) for name in names):
        return None
    return DataFile(**{name: held[name] for name in names})
