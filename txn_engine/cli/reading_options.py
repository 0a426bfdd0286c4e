"""The options of `produce` that say how files are read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

Function = Callable[..., Any]

_OPTIONS = (
    click.option(
        "--format",
        type=click.Choice(["csv", "jsonl", "parquet"]),
        help="What the files are; by their names unless told, before .gz or .zst.",
        show_default=False,
    ),
    click.option(
        "--compression",
        type=click.Choice(["gzip", "zstd"]),
        help="How csv and jsonl are compressed; by the file's name unless told.",
        show_default=False,
    ),
    click.option(
        "--delimiter", metavar="CHAR", help="Between the fields of csv: ',' unless told (a tab for .tsv)."
    ),
    click.option(
        "--quote", metavar="CHAR", default='"', help="Around fields of csv; '' where none is quoted."
    ),
    click.option(
        "--no-header", is_flag=True, help="The csv has no line of names: its columns are the topic's."
    ),
    click.option("--header", metavar="NAME,...", help="The csv has no line of names: its columns are these."),
    click.option("--encoding", default="utf-8", metavar="NAME", help="Of csv and jsonl: cp1252, utf-16."),
    click.option(
        "--decimal",
        type=click.Choice([".", ","]),
        default=".",
        help="The decimal mark of numbers in text.",
    ),
    click.option(
        "--thousands",
        metavar="CHAR",
        help="The mark between thousands of numbers in text: . , ' or a space. A number may have none.",
    ),
    click.option(
        "--date-format",
        metavar="FORMAT",
        help="Of dates and timestamps in csv and jsonl, as strptime has it: %y%m%d. ISO 8601 unless told.",
    ),
    click.option(
        "--null",
        "null_values",
        multiple=True,
        default=("",),
        metavar="TEXT",
        help="A field of csv that means null where it has no quotes. Repeatable.",
        show_default="the empty field",
    ),
    click.option(
        "--skip-footer",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Leave out the last N lines of a csv, such as a total. Blank lines do not count.",
    ),
    click.option(
        "--binary",
        type=click.Choice(["text", "base64"]),
        default="text",
        help="What csv and jsonl hold for a binary column.",
    ),
    click.option(
        "--missing-columns",
        type=click.Choice(["refuse", "null"]),
        default="refuse",
        help="What becomes of a file without one of the topic's columns: null, where the column may be.",
    ),
    click.option(
        "--unknown-columns",
        type=click.Choice(["refuse", "ignore"]),
        default="refuse",
        help="What becomes of a file with a column that the topic has not.",
    ),
)
NAMES = (
    "format",
    "compression",
    "delimiter",
    "quote",
    "encoding",
    "decimal",
    "thousands",
    "date_format",
    "null_values",
    "skip_footer",
    "binary",
    "missing_columns",
    "unknown_columns",
)


def reading_options(function: Function) -> Function:
    """Give a command the options, and as `reading` what `read_records` takes."""

    @functools.wraps(function)
    def command(*arguments: Any, no_header: bool, header: str | None, **options: Any) -> Any:
        if no_header and header is not None:
            raise click.UsageError("--no-header and --header: give one of them")
        reading = {name: options.pop(name) for name in NAMES}
        names = None if header is None else [name.strip() for name in header.split(",")]
        reading["header"] = not no_header if names is None else names
        return function(*arguments, reading=reading, **options)

    for option in reversed(_OPTIONS):
        command = option(command)
    return command
