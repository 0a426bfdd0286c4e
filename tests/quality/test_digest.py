"""A digest says whether two sets of rows are equal, whichever reader read them and in whatever order."""

from __future__ import annotations

import datetime as dt
import os
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txn_engine.errors import InvalidRequestError
from txn_engine.exact import require_whole
from txn_engine.quality.digest import Digest, digest_of, row_keys
from txn_engine.reasons import Reason

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("natural", pa.uint64()),
        ("amount", pa.decimal128(38, 2)),
        ("wide", pa.decimal256(60, 5)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("name", pa.string()),
        ("blob", pa.binary()),
        ("good", pa.bool_()),
        ("part", pa.float64()),
        ("less", pa.float32()),
        ("tags", pa.list_(pa.string())),
        ("inner", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.int64()))])),
        ("pairs", pa.map_(pa.string(), pa.int64())),
    ]
)
WORDS = st.none() | st.text(max_size=3)
NUMBERS = st.none() | st.integers(-(2**31), 2**31 - 1)
ROW = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "small": st.none() | st.integers(-128, 127),
        "natural": st.none() | st.integers(0, 2**64 - 1),
        "amount": st.none() | st.integers(-(10**37), 10**37).map(lambda n: Decimal(n).scaleb(-2)),
        "wide": st.none() | st.integers(-(10**20), 10**20).map(Decimal),
        "day": st.none() | st.dates(),
        "at": st.none() | st.datetimes(timezones=st.just(dt.UTC), min_value=dt.datetime(1700, 1, 1)),  # noqa: DTZ001
        "name": WORDS,
        "blob": st.none() | st.binary(max_size=3),
        "good": st.none() | st.booleans(),
        "part": st.none() | st.floats(allow_nan=False),
        "less": st.none() | st.floats(width=32, allow_nan=False),
        "tags": st.none() | st.lists(WORDS, max_size=3),
        "inner": st.none()
        | st.fixed_dictionaries({"x": NUMBERS, "y": st.none() | st.lists(NUMBERS, max_size=2)}),
        "pairs": st.none()
        | st.dictionaries(st.text(max_size=2), NUMBERS, max_size=2).map(lambda d: list(d.items())),
    }
)

EXAMPLES = 1_000 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 20


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@settings(max_examples=EXAMPLES)
@given(st.lists(ROW, max_size=12), st.randoms(use_true_random=False), st.integers(1, 12))
def test_order_and_chunks_do_not_count(rows: list[dict[str, Any]], chance: random.Random, cut: int) -> None:
    """Shuffled rows, other chunks and another order of columns give the same digest, and the digests of parts
    add up to it."""
    whole = digest_of(table_of(rows))
    shuffled = rows.copy()
    chance.shuffle(shuffled)
    table = pa.concat_tables([table_of(shuffled[:cut]), table_of(shuffled[cut:])])
    assert digest_of(table) == whole
    assert digest_of(table.select(SCHEMA.names[::-1])) == whole
    assert digest_of(table.slice(0, cut)).plus(digest_of(table.slice(cut))) == whole
    assert whole.less(digest_of(table.slice(cut))) == digest_of(table.slice(0, cut))
    assert whole.rows == len(rows)


@settings(max_examples=EXAMPLES)
@given(ROW, ROW, st.sampled_from(SCHEMA.names))
def test_another_value_is_another_digest(one: dict[str, Any], other: dict[str, Any], name: str) -> None:
    """A changed cell, and values swapped between two rows, change the digest."""
    changed = {**one, name: other[name]}
    same = table_of([one]).equals(table_of([changed]))
    assert (digest_of(table_of([one])) == digest_of(table_of([changed]))) == same
    swapped = [{**one, name: other[name]}, {**other, name: one[name]}]
    rows = sorted(row_keys(table_of([one, other])))
    assert (digest_of(table_of(swapped)) == digest_of(table_of([one, other]))) == (
        sorted(row_keys(table_of(swapped))) == rows
    )


def test_a_row_twice_is_not_a_row_once() -> None:
    """The digest depends on how often a row is there."""
    once = table_of([{"id": 1}])
    assert (
        digest_of(pa.concat_tables([once, once])) == digest_of(once).plus(digest_of(once)) != digest_of(once)
    )


def test_nothing_is_not_the_empty_value() -> None:
    """A null has another digest than the empty value of its type."""
    for name, value in (("name", ""), ("id", 0), ("tags", []), ("good", False), ("part", 0.0)):
        assert digest_of(table_of([{name: None}])) != digest_of(table_of([{name: value}]))
    assert digest_of(table_of([{"inner": None}])) != digest_of(table_of([{"inner": {"x": None, "y": None}}]))


def test_values_do_not_move_between_columns_and_members() -> None:
    """The same words in another column, list or position have another digest."""
    pairs = [
        ({"name": "a"}, {"blob": b"a"}),
        ({"tags": ["a", "b"]}, {"tags": ["b", "a"]}),
        ({"tags": ["ab"]}, {"tags": ["a", "b"]}),
        ({"tags": []}, {"tags": [None]}),
    ]
    for one, other in pairs:
        assert digest_of(table_of([one])) != digest_of(table_of([other]))


PLAIN = ["id", "small", "natural", "amount", "day", "at", "name", "blob", "good", "part", "less", "tags"]


@settings(max_examples=EXAMPLES)
@given(st.lists(ROW, min_size=1, max_size=8))
def test_who_reads_the_file_does_not_count(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    """PyArrow, DuckDB and Polars give the same digest for the same Parquet file."""
    path = tmp_path_factory.mktemp("digest") / "rows.parquet"
    schema = pa.schema([SCHEMA.field(name) for name in PLAIN])
    table = table_of(rows).select(PLAIN)
    pq.write_table(table, path)
    expected = digest_of(table)
    assert digest_of(pq.read_table(path)) == expected
    with duckdb.connect() as connection:
        read = connection.sql(f"SELECT * FROM read_parquet('{path}')").to_arrow_table()
    assert digest_of(read.cast(schema)) == expected
    assert digest_of(pl.read_parquet(path).to_arrow().select(PLAIN).cast(schema)) == expected


def test_known_answers() -> None:
    """The digest of a row may not change from one version to the next, because digests are stored."""
    row = {
        "id": 7,
        "amount": Decimal("12.50"),
        "name": "PRIJEM",
        "day": dt.date(1993, 1, 1),
        "tags": ["a", None],
    }
    assert digest_of(table_of([row])) == KNOWN


KNOWN = Digest(1, 0x6CE32A7EFCAFA7C6, 0x8E63492BD7DF4DBE)


def test_a_type_without_a_digest_is_refused() -> None:
    """A column whose type has no digest is refused."""
    with pytest.raises(InvalidRequestError) as refused:
        digest_of(pa.table({"x": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}))
    assert refused.value.reason is Reason.UNSUPPORTED_TYPE


def test_nothing_has_the_digest_of_nothing(tmp_path: Path) -> None:
    """A table without rows has the same digest, whatever its columns are."""
    assert digest_of(SCHEMA.empty_table()) == Digest()
    assert row_keys(SCHEMA.empty_table()) == []


@pytest.mark.parametrize(
    "kind", [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(10, 2), pa.decimal256(50, 2)]
)
@pytest.mark.parametrize("more", [0, 1, 12, 100])
def test_decimals_in_a_longer_buffer(kind: Any, more: int) -> None:
    """Arrow may leave bytes behind the values, as it does below lists of a fixed size that are null."""
    plain = pa.array([Decimal("1.50"), Decimal("-2.25"), Decimal(0)], kind)
    buffers = [None, pa.py_buffer(plain.buffers()[1].to_pybytes()[: 3 * kind.bit_width // 8] + more * b"\1")]
    for offset in (0, 1):
        odd = pa.Array.from_buffers(kind, 3 - offset, buffers, offset=offset)
        assert digest_of(pa.table({"v": odd})) == digest_of(pa.table({"v": plain.slice(offset)}))
        require_whole(odd)
    assert digest_of(pa.table({"v": pa.Array.from_buffers(kind, 0, [None, None])})).rows == 0
