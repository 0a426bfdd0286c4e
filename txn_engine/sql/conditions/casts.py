"""The conversions that a condition may ask for: each gives every value exactly, or fails."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.exact import InexactError, cast_exactly
from txn_engine.files.kinds import is_number
from txn_engine.sql.conditions.kinds import BOOLEAN, DAY, TEXT, Kind, computed
from txn_engine.sql.conditions.literals import (
    DAY_NS,
    NANOSECONDS,
    Number,
    constant,
    value_of_text,
)
from txn_engine.sql.conditions.refusals import Misfit

Conversion = Callable[[Any], Any]
"""From an array as Arrow computes with it, to another one. Raises `ValueError` for a value that has no equal."""
_FIRST_DAY: Final = date.min.toordinal() - date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date.max.toordinal() - date(1970, 1, 1).toordinal()


def conversion(source: Kind, target: Kind) -> Conversion | None:
    """The conversion of values from one kind to another; None where a condition has none."""
    if source == target:
        return lambda values: values
    if is_number(source) and is_number(target):
        return _of_numbers(source, target)
    if source == TEXT:
        return _from_text(target)
    if target == TEXT:
        return _to_text(source)
    if source == BOOLEAN and pa.types.is_integer(target):
        return lambda values: values.cast(target)
    if pa.types.is_timestamp(source) and target == DAY:
        return lambda values: _day_of(values, DAY_NS // NANOSECONDS[source.unit])
    if source == DAY and pa.types.is_timestamp(target):
        return lambda values: _rescaled(_count(values), DAY_NS, NANOSECONDS[target.unit]).cast(target)
    is_moment = pa.types.is_timestamp(source) and pa.types.is_timestamp(target)
    if is_moment or (pa.types.is_time(source) and pa.types.is_time(target)):
        units = NANOSECONDS[source.unit], NANOSECONDS[target.unit]
        return lambda values: _rescaled(_count(values), *units).cast(target)
    return None


def _of_numbers(source: Kind, target: Kind) -> Conversion | None:
    if pa.types.is_floating(source):
        if pa.types.is_floating(target):
            return lambda values: _other_float(values, target)
        # a float next to a decimal: several decimals have the same one
        return None if pa.types.is_decimal(target) else lambda values: _integers(values, target)
    if not pa.types.is_floating(target):
        return lambda values: cast_exactly(values, target)
    if pa.types.is_decimal(source):
        return lambda values: _each(values, target, lambda value: _float_of(value, target))
    return lambda values: _floats(values, target)


def _floats(integers: Any, kind: Kind) -> Any:
    """Arrow's own check refuses every integer from 2^53 on, also those that a float has."""
    found = integers.cast(kind, safe=False)
    _require(pc.equal(_integers(found, integers.type), integers))
    return found


def _integers(floats: Any, kind: Kind) -> Any:
    bits = kind.bit_width
    low, high = (
        (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)) if pa.types.is_signed_integer(kind) else (0.0, 2.0**bits)
    )
    _require(pc.and_(pc.greater_equal(floats, pa.scalar(low)), pc.less(floats, pa.scalar(high))))
    _require(pc.equal(pc.trunc(floats), floats))
    return floats.cast(kind, safe=False)


def _other_float(floats: Any, kind: Kind) -> Any:
    found = floats.cast(kind, safe=False)
    back = found.cast(floats.type, safe=False)
    _require(pc.or_(pc.equal(back, floats), pc.and_(pc.is_nan(back), pc.is_nan(floats))))
    return found


def _require(holds: Any) -> None:
    """Raise `InexactError` unless this is true, or null, of each value."""
    if pc.any(pc.invert(holds)).as_py():
        raise InexactError(0)


def _float_of(value: Decimal, kind: Kind) -> Any:
    """The float that prints as the decimal, as for a literal."""
    return constant(Number(value, has_exponent=False), kind, is_cast=True)


def _from_text(target: Kind) -> Conversion | None:
    """Texts that say a value in the form that a literal has; bytes and lengths of time are not read from texts."""
    is_moment = pa.types.is_timestamp(target) or pa.types.is_time(target)
    if is_number(target) or is_moment or target in (BOOLEAN, DAY, pa.uuid()):
        return lambda values: _each(values, computed(target), lambda text: value_of_text(text, target))
    return None


def _to_text(source: Kind) -> Conversion | None:
    """Only types of which each value has one text, whichever system writes it."""
    if source == pa.json_():
        return lambda values: values
    if pa.types.is_integer(source) or source == BOOLEAN:
        return lambda values: values.cast(TEXT)
    if pa.types.is_decimal(source):
        return lambda values: _each(values, TEXT, lambda value: format(value, "f"))
    if source == DAY:
        return _day_text
    if source == pa.uuid():
        return lambda values: _each(values, TEXT, _uuid_text)
    return None


def _day_text(values: Any) -> Any:
    days = _count(values)
    _require(
        pc.and_(pc.greater_equal(days, pa.scalar(_FIRST_DAY)), pc.less_equal(days, pa.scalar(_LAST_DAY)))
    )
    return values.cast(TEXT)


def _uuid_text(held: bytes) -> str:
    digits = held.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _day_of(values: Any, per_day: int) -> Any:
    """The day in UTC on which each moment lies."""
    counts = _count(values)
    days = np.floor_divide(counts.fill_null(0).to_numpy(zero_copy_only=False), per_day)
    mask = counts.is_null().to_numpy(zero_copy_only=False)
    return pa.array(days, pa.int64(), mask=mask).cast(pa.int32()).cast(DAY)


def _count(values: Any) -> Any:
    """The whole numbers that moments are stored as."""
    return values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64()).cast(pa.int64())


def _rescaled(counts: Any, unit_ns: int, wanted_ns: int) -> Any:
    """The same moments, counted in another unit."""
    if unit_ns >= wanted_ns:
        return pc.multiply_checked(counts, unit_ns // wanted_ns)
    found = pc.divide(counts, wanted_ns // unit_ns)
    _require(pc.equal(pc.multiply(found, wanted_ns // unit_ns), counts))
    return found


def _each(values: Any, kind: Kind, convert: Callable[[Any], Any]) -> Any:
    """Convert each different value by itself."""
    encoded = values.dictionary_encode()
    try:
        found = [convert(value) for value in encoded.dictionary.to_pylist()]
    except Misfit:
        raise InexactError(0) from None
    return pa.array(found, kind).take(encoded.indices)
