"""Row groups are cut by what they hold, not by what they compress to, so whatever is written can be read."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import LARGE, SMALL, decode_parquet, encode_json, encode_parquet, open_parquet, row_groups
from storage.envelope import JSON_BYTES_MAX, decode_json
from storage.errors import ObjectTooLargeError
from storage.reasons import StoreReason
from storage.row_groups import ROW_BYTES_MAX, load_at_most, load_of, row_too_large
from tests.suite.tiers import in_shard
from tests.support.refusals import refused

Column: TypeAlias = "Callable[[random.Random, int], pa.Array[Any]]"


def of(kind: pa.DataType, *values: object) -> Column:
    return lambda chance, rows: pa.array([chance.choice(values) for _ in range(rows)], kind)


COLUMNS: dict[str, Column] = {
    "int8": of(pa.int8(), None, 1),
    "bool": of(pa.bool_(), None, True, False),
    "text": of(pa.string(), None, "", "x" * 300),
    "decimal": of(pa.decimal128(38, 2), None),
    "text view": of(pa.string_view(), None, "", "x" * 300),
    "binary view": of(pa.binary_view(), None, b"", b"x" * 300),
    "dictionary": lambda chance, rows: of(pa.string(), "x" * 500, "y")(chance, rows).dictionary_encode(),
    "dictionary of numbers": lambda chance, rows: of(pa.int64(), 1, 2)(chance, rows).dictionary_encode(),
    "list": of(pa.list_(pa.int8()), None, [], [1, None, 2]),
    "list of nulls": of(pa.list_(pa.int64()), [None] * 40, [1]),
    "list of bool": of(pa.list_(pa.bool_()), None, [], [True, None] * 9),
    "list of lists": of(pa.list_(pa.list_(pa.int64())), [[None] * 4] * 3, [None, []], None),
    "list of structs": of(pa.list_(pa.struct([("a", pa.int8()), ("b", pa.string())])), [{"a": 1}], [], None),
    "map": of(pa.map_(pa.string(), pa.int8()), [("key", 1)] * 3, [], None),
    "three": of(pa.list_(pa.int8(), 3), None, [1, 2, None]),
    "struct": of(pa.struct([("a", pa.int16())]), None, {"a": 1}, {"a": None}),
}


def footer(table: pa.Table, **settings: Any) -> pq.FileMetaData:
    data = encode_parquet(table, kind="data", **settings)
    return open_parquet(data, key="some/key").file.metadata


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("seed", range(5))
def test_a_load_is_no_less_than_what_is_written(column: Column, seed: int) -> None:
    """The computed load is at least as large as the bytes of pages and the elements of lists that are
    written, for a slice of a table too."""
    chance = random.Random(seed)
    table = pa.table({"c": column(chance, 4_000)}).slice(chance.randrange(1_000), 2_000)
    load = load_of(table)
    group = footer(table, profile=SMALL).row_group(0)
    pages = max(1, group.total_byte_size >> 20) * 300
    assert load.bytes + pages >= group.total_byte_size
    stored = sum(value is not None for value in leaves(table.column(0).to_pylist()))
    if table.schema.field(0).type.num_fields:
        assert load.nulls >= group.column(0).num_values - stored or group.column(0).num_values == 2_000


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("seed", range(5))
def test_what_buffers_say_is_no_less_than_the_load(column: Column, seed: int) -> None:
    """What is known at once of a table is at least its load: of a slice, and of one chunk many times over too. Of types
    whose buffers do not say it, nothing is known at once.
    """
    chance = random.Random(seed)
    array = column(chance, 200)
    tables = [
        pa.table({"c": array, "n": pa.array(range(200))}),
        pa.table({"c": array}).slice(chance.randrange(100), chance.randrange(1, 100)),
        pa.table({"c": pa.chunked_array([array] * 50)}),
        pa.table(
            {
                "c": pa.array(
                    [{"inside": value} for value in array.to_pylist()], pa.struct([("inside", array.type)])
                )
            }
        )
        if not pa.types.is_dictionary(array.type)
        else pa.table({"c": array}),
    ]
    for table in tables:
        quick = load_at_most(table)
        if quick is not None:
            load = load_of(table)
            assert quick.bytes >= load.bytes
            assert quick.nulls >= load.nulls


def test_a_small_table_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of a few rows, as a snapshot is, is one part without a look at each of its leaves."""
    struct = pa.struct([(f"field {number}", pa.int64()) for number in range(30)])
    lists = pa.list_(pa.struct([("topic", pa.string()), ("partition", pa.int64())]))
    table = pa.table({"section": ["a", "b"], "file": pa.nulls(2, struct), "partitions": pa.nulls(2, lists)})
    monkeypatch.setattr(row_groups, "load_of", lambda table: pytest.fail("each leaf was looked into"))
    assert list(row_groups.row_groups(table, 1_000)) == [table]


def leaves(value: Any) -> Iterator[Any]:
    """The values of the first leaf column, nulls too."""
    if isinstance(value, list):
        for part in value:
            yield from leaves(part)
    elif isinstance(value, (dict, tuple)):
        yield from leaves(next(iter(value.values())) if isinstance(value, dict) else value[0])
    else:
        yield value


@given(
    st.integers(0, 2**32),
    st.sets(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3),
    st.integers(1, 400),
)
def test_row_groups_keep_the_limits_and_every_row(seed: int, names: set[str], rows: int) -> None:
    """However a table is cut, its parts are the whole table, and each part is within the limits or a single
    row."""
    chance = random.Random(seed)
    table = pa.table({name: COLUMNS[name](chance, rows) for name in sorted(names)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_groups, "ROW_GROUP_BYTES", 4_000)
        patch.setattr(row_groups, "ROW_GROUP_NULLS", 100)
        parts = list(row_groups.row_groups(table, 150))
        assert pa.concat_tables(parts).equals(table)
        assert all(
            part.num_rows == 1 or (load_of(part).fits(4_000, 100) and part.num_rows <= 150) for part in parts
        )
        data = encode_parquet(table, kind="data", profile=LARGE)
    read, _ = decode_parquet(data, key="some/key")
    assert read.num_rows == rows


def test_an_empty_table_is_one_row_group() -> None:
    """Empty tables are written as they always were, so a seal has the same bytes."""
    assert footer(pa.table({"a": pa.array([], pa.int64())})).num_row_groups <= 1


@pytest.mark.parametrize(
    "kind", in_shard("damage", ["text", "dictionary", "lists of nulls"], keep=["dictionary"])
)
def test_a_gibibyte_that_compresses_to_nothing_is_read(kind: str) -> None:
    """A gibibyte that compresses to almost nothing can be read, although readers refuse more than 512 MiB in
    less than 8. Before the change, one row group held it all."""
    if kind == "text":
        column: Any = pa.array(["x" * (1 << 20)] * 600)
    elif kind == "dictionary":
        column = pa.DictionaryArray.from_arrays(pa.array([0] * 600, pa.int8()), pa.array(["x" * (1 << 20)]))
    else:
        ends = pa.array(range(0, 20_000_001, 1_000), pa.int32())
        column = pa.ListArray.from_arrays(ends, pa.nulls(20_000_000, pa.bool_()))
    assert footer(pa.table({"c": column}), profile=LARGE).num_row_groups >= 5


def test_one_value_larger_than_a_row_group_may_be() -> None:
    """A value that is too large for a row group is named by its row, before anything is written."""
    large, small = "x" * (ROW_BYTES_MAX + 1), "x"
    found = row_too_large(pa.table({"c": [small, small, large, small]}))
    assert found is not None
    assert found[0] == 2
    assert (
        row_too_large(pa.table({"c": [small, "x" * (ROW_BYTES_MAX >> 1), "x" * (ROW_BYTES_MAX >> 1)]}))
        is None
    )


def test_a_footer_larger_than_readers_take_is_not_written() -> None:
    """A footer larger than readers accept is not written."""
    wide = pa.table({f"column_{number:060}": [1] for number in range(30_000)})
    with refused(ObjectTooLargeError, StoreReason.FOOTER_TOO_LARGE):
        encode_parquet(wide, kind="data")


def test_json_larger_than_readers_take_is_not_written() -> None:
    """JSON larger than readers accept is not written, and the largest that is written can be read."""
    room = JSON_BYTES_MAX - len(encode_json({"a": ""}, "some"))
    data = encode_json({"a": "x" * room}, "some")
    assert decode_json(data, key="some/key", kind="some")["a"] == "x" * room
    with refused(ObjectTooLargeError, StoreReason.OBJECT_TOO_LARGE):
        encode_json({"a": "x" * (room + 1)}, "some")
