"""A reader gets the same values that csv or JSON lines have, or the file is refused."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.exact.arrays import FLOATS, INTEGERS, decimal_types
from tests.exact.written import JSON, fits, is_the_same, written
from txn_engine.errors import InvalidRecordError
from txn_engine.files import read_records

pytestmark = [pytest.mark.exact, pytest.mark.timeout(21_600)]

MONEY = pa.decimal128(18, 2)
kinds = st.one_of(st.just(MONEY), st.sampled_from((*INTEGERS, *FLOATS)), decimal_types())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts")


def read(path: Path, kind: Any) -> list[Any] | None:
    """The column's values, or None if the file was refused."""
    try:
        (batch,) = read_records(path, pa.schema([pa.field("x", kind, nullable=False)]))
    except InvalidRecordError:
        return None
    column: Any = batch.column(0)
    return [value.as_py() for value in (column.cast(pa.float64()) if kind == pa.float16() else column)]


def judge(got: list[Any] | None, texts: list[str], kind: Any) -> None:
    """Check that all values are as they were written, or that one of them does not fit if the file was
    refused."""
    if got is None:
        assert not all(_may_be_taken(text, kind) for text in texts)
    else:
        assert len(got) == len(texts)
        assert all(is_the_same(value, text, kind) for value, text in zip(got, texts, strict=True))


def _may_be_taken(text: str, kind: Any) -> bool:
    # what fits and is refused all the same: -0 in a column without a sign, and forms of a float that pyarrow's own
    # parser does not know
    if pa.types.is_unsigned_integer(kind) and text.startswith("-"):
        return False
    return fits(text, kind) and not (pa.types.is_floating(kind) and text.startswith(("+", ".")))


@given(texts=st.lists(written, min_size=1, max_size=3), kind=kinds)
@example(texts=["16.87"], kind=pa.float16())  # 16.875, which lies half of the last digit away
@example(
    texts=["9" * 30 + "."], kind=pa.decimal256(41, 11)
)  # more digits than Python's decimals keep by themselves
@example(texts=["9007199254740989"], kind=pa.decimal128(38, 31))  # its product with 10^31 overflows
def test_csv(texts: list[str], kind: Any, folder: Path) -> None:
    """Each number is the fraction that its text means."""
    path = folder / "x.csv"
    path.write_text("x\n" + "".join(f'"{text}"\n' for text in texts))
    judge(read(path, kind), texts, kind)


@given(texts=st.lists(st.tuples(written, st.booleans()), min_size=1, max_size=3), kind=kinds)
@example(texts=[("9007199254740989", False)], kind=pa.decimal128(38, 31))
@example(texts=[("9007199254740989", True)], kind=pa.decimal128(38, 31))
@example(texts=[("1.E-41", False)], kind=MONEY)  # an exponent right behind the point
def test_json(texts: list[tuple[str, bool]], kind: Any, folder: Path) -> None:
    """A value may be a JSON number of any size, or a string."""
    path = folder / "x.jsonl"
    lines = [
        f'{{"x": {text if bare and JSON.fullmatch(text) else json.dumps(text)}}}\n' for text, bare in texts
    ]
    path.write_text("".join(lines))
    judge(read(path, kind), [text for text, _ in texts], kind)


@given(text=written, at=st.lists(st.integers(0, 40), max_size=4), kind=kinds)
@example(text="1E-41", at=[1], kind=MONEY)
@example(text="9007199254740989", at=[0, 5], kind=pa.decimal128(38, 31))
def test_json_escapes(text: str, at: list[int], kind: Any, folder: Path) -> None:
    """A number in a string may have any of its characters as an escape."""
    path = folder / "e.jsonl"
    escaped = {place % len(text) for place in at} if text else set()
    held = "".join(
        f"\\u{ord(char):04x}" if place in escaped else json.dumps(char)[1:-1]
        for place, char in enumerate(text)
    )
    path.write_text(f'{{"x": "{held}"}}\n')
    judge(read(path, kind), [text], kind)


@given(texts=st.lists(written, min_size=1, max_size=2))
def test_json_inside_others(texts: list[str], folder: Path) -> None:
    """A list of money in JSON is read exactly or refused."""
    path = folder / "n.jsonl"
    path.write_text(json.dumps({"x": texts}) + "\n")
    got = read(path, pa.list_(MONEY))
    judge(None if got is None else list(itertools.chain(*got)), texts, MONEY)


moments = st.datetimes().flatmap(
    lambda at: st.builds(
        "{}{}{}".format,
        st.just(at.replace(microsecond=0).isoformat()),
        st.text("0123456789", max_size=10).map(lambda digits: f".{digits}" if digits else ""),
        st.sampled_from(("", "Z", "+00:00", "+02:00", "-11:30")),
    )
)


@given(text=moments, unit=st.sampled_from(("s", "ms", "us", "ns")), zone=st.sampled_from((None, "UTC")))
def test_moments(text: str, unit: Any, zone: str | None, folder: Path) -> None:
    """A moment is exact to the last digit of the second, at its written offset."""
    path = folder / "m.csv"
    path.write_text(f"x\n{text}\n")
    kind = pa.timestamp(unit, tz=zone)
    try:
        (batch,) = read_records(path, pa.schema([("x", kind)]))
    except InvalidRecordError:
        return
    found: Any = batch.column(0)
    assert found[0].value * {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit] == nanoseconds(text)


def nanoseconds(text: str) -> int:
    """The nanoseconds since the epoch, computed from the calendar alone."""
    date, rest = text.split("T")
    clock, zone = rest, 0
    for mark in ("Z", "+00:00", "+02:00", "-11:30"):
        if rest.endswith(mark):
            clock = rest.removesuffix(mark)
            zone = {"+02:00": 120, "-11:30": -690}.get(mark, 0)
    whole, _, digits = clock.partition(".")
    hour, minute, second = (int(part) for part in whole.split(":"))
    days = (dt.date.fromisoformat(date) - dt.date(1970, 1, 1)).days
    seconds = days * 86_400 + hour * 3_600 + (minute - zone) * 60 + second
    return seconds * 10**9 + int(digits.ljust(10, "0")) // 10 if digits else seconds * 10**9


grouped = st.tuples(
    st.integers(-(10**12), 10**12), st.sampled_from(",. "), st.sampled_from(["", ".5", ",25", ".0"])
).map(lambda parts: f"{parts[0]:,}".replace(",", parts[1]) + parts[2])
odd = st.text(alphabet="0123456789-+.,eETZ: tfx", max_size=12)
days = st.tuples(st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32)).map(
    lambda d: f"{d[0]:04}-{d[1]:02}-{d[2]:02}"
)
moments = st.tuples(days, st.sampled_from(["", "T00:00:00", "T23:59:60Z", "T12:00:00Z", " 12:00:00"])).map(
    "".join
)
all_kinds = st.one_of(
    kinds, st.sampled_from([pa.bool_(), pa.date32(), pa.timestamp("ms"), pa.timestamp("ms", tz="UTC")])
)


@given(
    texts=st.lists(st.one_of(written, odd, grouped, days, moments), min_size=1, max_size=8),
    kind=all_kinds,
    marks=st.sampled_from([(".", None), (",", None), (",", "."), (".", ","), (".", " ")]),
)
@example(texts=["2026-02-29", "2024-02-29", "1900-02-29", "2000-02-29"], kind=pa.date32(), marks=(".", None))
@example(texts=["1.234,5", "1234,5", "1e2", "1.23", "NaN"], kind=pa.float64(), marks=(",", "."))
def test_each_row_is_judged_as_it_would_be_alone(
    texts: list[str], kind: Any, marks: tuple[Any, Any], folder: Path
) -> None:
    """Among many rows those are bad that would be refused alone, and all others have the same values."""
    decimal, thousands = marks
    alone, schema = [], pa.schema([pa.field("x", kind, nullable=False)])
    path = folder / "r.csv"
    for text in texts:
        path.write_text(f'x\n"{text}"\n')
        try:
            (batch,) = read_records(path, schema, decimal=decimal, thousands=thousands)
        except InvalidRecordError:
            alone.append(None)
        else:
            alone.append(batch.column(0))
    path.write_text("x\n" + "".join(f'"{text}"\n' for text in texts))
    bad: list[Any] = []
    options = {"decimal": decimal, "thousands": thousands}
    batches = list(read_records(path, schema, rejected=bad.extend, **options))
    assert [row.line for row in bad] == [at + 2 for at, column in enumerate(alone) if column is None]
    good = [column for column in alone if column is not None]
    if good:
        assert str(batches[0].column(0)) == str(pa.concat_arrays(good))
