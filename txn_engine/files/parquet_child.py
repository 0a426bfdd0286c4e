"""The program that reads Parquet files which anybody may have written, in a process of its own with a limit of memory.

`parquet_process` starts it, asks it for one file after another, and survives whatever a file does to it: a few
kilobytes of pages can decompress or repeat to gigabytes, and there are footers by which Arrow ends its process. It
imports PyArrow and nothing of this package, so that it starts quickly.

A question is a line of JSON on standard input, an answer a frame on standard output: one byte for its kind (`J` JSON,
`S` an Arrow schema, `B` an Arrow stream of one record batch), its length in 8 bytes, and its content.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import resource
import struct
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FRAME = struct.Struct(">cQ")
_ROWS_OF_VALUES = 1_024
_BUFFER_BYTES = 1 << 20
_MICROS_MAX = 2**63 // 1_000 - 1
_FIRST_GREGORIAN = dt.date(1582, 10, 15)
_FIRST_ZONED = dt.datetime(1900, 1, 1)  # noqa: DTZ001 -- the types are of both kinds


def main() -> None:
    """Answer until standard input ends; the first argument is the limit of memory in bytes."""
    pa.set_memory_pool(pa.system_memory_pool())  # the default one reserves more than it uses
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # nothing else writes between the frames
    _send(answers, b"J", b"{}")  # it runs: what ends it from here on is a file
    source = _Source()
    while line := sys.stdin.buffer.readline():
        asked = json.loads(line)
        try:
            last = _opened(source, asked, answers) if "open" in asked else _read(source, asked, answers)
        except MemoryError:
            last = {"error": "memory"}
        _send(answers, b"J", json.dumps(last).encode())


class _Source:
    """The file that is read. Where its identity was asked for it stays open, and each reading is of that very file."""

    def __init__(self) -> None:
        self.path = ""
        self.julian: Sequence[str] = ()
        self._descriptor = -1

    def open(self, path: str, identity: Sequence[int] | None) -> bool:
        """Whether it is the file of that device and number; any file is, if nobody says. Raises `OSError`."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self.path = path
        if identity is None:
            return True
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.path = f"/dev/fd/{self._descriptor}"
        state = os.fstat(self._descriptor)
        return [state.st_dev, state.st_ino] == identity


def _send(answers: BinaryIO, kind: bytes, content: bytes | pa.Buffer) -> None:
    answers.write(FRAME.pack(kind, len(content)))
    view = memoryview(content)
    while view:
        view = view[answers.write(view) :]


# --- what the file says ---------------------------------------------------------------------------------------


def _opened(source: _Source, asked: dict[str, Any], answers: BinaryIO) -> dict[str, Any]:
    try:
        if not source.open(asked["open"], asked.get("identity")):
            return {"error": "replaced"}
        with _file(source.path) as file:
            _send(answers, b"S", file.schema_arrow.serialize())
            source.julian = _julian(file.metadata.metadata or {})
            leaves = [file.schema.column(place) for place in range(len(file.schema.names))]
            return {
                "rows": file.metadata.num_rows,
                "bytes_a_row": _bytes_a_row(file.metadata),
                "times_of_96_bits": [leaf.path for leaf in leaves if leaf.physical_type == "INT96"],
            }
    except pa.ArrowInvalid:
        return {"error": "not parquet"}  # its text may quote the file
    except UnicodeDecodeError:
        return {"error": "names"}  # the error holds the name
    except OSError as error:
        if error.errno is not None or not os.path.isfile(source.path):
            return {"error": "unreadable", "errno": error.errno, "strerror": error.strerror}
        return {"error": "damaged"}


def _file(path: str, **options: Any) -> pq.ParquetFile:
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES, **options)


def _bytes_a_row(metadata: pq.FileMetaData) -> int:
    """The uncompressed size of a row, at least 1, in the row group with the largest rows, according to the file.

    The group is asked about all columns together, because Arrow ends the process for some footers if it is asked about
    one column.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return max([1, *(group.total_byte_size // max(group.num_rows, 1) for group in groups)])


def _julian(written: dict[bytes, bytes]) -> list[str]:
    """What the file has in the calendar with Julian days before 1582-10-15, by what its writer says: "days", of all
    dates and times, and "INT96". As Spark reads it; Spark before 2.4 wrote no version, and Hive says it of its own.
    """
    version = written.get(b"org.apache.spark.version")
    if version is None and b"org.apache.spark.sql.parquet.row.metadata" in written:
        version = b"2"
    is_hives = written.get(b"writer.date.proleptic", b"").lower() == b"false"
    marks = (("days", b"legacyDateTime", b"3.0.0"), ("INT96", b"legacyINT96", b"3.1.0"))
    return [
        kind
        for kind, mark, since in marks
        if is_hives or (version is not None and (version < since or b"org.apache.spark." + mark in written))
    ]


# --- its records ----------------------------------------------------------------------------------------------


def _read(source: _Source, asked: dict[str, Any], answers: BinaryIO) -> dict[str, Any]:
    """Send the file's rows. `names`: the columns; `repeated`: those of text or bytes; `old_times`: those in INT96;
    `plain`: the schema without dictionaries and views inside its types, in hexadecimal.
    """
    path, julian = source.path, source.julian
    plain = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(asked["plain"])))
    coarse = _Coarse(path, asked["old_times"], asked["batch_rows"])
    row = 1
    try:
        for batch in _batches(path, asked["names"], asked["repeated"], asked["batch_rows"]):
            whole = batch.select(asked["names"])
            if asked["old_times"]:
                whole = _with_whole_times(whole, coarse.take(batch.num_rows), row)
            for name in whole.schema.names if julian else ():
                is_96 = name in asked["old_times"]
                if ("INT96" if is_96 else "days") in julian:
                    _check_calendar(whole.column(name), is_96, name, row)
            for name in asked["old_times"]:
                place = plain.get_field_index(name)
                plain = plain.set(place, whole.schema.field(name))
            for part in _written_out(whole, plain, asked["batch_chars"]):
                if part.num_rows == 1 and _size(part) > asked["row_bytes"]:
                    return {"error": "row", "row": row}
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, part.schema) as stream:
                    stream.write_batch(part)
                _send(answers, b"B", sink.getvalue())
                row += part.num_rows
    except MemoryError:
        raise
    except _UnreadableTimeError as error:
        return {"error": error.kind, "column": error.column, "row": error.row}
    except (pa.ArrowException, OSError):
        return {"error": "damaged", "row": row}  # its text may quote the file
    return {}


def _batches(path: str, names: list[str], repeated: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """The file's rows. Text and bytes are read as they are stored, so that a value stands once however often it is
    meant. Where Arrow cannot read some so, as of DELTA_BYTE_ARRAY, and where memory does not suffice, as for text
    inside other values, they are read a few rows at a time: the file says nothing of the sizes of such values.
    """
    done = 0
    few = min(rows, _ROWS_OF_VALUES)
    attempts = [(repeated, rows), (repeated, few), ([], few)]
    for number, (as_stored, some) in enumerate(attempts, start=1):
        try:
            with _file(path, read_dictionary=as_stored) as file:
                before = done
                for batch in file.iter_batches(some, columns=names, use_threads=False):
                    known = min(before, batch.num_rows)
                    before -= known
                    done += batch.num_rows - known
                    if known < batch.num_rows:
                        yield batch.slice(known)
                return
        except (MemoryError, pa.ArrowException, OSError):
            if number == len(attempts):
                raise


def _written_out(batch: pa.RecordBatch, plain: pa.Schema, chars: int) -> Iterator[pa.RecordBatch]:
    """The batch with its dictionaries decoded, in parts of at most `chars` bytes, or of one row."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if isinstance(column, pa.DictionaryArray) and _has_length(column.type.value_type):
            lengths: Any = pc.binary_length(cast("Any", column.dictionary)).take(column.indices)
            sizes += pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False)
    parts = np.cumsum(sizes) // chars
    begins = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), batch.num_rows]
    for begin, end in pairwise(begins):
        part = batch.slice(begin, end - begin)
        columns = [
            column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
            for column in part.columns
        ]
        decoded = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        # What a dictionary or a view inside a type takes is only known once it is written out.
        some = part.num_rows if decoded.schema.types == plain.types else _ROWS_OF_VALUES
        for first in range(0, part.num_rows, some):
            columns = [
                column if column.type == field.type else column.cast(field.type)
                for column, field in zip(decoded.slice(first, some).columns, plain, strict=True)
            ]
            yield from _cut(pa.RecordBatch.from_arrays(columns, names=plain.names), chars)


def _cut(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    if batch.num_rows <= 1 or _size(batch) <= most:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half), most)
    yield from _cut(batch.slice(half), most)


def _size(batch: pa.RecordBatch) -> int:
    """The bytes of its values; of those inside others that are null by their type, which take no bytes here, what they
    take in a column of 64 bits.
    """
    return batch.nbytes + 8 * sum(map(_null_values, batch.columns))


def _null_values(array: Any) -> int:
    kind = array.type
    if pa.types.is_null(kind):
        return len(array)
    if not kind.num_fields:
        return 0
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind)):
        inside = array.flatten()
    else:
        inside = [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        inside = [each.slice(first, last - first) for each in inside]
    return sum(map(_null_values, inside if isinstance(inside, list) else [inside]))


def _has_length(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    )


# --- times of 96 bits -----------------------------------------------------------------------------------------


class _UnreadableTimeError(Exception):
    """A time with nanoseconds that 64 bits of nanoseconds do not reach ("time"), or a day or time whose number means
    another one in the calendar that the file was written in ("julian").
    """

    def __init__(self, kind: str, column: str, row: int) -> None:
        super().__init__(kind, column, row)
        self.kind, self.column, self.row = kind, column, row


def _check_calendar(column: Any, is_96: bool, name: str, first_row: int) -> None:
    if _is_old(column, is_96):
        row = next(row for row in range(len(column)) if _is_old(column.slice(row, 1), is_96))
        raise _UnreadableTimeError("julian", name, first_row + row)


def _is_old(column: Any, is_96: bool) -> bool:
    """Whether a value of the column, or inside of it, is of before the calendars agree: days of 1582, and times of
    1900, when the last zones had their present time.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        return any(_is_old(part, is_96) for part in column.flatten())
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
    if kind.num_fields:
        is_null = column.null_count == len(
            column
        )  # `flatten` makes no array of extension types without values
        return not is_null and _is_old(column.flatten(), is_96)
    is_time = pa.types.is_timestamp(kind) and (
        is_96 or kind.tz is not None
    )  # Spark's others have no calendar
    if not is_time and not pa.types.is_date(kind):
        return False
    first = pa.scalar(_FIRST_ZONED if is_time else _FIRST_GREGORIAN, kind)
    return bool(pc.any(pc.less(column, first)).as_py())


class _Coarse:
    """The same columns in microseconds, for which 64 bits are enough; what is below them is cut off.

    pyarrow reads nanoseconds wrapped around: of 9999-12-31 it makes 1816-03-29, without a word.
    """

    def __init__(self, path: str, columns: list[str], rows: int) -> None:
        self._batches = self._of(path, columns, rows)
        self._held: list[pa.RecordBatch] = []

    def _of(self, path: str, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        with _file(path, coerce_int96_timestamp_unit="us") as file:
            yield from file.iter_batches(rows, columns=columns, use_threads=False)

    def take(self, rows: int) -> pa.Table:
        """The next rows: batches with other columns in them may end elsewhere."""
        while (have := sum(batch.num_rows for batch in self._held)) < rows:
            self._held.append(_next(self._batches))
        held = pa.Table.from_batches(self._held)
        self._held = held.slice(rows).to_batches() if have > rows else []
        return held.slice(0, rows)


def _next(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    batch = next(batches, None)
    if batch is None:
        raise pa.ArrowInvalid("fewer rows in one column than in another")
    return batch


def _with_whole_times(batch: pa.RecordBatch, coarse: pa.Table, first_row: int) -> pa.RecordBatch:
    """The batch with each time of 96 bits as it was written: in microseconds, or in nanoseconds where it has some."""
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
            raise _UnreadableTimeError("time", name, first_row + int(beyond.argmax()))
    return batch


def _counts(times: Any) -> Any:
    return pc.fill_null(times.cast(pa.int64()), 0).to_numpy()


if __name__ == "__main__":
    main()
