"""Times of milliseconds that DuckDB's TIMESTAMP does not reach: it counts microseconds, for 292,000 years from 1970.

DuckDB's Parquet reader fails on a file with one such time, whatever the query wants of the others. Arrow reads them,
and what DuckDB takes from Arrow is a TIMESTAMP_MS, which holds each of them. So the columns with times of milliseconds
of such a file become a table of DuckDB's, and those of the topic's other files are converted to the same type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa

from storage.envelope import open_parquet
from txn_engine.log.objects import Objects
from txn_engine.log.topics import Topic
from txn_engine.schemas.layout import Layout
from txn_engine.schemas.plan import sources
from txn_engine.sql.file_parts import OFFSET_DELTA, TIMESTAMP, FilePart
from txn_engine.sql.relations import Beyond, identifier

_ERROR: Final = re.compile(r"Could not convert Timestamp(\(MS\)|\(S\)| to higher precision)")


def is_beyond(error: duckdb.Error) -> bool:
    """Whether DuckDB failed for a time that a TIMESTAMP does not reach."""
    return _ERROR.search(str(error)) is not None


def is_conversion(error: duckdb.Error) -> bool:
    """Whether the query itself converted such a time: DuckDB may fail to say so, and take no further query then."""
    return is_beyond(error) or isinstance(error, (duckdb.InternalException, duckdb.FatalException))


def find_beyond(
    cursor: duckdb.DuckDBPyConnection,
    objects: Objects,
    topic: Topic,
    parts: Sequence[FilePart],
    place: Callable[[FilePart], str],
) -> Beyond:
    """The files of the topic that hold such times, with a table of this connection for each.

    `place`: what DuckDB opens a file by.
    """
    tables: dict[str, str] = {}
    types: dict[str, str] = {}
    columns: dict[int, list[str]] = {}
    for version in {part.schema_version for part in parts}:
        names = columns[version] = _columns(topic.schemas.layouts[version])
        made = sources(topic.schemas, version, topic.schemas.arrow.names, topic=topic.name)
        group = [part for part in parts if part.schema_version == version]
        for part in _holding(cursor, group, names, place):
            table = tables[part.key] = f"_beyond_{topic.incarnation}_{len(tables)}"
            _make(cursor, objects, part, names, table)
            kinds = _kinds(cursor, table)
            types |= {
                each.name: kinds[each.stored] for each in made if each.stored in names and not each.is_cast
            }
    return Beyond(tables, columns, types)


def _columns(layout: Layout) -> list[str]:
    """The stored columns with times of milliseconds; the engine's own times are checked where they are written."""
    return [field.name for field in layout.physical if field.name != TIMESTAMP and _counts_millis(field.type)]


def _counts_millis(kind: Any) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.unit in ("s", "ms")
    if pa.types.is_dictionary(kind):
        return _counts_millis(kind.value_type)
    return any(_counts_millis(kind.field(number).type) for number in range(kind.num_fields))


def _holding(
    cursor: duckdb.DuckDBPyConnection,
    parts: Sequence[FilePart],
    names: Sequence[str],
    place: Callable[[FilePart], str],
) -> Iterator[FilePart]:
    """The parts whose files DuckDB cannot read these columns of: halves are looked at until each is known."""
    if not names or not parts or _is_read(cursor, [place(part) for part in parts], names):
        return
    if len(parts) == 1:
        yield from parts
        return
    middle = len(parts) // 2
    for half in (parts[:middle], parts[middle:]):
        yield from _holding(cursor, half, names, place)


def _is_read(cursor: duckdb.DuckDBPyConnection, paths: Sequence[str], names: Sequence[str]) -> bool:
    hashed = ", ".join(map(identifier, names))
    try:
        cursor.execute(
            f"SELECT max(hash({hashed})) FROM read_parquet($1, hive_partitioning = false)", [paths]
        )
    except duckdb.ConversionException:
        return False
    cursor.fetchall()
    return True


def _make(
    cursor: duckdb.DuckDBPyConnection, objects: Objects, part: FilePart, names: Sequence[str], table: str
) -> None:
    """The table of these columns of the file, and of the distances by which its records are found."""
    wanted = [OFFSET_DELTA, *names]
    opened = open_parquet(
        objects.read(part.key, max_bytes=part.size), key=part.key, kind="data", columns=wanted
    )
    schema = pa.schema([(name, _naive(opened.file.schema_arrow.field(name).type)) for name in wanted])
    batches = (
        pa.RecordBatch.from_arrays(
            [batch.column(name).cast(schema.field(name).type) for name in wanted], schema=schema
        )
        for batch in opened.file.iter_batches(columns=wanted, use_threads=False)
    )
    cursor.register(f"{table}_read", pa.RecordBatchReader.from_batches(schema, batches))
    cursor.execute(f"CREATE TEMP TABLE {table} AS FROM {table}_read")
    cursor.unregister(f"{table}_read")


def _naive(kind: Any) -> Any:
    """The type without zones: DuckDB has zones only for microseconds. What is stored is in UTC."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if pa.types.is_dictionary(kind):
        return _naive(kind.value_type)
    if pa.types.is_map(kind):
        return pa.map_(_naive(kind.key_type), _naive(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct(
            [
                kind.field(number).with_type(_naive(kind.field(number).type))
                for number in range(kind.num_fields)
            ]
        )
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_naive(kind.value_type), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_naive(kind.value_type))
    return kind


def _kinds(cursor: duckdb.DuckDBPyConnection, table: str) -> dict[str | None, str]:
    """DuckDB's names for the types of the table's columns."""
    return {name: kind for name, kind, *_ in cursor.execute(f"DESCRIBE {table}").fetchall()}
