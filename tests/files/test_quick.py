"""Blocks that pyarrow parses give the same rows, bad rows, lines, bytes and errors as Python's csv."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from txn_engine.errors import TxnEngineError
from txn_engine.files import BadRow, FileFormat, json_lines, numbers, quick, read_records, text

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("note", pa.string()),
        pa.field("must", pa.string(), nullable=False),
    ]
)
HEADER = "id,amount,note,must\n"
ROWS = st.sampled_from(
    [
        "1,1,a,b\n",
        "2,2.25,é,z\r\n",
        '"3","3,25","q,""q""","z\nz"\n',
        '4,,"",NULL\n',
        "5,+5,NULL,\n",
        "6,1.005,,x\n",
        ",6,,x\n",
        "7,7,x\n",
        "8,8,,x,\n",
        "9,9,,x\r",
        HEADER,
        '"id",amount,"note",must\n',
        "\n",
        "\r\n",
        " \n",
        "10;10;a;b\n",
    ]
)
PIECES = st.sampled_from(
    [
        '"',
        '""',
        ",",
        "\n",
        "\r\n",
        "\r",
        " ",
        "1",
        "a",
        "é",
        "\udcff",
        "\0",
        "\ufeff",
        "'",
        "x\ny",
        '"a"',
        "b",
    ]
)
TEXTS = st.lists(ROWS | PIECES, max_size=30).map("".join)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "delimiter": st.sampled_from([";", "\t", " ", "é", "\\"]),
        "quote": st.sampled_from(["", "'", "é"]),
        "null_values": st.just(["NULL", ""]),
        "decimal": st.just(","),
        "header": st.just(False),
        "missing_columns": st.just("null"),
    },
)


@contextmanager
def blocks(chars: int, rows: int, *, careful: bool = False) -> Iterator[None]:
    """Use blocks of this many characters and batches of this many rows. With `careful`, Python parses
    everything."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text, "BLOCK_CHARS", chars)
        patched.setattr(text, "BATCH_ROWS", rows)
        if careful:
            patched.setattr(quick.Cutter, "cut", lambda *_: None)
            patched.setattr(json_lines, "read_block", lambda *_: None)
        yield


def read(raw: bytes, *, takes_bad: bool, format: FileFormat = "csv", **options: Any) -> Any:  # noqa: A002
    """The good rows and the bad ones with all their information, or the error."""
    bad: list[BadRow] = []
    rows: list[dict[str, Any]] = []
    try:
        for batch in read_records(
            io.BytesIO(raw), SCHEMA, format=format, rejected=bad.extend if takes_bad else None, **options
        ):
            assert batch.num_rows <= text.BATCH_ROWS
            rows += batch.to_pylist()
    except TxnEngineError as error:
        return str(error), getattr(error, "value", None)
    told = [(row.line, row.error.with_value(), row.raw, row.columns) for row in bad]
    return rows, sorted(told, key=lambda row: row[0])


@given(
    TEXTS,
    st.sampled_from(["utf-8", "cp1252", "utf-16"]),
    OPTIONS,
    st.sampled_from([1, 9, 40, 1_000]),
    st.sampled_from([1, 2, 100]),
    st.booleans(),
)
@example('1,1,a,b\n2,2,"a"b,c\n', "utf-8", {}, 1_000, 100, True)
@example('1,1,a,b\n2,2,a"b,c\n', "utf-8", {}, 1_000, 100, True)
@example('1,1,"a\n\nb",b\n2,x,,c\n', "utf-8", {}, 1_000, 100, True)
@example('1,1,"a\n', "utf-8", {}, 9, 100, True)
def test_both_readers_give_the_same(
    body: str, encoding: str, options: dict[str, Any], chars: int, rows: int, takes_bad: bool
) -> None:
    """Both readers of csv give the same result, whatever is in the file and wherever its blocks end."""
    raw = (HEADER + body).encode(encoding, errors="replace" if encoding != "utf-8" else "surrogateescape")
    options = {"encoding": encoding, "takes_bad": takes_bad, **options}
    with blocks(chars, rows):
        found = read(raw, **options)
    with blocks(chars, rows, careful=True):
        assert found == read(raw, **options)


def test_a_bad_row_in_each_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even with bad rows in every block, pyarrow parses the blocks: it finds a value that does not fit, and
    too few fields."""
    cut, by_arrow = quick.Cutter.cut, []
    monkeypatch.setattr(quick.Cutter, "cut", lambda *given: by_arrow.append(cut(*given)) or by_arrow[-1])
    body = "".join(f'{row},{row}.25,"a\nb",z\n' if row % 100 else f"{row},x\n" for row in range(20_000))
    with blocks(10_000, 100):
        rows, bad = read((HEADER + body).encode(), takes_bad=True)
    assert (len(rows), len(bad)) == (19_800, 200)
    assert [row[0] for row in bad[:3]] == [2, 2 + 199, 2 + 398]
    assert len(by_arrow) > 20
    assert None not in by_arrow


VALUES = {
    "id": ["1", "-0", "9223372036854775808", "1.0", "1e2", '"7"', "null", "true", "[]"],
    "amount": [
        "1",
        "1.5",
        "1.005",
        "1e1",
        "-0.0",
        '"2.25"',
        '"+3"',
        '"x"',
        '"1e1"',
        "100000000",
        "99999999.99",
    ],
    "note": ['"a"', '"\\u00e9"', '"é"', '"\\ud800"', '"\\ud83d\\ude00"', "null", "1", '"\t"', '""', "{}"],
    "must": ['"m"', '"m"', '"m"', "null"],
    "more": ["1"],
}
JSON_PIECES = st.sampled_from(
    [
        "\n",
        "\r\n",
        "\r",
        " ",
        "{",
        "}",
        "{}",
        ",",
        '"',
        "x",
        "[1]",
        "\ufeff",
        "\udcff",
        "NaN",
        '{"id": 1}',
        "null",
    ]
)


@st.composite
def objects(draw: st.DrawFn) -> str:
    """JSON objects with these columns, most of which are as they should be."""
    names = ["id", "amount", "note", "must"]
    if draw(st.integers(0, 5)) == 0:
        names = draw(st.lists(st.sampled_from([*VALUES]), max_size=6))
    usual = draw(st.integers(0, 3)) > 0
    parts = [
        f'"{name}": {VALUES[name][0] if usual else draw(st.sampled_from(VALUES[name]))}' for name in names
    ]
    return "{" + ", ".join(parts) + "}" + draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "", "\n\n"]))


@given(
    st.lists(objects() | objects() | JSON_PIECES, max_size=15).map("".join),
    st.sampled_from(["utf-8", "cp1252"]),
    st.fixed_dictionaries({}, optional={"decimal": st.just(","), "unknown_columns": st.just("ignore")}),
    st.sampled_from([1, 40, 1_000]),
    st.sampled_from([1, 2, 100]),
    st.booleans(),
)
@example('{"must": "m", "id": 1}{"must": "m", "id": 2}\n\n', "utf-8", {}, 1_000, 100, True)
@example('{"must": "m", "id": 1, "amount": 100000000}\n', "utf-8", {}, 1_000, 100, True)
@example('{"must": "m",\n"id": 1}\n', "utf-8", {}, 1_000, 100, True)
def test_both_readers_of_json_give_the_same(
    body: str, encoding: str, options: dict[str, Any], chars: int, rows: int, takes_bad: bool
) -> None:
    """Both readers of JSON give the same result, whatever is in the lines and wherever the blocks end."""
    raw = body.encode(encoding, errors="replace" if encoding != "utf-8" else "surrogateescape")
    more = {"encoding": encoding, "takes_bad": takes_bad, "format": "jsonl", **options}
    with blocks(chars, rows):
        found = read(raw, **more)
    with blocks(chars, rows, careful=True):
        assert found == read(raw, **more)


DECIMALS = st.from_regex(r"-?(0|[1-9][0-9]{0,12})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@given(DECIMALS, st.booleans())
def test_decimals_of_json(text_of: str, as_string: bool) -> None:
    """Both readers give the same decimals of JSON, with every digit, or refuse them."""
    value = f'"{text_of}"' if as_string else text_of
    raw = f'{{"id": 1, "must": "m", "amount": {value}}}\n'.encode()
    found = read(raw, takes_bad=True, format="jsonl")
    with blocks(1_000, 100, careful=True):
        assert found == read(raw, takes_bad=True, format="jsonl")


def test_bad_values_in_each_block_of_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """With bad values in every block of JSON, pyarrow reads the blocks and finds them."""
    read_block, by_arrow = json_lines.read_block, []
    monkeypatch.setattr(
        json_lines, "read_block", lambda *given: by_arrow.append(read_block(*given)) or by_arrow[-1]
    )
    lines = [f'{{"id": {row}, "amount": "{row if row % 50 else "x"}", "must": "é"}}' for row in range(5_000)]
    with blocks(10_000, 100):
        rows, bad = read("\n".join(lines).encode(), takes_bad=True, format="jsonl")
    assert (len(rows), len(bad)) == (4_900, 100)
    assert [row[0] for row in bad[:3]] == [1, 51, 101]
    assert (bad[1][2], bad[1][3]) == (None, lines[50])
    assert len(by_arrow) > 10
    assert None not in by_arrow


NUMBERS = st.text("0123456789.-", max_size=8) | st.text("0123456789.-", min_size=30, max_size=45)
KINDS = [pa.int8(), pa.int64(), pa.uint8(), pa.uint64(), pa.decimal128(5, 2), pa.decimal128(38, 10)]


@given(st.lists(NUMBERS | st.none(), max_size=4), st.sampled_from(KINDS))
def test_numbers_of_plain_digits_are_converted_alike(values: list[str | None], kind: pa.DataType) -> None:
    """Plain digits that pyarrow's cast accepts are accepted by the careful conversion too, with the same
    value."""
    convert = numbers.decimals if pa.types.is_decimal(kind) else numbers.integers

    def converted() -> Any:
        try:
            return convert(pa.array(["x", *values], pa.string())[1:], kind).to_pylist()
        except ValueError:
            return None

    found = converted()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(numbers, "_are_of", lambda *_: False)
        assert found == converted()
