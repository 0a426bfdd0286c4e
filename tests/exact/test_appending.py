"""If an Arrow table is appended to a topic by `produce` or `append`, the same bits are read, or the table was
refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage.memory import MemoryStore
from tests.exact.arrays import array_of, arrays, counts_in, is_whole
from tests.support.refusals import refused
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRecordError
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


@pytest.mark.parametrize(
    "column",
    [
        pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", None])),
        pa.StructArray.from_arrays([pa.array([1, None], pa.int64())], fields=[STRICT.field(0)]),
    ],
    ids=["a null among a dictionary's values", "a null where the type has none"],
)
def test_nulls_that_parquet_has_no_place_for_are_refused(column: Any) -> None:
    """The append raises the engine's own error, and writes nothing."""
    table = pa.table({"x": column})
    engine, topic = _SHELF.fresh(table.schema)
    with refused(InvalidRecordError, Reason.UNSTORABLE_VALUE):
        engine.partition(topic, 0).append(table)
    assert engine.scan(topic).to_table().num_rows == 0
