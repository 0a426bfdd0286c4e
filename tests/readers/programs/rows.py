"""Every program here describes a table in the same way, by its number of rows and a hash of them in any
order."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any


def request() -> dict[str, Any]:
    return json.loads(sys.argv[1])


def digest(rows: Iterable[Sequence[object]]) -> list[object]:
    """The digest of rows of whole numbers and texts."""
    lines = sorted("|".join(map(str, row)) for row in rows)
    return [len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()]


def digest_of(names: Sequence[str], rows: Iterable[Sequence[object]]) -> list[object]:
    """The digest of the topic's own columns. Each engine's names and values of them give the same digest."""
    own = [at for at, name in enumerate(names) if not name.startswith(("_", "log_"))]
    return digest([[names[at] for at in own], *([_text(row[at]) for at in own] for row in rows)])


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return str(round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000))
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return format(value, "f") if isinstance(value, Decimal) else repr(value)


def answer(found: object) -> None:
    print(json.dumps(found))


def refusal(do: Any) -> str:
    """The engine's error, or an empty text if the call succeeded."""
    try:
        do()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return f"{type(error).__name__}: {error}"
    return ""
