"""`read_records`: a file of any of the formats, as batches in a schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa

from txn_engine.errors import InvalidRequestError
from txn_engine.files.conversion import BinaryText, Conversion, checked_date_format
from txn_engine.files.delimited import read_delimited
from txn_engine.files.json_lines import read_json_lines
from txn_engine.files.layout import ACTOR, Layout, Progress
from txn_engine.files.parquet import read_parquet

FileFormat = Literal["csv", "jsonl", "parquet"]

FORMATS: Mapping[str, FileFormat] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
"""The format that a file's name stands for."""


def read_records(
    path: str | Path,
    schema: pa.Schema,
    *,
    format: FileFormat | None = None,  # noqa: A002 -- what everybody calls it
    delimiter: str | None = None,
    null_values: Sequence[str] = ("",),
    columns: Mapping[str, str] | None = None,
    date_format: str | None = None,
    binary: BinaryText = "text",
    progress: Progress | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of a file, exactly, in `schema`: its columns, in its order, of its types.

    Each batch holds up to 32,768 rows or about 16 MB of the file; memory does not grow with the file. A fault raises
    `InvalidRecordError`, naming file, line (parquet: row) and column, and what was expected: a value that does not fit
    its column, a missing, doubled or unknown column, a line with more or fewer fields than the header, an open quote,
    text that is not UTF-8, a file without records. What stands there is in the error's `value` alone, so that logs and
    alerts show nothing of a file. It comes when the fault is met: the batches before it were yielded.
    `InvalidRequestError`: the file cannot be read, or is of an unknown format.

    format: by the file's extension (`FORMATS`) when not given.
    delimiter: of csv, whose first line names the columns; "," unless told, a tab for `.tsv`.
    null_values: fields of csv that mean null. An empty one in a column that takes no null is the empty string in a
        string or binary column, and an error elsewhere. Blank lines are no rows.
    columns: the file's name of a column by the schema's name, where they differ.
    date_format: of dates and timestamps in csv and jsonl, as `datetime.strptime` takes it; ISO 8601 unless told.
    binary: what text in a binary column stands for: its UTF-8 bytes, or base64.
    progress: called with the number of bytes read so far.
    """
    source = Path(path)
    chosen = format or _format_of(source)
    layout = Layout(source, schema, dict(columns or {}), progress or _silent)
    conversion = Conversion(checked_date_format(date_format, schema), binary)
    if chosen == "parquet":
        batches: Iterator[pa.RecordBatch] = read_parquet(layout)
    elif chosen == "csv":
        batches = read_delimited(layout, conversion, delimiter, null_values)
    else:
        batches = read_json_lines(layout, conversion)
    found = False
    for batch in batches:
        found = found or batch.num_rows > 0
        yield batch
    if not found:
        raise layout.refused("no records", expected="at least one")


def _silent(_bytes_read: int) -> None:
    """Tell nobody."""


def _format_of(path: Path) -> FileFormat:
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise InvalidRequestError(
            f"the extension {path.suffix!r}" if path.suffix else "a name without an extension",
            actor=ACTOR,
            place=str(path),
            expected=", ".join(sorted(FORMATS)),
            action="name the format: csv, jsonl or parquet",
        )
    return found
