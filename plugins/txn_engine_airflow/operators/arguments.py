"""What a load was asked for, in a form that is kept beside its run and compared when it is asked for again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

SHOWN_CHARS_MAX = 200
_PLAIN = (str, int, float, bool, type(None))
_AS_TEXT = (date, time, timedelta, Decimal, UUID)


def shown(value: Any) -> str:
    """An argument that people may read, such as a path; a long one is cut, with its digest."""
    text = json.dumps(_comparable(value), ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}... ({hidden(value)})"


def hidden(value: Any) -> str:
    """The digest of an argument that may hold a secret: the same in every process for the same plain data.

    Objects that are no plain data (connections, tables, functions) count by their type alone.
    """
    return f"sha256 {digest(value)}"


def digest(value: Any) -> str:
    """16 hex digits, as `hidden` has them."""
    return hashlib.sha256(json.dumps(_comparable(value)).encode()).hexdigest()[:16]


def is_given(value: Any) -> bool:
    """Whether an argument says anything: None, and a text, list or mapping without anything in it, does not."""
    return value is not None and not (isinstance(value, (str, Sequence, Mapping)) and not value)


def is_plain(value: Any) -> bool:
    """Whether the digest is of what the value holds, and not of its type alone."""
    if isinstance(value, Mapping):
        return all(isinstance(name, str) for name in value) and all(map(is_plain, value.values()))
    if isinstance(value, AbstractSet) or (isinstance(value, Sequence) and not isinstance(value, str)):
        return all(map(is_plain, value))
    return isinstance(value, (*_PLAIN, *_AS_TEXT)) or is_path(value)


def is_template(text: str) -> bool:
    """Whether Jinja makes another text of it."""
    return "{{" in text or "{%" in text


def is_path(value: Any) -> bool:
    """Whether it is a path of any kind, Airflow's ObjectStoragePath too, which is no PurePath."""
    return hasattr(type(value), "joinpath")


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
    if isinstance(value, _AS_TEXT) or is_path(value):
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
