"""`python -m tests.types.random_values`: random values of every type through every feature, each exactly as given.

--values 1000000      at least so many, over all types; by default 100000
--rows 1000           rows of one column
--seed today          by default a fresh one
--types int64 list    these alone
--features csv sql    these alone

Prints what is wrong with its seed, and how many values went through each feature. The exit code is 1 where any was
not as given.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.types.checking import wrong_with
from tests.types.columns import SHAPES, TYPES, Column, Kind
from tests.types.expected import CREATION
from tests.types.features import FEATURES
from tests.types.world import World

Make = Callable[[random.Random], Any]
_SECONDS = (-62_135_596_800, 253_402_300_799)  # of the years 1 to 9999
_DAYS = (-719_162, 2_932_896)
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_NULLS = 0.1


@dataclass(frozen=True)
class RandomColumn(Column):
    """A column with random values behind the extremes of its type."""

    seed: str = ""
    rows: int = 0

    def __str__(self) -> str:
        return f"{super().__str__()}, seed {self.seed!r}"

    @cached_property
    def given(self) -> list[Any]:
        """The values, nulls among them; the last is null."""
        chance = random.Random(f"{self.seed}/{self.type_name}")
        make = maker(self.inner)
        first = [
            make(chance) for _ in range(2)
        ]  # which become defaults: not the extremes, which are infinite in SQL
        more = [None if chance.random() < _NULLS else make(chance) for _ in range(self.rows)]
        values = [*TYPES[self.type_name][1], *more]
        chance.shuffle(values)
        return [*first, *values]


def maker(kind: Kind) -> Make:
    """What makes values of a type."""
    if isinstance(kind, pa.BaseExtensionType):
        return _json if kind == pa.json_() else maker(kind.storage_type)
    if pa.types.is_dictionary(kind):
        few = maker(kind.value_type)
        return lambda chance: few(random.Random(chance.randrange(20)))
    return next(make(kind) for is_such, make in _MAKERS if is_such(kind))


def _null(_: Kind) -> Make:
    return lambda _: None


def _bool(_: Kind) -> Make:
    return lambda chance: chance.random() < 0.5


def _integer(kind: Kind) -> Make:
    bits = kind.bit_width
    low, high = (
        (0, 2**bits - 1) if pa.types.is_unsigned_integer(kind) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )
    return partial(_number, low, high)


def _number(low: int, high: int, chance: random.Random) -> int:
    """Of any length, or near an end."""
    drawn = chance.random()
    if drawn < 0.1:
        return chance.choice((low, high, 0))
    if drawn < 0.6:
        return max(low, min(high, chance.getrandbits(chance.randint(1, 64)) * chance.choice((1, -1))))
    return chance.randint(low, high)


def _float(kind: Kind) -> Make:
    """Any bits: numbers of all sizes, infinities, and what is no number."""
    form, bits = {16: ("e", 16), 32: ("f", 32), 64: ("d", 64)}[kind.bit_width]

    def make(chance: random.Random) -> Any:
        whole = chance.random() < 0.3
        value = (
            float(chance.randint(-2_048, 2_048))
            if whole
            else struct.unpack(f"<{form}", chance.getrandbits(bits).to_bytes(bits // 8, "little"))[0]
        )
        return np.float16(value) if bits == 16 else value

    return make


def _decimal(kind: Kind) -> Make:
    def make(chance: random.Random) -> Decimal:
        digits = chance.randint(0, kind.precision)
        return Decimal(chance.choice((1, -1)) * chance.randint(0, 10**digits - 1)).scaleb(-kind.scale, _WIDE)

    return make


_WIDE = Context(prec=100)
_ALPHABETS = (
    "ab",
    "0123456789.-+eE",
    " \t\n\r\"',;\\/|",
    "äßøçñ",
    "漢字仮名",
    "😀🇨🇿👩‍👩‍👧",
    "\x00\x01\x1b\x7f\u200b\u2028\ufeff",
)


def _text(_: Kind) -> Make:
    def make(chance: random.Random) -> str:
        if chance.random() < 0.05:
            return chance.choice(
                ("null", "NULL", "NaN", "true", "-", "\\N", '""', "{}", "1e5", " x ", "\ufeff", "2024-02-30")
            )
        letters = "".join(chance.sample(_ALPHABETS, chance.randint(1, 3)))
        return "".join(chance.choices(letters, k=chance.randint(0, 12)))

    return make


def _json(chance: random.Random) -> str:
    value = {"a": chance.randint(-9, 9), "b": [chance.choice((True, None, "x"))]}
    return json.dumps(value, separators=(",", ":"))


def _bytes(_: Kind) -> Make:
    return lambda chance: chance.randbytes(chance.randint(0, 12))


def _fixed_bytes(kind: Kind) -> Make:
    return lambda chance: chance.randbytes(kind.byte_width)


def _date(_: Kind) -> Make:
    return lambda chance: np.datetime64(chance.randint(*_DAYS), "D").astype(object)


def _time(kind: Kind) -> Make:
    return lambda chance: chance.randrange(86_400 * _UNITS[kind.unit])


def _timestamp(kind: Kind) -> Make:
    low, high = _SECONDS
    if kind.unit == "ns":
        return lambda chance: chance.randint(-(2**63), 2**63 - 1)
    return lambda chance: chance.randint(low, high) * _UNITS[kind.unit] + chance.randrange(_UNITS[kind.unit])


def _duration(kind: Kind) -> Make:
    most = 10**9 * _UNITS[kind.unit] if kind.unit != "ns" else 2**63 - 1
    return lambda chance: chance.randint(-most, most)


def _list(kind: Kind) -> Make:
    inside = _sometimes_null(maker(kind.value_type), nullable=kind.value_field.nullable)
    if pa.types.is_fixed_size_list(kind):
        return lambda chance: [inside(chance) for _ in range(kind.list_size)]
    return lambda chance: [inside(chance) for _ in range(chance.randint(0, 4))]


def _struct(kind: Kind) -> Make:
    inside = {field.name: _sometimes_null(maker(field.type), nullable=field.nullable) for field in kind}
    return lambda chance: {name: make(chance) for name, make in inside.items()}


def _map(kind: Kind) -> Make:
    keys, values = maker(kind.key_type), _sometimes_null(maker(kind.item_type), nullable=True)
    return lambda chance: list({keys(chance): values(chance) for _ in range(chance.randint(0, 4))}.items())


def _sometimes_null(make: Make, *, nullable: bool) -> Make:
    return lambda chance: None if nullable and chance.random() < _NULLS else make(chance)


_MAKERS: Sequence[tuple[Callable[[Kind], bool], Callable[[Kind], Make]]] = (
    (pa.types.is_null, _null),
    (pa.types.is_boolean, _bool),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_fixed_size_binary, _fixed_bytes),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind), _text),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind), _bytes),
    (pa.types.is_date, _date),
    (pa.types.is_time, _time),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_duration, _duration),
    (pa.types.is_map, _map),
    (pa.types.is_struct, _struct),
    (pa.types.is_nested, _list),
)  # fmt: skip


def one_pass(
    seed: str, rows: int, types: Sequence[str], features: Sequence[str]
) -> Iterator[tuple[str, int, str | None]]:
    """Each feature with each column: how many values it had, and what is wrong."""
    every = [RandomColumn(name, shape, seed, rows) for name in types for shape in SHAPES]
    with tempfile.TemporaryDirectory(prefix="txn-engine-values-") as folder:
        world = World(Path(folder), every=every)
        try:
            for feature in features:
                for column in every:
                    wrong = wrong_with(feature, column, partial(FEATURES[feature], world))
                    yield (
                        feature,
                        len(column.records),
                        None if wrong is None else f"{feature} of {column}: {wrong}",
                    )
        finally:
            world.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.types.random_values")
    parser.add_argument("--values", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--seed", default=f"{int(time.time())}")
    parser.add_argument("--types", nargs="*", default=[name for name in TYPES if name not in CREATION])
    parser.add_argument("--features", nargs="*", default=list(FEATURES))
    asked = parser.parse_args()
    begun = time.monotonic()
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    number = 0
    while min((seen[name] for name in asked.features), default=0) < asked.values:
        for feature, values, problem in one_pass(
            f"{asked.seed}/{number}", asked.rows, asked.types, asked.features
        ):
            seen[feature] += values
            if problem is not None:
                wrong.append(problem)
                sys.stdout.write(f"WRONG {problem}\n")
                sys.stdout.flush()
        number += 1
        sys.stderr.write(
            f"pass {number}: {seen[asked.features[0]]:,} values, {time.monotonic() - begun:.0f} s\n"
        )
    for feature, values in seen.items():
        sys.stdout.write(f"{values:>12,} values: {feature}\n")
    sys.stdout.write(
        f"{len(wrong)} wrong, {len(asked.types)} types, {time.monotonic() - begun:.0f} s, seed {asked.seed}\n"
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
