"""What a load was asked for, in a form that is kept beside its run and compared when it is asked for again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any
from uuid import UUID

SHOWN_CHARS_MAX = 200
_PLAIN = (str, int, float, bool, type(None))
_AS_TEXT = (date, time, timedelta, Decimal, PurePath, UUID)


def shown(value: Any) -> str:
    """An argument that people may read, such as a path; a long one is cut, with its digest."""
    text = json.dumps(_comparable(value), ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}... ({hidden(value)})"


def hidden(value: Any) -> str:
    """The digest of an argument that may hold a secret: the same in every process for the same plain data.

    Objects that are no plain data (connections, tables, functions) count by their type alone.
    """
    text = json.dumps(_comparable(value))
    return f"sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def differences(then: Mapping[str, Any], now: Mapping[str, str]) -> str:
    """Each argument that is not what it was, and both of its forms; empty where all are the same."""
    return ", ".join(
        f"{name} was {then.get(name, 'not given')} and is {now.get(name, 'not given')}"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    )


def _comparable(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, _AS_TEXT):
        return str(value)
    if isinstance(value, Mapping):
        return sorted(
            ([str(name), _comparable(part)] for name, part in value.items()), key=lambda pair: pair[0]
        )
    if isinstance(value, AbstractSet):
        return sorted(json.dumps(_comparable(part)) for part in value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, Sequence):
        return [_comparable(part) for part in value]
    return f"{type(value).__module__}.{type(value).__qualname__}"
