"""What stands for a column in records that are older than it: a value of its type, as it was given or not at all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from txn_engine.calendar import PER_SECOND
from txn_engine.held import held_type
from txn_engine.schemas.layout import Schemas

_LAST_DATE, _LAST_TIME = 2**31 - 1, 2**63 - 1


def default_of(given: Any, kind: Any) -> Any:
    """The value as a scalar of the type. ValueError where it is none of the type, or would become another one: says
    what was expected.

    A number may be written shorter than it is stored, so that 0.1 is a float32.
    """
    try:
        if isinstance(given, pa.Scalar) and given.type == kind:
            given.validate(full=True)
            found: Any = given
            is_same = True
        else:
            plain = given.as_py() if isinstance(given, pa.Scalar) else given
            found = pa.scalar(plain, kind)
            is_same = _is_same(plain, found)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise ValueError(f"a value of {kind}") from None
    if not found.is_valid:
        raise ValueError(f"a value of {kind}")
    if not is_same:
        raise ValueError(f"a value of {kind}: it would become {_shown(found):.80}")
    if not _has_sql(found):
        raise ValueError(f"a value of {kind} that SQL has too")
    return found


def _has_sql(found: Any) -> bool:
    """Whether it is not the first or the last date or time of its type, which are infinite in SQL, nor beyond SQL's
    microseconds: each query of the topic would fail.
    """
    kind = found.type
    if pa.types.is_date32(kind):
        return bool(abs(found.value) < _LAST_DATE)
    if not pa.types.is_timestamp(kind):
        return True
    return bool(abs(found.value) * max(PER_SECOND["us"] // PER_SECOND[kind.unit], 1) < _LAST_TIME)


def _is_same(plain: Any, found: Any) -> bool:
    """Whether nothing of the value was lost, and it was of no other kind: no date is a time, no truth a number."""
    back = found.as_py()
    if isinstance(plain, bool) != isinstance(back, bool) or isinstance(plain, str) != isinstance(back, str):
        return False
    if not pa.types.is_floating(found.type):
        return bool(back == plain)
    return bool(back == plain or math.isnan(back) or float(_shown(found)) == plain)


def _shown(found: Any) -> str:
    """Of a floating number as few digits as tell it from all others of its type."""
    return str(found.cast(pa.string()) if pa.types.is_floating(found.type) else found)


def filled(kind: Any, value: Any, rows: int) -> pa.Array[Any]:
    """A column of records that are older than it, as its values are held: its default, or nulls."""
    found: pa.Array[Any] = pa.nulls(rows, held_type(kind)) if value is None else pa.repeat(value, rows)
    return found


def fills(schemas: Schemas) -> Mapping[str, Any]:
    """The columns that records may lack since they are younger than the topic, by name: what stands for each, a scalar
    of the type that its values are held under, or None for nulls.
    """
    first_new = schemas.layouts[0].next_id
    return {
        each.name: each.default
        for each in schemas.held.layout.columns
        if each.id >= first_new and (each.nullable or each.default is not None)
    }
