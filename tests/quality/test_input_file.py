"""The input file is read by code of its own, and a file that is not whole is refused as a whole."""

from __future__ import annotations

import csv
import datetime as dt
import pickle
import tempfile
import traceback
import tracemalloc
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quality.ledger import CHECK, HEADER, PAYMENTS, ROWS, SUMS, payments_table, write_input
from tests.support.refusals import refused
from txn_engine.errors import InvalidRecordError, InvalidRequestError, TxnEngineError
from txn_engine.found_files import FoundFile
from txn_engine.quality import (
    Amount,
    Declaration,
    LatestByKey,
    Output,
    SameRows,
    SameSet,
    SqlReduction,
    input_file,
)
from txn_engine.quality.input_file import LINE, UNFIT, UNFIT_ID, typed_cells
from txn_engine.quality.input_file import read_input as read_file
from txn_engine.reasons import Reason
from txn_engine.row_limits import ROW_CHARS_MAX


def read_input(path: Path, check: Declaration = CHECK) -> pa.Table:
    """The rows of the file, as the check keeps them."""
    with tempfile.TemporaryDirectory() as folder:
        found = read_file(path, check, PAYMENTS, Path(folder) / "input.parquet")
        table = pq.read_table(found.rows)
    assert table.num_rows == found.count
    return table


WRITTEN = payments_table().set_column(5, "bank", pa.array([row[5] for row in ROWS]))
"""The ledger's rows as its file has them: empty banks stand in quotes."""


def test_cells_become_values_with_their_lines(tmp_path: Path) -> None:
    """Cells become exact values of the topic's types. Lines are counted from 1, which is the header's."""
    rows = read_input(write_input(tmp_path / "trans.csv"))
    assert rows.column_names == [LINE, *HEADER.split(";"), UNFIT, UNFIT_ID]
    assert rows.select(PAYMENTS.names).equals(WRITTEN)
    assert rows[LINE].to_pylist() == list(range(2, 10))
    assert set(rows[UNFIT].to_pylist()) == {""}


def test_a_link_that_replaces_the_file_that_was_found(tmp_path: Path) -> None:
    """A file that has to be inside a folder is not read from elsewhere."""
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "trans.csv"
    secret = write_input(tmp_path / "secret.csv")
    path.symlink_to(secret)
    assert read_input(path).num_rows == 8
    with refused(InvalidRequestError, Reason.LINK_LEADS_OUT):
        read_input(FoundFile.of(path, str(tmp_path / "in")))


def test_a_cell_that_its_type_cannot_hold_is_null_and_named(tmp_path: Path) -> None:
    """A row with a cell that does not fit its type is kept: its value is null, and the cell is named. A row
    whose id does not fit is marked too."""
    rows = [(101, 1, "soon", "PRIJEM", "1.00", ""), ("x", 2, "930101", "PRIJEM", "1.00", "")]
    table = read_input(write_input(tmp_path / "trans.csv", rows), replace(CHECK, outputs=()))
    assert table["date"].to_pylist() == [None, dt.date(1993, 1, 1)]
    assert table["trans_id"].to_pylist() == [101, None]
    assert table[UNFIT].to_pylist() == ["date=soon", "trans_id=x"]
    assert table[UNFIT_ID].to_pylist() == [False, True]


@given(
    values=st.lists(st.decimals(min_value=-(10**15), max_value=10**15, places=2) | st.none(), max_size=20),
    odd=st.lists(st.sampled_from(["x", "1.001", "1,0", "NaN", "1e99", " 1"]), max_size=3),
)
def test_values_come_back_and_no_other_cell_does(values: list[Decimal | None], odd: list[str]) -> None:
    """A value that is written and read again is the same value, and any other cell is marked as unfit."""
    cells = ["" if value is None else f"{value:f}" for value in values] + odd
    found, unfit = typed_cells(cells, pa.decimal128(18, 2), "%y%m%d")
    assert found.to_pylist() == [*values, *[None] * len(odd)]
    assert unfit.to_pylist() == [False] * len(values) + [True] * len(odd)


def test_more_rows_than_are_held_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read in parts, and its rows keep their order."""
    monkeypatch.setattr(input_file, "CHUNK_ROWS", 3)
    rows = read_input(write_input(tmp_path / "trans.csv"))
    assert rows.select(PAYMENTS.names).equals(WRITTEN)


def test_a_wide_header_over_short_rows_takes_little_memory(tmp_path: Path) -> None:
    """A row with too few cells is a bad row. It takes no memory for the cells that it lacks, so that a small
    file cannot end the worker."""
    path = tmp_path / "wide.csv"
    path.write_text(";".join(["id", *(f"c{at}" for at in range(3_000))]) + "\n" + "1\n" * 5_000)
    schema = pa.schema([("id", pa.int64())])
    check = Declaration(topic="t", record_id=("id",), dead_letter_topic="letters")
    tracemalloc.start()
    try:
        found = read_file(path, check, schema, tmp_path / "input.parquet")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.count == 5_000
    assert peak < 30_000_000  # 3,000 cells of 5,000 rows are 120 MB


def test_a_byte_order_mark_and_blank_lines_do_not_matter(tmp_path: Path) -> None:
    """A byte order mark and blank lines are neither a row nor part of a name."""
    path = write_input(tmp_path / "trans.csv")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes() + b"\n\n")
    assert read_input(path).num_rows == 8


def test_a_row_that_begins_with_a_mark_is_no_record(tmp_path: Path) -> None:
    """A mark inside of the file comes from another file that was joined to it. Its row is bad, as it is to a load, and
    a line of nothing else is blank. In quotes it is a part of the value."""
    path = tmp_path / "f.csv"
    path.write_text('note;id\nx;1\n\ufeff"y\nz";2\n\ufeff\n"\ufeff";3\n', encoding="utf-8")
    schema = pa.schema([("note", pa.string()), ("id", pa.int64())])
    check = Declaration(topic="notes", record_id=("id",), dead_letter_topic="letters")
    found = pq.read_table(read_file(path, check, schema, tmp_path / "input.parquet").rows)
    assert found["note"].to_pylist() == ["x", None, "\ufeff"]
    assert found[UNFIT].to_pylist() == ["", "a byte order mark, as joined files have", ""]
    with refused(InvalidRequestError, Reason.BYTE_ORDER_MARK):
        read_file(path, replace(check, dead_letter_topic=None), schema, tmp_path / "input.parquet")


def test_a_blank_line_of_one_column_is_a_row(tmp_path: Path) -> None:
    """A blank line is a row with an empty cell if the file has one column."""
    path = tmp_path / "f.csv"
    path.write_text('note\nx\n\n""\n\n')
    schema = pa.schema([("note", pa.string())])
    check = Declaration(topic="notes", record_id=("note",))
    found = read_file(path, check, schema, tmp_path / "input.parquet")
    assert pq.read_table(found.rows)["note"].to_pylist() == ["x", None, "", None]


@pytest.mark.parametrize(
    ("text", "delimiter", "nulls", "notes"),
    [
        ('1;""\r\n2;\r\n3;"a"', ";", ("",), ["", None, "a"]),
        ('1;"x;""\n""";""\n2;;""\n3;"";\n', ";", ("",), ['x;"\n"', None, ""]),
        ('1;\n2;""\n', ";", (), ["", ""]),
        ('1;NA\n2;"NA"\n3;\n', ";", ("NA",), [None, "NA", ""]),
        ('1^""^a"b\n2^^""\n', "^", ("",), ["", None]),
        ('"1"|""\r""|\r', "|", ("",), ["", None]),
    ],
)
def test_null_and_the_empty_text(
    tmp_path: Path, text: str, delimiter: str, nulls: tuple[str, ...], notes: list[str | None]
) -> None:
    """A field in quotes is a text, and one without quotes is null where it is a word for null."""
    path = tmp_path / "f.csv"
    width = max(len(line) for line in csv.reader(text.splitlines(keepends=True), delimiter=delimiter))
    header = delimiter.join(["id", "note", "more"][:width])
    path.write_bytes(f"{header}\n{text}".encode())
    schema = pa.schema([("id", pa.int64()), ("note", pa.string()), ("more", pa.string())])
    check = Declaration("notes", ("id",), input_delimiter=delimiter, input_null_values=nulls)
    found = pq.read_table(read_file(path, check, schema, tmp_path / "input.parquet").rows)
    assert found["note"].to_pylist() == notes


def test_another_delimiter(tmp_path: Path) -> None:
    """The declaration says how cells are separated."""
    path = tmp_path / "trans.csv"
    path.write_text(
        write_input(path, ROWS[:4]).read_text(encoding="utf-8").replace(";", "\t"), encoding="utf-8"
    )
    assert read_input(path, replace(CHECK, input_delimiter="\t")).num_rows == 4


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        ("", Reason.NO_RECORDS, None),
        (HEADER + "\n", Reason.NO_RECORDS, None),
        ("trans_id;date\n1;930101\n", Reason.MISSING_COLUMN, 1),
        (HEADER.replace(";", ","), Reason.MISSING_COLUMN, 1),
        (HEADER + "\n1;2;930101;PRIJEM;1.00;\n2;2;930101;PRIJEM\n", Reason.TOO_FEW_FIELDS, 3),
        (HEADER + "\n1;2;930101;PRIJEM;1.00;;\n", Reason.TOO_MANY_FIELDS, 2),
        (HEADER + '\n1;2;930101;PRIJEM;1.00;"cut off\n', Reason.UNCLOSED_QUOTE, 2),
        (HEADER + '\n1;2;930101;PRIJEM;1.00;"odd"quote\n', Reason.BAD_QUOTING, 2),
        (HEADER + ";bank\n1;2;930101;PRIJEM;1.00;;\n", Reason.DUPLICATE_COLUMN, 1),
    ],
)
def test_a_broken_file_is_refused_in_one_line(
    text: str, reason: Reason, line: int | None, tmp_path: Path
) -> None:
    """The error of a file that is empty, truncated or lacks a column names the file and the line."""
    path = tmp_path / "trans.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequestError) as caught:
        read_input(path, CHECK)
    place = str(path) if line is None else f"{path} line {line}"
    assert (caught.value.reason, caught.value.place) == (reason, place)
    assert "\n" not in str(caught.value)


def test_a_file_with_another_delimiter_is_refused_with_a_hint(tmp_path: Path) -> None:
    """The error says where the delimiter is declared."""
    (tmp_path / "trans.csv").write_text(HEADER.replace(";", ","), encoding="utf-8")
    with pytest.raises(InvalidRequestError) as refused:
        read_input(tmp_path / "trans.csv", CHECK)
    assert "delimiter" in str(refused.value.action)


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    """A missing file and bytes that are not UTF-8 are refused, with the line of the bytes."""
    with pytest.raises(InvalidRequestError) as absent:
        read_input(tmp_path / "absent.csv", CHECK)
    assert absent.value.reason is Reason.FILE_UNREADABLE
    (tmp_path / "latin.csv").write_bytes(HEADER.encode() + b"\n1;2;930101;P\xd8IJEM;1.00;\n")
    with pytest.raises(InvalidRequestError) as row:
        read_input(tmp_path / "latin.csv", CHECK)
    assert (row.value.reason, row.value.place) == (Reason.BAD_ENCODING, f"{tmp_path / 'latin.csv'} line 2")
    (tmp_path / "latin.csv").write_bytes(HEADER.encode() + b";\xd8\n1;2;930101;PRIJEM;1.00;;\n")
    with pytest.raises(InvalidRequestError) as header:
        read_input(tmp_path / "latin.csv", CHECK)
    assert (header.value.reason, header.value.place) == (
        Reason.BAD_ENCODING,
        f"{tmp_path / 'latin.csv'} line 1",
    )


@pytest.mark.parametrize("amount", ["12,50", "1e-3", ".", "NaN", "0.001", "ten"])
def test_a_bad_amount_names_its_line(amount: str, tmp_path: Path) -> None:
    """An amount that does not fit the topic's decimal exactly is refused with its line."""
    path = write_input(tmp_path / "trans.csv", [*ROWS[:2], (103, 1, "930102", "VYDAJ", amount, "")])
    with pytest.raises(InvalidRecordError) as caught:
        read_input(path)
    assert (caught.value.reason, caught.value.place) == (Reason.BAD_DECIMAL, f"{path} line 4")
    assert caught.value.value == repr(amount)


@pytest.mark.parametrize(
    "text",
    [
        "hunter2",
        "hunter2;x\n1;2\n",
        HEADER + ";hunter2;hunter2\n1;2;930101;PRIJEM;1.00;;;\n",
        HEADER + "\n1;2;930101;PRIJEM;1.00;hunter2;\n",
        HEADER + '\n1;2;930101;PRIJEM;1.00;"hunter2\n',
        HEADER + "\n1;2;930101;PRIJEM;hunter2;\n",
        (HEADER + "\n1;2;930101;PRIJEM;1.00;hunter2").encode() + b"\xff\n",
    ],
)
def test_no_error_quotes_the_file(text: str | bytes, tmp_path: Path) -> None:
    """No error shows a cell or a header of the file in its text, repr, traceback or pickle, whatever file was
    named."""
    path = tmp_path / "trans.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TxnEngineError) as caught:
        read_input(path)
    told = [str(caught.value), repr(caught.value), str(pickle.loads(pickle.dumps(caught.value)).__dict__)]
    told += traceback.format_exception(caught.value)
    assert "hunter2" not in "".join(told)
    assert str(path) in told[0]


def _output(**changes: object) -> tuple[Output, ...]:
    return (Output("balances", replace(SUMS, **changes)),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"record_id": ()},
        {"outputs": _output(by={})},
        {"outputs": _output(sums={}, count=None)},
        {"outputs": _output(sums={"turnover": Amount("amount", direction="type")})},
        {"outputs": (Output("balances", SameRows({})),)},
        {"outputs": (Output("balances", SameSet({})),)},
        {"outputs": (Output("balances", LatestByKey({"a": "a"}, {})),)},
        {"outputs": (Output("balances", SqlReduction("SELECT 1", " ")),)},
        {"input_delimiter": ""},
        {"input_delimiter": "::"},
        {"input_date_format": "%d%d"},
        {"input_date_format": "%Q"},
        {"input_date_format": "%"},
        {"input_date_format": "%C"},
        {"input_date_format": "%m-%d"},
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(changes: dict[str, object]) -> None:
    """A declaration is refused without an id, with an output that has no key or nothing to compare, a
    direction without values, a delimiter of two characters, or a date format without a day."""
    with pytest.raises(InvalidRequestError):
        replace(CHECK, **changes)  # type: ignore[arg-type]


def test_the_least_that_can_be_checked() -> None:
    """A declaration needs only a topic and the columns that identify its records."""
    check = Declaration(topic="payments", record_id=("trans_id",))
    assert check.topics == ("payments",)
    assert check.topic_columns == ("trans_id",)


@pytest.mark.parametrize("lines", [1, 3])
@pytest.mark.parametrize("is_header", [True, False])
def test_a_row_of_any_length_is_not_read(tmp_path: Path, lines: int, is_header: bool) -> None:
    """A row that no load takes is refused before it is in memory, in one line or in many inside of quotes. A file may
    be longer than the disk: the rest of it takes no blocks."""
    path = tmp_path / "long.csv"
    begin = "" if is_header else f"{HEADER}\n"
    with path.open("w") as file:
        file.write(begin + '"' + ("x" * (9 << 20) + "\n") * (lines - 1))
        file.truncate(1 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequestError) as found:
            read_input(path)
        assert tracemalloc.get_traced_memory()[1] < 150 << 20
    finally:
        tracemalloc.stop()
    assert found.value.reason is Reason.ROW_TOO_LONG
    assert str(found.value.place) == f"{path} line {1 if is_header else 2}"


def test_a_row_as_long_as_one_that_is_loaded(tmp_path: Path) -> None:
    """What a load takes is read, and not one character more."""
    path, row = tmp_path / "long.csv", f'{HEADER}\n101;1;930101;"PRIJEM";1.00;"'
    chars = ROW_CHARS_MAX - len(row.splitlines()[1]) - 2
    path.write_text(row + "x" * chars + '"\n')
    assert [len(cell) for cell in read_input(path)["bank"].to_pylist()] == [chars]
    path.write_text(row + "x" * (chars + 1) + '"\n')
    with pytest.raises(InvalidRequestError) as found:
        read_input(path)
    assert found.value.reason is Reason.ROW_TOO_LONG
