"""`txn-engine sql`: one SELECT over topics, all as of the same cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from txn_engine.cli.command import SETTINGS, Command, Place, common_options
from txn_engine.cli.failures import values_shown
from txn_engine.cli.output import Output

if TYPE_CHECKING:
    from txn_engine.cli.record_text import RecordWriter
    from txn_engine.value_text import BinaryText

Format = Literal["table", "csv", "jsonl"]
_ROWS_AT_ONCE = 10_000


@click.command(
    cls=Command,
    short_help="One SELECT over topics.",
    context_settings=SETTINGS,
    examples=(
        'txn-engine sql "SELECT count(*) FROM payments"',
        'txn-engine sql "SELECT account_id, sum(amount) FROM payments GROUP BY account_id" --format csv',
        "txn-engine sql 'SELECT * FROM \"card.payments\" ORDER BY _offset LIMIT 10' --cut 12",
    ),
)
@click.argument("query")
@click.option(
    "--cut",
    type=click.IntRange(min=0),
    metavar="N",
    help="As of this cut (`cuts list`); without it as of now.",
)
@click.option(
    "--schema-version",
    type=click.Choice(["cut"]),
    help="With --cut: topics have the columns that they had when the cut was made, not those of now.",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "csv", "jsonl"]),
    default="table",
    help="How rows are written.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(min=1),
    default=1_000,
    metavar="N",
    help="With --format table: so many rows are shown. Every other format has all of them.",
)
@click.option(
    "--binary",
    type=click.Choice(["text", "base64"]),
    default="text",
    help="How binary values are written as text; bytes that are no UTF-8 come as \\xNN.",
)
@click.option(
    "--memory-mb",
    type=click.IntRange(min=1),
    envvar="TXN_ENGINE_SQL_MEMORY_MB",
    show_envvar=True,
    metavar="MB",
    help="What the query may have in memory, half of the machine's unless told; the rest goes to a temporary folder.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    envvar="TXN_ENGINE_SQL_THREADS",
    show_envvar=True,
    metavar="N",
    help="Threads that work on it; one a core unless told.",
)
@click.option(
    "--show-values",
    is_flag=True,
    help="Let an error show the value that does not fit. A terminal shows it anyway.",
)
@common_options
def sql(
    query: str,
    cut: int | None,
    schema_version: Literal["cut"] | None,
    output_format: Format,
    max_rows: int,
    binary: BinaryText,
    memory_mb: int | None,
    threads: int | None,
    show_values: bool,
    place: Place,
    out: Output,
) -> None:
    """Run QUERY, one SELECT of DuckDB's SQL, and print its rows.

    Topics are its tables, with the columns _topic, _partition, _offset and _timestamp; a name with dots or dashes
    stands in double quotes. All topics that it names are read as of the same cut: no transaction shows by half, even if
    it spans several of them. DuckDB reads the committed Parquet files itself, and SQL can reach nothing else. Values
    are exact: decimals have all their digits (avg and / give floating point, as they do in DuckDB). With --json one
    document with all rows.
    """
    if out.as_json and output_format != "table":
        raise click.UsageError("--json goes without --format: use --format jsonl")
    with (
        place.open() as engine,
        out.progress("the query runs"),
        values_shown(show_values, as_json=out.as_json),
    ):
        rows = engine.sql(query, cut=cut, schema_version=schema_version, memory_mb=memory_mb, threads=threads)
    if out.as_json or output_format == "jsonl":
        _check_names(rows.schema.names)
    is_cut = output_format == "table" and not out.as_json and rows.num_rows > max_rows
    shown = rows.slice(0, max_rows) if is_cut else rows
    writer = _writer("json" if out.as_json else output_format, binary)
    for first in range(0, max(shown.num_rows, 1), _ROWS_AT_ONCE):
        writer.write(shown.slice(first, _ROWS_AT_ONCE))
    writer.close(row_count=rows.num_rows, cut=cut)
    told = f"{rows.num_rows:,} row{'' if rows.num_rows == 1 else 's'}"
    if is_cut:
        told = f"the first {max_rows:,} of {told}: --max-rows N shows more, --format csv and --json have all"
    out.note(told)


def _check_names(names: list[str]) -> None:
    from txn_engine.errors import InvalidRequestError

    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidRequestError(
            f"two columns {twice!r}",
            actor="sql",
            expected="another name for each in JSON",
            action="name one: ... AS other",
        )


def _writer(output_format: str, binary: BinaryText) -> RecordWriter:
    from txn_engine.cli import record_text

    kinds = {
        "table": record_text.Aligned,
        "csv": record_text.Csv,
        "jsonl": record_text.JsonLines,
        "json": record_text.JsonDocument,
    }
    return kinds[output_format](record_text.standard_output(), binary)
