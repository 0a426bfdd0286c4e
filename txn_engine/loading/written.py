"""JSON whose numbers stay as they are written: no float that could be another one."""

from __future__ import annotations

import json
from typing import Any

from txn_engine.files.json_lines import each_name_once
from txn_engine.row_limits import VALUES_MAX, values_at_most


class WrittenNumber(str):
    """A number as JSON has it written."""

    __slots__ = ()


def object_of(text: str) -> dict[str, Any] | None:
    """The object that the text says; None where it says none, has a name twice, or too many values to hold."""
    if values_at_most(text) > VALUES_MAX:
        return None
    try:
        found = json.loads(
            text, parse_int=WrittenNumber, parse_float=WrittenNumber, object_pairs_hook=each_name_once
        )
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def dumped(value: Any) -> str:
    """JSON, in which a number has the digits that it was read with."""
    if isinstance(value, WrittenNumber):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))}: {dumped(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(dumped, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
