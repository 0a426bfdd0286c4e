"""`txn-engine topics infer`: the columns that a file has, to be looked at before a topic is made of them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from txn_engine.cli.command import SETTINGS, Command, output_options
from txn_engine.cli.output import Output, columns
from txn_engine.cli.reading_options import reading_options
from txn_engine.cli.schema_text import parse_schema, type_text

if TYPE_CHECKING:
    from txn_engine.files import Cause

_COLUMNS = columns("Column", "Type")


@click.command(
    cls=Command,
    context_settings=SETTINGS,
    short_help="Show what columns a file has.",
    examples=(
        "txn-engine topics infer payments.csv",
        "txn-engine topics infer german.csv --delimiter ';' --decimal , --date-format %d.%m.%Y",
    ),
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@reading_options
@output_options
def infer(file: Path, reading: dict[str, Any], out: Output) -> None:
    """Read FILE to its end, and show for each column the narrowest type that holds all its values exactly.

    It makes nothing: look at it, widen what the next file may need, and give it to `topics create --schema`. A decimal
    has at least 18 digits. Digits that begin with a 0 are text, as account numbers are. A '?' is behind the type of a
    column that has none of a value somewhere. Where a column is text, the first value that is nothing else is shown.
    """
    from txn_engine.files import infer as infer_columns

    with out.progress("reading"):
        found = infer_columns(file, **reading)
    schema: Any = found.schema
    rows = [
        {
            "column": field.name,
            "type": type_text(field),
            "text_because": _told(found.causes.get(field.name)),
        }
        for field in schema
    ]
    text = ",".join(f"{row['column']}:{row['type']}" for row in rows)
    out.table("schema", _COLUMNS, rows, schema_text=text, hint=found.hint)
    for row in rows:
        if row["text_because"] is not None:
            out.note(f"column {row['column']!r} is text because {row['text_because']}")
    if found.hint is not None:
        out.note(found.hint)
    odd = next((field.name for field in schema if not _is_sayable(field)), None)
    if odd is None:
        out.note(f"txn-engine topics create TOPIC --schema {shlex.quote(text)}")
    elif file.suffix == ".parquet" and not any(name.startswith("_") for name in schema.names):
        out.note(f"txn-engine topics create TOPIC --schema-file {shlex.quote(str(file))}")
    else:
        out.note(
            f"no `topics create --schema` can say the column {odd!r}: give it another name in the file, or a name of "
            "the topic's in Python (`load_files(..., columns={topic's: file's})`)"
        )


def _told(cause: Cause | None) -> str | None:
    if cause is None:
        return None
    from txn_engine.files.layout import shown

    hint = "" if cause.hint is None else f": {cause.hint}"
    return f"line {cause.line} is {shown(cause.value)}{hint}"


def _is_sayable(field: Any) -> bool:
    """Whether `topics create --schema` makes this very column of its name and type."""
    import pyarrow as pa

    try:
        found = parse_schema(f"{field.name}:{type_text(field)}")
    except click.BadParameter:
        return False
    return found.equals(pa.schema([field])) and not field.name.startswith("_")
