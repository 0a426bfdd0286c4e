"""JSON lines: a record a line, its numbers taken as the text they are written as."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa

from txn_engine.files.batches import FaultError, batch_of, in_batches
from txn_engine.files.columns import bad_value, converted, null_refused
from txn_engine.files.conversion import Conversion, JsonNumber, json_types, text_of
from txn_engine.files.kinds import is_nested
from txn_engine.files.layout import READ_COLUMNS, Layout, counted, listed, shown
from txn_engine.files.text import Text


class _NotJsonError(ValueError):
    """A line that Python's decoder would take and JSON does not know."""


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotJsonError("a name twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise _NotJsonError(f"{name}, which JSON does not know")


def read_json_lines(layout: Layout, conversion: Conversion) -> Iterator[pa.RecordBatch]:
    """The file's records. Raises as `read_records` does."""
    decode = json.JSONDecoder(
        object_pairs_hook=_pairs, parse_int=JsonNumber, parse_float=JsonNumber, parse_constant=_no_constant
    ).decode
    known = {layout.name_in_file(column) for column in layout.schema.names} | set(READ_COLUMNS)
    with Text(layout, newline=None) as text:
        rows = _json_rows(layout, text.stream, decode, known)
        yield from in_batches(text, rows, lambda held, lines: _json_batch(layout, conversion, held, lines))


def _json_rows(
    layout: Layout, stream: Iterable[str], decode: Callable[[str], object], known: set[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line's object with its number; blank lines are none."""
    for number, line in enumerate(stream, start=1):
        if line.isspace():
            continue
        record, fault = _decoded(line, decode)
        if fault:
            raise layout.refused(
                f"no JSON: {fault}", expected="a JSON object on each line, whole", line=number
            )
        if not isinstance(record, dict):
            raise layout.refused(
                "another JSON value", value=shown(record), expected="a JSON object on each line", line=number
            )
        unknown = [name for name in record if name not in known]
        if unknown:
            raise layout.refused(
                counted(unknown, "unknown column"),
                value=listed(unknown),
                expected=f"the columns {', '.join(sorted(known - set(READ_COLUMNS)))}",
                line=number,
            )
        yield number, record


def _decoded(line: str, decode: Callable[[str], object]) -> tuple[object, str]:
    """What the line holds; or what is wrong, which quotes nothing of the line (the decoder's error holds all of it)."""
    try:
        return decode(line), ""
    except json.JSONDecodeError as error:
        return None, f"{error.msg} at character {error.colno}"
    except RecursionError:
        return None, "nested too deeply"
    except _NotJsonError as error:
        return None, str(error)


def _json_batch(
    layout: Layout, conversion: Conversion, records: Sequence[Mapping[str, Any]], lines: Sequence[int]
) -> pa.RecordBatch:
    def column(field: pa.Field[Any]) -> pa.Array[Any]:
        name = layout.name_in_file(field.name)
        values = [record.get(name) for record in records]
        if not field.nullable and any(value is None for value in values):
            index = values.index(None)
            if name in records[index]:
                raise null_refused(layout, field, lines[index])
            expected = f"a value of type {field.type}"
            raise FaultError(
                lines[index], layout.refused(f"no column {name!r}", expected=expected, line=lines[index])
            )
        if is_nested(field.type):
            return _nested(layout, conversion, field, values, lines)
        texts = _json_texts(layout, conversion, field, values, lines)
        return converted(layout, conversion, field, texts, lines)

    return batch_of(layout, column)


def _json_texts(
    layout: Layout,
    conversion: Conversion,
    field: pa.Field[Any],
    values: Sequence[Any],
    lines: Sequence[int],
) -> pa.Array[Any]:
    """The values as text, from which all types are read; a value of another kind than the column's is refused."""
    accepts = json_types(field.type)
    texts: list[str | None] = []
    for value, line in zip(values, lines, strict=True):
        if value is not None and type(value) not in accepts:
            raise bad_value(layout, conversion, field, value, line)
        texts.append(value if value is None or type(value) is str else text_of(value))
    for text, line in zip(texts, lines, strict=True):
        if text is not None and not text.isascii() and not _encodes(text):
            raise bad_value(layout, conversion, field, text, line)
    found: pa.Array[Any] = pa.array(texts, pa.string())
    return found


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _nested(
    layout: Layout,
    conversion: Conversion,
    field: pa.Field[Any],
    values: Sequence[object],
    lines: Sequence[int],
) -> pa.Array[Any]:
    kept = []
    for value, line in zip(values, lines, strict=True):
        plain, fits = _plain(conversion, value, field)
        if not fits:
            raise bad_value(layout, conversion, field, value, line)
        kept.append(plain)
    found: pa.Array[Any] = pa.array(kept, field.type)
    return found


def _plain(conversion: Conversion, value: object, field: pa.Field[Any]) -> tuple[object, bool]:
    try:
        plain = conversion.nested(value, field.type)
        pa.array([plain], field.type)
    except (TypeError, ValueError, KeyError, OverflowError, pa.ArrowException):
        return None, False
    return plain, True
