"""The input file, read by a road of its own: the standard library's csv module, every cell as the text it is.

Nothing here is shared with the loader that filled the topic, so that a fault of the loader cannot hide itself. The
rows become a Parquet file of the topic's types, a part at a time: a cell that its type cannot hold exactly is null
there, and `_unfit` says so.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.found_files import opened
from txn_engine.held import held_schema, nulls
from txn_engine.quality.canonical import NANOS, cells_text, column_text, nanos_of_time
from txn_engine.quality.declaration import ACTOR, Declaration, Totals, is_of_input
from txn_engine.quality.empty_cells import may_be_empty
from txn_engine.quality.evidence import InputRows
from txn_engine.reasons import Reason
from txn_engine.row_limits import COLUMNS_MAX, ROW_CHARS_MAX, row_too_long, too_many_columns

NOT_LOADED: Final = "\udfff"  # no text of a file has it
LINE, UNFIT, UNFIT_ID = "_line", "_unfit", "_unfit_id"
_EMPTY: Final[Any] = pa.scalar("")
CHUNK_ROWS: Final = 50_000
_CHUNK_HOLDS: Final = 16 << 20  # characters, and cells
_NEVER_CLOSED: Final = "unexpected end of data"
_WHOLE: Final = "give the file that was loaded, whole"
_NO_TEXT: Final = "it is not UTF-8 text"
_MARK: Final = "\ufeff"


def read_input(
    path: Path,
    check: Declaration,
    schema: pa.Schema,
    target: Path,
    progress: Callable[[str], None] | None = None,
) -> InputRows:
    """Every row of the file, in the Parquet file `target`. `schema`: the topic's.

    Raises InvalidRequestError, naming file and line, where the file cannot be read, has no rows, lacks a column, or a
    row has more or fewer cells than the header; InvalidRecordError for an amount that does not fit. Where loads have
    dead letters such rows are some, or are missing: they are kept as rows whose id does not fit.
    """
    try:
        csv.field_size_limit(max(csv.field_size_limit(), ROW_CHARS_MAX + 1))
        with TextIOWrapper(
            BufferedReader(opened(path)), newline="", encoding="utf-8-sig", errors="surrogateescape"
        ) as stream:
            lines = _Lines(path, stream, check)
            reader = csv.reader(lines, delimiter=check.input_delimiter, strict=True)
            return _read(path, reader, lines, check, schema, target, progress)
    except OSError as error:
        raise _refused(
            path,
            None,
            f"it cannot be read: {error.strerror or error}",
            "a readable file",
            Reason.FILE_UNREADABLE,
        ) from error


def _read(
    path: Path,
    reader: csv._reader,  # type: ignore[name-defined,unused-ignore]
    lines: _Lines,
    check: Declaration,
    schema: pa.Schema,
    target: Path,
    progress: Callable[[str], None] | None,
) -> InputRows:
    header = _header(path, reader, check)
    compared = tuple(name for name in header if name in schema.names)
    fields = [pa.field(LINE, pa.int64()), *(held_schema(schema).field(name) for name in compared)]
    fields += [pa.field(UNFIT, pa.string()), pa.field(UNFIT_ID, pa.bool_())]
    kept = pa.schema([each.with_nullable(True) for each in fields])
    count = 0
    with pq.ParquetWriter(target, kept) as writer:
        for rows in _chunks(path, reader, lines, header, check):
            writer.write_table(_typed(path, rows, header, check, kept, schema))
            count += len(rows.lines)
            if progress is not None:
                progress(f"reading {path.name}: {count:,} rows")
    if not count:
        raise _refused(path, None, "it has a header and no rows", "at least one row", Reason.NO_RECORDS)
    unknown = tuple(name for name in header if name not in compared and not name.startswith(NOT_LOADED))
    columns = tuple(name.removeprefix(NOT_LOADED) for name in header)
    return InputRows(path, target, count, columns, compared, unknown)


def _header(path: Path, reader: Any, check: Declaration) -> list[str]:
    try:
        header: list[str] = next(reader, [])
    except csv.Error as error:
        raise _no_text(path, reader.line_num, error) from error
    if not header:
        raise _refused(path, None, "it is empty", "a header and at least one row", Reason.NO_RECORDS)
    if len(header) > COLUMNS_MAX:
        raise _refused(path, 1, **too_many_columns())
    if not _is_text(header):
        raise _refused(path, 1, _NO_TEXT, "UTF-8", Reason.BAD_ENCODING)
    if absent := [name for name in check.input_columns if name not in header]:
        raise _refused(
            path,
            1,
            f"no column {', '.join(absent)} among its {len(header)}",
            "the columns that the declaration renames, `input: {columns: ...}`",
            Reason.MISSING_COLUMN,
        )
    header = [_as_loaded(name, check) for name in header]
    missing = [name for name in check.topic_columns if name not in header]
    if missing:
        seen = f"no column {', '.join(missing)} among its {len(header)}"
        hint = f"its delimiter is said in the declaration, `input: {{delimiter: ...}}`: {check.input_delimiter!r} now"
        action = _WHOLE if len(header) > 1 else hint
        raise _refused(path, 1, seen, "the columns that the check names", Reason.MISSING_COLUMN, action)
    if len(set(header)) != len(header):
        raise _refused(
            path,
            1,
            f"a column is named twice among its {len(header)}",
            "distinct names",
            Reason.DUPLICATE_COLUMN,
        )
    return header


class _Lines:
    """The lines of the file, as csv takes them. What was read since the last row is kept, because csv does not say of
    a cell whether it was in quotes. is_joined: whether that row begins with a byte order mark. Raises
    `InvalidRequestError` for a row that is longer than one that is loaded.
    """

    def __init__(self, path: Path, stream: TextIOWrapper, check: Declaration) -> None:
        self._path = path
        self._stream = stream
        self._read: list[str] = []
        self._chars = self._lines = 0
        self.is_joined = False
        self._words = null_words(check)
        separator = re.escape(check.input_delimiter)
        self._written = re.compile(rf'("[^"]*(?:""[^"]*)*"|[^{separator}\r\n]*)(?:{separator}|[\r\n]+|$)')

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(ROW_CHARS_MAX + 1)
        if not line:
            raise StopIteration
        if not self._read:
            self.is_joined = line.startswith(_MARK)
            line = line.lstrip(_MARK)
        self._read.append(line)
        self._chars += len(line)
        self._lines += 1
        if self._chars > ROW_CHARS_MAX:
            count = len(self._read)
            raise _refused(self._path, self._lines - count + 1, **row_too_long(count))
        return line

    def quoted(self, row: Sequence[str]) -> list[int]:
        """The columns of this row, the last that was cut, with a cell that would mean null and is in quotes."""
        text = "".join(self._read)
        self._read.clear()
        self._chars = 0
        if '"' not in text or self._words.isdisjoint(row):
            return []
        written = self._written.findall(text)[: len(row)]
        return [
            column
            for column, (cell, whole) in enumerate(zip(row, written, strict=True))
            if cell in self._words and whole.startswith('"')
        ]


def _as_loaded(name: str, check: Declaration) -> str:
    """What a column of the file is called in the topic; no column has the name of one that was not loaded."""
    found = check.input_columns.get(name, name)
    return f"{NOT_LOADED}{name}" if found is None else found


@dataclass(slots=True)
class _Rows:
    """Rows, the line that each begins on, and what is wrong with those that could not be cut into cells. `quoted`: of
    the cells that mean null without quotes, the row and the column of those that are in quotes.
    """

    cells: list[list[str]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    uncut: list[str] = field(default_factory=list)
    held: int = 0
    quoted: set[tuple[int, int]] = field(default_factory=set)

    def add(self, row: list[str], line: int, quoted: Iterable[int] = (), uncut: str = "") -> None:
        self.quoted.update((len(self.lines), column) for column in quoted)
        self.cells.append(row)
        self.lines.append(line)
        self.uncut.append(uncut)

    def is_full(self, row: Sequence[str]) -> bool:
        """Whether they are enough for a chunk, this row the last of them: by their number, or by what they hold."""
        self.held += len(row) + sum(map(len, row))
        return len(self.lines) >= CHUNK_ROWS or self.held >= _CHUNK_HOLDS


def _chunks(
    path: Path, reader: Any, lines: _Lines, header: Sequence[str], check: Declaration
) -> Iterator[_Rows]:
    """Rows by the thousand. Memory: a chunk, whatever the header and the rows are like."""
    has_letters = check.dead_letter_topic is not None
    lines.quoted(header)
    rows, blank = _Rows(), [""] * len(header)
    line = reader.line_num + 1
    while True:
        uncut = ""
        try:
            row = next(reader, None)
        except csv.Error as error:
            if not has_letters or str(error) == _NEVER_CLOSED:
                raise _no_text(path, reader.line_num, error) from error
            row, uncut = [], str(error)
        if row is None:
            break
        quoted = lines.quoted(row)
        if (
            not row and not uncut and len(header) == 1
        ):  # a blank line is no row, but where a row is one empty cell
            row = [""]
        if row and not uncut and (fault := _fault_of(row, header, is_joined=lines.is_joined)) is not None:
            if not has_letters:
                raise _refused(path, line, *fault)
            uncut = fault[0]
        if uncut:
            rows.add(blank, line, uncut=uncut)
        elif row:
            rows.add(row, line, quoted)
        line = reader.line_num + 1
        if rows.is_full(row):
            yield rows
            rows = _Rows()
    if rows.lines:
        yield rows


def _fault_of(
    row: Sequence[str], header: Sequence[str], *, is_joined: bool
) -> tuple[str, str, Reason] | None:
    """What is wrong with a row that cannot be a record, what was expected, and the reason."""
    if len(row) != len(header):
        reason = Reason.TOO_FEW_FIELDS if len(row) < len(header) else Reason.TOO_MANY_FIELDS
        return f"{len(row)} cells", f"{len(header)}, as in the header", reason
    if is_joined:
        return "a byte order mark, as joined files have", "a row", Reason.BYTE_ORDER_MARK
    return None if _is_text(row) else (_NO_TEXT, "UTF-8", Reason.BAD_ENCODING)


def _is_text(row: Sequence[str]) -> bool:
    """Whether no cell has surrogates, which stand for bytes that are no text."""
    text = "".join(row)
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _typed(
    path: Path,
    rows: _Rows,
    header: Sequence[str],
    check: Declaration,
    kept: pa.Schema,
    schema: pa.Schema,
) -> pa.Table:
    lines = rows.lines
    by_name = {
        name: [row[at] for row in rows.cells] for at, name in enumerate(header) if name in schema.names
    }
    columns: dict[str, Any] = {LINE: pa.array(lines, pa.int64())}
    unfit: Any = pa.array(rows.uncut, pa.string())
    unfit_id: Any = pc.not_equal(unfit, _EMPTY)
    amounts = amount_columns(check)
    for name, written in by_name.items():
        cells = _with_nulls(written, header.index(name), rows.quoted, check, schema.field(name))
        columns[name], odd = typed_cells(cells, kept.field(name).type, check.input_date_format)
        if not odd.true_count:
            continue
        if name in amounts:
            at = odd.index(True).as_py()
            raise _no_amount(path, lines[at], name, written[at], kept.field(name).type)
        texts = [
            " | ".join(filter(None, (before, f"{name}={cell}"))) if is_odd else before
            for before, cell, is_odd in zip(unfit.to_pylist(), cells, odd.to_pylist(), strict=True)
        ]
        unfit = pa.array(texts, pa.string())
        if name in check.record_id:
            unfit_id = pc.or_(unfit_id, odd)
    columns |= {UNFIT: unfit, UNFIT_ID: unfit_id}
    return pa.table([columns[name] for name in kept.names], schema=kept)


def _with_nulls(
    cells: Sequence[str],
    column: int,
    quoted: Collection[tuple[int, int]],
    check: Declaration,
    of: pa.Field[Any],
) -> Sequence[str | None]:
    """The cells, None for those that are null: of texts those that mean null without quotes, but for the empty text
    where the column takes no null; of anything else, which no empty text can be, in quotes too.
    """
    words = set(null_words(check))
    if not may_be_empty(of.type):
        words.add("")
        return cells if words.isdisjoint(cells) else [None if cell in words else cell for cell in cells]
    if not of.nullable:
        words.discard("")
    if words.isdisjoint(cells):
        return cells
    return [None if cell in words and (row, column) not in quoted else cell for row, cell in enumerate(cells)]


def null_words(check: Declaration) -> frozenset[str]:
    """The cells that mean null without quotes, as a load reads them."""
    return frozenset(("",) if check.input_null_values is None else check.input_null_values)


def amount_columns(check: Declaration) -> frozenset[str]:
    """The columns of the file that an output sums: each cell has to be a number there."""
    return frozenset(
        amount.column
        for output in check.outputs
        if isinstance(output.relation, Totals) and is_of_input(check, output)
        for amount in output.relation.sums.values()
    )


def typed_cells(cells: Sequence[str | None], kind: pa.DataType, date_format: str) -> tuple[Any, Any]:
    """A column of text in the topic's type, and which of its cells that type cannot hold exactly; those are null.

    None is null, and so is an empty cell of a type without an empty value.
    """
    if not may_be_empty(kind):
        cells = [cell or None for cell in cells]
    texts = cells_text(cells, kind, date_format).dictionary_encode()
    words = texts.dictionary
    if not len(words):
        return nulls(len(cells), kind), pa.array([False] * len(cells))
    known = _values(words, kind)
    if known is None:  # one that does not fit spoils the cast of all
        found = [_values(words.slice(at, 1), kind) for at in range(len(words))]
        nothing: Any = pa.array([None], kind)
        known = pa.concat_arrays([nothing if value is None else value for value in found])
    return known.take(texts.indices), pc.fill_null(pc.is_null(known).take(texts.indices), False)


def _values(words: Any, kind: pa.DataType) -> Any:
    """The values that are written so, null for one that is written otherwise; None where one is no value at all."""
    try:
        found = _cast(words, kind)
    except (ValueError, pa.ArrowNotImplementedError):
        return None
    is_same: Any = pc.equal(column_text(found), words)
    if not isinstance(kind, pa.BaseExtensionType):
        return pc.if_else(is_same, found, pa.scalar(None, kind))
    storage = pc.if_else(is_same, found.storage, pa.scalar(None, kind.storage_type))
    return pa.ExtensionArray.from_storage(kind, storage)


def _cast(words: Any, kind: Any) -> Any:
    """The words in the type. Raises ValueError (ArrowInvalid is one) for a word that the type has no value for."""
    if pa.types.is_time(kind):
        width = pa.int32() if pa.types.is_time32(kind) else pa.int64()
        nanos = [nanos_of_time(word) for word in words.to_pylist()]
        return pa.array([each and each // NANOS[kind.unit] for each in nanos], width).cast(kind)
    if kind == pa.uuid():
        return pa.array([UUID(word).bytes for word in words.to_pylist()], kind)
    if pa.types.is_timestamp(kind) and kind.tz is None:
        words = pc.replace_substring_regex(words, r"\+00:00$", "")
    return words.cast(kind)


def _no_amount(path: Path, line: int, column: str, cell: str, kind: pa.DataType) -> InvalidRecordError:
    """As everywhere here, the text quotes nothing of the file, which may be another than was meant."""
    return InvalidRecordError(
        f"{column} does not fit",
        value=repr(cell),
        actor=ACTOR,
        place=f"{path} line {line}",
        expected=f"what a {kind} holds exactly",
        action="mend that line",
        reason=Reason.BAD_INTEGER if pa.types.is_integer(kind) else Reason.BAD_DECIMAL,
    )


def _no_text(path: Path, line: int, error: csv.Error) -> InvalidRequestError:
    reason = Reason.UNCLOSED_QUOTE if str(error) == _NEVER_CLOSED else Reason.BAD_QUOTING
    return _refused(path, line, f"it is not delimited text: {error}", "quotes that close", reason)


def _refused(
    path: Path, line: int | None, seen: str, expected: str, reason: Reason, action: str = _WHOLE
) -> InvalidRequestError:
    place = str(path) if line is None else f"{path} line {line}"
    return InvalidRequestError(
        seen, actor=ACTOR, place=place, expected=expected, action=action, reason=reason
    )
