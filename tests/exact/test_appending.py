"""If an Arrow table is appended to a topic by `produce` or `append`, the same bits are read, or the table was
refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage.memory import MemoryStore
from tests.exact.arrays import array_of, arrays, counts_in, is_whole
from tests.support.refusals import refused
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRecordError
from txn_engine.files import BadRow, read_records
from txn_engine.maintain import MaintenancePolicy
from txn_engine.reasons import Reason

pytestmark = [pytest.mark.exact, pytest.mark.timeout(21_600)]


@given(arrays(), st.booleans(), st.sampled_from(["flat", "list", "struct"]))
@example(array_of(pa.decimal256(1, 0), [-(2**255)]), False, "flat")  # found by 100,000 examples
@example(array_of(pa.decimal128(38, 2), [5, -(2**127)]), True, "list")
@example(array_of(pa.decimal128(5, 2), [10**30]), True, "flat")
@example(array_of(pa.date64(), [86_400_001]), True, "struct")
def test_what_is_appended_is_read_or_was_refused(array: Any, by_producer: bool, shape: str) -> None:
    """This holds for every type, alone and inside others. Values that a type does not have are refused,
    whatever made the table."""
    column, flat = _shaped(array, shape)
    table = pa.table({"x": column})
    engine, topic = _SHELF.fresh(table.schema)
    try:
        if by_producer:
            with engine.producer() as producer:
                producer.produce(topic, table).result()
        else:
            engine.partition(topic, 0).append(table)
    except InvalidRecordError:
        assert not is_whole(array) or _seconds_out_of_range(array)
        return
    found = engine.scan(topic).to_table(columns=["x"]).column("x")
    assert found.type == column.type
    assert counts_in(flat(found)) == counts_in(array)
    assert is_whole(array)


MAP = pa.map_(pa.string(), pa.int64())
ONCE, TWICE = [("a", 1), ("b", 2)], [("b", 1), ("a", 1), ("b", 2)]
PAIR = pa.struct([("x", pa.int64())])
FLOATS = pa.list_(pa.float64())


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (MAP, [ONCE, None, [], ONCE], TWICE),
        (pa.list_(MAP), [[ONCE, None, ONCE], None], [ONCE, TWICE]),
        (pa.struct([("m", MAP)]), [{"m": ONCE}, None], {"m": TWICE}),
        (pa.map_(pa.int32(), MAP), [[(1, ONCE), (2, ONCE)]], [(1, TWICE)]),
        (pa.map_(pa.float16(), pa.int64()), [[(np.float16(1), 1)]], [(np.float16(1), 1), (np.float16(1), 2)]),
        (
            pa.map_(pa.float64(), pa.int64()),
            [[(0.0, 1), (1.0, 1)], [(-0.0, 1)], [(math.nan, 1)]],
            [(0.0, 1), (-0.0, 2)],
        ),
        (pa.map_(pa.float32(), MAP), [[(0.0, ONCE)]], [(math.nan, ONCE), (-math.nan, ONCE)]),
        (pa.map_(FLOATS, pa.int64()), [[([0.0], 1), ([1.0], 1)]], [([0.0], 1), ([-0.0], 2)]),
        (pa.map_(PAIR, pa.int64()), [[({"x": 1}, 1), ({"x": 2}, 1)]], [({"x": 1}, 1), ({"x": 1}, 2)]),
        (pa.map_(pa.dictionary(pa.int8(), pa.string()), pa.int64()), [ONCE], TWICE),
    ],
)
def test_a_map_with_a_key_twice_is_refused(kind: Any, good: list[Any], bad: Any, tmp_path: Path) -> None:
    """No reader says which of its values counts. 0.0 and -0.0 are one key, and all NaN are: so DuckDB and Spark have
    it. The map is refused by its row when it is produced, and is a bad row of a file, as in JSON."""
    engine, topic = _SHELF.fresh(pa.schema([("x", kind)]))
    log = engine.partition(topic, 0)
    log.append(pa.table({"x": array(good, kind)}))
    with pytest.raises(InvalidRecordError, match=f"row {len(good)},"):
        log.append(pa.table({"x": array([*good, bad, *good], kind)}))
    assert engine.scan(topic).to_table(["x"]).num_rows == len(good)
    path, rejected = tmp_path / "x.parquet", list[BadRow]()
    pq.write_table(pa.table({"x": array([bad, *good, bad], kind)}), path)
    read = read_records(path, pa.schema([("x", kind)]), rejected=rejected.extend)
    assert sum(batch.num_rows for batch in read) == len(good)
    assert [row.line for row in rejected] == [1, len(good) + 2]


def array(values: list[Any], kind: Any) -> Any:
    """The values, also of keys that Arrow does not make dictionaries of."""
    if pa.types.is_map(kind) and pa.types.is_dictionary(kind.key_type):
        plain = pa.array(values, pa.map_(kind.key_type.value_type, kind.item_type))
        return pa.MapArray.from_arrays(plain.offsets, plain.keys.cast(kind.key_type), plain.items)
    return pa.array(values, kind)


class _Shelf:
    """A store for many topics. Another store replaces it before it grows large."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._topics = 0

    def fresh(self, schema: pa.Schema) -> tuple[Engine, str]:
        """A topic that nobody has written to."""
        if self._engine is None or self._topics % 200 == 0:
            if self._engine is not None:
                self._engine.close()
            self._engine = Engine(MemoryStore())
        self._topics += 1
        topic = f"topic-{self._topics}"
        self._engine.admin.create_topic(topic, partitions=1, schema=schema)
        return self._engine, topic


_SHELF = _Shelf()


def _seconds_out_of_range(array: Any) -> bool:
    """Parquet has no seconds, so a moment is kept as milliseconds, and 64 bits hold only a thousandth of the
    seconds."""
    if not (pa.types.is_timestamp(array.type) and array.type.unit == "s"):
        return False
    return any(count is not None and abs(count) > 2**63 // 1_000 for count in counts_in(array))


def _shaped(array: Any, shape: str) -> tuple[Any, Any]:
    if shape == "list":
        offsets = pa.array(range(len(array) + 1), pa.int32())
        return pa.ListArray.from_arrays(offsets, array), lambda c: c.combine_chunks().flatten()
    if shape == "struct":
        made = pa.StructArray.from_arrays([array], ["inner"])
        return made, lambda c: c.combine_chunks().field("inner")
    return array, lambda c: c


STRICT = pa.struct([pa.field("x", pa.int64(), nullable=False)])


def test_a_null_among_a_dictionarys_values_is_a_null() -> None:
    """The value that stands for it is null in the topic too."""
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", None]))
    engine, topic = _SHELF.fresh(pa.schema([("x", column.type)]))
    engine.partition(topic, 0).append(pa.table({"x": column}))
    found = engine.scan(topic).to_table(columns=["x"]).column("x")
    assert (found.type, found.to_pylist()) == (column.type, ["a", None])


def test_a_dictionary_has_as_many_values_as_its_records() -> None:
    """Files of different values are merged and read, though one dictionary of the type has no room for all of them."""
    kind = pa.dictionary(pa.int8(), pa.string())
    texts = [str(number) for number in range(240)]
    engine, topic = _SHELF.fresh(pa.schema([("x", kind)]))
    for half in (texts[:120], texts[120:]):
        engine.partition(topic, 0).append(pa.table({"x": pa.array(half).dictionary_encode().cast(kind)}))
    engine.maintenance.compact(topic, policy=MaintenancePolicy(min_files=2))
    assert len(engine.scan(topic).files()) == 1
    found = engine.scan(topic).to_table(columns=["x"]).column("x")
    assert (found.type, found.to_pylist()) == (kind, texts)


@pytest.mark.parametrize("by_key", [False, True])
def test_a_column_of_another_layout_is_taken(by_key: bool) -> None:
    """Views, lists of any layout, members in another order and nulls alone have the topic's values, and become its
    type."""
    inside = pa.struct([("a", pa.string()), ("b", pa.list_(pa.int64()))])
    schema = pa.schema(
        [("k", pa.int64()), ("x", inside), ("y", pa.list_(pa.string_view())), ("z", pa.float16())]
    )
    other = pa.struct([("b", pa.large_list(pa.int64())), ("a", pa.dictionary(pa.int8(), pa.string()))])
    member = pa.array(["u", None]).dictionary_encode().cast(other.field("a").type)
    lists = pa.array([[1], None], other.field("b").type)
    columns = [
        pa.array([1, 2], pa.int64()),
        pa.StructArray.from_arrays([lists, member], fields=list(other)),
        pa.array([["v"], []], pa.large_list_view(pa.string())),
        pa.nulls(2),
    ]
    engine = Engine(MemoryStore())
    engine.admin.create_topic("t", partitions=2, schema=schema, key="k" if by_key else None)
    with engine.producer() as producer:
        producer.produce("t", pa.table(columns, names=schema.names)).result()
    found = engine.scan("t").to_table(schema.names)
    assert found.schema.types == schema.types
    assert sorted(found.to_pylist(), key=lambda row: row["k"]) == [
        {"k": 1, "x": {"a": "u", "b": [1]}, "y": ["v"], "z": None},
        {"k": 2, "x": {"a": None, "b": None}, "y": [], "z": None},
    ]


def test_a_null_where_the_type_has_none_is_refused() -> None:
    """The append raises the engine's own error, and writes nothing."""
    column = pa.StructArray.from_arrays([pa.array([1, None], pa.int64())], fields=[STRICT.field(0)])
    table = pa.table({"x": column})
    engine, topic = _SHELF.fresh(table.schema)
    with refused(InvalidRecordError, Reason.UNSTORABLE_VALUE):
        engine.partition(topic, 0).append(table)
    assert engine.scan(topic).to_table().num_rows == 0
