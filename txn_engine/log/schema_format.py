"""The versions of a topic's schema as changes of the topic have them (docs/FORMAT.md, "Changes"): each what is new."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa

from storage import UNREADABLE
from storage.arrow_schema import read_schema
from txn_engine.errors import CorruptObjectError
from txn_engine.held import held_type
from txn_engine.log.objects import check_fields, checked_number
from txn_engine.reasons import Reason
from txn_engine.schemas.following import difference
from txn_engine.schemas.layout import Column, Layout

_COLUMNS: Final = ("arrow_schema", "columns", "next_id", "retired")
_WHOLE: Final = ("version", *_COLUMNS)
_CHANGED: Final = ("dropped", "order", *_COLUMNS)
_IDS_MAX: Final = 2_147_483_000
_VERSIONS_MAX: Final = 10**9


def encoded_schema(before: Sequence[Layout], after: Sequence[Layout]) -> dict[str, Any]:
    """What one change says of the schema: the version that the topic has then, and what is other than in the version
    before it, where this change makes one.
    """
    change = None if len(after) == len(before) else _encoded_change(before[-1], after[-1])
    return {"version": after[-1].version, "change": change}


def _encoded_change(before: Layout, after: Layout) -> dict[str, Any]:
    """The columns that are new or other; ids of those that went; all ids where the order is not that of before, with
    what is new behind it; names that no column has any more.
    """
    was, now = _by_id(before), _by_id(after)
    changed = [each for each in after.columns if was.get(each.id) != each]
    kept = [each for each in was if each in now]
    order = [*kept, *(each.id for each in changed if each.id not in was)]
    held = set(dict(before.retired))
    return {
        "arrow_schema": _encoded_arrow(changed),
        "columns": [_encoded_column(each) for each in changed],
        "dropped": [each for each in was if each not in now],
        "order": None if order == list(now) else list(now),
        "next_id": after.next_id,
        "retired": {name: owner for name, owner in after.retired if name not in held},
    }


def _by_id(layout: Layout) -> dict[int, Column]:
    """As the layout's own, which keeps it: of a thousand versions that is too much."""
    return {each.id: each for each in layout.columns}


def _encoded_arrow(columns: Sequence[Column]) -> str:
    schema = pa.schema([pa.field(each.name, each.type, each.nullable) for each in columns])
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


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
    kind = value.type
    if pa.types.is_temporal(kind):
        return value.cast(pa.int32() if kind == pa.date32() else pa.int64()).as_py()
    plain = value.as_py()
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return str(plain)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return base64.b64encode(plain).decode("ascii")
    return plain


def decoded_value(held: Any, kind: pa.DataType) -> Any:
    """The scalar. Raises one of `UNREADABLE` for what is none of the type."""
    if pa.types.is_floating(kind):
        return pa.scalar(float(_of(str, held)), kind)
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(_of(str, held)), kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
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


def says_all(schema: Mapping[str, Any] | None) -> bool:
    """Whether a change says all versions of the schema by itself. So did those of code of before, and those from before
    the columns changed do.
    """
    return schema is None or "versions" in schema


def said_version(schema: Mapping[str, Any] | None, key: str) -> int:
    """The version that the topic has after a change. `CorruptObjectError` for what no writer leaves."""
    if schema is None:
        return 0
    if says_all(schema):
        return len(_list(schema["versions"], key))
    check_fields(schema, ("version", "change"), key=key, kind="topic_change")
    return checked_number(schema, "version", 1, _VERSIONS_MAX, key=key)


def layouts_after(
    known: Sequence[Layout], changes: Sequence[tuple[str, Mapping[str, Any] | None]]
) -> tuple[Layout, ...]:
    """All versions, from the first on, once these changes (each with its key) followed what is known.
    `CorruptObjectError` for what no writer leaves.
    """
    layouts = list(known)
    for key, schema in changes:
        version = said_version(schema, key)
        if schema is not None and says_all(schema):
            layouts = _all_versions(schema["versions"], layouts[0], key)
        elif schema is not None and schema["change"] is not None:
            layouts.append(_followed(layouts[-1], partial(_next, layouts[-1], schema, key), key))
        if version != layouts[-1].version:
            seen = f"version {version} behind {layouts[-1].version}"
            raise _corrupt(seen, key, Reason.SCHEMA_VERSION_OUT_OF_ORDER)
    return tuple(layouts)


def _all_versions(held: list[Any], first: Layout, key: str) -> list[Layout]:
    layouts = [first]
    for each in held:
        check_fields(each, _WHOLE, key=key, kind="topic_change")
        layouts.append(_followed(layouts[-1], partial(_whole, each, key), key))
    return layouts


def _followed(before: Layout, make: Callable[[], Layout], key: str) -> Layout:
    """The next version; `CorruptObjectError` where it is none of the one before it."""
    try:
        layout = make()
    except UNREADABLE as error:
        raise _corrupt(" ".join(str(error).split())[:120], key) from error
    seen = difference(before, layout)
    if seen is not None:
        raise _corrupt(seen, key)
    return layout


def _whole(held: Mapping[str, Any], key: str) -> Layout:
    return Layout(
        checked_number(held, "version", 1, _VERSIONS_MAX, key=key),
        tuple(_columns(held, key)),
        checked_number(held, "next_id", 1, _IDS_MAX, key=key),
        tuple(_retired(held).items()),
    )


def _next(before: Layout, schema: Mapping[str, Any], key: str) -> Layout:
    """The version that a change makes of the one before it."""
    held = schema["change"]
    check_fields(held, _CHANGED, key=key, kind="topic_change")
    was, changed = _by_id(before), _columns(held, key)
    now = was | {each.id: each for each in changed}
    for number in _list(held["dropped"], key):
        del now[_of(int, number)]
    order = list(now) if held["order"] is None else _list(held["order"], key)
    columns = tuple(now[_of(int, number)] for number in order)
    if len(columns) != len(now):
        raise ValueError(f"an order of {len(columns)} of {len(now)} columns")
    names = {each.name for each in columns}
    retired = {name: owner for name, owner in before.retired if name not in names} | _retired(held)
    return Layout(
        schema["version"],
        columns,
        checked_number(held, "next_id", 1, _IDS_MAX, key=key),
        tuple(retired.items()),
    )


def _columns(held: Mapping[str, Any], key: str) -> list[Column]:
    arrow = read_schema(base64.b64decode(_of(str, held["arrow_schema"]), validate=True))
    columns = _list(held["columns"], key)
    if [each["name"] for each in columns] != arrow.names:
        raise ValueError("columns of other names than its arrow_schema's")
    return [_column(each, field, key) for each, field in zip(columns, arrow, strict=True)]


def _retired(held: Mapping[str, Any]) -> dict[str, int]:
    retired = held["retired"]
    if not isinstance(retired, dict) or not all(type(each) is int for each in retired.values()):
        raise ValueError(f"retired {retired!r:.80}")
    return retired


def _column(held: Mapping[str, Any], field: pa.Field[Any], key: str) -> Column:
    default = decoded_value(held["default"], held_type(field.type)) if "default" in held else None
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


def _corrupt(seen: str, key: str, reason: Reason | None = None) -> CorruptObjectError:
    return CorruptObjectError(
        f"versions of the schema that cannot be: {seen}",
        place=key,
        expected="each made of the one before it",
        reason=reason,
    )
