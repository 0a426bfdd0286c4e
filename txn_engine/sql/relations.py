"""A topic as a relation of DuckDB's: its own Parquet reader over the list of files, and nothing in between.

What is the same for all records of a file (its partition, the offset that its distances count from) comes from a list,
by the file's number in the scan. DuckDB evaluates that once for each vector of records, not once for each record, and
not at all where it is not selected; projections and filters on stored columns reach Parquet, and a count its footers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from txn_engine.errors import InvalidRequestError
from txn_engine.schemas.layout import Schemas
from txn_engine.schemas.plan import Source, sources
from txn_engine.sql.file_parts import OFFSET, OFFSET_DELTA, PARTITION, TIMESTAMP, TOPIC, FilePart

Place = Callable[[FilePart], str]
"""What a file is opened by."""
_FILE = "_file"


@dataclass(frozen=True, slots=True)
class Beyond:
    """Files with times that DuckDB's Parquet reader does not read (`beyond`).

    tables: by the file's key, the table that has these columns of it. columns: by version of the schema, which stored
    columns those are. types: by the topic's column, the type that it has where a file is of this kind.
    """

    tables: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[int, Sequence[str]] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)


NOTHING_BEYOND: Final = Beyond()


def literal(text: str) -> str:
    """The text as SQL writes it."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def identifier(name: str) -> str:
    """The name as SQL writes it, whatever it holds."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def select_from(
    parts: Sequence[FilePart],
    schemas: Schemas,
    own: Sequence[str],
    *,
    topic: str,
    place: Place,
    beyond: Beyond = NOTHING_BEYOND,
) -> str:
    """A query for the records of these parts, of which there is one at the least: the topic's columns, and of
    `_topic`, `_partition`, `_offset` and `_timestamp` those in `own`. Files of one version of the schema are read
    together, those of another are made of what they have.
    """
    together: dict[int, list[FilePart]] = {}
    alone: list[FilePart] = []
    for part in parts:
        if part.is_whole and part.key not in beyond.tables:
            together.setdefault(part.schema_version, []).append(part)
        else:
            alone.append(part)
    groups = [*together.values(), *([part] for part in alone)]
    return " UNION ALL ".join(_select(group, schemas, own, topic, place, beyond) for group in groups)


def _select(
    parts: Sequence[FilePart],
    schemas: Schemas,
    own: Sequence[str],
    topic: str,
    place: Place,
    beyond: Beyond,
) -> str:
    version = parts[0].schema_version
    columns = sources(schemas.held, version, schemas.arrow.names, topic=topic)
    # a column of the topic's may have the name of DuckDB's own
    is_hidden = "file_index" in {name.lower() for name in schemas.layouts[version].by_name}
    names = [literal(place(part)) for part in parts]
    number = "file_index::BIGINT + 1"
    if is_hidden:
        number = f"list_position([{', '.join(names)}], {_FILE})"
    partitions = _of_file([part.partition for part in parts], "INTEGER", number)
    bases = _of_file([part.base_offset for part in parts], "BIGINT", number)
    expressions = {
        TOPIC: literal(topic),
        PARTITION: partitions,
        OFFSET: f"{bases} + {OFFSET_DELTA}",
        TIMESTAMP: TIMESTAMP,
    }
    made = [_made(column, beyond.types.get(column.name)) for column in columns]
    selected = [*made, *(f"{expressions[name]} AS {name}" for name in own)]
    options = f", filename = '{_FILE}'" if is_hidden else ""
    files = f"read_parquet([{', '.join(names)}], hive_partitioning = false{options})"
    query = f"SELECT {', '.join(selected)} FROM {_with_table(files, parts[0], beyond)}"
    if parts[0].is_whole:
        return query
    (part,) = parts
    first, behind = part.start - part.base_offset, part.end - part.base_offset
    return f"{query} WHERE {OFFSET_DELTA} >= {first} AND {OFFSET_DELTA} < {behind}"


def _with_table(files: str, part: FilePart, beyond: Beyond) -> str:
    """The file, some of whose columns a table has."""
    table = beyond.tables.get(part.key)
    if table is None:
        return files
    names = [identifier(name) for name in beyond.columns[part.schema_version]]
    columns = ", ".join([f"f.* EXCLUDE ({', '.join(names)})", *(f"b.{name}" for name in names)])
    return f"(SELECT {columns} FROM {files} f JOIN {table} b USING ({OFFSET_DELTA}))"


def _made(source: Source, beyond: str | None) -> str:
    """The column of the topic that comes of what a file has; `beyond`: the type that it has to have (`Beyond`)."""
    if beyond is None:
        return _plain(source)
    name = identifier(source.name)
    value = _plain(source).removesuffix(f" AS {name}")
    return f"CAST({value} AS {beyond}) AS {name}"


def _plain(source: Source) -> str:
    name = identifier(source.name)
    if source.stored == source.name and not source.is_cast:
        return name
    stored = "NULL" if source.stored is None else identifier(source.stored)
    if source.fill is not None:
        stored = value_literal(source.fill)
    if source.stored is not None and not source.is_cast:
        return f"{stored} AS {name}"
    return f"CAST({stored} AS {duck_type(source.type)}) AS {name}"


def value_literal(value: Any) -> str:
    """A scalar as SQL writes it, to be cast to its type."""
    if pa.types.is_temporal(value.type):
        unit = pa.int32() if value.type == pa.date32() else pa.int64()
        return _time(value.cast(unit).as_py(), value.type)
    plain = value.as_py()
    if isinstance(plain, bytes):
        return f"from_hex({literal(plain.hex())})"
    if isinstance(plain, Decimal):  # DuckDB does not take every exponent: 1E-10 is no DECIMAL(10, 10) there
        return literal(format(plain, "f"))
    return literal(str(plain))


def _time(count: int, kind: Any) -> str:
    if kind == pa.date32():
        return f"DATE '1970-01-01' + {count}::INTEGER"
    made = {"ms": "make_timestamp_ms", "us": "make_timestamp", "ns": "make_timestamp_ns"}[kind.unit]
    plain = f"{made}({count}::BIGINT)"
    return plain if kind.tz is None else f"timezone('UTC', {plain})"


def duck_type(kind: Any) -> str:
    """DuckDB's name for what it reads such a column of a Parquet file as; of flat types alone."""
    if kind in _DUCK_TYPES:
        return _DUCK_TYPES[kind]
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        nanos = "TIMESTAMP_NS" if kind.unit == "ns" else "TIMESTAMP"
        return nanos if kind.tz is None else "TIMESTAMP WITH TIME ZONE"
    raise InvalidRequestError(f"a column of type {kind}, which changed", expected="a flat type")


_DUCK_TYPES: Final[Mapping[pa.DataType, str]] = MappingProxyType(
    {
        pa.bool_(): "BOOLEAN",
        pa.int8(): "TINYINT",
        pa.int16(): "SMALLINT",
        pa.int32(): "INTEGER",
        pa.int64(): "BIGINT",
        pa.uint8(): "UTINYINT",
        pa.uint16(): "USMALLINT",
        pa.uint32(): "UINTEGER",
        pa.uint64(): "UBIGINT",
        pa.float32(): "FLOAT",
        pa.float64(): "DOUBLE",
        pa.string(): "VARCHAR",
        pa.large_string(): "VARCHAR",
        pa.binary(): "BLOB",
        pa.large_binary(): "BLOB",
        pa.date32(): "DATE",
    }
)


def _of_file(values: Sequence[int], kind: str, number: str) -> str:
    """The value for each file; one that all have in common stands for itself."""
    if len(set(values)) == 1:
        return f"{values[0]}::{kind}"
    return f"list_extract([{', '.join(map(str, values))}]::{kind}[], {number})"
