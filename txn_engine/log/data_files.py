"""Data files: a batch's records to bytes and back (docs/FORMAT.md), and the check of records against a
topic's schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage import LARGE, SMALL, decode_parquet, encode_parquet, stored_checksum
from txn_engine.errors import CorruptObjectError, InvalidRecordError
from txn_engine.log.objects import Objects, store_errors
from txn_engine.protocol.batches import FileRef
from txn_engine.protocol.file_names import DataFileName
from txn_engine.protocol.partition import LogFile

TIMESTAMP_TYPE = pa.timestamp("ms", tz="UTC")
OFFSET_DELTA = "_offset_delta"
TIMESTAMP = "_timestamp"
PARTITION = "_partition"
OFFSET = "_offset"
_LARGE_FROM_BYTES = 256 * 1024
_THREADS_FROM_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """A data file on the store, and how descriptors will name it."""

    file: FileRef
    record_count: int
    first_timestamp: int
    max_timestamp: int


def conform(table: pa.Table, schema: pa.Schema, *, topic: str) -> pa.Table:
    """The records with the topic's columns, in its order. Raises `InvalidRecordError` naming what does not
    fit.

    Nothing is cast that could lose anything: only between a string's or binary's layouts, and from a
    dictionary to its values.
    """
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
    """The schema of a topic's data files."""
    own = (
        pa.field(OFFSET_DELTA, pa.int64(), nullable=False),
        pa.field(TIMESTAMP, TIMESTAMP_TYPE, nullable=False),
    )
    return pa.schema([*schema, *own])


def encode_data_file(records: pa.Table, name: DataFileName, timestamp_ms: int) -> tuple[bytes, EncodedFile]:
    """The bytes of a batch's file; `records` conform to the topic's schema and all get the one timestamp."""
    count = records.num_rows
    deltas = pa.array(np.arange(count, dtype=np.int64))
    stamps = pa.array(np.full(count, timestamp_ms, dtype=np.int64)).view(TIMESTAMP_TYPE)
    table = pa.Table.from_arrays([*records.columns, deltas, stamps], schema=physical_schema(records.schema))
    profile = LARGE if records.nbytes >= _LARGE_FROM_BYTES else SMALL
    data = encode_parquet(table, kind="data", metadata={"write_id": name.write_id}, profile=profile)
    file = FileRef(name.data_path, len(data), stored_checksum(data))
    return data, EncodedFile(file, count, timestamp_ms, timestamp_ms)


def read_data_file(
    objects: Objects,
    prefix: str,
    log_file: LogFile,
    schema: pa.Schema,
    partition: int,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """The records of a file, with `_partition`, `_offset` and `_timestamp`; `columns` chooses among all of these.

    Raises `CorruptObjectError` unless the object is, byte for byte, the one that the log names.
    """
    key = f"{prefix}/{log_file.file.data_path}"
    wanted = [*schema.names, PARTITION, OFFSET, TIMESTAMP] if columns is None else list(columns)
    data = objects.read(key)
    if len(data) != log_file.file.data_bytes:
        raise CorruptObjectError(
            f"{len(data)} bytes", place=key, expected=f"{log_file.file.data_bytes}, as the log says"
        )
    physical = [name for name in wanted if name not in (PARTITION, OFFSET)]
    if OFFSET in wanted or not physical:
        physical.append(OFFSET_DELTA)
    with store_errors():
        table, metadata = decode_parquet(
            data,
            key=key,
            kind="data",
            columns=physical,
            use_threads=log_file.record_count >= _THREADS_FROM_ROWS,
        )
    if metadata.get("checksum") != log_file.file.checksum or table.num_rows != log_file.record_count:
        raise CorruptObjectError(
            f"checksum {metadata.get('checksum')}, {table.num_rows} rows",
            place=key,
            expected=f"checksum {log_file.file.checksum}, {log_file.record_count} rows, as the log says",
        )
    return _logical(table, schema, wanted, partition, log_file.base_offset)


def _logical(
    table: pa.Table, schema: pa.Schema, wanted: Sequence[str], partition: int, base_offset: int
) -> pa.Table:
    arrays: list[pa.ChunkedArray[Any]] = []
    for name in wanted:
        if name == PARTITION:
            arrays.append(pa.chunked_array([pa.repeat(pa.scalar(partition, pa.int32()), table.num_rows)]))
        elif name == OFFSET:
            arrays.append(pc.add(table.column(OFFSET_DELTA), pa.scalar(base_offset, pa.int64())))
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
