"""Parquet: columns of the topic's types, or of types whose values may stand in them where each of them fits.

The file itself is read by another process (`parquet_process`), because reading it may take more memory than anybody
has, or end the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.files.kinds import is_binary, is_string
from txn_engine.files.layout import ACTOR, Layout
from txn_engine.files.parquet_process import MEMORY_VARIABLE, OpenedParquet, ReaderDiedError
from txn_engine.files.text import BATCH_CHARS, BATCH_ROWS
from txn_engine.files.typed import fitting, is_convertible
from txn_engine.held import held_type
from txn_engine.reasons import Reason


def read_parquet(layout: Layout) -> Iterator[pa.RecordBatch]:
    """The file's records. Raises as `read_records` does."""
    if not isinstance(layout.source, Path) or layout.compression is not None:
        raise InvalidRequestError(
            "parquet from a stream, or compressed once more",
            actor=ACTOR,
            place=layout.name,
            expected="a Parquet file, as it is",
            reason=Reason.PARQUET_FROM_STREAM,
        )
    size = layout.source.stat().st_size
    with opened_parquet(layout) as file:
        names = _columns(layout, file.schema)
        rows = max(int(file.answer["rows"]), 1)
        first_row = 1
        for batch in _batches(layout, file, names):
            yield fitting(layout, batch, first_row)
            first_row += batch.num_rows
            layout.progress(min(size * first_row // rows, size))


def _columns(layout: Layout, found: pa.Schema) -> list[str]:
    """The columns to read, as the file calls them. Raises unless they can become the schema's."""
    places = layout.match(found.names, line=None)
    for field in layout.schema:
        if field.name not in places:
            continue
        kind = found.field(places[field.name]).type
        if not is_convertible(kind, field.type):
            raise layout.refused(
                f"column {layout.name_in_file(field.name)!r} of type {_told(kind)}",
                reason=Reason.TYPE_MISMATCH,
                expected=str(field.type),
                value=str(kind),
            )
    return [layout.name_in_file(name) for name in layout.schema.names if name in places]


def _told(kind: pa.DataType) -> str:
    """The type without what a file may write into it: names of fields, and a zone."""
    if kind.num_fields or pa.types.is_dictionary(kind):
        return str(kind).partition("<")[0]
    return f"timestamp[{kind.unit}] with a zone" if pa.types.is_timestamp(kind) and kind.tz else str(kind)


def _batches(layout: Layout, file: OpenedParquet, names: list[str]) -> Iterator[pa.RecordBatch]:
    kinds = {name: file.schema.field(name).type for name in names}
    batches = file.batches(
        names=names,
        repeated=[name for name, kind in kinds.items() if is_string(kind) or is_binary(kind)],
        old_times=_old_times(layout, file, names),
        # a batch holds about `BATCH_CHARS`, if the file tells the truth about the size of its rows
        batch_rows=max(min(BATCH_CHARS // int(file.answer["bytes_a_row"]), BATCH_ROWS), 1),
        batch_chars=BATCH_CHARS,
        plain=pa.schema([(name, _plain(kind)) for name, kind in kinds.items()])
        .serialize()
        .to_pybytes()
        .hex(),
        row_bytes=file.row_bytes,
    )
    row = 0
    try:
        for batch in batches:
            yield batch
            row += batch.num_rows
    except ReaderDiedError:
        raise _damaged(layout, row) from None
    match file.answer.get("error"):
        case "memory":
            raise _too_large(layout, file)
        case "row":
            raise layout.refused(
                f"a row of more than {file.row_bytes:,} bytes",
                reason=Reason.PARQUET_TOO_LARGE,
                expected="smaller values",
                line=int(file.answer["row"]),
                unit="row",
                action=f"write smaller values, or, if you trust the file, raise {MEMORY_VARIABLE}",
            )
        case "time":
            raise layout.refused(
                f"{file.answer['column']} does not fit",
                reason=Reason.BAD_DATETIME,
                expected="nanoseconds between 1678 and 2261",
                line=int(file.answer["row"]),
                unit="row",
            )
        case "julian":
            raise layout.refused(
                f"{file.answer['column']} does not fit: the file has old days of the Julian calendar",
                reason=Reason.LEGACY_CALENDAR,
                expected="dates since 1582-10-15 and times since 1900, where Spark wrote in its legacy calendar",
                line=int(file.answer["row"]),
                unit="row",
                action="let Spark 3 or newer read the file and write it again with"
                " spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED",
            )
        case "damaged":
            raise _damaged(layout, int(file.answer["row"]) - 1)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without dictionaries and views inside; Arrow's own cast of a list view makes an invalid list."""
    return kind if "list_view" in str(kind) else held_type(kind)


def _old_times(layout: Layout, file: OpenedParquet, names: list[str]) -> list[str]:
    """The columns in the deprecated INT96, which count nanoseconds over a longer span than 64 bits hold."""
    found = file.answer["times_of_96_bits"]
    # A name may hold dots itself, so a path alone does not say whose it is.
    nested = [
        name
        for name in names
        if file.schema.field(name).type.num_fields and any(path.startswith(f"{name}.") for path in found)
    ]
    if nested:
        raise layout.refused(
            f"column {nested[0]!r} with nested times of 96 bits",
            reason=Reason.UNSUPPORTED_TYPE,
            expected="times of 64 bits inside others",
        )
    return [path for path in found if path in names]


# --- opening ----------------------------------------------------------------------------------------------


@contextmanager
def opened_parquet(layout: Layout) -> Iterator[OpenedParquet]:
    """The file, opened. Raises `InvalidRecordError` where it is not a Parquet file that can be read."""
    if not isinstance(layout.source, Path):
        raise TypeError(f"a path, not {type(layout.source).__name__}")
    try:
        opened = OpenedParquet(layout.source)
    except ReaderDiedError:
        raise _damaged(layout, 0) from None
    except OSError as error:
        raise layout.unreadable(error) from error
    with opened as file:
        answer = file.answer
        match answer.get("error"):
            case "unreadable":
                raise layout.unreadable(OSError(answer["errno"], answer["strerror"]))
            case "replaced":
                raise layout.refused(
                    "the file was replaced while it was opened",
                    reason=Reason.FILE_CHANGED,
                    expected="files that nobody writes any more",
                )
            case "memory":
                raise _too_large(layout, file)
            case "names":
                raise layout.refused(
                    "a column whose name is not UTF-8 text",
                    reason=Reason.BAD_ENCODING,
                    expected="column names in UTF-8",
                )
            case "not parquet":
                raise layout.refused(
                    "no Parquet file, or a truncated one",
                    reason=Reason.DAMAGED_FILE,
                    expected="a whole Parquet file",
                )
            case "damaged":
                raise layout.refused(
                    "a Parquet file that is damaged, or encrypted",
                    reason=Reason.DAMAGED_FILE,
                    expected="a whole Parquet file, as it is",
                )
        yield file


def _damaged(layout: Layout, row: int) -> InvalidRecordError:
    return layout.refused(
        f"a damaged Parquet file behind row {row}",
        reason=Reason.DAMAGED_FILE,
        expected="a whole Parquet file",
    )


def _too_large(layout: Layout, file: OpenedParquet) -> InvalidRecordError:
    return layout.refused(
        f"a Parquet file that takes more than {file.memory_mb:,} MB of memory to read",
        reason=Reason.PARQUET_TOO_LARGE,
        expected="smaller values, pages or row groups",
        action=f"write the file with smaller row groups, or, if you trust it, raise {MEMORY_VARIABLE}",
    )
