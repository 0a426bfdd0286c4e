"""Entries as Parquet (docs/FORMAT.md): batch descriptors to bytes and back, for each of the three kinds of log."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from storage import UNCOMPRESSED, UNREADABLE, KnownParquet, ParquetLimits, encode_parquet, open_parquet
from txn_engine.errors import CorruptObjectError, UnsupportedFormatError
from txn_engine.log.objects import store_errors
from txn_engine.log.row_checks import batch_problem
from txn_engine.protocol.batches import NO_FILE, BatchDescriptor, Control, FileRef
from txn_engine.protocol.log_time import LATEST_MS, bounded_time
from txn_engine.protocol.offset_commits import OffsetCommit, OffsetKey
from txn_engine.protocol.transaction_rows import TransactionPartition, TransactionRow, TransactionState
from txn_engine.reasons import Reason

ENTRY_LIMITS = ParquetLimits(
    object_bytes=16 << 20,
    footer_bytes=256 << 10,
    rows=65_536,
    row_group_rows=65_536,
    row_group_bytes=16 << 20,
    row_group_memory=128 << 20,
    values=131_072,
    values_per_byte=1,
    values_free=0,
    codecs=frozenset({UNCOMPRESSED}),
)
"""Of entries (docs/FORMAT.md, "Limits"): one that keeps them takes less than 256 MiB to read."""

DESCRIPTOR_FIELDS: list[pa.Field[Any]] = [
    pa.field("base_offset", pa.int64(), nullable=False),
    pa.field("last_offset", pa.int64(), nullable=False),
    pa.field("producer_id", pa.int64(), nullable=False),
    pa.field("producer_epoch", pa.int16(), nullable=False),
    pa.field("base_sequence", pa.int32(), nullable=False),
    pa.field("is_transactional", pa.bool_(), nullable=False),
    pa.field("control", pa.string(), nullable=False),
    pa.field("coordinator_epoch", pa.int64(), nullable=False),
    pa.field("first_timestamp", pa.int64(), nullable=False),
    pa.field("max_timestamp", pa.int64(), nullable=False),
    pa.field("record_count", pa.int32(), nullable=False),
    pa.field("data_path", pa.string(), nullable=False),
    pa.field("data_bytes", pa.int64(), nullable=False),
    pa.field("checksum", pa.string(), nullable=False),
    pa.field("append_time", pa.int64(), nullable=False),
    pa.field("control_value", pa.string(), nullable=False),
]

_PARTITION_TYPE = pa.struct([("topic", pa.string()), ("incarnation", pa.int32()), ("partition", pa.int32())])

TRANSACTION_FIELDS: list[tuple[str, pa.DataType]] = [
    ("transactional_id", pa.string()),
    ("state", pa.string()),
    ("producer_id", pa.int64()),
    ("producer_epoch", pa.int16()),
    ("last_producer_epoch", pa.int16()),
    ("previous_producer_id", pa.int64()),
    ("next_producer_id", pa.int64()),
    ("transaction_timeout_ms", pa.int32()),
    ("start_ms", pa.int64()),
    ("update_ms", pa.int64()),
    ("partitions", pa.list_(_PARTITION_TYPE)),
    ("run_id", pa.string()),
    ("committed_run_ids", pa.list_(pa.string())),
    ("run_ids_complete", pa.bool_()),
    ("decision_offset", pa.int64()),
]

OFFSET_COMMIT_FIELDS: list[tuple[str, pa.DataType]] = [
    ("group_id", pa.string()),
    ("topic", pa.string()),
    ("incarnation", pa.int32()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("leader_epoch", pa.int32()),
    ("metadata", pa.string()),
    ("commit_ms", pa.int64()),
    ("member_id", pa.string()),
    ("fetched_row", pa.int64()),
    ("fetched_end", pa.int64()),
]


def transaction_to_dict(row: TransactionRow) -> dict[str, Any]:
    """A transaction row as its Parquet struct."""
    values: dict[str, Any] = {name: getattr(row, name) for name, _ in TRANSACTION_FIELDS}
    values["state"] = row.state.value
    values["partitions"] = [
        {"topic": part.topic, "incarnation": part.incarnation, "partition": part.partition}
        for part in row.partitions
    ]
    values["committed_run_ids"] = list(row.committed_run_ids)
    return values


def transaction_from_dict(values: Mapping[str, Any]) -> TransactionRow:
    """The transaction row of a Parquet struct."""
    fields = {name: _held(values, name) for name, _ in TRANSACTION_FIELDS if name != "run_id"}
    fields["run_id"] = values["run_id"]
    fields["state"] = TransactionState(values["state"])
    fields["start_ms"], fields["update_ms"] = (
        bounded_time(values["start_ms"]),
        bounded_time(values["update_ms"]),
    )
    fields["partitions"] = tuple(
        sorted(
            TransactionPartition(*(_held(part, name) for name in _PARTITION_FIELDS))
            for part in values["partitions"]
        )
    )
    fields["committed_run_ids"] = tuple(values["committed_run_ids"])
    return TransactionRow(**fields)


def _held(values: Mapping[str, Any], name: str) -> Any:
    """A field that is not null in any row; ValueError where it is."""
    value = values[name]
    if value is None:
        raise ValueError(f"null in {name}")
    return value


_PARTITION_FIELDS = ("topic", "incarnation", "partition")
_KEY_FIELDS = ("group_id", "topic", "incarnation", "partition")


def offset_commit_to_dict(commit: OffsetCommit) -> dict[str, Any]:
    """A group's offset as its Parquet struct."""
    return {
        name: getattr(commit.key if name in _KEY_FIELDS else commit, name) for name, _ in OFFSET_COMMIT_FIELDS
    }


def offset_commit_from_dict(values: Mapping[str, Any]) -> OffsetCommit:
    """The group's offset of a Parquet struct."""
    key = OffsetKey(**{name: _held(values, name) for name in _KEY_FIELDS})
    rest = {name: _held(values, name) for name, _ in OFFSET_COMMIT_FIELDS if name not in _KEY_FIELDS}
    rest["commit_ms"] = bounded_time(rest["commit_ms"])
    return OffsetCommit(key, **rest)


@dataclass(frozen=True)
class LogKind:
    """A kind of log: its entries' schema, and how the row that an internal topic's entry carries is written.

    known: for one whose columns are all plain.
    """

    name: str
    schema: pa.Schema
    row_column: str | None = None
    row_type: pa.DataType | None = None
    row_to_dict: Callable[[Any], dict[str, Any]] | None = None
    row_from_dict: Callable[[Mapping[str, Any]], Any] | None = None
    row_class: type[TransactionRow | OffsetCommit] | None = None
    known: KnownParquet | None = field(default=None, compare=False, repr=False)


USER_LOG = LogKind("user", pa.schema(DESCRIPTOR_FIELDS), known=KnownParquet())
_TRANSACTION_TYPE = pa.struct(TRANSACTION_FIELDS)
TRANSACTION_LOG = LogKind(
    "transaction",
    pa.schema([*DESCRIPTOR_FIELDS, pa.field("transaction", _TRANSACTION_TYPE)]),
    "transaction",
    _TRANSACTION_TYPE,
    transaction_to_dict,
    transaction_from_dict,
    TransactionRow,
)
_OFFSET_COMMIT_TYPE = pa.struct(OFFSET_COMMIT_FIELDS)
OFFSETS_LOG = LogKind(
    "offset_commit",
    pa.schema([*DESCRIPTOR_FIELDS, pa.field("offset_commit", _OFFSET_COMMIT_TYPE)]),
    "offset_commit",
    _OFFSET_COMMIT_TYPE,
    offset_commit_to_dict,
    offset_commit_from_dict,
    OffsetCommit,
)


def entry_table(kind: LogKind, batches: Sequence[BatchDescriptor]) -> pa.Table:
    """The rows of an entry."""
    # A column at a time and under the one schema that is there: for one made anew, as for a struct of all columns, the
    # writer compares and converts each field.
    values = zip(*map(_descriptor_values, batches), strict=True)
    columns = [make(column) for make, column in zip(_COLUMNS, values, strict=True)]
    if kind.row_column is not None:
        columns.append(_row_column(kind, batches))
    return pa.Table.from_arrays(columns, schema=kind.schema)


def _descriptor_values(batch: BatchDescriptor) -> tuple[Any, ...]:
    """In the order of the fields."""
    file = batch.file or NO_FILE
    return (
        batch.base_offset,
        batch.last_offset,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.is_transactional,
        batch.control.value,
        batch.coordinator_epoch,
        batch.first_timestamp,
        batch.max_timestamp,
        batch.record_count,
        file.data_path,
        file.data_bytes,
        file.checksum,
        batch.append_time,
        batch.control_value,
    )


_Column: TypeAlias = "Callable[[tuple[Any, ...]], pa.Array[Any]]"


def _numbers(kind: pa.DataType, code: str) -> _Column:
    """By their bytes, which takes half of what converting takes."""
    return lambda values: pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(array(code, values))])


def _texts(values: tuple[str, ...]) -> pa.Array[Any]:
    if values == ("",):
        return _NO_TEXT
    return _encoded([value.encode() for value in values])


def _encoded(raw: Sequence[bytes]) -> pa.Array[Any]:
    ends = array("i", accumulate(map(len, raw), initial=0))
    return pa.Array.from_buffers(
        pa.string(), len(raw), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(raw))]
    )


def _flags(values: tuple[bool, ...]) -> pa.Array[Any]:
    return pa.array(values, pa.bool_())


def _usual(make: _Column) -> _Column:
    """For a column that holds the same in row after row: arrays of one value are kept, since they never change."""
    keep = lru_cache(maxsize=256)(make)
    return lambda values: keep(values) if len(values) == 1 else make(values)


_NO_TEXT = _encoded([b""])  # `pa.array` would load pandas at once
_INT64, _INT32 = _numbers(pa.int64(), "q"), _numbers(pa.int32(), "i")
_COLUMNS: tuple[_Column, ...] = (
    _INT64,
    _INT64,
    _usual(_INT64),
    _usual(_numbers(pa.int16(), "h")),
    _usual(_INT32),
    _usual(_flags),
    _usual(_texts),
    _usual(_INT64),
    _INT64,
    _INT64,
    _usual(_INT32),
    _texts,
    _INT64,
    _texts,
    _INT64,
    _texts,
)
"""How each column of a descriptor is made."""


def _row_column(kind: LogKind, batches: Sequence[BatchDescriptor]) -> pa.Array[Any]:
    to_dict = kind.row_to_dict
    rows = [None if batch.row is None or to_dict is None else to_dict(batch.row) for batch in batches]
    return pa.array(rows, kind.row_type)


def encode_entry(kind: LogKind, batches: Sequence[BatchDescriptor], write_id: str) -> bytes:
    """An entry's bytes; the write id makes them this writer's own. `InvalidRequestError` for more than one may hold."""
    table = entry_table(kind, batches)
    with store_errors():
        return encode_parquet(table, kind="entry", metadata={"write_id": write_id}, limits=ENTRY_LIMITS)


def encode_seal(kind: LogKind, write_id: str) -> bytes:
    """What clean-up puts over an entry: the slot stays filled, and whoever meets it knows that its view is void."""
    return encode_parquet(kind.schema.empty_table(), kind="seal", metadata={"write_id": write_id})


class Entry(NamedTuple):
    """An entry's batches, none of a seal, and the id of the bytes."""

    batches: list[BatchDescriptor]
    write_id: str

    @property
    def is_seal(self) -> bool:
        """Whether clean-up has put a seal over the entry."""
        return not self.batches


def decode_entry(kind: LogKind, data: bytes, *, key: str, base_offset: int) -> Entry:
    """The entry, or seal.

    Raises `CorruptObjectError` for a damaged one, one that does not belong in this slot, and one that says what no
    writer may: a right checksum is no reason to go by it. `UnsupportedFormatError` for what a later version wrote.
    Takes less than 256 MiB, whatever the object claims.
    """
    with store_errors():
        plain = None if kind.known is None else kind.known.read(data, key)
        if plain is not None:
            return _entry(kind, plain.columns, plain.write_id, key, base_offset)
        opened = open_parquet(data, key=key, limits=ENTRY_LIMITS)
    file, metadata = opened.file, opened.metadata
    rows = file.metadata.num_rows
    if metadata.get("kind") == "seal" and not rows:
        return Entry([], "")
    if metadata.get("kind") != "entry":
        raise UnsupportedFormatError(
            f"an object of kind {metadata.get('kind')!r}", place=key, expected="an entry"
        )
    if not file.schema_arrow.equals(kind.schema) or not rows:
        raise CorruptObjectError(
            f"columns {file.schema_arrow.names}, {rows} rows", place=key, expected="an entry's"
        )
    try:
        table = file.read(use_threads=False)
        columns = [column.to_pylist() for column in table.columns]
    except UNREADABLE as error:
        raise _unreadable(error, key) from error
    entry = _entry(kind, columns, metadata.get("write_id", ""), key, base_offset)
    if kind.known is not None:
        kind.known.learn(data, opened, table)
    return entry


def _entry(
    kind: LogKind, columns: Sequence[Sequence[Any]], write_id: str, key: str, base_offset: int
) -> Entry:
    try:
        batches = _batches(kind, columns, key)
    except UNREADABLE as error:
        raise _unreadable(error, key) from error
    _check(kind, batches, key, base_offset)
    return Entry(batches, write_id)


def _unreadable(error: Exception, key: str) -> CorruptObjectError:
    return CorruptObjectError(f"rows that cannot be read: {error}", place=key, expected="an entry's")


def _check(kind: LogKind, batches: Sequence[BatchDescriptor], key: str, base_offset: int) -> None:
    expected, time_ms = base_offset, batches[0].append_time
    for batch in batches:
        problem = batch_problem(batch, kind.row_class)
        if problem is not None:
            raise CorruptObjectError(problem, place=key, expected="a row as the format has it")
        if batch.base_offset != expected or batch.append_time != time_ms:
            raise CorruptObjectError(
                f"a batch with offsets {batch.base_offset} to {batch.last_offset}, of time {batch.append_time}",
                place=key,
                expected=f"one from offset {expected} on, of time {time_ms}",
            )
        expected = batch.last_offset + 1


def _batches(kind: LogKind, columns: Sequence[Sequence[Any]], key: str) -> list[BatchDescriptor]:
    batches: list[BatchDescriptor] = []
    for values in zip(*columns, strict=True):
        if values[6] not in _CONTROLS:
            raise UnsupportedFormatError(
                f"control kind {values[6]!r} at offset {values[0]}",
                place=key,
                expected=f"one of {sorted(_CONTROLS)}",
                reason=Reason.UNKNOWN_CONTROL,
            )
        row = values[16] if kind.row_column else None
        batches.append(
            BatchDescriptor(
                base_offset=values[0],
                last_offset=values[1],
                append_time=min(values[14], LATEST_MS),
                producer_id=values[2],
                producer_epoch=values[3],
                base_sequence=values[4],
                is_transactional=values[5],
                control=_CONTROLS[values[6]],
                coordinator_epoch=values[7],
                first_timestamp=bounded_time(values[8]),
                max_timestamp=bounded_time(values[9]),
                record_count=values[10],
                file=FileRef(values[11], values[12], values[13]) if values[11] else None,
                control_value=values[15],
                row=kind.row_from_dict(row) if row is not None and kind.row_from_dict else None,
            )
        )
    return batches


_CONTROLS = {control.value: control for control in Control}
