"""The input file, read by a road of its own: the standard library's csv module, every cell as the text it is.

Nothing here is shared with the loader that filled the topic, so that a fault of the loader cannot hide itself.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.quality.check import ExactlyOnceCheck
from txn_engine.quality.money import unscaled_of_text

_ACTOR = "exactly-once check"


@dataclass(frozen=True, slots=True)
class InputRows:
    """The rows of a delimited text file, column by column, each with the number of its (last) line."""

    path: Path
    columns: Mapping[str, Sequence[str]]
    lines: Sequence[int]


def read_input(path: Path, check: ExactlyOnceCheck) -> InputRows:
    """Every row of the file.

    Raises InvalidRequestError, naming file and line, where the file cannot be read, has no rows, lacks a column, or a
    row has more or fewer cells than the header.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            return _read_rows(path, csv.reader(stream, delimiter=check.input_delimiter, strict=True), check)
    except OSError as error:
        raise _refused(
            path, None, f"it cannot be read: {error.strerror or error}", "a readable file"
        ) from error
    except UnicodeDecodeError:
        pass  # it holds the bytes
    raise _refused(path, None, "it is not UTF-8 text", "UTF-8")


def check_amounts(rows: InputRows, column: str, scale: int) -> None:
    """Raise InvalidRecordError, naming the line, for an amount that is no decimal of at most `scale` digits.

    As everywhere here, the text quotes nothing of the file, which may be another than was meant.
    """
    for line, cell in zip(rows.lines, rows.columns[column], strict=True):
        if unscaled_of_text(cell, scale) is None:
            raise InvalidRecordError(
                f"{column} does not fit",
                value=repr(cell),
                actor=_ACTOR,
                place=f"{rows.path} line {line}",
                expected=f"a decimal with at most {scale} digits after the point",
                action="mend that line",
            )


def _read_rows(path: Path, reader: csv._reader, check: ExactlyOnceCheck) -> InputRows:  # type: ignore[name-defined,unused-ignore]
    rows: list[list[str]] = []
    lines: list[int] = []
    header: list[str] = []
    try:
        header = next(reader, [])
        _check_header(path, header, check)
        for row in reader:
            if len(row) == len(header):
                rows.append(row)
                lines.append(reader.line_num)
            elif row:  # a blank line is no row
                raise _refused(path, reader.line_num, f"{len(row)} cells", f"{len(header)}, as in the header")
    except csv.Error as error:
        raise _refused(
            path, reader.line_num, f"it is not delimited text: {error}", "quotes that close"
        ) from error
    if not rows:
        raise _refused(path, None, "it has a header and no rows", "at least one row")
    columns = dict(zip(header, (list(cells) for cells in zip(*rows, strict=True)), strict=True))
    return InputRows(path, columns, lines)


def _check_header(path: Path, header: list[str], check: ExactlyOnceCheck) -> None:
    if not header:
        raise _refused(path, None, "it is empty", "a header and at least one row")
    missing = [name for name in check.topic_columns if name not in header]
    if missing:
        raise _refused(
            path,
            1,
            f"no column {', '.join(missing)} among its {len(header)}",
            "the columns that the check names",
        )
    if len(set(header)) != len(header):
        raise _refused(path, 1, f"a column is named twice among its {len(header)}", "distinct names")


def _refused(path: Path, line: int | None, seen: str, expected: str) -> InvalidRequestError:
    place = str(path) if line is None else f"{path} line {line}"
    return InvalidRequestError(
        seen, actor=_ACTOR, place=place, expected=expected, action="give the file that was loaded, whole"
    )
