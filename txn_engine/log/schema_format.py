"""The versions of a topic's schema as a change of the topic has them (docs/FORMAT.md, "JSON objects")."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from storage import UNREADABLE
from storage.arrow_schema import read_schema
from txn_engine.errors import CorruptObjectError
from txn_engine.log.objects import check_fields, checked_number
from txn_engine.schemas.following import difference
from txn_engine.schemas.layout import Column, Layout

_NEEDED: Final = ("version", "arrow_schema", "columns", "next_id", "retired")
_IDS_MAX: Final = 2_147_483_000


def encoded_layouts(layouts: Sequence[Layout]) -> dict[str, Any]:
    """All versions but the first, which the topic's own object has."""
    return {"versions": [_encoded(each) for each in layouts[1:]]}


def _encoded(layout: Layout) -> dict[str, Any]:
    return {
        "version": layout.version,
        "arrow_schema": base64.b64encode(layout.arrow.serialize().to_pybytes()).decode("ascii"),
        "columns": [_encoded_column(each) for each in layout.columns],
        "next_id": layout.next_id,
        "retired": dict(layout.retired),
    }


def _encoded_column(column: Column) -> dict[str, Any]:
    default = {} if column.default is None else {"default": encoded_value(column.default)}
    return {
        "id": column.id,
        "inside": column.inside,
        "name": column.name,
        "type": str(column.type),
        "nullable": column.nullable,
        **default,
    }


def encoded_value(value: Any) -> Any:
    """A scalar as JSON has it: numbers and texts as they are, what JSON has not as text."""
    kind, plain = value.type, value.as_py()
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return str(plain)
    if pa.types.is_binary(kind):
        return base64.b64encode(plain).decode("ascii")
    if pa.types.is_temporal(kind):
        return value.cast(pa.int32() if kind == pa.date32() else pa.int64()).as_py()
    return plain


def decoded_value(held: Any, kind: pa.DataType) -> Any:
    """The scalar. Raises one of `UNREADABLE` for what is none of the type."""
    if pa.types.is_floating(kind):
        return pa.scalar(float(_of(str, held)), kind)
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(_of(str, held)), kind)
    if pa.types.is_binary(kind):
        return pa.scalar(base64.b64decode(_of(str, held), validate=True), kind)
    if pa.types.is_temporal(kind):
        return pa.scalar(_of(int, held), pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.scalar(_of(bool, held), kind)
    return pa.scalar(_of(int if pa.types.is_integer(kind) else str, held), kind)


def _of(kind: type, held: Any) -> Any:
    if type(held) is not kind:
        raise ValueError(f"{held!r:.80}, which is no {kind.__name__}")
    return held


def decoded_layouts(held: Any, first: Layout, key: str) -> tuple[Layout, ...]:
    """All versions, from the first on. `CorruptObjectError` for what no writer leaves."""
    check_fields(held, ("versions",), key=key, kind="topic_change")
    layouts = [first]
    for each in _list(held["versions"], key):
        check_fields(each, _NEEDED, key=key, kind="topic_change")
        try:
            layout = _decoded(each, key)
        except UNREADABLE as error:
            raise _corrupt(" ".join(str(error).split())[:120], key) from error
        seen = difference(layouts[-1], layout)
        if seen is not None:
            raise _corrupt(seen, key)
        layouts.append(layout)
    return tuple(layouts)


def _decoded(held: Mapping[str, Any], key: str) -> Layout:
    arrow = read_schema(base64.b64decode(_of(str, held["arrow_schema"]), validate=True))
    columns = _list(held["columns"], key)
    if [each["name"] for each in columns] != arrow.names:
        raise ValueError("columns of other names than its arrow_schema's")
    retired = held["retired"]
    if not isinstance(retired, dict) or not all(type(each) is int for each in retired.values()):
        raise ValueError(f"retired {retired!r:.80}")
    return Layout(
        checked_number(held, "version", 1, 10**9, key=key),
        tuple(_column(each, field, key) for each, field in zip(columns, arrow, strict=True)),
        checked_number(held, "next_id", 1, _IDS_MAX, key=key),
        tuple(retired.items()),
    )


def _column(held: Mapping[str, Any], field: pa.Field[Any], key: str) -> Column:
    default = decoded_value(held["default"], field.type) if "default" in held else None
    return Column(
        checked_number(held, "id", 1, _IDS_MAX, key=key),
        checked_number(held, "inside", 1, _IDS_MAX, key=key),
        field.name,
        field.type,
        field.nullable,
        default,
    )


def _list(held: Any, key: str) -> list[Any]:
    if not isinstance(held, list):
        raise _corrupt(f"{held!r:.80}", key)
    return held


def _corrupt(seen: str, key: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"versions of the schema that cannot be: {seen}", place=key, expected="each made of the one before it"
    )
