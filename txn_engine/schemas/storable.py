"""Which types a topic's columns can have: bounded before anything is made of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from zoneinfo import available_timezones

import pyarrow as pa

from txn_engine.errors import InvalidRecordError
from txn_engine.reasons import Reason

RECORD_BYTES_MAX: Final = 16 << 20
"""Of what the columns' types take in each record, whatever its values, null ones too."""
_DEPTH_MAX: Final = 63
"""Arrow hands over types of 64 levels to other programs, the table among them."""
_OFFSET: Final = re.compile(r"[+-]([01][0-9]|2[0-3]):[0-5][0-9]")


def fields_inside(kind: Any) -> list[pa.Field[Any]]:
    """The fields of a nested type, also where a dictionary or an extension type is around it."""
    if pa.types.is_dictionary(kind):
        return fields_inside(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return fields_inside(kind.storage_type)
    return [kind.field(number) for number in range(kind.num_fields)]


def check_types(schema: pa.Schema, actor: str) -> None:
    """Raise `InvalidRecordError` for types on which Arrow or a reader fails: deep ones, large or empty ones of a fixed
    size, and lists of a fixed size that lose it below a null.
    """
    taken = 0
    for number, field in enumerate(schema, 1):  # by its number: nobody has looked at its name yet
        taken += _bytes_of(field.type, f"column {number} of {actor}", 1)
        _check_size(taken, f"the first {number} columns of {actor}")
        if _has_hidden_list(field, below_null=False):
            raise _unstorable(
                "a list of a fixed size that may not be null, in a struct that may be",
                f"column {number} of {actor}",
                "one that may be null: Arrow cannot read a file back in which the struct is null",
            )


def _has_hidden_list(field: pa.Field[Any], *, below_null: bool) -> bool:
    """Whether a null of a struct, or of a struct around it, leaves a list of a fixed size without its elements."""
    kind = field.type
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if below_null and not field.nullable and pa.types.is_fixed_size_list(kind):
        return True
    below_null = pa.types.is_struct(kind) and (below_null or field.nullable)
    return any(_has_hidden_list(each, below_null=below_null) for each in fields_inside(kind))


def _bytes_of(kind: Any, actor: str, depth: int) -> int:
    """What any value takes in memory, null or not."""
    if depth > _DEPTH_MAX:
        raise _unstorable("types that are nested too deeply", actor, f"at most {_DEPTH_MAX} levels")
    inside = sum(_bytes_of(each, actor, depth + 1) for each in _types_inside(kind))
    size: int = max(inside, 8)
    if pa.types.is_fixed_size_list(kind):
        if kind.list_size < 1:
            raise _unstorable("a list of the fixed size 0", actor, "lists of at least one element")
        size = kind.list_size * inside
    elif pa.types.is_fixed_size_binary(kind):
        size = kind.byte_width
    elif pa.types.is_nested(kind) and not pa.types.is_struct(kind):
        size = 8  # where its values are
    _check_size(size, actor)
    return size


def _types_inside(kind: Any) -> list[Any]:
    if pa.types.is_dictionary(kind):
        return [kind.value_type]
    if isinstance(kind, pa.BaseExtensionType):
        return [kind.storage_type]
    return [kind.field(number).type for number in range(kind.num_fields)]


def _check_size(size: int, actor: str) -> None:
    if size > RECORD_BYTES_MAX:
        seen = f"types of a fixed size that take {size:,} bytes in every record"
        raise _unstorable(
            seen, actor, f"at most {RECORD_BYTES_MAX:,}: lists and bytes of any length take less"
        )


def check_time_zones(schema: pa.Schema, actor: str) -> None:
    """Raise `InvalidRecordError` for a time zone that readers do not know. Of new topics: what is known changes."""
    for field in schema:
        unknown = [zone for zone in _zones(field.type) if not _is_known(zone)]
        if unknown:
            raise _unstorable(
                f"the time zone {unknown[0]!r:.80}",
                f"column {field.name!r:.80} of {actor}",
                "'UTC', an offset such as '+02:00', or a zone's name such as 'Europe/Prague'",
            )


def _zones(kind: Any) -> Iterator[str]:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        yield kind.tz
    for each in _types_inside(kind):
        yield from _zones(each)


def _is_known(zone: str) -> bool:
    is_of_the_machine = zone in ("localtime", "Factory")
    return (
        zone == "UTC"
        or bool(_OFFSET.fullmatch(zone))
        or (zone in available_timezones() and not is_of_the_machine)
    )


def _unstorable(seen: str, actor: str, expected: str) -> InvalidRecordError:
    return InvalidRecordError(
        seen,
        actor=actor,
        expected=expected,
        action="choose another type; nothing was written",
        reason=Reason.UNSTORABLE_TYPE,
    )
