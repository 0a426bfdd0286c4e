"""How a value is written in SQL, in one of several ways."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

from tests.erasing.condition_meaning import as_text
from tests.erasing.condition_values import DAY_NS, FIRST_DAY, LAST_DAY, decimal_of


def spelled(value: Any, kind: tuple[Any, ...], draw: Random) -> str | None:
    """A literal of the value; None where SQL has none for it."""
    return _SPELLINGS[kind[0]](value, kind, draw)


def _spelled_int(value: int, _: Any, draw: Random) -> str:
    return draw.choice([str(value), str(value), f"{value}.0", f"({value})"])


def _spelled_decimal(value: Fraction, kind: Any, draw: Random) -> str:
    text = f"{decimal_of(value, kind[2]):f}"
    return draw.choice([text, text + "0"]) if "." in text else text


def _spelled_float(value: float, kind: Any, draw: Random) -> str | None:
    name = {64: "DOUBLE", 32: "FLOAT"}.get(kind[1])
    if not math.isfinite(value):
        return f"CAST('{value}' AS {name})" if name else None
    if kind[1] == 64:
        return draw.choice(
            [repr(value), f"{value:.17g}", f"CAST({value!r} AS DOUBLE)", f"'{value!r}'::DOUBLE"]
        )
    whole = f"{Decimal(value):f}"
    return draw.choice([whole, f"CAST({np.float32(value)!s} AS FLOAT)"]) if kind[1] == 32 else whole


def _spelled_text(value: str, _: Any, draw: Random) -> str:
    quoted = "'" + value.replace("'", "''") + "'"
    return draw.choice([quoted, quoted, f"CAST({quoted} AS VARCHAR)"])


def _spelled_bytes(value: bytes, _: Any, draw: Random) -> str:
    return draw.choice([f"x'{value.hex()}'", "'" + "".join(f"\\x{each:02X}" for each in value) + "'::BLOB"])


def _spelled_uuid(value: bytes, _: Any, draw: Random) -> str:
    return f"CAST('{draw.choice([str.upper, str.lower])(as_text(value, ('uuid',)))}' AS UUID)"


def _spelled_date(value: int, _: Any, draw: Random) -> str | None:
    if not FIRST_DAY <= value <= LAST_DAY:
        return None
    return draw.choice(["DATE '{}'", "CAST('{}' AS DATE)"]).format(as_text(value, ("date",)))


def _clock(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return text if not rest else f"{text}.{rest:09}".rstrip("0")


def _spelled_timestamp(value: int, kind: Any, draw: Random) -> str | None:
    hours = draw.choice([0, 0, 2, -5]) if kind[2] else 0
    day, clock = divmod(value + hours * 3_600 * 10**9, DAY_NS)
    if not FIRST_DAY <= day <= LAST_DAY:
        return None
    text = f"{as_text(day, ('date',))}{draw.choice(' T')}{_clock(clock)}" + (
        f"{hours:+03}:00" if kind[2] else ""
    )
    is_fine = value % 1_000 != 0
    name = {
        (False, False): "TIMESTAMP",
        (False, True): "TIMESTAMPTZ",
        (True, False): "TIMESTAMP_NS",
        (True, True): "TIMESTAMPTZ_NS",
    }[is_fine, kind[2]]
    return f"CAST('{text}' AS {name})" if is_fine or draw.random() < 0.3 else f"{name} '{text}'"


def _spelled_time(value: int, _: Any, draw: Random) -> str | None:
    if not 0 <= value < DAY_NS:
        return None
    return f"CAST('{_clock(value)}' AS TIME_NS)" if value % 1_000 else f"TIME '{_clock(value)}'"


def _spelled_duration(value: int, _: Any, draw: Random) -> str | None:
    for unit, name in ((DAY_NS, "DAY"), (10**9, "SECOND"), (10**6, "MILLISECOND"), (10**3, "MICROSECOND")):
        if value % unit == 0 and abs(value // unit) < 2**31:
            return f"INTERVAL {value // unit} {name}" if value >= 0 else f"INTERVAL '{value // unit}' {name}"
    return None


_SPELLINGS: dict[str, Callable[[Any, Any, Random], str | None]] = {
    "int": _spelled_int,
    "decimal": _spelled_decimal,
    "float": _spelled_float,
    "text": _spelled_text,
    "bytes": _spelled_bytes,
    "bool": lambda value, _, draw: draw.choice([str(value), str(value).lower()]),
    "uuid": _spelled_uuid,
    "date": _spelled_date,
    "timestamp": _spelled_timestamp,
    "time": _spelled_time,
    "duration": _spelled_duration,
}
