"""Columns as text: `account_id:int64,amount:decimal(18,2),note:string?`, or with a space in place of the colon."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from txn_engine.names import is_storable

if TYPE_CHECKING:
    import pyarrow as pa

_PLAIN: Final = ("int32", "int64", "float64", "bool", "string", "binary", "date32", "timestamp")
TYPES: Final = f"{', '.join(_PLAIN)} and decimal(PRECISION,SCALE), for example decimal(18,2)"
_DECIMAL = re.compile(r"decimal\(\s*([0-9]{1,3})\s*,\s*([0-9]{1,3})\s*\)")
_PRECISION_MAX = 38
_SCHEMA_BYTES_MAX: Final = 16 << 20
"""So much of an Arrow file is read: the schema comes first."""
_TYPE: Final = r"(?P<type>[^\s:?'\"()]+(?:\([^)]*\))?)"
_REST: Final = r"\s*(?P<nullable>\?)?(?P<strict>\s+not\s+null)?(?:\s+(?P<default>.*\S))?\s*"
_BY_SPACE: Final = re.compile(rf"\s*(?P<name>[^\s:]+)\s+{_TYPE}{_REST}", re.IGNORECASE | re.DOTALL)
_BY_COLON: Final = re.compile(rf"\s*(?P<name>[^\s:][^:]*?)\s*:\s*{_TYPE}{_REST}", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class ColumnText:
    """A column as it was typed. nullable: None if nothing was said. default: the text of its default, if any."""

    name: str
    type: pa.DataType
    nullable: bool | None
    default: str | None


def parse_schema(text: str) -> pa.Schema:
    """The schema; a usage error says which part is not one. A '?' behind a type lets the column hold nulls."""
    import pyarrow as pa

    found = [(part, parse_column(part, "--schema")) for part in _parts(text)]
    for part, column in found:
        if column.default is not None:
            raise _refused(part, "no default: a new topic has no records without the column", "--schema")
    if not found:
        raise _refused(text, "name:type,... or 'name type,...'", "--schema")
    return pa.schema(
        [pa.field(column.name, column.type, nullable=bool(column.nullable)) for _, column in found]
    )


def parse_column(text: str, option: str) -> ColumnText:
    """A column as `name:type` or `name type`, with `?` (may hold nulls) or `not null`, and a default behind them.

    Every option that takes a column calls this. A usage error names the option and the text.
    """
    by_space = _BY_SPACE.fullmatch(text)
    is_by_space = by_space is not None and _is_type(by_space["type"])
    match = by_space if is_by_space else _BY_COLON.fullmatch(text) or by_space
    if match is None or not is_storable(match["name"]) or (match["nullable"] and match["strict"]):
        raise _refused(text, "name:type or 'name type', the name in UTF-8", option)
    nullable = True if match["nullable"] else False if match["strict"] else None
    return ColumnText(match["name"], _type(match["type"], text, option), nullable, match["default"])


def read_schema(path: Path) -> pa.Schema:
    """The schema of a Parquet or Arrow file."""
    import pyarrow as pa

    from txn_engine.errors import InvalidRecordError

    expected = "a Parquet file (.parquet) or an Arrow one"
    if not path.is_file():
        raise click.BadParameter(f"there is no file {path}", param_hint="--schema-file")
    try:
        return _schema_in(path)
    except UnicodeDecodeError:
        expected = "column names in UTF-8"  # the error holds the bytes: it is not passed on
    except (pa.ArrowException, OSError, ValueError, InvalidRecordError):
        pass  # and theirs may quote the file
    raise click.BadParameter(f"{path} holds no schema: expected {expected}", param_hint="--schema-file")


def _schema_in(path: Path) -> pa.Schema:
    from storage.arrow_schema import read_schema as read_message
    from txn_engine.files import schema_of_parquet

    if path.suffix == ".parquet":
        return schema_of_parquet(path)
    with path.open("rb") as stream:
        data = stream.read(_SCHEMA_BYTES_MAX)
    return read_message(data.removeprefix(b"ARROW1\0\0")).remove_metadata()


def _parts(text: str) -> list[str]:
    """The text at its commas, but for those in brackets."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def parse_type(text: str, option: str) -> pa.DataType:
    """The type of that name; a usage error where there is none."""
    return _type(text, text, option)


def _is_type(text: str) -> bool:
    """Whether it is the name of a type, in whichever case."""
    return text.lower() in _PLAIN or _DECIMAL.fullmatch(text.lower()) is not None


def _type(name: str, part: str, option: str) -> pa.DataType:
    import pyarrow as pa

    text = name.lower()
    plain: dict[str, pa.DataType] = {
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date32": pa.date32(),
        "timestamp": pa.timestamp("ms", tz="UTC"),
    }
    if text in plain:
        return plain[text]
    found = _DECIMAL.fullmatch(text)
    if found is None:
        raise _refused(
            part, f"one of the types {TYPES}; a '?' after the type lets the column hold nulls", option
        )
    precision, scale = int(found[1]), int(found[2])
    if not 1 <= precision <= _PRECISION_MAX or scale > precision:
        raise _refused(part, f"a precision of 1 to {_PRECISION_MAX} and a scale of at most that", option)
    return pa.decimal128(precision, scale)


def _refused(part: str, expected: str, option: str) -> click.BadParameter:
    return click.BadParameter(f"{part!r}; expected {expected}", param_hint=option)


def type_text(field: pa.Field[Any]) -> str:
    """A column's type as `--schema` takes it."""
    import pyarrow as pa

    kind = field.type
    text = str(kind)
    if pa.types.is_decimal(kind):
        text = f"decimal({kind.precision},{kind.scale})"
    elif kind == pa.date32():
        text = "date32"
    elif kind == pa.timestamp("ms", tz="UTC"):
        text = "timestamp"
    elif kind == pa.float64():
        text = "float64"
    return f"{text}?" if field.nullable else text
