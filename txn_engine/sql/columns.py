"""The types of a result: of a column that is one of a topic's as it stands, the topic's own; of all else DuckDB's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from txn_engine.errors import InvalidRequestError
from txn_engine.exact import InexactError, require_whole
from txn_engine.held import held_type, laid_out
from txn_engine.reasons import Reason
from txn_engine.sql.file_parts import OFFSET, PARTITION, TIMESTAMP, TOPIC
from txn_engine.sql.permitted import ACTOR
from txn_engine.sql.statement import PlainColumns

OWN: Final = (TOPIC, PARTITION, OFFSET, TIMESTAMP)
_OWN_TYPES: Final = (pa.string(), pa.int32(), pa.int64(), pa.timestamp("ms", tz="UTC"))
DIGITS_MAX: Final = 38


def table_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a topic as a table: its own, then `_topic`, `_partition`, `_offset` and `_timestamp`."""
    fields = [pa.field(field.name, field.type) for field in schema]
    return pa.schema([*fields, *map(pa.field, OWN, _OWN_TYPES)])


def check_schema(topic: str, schema: pa.Schema) -> None:
    """Raise `InvalidRequestError` for columns that DuckDB would not give back as they are."""
    refuse_names_alike(topic, schema, "read it with scan()")
    for field in schema:
        wide = wide_decimal(field.type)
        if wide is not None:
            raise InvalidRequestError(
                f"column {field.name!r} of topic {topic!r}, with {wide}",
                actor=ACTOR,
                expected=f"decimals of at most {DIGITS_MAX} digits, which are all that SQL has exactly",
                action="read it with scan()",
                reason=Reason.UNSUPPORTED_TYPE,
            )


def refuse_names_alike(topic: str, schema: pa.Schema, action: str) -> None:
    """Raise `InvalidRequestError` for two columns of which SQL would read one for the other."""
    seen: dict[str, str] = {}
    for name in schema.names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise InvalidRequestError(
                f"columns {other!r} and {name!r} of topic {topic!r}",
                actor=ACTOR,
                expected="names that differ by more than case, which SQL does not tell apart",
                action=action,
                reason=Reason.COLUMN_NAMES_ALIKE,
            )


_NESTED: Final = frozenset({"list", "array", "struct", "tuple", "map", "union"})
_IN_ARROW: Final = frozenset(
    {
        *("null", "boolean", "varchar", "blob", "uuid", "enum", "decimal", "float", "double", "interval"),
        *("tinyint", "smallint", "integer", "bigint", "hugeint"),
        *("utinyint", "usmallint", "uinteger", "ubigint"),
        *("date", "time", "time_ns", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"),
        *("timestamp with time zone", "timestamptz_ns"),
    }
)
"""Types of DuckDB that Arrow has. BIT, VARIANT and GEOMETRY would come out as bytes of DuckDB's own."""


def wide_decimal(kind: Any) -> pa.DataType | None:
    """The decimal, this type or one inside it, that has more digits than SQL keeps: DuckDB reads it as a DOUBLE."""
    return inner_type(kind, lambda each: pa.types.is_decimal(each) and each.precision > DIGITS_MAX)


def inner_type(kind: Any, is_meant: Callable[[Any], bool]) -> pa.DataType | None:
    """The first type that is meant: this one, or one inside it at any depth; None where there is no such type."""
    held = held_type(kind)
    if isinstance(held, pa.BaseExtensionType):
        held = held.storage_type
    if is_meant(held):
        found: pa.DataType = held
        return found
    inner = (inner_type(held.field(number).type, is_meant) for number in range(held.num_fields))
    return next((each for each in inner if each is not None), None)


def check_result(names: Sequence[str], types: Sequence[Any]) -> None:
    """Raise `InvalidRequestError` for a column that would leave DuckDB as another value, or as bytes of its own."""
    for name, kind in zip(names, types, strict=True):
        if not _has_arrow_type(kind):
            raise InvalidRequestError(
                f"column {name!r} of type {kind}",
                actor=ACTOR,
                expected="a type that Arrow has",
                action=f"cast it: {name}::VARCHAR",
                reason=Reason.UNSUPPORTED_TYPE,
            )


def _has_arrow_type(kind: Any) -> bool:
    """Whether Arrow has a type of DuckDB's, and those inside it, with the same values."""
    if kind.id in _NESTED:
        inside = [each for _, each in kind.children if hasattr(each, "id")]
        return all(map(_has_arrow_type, inside))
    return kind.id in _IN_ARROW


def typed(found: pa.Table, plain: PlainColumns, schemas: Mapping[str, pa.Schema]) -> pa.Table:
    """The result, its plain columns in the types of the topics; `schemas` are those of `table_schema` by table name.

    Raises `InvalidRequestError` for a number of more digits than Arrow has for DuckDB's HUGEINT.
    """
    for name, column in zip(found.schema.names, found.columns, strict=True):
        _refuse_too_long(name, column)
    columns = [
        _cast(column, _type_of(name.lower(), plain, schemas) or column.type)
        for name, column in zip(found.schema.names, found.columns, strict=True)
    ]
    fields = [pa.field(name, column.type) for name, column in zip(found.schema.names, columns, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _refuse_too_long(name: str, column: pa.ChunkedArray[Any]) -> None:
    if not pa.types.is_decimal(column.type):
        return
    try:
        require_whole(column)
    except InexactError:
        raise InvalidRequestError(
            f"column {name!r} with a value that {column.type} does not have",
            actor=ACTOR,
            expected=f"numbers of at most {DIGITS_MAX} digits",
            action=f"cast it: {name}::VARCHAR",
            reason=Reason.INEXACT_VALUE,
        ) from None


def _type_of(name: str, plain: PlainColumns, schemas: Mapping[str, pa.Schema]) -> pa.DataType | None:
    """The type of the topic's column; None where it is none, or where several topics disagree."""
    column = plain.named.get(name, name if plain.has_star else None)
    if column is None or name in plain.computed:
        return None
    kinds = {
        field.type
        for source in plain.sources
        for field in schemas[source.name]
        if field.name.lower() == column
    }
    return kinds.pop() if len(kinds) == 1 else None


def _cast(column: pa.ChunkedArray[Any], kind: pa.DataType) -> pa.ChunkedArray[Any]:
    found: pa.ChunkedArray[Any] = laid_out(column, kind, _cast_leaf)
    return found


def _cast_leaf(array: Any, kind: Any) -> Any:
    if pa.types.is_string(array.type) and kind == pa.binary(16):  # DuckDB gives UUIDs as their usual text
        texts = array.to_pylist()
        return pa.array(
            [None if each is None else bytes.fromhex(each.replace("-", "")) for each in texts], kind
        )
    return array.cast(kind)
