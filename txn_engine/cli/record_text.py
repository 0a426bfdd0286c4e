"""Records as text: what `consume` writes as a table, csv, jsonl or parquet.

Every value keeps its exact digits: decimals as they are, in JSON as strings; dates and times in ISO 8601, times in UTC,
years beyond four digits with their sign. What is no number is a word: NaN, Infinity, -Infinity, in JSON as strings.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from txn_engine.cli.output import as_json_text
from txn_engine.errors import InvalidRequestError, SchemaChangedError, StoreAccessError
from txn_engine.names import printable
from txn_engine.reasons import Reason
from txn_engine.value_text import BinaryText, csv_line, json_records, plain_columns

if TYPE_CHECKING:
    import pyarrow as pa

_GAP = "  "
_CELL_CHARS_MIN, _CELL_CHARS_MAX = 12, 60


class RecordWriter(Protocol):
    """Takes records in parts, and has all of them safely out after `flush`."""

    def write(self, records: pa.Table) -> None:
        """Write some records."""
        ...

    def flush(self) -> None:
        """Hand everything over to whoever reads the output."""
        ...

    def close(self, **told: object) -> None:
        """End the output; `told` goes into a JSON document."""
        ...


def _cells(records: pa.Table, binary: BinaryText) -> list[list[str | None]]:
    """The rows as text, nested values as JSON, nulls as they are."""
    texts = [
        [
            None
            if value is None
            else json.dumps(value, ensure_ascii=False, allow_nan=False)
            if isinstance(value, (dict, list, bool))
            else str(value)
            for value in column
        ]
        for column in plain_columns(records, binary)
    ]
    return [list(row) for row in zip(*texts, strict=True)]


class _TextWriter:
    """Records as text on a stream; with `sync` a flush reaches the disk."""

    def __init__(self, stream: TextSink, binary: BinaryText, *, sync: bool = False) -> None:
        self._stream = stream
        self._binary: BinaryText = binary
        self._sync = sync

    def write(self, records: pa.Table) -> None:
        """Write some records."""
        raise NotImplementedError

    def flush(self) -> None:
        """Hand over what was written."""
        self._stream.flush()
        if self._sync:
            os.fsync(self._stream.fileno())

    def close(self, **_told: object) -> None:
        """Hand over what was written."""
        self.flush()


class JsonLines(_TextWriter):
    """One JSON object a line."""

    def write(self, records: pa.Table) -> None:
        """Write the records, a line each."""
        for text in json_records(records, self._binary):
            self._stream.write(text + "\n")


class JsonDocument(JsonLines):
    """One JSON document: {"records": [...], ...}, written as the records come."""

    _written = 0

    def write(self, records: pa.Table) -> None:
        """Write the records as items of the list."""
        for text in json_records(records, self._binary):
            self._stream.write(",\n" if self._written else '{"records": [\n')
            self._stream.write(text)
            self._written += 1

    def close(self, **told: object) -> None:
        """Close the list, and add what is to be told."""
        self._stream.write("\n]" if self._written else '{"records": []')
        for name, value in told.items():
            self._stream.write(f",\n{json.dumps(name)}: {as_json_text(value)}")
        self._stream.write("}\n")
        self.flush()


class Csv(_TextWriter):
    """A header line, then the records. A null is the empty field, and an empty text is "". On a terminal control
    characters are escaped.

    One header holds for all: `SchemaChangedError` for records of other columns, or in another order, with none written.
    """

    def __init__(self, stream: TextSink, binary: BinaryText, *, sync: bool = False) -> None:
        super().__init__(stream, binary, sync=sync)
        self._names: list[str] | None = None
        self._shown: Callable[[str], str] = printable if stream.isatty() else str

    def write(self, records: pa.Table) -> None:
        """Write the records, the header before the first."""
        rows = _cells(records, self._binary)
        names = records.schema.names
        if self._names is None:
            rows = [[*names], *rows]
            self._names = names
        elif self._names != names:
            raise _other_columns(names, self._names)
        for row in rows:
            self._stream.write(csv_line([None if cell is None else self._shown(cell) for cell in row]))


class Aligned(_TextWriter):
    """Columns under each other, as wide as the first records need.

    On a terminal long texts are cut to fit, numbers and dates never: where those alone are too wide, each record is a
    block of its own, a line a column.
    """

    def __init__(self, stream: TextSink, binary: BinaryText, *, sync: bool = False) -> None:
        super().__init__(stream, binary, sync=sync)
        self._widths: list[int] | None = []
        self._names: list[str] = []
        terminal = stream.isatty()
        self._width_max = shutil.get_terminal_size().columns if terminal else 0
        self._bold: Callable[[str], str] = _bold if terminal and "NO_COLOR" not in os.environ else str

    def write(self, records: pa.Table) -> None:
        """Write the records; the titles before the first, and again when the columns are others."""
        cells = _cells(records, self._binary)
        rows = [["null" if cell is None else printable(cell) for cell in row] for row in cells]
        names = [printable(name) for name in records.schema.names]
        numbers = [_is_number(field.type) for field in records.schema]
        if names != self._names:
            self._names, self._widths = names, self._fit(names, records.schema, rows)
            if self._widths is not None or not rows:
                self._stream.write(self._bold(self._line(names, numbers)) + "\n")
        for row in rows:
            if self._widths is None:
                self._write_block(row)
            else:
                self._stream.write(self._line(row, numbers) + "\n")

    def _fit(
        self, names: Sequence[str], schema: pa.Schema, rows: Sequence[Sequence[str]]
    ) -> list[int] | None:
        """Widths that show the cells whole; on a terminal the widest texts give way. None: that is not enough."""
        widths = [max(len(name), *(len(row[i]) for row in rows), 1) for i, name in enumerate(names)]
        if not self._width_max:
            return widths
        texts = [i for i, field in enumerate(schema) if _is_text(field.type)]
        for i in texts:
            widths[i] = min(widths[i], _CELL_CHARS_MAX)
        room = self._width_max - len(_GAP) * (len(widths) - 1)
        while sum(widths) > room:
            widest = max(texts, key=lambda i: widths[i], default=None)
            if widest is None or widths[widest] <= max(_CELL_CHARS_MIN, len(names[widest])):
                return None
            widths[widest] -= 1
        return widths

    def _write_block(self, row: Sequence[str]) -> None:
        width = max(map(len, self._names))
        for name, cell in zip(self._names, row, strict=True):
            self._stream.write(f"{self._bold(name.ljust(width))}{_GAP}{cell}\n")
        self._stream.write("\n")

    def _line(self, cells: Sequence[str], numbers: Sequence[bool]) -> str:
        parts = []
        for cell, width, number in zip(cells, self._widths or map(len, cells), numbers, strict=True):
            if self._width_max and len(cell) > width:
                parts.append(cell[: width - 1] + "…")
            else:
                parts.append(cell.rjust(width) if number else cell.ljust(width))
        return _GAP.join(parts).rstrip()


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m"


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_nested(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind))


class TextSink(Protocol):
    """Where text goes: a terminal, a pipe, a file."""

    def write(self, text: str, /) -> int:
        """Write."""
        ...

    def flush(self) -> None:
        """Hand on what was written."""
        ...

    def fileno(self) -> int:
        """For fsync."""
        ...

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        ...


class LateFile:
    """A text file that is opened, and emptied, only when there is something to write.

    So a read that fails leaves what was there before. keeps: whether a file that holds something is refused, with
    `InvalidRequestError`, and never emptied.
    """

    def __init__(self, path: Path, *, keeps: bool = False) -> None:
        self._path = path
        self._keeps = keeps
        self._file: IO[str] | None = None

    def write(self, text: str) -> int:
        """Write, opening the file first where it is not."""
        file = self._open()
        with self._writing():
            return file.write(text)

    def flush(self) -> None:
        """Hand what was written to the system."""
        file = self._open()
        with self._writing():
            file.flush()

    def fileno(self) -> int:
        """For fsync."""
        return self._open().fileno()

    def isatty(self) -> bool:
        """A file is no terminal."""
        return False

    def close(self) -> None:
        """Close the file, if it was opened."""
        if self._file is not None:
            with self._writing():
                self._file.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _not_writable(self._path, error) from error

    def _open(self) -> IO[str]:
        if self._file is None:
            try:
                file = self._path.open("a" if self._keeps else "w", encoding="utf-8", newline="")
            except OSError as error:
                raise _not_writable(self._path, error) from error
            if self._keeps and _holds_something(os.fstat(file.fileno())):
                file.close()
                raise _kept(self._path)
            self._file = file
            _sync_folder(self._path)
        return self._file


def check_is_new(path: Path) -> None:
    """Raise `InvalidRequestError` for a file that holds something already."""
    with contextlib.suppress(OSError):  # whoever opens it says what is wrong with it
        if _holds_something(path.stat()):
            raise _kept(path)


def is_file(stream: TextSink) -> bool:
    """Whether a stream goes into a file, as that of `>> FILE` does."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # io.UnsupportedOperation is both
        return False


def _holds_something(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_size > 0


def _kept(path: Path) -> InvalidRequestError:
    return InvalidRequestError(
        "the file holds something, perhaps records that the group has committed",
        actor="consume",
        place=str(path),
        expected="a new file: a group reads each record once, and nobody could read again what was written over",
        action="name another --output, or append: `--format jsonl >> FILE`",
        reason=Reason.OUTPUT_EXISTS,
    )


def _sync_folder(path: Path) -> None:
    """Make a file's name as durable as what is in it, where the system can."""
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _not_writable(path: Path, error: OSError) -> StoreAccessError:
    from txn_engine.local_files import not_written

    return not_written(
        error,
        "the output",
        actor="consume",
        place=str(path),
        expected="a file that can be written",
        action="name another --output",
    )


def _other_columns(seen: Iterable[str], expected: Iterable[str]) -> SchemaChangedError:
    return SchemaChangedError(
        f"records with the columns {', '.join(map(printable, seen))}"[:400],
        actor="consume",
        expected=f"{', '.join(map(printable, expected))}, as what is written already"[:400],
        action="run it again, into another output: the topic's columns were changed meanwhile",
    )


class ParquetFile:
    """One Parquet file, which has its name only once it is whole; `SchemaChangedError` for records of other columns.

    keeps: whether a file of that name that holds something is refused, with `InvalidRequestError`.
    """

    def __init__(self, path: Path, *, keeps: bool = False) -> None:
        self._path = path
        self._keeps = keeps
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        self._writer: Any = None
        self._schema: pa.Schema | None = None

    def write(self, records: pa.Table) -> None:
        """Add the records as a row group."""
        import pyarrow.parquet as pq

        from txn_engine.held import in_a_file

        records = in_a_file(records)
        if self._writer is None:
            if self._path.is_dir():
                raise _not_writable(self._path, IsADirectoryError(21, "it is a folder"))
            try:
                self._writer = pq.ParquetWriter(self._partial, records.schema, compression="zstd")
                self._schema = records.schema
            except OSError as error:
                raise _not_writable(self._path, error) from error
        if records.schema != self._schema:
            raise _other_columns(map(str, records.schema), map(str, self._schema or ()))
        try:
            self._writer.write_table(records)
        except OSError as error:
            raise _not_writable(self._path, error) from error

    def flush(self) -> None:
        """Nothing is out before the end."""

    def close(self, **_told: object) -> None:
        """Sync the file and give it its name."""
        if self._writer is None:
            return
        try:
            self._writer.close()
            with self._partial.open("rb") as written:
                os.fsync(written.fileno())
            if self._keeps:
                self._take_name()
            self._partial.replace(self._path)
            _sync_folder(self._path)
        except OSError as error:
            raise _not_writable(self._path, error) from error

    def _take_name(self) -> None:
        """Make an empty file of the name, which nobody else can then make."""
        try:
            self._path.open("x").close()
        except FileExistsError:
            check_is_new(self._path)

    def discard(self) -> None:
        """Remove what was written, unless it is whole."""
        if self._writer is not None:
            self._writer.close()
            self._partial.unlink(missing_ok=True)


def standard_output() -> IO[str]:
    """stdout, as UTF-8 whatever the locale says, and with line ends as they are written."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", newline="")
    return sys.stdout
