"""Data files: a batch's records to bytes and back (docs/FORMAT.md), and the check of records against a
topic's schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    InvalidRequestError,
    RecordTooLargeError,
)
from txn_engine.exact import InexactError, filled_below_nulls, has_required, require_whole
from txn_engine.held import held_type, is_layout_of, laid_out
from txn_engine.log.objects import Objects, store_errors
from txn_engine.protocol.batches import FileRef
from txn_engine.protocol.file_names import DataFileName
from txn_engine.protocol.log_time import bounded_time
from txn_engine.protocol.partition import LogFile
from txn_engine.reasons import Reason
from txn_engine.schemas.column_names import given_twice, names_unlike
from txn_engine.schemas.defaults import filled, fills
from txn_engine.schemas.layout import (
    OFFSET,
    OFFSET_DELTA,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    Layout,
    Schemas,
)
from txn_engine.schemas.plan import Source, sources
from txn_engine.schemas.widening import is_widening

SCHEMA_KEY = "schema"
"""Of a file's metadata: the version of the topic's schema that it has; absent: 0."""
_VERSION = re.compile(r"[1-9][0-9]{0,8}")
_LARGE_FROM_BYTES = 256 * 1024
_SHORT_STATISTICS_MAX = 256
_LONG_STATISTICS_MAX = 16  # two values of up to 4 kB each, in every row group
_THREADS_FROM_ROWS = 20_000  # Arrow has a thread a core, and decodes no faster in more
PART_BYTES = 128 << 20
"""How many bytes of row groups are read of a file at a time."""


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """A data file on the store, and how descriptors will name it."""

    file: FileRef
    record_count: int
    first_timestamp: int
    max_timestamp: int


def conform(table: pa.Table, schemas: Schemas, *, topic: str) -> pa.Table:
    """The records with the topic's columns, in its order, under the types that values are held under
    (`txn_engine.held`). Raises `InvalidRecordError` naming what does not fit, and `RecordTooLargeError` for a record
    that no reader would take.

    Nothing is cast that could lose anything: only between Arrow's layouts of the same values, and from a type that the
    column had before it was widened. A column that was added to the topic since it was made, and that the records lack,
    is filled as older records are: with its default, or with nulls. A value that its own type does not have (a decimal
    of more digits than its precision, which `cast(safe=False)` leaves behind) is refused: the file would cut it without
    a word.
    """
    found = _in_order(_completed(table, schemas), schemas, topic=topic)
    for field, column in zip(found.schema, found.columns, strict=True):
        try:
            require_whole(column)
        except InexactError as error:
            raise InvalidRecordError(
                f"a value of column {field.name!r}, row {error.index}, that {field.type} does not have",
                actor=f"produce to {topic!r}",
                expected="values that fit their type, and maps with each key once",
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
        f"record {row} of {size} {unit}",
        actor=f"produce to {topic!r}",
        expected=f"at most {most}",
        reason=Reason.ROW_BEYOND_READERS,
    )


def _completed(table: pa.Table, schemas: Schemas) -> pa.Table:
    """The records, with the columns that are younger than the topic and that they lack."""
    for name, value in fills(schemas.held).items():
        if name not in table.schema.names:
            kind = held_type(schemas.layout.by_name[name].type)
            table = table.append_column(name, filled(kind, value, table.num_rows))
    return table


def _in_order(table: pa.Table, schemas: Schemas, *, topic: str) -> pa.Table:
    schema = schemas.layout.held.arrow
    is_plain = all(field.nullable and not has_required(field.type) for field in schema)
    if is_plain and table.schema.equals(schema):
        return table.replace_schema_metadata(None)
    actor = f"produce to {topic!r}"
    if set(table.schema.names) != set(schema.names) or len(table.schema.names) != len(schema.names):
        missing = [name for name in schema.names if name not in table.schema.names]
        extra = [name for name in table.schema.names if name not in schema.names]
        raise InvalidRecordError(
            f"{names_unlike(missing, extra, given_twice(table.schema.names))}{_former_names(schemas, extra)}",
            actor=actor,
            expected=f"the columns {schema.names}",
            reason=Reason.OTHER_COLUMNS,
        )
    columns = []
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            declared = schemas.arrow.field(field.name).type
            if not is_layout_of(column.type, declared) and not _was(schemas, field.name, column.type):
                raise InvalidRecordError(
                    f"column {field.name!r} of type {column.type}",
                    actor=actor,
                    expected=str(declared),
                    reason=Reason.TYPE_MISMATCH,
                )
            column = laid_out(column, field.type)
        if not field.nullable and column.null_count:
            raise InvalidRecordError(
                f"{column.null_count} nulls in column {field.name!r}",
                actor=actor,
                expected="none",
                reason=Reason.NULL_IN_NOT_NULL,
            )
        columns.append(filled_below_nulls(column) if has_required(field.type) else column)
    return pa.Table.from_arrays(columns, schema=schema)


def _former_names(schemas: Schemas, names: Sequence[str]) -> str:
    """What became of columns that had these names."""
    told = []
    for name in names:
        now = schemas.layout.by_id.get(schemas.layout.owners.get(name, -1))
        if now is not None:
            told.append(f"{name!r} is called {now.name!r} now")
        elif name in schemas.layout.owners:
            told.append(f"{name!r} was dropped")
    return f" ({', '.join(told)})" if told else ""


def _was(schemas: Schemas, name: str, kind: pa.DataType) -> bool:
    """Whether the column had this type, and was widened since."""
    column = schemas.layout.by_name[name]
    before = (layout.by_id.get(column.id) for layout in schemas.layouts[: schemas.version])
    return is_widening(kind, column.type) and any(each is not None and each.type == kind for each in before)


@lru_cache(maxsize=256)
def stored_schema(layout: Layout) -> pa.Schema:
    """The physical schema as Parquet gives it back: some types have no name there, and become their nearest."""
    sink = pa.BufferOutputStream()
    # An empty table would do, and would load pandas.
    pq.ParquetWriter(sink, layout.physical, store_schema=False).close()
    stored: pa.Schema = pq.read_schema(pa.BufferReader(sink.getvalue()))
    return stored


def encode_data_file(
    records: pa.Table, layout: Layout, name: DataFileName, timestamp_ms: int
) -> tuple[bytes, EncodedFile]:
    """The bytes of a batch's file; `records` conform to the layout and all get the one timestamp."""
    encoder = DataFileEncoder(layout, name, timestamp_ms, is_large=records.nbytes >= _LARGE_FROM_BYTES)
    encoder.write(records)
    return encoder.finish()


class DataFileEncoder:
    """A batch's file, of records that come in parts: each conforms to the layout, and all get the timestamp
    unless a part has its own, or one for each record in a column `_timestamp`.
    """

    def __init__(
        self, layout: Layout, name: DataFileName, timestamp_ms: int, *, is_large: bool = True
    ) -> None:
        self.record_count = 0
        self._schema = layout.physical
        self._name = name
        self._timestamp_ms = timestamp_ms
        self._stamps: set[int] = set()
        self._stream = ParquetStream(
            self._schema,
            kind="data",
            metadata=file_metadata(name.write_id, layout),
            profile=large_profile(self._schema) if is_large else SMALL,
        )

    @property
    def written_bytes(self) -> int:
        """How large the file is so far."""
        return self._stream.written_bytes

    def write(self, records: pa.Table, timestamp_ms: int | None = None) -> None:
        """The next records, as row groups of their own."""
        count = records.num_rows
        records, stamps = _stamped(records, self._timestamp_ms if timestamp_ms is None else timestamp_ms)
        deltas = np.arange(self.record_count, self.record_count + count, dtype=np.int64)
        own = (_of_bytes(pa.int64(), deltas), _of_bytes(TIMESTAMP_TYPE, stamps))
        table = pa.Table.from_arrays([*records.columns, *own], schema=self._schema)
        try:
            with store_errors():
                self._stream.write(table)
        except pa.ArrowException:
            raise _unstorable() from None
        self.record_count += count
        self._stamps.update((int(stamps.min()), int(stamps.max())) if count else ())

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


def _stamped(records: pa.Table, timestamp_ms: int) -> tuple[pa.Table, NDArray[np.int64]]:
    """The records without their times, and these."""
    if TIMESTAMP not in records.schema.names:
        return records, np.full(records.num_rows, timestamp_ms, dtype=np.int64)
    return records.drop_columns([TIMESTAMP]), records.column(TIMESTAMP).to_numpy().astype(np.int64)


def with_times(records: pa.Table, times: pa.ChunkedArray[Any]) -> pa.Table:
    """Records that each get a time of their own (int64, ms), in a column that no topic has."""
    return records.append_column(TIMESTAMP, times)


def newest_of(records: pa.Table, timestamp_ms: int) -> int:
    """The highest time of records that have their own; of others the one that they get."""
    if TIMESTAMP not in records.schema.names:
        return timestamp_ms
    return int(pc.max(records.column(TIMESTAMP)).as_py())


def file_metadata(write_id: str, layout: Layout) -> dict[str, str]:
    """What a data file says of itself."""
    version = {SCHEMA_KEY: str(layout.version)} if layout.version else {}
    return {"write_id": write_id, **version}


def version_of(metadata: Mapping[str, str], key: str) -> int:
    """The version of the topic's schema that a data file says it has."""
    said = metadata.get(SCHEMA_KEY)
    if said is None:
        return 0
    if _VERSION.fullmatch(said) is None:
        raise CorruptObjectError(
            f"schema {said!r:.40}", place=key, expected="the number of a version, from 1 on"
        )
    return int(said)


def _of_bytes(kind: pa.DataType, values: NDArray[np.int64]) -> pa.Array[Any]:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values.data)])


def _unstorable() -> InvalidRecordError:
    """For what Arrow raises, whose words hold the value."""
    return InvalidRecordError(
        "a value that its column cannot hold in Parquet",
        expected="times of seconds within those of milliseconds; nulls neither where a nested type allows none "
        "nor among a dictionary's values",
        reason=Reason.UNSTORABLE_VALUE,
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
    schemas: Schemas,
    partition: int,
    columns: Sequence[str] | None = None,
    *,
    topic: str,
    data: bytes | None = None,
    on_read: Callable[[OpenedParquet, pa.Table], None] | None = None,
) -> Iterator[pa.Table]:
    """The records of a file, with `_partition`, `_offset` and `_timestamp`; `columns` chooses among all of these.

    In parts, one at the least: as many row groups as take 128 MiB of memory together, or one that takes more. Where the
    log says that the file has no gaps, offsets are counted: its own distances are what `verify` reads. A file of
    another version of the schema gives the columns of the one that is asked for (`schemas.plan`).
    data: The object, if the caller has it. on_read: Told what was read of a file whose columns are the topic's as they
    stand there, once all of it was checked.
    Raises `CorruptObjectError` unless the object is, byte for byte, the one that the log names; `SchemaChangedError`
    where it has a newer version than `schemas` knows.
    """
    key = f"{prefix}/{log_file.file.data_path}"
    wanted = [*schemas.arrow.names, PARTITION, OFFSET, TIMESTAMP] if columns is None else list(columns)
    needs_deltas = OFFSET in wanted and log_file.has_gaps
    opened, chosen = open_data_file(
        objects, key, log_file, schemas, wanted, topic=topic, deltas=needs_deltas, data=data
    )
    behind = 0
    for groups in _parts(opened.row_group_bytes):
        table = read_row_groups(opened, groups, chosen.stored, key)
        check_records(table, log_file, key, first_delta=behind)
        if on_read is not None and chosen.is_as_stored():
            on_read(opened, table)
        begin, behind = behind, behind + len(table)
        if OFFSET_DELTA in chosen.stored and len(table):
            behind = table.column(OFFSET_DELTA)[-1].as_py() + 1
        try:
            logical = _logical(table, chosen, wanted, partition, log_file.base_offset, begin)
        except pa.ArrowInvalid:
            raise InvalidRequestError(
                f"a value that version {schemas.version} of the schema has no room for",
                actor=f"read of topic {topic!r}",
                place=key,
                expected="columns as they were widened since",
                action="read the latest version of the schema",
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
        if part and held + needed > PART_BYTES:
            yield part
            part, held = [], 0
        part.append(number)
        held += needed
    yield part


def read_row_groups(opened: OpenedParquet, groups: list[int], columns: list[str], key: str) -> pa.Table:
    """The records of these row groups. Raises `CorruptObjectError` if they cannot be read."""
    rows = sum(opened.footer.row_groups[number].rows for number in groups)
    try:
        return opened.file.read_row_groups(groups, columns=columns, use_threads=rows >= _THREADS_FROM_ROWS)
    except UNREADABLE as error:
        raise CorruptObjectError(f"records that cannot be read: {error}", place=key) from error


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is read of a file: `stored` columns of it, and what the topic's columns are made of, by name."""

    stored: list[str]
    sources: Mapping[str, Source]

    def is_as_stored(self) -> bool:
        """Whether every column is one of the file's, as it stands there."""
        return all(name == each.stored and not each.is_cast for name, each in self.sources.items())

    def column(self, table: pa.Table, name: str) -> pa.ChunkedArray[Any]:
        """The topic's column that comes of what was read of the file."""
        source = self.sources[name]
        if source.stored is None:
            held = pa.chunked_array([filled(source.type, source.fill, table.num_rows)])
        else:
            held = table.column(source.stored)
        column: pa.ChunkedArray[Any] = laid_out(held, source.type)
        return column


def choose(schemas: Schemas, file_version: int, wanted: Sequence[str], *, topic: str, deltas: bool) -> Chosen:
    """What of a file of that version is read for these columns of the topic, and its own `deltas`."""
    own = (PARTITION, OFFSET, TIMESTAMP)
    named = list(dict.fromkeys(name for name in wanted if name not in own))
    made = {each.name: each for each in sources(schemas, file_version, named, topic=topic)}
    stored = [each.stored for each in made.values() if each.stored is not None]
    if TIMESTAMP in wanted:
        stored.append(TIMESTAMP)
    if deltas or not stored:
        stored.append(OFFSET_DELTA)
    return Chosen(stored, made)


def open_data_file(
    objects: Objects,
    key: str,
    log_file: LogFile,
    schemas: Schemas,
    columns: Sequence[str],
    *,
    topic: str,
    deltas: bool,
    data: bytes | memoryview | None = None,
) -> tuple[OpenedParquet, Chosen]:
    """The file that the log names, for these columns of a read (and its own `deltas`): no record is read yet.

    Raises `CorruptObjectError` unless the object is, byte for byte, that one, with the topic's columns as of its
    version of the schema and as many records as the log says, within the format's limits.
    """
    if data is None:
        data = objects.read(key, max_bytes=log_file.file.data_bytes)
    if len(data) != log_file.file.data_bytes:
        raise CorruptObjectError(
            f"{len(data)} bytes", place=key, expected=f"{log_file.file.data_bytes}, as the log says"
        )
    found: list[Chosen] = []

    def stored(metadata: Mapping[str, str]) -> list[str]:
        version = version_of(metadata, key)
        found.append(choose(schemas, version, columns, topic=topic, deltas=deltas))
        return found[0].stored

    with store_errors():
        opened = open_parquet(data, key=key, kind="data", columns=stored)
    (chosen,) = found
    checksum, rows = opened.metadata.get("checksum"), opened.file.metadata.num_rows
    if checksum != log_file.file.checksum or rows != log_file.record_count:
        raise CorruptObjectError(
            f"checksum {checksum}, {rows} rows",
            place=key,
            expected=f"checksum {log_file.file.checksum}, {log_file.record_count} rows, as the log says",
        )
    version = version_of(opened.metadata, key)
    layout = schemas.layouts[version if version < len(schemas.layouts) else 0]
    is_known = layout.version == version
    check_columns(opened.file.schema_arrow, layout, chosen.stored, key, only_those=not is_known)
    return opened, chosen


def check_columns(
    found: pa.Schema, layout: Layout, columns: Sequence[str], key: str, *, only_those: bool = False
) -> None:
    """Raise `CorruptObjectError` unless a file has the layout's columns, or `only_those`, and these of their types."""
    stored = stored_schema(layout)
    has_all = set(columns) <= set(found.names) if only_those else found.names == stored.names
    if not has_all or any(found.field(name).type != stored.field(name).type for name in columns):
        raise CorruptObjectError(
            f"columns {', '.join(map(str, found))}"[:400], place=key, expected="the columns of the topic"
        )


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
            "offset deltas out of order",
            place=key,
            expected=f"ascending, {first} to {last}",
            reason=Reason.OFFSETS_OUT_OF_ORDER,
        )


def _extremes(column: pa.ChunkedArray[Any] | pa.Array[Any], key: str) -> tuple[int, int]:
    """The lowest and the highest time of a column, in ms."""
    if column.null_count:
        raise CorruptObjectError(f"{column.null_count} nulls in {TIMESTAMP}", place=key, expected="none")
    found: Any = pc.min_max(column.cast(pa.int64()))
    return found["min"].as_py(), found["max"].as_py()


def _logical(
    table: pa.Table, chosen: Chosen, wanted: Sequence[str], partition: int, base_offset: int, begin: int
) -> pa.Table:
    """`begin`: the distance of the first record, where those of a file without gaps were not read."""
    arrays: list[pa.ChunkedArray[Any]] = []
    fields: list[tuple[str, pa.DataType]] = []
    rows = table.num_rows
    for name in wanted:
        if name == PARTITION:
            kind: pa.DataType = pa.int32()
            arrays.append(pa.chunked_array([pa.repeat(pa.scalar(partition, pa.int32()), rows)]))
        elif name == OFFSET and OFFSET_DELTA in table.schema.names:
            kind = pa.int64()
            arrays.append(pc.add(table.column(OFFSET_DELTA), pa.scalar(base_offset, pa.int64())))
        elif name == OFFSET:
            kind = pa.int64()
            first = base_offset + begin
            counted = np.arange(first, first + rows, dtype=np.int64)
            arrays.append(pa.chunked_array([_of_bytes(kind, counted)]))
        elif name == TIMESTAMP:
            kind = TIMESTAMP_TYPE
            column = table.column(name)
            arrays.append(column if column.type == kind else column.cast(kind))
        else:
            kind = chosen.sources[name].type
            arrays.append(chosen.column(table, name))
        fields.append((name, kind))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


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
