"""Arrow's types and SQLite's storage: what keeps every value of what, and how values are written and read there.

A column of SQLite has an affinity, by which it converts what is put into it, and takes what cannot be converted as it
is. So a column is good for a type where its affinity converts no value of it; and of what is read each value is judged
by its own type.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.databases.writing import FIRST_WRITTEN_DAY, LAST_WRITTEN_DAY, in_utc, require_days
from txn_engine.exact import InexactError, cast_exactly
from txn_engine.files.kinds import is_binary, is_string

Affinity = Literal["INTEGER", "TEXT", "BLOB", "REAL", "NUMERIC"]
_KEPT: Final[dict[str, tuple[Affinity, ...]]] = {
    "INTEGER": ("INTEGER", "NUMERIC", "BLOB"),
    "REAL": ("REAL", "BLOB"),
    "TEXT": ("TEXT", "BLOB"),
    "BLOB": ("BLOB",),
}


def affinity_of(declared: str) -> Affinity:
    """By SQLite's rules (https://sqlite.org/datatype3.html, 3.1), in their order."""
    name = declared.upper()
    rules: tuple[tuple[Affinity, tuple[str, ...]], ...] = (
        ("INTEGER", ("INT",)),
        ("TEXT", ("CHAR", "CLOB", "TEXT")),
        ("BLOB", ("BLOB",)),
        ("REAL", ("REAL", "FLOA", "DOUB")),
    )
    found = next((affinity for affinity, parts in rules if any(part in name for part in parts)), None)
    return found or ("NUMERIC" if name else "BLOB")


def type_for(kind: pa.DataType) -> str | None:
    """What is made for an Arrow type; None where there is nothing. Exact decimals and times are texts."""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    if is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "BLOB"
    return "TEXT" if is_string(kind) or _is_written(kind) else None


def holds(kind: pa.DataType, declared: str) -> bool:
    """Whether a column declared so keeps every value of the Arrow type as it is."""
    made = type_for(kind)
    return made is not None and affinity_of(declared) in _KEPT[made]


def as_stored(column: Any, declared: str) -> Any:
    """The values as a column declared so keeps them: whole numbers of 64 bits, doubles, texts, bytes.

    Raises `InexactError` for the first value that it does not keep.
    """
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return cast_exactly(column.cast(pa.uint8()) if pa.types.is_boolean(kind) else column, pa.int64())
    if pa.types.is_floating(kind):
        doubles = column.cast(pa.float64())
        lost = pc.is_nan(doubles)  # SQLite would keep a null
        if affinity_of(declared) == "REAL":  # SQLite stores whole numbers there as integers, so -0.0 as 0
            zero, one = (pa.scalar(number) for number in (0.0, 1.0))
            lost = pc.or_(lost, pc.and_(pc.equal(doubles, zero), pc.less(pc.divide(one, doubles), zero)))
        if (index := pc.index(lost, True).as_py()) >= 0:
            raise InexactError(index)
        return doubles
    if pa.types.is_decimal(kind):
        texts = [None if value is None else format(value, "f") for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_date64(kind):
        column = column.cast(pa.date32())
    require_days(column, FIRST_WRITTEN_DAY, LAST_WRITTEN_DAY)
    return in_utc(column).cast(pa.string())


def texts_of(values: Iterable[Any], kind: pa.DataType) -> tuple[list[str | None], list[int]]:
    """What was read, as texts of the type; and where a value is of another type than the column's may be."""
    allowed = _stored_types(kind)
    texts: list[str | None] = []
    bad: list[int] = []
    for index, value in enumerate(values):
        if value is None or type(value) in allowed:
            texts.append(None if value is None else _text(value, kind))
        else:
            texts.append(None)
            bad.append(index)
    return texts, bad


def _text(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if pa.types.is_boolean(kind):
        return {0: "false", 1: "true"}.get(value, str(value))
    return repr(value) if isinstance(value, float) else str(value)


def _stored_types(kind: pa.DataType) -> tuple[type, ...]:
    """Of a decimal no REAL: that is a binary fraction, and another number than the one that was meant."""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return (int,)
    if pa.types.is_decimal(kind):
        return (int, str)
    if pa.types.is_floating(kind):
        return (float, int)
    return (bytes,) if is_binary(kind) or pa.types.is_fixed_size_binary(kind) else (str,)


def expected_storage(kind: pa.DataType) -> str:
    """What a value is to be stored as."""
    names = {int: "INTEGER", float: "REAL", str: "TEXT", bytes: "BLOB"}
    return " or ".join(names[each] for each in _stored_types(kind))


def _is_written(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_decimal(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date(kind)
        or pa.types.is_time(kind)
    )
