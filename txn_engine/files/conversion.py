"""How text becomes a value of a column's type, and what that text must look like."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.exact import filled_below_nulls
from txn_engine.files.days import begin_without_a_day
from txn_engine.files.kinds import is_binary, is_nested, is_number, is_string, unit_and_zone
from txn_engine.files.moments import begin_with_a_sign, has_format, mask, moments
from txn_engine.files.numbers import (
    DECIMAL,
    NUMBER_CHARS,
    chars,
    decimals,
    floats,
    have_others,
    integers,
    require,
    whole_with,
    with_points,
    without_marks,
)
from txn_engine.held import laid_out
from txn_engine.value_text import BinaryText

DecimalMark = Literal[".", ","]
ThousandsMark = Literal[".", ",", " ", "'", "\u2019", "\u00a0", "\u202f", "_"]
"""The last before the underscore are the Swiss apostrophe, and the spaces that do not break lines."""


class JsonNumber(str):
    """A number as JSON has it written: no int or float that could be another one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class Conversion:
    """How text becomes a value of a column's type."""

    date_format: str | None
    binary: BinaryText
    decimal: DecimalMark = "."
    thousands: ThousandsMark | None = None

    def array(self, texts: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
        """The texts in a type. ValueError (ArrowInvalid is one) when any does not fit; it does not say which."""
        if is_string(kind):
            return texts.cast(kind)
        if is_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return self._bytes(texts).cast(kind)
        if is_number(kind):
            return self._numbers(texts, kind)
        if pa.types.is_boolean(kind):
            return texts.cast(kind)
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return moments(texts, kind, self.date_format)
        if pa.types.is_time(kind):
            return _times(texts, kind)
        if kind in (pa.uuid(), pa.json_()):
            found: pa.Array[Any] = laid_out(_uuids(texts) if kind == pa.uuid() else texts, kind)
            return found
        if pa.types.is_null(kind):
            if texts.null_count < len(texts):
                raise ValueError("a value in a column of nulls")
            return pa.nulls(len(texts))
        raise TypeError(f"no text stands for {kind}")

    def _numbers(self, texts: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
        if self.thousands is not None:
            texts = without_marks(texts, self.thousands, self.decimal)
        if self.decimal == ",":
            texts = with_points(texts)
        if pa.types.is_integer(kind):
            return integers(texts, kind)
        return decimals(texts, kind) if pa.types.is_decimal(kind) else floats(texts, kind)

    def foreign(self, texts: Any, kind: pa.DataType) -> Any:
        """Which texts have a character that no value of the type is written with, as a mask: quickest to see."""
        if is_number(kind) and self.thousands is None:
            return have_others(texts, NUMBER_CHARS)
        is_moment = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        if is_moment and self.date_format is None:
            return have_others(texts, _MOMENT_CHARS)
        return np.zeros(len(texts), bool)

    def surely_bad(self, texts: Any, kind: pa.DataType) -> Any:
        """Which texts no value of the type is written as, as a mask: those that can be told without a conversion."""
        is_moment = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        if is_moment and self.date_format is not None:
            encoded = texts.dictionary_encode()
            bad = [not has_format(text, self.date_format, kind) for text in encoded.dictionary.to_pylist()]
            found: Any = pa.array(bad, pa.bool_()).take(encoded.indices)
            return mask(found)
        if is_moment:
            return begin_without_a_day(texts) & ~begin_with_a_sign(texts)
        if (pa.types.is_integer(kind) or pa.types.is_decimal(kind)) and self.thousands is None:
            return _lacks(texts, DECIMAL if self.decimal == "." else DECIMAL.replace(r"\.", ","))
        return np.zeros(len(texts), bool)

    def suspects(self, texts: Any, kind: pa.DataType) -> Any:
        """Which texts do not look like most that fit, as a mask: a guess, by which bad ones are found quickly."""
        usual = self._usual_form(kind)
        return np.zeros(len(texts), bool) if usual is None else _lacks(texts, usual)

    def _usual_form(self, kind: pa.DataType) -> str | None:
        if self.thousands is not None and is_number(kind):
            return rf"{whole_with(self.thousands)}({re.escape(self.decimal)}[0-9]*)?$"
        if pa.types.is_integer(kind):
            return rf"^[+-]?[0-9]{{1,{_SAFE_DIGITS[kind.bit_width]}}}$"
        mark = re.escape(self.decimal)
        if pa.types.is_decimal(kind):
            whole, scale = max(kind.precision - kind.scale, 0), max(kind.scale, 0)
            return rf"^[+-]?[0-9]{{1,{max(whole, 1)}}}({mark}[0-9]{{0,{scale}}})?$"
        if pa.types.is_floating(kind):
            return rf"^[+-]?[0-9]+({mark}[0-9]*)?$"
        if pa.types.is_boolean(kind):
            return "(?i)^(true|false)$"
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
        return None

    def _bytes(self, texts: pa.Array[Any]) -> pa.Array[Any]:
        if self.binary == "text":
            return texts.cast(pa.binary())
        return pa.array(
            [None if text is None else _unbase64(text) for text in texts.to_pylist()], pa.binary()
        )

    def expected(self, kind: pa.DataType) -> str:
        """What a text must look like."""
        if pa.types.is_integer(kind):
            return f"{kind}, a whole number of at most {kind.bit_width} bits"
        if pa.types.is_decimal(kind):
            whole = kind.precision - kind.scale
            mark = "comma" if self.decimal == "," else "point"
            digits = f"at most {whole} digits before the {mark} and {kind.scale} after it"
            return f"decimal({kind.precision},{kind.scale}), {digits}"
        if pa.types.is_floating(kind):
            return f"{kind}, a number in its range, with no more digits than it keeps"
        if pa.types.is_boolean(kind):
            return "true or false"
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return self._expected_moment(kind)
        if pa.types.is_time(kind):
            return f"a time of day as 09:30:00, no finer than {kind}"
        if (is_binary(kind) or pa.types.is_fixed_size_binary(kind)) and self.binary == "base64":
            return "base64"
        return "text" if is_string(kind) or is_binary(kind) else str(kind)

    def _expected_moment(self, kind: pa.DataType) -> str:
        if pa.types.is_date(kind):
            if self.date_format is not None:
                return f"a date in the format {self.date_format!r}"
            return "a date as 2026-01-31, or in a date format that you name"
        unit, zone = unit_and_zone(kind)
        zoned = "with its zone" if zone else "without a zone"
        shown = f"in the format {self.date_format!r}"
        if self.date_format is None:
            shown = f"as 2026-01-31T09:30:00{'Z' if zone else ''}"
        years = f"in the years 1 to 9999{' of UTC' if zone else ''}"
        return f"a time {shown}, {zoned}, no finer than {unit}, {years}"

    def nested(self, values: Sequence[Any], kind: Any) -> Any:
        """JSON values as an array of a type that may hold others. TypeError or ValueError when any does not fit."""
        is_null = pa.array([value is None for value in values], pa.bool_())
        if pa.types.is_struct(kind):
            return self._structs(values, kind, is_null)
        if pa.types.is_map(kind):
            return self._maps(values, kind, is_null)
        if is_nested(kind):
            return self._lists(values, kind, is_null)
        if any(value is not None and type(value) not in json_types(kind) for value in values):
            raise TypeError(f"no {kind}")
        texts = [None if value is None else text_of(value, self.decimal) for value in values]
        return self.array(pa.array(texts, pa.string()), kind)

    def _inside(self, values: Sequence[Any], inner: pa.Field[Any]) -> Any:
        """Values inside of others: pyarrow would take a null where the type has none."""
        if not inner.nullable and any(value is None for value in values):
            raise TypeError("a null where there is none")
        return self.nested(values, inner.type)

    def _structs(self, values: Sequence[Any], kind: Any, is_null: Any) -> Any:
        names = {each.name for each in kind}
        if not all(value is None or (isinstance(value, dict) and set(value) <= names) for value in values):
            raise TypeError("no object of these fields")
        there = [value for value in values if value is not None]
        members = [self._inside([value.get(each.name) for value in there], each) for each in kind]
        found = pa.StructArray.from_arrays(members, fields=list(kind))
        return found if len(there) == len(values) else _spread(found, is_null)

    def _lists(self, values: Sequence[Any], kind: Any, is_null: Any) -> Any:
        if not all(value is None or isinstance(value, list) for value in values):
            raise TypeError("no list")
        items = self._inside([item for value in values for item in value or ()], kind.value_field)
        found = pa.LargeListArray.from_arrays(
            _ends(values), items, type=pa.large_list(kind.value_field), mask=is_null
        )
        return laid_out(found, kind)

    def _maps(self, values: Sequence[Any], kind: Any, is_null: Any) -> Any:
        """Of an object where the keys are text, else of a list of [key, value]."""
        every = [None if value is None else _pairs(value, kind) for value in values]
        pairs = [pair for found in every for pair in found or ()]
        keys = self._inside([key for key, _ in pairs], kind.key_field)
        items = self._inside([item for _, item in pairs], kind.item_field)
        ends = _ends(every)
        for begin, end in pairwise(ends.to_pylist()):
            if len({repr(key) for key in keys[begin:end]}) < end - begin:
                raise ValueError("a key twice")
        return pa.MapArray.from_arrays(ends.cast(pa.int32()), keys, items, type=kind, mask=is_null)


def _pairs(value: Any, kind: Any) -> list[Any]:
    if isinstance(value, dict) and is_string(kind.key_type):
        return list(value.items())
    if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        return value
    raise TypeError("no map")


def _ends(values: Sequence[Any]) -> Any:
    """Where each of the lists begins among the items of them all, and where the last one ends."""
    return pa.array([0, *accumulate(len(value or ()) for value in values)], pa.int64())


def _spread(found: Any, is_null: Any) -> Any:
    """The values in their places, nulls between them."""
    places = np.cumsum(~is_null.to_numpy(zero_copy_only=False)) - 1
    return filled_below_nulls(found.take(pa.array(places, mask=is_null.to_numpy(zero_copy_only=False))))


def json_types(kind: pa.DataType) -> tuple[type, ...]:
    """What a column takes from JSON. Numbers may also come as strings: that is how exact ones travel."""
    if pa.types.is_boolean(kind):
        return (bool,)
    if is_number(kind):
        return (JsonNumber, str)
    return (str,)


def text_of(value: bool | str, decimal: DecimalMark = ".") -> str:
    """A JSON value as the text that `Conversion` reads. JSON's own numbers have a point, whatever strings have."""
    if isinstance(value, JsonNumber):
        return str(value).replace(".", decimal)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unbase64(text: str) -> bytes:
    found = base64.b64decode(text, validate=True)
    if base64.b64encode(found).decode() != text:
        raise ValueError("bits beyond the last byte")
    return found


def _times(texts: Any, kind: pa.DataType) -> pa.Array[Any]:
    """Times of a day: Arrow reads such texts as moments alone."""
    require(texts, _TIME)
    day: Any = pa.scalar("1970-01-01")
    moments: Any = pc.binary_join_element_wise(day, texts, pa.scalar(" ")).cast(pa.timestamp("ns"))
    found: pa.Array[Any] = moments.cast(pa.time64("ns")).cast(kind)
    return found


def _uuids(texts: Any) -> pa.Array[Any]:
    require(texts, _UUID)
    found: Any = [
        None if text is None else bytes.fromhex(text.replace("-", "")) for text in texts.to_pylist()
    ]
    return pa.array(found, pa.binary(16))


def _lacks(texts: Any, pattern: str) -> Any:
    return mask(pc.invert(pc.match_substring_regex(texts, pattern)))


_TIME = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?$"
_UUID = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
_MOMENT_CHARS = chars("+-.,:0123456789 TZtz")
_SAFE_DIGITS = {8: 2, 16: 4, 32: 9, 64: 18}
"""By the bits of an integer: so many digits always fit."""
