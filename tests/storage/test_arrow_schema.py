"""Schema messages that Arrow writes are read, and messages that expand to gigabytes are refused."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pytest

from storage.arrow_schema import SchemaError, read_schema
from tests.storage.schema_bombs import shared_children, shared_metadata, shared_names
from tests.suite.tiers import in_shard

SCHEMAS = [
    pa.schema([]),
    pa.schema([(f"column_{number}", pa.int64()) for number in range(10_000)]),
    pa.schema(
        [
            pa.field(
                "when", pa.timestamp("us", "Europe/Prague"), nullable=False, metadata={"k": "v" * 1_000}
            ),
            pa.field("either", pa.dense_union([pa.field("x", pa.int8()), pa.field("y", pa.string())])),
            pa.field("tree", pa.map_(pa.string(), pa.list_(pa.struct([("z", pa.decimal128(3, 1))])))),
            pa.field("word", pa.dictionary(pa.int8(), pa.large_string())),
            pa.field("runs", pa.run_end_encoded(pa.int32(), pa.int64())),
        ],
        metadata={"pandas": "x" * 100_000},
    ),
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["none", "wide", "of all kinds"])
def test_what_arrow_writes_is_read(schema: pa.Schema) -> None:
    message = schema.serialize().to_pybytes()
    assert read_schema(message).equals(schema, check_metadata=True)
    assert read_schema(message[4:]).equals(schema, check_metadata=True)  # the form before Arrow 0.15


@pytest.mark.parametrize(
    "message",
    in_shard(
        "damage",
        [
            pytest.param(shared_children(60, 1_000), id="children"),
            pytest.param(shared_names(20_000, 1_000_000), id="names"),
            pytest.param(shared_metadata(20_000, 1_000_000), id="metadata"),
            pytest.param(shared_children(60, 20_000), id="many children"),
        ],
        keep=3,
    ),
)
def test_what_stands_for_gigabytes_is_refused(message: bytes) -> None:
    """A message that expands to gigabytes is refused before Arrow reads it, and without much memory."""
    tracemalloc.start()
    try:
        with pytest.raises(SchemaError):
            read_schema(message)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_small_one_of_that_form_is_what_arrow_makes_of_it() -> None:
    """A small message whose references share bytes is read as Arrow reads it, because only the size is
    limited."""
    message = shared_children(10, 10)
    assert read_schema(message).equals(pa.ipc.read_schema(pa.py_buffer(message)))


@pytest.mark.parametrize("messages", in_shard("damage", [4_000, 20_000], keep=1))
def test_changed_messages_are_read_as_arrow_reads_them_or_not_at_all(messages: int) -> None:
    """A changed message is read as Arrow reads it, or is a SchemaError. A message within the limits that
    Arrow reads is never refused."""
    random = Random(7)
    message = SCHEMAS[2].remove_metadata().serialize().to_pybytes()
    for _ in range(messages):
        changed = bytearray(message)
        for _ in range(random.randint(1, 3)):
            changed[random.randrange(len(changed))] = random.choice((0, 1, 255, random.randrange(256)))
        length = random.choice((len(changed), len(changed), random.randrange(len(changed) + 1)))
        _same_as_arrow(bytes(changed[:length]))


def _same_as_arrow(message: bytes) -> None:
    wanted, refused = _read(message, lambda raw: pa.ipc.read_schema(pa.py_buffer(raw)))
    found, of_ours = _read(message, read_schema)
    if wanted is not None and found is None:
        assert isinstance(of_ours, SchemaError)
        assert "take more than" in str(of_ours)
    else:
        assert found == wanted, (of_ours, refused)


def _read(message: bytes, read: Callable[[bytes], pa.Schema]) -> tuple[pa.Schema | None, Exception | None]:
    try:
        return read(message), None
    except (pa.ArrowException, OSError, ValueError) as error:
        return None, error
