"""Files that were joined: their second header and their byte order marks are never taken for values."""

from __future__ import annotations

import codecs
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.refusals import refused
from txn_engine.errors import InvalidRecordError
from txn_engine.files import BadRow, read_records
from txn_engine.files.inferring import infer_schema
from txn_engine.reasons import Reason

TEXTS = pa.schema([("a", pa.string()), ("b", pa.string())])
MARK = "\ufeff"
MANY = 70_000
"""Rows of more than one block."""


def read(path: Path, schema: pa.Schema = TEXTS, **options: Any) -> tuple[list[tuple[Any, ...]], list[BadRow]]:
    bad: list[BadRow] = []
    batches = list(read_records(path, schema, rejected=bad.extend, **options))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()], bad


def told(bad: list[BadRow]) -> list[tuple[int, Reason | None]]:
    return [(row.line, row.error.reason) for row in bad]


@pytest.mark.parametrize("header", ["a,b", '"a","b"'])
@pytest.mark.parametrize("rows", [1, MANY])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "cp1252"])
def test_a_header_behind_a_mark_is_the_header_again(
    tmp_path: Path, header: str, rows: int, encoding: str
) -> None:
    """Of `cat *.csv` the second header is no record, with a mark in front of it or without, in quotes or not."""
    path = tmp_path / "x.csv"
    part = header + "\n" + "x,y\n" * rows
    if encoding.startswith("utf-16"):
        order = "utf-16-be" if encoding == "utf-16-be" else "utf-16-le"
        path.write_bytes(2 * (MARK + part).encode(order))
    else:
        path.write_bytes(part.encode() + codecs.BOM_UTF8 + part.encode())
    found, bad = read(path, encoding=encoding)
    assert found == [("x", "y")] * (2 * rows)
    assert told(bad) == [(rows + 2, Reason.REPEATED_HEADER)]
    with refused(InvalidRecordError, Reason.REPEATED_HEADER):
        list(read_records(path, TEXTS, encoding=encoding))


@pytest.mark.parametrize("rows", [1, MANY])
def test_a_record_behind_a_mark_is_refused(tmp_path: Path, rows: int) -> None:
    """A row that begins with a mark, and is not the header, is not loaded: nobody knows whether the mark is its own.
    In quotes it is a part of the value."""
    path = tmp_path / "x.csv.gz"
    first, second = ["x,y\n" * rows, MARK + 'x,"y\nz"\nx,y\n"' + MARK + '",y\n']
    path.write_bytes(gzip.compress(first.encode()) + gzip.compress(second.encode()))
    found, bad = read(path, header=False)
    assert found == [("x", "y")] * (rows + 1) + [(MARK, "y")]
    assert told(bad) == [(rows + 1, Reason.BYTE_ORDER_MARK)]
    assert bad[0].raw == (MARK + 'x,"y\nz"\n').encode()


def test_parts_in_two_byte_orders(tmp_path: Path) -> None:
    """Behind a mark of the other byte order nothing is text: the file is refused."""
    path = tmp_path / "x.csv"
    path.write_bytes((MARK + "a,b\nx,y\n").encode("utf-16-le") + (MARK + "a,b\nx,y\n").encode("utf-16-be"))
    for encoding in ("utf-16", "utf-16-le"):
        with refused(InvalidRecordError, Reason.BAD_ENCODING):
            read(path, encoding=encoding)


def test_marks_without_rows(tmp_path: Path) -> None:
    """Empty files that have nothing but a mark add nothing to the others."""
    path = tmp_path / "x.csv"
    path.write_text(MARK + MARK + "a,b\nx,y\n" + MARK + "\n" + MARK, encoding="utf-8")
    assert read(path) == ([("x", "y")], [])


def test_marks_between_json_lines(tmp_path: Path) -> None:
    """A mark is no part of a JSON object, so joined files are read whole."""
    path = tmp_path / "x.jsonl"
    line = '{"a": "x", "b": "y"}\n'
    path.write_text(line + MARK + line + line, encoding="utf-8")
    assert read(path) == ([("x", "y")] * 3, [])
    assert infer_schema(path).names == ["a", "b"]


@pytest.mark.parametrize("rows", [1, MANY])
@pytest.mark.parametrize("mark", ["", MARK])
def test_a_second_header_in_another_order(tmp_path: Path, rows: int, mark: str) -> None:
    """A header with the same names in another order refuses the file: the rows behind it would be swapped."""
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "x,y\n" * rows + f"{mark}b,a\ny,x\n", encoding="utf-8")
    with refused(InvalidRecordError, Reason.REPEATED_HEADER) as caught:
        read(path)
    assert caught.value.place == f"{path} line {rows + 2}"


@pytest.mark.parametrize("header", [False, ["a", "b"]])
@pytest.mark.parametrize("blank", ["", "\n"])
def test_a_header_that_the_load_does_not_know_of(tmp_path: Path, header: Any, blank: str) -> None:
    """Where the load names the columns, a first row that has their very names is no record. Later rows are."""
    path = tmp_path / "x.csv"
    path.write_text(f"{blank}a,b\nx,y\na,b\nb,a\n")
    found, bad = read(path, header=header)
    assert found == [("x", "y"), ("a", "b"), ("b", "a")]
    assert told(bad) == [(1 + len(blank), Reason.REPEATED_HEADER)]
    path.write_text(f"{blank}b,a\nx,y\n")
    with refused(InvalidRecordError, Reason.REPEATED_HEADER):
        read(path, header=header)
    path.write_text("x\na,b\n")
    assert told(read(path, header=header)[1]) == [(1, Reason.TOO_FEW_FIELDS)]


def test_values_that_are_names_of_columns(tmp_path: Path) -> None:
    """A record whose values are names of columns, but not each once, is a record."""
    path = tmp_path / "x.csv"
    path.write_text("a,b\na,a\nb,b\na,x\n")
    assert read(path) == ([("a", "a"), ("b", "b"), ("a", "x")], [])
