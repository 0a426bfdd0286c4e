"""JSON whose numbers stay as they are written: no float that could be another one."""

from __future__ import annotations

import json
from typing import Any


class WrittenNumber(str):
    """A number as JSON has it written."""

    __slots__ = ()


def object_of(text: str) -> dict[str, Any] | None:
    """The object that the text says; None where it says none."""
    try:
        found = json.loads(text, parse_int=WrittenNumber, parse_float=WrittenNumber)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def names_in(text: str) -> list[str]:
    """The names of an object, as often as it has them."""
    pairs: list[tuple[str, Any]] = json.loads(text, object_pairs_hook=list)
    return [name for name, _ in pairs]


def dumped(value: Any) -> str:
    """JSON, in which a number has the digits that it was read with."""
    if isinstance(value, WrittenNumber):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))}: {dumped(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(dumped, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
