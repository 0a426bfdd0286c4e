"""Snapshots: what one says, and where it first differs from the auditor's own replay (invariant 9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

import pyarrow as pa

from txn_engine.verify.columns import is_kind, values
from txn_engine.verify.descriptors import (
    OFFSET_COMMIT_FIELDS,
    TRANSACTION_FIELDS,
    MalformedError,
    OffsetCommit,
    TransactionRow,
)
from txn_engine.verify.objects import ParquetObject
from txn_engine.verify.partition_state import (
    AbortedEntry,
    DataFile,
    KeptBatch,
    PartitionState,
    Producer,
    StoredCommit,
    StoredTransaction,
)

_BATCH = pa.struct(
    [
        ("base_sequence", pa.int32()),
        ("last_sequence", pa.int32()),
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("timestamp", pa.int64()),
    ]
)

_SECTIONS: Final[Mapping[str, pa.StructType]] = {
    "partition": pa.struct(
        [
            ("log_end_offset", pa.int64()),
            ("last_append_time", pa.int64()),
            ("log_start_offset", pa.int64()),
            ("entries_start", pa.int64()),
            ("floor", pa.int64()),
            ("last_stable_offset", pa.int64()),
        ]
    ),
    "producer": pa.struct(
        [
            ("producer_id", pa.int64()),
            ("producer_epoch", pa.int16()),
            ("coordinator_epoch", pa.int64()),
            ("last_timestamp", pa.int64()),
            ("open_first_offset", pa.int64()),
            ("batches", pa.list_(_BATCH)),
        ]
    ),
    "file": pa.struct(
        [
            ("status", pa.string()),
            ("died_ms", pa.int64()),
            ("producer_id", pa.int64()),
            ("producer_epoch", pa.int16()),
            ("base_offset", pa.int64()),
            ("last_offset", pa.int64()),
            ("record_count", pa.int32()),
            ("first_timestamp", pa.int64()),
            ("max_timestamp", pa.int64()),
            ("data_path", pa.string()),
            ("data_bytes", pa.int64()),
            ("checksum", pa.string()),
        ]
    ),
    "aborted": pa.struct(
        [
            ("producer_id", pa.int64()),
            ("first_offset", pa.int64()),
            ("last_offset", pa.int64()),
            ("last_stable_offset", pa.int64()),
        ]
    ),
    "transaction": pa.struct([("row_offset", pa.int64()), *TRANSACTION_FIELDS.items()]),
    "offset_commit": pa.struct(
        [("row_offset", pa.int64()), ("pending_producer_id", pa.int64()), *OFFSET_COMMIT_FIELDS.items()]
    ),
}

_NULLABLE = {"transaction": frozenset({"run_id"})}

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class SnapshotImage:
    """A snapshot's rows by section, each in the order it stands there, fields in the format's order."""

    sections: Mapping[str, Rows]


def decode_snapshot(found: ParquetObject) -> SnapshotImage:
    """The rows of a snapshot; MalformedError where it is not one."""
    if found.kind != "snapshot":
        raise MalformedError(f"kind {found.kind!r}, not 'snapshot'")
    table = found.table()
    if "section" not in table.column_names:
        raise MalformedError("no column 'section'")
    names: list[Any] = table.column("section").to_pylist()
    if not names or names[0] != "partition" or names.count("partition") != 1:
        raise MalformedError(
            f"first row {names[0] if names else 'absent'!r}, not the one of section 'partition'"
        )
    unknown = set(names) - _SECTIONS.keys()
    if unknown:
        raise MalformedError(f"section {min(map(str, unknown))!r}")
    return SnapshotImage({section: _section_rows(table, names, section) for section in _SECTIONS})


def _section_rows(table: pa.Table, names: list[Any], section: str) -> Rows:
    kind = _SECTIONS[section]
    if section not in table.column_names:
        if section in names:
            raise MalformedError(f"rows of section {section!r} without a column of that name")
        return []
    column = table.column(section)
    if not is_kind(column.type, kind):
        raise MalformedError(f"column {section!r} of type {column.type}")
    rows: Rows = []
    for name, row in zip(names, values(column, kind), strict=True):
        if (row is not None) != (name == section):
            raise MalformedError(
                f"a row of section {name!r} with {'a' if row else 'no'} value in column {section!r}"
            )
        if row is not None:
            rows.append(row)
    nullable = _NULLABLE.get(section, frozenset())
    for row in rows:
        for index, value in enumerate(row):
            if value is None and kind.field(index).name not in nullable:
                raise MalformedError(f"null in {section}.{kind.field(index).name}")
    return rows


# --- what the replay says ---------------------------------------------------------------------------------


def image_of(state: PartitionState) -> SnapshotImage:
    """The rows that a snapshot of this state must have."""
    partition = (
        state.log_end_offset,
        state.last_append_time,
        state.log_start_offset,
        state.entries_start,
        state.floor,
        state.last_stable_offset,
    )
    files = sorted(state.files.values(), key=lambda file: (file.base_offset, file.data_path))
    return SnapshotImage(
        {
            "partition": [partition],
            "producer": [_producer_row(pid, producer) for pid, producer in sorted(state.producers.items())],
            "file": [tuple(getattr(file, name) for name in DataFile.__slots__) for file in files],
            "aborted": sorted((tuple(entry) for entry in state.aborted), key=lambda entry: entry[2]),
            "transaction": [(stored.offset, *stored.row) for _, stored in sorted(state.transactions.items())],
            "offset_commit": sorted(_commit_rows(state), key=lambda row: (row[2:6], row[1])),
        }
    )


def _producer_row(producer_id: int, producer: Producer) -> tuple[Any, ...]:
    batches = tuple(tuple(batch) for batch in producer.batches)
    return (
        producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.last_timestamp,
        producer.open_first_offset,
        batches,
    )


def _commit_rows(state: PartitionState) -> Iterator[tuple[Any, ...]]:
    for stored in state.committed.values():
        yield (stored.offset, -1, *stored.commit)
    for producer_id, commits in state.pending.items():
        for stored in commits.values():
            yield (stored.offset, producer_id, *stored.commit)


# --- where they differ ------------------------------------------------------------------------------------


def first_difference(snapshot: SnapshotImage, replay: SnapshotImage) -> tuple[str, str] | None:
    """The first difference in words: what the snapshot says, and what the replay gives; None where they agree."""
    for section, kind in _SECTIONS.items():
        for seen, expected in zip_longest(snapshot.sections[section], replay.sections[section]):
            if seen == expected:
                continue
            if expected is None:
                return f"{_identity(section, seen)}, which the log does not give", "no such row"
            if seen is None:
                return f"no {_identity(section, expected)}", "that row"
            if _identity(section, seen) != _identity(section, expected):
                return _identity(section, seen), f"{_identity(section, expected)} in its place"
            index = next(
                index for index, pair in enumerate(zip(seen, expected, strict=True)) if pair[0] != pair[1]
            )
            name = f"{_identity(section, seen)}: {kind.field(index).name}"
            return f"{name} {_short(seen[index])}", _short(expected[index])
    return None


def _identity(section: str, row: tuple[Any, ...]) -> str:
    if section == "partition":
        return "partition"
    if section == "producer":
        return f"producer {row[0]}"
    if section == "file":
        return f"file {row[9]}"
    if section == "aborted":
        return f"aborted transaction that ended at offset {row[2]}"
    if section == "transaction":
        return f"transactional id {row[1]!r}"
    pending = f", pending for producer {row[1]}" if row[1] >= 0 else ""
    return f"offset of group {row[2]!r} for {row[3]}-{row[5]}{pending}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 160 else text[:157] + "..."


# --- starting from one ------------------------------------------------------------------------------------


def restore(image: SnapshotImage) -> PartitionState:
    """The state that a snapshot says: where a replay starts when the entries before it are sealed."""
    end, append_time, start, entries_start, floor, _ = image.sections["partition"][0]
    state = PartitionState(end, append_time, start, entries_start, floor)
    for producer_id, epoch, coordinator_epoch, timestamp, open_first, batches in image.sections["producer"]:
        kept = tuple(KeptBatch._make(batch) for batch in batches)
        state.producers[producer_id] = Producer(epoch, coordinator_epoch, timestamp, open_first, kept)
    opened = [(producer.open_first_offset, pid) for pid, producer in state.producers.items()]
    state.open = {pid: first for first, pid in sorted(opened) if first >= 0}
    for row in image.sections["file"]:
        file = DataFile(*row)
        state.files[file.data_path] = file
        if file.status == "undecided":
            state.undecided.setdefault(file.producer_id, []).append(file)
    state.aborted = [AbortedEntry._make(row) for row in image.sections["aborted"]]
    for row in image.sections["transaction"]:
        state.transactions[row[1]] = StoredTransaction(row[0], TransactionRow._make(row[1:]))
    for row in image.sections["offset_commit"]:
        stored = StoredCommit(row[0], OffsetCommit._make(row[2:]))
        if row[1] < 0:
            state.committed[stored.commit.key] = stored
        else:
            state.pending.setdefault(row[1], {})[stored.commit.key] = stored
    return state
