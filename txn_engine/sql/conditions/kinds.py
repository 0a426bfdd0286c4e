"""The types that a condition computes with: one for all Arrow types that hold the same values."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from txn_engine.files.kinds import is_binary, is_number, is_string

Kind = Any
"""A `pa.DataType`. Its stubs do not know what decimals, timestamps and lists have besides."""
TEXT: Final = pa.large_string()
BYTES: Final = pa.large_binary()
BOOLEAN: Final = pa.bool_()
DAY: Final = pa.date32()
LENGTH: Final = pa.int64()
DECIMAL_DIGITS: Final = 38
"""The most digits of a decimal that SQL has a name for."""
_DECIMAL_DEFAULT: Final = (18, 3)

_TYPE_NAMES: Final[dict[pa.DataType, tuple[str, ...]]] = {
    pa.bool_(): ("BOOLEAN", "BOOL", "LOGICAL"),
    pa.int8(): ("TINYINT", "INT1"),
    pa.int16(): ("SMALLINT", "INT2", "INT16", "SHORT"),
    pa.int32(): ("INTEGER", "INT", "INT4", "INT32", "INTEGRAL", "SIGNED"),
    pa.int64(): ("BIGINT", "INT8", "INT64", "LONG"),
    pa.uint8(): ("UTINYINT", "UINT8"),
    pa.uint16(): ("USMALLINT", "UINT16"),
    pa.uint32(): ("UINTEGER", "UINT32"),
    pa.uint64(): ("UBIGINT", "UINT64"),
    pa.float32(): ("FLOAT", "FLOAT4", "REAL"),
    pa.float64(): ("DOUBLE", "FLOAT8"),
    TEXT: ("VARCHAR", "BPCHAR", "CHAR", "NVARCHAR", "STRING", "TEXT"),
    BYTES: ("BLOB", "BINARY", "BYTEA", "VARBINARY"),
    pa.uuid(): ("UUID", "GUID"),
    DAY: ("DATE",),
    pa.time64("us"): ("TIME",),
    pa.time64("ns"): ("TIME_NS",),
    pa.timestamp("s"): ("TIMESTAMP_S",),
    pa.timestamp("ms"): ("TIMESTAMP_MS",),
    pa.timestamp("us"): ("TIMESTAMP", "DATETIME", "TIMESTAMP_US"),
    pa.timestamp("ns"): ("TIMESTAMP_NS",),
    pa.timestamp("us", "UTC"): ("TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE"),
    pa.timestamp("ns", "UTC"): ("TIMESTAMPTZ_NS",),
}
"""The names of SQL's types as DuckDB has them; the first is what messages say."""
_BY_NAME: Final = {name: kind for kind, names in _TYPE_NAMES.items() for name in names}
_DECIMAL_NAMES: Final = ("DECIMAL", "NUMERIC", "DEC")


def kind_of(stored: Kind) -> Kind:
    """The type that a condition has for values of this Arrow type."""
    if pa.types.is_dictionary(stored):
        return kind_of(stored.value_type)
    if is_string(stored):
        return TEXT
    if is_binary(stored) or pa.types.is_fixed_size_binary(stored):
        return BYTES
    if pa.types.is_decimal(stored):
        make = pa.decimal128 if stored.precision <= DECIMAL_DIGITS else pa.decimal256
        return make(stored.precision, stored.scale)
    if pa.types.is_date64(stored):
        return DAY
    if pa.types.is_timestamp(stored) and stored.tz is not None:
        return pa.timestamp(stored.unit, "UTC")
    return stored


def computed(kind: Kind) -> Kind:
    """The type of the arrays that Arrow computes with for a kind."""
    if kind == pa.uuid():
        return pa.binary(16)
    if kind == pa.json_():
        return TEXT
    return pa.float32() if pa.types.is_float16(kind) else kind


def plain(values: Any) -> Any:
    """An array as it was stored, in the type that Arrow computes with: the same values."""
    stored: Kind = values.type
    if stored == pa.uuid():
        return values.storage
    if stored == pa.json_():
        return plain(values.storage)
    if pa.types.is_dictionary(stored):
        return plain(values.dictionary_decode())
    kind = computed(kind_of(stored))
    return values if stored == kind else values.cast(kind)


def is_compared(kind: Kind) -> bool:
    """Whether values of the kind are compared. Others are null or not, and nothing else is said of them."""
    return (
        is_number(kind)
        or kind in (BOOLEAN, TEXT, BYTES, DAY, pa.uuid())
        or pa.types.is_time(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_duration(kind)
    )


def is_map(kind: Kind) -> bool:
    """Whether values of the kind are maps."""
    return bool(pa.types.is_map(kind))


def is_list(kind: Kind) -> bool:
    """Whether values of the kind are lists."""
    kinds = pa.types
    return bool(
        kinds.is_list(kind)
        or kinds.is_large_list(kind)
        or kinds.is_fixed_size_list(kind)
        or kinds.is_list_view(kind)
        or kinds.is_large_list_view(kind)
    )


def type_name(kind: Kind) -> str:
    """The name of a kind in SQL; where SQL has no name for it, Arrow's."""
    if kind in _TYPE_NAMES:
        return _TYPE_NAMES[kind][0]
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return "FLOAT16" if pa.types.is_float16(kind) else str(kind)[:100]


def has_name(kind: Kind) -> bool:
    """Whether a cast to the kind can be written."""
    return kind in _TYPE_NAMES or (pa.types.is_decimal(kind) and kind.precision <= DECIMAL_DIGITS)


def named_kind(name: str, numbers: list[int]) -> Kind | None:
    """The kind that SQL calls this, with the numbers in brackets after the name; None for other types."""
    upper = name.upper()
    if upper in _DECIMAL_NAMES and len(numbers) <= 2:
        precision, scale = (*numbers, 0)[:2] if numbers else _DECIMAL_DEFAULT
        if 1 <= precision <= DECIMAL_DIGITS and 0 <= scale <= precision:
            return pa.decimal128(precision, scale)
        return None
    return None if numbers else _BY_NAME.get(upper)
