"""The inferred columns of a file have the narrowest types that hold every value exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.loading.refusals import because
from txn_engine.errors import InvalidRecordError, TxnEngineError
from txn_engine.files import infer, infer_schema, read_records
from txn_engine.files.inferring import json_texts
from txn_engine.reasons import Reason
from txn_engine.row_limits import COLUMNS_MAX

Write = Callable[..., Path]


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-2", "0"], pa.int64()),
        (["1", "+3"], pa.string()),
        (["+1.50"], pa.string()),
        (["0", "-0"], pa.string()),
        (["-007"], pa.string()),
        (["1.5", "-0"], pa.string()),
        (["-0.00", "1.5"], pa.decimal128(18, 2)),
        (["12e3", "45E1", "7"], pa.string()),
        (["1e-05", "0.5"], pa.float64()),
        (["1e5", "+2.5"], pa.string()),
        (["1.5e3", "-0", "1"], pa.string()),
        (["1.5e3", "-0.0"], pa.float64()),
        (["9223372036854775808"], pa.decimal128(19, 0)),
        (["1", "2.50", "100"], pa.decimal128(18, 2)),
        (["12345678901234567", "0.125"], pa.decimal128(20, 3)),
        (["1e5", "2.5"], pa.float64()),
        (["007", "1"], pa.string()),
        (["1" * 39], pa.string()),
        (["NaN"], pa.string()),
        (["true", "FALSE"], pa.bool_()),
        (["0", "1"], pa.int64()),
        (["2026-01-31"], pa.date32()),
        (["2026-02-30"], pa.string()),
        (["2026-01-31T09:30:00Z"], pa.timestamp("ms", "UTC")),
        (["2026-01-31T09:30:00"], pa.string()),
        (["1", "x"], pa.string()),
        (["0", "0.0"], pa.decimal128(18, 1)),
    ],
)
def test_types(write: Write, texts: list[str], kind: pa.DataType) -> None:
    """Types are inferred from csv, and the file fits its inferred schema."""
    path = write("f.csv", "x,y\n" + "".join(f"{text},\n" for text in texts))
    schema = infer_schema(path)
    assert schema.equals(pa.schema([pa.field("x", kind, nullable=False), pa.field("y", pa.string())]))
    assert sum(batch.num_rows for batch in read_records(path, schema)) == len(texts)


def test_why_a_column_is_text(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first value after which only text is left is named with its line, and with options if it looks as if it
    needs some. A column of texts that no value has decided has no cause."""
    monkeypatch.setattr("txn_engine.files.text.BATCH_ROWS", 3)
    rows = ["1;2026-01-01;x;1;", "2;5;;-1.091,09;", '"on\ntwo";;;12,5;', "3;;;;", "y;31.01.2026;;;"]
    found = infer(write("f.csv", "a;b;c;d;e\n" + "\n\n".join(rows)), delimiter=";")
    assert {name: (cause.line, cause.value) for name, cause in found.causes.items()} == {
        "a": (6, "on\ntwo"),
        "b": (4, "5"),
        "c": (2, "x"),
        "d": (4, "-1.091,09"),
    }
    assert found.causes["d"].hint == "try `--decimal , --thousands .`"
    found = infer(write("f.csv", "d\n31.01.2026\n"))
    assert found.causes["d"].hint == "try `--date-format %d.%m.%Y`"
    found = infer(write("f.csv", "d;e\n31.01.2026;\n-1.091,09;\n"), delimiter=";", decimal=",", thousands=".")
    assert (found.causes["d"].line, found.causes["d"].value) == (2, "31.01.2026")


def test_exponents_that_come_late_make_floats(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of floats may begin with numbers without an exponent."""
    monkeypatch.setattr("txn_engine.files.text.BATCH_ROWS", 1)
    assert infer_schema(write("f.csv", "a\n1\n2.5\n1e-7\n")).types == [pa.float64()]


def test_a_code_with_an_exponent(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers with an exponent and without a decimal mark are text, and the first with an exponent is named. Numbers of
    JSON are never text."""
    monkeypatch.setattr("txn_engine.files.text.BATCH_ROWS", 2)
    found = infer(write("f.csv", "a,b\n1,x\n2,x\n,x\n12e3,x\n3e1,x\n"))
    assert found.schema.field("a").type == pa.string()
    assert (found.causes["a"].line, found.causes["a"].value) == (5, "12e3")
    path = write("f.jsonl", '{"a": 12e3, "b": -0, "c": 1}\n{"a": 1, "b": 1, "c": 2.5e1}\n')
    assert infer_schema(path).types == [pa.float64(), pa.int64(), pa.float64()]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a;b;c;d;e;f;g\n1;2;3;4;5;6;7\n", "the header has ';' 6 times: try `--delimiter ';'`"),
        ("a\tb\n1\t2\n", "the header has a tab once: try `--delimiter $'\\t'`"),
        ("a\n1\n", None),
    ],
)
def test_a_header_of_one_piece(write: Write, text: str, hint: str | None) -> None:
    """If the header looks as if another delimiter cuts it, the answer says which, and so does an error."""
    path = write("f.csv", text)
    assert infer(path).hint == hint
    if hint is not None:
        with pytest.raises(InvalidRecordError) as caught:
            infer(write("f.csv", text + "1,5;\n"))
        assert caught.value.action == hint


def test_text_that_is_no_utf8(write: Write) -> None:
    """An error about bytes that are not UTF-8 names the encoding that they are in most often."""
    with pytest.raises(InvalidRecordError) as caught:
        infer(write("f.csv", b"a;b\n1;caf\xe9\n"), delimiter=";")
    assert caught.value.action == "try `--encoding cp1252`"


def test_what_comes_late_counts(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A null, a wider number or a text in a later batch changes the inferred type."""
    monkeypatch.setattr("txn_engine.files.text.BATCH_ROWS", 10)
    rows = [f"{row},{row},{row}" for row in range(100)]
    rows[55], rows[77] = ",1.5,1", "1,1,x"
    found = infer_schema(write("f.csv", "a,b,c\n" + "\n".join(rows)))
    assert found.equals(
        pa.schema(
            [
                pa.field("a", pa.int64()),
                pa.field("b", pa.decimal128(18, 1), nullable=False),
                pa.field("c", pa.string(), nullable=False),
            ]
        )
    )


def test_json(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON strings are not numbers, a value that is missing anywhere makes its column nullable, and nested
    values are refused."""
    monkeypatch.setattr("txn_engine.files.inferring.BATCH_ROWS", 1)
    path = write("f.jsonl", '{"a": 1, "b": "1", "c": true}\n\n{"a": 2.5, "b": "x", "d": "2026-01-31"}\n')
    schema = infer_schema(path)
    assert [(each.name, str(each.type), each.nullable) for each in schema] == [
        ("a", "decimal128(18, 1)", False),
        ("b", "string", False),
        ("c", "bool", True),
        ("d", "date32[day]", True),
    ]
    assert sum(batch.num_rows for batch in read_records(path, schema)) == 2
    for line, reason in (
        ('{"a": [1]}', Reason.UNSUPPORTED_TYPE),
        ("[]", Reason.NOT_A_JSON_OBJECT),
        ("x", Reason.BAD_JSON),
        (b"\xff", Reason.BAD_ENCODING),
    ):
        with pytest.raises(InvalidRecordError, check=because(reason, "line 2")):
            infer_schema(
                write("b.jsonl", b'{"a": 1}\n' + (line if isinstance(line, bytes) else line.encode()))
            )


def test_long_lines_of_json_are_not_held(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long lines of JSON are read in batches of a limited number of characters."""
    from txn_engine.files import inferring

    monkeypatch.setattr("txn_engine.files.text.BATCH_CHARS", 10_000)
    texts, held = inferring.json_texts, []
    monkeypatch.setattr(inferring, "json_texts", lambda rows: (held.append(len(rows)), texts(rows))[1])
    path = write("f.jsonl", "".join(f'{{"a": {row}, "b": "{"x" * 3_000}"}}\n' for row in range(20)))
    assert infer_schema(path).names == ["a", "b"]
    assert max(held) <= 4
    assert sum(held) == 20


def test_options_and_formats(write: Write, tmp_path: Path) -> None:
    """Inferring takes the options of a load. A Parquet file gives its own columns, without those that reads
    of a topic add."""
    german = write("g.csv", "n;d\n1,50;31.01.2026\n")
    found = infer_schema(german, delimiter=";", decimal=",", date_format="%d.%m.%Y")
    assert [str(kind) for kind in found.types] == ["decimal128(18, 2)", "date32[day]"]
    found = infer_schema(
        write("g.csv", "n;i\n-1.091,09;1.000\n1;2\nTotal\n"),
        delimiter=";",
        decimal=",",
        thousands=".",
        skip_footer=1,
    )
    assert [str(kind) for kind in found.types] == ["decimal128(18, 2)", "int64"]
    assert infer_schema(write("n.csv", "1,x\n"), header=False).names == ["column1", "column2"]
    assert infer_schema(write("n.csv", "1,x\n"), header=["a", "b"]).names == ["a", "b"]
    pq.write_table(pa.table({"a": [1], "_offset": [1]}), tmp_path / "f.parquet")
    assert infer_schema(tmp_path / "f.parquet").names == ["a"]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("f.csv", "", Reason.NO_RECORDS),
        ("f.csv", "a,b\n", Reason.NO_RECORDS),
        ("f.csv", "a,b\n1\n", Reason.TOO_FEW_FIELDS),
        ("f.csv", 'a\n"x', Reason.UNCLOSED_QUOTE),
        ("f.xls", "", Reason.UNKNOWN_FORMAT),
    ],
)
def test_a_file_that_cannot_be_read(write: Write, name: str, text: str, reason: Reason) -> None:
    """A file that cannot be read is refused as by a load."""
    path = write(name, text)
    with pytest.raises(TxnEngineError, check=because(reason, str(path))):
        infer_schema(path)


@pytest.mark.parametrize("name", ["f.csv", "f.jsonl", "one.jsonl", "f.parquet"])
def test_more_columns_than_a_reader_takes(tmp_path: Path, name: str) -> None:
    """A small file may name many columns. It is refused before anything is made for each, also by a load."""
    names = [f"c{number}" for number in range(COLUMNS_MAX + 1)]
    path = tmp_path / name
    match name:
        case "f.csv":
            path.write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
        case "f.jsonl":
            path.write_text("".join(f'{{"{each}": 1}}\n' for each in names))
        case "one.jsonl":
            path.write_text(json.dumps(dict.fromkeys(names, 1)) + "\n")
        case _:
            pq.write_table(pa.table({each: [1] for each in names}), path)
    with pytest.raises(InvalidRecordError) as refused:
        infer_schema(path)
    assert refused.value.reason is Reason.TOO_MANY_COLUMNS
    if path.suffix != ".jsonl":
        with pytest.raises(InvalidRecordError) as refused:
            list(read_records(path, pa.schema([("c0", pa.int64())]), unknown_columns="ignore"))
        assert refused.value.reason is Reason.TOO_MANY_COLUMNS


def test_names_that_few_lines_have_take_little_memory() -> None:
    """What is kept of a batch grows with its values, not with its lines times its names."""
    texts = json_texts([{f"c{number}": "x"} for number in range(1_000)])
    assert len(texts) == 1_000
    assert sum(values.nbytes for values, _ in texts.values()) < 100_000


@pytest.mark.parametrize("line", [r'{"a": "\ud800"}', r'{"\ud800": 1}'])
def test_half_of_a_character_in_json(write: Write, line: str) -> None:
    """JSON may escape half of a character, in a value or a name; the file is refused with the line."""
    with pytest.raises(InvalidRecordError, check=because(Reason.BAD_ENCODING, "line 2")):
        infer(write("f.jsonl", f'{{"a": "x"}}\n{line}\n'))


def test_a_line_of_json_with_too_many_values(write: Write) -> None:
    """It is refused before its values take a hundred times the memory of its text."""
    with pytest.raises(InvalidRecordError, check=because(Reason.TOO_MANY_VALUES, "line 1")):
        infer(write("f.jsonl", '{"a": [' + ",".join(["1"] * 1_000_001) + "]}"))
