"""Changes of a topic's columns as `topics alter` takes them: `note string 'none'`, `old=new`, `count=int64`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from txn_engine.cli.schema_text import parse_column, parse_type

if TYPE_CHECKING:
    from txn_engine.schemas.changes import AddColumn, Change

_EXPECTED: Final = {"--rename": "OLD=NEW", "--widen": "NAME=TYPE", "--column": "NEW=OLD"}


def parse_changes(
    *,
    add: Sequence[str],
    rename: Sequence[str],
    drop: Sequence[str],
    widen: Sequence[str],
    nullable: Sequence[str],
    order: str | None,
) -> list[Change]:
    """The changes: what is dropped first, what is added and the order last. A usage error says which is none."""
    from txn_engine.schemas.changes import DropColumn, MakeNullable, RenameColumn, ReorderColumns, WidenColumn

    found: list[Change] = [DropColumn(name) for name in drop]
    wider = [parse_pair("--widen", text) for text in widen]
    found += [WidenColumn(name, parse_type(kind, "--widen")) for name, kind in wider]
    found += [MakeNullable(name) for name in nullable]
    found += [RenameColumn(*parse_pair("--rename", text)) for text in rename]
    found += map(_added, add)
    if order is not None:
        found.append(ReorderColumns([name.strip() for name in order.split(",")]))
    return found


def parse_pair(option: str, text: str) -> tuple[str, str]:
    """What stands on both sides of the equals sign."""
    one, equals, other = text.partition("=")
    if not equals or not one.strip() or not other.strip():
        raise click.BadParameter(f"{text!r}; expected {_EXPECTED[option]}", param_hint=option)
    return one.strip(), other.strip()


def _added(text: str) -> AddColumn:
    import pyarrow as pa

    from txn_engine.schemas.changes import AddColumn

    found = parse_column(text, "--add")
    default = None if found.default is None else _value(found.default, found.type)
    # Older records have no value for it: without a word about nulls the column may hold them.
    return AddColumn(pa.field(found.name, found.type, nullable=found.nullable is not False), default)


def _value(text: str, kind: Any) -> Any:
    """The default as Python has it."""
    bare = _QUOTED.fullmatch(text)
    read = _READ.get(str(kind).partition("(")[0].partition("[")[0], str)
    if bare is None and read in _TEXTS and (text.lower() == "null" or len(text.split()) > 1):
        raise click.BadParameter(
            f"default {text!r}; expected one word, or a text in quotes; without 'not null' the column may hold nulls",
            param_hint="--add",
        )
    try:
        if bare is None and text[0] in "'\"":
            raise ValueError("a quote that is not closed, or closed too soon")
        if read is None:
            return _number(text if bare is None else _unquoted(bare), kind)
        return read(text if bare is None else _unquoted(bare))
    except (ValueError, ArithmeticError, KeyError):
        raise click.BadParameter(
            f"default {text!r}; expected a value of {kind}", param_hint="--add"
        ) from None


def _unquoted(found: re.Match[str]) -> str:
    """What stands between quotes, where two of them are one."""
    return found["text"].replace(2 * found["quote"], found["quote"])


def _number(text: str, kind: Any) -> Any:
    """Every digit of it, as files of records are read; `ValueError` for what the type does not keep."""
    import pyarrow as pa

    from txn_engine.files.numbers import decimals, floats, integers

    read = integers if pa.types.is_integer(kind) else floats if pa.types.is_floating(kind) else decimals
    return read(pa.array([text]), kind)[0].as_py()


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("a time without its zone")
    return found


_QUOTED: Final = re.compile(
    r"""(?P<quote>['"])(?P<text>((?!(?P=quote)).|(?P=quote){2})*)(?P=quote)""", re.DOTALL
)
_READ: Final[Mapping[str, Callable[[str], Any] | None]] = {
    "int32": None,
    "int64": None,
    "double": None,
    "decimal128": None,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "binary": str.encode,
    "date32": date.fromisoformat,
    "timestamp": _time,
}
_TEXTS: Final = (str, str.encode)
