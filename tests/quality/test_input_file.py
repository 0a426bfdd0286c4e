"""The input file is read by a road of its own, and refused as a whole where it is not whole."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import replace
from pathlib import Path

import pytest

from tests.quality.ledger import CHECK, HEADER, ROWS, write_input
from txn_engine.errors import InvalidRecordError, InvalidRequestError, TxnEngineError
from txn_engine.quality.check import ExactlyOnceCheck
from txn_engine.quality.input_file import check_amounts, read_input


def test_cells_are_read_as_text_with_their_lines(tmp_path: Path) -> None:
    """Quotes are taken off, nothing else is changed; lines are counted from 1, the header's."""
    rows = read_input(write_input(tmp_path / "trans.csv"), CHECK)
    assert list(rows.columns) == HEADER.split(";")
    assert rows.columns["amount"][:2] == ["700.00", "1000.10"]
    assert rows.columns["bank"][:2] == ["", "AB"]
    assert rows.lines == list(range(2, 10))


def test_a_byte_order_mark_and_blank_lines_do_not_matter(tmp_path: Path) -> None:
    """What spreadsheets leave behind is no row and no part of a name."""
    path = write_input(tmp_path / "trans.csv")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes() + b"\n\n")
    assert len(read_input(path, CHECK).lines) == 8


def test_another_delimiter(tmp_path: Path) -> None:
    """The check says how cells are parted."""
    path = tmp_path / "trans.csv"
    path.write_text(
        write_input(path, ROWS[:4]).read_text(encoding="utf-8").replace(";", "\t"), encoding="utf-8"
    )
    assert len(read_input(path, replace(CHECK, input_delimiter="\t")).lines) == 4


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("", "it is empty"),
        (HEADER + "\n", "it has a header and no rows"),
        ("trans_id;date\n1;930101\n", "no column account_id, amount, type among its 2"),
        (HEADER + "\n1;2;930101;PRIJEM;1.00;\n2;2;930101;PRIJEM\n", "line 3"),
        (HEADER + "\n1;2;930101;PRIJEM;1.00;;\n", "7 cells"),
        (HEADER + '\n1;2;930101;PRIJEM;1.00;"cut off\n', "delimited text"),
        (HEADER + ";bank\n1;2;930101;PRIJEM;1.00;;\n", "a column is named twice"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(text: str, seen: str, tmp_path: Path) -> None:
    """Empty, cut off, a column missing: the message names the file, what is there and what should be."""
    path = tmp_path / "trans.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequestError) as caught:
        read_input(path, CHECK)
    message = str(caught.value)
    assert seen in message
    assert str(path) in message
    assert "\n" not in message


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    """The system's own words, with the file's name."""
    with pytest.raises(InvalidRequestError, match="No such file"):
        read_input(tmp_path / "absent.csv", CHECK)
    (tmp_path / "latin.csv").write_bytes(HEADER.encode() + b"\n1;2;930101;P\xd8IJEM;1.00;\n")
    with pytest.raises(InvalidRequestError, match="not UTF-8"):
        read_input(tmp_path / "latin.csv", CHECK)


@pytest.mark.parametrize("amount", ["", "12,50", "1e-3", ".", "NaN", "0.001", "ten"])
def test_a_bad_amount_names_its_line(amount: str, tmp_path: Path) -> None:
    """Money that is no exact decimal of the topic's scale is refused with its line."""
    path = write_input(tmp_path / "trans.csv", [*ROWS[:2], (103, 1, "930102", "VYDAJ", amount, "")])
    rows = read_input(path, CHECK)
    with pytest.raises(InvalidRecordError, match=r"trans\.csv line 4") as caught:
        check_amounts(rows, "amount", 2)
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
    """Whatever file was named, a password's or another's: no cell and no header in text, repr, trace or pickle."""
    path = tmp_path / "trans.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TxnEngineError) as caught:
        check_amounts(read_input(path, CHECK), "amount", 2)
    told = [str(caught.value), repr(caught.value), str(pickle.loads(pickle.dumps(caught.value)).__dict__)]
    told += traceback.format_exception(caught.value)
    assert "hunter2" not in "".join(told)
    assert str(path) in told[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"amount": None},
        {"account": None},
        {"credit_values": ()},
        {"input_delimiter": ""},
        {"input_delimiter": "::"},
        {"input_date_format": "%d%d"},
        {"input_date_format": "%Q"},
        {"input_date_format": "%"},
        {"input_date_format": "%C"},
        {"input_date_format": "%m-%d"},
    ],
)
def test_a_check_that_makes_no_sense_is_refused(changes: dict[str, object]) -> None:
    """An output without the columns that it sums, a direction without credits, a delimiter of two characters, a format
    of dates that says no day.
    """
    with pytest.raises(InvalidRequestError):
        replace(CHECK, **changes)  # type: ignore[arg-type]


def test_the_least_that_can_be_checked() -> None:
    """A topic and what tells its records apart."""
    check = ExactlyOnceCheck(topic="payments", record_id="trans_id")
    assert check.topics == ("payments",)
    assert check.topic_columns == ("trans_id",)
