"""Values of every type that a topic's column may have, for conditions: as Python has them, exactly, and as Arrow does.

A number is an int, a Fraction or a float, a day is the number of days, and what is counted in time is the number of
nanoseconds. So no two types share a value by accident, and nothing here converts as the engine does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY_NS = 86_400 * 10**9
WORDS = (
    *("", "a", "A", "ab", "aB c", "42", "042", "-7", "1.5", "true", "É", "é", "a%b", "a_b", "it's", " x "),
    *("ab\nc", "2024-02-29", "\N{GRINNING FACE}"),
)
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""The days of the years 1 and 9999."""


@dataclass(frozen=True)
class Type:
    """A type of Arrow. kind: what it is to a condition; types of one kind are compared without a cast.

    draw: a value, for records; column: an array of values.
    """

    name: str
    kind: tuple[Any, ...]
    arrow: Any
    draw: Callable[[Random], Any]
    column: Callable[[Sequence[Any]], Any] = field(compare=False)


def _plain(arrow: Any) -> Callable[[Sequence[Any]], Any]:
    return lambda values: pa.array(values, arrow)


def _counted(arrow: Any, each: int) -> Callable[[Sequence[Any]], Any]:
    """An array of moments, from their nanoseconds or days, of which the type has units of `each`."""
    stored = pa.int32() if arrow.bit_width == 32 else pa.int64()
    return lambda values: pa.array([None if v is None else v // each for v in values], stored).cast(arrow)


def _draw_int(bits: int, signed: bool) -> Callable[[Random], int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    edges = [
        *(2**53 + by for by in range(-2, 4)),
        *(2**24 + by for by in range(3)),
        low,
        high,
        high - 1,
        0,
        1,
    ]
    return lambda draw: min(
        max(draw.choice(edges) if draw.random() < 0.5 else draw.randint(-50, 50), low), high
    )


def _decimal(make: Any, precision: int, scale: int) -> Type:
    def draw(chance: Random) -> Fraction:
        digits = chance.choice([1, 2, scale, precision, min(16, precision), min(17, precision)])
        return Fraction(chance.randint(-(10**digits) + 1, 10**digits - 1), 10**scale)

    arrow = make(precision, scale)
    return Type(f"{make.__name__}_{precision}", ("decimal", precision, scale), arrow, draw, lambda values: pa.array(
        [None if v is None else decimal_of(v, scale) for v in values], arrow
    ))  # fmt: skip


def decimal_of(value: Fraction, scale: int) -> Decimal:
    """The decimal of so many digits after the point; Python's context would round it."""
    sign, digits, _ = Decimal(int(value * 10**scale)).as_tuple()
    return Decimal((sign, digits, -scale))


def _float(arrow: Any, numpy: Any) -> Type:
    def draw(chance: Random) -> float:
        some = [0.0, -0.0, 0.1, 0.3, 0.5, 1.0, 1.5, 2.0**53, 2.0**53 + 2, math.inf, -math.inf, 42.0]
        some += [math.nan, -math.nan]  # a NaN has a sign, too
        number = chance.choice(some) if chance.random() < 0.7 else chance.uniform(-1e4, 1e4)
        with np.errstate(over="ignore"):
            return float(numpy(number))

    return Type(f"float{arrow.bit_width}", ("float", arrow.bit_width), arrow, draw, lambda values: pa.array(
        [None if v is None else numpy(v) for v in values], arrow
    ))  # fmt: skip


def _draw_bytes(length: int | None) -> Callable[[Random], bytes]:
    some = [b"", b"\x00", b"ab", b"abc", b"\xff\x00\\", b"abd", b"'xA"]
    if length is not None:
        some = [each.ljust(length, b"\x01")[:length] for each in some]
    return lambda chance: chance.choice(some)


def _draw_moment(unit: str) -> Callable[[Random], int]:
    step, reach = NANOSECONDS[unit], 2**62 if unit == "ns" else 2**67

    def draw(chance: Random) -> int:
        some = [0, -step, step, 1_709_164_800 * 10**9, 1_709_164_800 * 10**9 + step, -DAY_NS, DAY_NS - step]
        return chance.choice(some) if chance.random() < 0.8 else chance.randint(-reach, reach) // step * step

    return draw


def _moments() -> list[Type]:
    found = []
    for unit, step in NANOSECONDS.items():
        for zone in (None, "UTC", "Europe/Berlin"):
            arrow = pa.timestamp(unit, zone)
            kind = ("timestamp", unit, zone is not None)
            found.append(
                Type(
                    f"at_{unit}_{zone}".replace("/", ""),
                    kind,
                    arrow,
                    _draw_moment(unit),
                    _counted(arrow, step),
                )
            )
        arrow = pa.duration(unit)
        found.append(
            Type(f"took_{unit}", ("duration", unit), arrow, _draw_moment(unit), _counted(arrow, step))
        )
        clock = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
        found.append(Type(f"time_{unit}", ("time", unit), clock, _draw_clock(step), _counted(clock, step)))
    return found


def _draw_clock(step: int) -> Callable[[Random], int]:
    some = [0, step, DAY_NS - step, DAY_NS // 2, DAY_NS // 2 + step]
    return lambda chance: chance.choice(some)


def _integers() -> list[Type]:
    found = []
    for arrow in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    ):
        signed = pa.types.is_signed_integer(arrow)
        kind = ("int", arrow.bit_width, signed)
        found.append(Type(str(arrow), kind, arrow, _draw_int(arrow.bit_width, signed), _plain(arrow)))
    return found


def _texts() -> list[Type]:
    layouts = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()))
    names = ("text", "large_text", "text_view", "category")
    return [
        Type(name, ("text",), arrow, lambda chance: chance.choice(WORDS), _plain(arrow))
        for name, arrow in zip(names, layouts, strict=True)
    ]


def _bytes() -> list[Type]:
    layouts = {
        "bytes": pa.binary(),
        "large_bytes": pa.large_binary(),
        "bytes_view": pa.binary_view(),
        "three": pa.binary(3),
    }
    return [
        Type(name, ("bytes",), arrow, _draw_bytes(3 if name == "three" else None), _plain(arrow))
        for name, arrow in layouts.items()
    ]


def _uuids(values: Sequence[Any]) -> Any:
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))


def _draw_uuid(chance: Random) -> bytes:
    return bytes(15) + chance.choice([b"\x01", b"\x02", b"\xff"])


def _draw_days(chance: Random) -> int:
    some = [0, 1, -1, 19_782, 19_783, FIRST_DAY, LAST_DAY]
    return chance.choice(some) if chance.random() < 0.8 else chance.randint(-800_000, 3_000_000)


def scalar_types() -> list[Type]:
    """Every type of which values are compared."""
    return [
        *_integers(),
        *(_float(pa.float16(), np.float16), _float(pa.float32(), np.float32), _float(pa.float64(), np.float64)),
        *(_decimal(pa.decimal32, 9, 2), _decimal(pa.decimal64, 17, 3), _decimal(pa.decimal128, 10, 2)),
        *(_decimal(pa.decimal128, 38, 10), _decimal(pa.decimal256, 60, 5)),
        Type("flag", ("bool",), pa.bool_(), lambda chance: chance.random() < 0.5, _plain(pa.bool_())),
        *_texts(),
        *_bytes(),
        Type("uuid", ("uuid",), pa.uuid(), _draw_uuid, _uuids),
        Type("date32", ("date",), pa.date32(), _draw_days, _counted(pa.date32(), 1)),
        Type("date64", ("date",), pa.date64(), _draw_days, lambda values: pa.array(
            [None if v is None else v * 86_400_000 for v in values], pa.int64()).cast(pa.date64())),
        *_moments(),
    ]  # fmt: skip
