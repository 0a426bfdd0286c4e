"""The two hashes against values that Java gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn_engine.producer.partitioner import choose_partitions, split_by_key
from txn_engine.protocol.hashing import java_hash, murmur2, partition_for_id, partition_for_key


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("\U0001f600", 1772899)],
)
def test_java_hash(text: str, expected: int) -> None:
    """java_hash is String.hashCode, over UTF-16 units."""
    assert java_hash(text) == expected


def test_partition_of_the_smallest_int_is_zero() -> None:
    """Kafka's Utils.abs maps the smallest int to 0, unlike Java's Math.abs."""
    assert partition_for_id("polygenelubricants", 50) == 0


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2(key: bytes, expected: int) -> None:
    """murmur2 gives the values that Kafka's own UtilsTest has."""
    assert murmur2(key) == expected


@given(st.lists(st.one_of(st.none(), st.binary(max_size=20)), min_size=1, max_size=50), st.integers(2, 7))
def test_binary_keys_go_where_kafka_sends_them(keys: list[bytes | None], partitions: int) -> None:
    """The vectorised partitioner agrees with the scalar one; null keys go to the partition whose turn it is."""
    chosen = choose_partitions(pa.array(keys, pa.binary()), partitions, 1)
    assert chosen.tolist() == [1 if key is None else partition_for_key(key, partitions) for key in keys]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50), st.integers(2, 7))
def test_integer_keys_are_hashed_big_endian(keys: list[int], partitions: int) -> None:
    """int64 keys are hashed as eight bytes, big-endian, as Kafka's LongSerializer writes them."""
    chosen = choose_partitions(pa.array(keys, pa.int64()), partitions, 0)
    assert chosen.tolist() == [
        partition_for_key(key.to_bytes(8, "big", signed=True), partitions) for key in keys
    ]


@given(st.lists(st.text(max_size=8), min_size=1, max_size=30))
def test_split_keeps_order_and_loses_nothing(keys: list[str]) -> None:
    """Splitting by key keeps every record once, and the order within a partition; a sliced table splits alike."""
    table = pa.table({"k": pa.array(["x", *keys, "y"]), "n": pa.array(range(len(keys) + 2))}).slice(
        1, len(keys)
    )
    parts = dict(split_by_key(table, "k", 4, 0))
    assert sorted(n for part in parts.values() for n in part["n"].to_pylist()) == list(
        range(1, len(keys) + 1)
    )
    for partition, part in parts.items():
        assert part["n"].to_pylist() == sorted(part["n"].to_pylist())
        assert {partition_for_key(k.encode(), 4) for k in part["k"].to_pylist()} == {partition}
    assert np.sum([part.num_rows for part in parts.values()]) == len(keys)
