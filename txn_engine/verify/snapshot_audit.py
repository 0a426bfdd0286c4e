"""Snapshots: what one says, and where it first differs from the auditor's own replay (invariant 9)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import zip_longest
from typing import Any, Final

import pyarrow as pa

from txn_engine.verify.audited_partition import (
    AbortedEntry,
    AuditedPartition,
    KeptBatch,
    Producer,
    StoredCommit,
    StoredTransaction,
)
from txn_engine.verify.columns import wrong_column
from txn_engine.verify.descriptors import (
    OFFSET_COMMIT_FIELDS,
    TRANSACTION_FIELDS,
    MalformedError,
    OffsetCommit,
    TransactionRow,
)
from txn_engine.verify.file_table import STATUSES, DataFile
from txn_engine.verify.limits import EARLIEST_MS, LATEST_MS, bounded_time
from txn_engine.verify.raw_object import ParquetObject

_BATCH = pa.struct(
    [
        ("base_sequence", pa.int32()),
        ("last_sequence", pa.int32()),
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("timestamp", pa.int64()),
    ]
)

_SECTIONS_OF_ALL: Final[Mapping[str, pa.StructType]] = {
    "partition": pa.struct(
        [
            ("log_end_offset", pa.int64()),
            ("last_append_time", pa.int64()),
            ("log_start_offset", pa.int64()),
            ("entries_start", pa.int64()),
            ("floor", pa.int64()),
            ("last_stable_offset", pa.int64()),
            ("cleaned_to", pa.int64()),
            ("tombstones_to", pa.int64()),
            ("horizon_to", pa.int64()),
            ("horizon_ms", pa.int64()),
        ]
    ),
    "producer": pa.struct(
        [
            ("producer_id", pa.int64()),
            ("producer_epoch", pa.int16()),
            ("coordinator_epoch", pa.int64()),
            ("last_timestamp", pa.int64()),
            ("append_time", pa.int64()),
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
    "transaction": pa.struct(
        [
            ("row_offset", pa.int64()),
            ("append_time", pa.int64()),
            ("start_append_time", pa.int64()),
            *TRANSACTION_FIELDS.items(),
        ]
    ),
    "offset_commit": pa.struct(
        [
            ("row_offset", pa.int64()),
            ("append_time", pa.int64()),
            ("pending_producer_id", pa.int64()),
            *OFFSET_COMMIT_FIELDS.items(),
        ]
    ),
}
_SECTIONS = {
    **_SECTIONS_OF_ALL,
    "erased": pa.struct([("input", pa.string()), *list(_SECTIONS_OF_ALL["file"])[2:]]),
}
_NOTHING_LEFT: Final = ("live", -1, -1, -1, -1, -1, 0, -1, -1, "", 0, "")

_COLUMNS: Final = {"section": pa.string(), "fields": pa.string()}
_CHARS_MAX: Final = 64 << 20
_NULLABLE = {"transaction": frozenset({"run_id"})}

_TIME = re.compile(r".*(_time|_ms|timestamp)")
_TIMES = {
    section: [at for at in range(kind.num_fields) if _TIME.fullmatch(kind.field(at).name)]
    for section, kind in _SECTIONS.items()
}

Row = tuple[str, tuple[Any, ...]]
"""A row: its section, and its fields in the format's order."""


def snapshot_rows(found: ParquetObject) -> Iterator[Row]:
    """The rows of a snapshot as they stand there, some thousand in memory; MalformedError where it is none."""
    if found.kind != "snapshot":
        raise MalformedError(f"kind {found.kind!r}, not 'snapshot'")
    problem = wrong_column(found.schema, _COLUMNS)
    if problem is not None:
        raise MalformedError(problem)
    count = 0
    for batch in found.batches():
        columns = [batch.column(name).to_pylist() for name in _COLUMNS]
        for section, text in zip(*columns, strict=True):
            if section not in _SECTIONS:
                raise MalformedError(f"section {section!r:.80}")
            if (section == "partition") != (count == 0):
                raise MalformedError(f"row {count} of section {section!r}, not the one 'partition' row first")
            count += 1
            yield section, _bounded(section, _row(section, text))
    if not count:
        raise MalformedError("no rows")


def _row(section: str, text: str | None) -> tuple[Any, ...]:
    if text is None or len(text) > _CHARS_MAX:
        raise MalformedError(
            f"a row of section {section!r} without fields, or with more than {_CHARS_MAX} characters"
        )
    try:
        row: tuple[Any, ...] = _READERS[section](json.loads(text))
        if "\\u" in text:
            json.dumps(row, ensure_ascii=False).encode()  # half a pair of surrogates is no text
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"a row of section {section!r}: {error}"[:400]) from None
    return row


def _reader(kind: pa.DataType) -> Callable[[Any], Any]:
    """What makes of a JSON value that is one of this type its value in a row, and of any other a ValueError."""
    if isinstance(kind, pa.StructType):
        return _struct_reader(kind)
    if isinstance(kind, pa.ListType):
        read = _reader(kind.value_type)
        return lambda value: tuple(map(read, _of(list, value)))
    if pa.types.is_integer(kind):
        most = 1 << (kind.bit_width - 1)
        return lambda value: _of_range(_of(int, value), -most, most)
    return partial(_of, bool if pa.types.is_boolean(kind) else str)


def _struct_reader(kind: pa.StructType, may_be_null: Collection[str] = ()) -> Callable[[Any], Any]:
    readers = {field.name: _reader(field.type) for field in kind}

    def read(value: Any) -> tuple[Any, ...]:
        if _of(dict, value).keys() != readers.keys():
            raise ValueError(f"fields {[*value]}")
        return tuple(
            None if value[name] is None and name in may_be_null else each(value[name])
            for name, each in readers.items()
        )

    return read


def _of(kind: type[Any], value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r:.80}, no {kind.__name__}")
    return value


def _of_range(value: int, low: int, above: int) -> int:
    if not low <= value < above:
        raise ValueError(f"{value} in a field for less")
    return value


_READERS = {section: _struct_reader(kind, _NULLABLE.get(section, ())) for section, kind in _SECTIONS.items()}


def _bounded(section: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The row with its times as they count."""
    if all(EARLIEST_MS <= row[at] <= LATEST_MS for at in _TIMES[section]):
        return row
    return tuple(bounded_time(value) if at in _TIMES[section] else value for at, value in enumerate(row))


# --- what the replay says ---------------------------------------------------------------------------------


def rows_of(state: AuditedPartition) -> Iterator[Row]:
    """The rows that a snapshot of this state must have."""
    yield (
        "partition",
        (
            state.log_end_offset,
            state.last_append_time,
            state.log_start_offset,
            state.entries_start,
            state.floor,
            state.last_stable_offset,
            state.cleaned_to,
            state.tombstones_to,
            state.horizon_to,
            state.horizon_ms,
        ),
    )
    for producer_id, producer in sorted(state.producers.items()):
        yield "producer", _producer_row(producer_id, producer)
    for file in state.files.in_order():
        yield "file", tuple(file)
    for entry in state.aborted:
        yield "aborted", tuple(entry)
    for _, stored in sorted(state.transactions.items()):
        yield "transaction", (stored.offset, stored.append_time, stored.start_append_time, *stored.row)
    for row in sorted(_commit_rows(state), key=lambda row: (row[3:7], row[2])):
        yield "offset_commit", row
    for path, left in sorted(state.erased.items()):
        yield "erased", (path, *(_NOTHING_LEFT if left is None else left)[2:])


def _producer_row(producer_id: int, producer: Producer) -> tuple[Any, ...]:
    batches = tuple(tuple(batch) for batch in producer.batches)
    return (
        producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.last_timestamp,
        producer.append_time,
        producer.open_first_offset,
        batches,
    )


def _commit_rows(state: AuditedPartition) -> Iterator[tuple[Any, ...]]:
    for stored in state.committed.values():
        yield (stored.offset, stored.append_time, -1, *stored.commit)
    for producer_id, commits in state.pending.items():
        for stored in commits.values():
            yield (stored.offset, stored.append_time, producer_id, *stored.commit)


# --- where they differ ------------------------------------------------------------------------------------


def first_difference(snapshot: Iterator[Row], replay: Iterator[Row]) -> tuple[str, str] | None:
    """The first difference in words: what the snapshot says, and what the replay gives; None where they agree."""
    for seen, expected in zip_longest(snapshot, replay):
        if seen == expected:
            continue
        if expected is None:
            return f"{_identity(*seen)}, which the log does not give", "no such row"
        if seen is None:
            return f"no {_identity(*expected)}", "that row"
        if seen[0] != expected[0] or _identity(*seen) != _identity(*expected):
            return _identity(*seen), f"{_identity(*expected)} in its place"
        section, (row, wanted) = seen[0], (seen[1], expected[1])
        index = next(i for i, pair in enumerate(zip(row, wanted, strict=True)) if pair[0] != pair[1])
        name = f"{_identity(section, row)}: {_SECTIONS[section].field(index).name}"
        return f"{name} {_short(row[index])}", _short(wanted[index])
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
    if section == "erased":
        return f"what stands for {row[0]}"
    if section == "transaction":
        return f"transactional id {row[3]!r}"
    pending = f", pending for producer {row[2]}" if row[2] >= 0 else ""
    return f"offset of group {row[3]!r} for {row[4]}-{row[6]}{pending}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 160 else text[:157] + "..."


# --- starting from one ------------------------------------------------------------------------------------


def restore(rows: Iterator[Row]) -> tuple[AuditedPartition, int]:
    """The state that a snapshot says, where a replay starts when the entries before it are sealed, and the last stable
    offset that it says with it, which its producers tell as well.
    """
    state, stable = AuditedPartition(), 0
    opened: list[tuple[int, int]] = []
    for section, row in rows:
        if section == "partition":
            end, append_time, start, entries_start, floor, stable, *cleaning = row
            state = AuditedPartition(end, append_time, start, entries_start, floor, *cleaning)
        elif section == "producer":
            producer_id, epoch, coordinator_epoch, timestamp, append_time, open_first, batches = row
            kept = tuple(KeptBatch._make(batch) for batch in batches)
            state.producers[producer_id] = Producer(
                epoch, coordinator_epoch, timestamp, append_time, open_first, kept
            )
            if open_first >= 0:
                opened.append((open_first, producer_id))
        elif section == "file":
            _restore_file(state, DataFile._make(row))
        elif section == "aborted":
            state.aborted.add(AbortedEntry._make(row))
        elif section == "transaction":
            offset, append_time, began, *fields = row
            stored = StoredTransaction(offset, append_time, began, TransactionRow._make(fields))
            state.transactions[stored.row.transactional_id] = stored
        elif section == "erased":
            left = DataFile("live", -1, *row[1:])
            state.erased[row[0]] = None if left == _NOTHING_LEFT else left
        else:
            _restore_commit(state, row)
    state.open = {producer_id: first for first, producer_id in sorted(opened)}
    return state, stable


def _restore_file(state: AuditedPartition, file: DataFile) -> None:
    if file.status not in STATUSES:
        raise MalformedError(f"a file of status {file.status!r}")
    state.files.put(file)
    if file.status == "undecided":
        state.undecided.setdefault(file.producer_id, []).append(file.data_path)


def _restore_commit(state: AuditedPartition, row: tuple[Any, ...]) -> None:
    offset, append_time, pending_producer_id, *fields = row
    stored = StoredCommit(offset, append_time, OffsetCommit._make(fields))
    if pending_producer_id < 0:
        state.committed[stored.commit.key] = stored
    else:
        state.pending.setdefault(pending_producer_id, {})[stored.commit.key] = stored
