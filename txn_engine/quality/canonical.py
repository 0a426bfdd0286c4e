"""One way to write a value down, so that a cell of a text file and a value of a topic can be compared exactly.

Two texts are alike only where both mean the same, to the last digit: a cell with a digit, a time of day or a zone that
the topic's type does not keep is left as it is, and so differs from whatever the topic holds. Null and the empty
string of a topic's column have the same text, so a caller that has to tell them apart looks at the column.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.held import held_type, laid_out
from txn_engine.quality.money import text_of_unscaled, unscaled_of_text

_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_FLOAT_CHARS_MAX = 1_000
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ]([0-9]{2}(?::[0-9]{2}(?::[0-9]{2})?)?)(?:\.([0-9]+))?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_NUMBER = "%[dfGHIjmMSuUVwWyY]"
_JOINED = re.compile(f"{_NUMBER}(?={_NUMBER}|[0-9])|[0-9]{_NUMBER}")
_ZEROS_IN_FRONT = re.compile(r"(?<![0-9])0+(?=[0-9])")
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,9}))?)?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_PLAIN_SCALE_MAX = 6
"""Up to this scale Arrow writes a decimal without an exponent."""
_REPEATED = (pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp, pa.types.is_time)
"""Types of few different values, of which Arrow finds the same ones: each is written once."""
_DAY_MS = 86_400_000


def column_text(column: Any) -> Any:
    """A topic's column of any type as text, value by value; no nulls in the answer."""
    if not isinstance(column, pa.ChunkedArray):
        return pc.fill_null(_array_text(column), "")
    texts: Any = pa.chunked_array([_array_text(chunk) for chunk in column.chunks], pa.string())
    return pc.fill_null(texts, "")


def _array_text(array: Any) -> Any:
    """The values of an array as text; null for nothing."""
    kind = array.type
    if (held := held_type(kind)) != kind:  # dictionaries and views, also inside of others
        return _array_text(laid_out(array, held))
    is_plain = pa.types.is_decimal(kind) and kind.scale <= _PLAIN_SCALE_MAX
    if pa.types.is_integer(kind) or is_plain or _is_text(kind):
        return pc.cast(array, pa.string())
    if not any(is_such(kind) for is_such in _REPEATED):
        return pa.array(_value_texts(array), pa.string())
    encoded = array.dictionary_encode()
    return pa.array(_value_texts(encoded.dictionary), pa.string()).take(encoded.indices)


def cells_text(cells: Sequence[str | None], kind: pa.DataType, date_format: str) -> Any:
    """A text file's column, written as `column_text` writes the topic's column of that type; None stays null.

    A cell that the type cannot hold is left as it is, so that it differs from whatever the topic holds.
    """
    write = _cell_writer(kind, date_format)
    known: dict[str | None, str | None] = {None: None, "": ""}
    for cell in cells:
        if cell not in known:
            known[cell] = write(str(cell))
    return pa.array([known[cell] for cell in cells], pa.string())


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _cell_writer(kind: Any, date_format: str) -> Callable[[str], str]:
    if pa.types.is_integer(kind):
        return lambda cell: _decimal_text(cell, 0)
    if pa.types.is_decimal(kind):
        return lambda cell: _decimal_text(cell, max(int(kind.scale), 0))
    if pa.types.is_floating(kind):
        return lambda cell: _float_text(cell, kind)
    if pa.types.is_boolean(kind):
        return lambda cell: {"1": "true", "0": "false"}.get(cell, cell.lower())
    if pa.types.is_date(kind):
        return lambda cell: _day_text(cell, date_format)
    if pa.types.is_timestamp(kind):
        return lambda cell: _moment_text(cell, date_format, is_zoned=kind.tz is not None)
    if pa.types.is_time(kind):
        return lambda cell: cell if (nanos := nanos_of_time(cell)) is None else _text_of_time(nanos)
    if kind == pa.uuid():
        return lambda cell: cell.lower() if _UUID.fullmatch(cell) else cell
    return lambda cell: cell


def nanos_of_time(text: str) -> int | None:
    """The nanoseconds since midnight of a time of day, as 09:30:00.5; None for another text."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = (int(match[group] or 0) for group in (1, 2, 3))
    return ((hours * 60 + minutes) * 60 + seconds) * 10**9 + int((match[4] or "").ljust(9, "0"))


def _decimal_text(cell: str, scale: int) -> str:
    number = unscaled_of_text(cell, scale)
    return cell if number is None else text_of_unscaled(number, scale)


def _float_text(cell: str, kind: Any) -> str:
    """The float nearest to the cell, where it lies within half of the last digit that the cell has."""
    if cell.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return repr(float(cell))
    if _FLOAT.fullmatch(cell) is None or len(cell) > _FLOAT_CHARS_MAX:
        return cell
    with np.errstate(over="ignore"):
        number = float(np.dtype(kind.to_pandas_dtype()).type(cell))
    mantissa, _, exponent = cell.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    written, last_digit = Fraction(cell), Fraction(10) ** (int(exponent or 0) - digits)
    if number in (float("inf"), float("-inf")) or (written != 0) != (number != 0):
        return cell
    return repr(number) if 2 * abs(Fraction(number) - written) <= last_digit else cell


def _parsed(cell: str, date_format: str) -> dt.datetime | None:
    """The cell by the input file's own format, every digit of it there."""
    if any(char.isdecimal() and not char.isascii() for char in cell):
        return None  # strptime takes digits of any script, a topic's text of a date has none
    try:
        found = dt.datetime.strptime(cell, date_format)  # noqa: DTZ007 -- the caller judges the zone
    except ValueError:
        return None
    said, seen = found.strftime(date_format).casefold(), cell.casefold()
    if said != seen and _JOINED.search(date_format):
        return None  # "93011" as %y%m%d
    if not {"%f", "%z"} & set(re.findall("%.", date_format)):  # which may be written in several ways
        said, seen = (" ".join(_ZEROS_IN_FRONT.sub("", text).split()) for text in (said, seen))
        if said != seen:
            return None  # a weekday, or PM, that contradicts the rest
    return found


def _day_text(cell: str, date_format: str) -> str:
    found = _parsed(cell, date_format)
    if found is not None:
        return found.date().isoformat() if found.timetz() == dt.time() else cell
    try:
        return dt.date.fromisoformat(cell).isoformat()
    except ValueError:
        return cell


def _moment_text(cell: str, date_format: str, *, is_zoned: bool) -> str:
    """A cell without a zone is UTC where the topic's times have one; one with a zone fits no topic whose times have
    none.
    """
    found, nanos = _parsed(cell, date_format), 0
    if found is not None:
        nanos = found.microsecond * 1_000
    elif (match := _MOMENT.fullmatch(cell)) is not None:
        digits = (match[3] or "").rstrip("0")
        is_of_a_second = match[3] is None or len(match[2]) == len("00:00:00")
        if len(digits) > 9 or not is_of_a_second:
            return cell
        nanos = int(digits.ljust(9, "0"))
        try:
            found = dt.datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00'}{match[4] or ''}")
        except ValueError:
            return cell
    if found is None or (found.tzinfo is not None and not is_zoned):
        return cell
    whole = found.replace(microsecond=0, tzinfo=found.tzinfo or dt.UTC)
    seconds = (whole - _EPOCH) // dt.timedelta(seconds=1)
    return _text_of_nanos(seconds * 10**9 + nanos)


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _text_of_nanos(nanos: int) -> str:
    """A moment to its last digit; one that the calendar has no day for as its number."""
    seconds, fraction = divmod(nanos, 10**9)
    try:
        moment = _EPOCH + dt.timedelta(seconds=seconds)
    except OverflowError:
        return f"{nanos} ns since 1970"
    shown = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{shown}+00:00".rjust(25 + len(shown), "0")


def _value_texts(values: Any) -> list[str | None]:
    """The text of each value; None for nothing."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType) and kind != pa.uuid():
        return _value_texts(values.storage)
    if pa.types.is_nested(kind):
        return _nested_texts(values)
    write = _count_writer(kind)
    if write is not None:
        unit = pa.int32() if kind.bit_width == 32 else pa.int64()
        return [None if count is None else write(count) for count in values.cast(unit).to_pylist()]
    if pa.types.is_decimal(kind):
        scale = int(kind.scale)
        return [None if value is None else _decimal_text(f"{value:f}", scale) for value in values.to_pylist()]
    if pa.types.is_floating(kind):
        values = pc.cast(values, pa.float64())
    return [_value_text(value) for value in values.to_pylist()]


def _count_writer(kind: Any) -> Callable[[int], str] | None:
    """Writes a value that Arrow keeps as a count of days or of parts of a second, whether Python knows it or not."""
    if pa.types.is_date32(kind):
        return _text_of_days
    if pa.types.is_date64(kind):
        return lambda count: _text_of_days(count // _DAY_MS)
    if pa.types.is_timestamp(kind):
        return lambda count: _text_of_nanos(count * NANOS[kind.unit])
    if pa.types.is_time(kind):
        return lambda count: _text_of_time(count * NANOS[kind.unit])
    if pa.types.is_duration(kind):
        return lambda count: f"{count} {kind.unit}"
    return None


def _text_of_days(days: int) -> str:
    try:
        return (_EPOCH.date() + dt.timedelta(days=days)).isoformat()
    except OverflowError:
        return f"{days} days since 1970"


def _text_of_time(nanos: int) -> str:
    """A time of day to its last digit."""
    seconds, fraction = divmod(nanos, 10**9)
    shown = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{shown}"


def _nested_texts(values: Any) -> list[str | None]:
    """Lists, structs and maps in the manner of JSON, so that no two values have one text: text inside of them is in
    quotes, and nothing is null.
    """
    kind = values.type
    if pa.types.is_struct(kind):
        names = [json.dumps(field.name, ensure_ascii=False) for field in kind]
        members = [_inner_texts(member) for member in values.flatten()]
        rows = [[texts[at] for texts in members] for at in range(len(values))]
        found = ["{" + ", ".join(map(": ".join, zip(names, row, strict=True))) + "}" for row in rows]
    elif pa.types.is_map(kind):
        keys, items = _inner_texts(values.keys), _inner_texts(values.items)
        pairs = [f"{key}: {item}" for key, item in zip(keys, items, strict=True)]
        found = [
            "{" + ", ".join(pairs[start:end]) + "}" for start, end in pairwise(values.offsets.to_pylist())
        ]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        texts = _inner_texts(values.values)
        found = [
            "[" + ", ".join(texts[start:end]) + "]" for start, end in pairwise(values.offsets.to_pylist())
        ]
    else:  # of one size
        return _nested_texts(values.cast(pa.large_list(kind.value_field)))
    is_valid = values.is_valid().to_pylist()
    return [text if is_there else None for text, is_there in zip(found, is_valid, strict=True)]


def _inner_texts(values: Any) -> list[str]:
    """The values inside of others."""
    kind, texts = values.type, _array_text(values).to_pylist()
    is_plain = pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_nested(kind)
    written = str if is_plain else partial(json.dumps, ensure_ascii=False)
    return ["null" if text is None else written(text) for text in texts]


def _value_text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return repr(value) if isinstance(value, float) else str(value)
