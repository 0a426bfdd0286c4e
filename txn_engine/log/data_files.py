"""Data files: a batch's records to bytes and back (docs/FORMAT.md), and the check of records against a
topic's schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from storage import (
    LARGE,
    ROW_BYTES_MAX,
    ROW_NULLS_MAX,
    SMALL,
    UNREADABLE,
    OpenedParquet,
    ParquetProfile,
    ParquetStream,
    open_parquet,
    row_too_large,
    stored_checksum,
)
from txn_engine.errors import (
    CorruptObjectError,
    InvalidRecordError,
    RecordTooLargeError,
    UnsupportedFormatError,
)
from txn_engine.exact import InexactError, require_whole
from txn_engine.log.field_ids import with_field_ids, with_own_id
from txn_engine.log.objects import Objects, store_errors
from txn_engine.protocol.batches import FileRef
from txn_engine.protocol.file_names import DataFileName
from txn_engine.protocol.log_time import bounded_time
from txn_engine.protocol.partition import LogFile

TIMESTAMP_TYPE = pa.timestamp("ms", tz="UTC")
OFFSET_DELTA = "_offset_delta"
TIMESTAMP = "_timestamp"
PARTITION = "_partition"
OFFSET = "_offset"
_LARGE_FROM_BYTES = 256 * 1024
_SHORT_STATISTICS_MAX = 256
_LONG_STATISTICS_MAX = 16  # two values of up to 4 kB each, in every row group
_THREADS_FROM_ROWS = 20_000  # Arrow has a thread a core, and decodes no faster in more
_PART_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """A data file on the store, and how descriptors will name it."""

    file: FileRef
    record_count: int
    first_timestamp: int
    max_timestamp: int


def conform(table: pa.Table, schema: pa.Schema, *, topic: str) -> pa.Table:
    """The records with the topic's columns, in its order. Raises `InvalidRecordError` naming what does not
    fit, and `RecordTooLargeError` for a record that no reader would take.

    Nothing is cast that could lose anything: only between a string's or binary's layouts, and from a
    dictionary to its values. A value that its own type does not have (a decimal of more digits than its precision,
    which `cast(safe=False)` leaves behind) is refused: the file would cut it without a word.
    """
    found = _in_order(table, schema, topic=topic)
    for field, column in zip(found.schema, found.columns, strict=True):
        try:
            require_whole(column)
        except InexactError as error:
            raise InvalidRecordError(
                f"a value of column {field.name!r}, row {error.index}, that {field.type} does not have",
                actor=f"produce to {topic!r}",
                expected="values that fit their type",
                action="cast with safe=True to see which; nothing was written",
            ) from None
    _check_sizes(found, topic=topic)
    return found


def _check_sizes(records: pa.Table, *, topic: str) -> None:
    found = row_too_large(records)
    if found is None:
        return
    row, load = found
    size, most = (load.bytes, ROW_BYTES_MAX) if load.bytes > ROW_BYTES_MAX else (load.nulls, ROW_NULLS_MAX)
    unit = "bytes" if load.bytes > ROW_BYTES_MAX else "nulls and empty lists in a column"
    raise RecordTooLargeError(
        f"record {row} of {size} {unit}", actor=f"produce to {topic!r}", expected=f"at most {most}"
    )


def _in_order(table: pa.Table, schema: pa.Schema, *, topic: str) -> pa.Table:
    if table.schema.equals(schema) and all(field.nullable for field in schema):
        return table.replace_schema_metadata(None)
    actor = f"produce to {topic!r}"
    if set(table.schema.names) != set(schema.names) or len(table.schema.names) != len(schema.names):
        missing = [name for name in schema.names if name not in table.schema.names]
        extra = [name for name in table.schema.names if name not in schema.names]
        raise InvalidRecordError(
            f"columns missing {missing}, unknown {extra}", actor=actor, expected=f"the columns {schema.names}"
        )
    columns = []
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            if _plain(column.type) != _plain(field.type):
                raise InvalidRecordError(
                    f"column {field.name!r} of type {column.type}", actor=actor, expected=str(field.type)
                )
            column = column.cast(field.type)
        if not field.nullable and column.null_count:
            raise InvalidRecordError(
                f"{column.null_count} nulls in column {field.name!r}", actor=actor, expected="none"
            )
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


@lru_cache(maxsize=256)
def physical_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a topic's data files, with field ids."""
    own = (
        pa.field(OFFSET_DELTA, pa.int64(), nullable=False),
        pa.field(TIMESTAMP, TIMESTAMP_TYPE, nullable=False),
    )
    return pa.schema([*with_field_ids(schema), *map(with_own_id, own)])


@lru_cache(maxsize=256)
def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The physical schema as Parquet gives it back: some types have no name there, and become their nearest."""
    sink = pa.BufferOutputStream()
    # An empty table would do, and would load pandas.
    pq.ParquetWriter(sink, physical_schema(schema), store_schema=False).close()
    stored: pa.Schema = pq.read_schema(pa.BufferReader(sink.getvalue()))
    return stored


def encode_data_file(records: pa.Table, name: DataFileName, timestamp_ms: int) -> tuple[bytes, EncodedFile]:
    """The bytes of a batch's file; `records` conform to the topic's schema and all get the one timestamp."""
    encoder = DataFileEncoder(
        records.schema, name, timestamp_ms, is_large=records.nbytes >= _LARGE_FROM_BYTES
    )
    encoder.write(records)
    return encoder.finish()


class DataFileEncoder:
    """A batch's file, of records that come in parts: each conforms to the topic's schema, and all get the timestamp
    unless a part has its own.
    """

    def __init__(
        self, schema: pa.Schema, name: DataFileName, timestamp_ms: int, *, is_large: bool = True
    ) -> None:
        self.record_count = 0
        self._schema = physical_schema(schema)
        self._name = name
        self._timestamp_ms = timestamp_ms
        self._stamps: set[int] = set()
        self._stream = ParquetStream(
            self._schema,
            kind="data",
            metadata={"write_id": name.write_id},
            profile=large_profile(self._schema) if is_large else SMALL,
        )

    @property
    def written_bytes(self) -> int:
        """How large the file is so far."""
        return self._stream.written_bytes

    def write(self, records: pa.Table, timestamp_ms: int | None = None) -> None:
        """The next records, as row groups of their own."""
        count = records.num_rows
        stamp = self._timestamp_ms if timestamp_ms is None else timestamp_ms
        deltas = np.arange(self.record_count, self.record_count + count, dtype=np.int64)
        stamps = np.full(count, stamp, dtype=np.int64)
        own = (_of_bytes(pa.int64(), deltas), _of_bytes(TIMESTAMP_TYPE, stamps))
        table = pa.Table.from_arrays([*records.columns, *own], schema=self._schema)
        try:
            with store_errors():
                self._stream.write(table)
        except pa.ArrowException:
            raise _unstorable() from None
        self.record_count += count
        self._stamps.add(stamp)

    def finish(self) -> tuple[bytes, EncodedFile]:
        """Its bytes, and how descriptors will name it."""
        try:
            with store_errors():
                data = self._stream.finish()
        except pa.ArrowException:
            raise _unstorable() from None
        file = FileRef(self._name.data_path, len(data), stored_checksum(data))
        stamps = self._stamps or {self._timestamp_ms}
        return data, EncodedFile(file, self.record_count, min(stamps), max(stamps))


def _of_bytes(kind: pa.DataType, values: NDArray[np.int64]) -> pa.Array[Any]:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values.data)])


def _unstorable() -> InvalidRecordError:
    """For what Arrow raises, whose words hold the value."""
    return InvalidRecordError(
        "a value that its column cannot hold in Parquet",
        expected="times of seconds within those of milliseconds; nulls neither where a nested type allows none "
        "nor among a dictionary's values",
    )


@lru_cache(maxsize=256)
def large_profile(schema: pa.Schema) -> ParquetProfile:
    """How a large data file of this physical schema is written.

    Statistics of very many columns, or of many with long values, would make a footer larger than readers take: then
    the first columns have some, and offsets and times.
    """
    flat = [field.name for field in schema if not field.type.num_fields]
    long = [name for name in flat if not _is_short(schema.field(name).type)]
    short = [
        name for name in flat if _is_short(schema.field(name).type) and name not in (OFFSET_DELTA, TIMESTAMP)
    ]
    if len(schema) <= _SHORT_STATISTICS_MAX and len(schema) - len(short) <= _LONG_STATISTICS_MAX:
        return LARGE
    chosen = (*short[:_SHORT_STATISTICS_MAX], *long[:_LONG_STATISTICS_MAX], OFFSET_DELTA, TIMESTAMP)
    return replace(LARGE, write_statistics=chosen)


def _is_short(kind: pa.DataType) -> bool:
    """Whether a value has few bytes, so that the least and the greatest in a footer have."""
    return pa.types.is_primitive(kind) or pa.types.is_decimal(kind)


def read_data_file(
    objects: Objects,
    prefix: str,
    log_file: LogFile,
    schema: pa.Schema,
    partition: int,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.Table]:
    """The records of a file, with `_partition`, `_offset` and `_timestamp`; `columns` chooses among all of these.

    In parts, one at the least: as many row groups as take 128 MiB of memory together, or one that takes more. Where the
    log says that the file has no gaps, offsets are counted: its own distances are what `verify` reads.
    Raises `CorruptObjectError` unless the object is, byte for byte, the one that the log names.
    """
    key = f"{prefix}/{log_file.file.data_path}"
    wanted = [*schema.names, PARTITION, OFFSET, TIMESTAMP] if columns is None else list(columns)
    physical = [name for name in wanted if name not in (PARTITION, OFFSET)]
    if (OFFSET in wanted and log_file.has_gaps) or not physical:
        physical.append(OFFSET_DELTA)
    opened = open_data_file(objects, key, log_file, schema, physical)
    behind = 0
    for groups in _parts(opened.row_group_bytes):
        table = _read(opened, groups, physical, key)
        check_records(table, log_file, key, first_delta=behind)
        begin, behind = behind, behind + len(table)
        if OFFSET_DELTA in physical and len(table):
            behind = table.column(OFFSET_DELTA)[-1].as_py() + 1
        try:
            logical = _logical(table, schema, wanted, partition, log_file.base_offset, begin)
        except pa.ArrowNotImplementedError as error:  # topics of before such columns were refused
            raise UnsupportedFormatError(
                f"columns that Arrow does not give back: {error}",
                place=key,
                expected="the types of a topic as they are stored",
                action="any Parquet reader reads the file; copy it into a topic of the stored types",
            ) from None
        del table  # one part at a time
        yield logical
        del logical


def begun(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same tables, the first of them read now: by who reads ahead."""
    first = next(tables, None)
    return iter(()) if first is None else chain((first,), tables)


def _parts(row_group_bytes: Sequence[int]) -> Iterator[list[int]]:
    """The row groups in order, so many together as are read at once."""
    part: list[int] = []
    held = 0
    for number, needed in enumerate(row_group_bytes):
        if part and held + needed > _PART_BYTES:
            yield part
            part, held = [], 0
        part.append(number)
        held += needed
    yield part


def _read(opened: OpenedParquet, groups: list[int], columns: list[str], key: str) -> pa.Table:
    rows = sum(opened.footer.row_groups[number].rows for number in groups)
    try:
        return opened.file.read_row_groups(groups, columns=columns, use_threads=rows >= _THREADS_FROM_ROWS)
    except UNREADABLE as error:
        raise CorruptObjectError(f"records that cannot be read: {error}", place=key) from error


def open_data_file(
    objects: Objects, key: str, log_file: LogFile, schema: pa.Schema, columns: Sequence[str]
) -> OpenedParquet:
    """The file that the log names, for these columns of it to be read: none of its records is read yet.

    Raises `CorruptObjectError` unless the object is, byte for byte, that one, with the topic's columns and as many
    records as the log says, within the format's limits.
    """
    data = objects.read(key, max_bytes=log_file.file.data_bytes)
    if len(data) != log_file.file.data_bytes:
        raise CorruptObjectError(
            f"{len(data)} bytes", place=key, expected=f"{log_file.file.data_bytes}, as the log says"
        )
    with store_errors():
        opened = open_parquet(data, key=key, kind="data", columns=columns)
    checksum, rows = opened.metadata.get("checksum"), opened.file.metadata.num_rows
    if checksum != log_file.file.checksum or rows != log_file.record_count:
        raise CorruptObjectError(
            f"checksum {checksum}, {rows} rows",
            place=key,
            expected=f"checksum {log_file.file.checksum}, {log_file.record_count} rows, as the log says",
        )
    found, stored = opened.file.schema_arrow, stored_schema(schema)
    if found.names != stored.names or any(
        found.field(name).type != stored.field(name).type for name in columns
    ):
        raise CorruptObjectError(
            f"columns {', '.join(map(str, found))}"[:400], place=key, expected="the columns of the topic"
        )
    return opened


def check_records(
    table: pa.Table | pa.RecordBatch, log_file: LogFile, key: str, *, first_delta: int = 0
) -> None:
    """Raise `CorruptObjectError` unless these records, or the next of them, can be those that the log names; none of
    them lies before `first_delta`.
    """
    names = table.schema.names
    if OFFSET_DELTA in names:
        last = log_file.last_offset - log_file.base_offset
        _check_deltas(table.column(OFFSET_DELTA), first_delta, last, key)
    if TIMESTAMP in names and len(table):
        oldest, newest = map(bounded_time, _extremes(table.column(TIMESTAMP), key))
        if oldest < log_file.first_timestamp or newest > log_file.max_timestamp:
            raise CorruptObjectError(
                f"timestamps {oldest} to {newest}",
                place=key,
                expected=f"{log_file.first_timestamp} to {log_file.max_timestamp}, as the log says",
            )


def _check_deltas(column: pa.ChunkedArray[Any] | pa.Array[Any], first: int, last: int, key: str) -> None:
    deltas = column.to_numpy()
    inside = not len(deltas) or (deltas[0] >= first and deltas[-1] <= last)
    if column.null_count or not inside or not (deltas[1:] > deltas[:-1]).all():
        raise CorruptObjectError(
            "offset deltas out of order", place=key, expected=f"ascending, {first} to {last}"
        )


def _extremes(column: pa.ChunkedArray[Any] | pa.Array[Any], key: str) -> tuple[int, int]:
    """The lowest and the highest time of a column, in ms."""
    if column.null_count:
        raise CorruptObjectError(f"{column.null_count} nulls in {TIMESTAMP}", place=key, expected="none")
    found: Any = pc.min_max(column.cast(pa.int64()))
    return found["min"].as_py(), found["max"].as_py()


def _logical(
    table: pa.Table, schema: pa.Schema, wanted: Sequence[str], partition: int, base_offset: int, begin: int
) -> pa.Table:
    """`begin`: the distance of the first record, where those of a file without gaps were not read."""
    arrays: list[pa.ChunkedArray[Any]] = []
    for name in wanted:
        if name == PARTITION:
            arrays.append(pa.chunked_array([pa.repeat(pa.scalar(partition, pa.int32()), table.num_rows)]))
        elif name == OFFSET and OFFSET_DELTA in table.schema.names:
            arrays.append(pc.add(table.column(OFFSET_DELTA), pa.scalar(base_offset, pa.int64())))
        elif name == OFFSET:
            first = base_offset + begin
            counted = np.arange(first, first + table.num_rows, dtype=np.int64)
            arrays.append(pa.chunked_array([_of_bytes(pa.int64(), counted)]))
        else:
            kind = logical_type(schema, name)
            column = table.column(name)
            arrays.append(column if column.type == kind else column.cast(kind))
    return pa.Table.from_arrays(arrays, schema=logical_schema(schema, wanted))


def logical_type(schema: pa.Schema, name: str) -> pa.DataType:
    """The type under which a column is read."""
    if name == PARTITION:
        return pa.int32()
    if name == OFFSET:
        return pa.int64()
    if name == TIMESTAMP:
        return TIMESTAMP_TYPE
    kind: pa.DataType = schema.field(name).type
    return kind


def logical_schema(schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Schema:
    """The schema of what reads return: the topic's columns, `_partition`, `_offset`, `_timestamp`."""
    names = [*schema.names, PARTITION, OFFSET, TIMESTAMP] if columns is None else columns
    return pa.schema([(name, logical_type(schema, name)) for name in names])
