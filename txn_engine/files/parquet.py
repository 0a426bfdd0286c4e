"""Parquet: columns of the topic's types, or of types whose values may stand in them where each of them fits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage import bytes_a_row
from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.files.kinds import is_binary, is_string
from txn_engine.files.layout import ACTOR, Layout
from txn_engine.files.text import BATCH_CHARS, BATCH_ROWS
from txn_engine.files.typed import fitting, is_convertible
from txn_engine.reasons import Reason

if TYPE_CHECKING:
    import pyarrow.parquet as pq


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
    with opened_parquet(layout) as file:
        places = layout.match(file.schema_arrow.names, line=None)
        names = [layout.name_in_file(name) for name in layout.schema.names if name in places]
        for field in layout.schema:
            if field.name not in places:
                continue
            kind = file.schema_arrow.field(places[field.name]).type
            if not is_convertible(kind, field.type):
                raise layout.refused(
                    f"column {layout.name_in_file(field.name)!r} of type {_told(kind)}",
                    reason=Reason.TYPE_MISMATCH,
                    expected=str(field.type),
                    value=str(kind),
                )
        old_times = _old_times(layout, file, names)
        repeated = _repeated(file, names)
        batch_rows = _rows_of_a_batch(file)
        rows = max(file.metadata.num_rows, 1)
    first_row = 1
    size = layout.source.stat().st_size
    batches = _batches(layout, names, repeated, batch_rows)
    coarse = _Coarse(layout, old_times, batch_rows)
    while (batch := _next(layout, batches, first_row)) is not None:
        batch = batch.select(names)
        if old_times:
            batch = _with_whole_times(layout, batch, coarse.take(batch.num_rows, first_row), first_row)
        for part in _written_out(batch):
            yield fitting(layout, part, first_row)
            first_row += part.num_rows
        layout.progress(min(size * first_row // rows, size))


# --- how much of it is held -------------------------------------------------------------------------------


def _repeated(file: pq.ParquetFile, names: list[str]) -> list[str]:
    """The columns of text or bytes: read as they are stored, so that a value stands once however often it is meant."""
    kinds = {name: file.schema_arrow.field(name).type for name in names}
    return [name for name, kind in kinds.items() if is_string(kind) or is_binary(kind)]


def _batches(layout: Layout, names: list[str], repeated: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """The file's rows; without dictionaries from where Arrow cannot read some, as of DELTA_BYTE_ARRAY: which columns
    are encoded so a file of somebody's is not asked (`bytes_a_row`). Those are read a few rows at a time, for of their
    sizes the file says nothing.
    """
    done = 0
    for as_stored in (repeated, []):
        try:
            with opened_parquet(layout, read_dictionary=as_stored) as file:
                before = done
                some = rows if as_stored or not repeated else min(rows, _ROWS_OF_VALUES)
                for batch in file.iter_batches(some, columns=names):
                    known = min(before, batch.num_rows)
                    before -= known
                    done += batch.num_rows - known
                    if known < batch.num_rows:
                        yield batch.slice(known)
                return
        except (pa.ArrowException, OSError):
            if not as_stored:
                raise


_ROWS_OF_VALUES = 1_024


def _rows_of_a_batch(file: pq.ParquetFile) -> int:
    """So many that a batch has about `BATCH_CHARS`, as far as the file says how large its rows are."""
    return max(min(BATCH_CHARS // bytes_a_row(file.metadata), BATCH_ROWS), 1)


def _written_out(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch without dictionaries, in parts that have about `BATCH_CHARS` each of what stood in those."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if isinstance(column, pa.DictionaryArray) and (
            is_string(column.type.value_type) or is_binary(column.type.value_type)
        ):
            lengths: Any = pc.binary_length(cast("Any", column.dictionary)).take(column.indices)
            sizes += pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False)
    parts = np.cumsum(sizes) // BATCH_CHARS
    begins = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), batch.num_rows]
    for begin, end in pairwise(begins):
        part = batch.slice(begin, end - begin)
        columns = [
            column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
            for column in part.columns
        ]
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


# --- rows -------------------------------------------------------------------------------------------------


def opened_parquet(layout: Layout, **options: Any) -> pq.ParquetFile:
    """The file. Raises `InvalidRecordError` where it is none."""
    import pyarrow.parquet as pq

    fault = "no Parquet file, or a truncated one", "a whole Parquet file"
    reason = Reason.DAMAGED_FILE
    try:
        return pq.ParquetFile(layout.source, **options)
    except pa.ArrowInvalid:
        pass  # its text may quote the file
    except UnicodeDecodeError:
        fault = "a column whose name is not UTF-8 text", "column names in UTF-8"  # the error holds the name
        reason = Reason.BAD_ENCODING
    except OSError as error:
        if error.errno is not None or not Path(str(layout.source)).is_file():
            raise layout.unreadable(error) from error
        fault = "a Parquet file that is damaged, or encrypted", "a whole Parquet file, as it is"
    raise layout.refused(fault[0], reason=reason, expected=fault[1])


def _next(layout: Layout, batches: Iterator[pa.RecordBatch], first_row: int) -> pa.RecordBatch | None:
    try:
        return next(batches, None)
    except (pa.ArrowException, OSError):
        pass  # its text may quote the file
    raise _damaged(layout, first_row)


def _damaged(layout: Layout, first_row: int) -> InvalidRecordError:
    return layout.refused(
        f"a damaged Parquet file behind row {first_row - 1}",
        reason=Reason.DAMAGED_FILE,
        expected="a whole Parquet file",
    )


def _told(kind: pa.DataType) -> str:
    """The type without what a file may write into it: names of fields, and a zone."""
    if kind.num_fields or pa.types.is_dictionary(kind):
        return str(kind).partition("<")[0]
    return f"timestamp[{kind.unit}] with a zone" if pa.types.is_timestamp(kind) and kind.tz else str(kind)


# --- times of 96 bits -------------------------------------------------------------------------------------


def _old_times(layout: Layout, file: pq.ParquetFile, names: list[str]) -> list[str]:
    """The columns in the deprecated INT96, which count nanoseconds over a longer span than 64 bits hold.

    pyarrow reads them wrapped around: of 9999-12-31 it makes 1816-03-29, without a word.
    """
    leaves = [file.schema.column(place) for place in range(len(file.schema.names))]
    found = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
    # A name may hold dots itself, so a path alone does not say whose it is.
    nested = [
        name
        for name in names
        if file.schema_arrow.field(name).type.num_fields
        and any(path.startswith(f"{name}.") for path in found)
    ]
    if nested:
        raise layout.refused(
            f"column {nested[0]!r} with nested times of 96 bits",
            reason=Reason.UNSUPPORTED_TYPE,
            expected="times of 64 bits inside others",
        )
    return [path for path in found if path in names]


class _Coarse:
    """The same columns in microseconds, for which 64 bits are enough; what is below them is cut off."""

    def __init__(self, layout: Layout, columns: list[str], rows: int) -> None:
        self._layout = layout
        self._batches = self._read(columns, rows)
        self._held: list[pa.RecordBatch] = []

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        with opened_parquet(self._layout, coerce_int96_timestamp_unit="us") as file:
            yield from file.iter_batches(rows, columns=columns)

    def take(self, rows: int, first_row: int) -> pa.Table:
        """The next rows, fewer only at the end: batches with other columns in them may end elsewhere."""
        while (have := sum(batch.num_rows for batch in self._held)) < rows:
            batch = _next(self._layout, self._batches, first_row)
            if batch is None:
                break
            self._held.append(batch)
        if not self._held:
            raise _damaged(self._layout, first_row)
        held = pa.Table.from_batches(self._held)
        self._held = held.slice(rows).to_batches() if have > rows else []
        return held.slice(0, rows)


def _with_whole_times(
    layout: Layout, batch: pa.RecordBatch, coarse: pa.Table, first_row: int
) -> pa.RecordBatch:
    """The batch with each time of 96 bits as it was written: in microseconds, or in nanoseconds where it has some."""
    if coarse.num_rows != batch.num_rows:
        raise _damaged(layout, first_row)
    for name in coarse.schema.names:
        times = coarse.column(name).combine_chunks()
        micros, nanos = _counts(times), _counts(batch.column(name))
        with np.errstate(over="ignore"):
            finer = (nanos - micros * 1_000) != 0  # both wrap around alike
        place = batch.schema.get_field_index(name)
        if not finer.any():
            batch = batch.set_column(place, name, times)
            continue
        beyond = np.abs(micros) > _MICROS_MAX
        if beyond.any():
            row = first_row + int(beyond.argmax())
            raise layout.refused(
                f"{name} does not fit",
                reason=Reason.BAD_DATETIME,
                expected="nanoseconds between 1678 and 2261",
                line=row,
                unit="row",
            )
    return batch


_MICROS_MAX = 2**63 // 1_000 - 1


def _counts(times: Any) -> Any:
    return pc.fill_null(times.cast(pa.int64()), 0).to_numpy()
