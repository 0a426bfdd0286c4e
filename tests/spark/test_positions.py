"""A stream's offsets in Spark's journal, and how a limit is shared among partitions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refused
from txn_engine import TopicPartition
from txn_engine.errors import CorruptObjectError
from txn_engine.reasons import Reason
from txn_engine.spark.source.positions import Positions, distance, limited, whole_files

OFFSETS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d-e"]), st.integers(0, 5)),
    st.integers(0, 10_000),
    min_size=1,
)


@given(offsets=OFFSETS, later=st.dictionaries(st.sampled_from(["a", "b.c"]), st.integers(0, 3)))
def test_what_is_journalled_comes_back(offsets: dict[TopicPartition, int], later: dict[str, int]) -> None:
    """Offsets are the same after they were written and read, with the incarnation of each topic that was
    created again."""
    shown = Positions(offsets, later).to_json()
    back = Positions.from_json(json.loads(json.dumps(shown)))
    assert back.offsets == offsets
    assert all(back.incarnation(topic) == number for topic, number in later.items())


def test_kafka_s_form() -> None:
    """Offsets have the form that Kafka's users know from a query's progress."""
    offsets = {TopicPartition("payments", 1): 7, TopicPartition("payments", 0): 5}
    assert Positions(offsets).to_json() == {"payments": {"0": 5, "1": 7}}


@pytest.mark.parametrize(
    "value",
    [None, 5, [], {"a": 5}, {"a": {"x": 1}}, {"a": {"0": -1}}, {"a": {"0": 1.5}}, {"_incarnations": 5}],
)
def test_another_source_s_offsets(value: object) -> None:
    """The checkpoint of another query is refused with a description of what it is."""
    with refused(CorruptObjectError, Reason.NOT_OUR_CHECKPOINT):
        Positions.from_json(value)


@given(start=OFFSETS, more=OFFSETS, most=st.integers(1, 20_000))
def test_a_limit_is_kept_and_used(
    start: dict[TopicPartition, int], more: dict[TopicPartition, int], most: int
) -> None:
    """A batch never has more than the limit, uses all of it if enough records wait, never goes back, and
    gives each partition with records at least one."""
    end = {tp: start.get(tp, 0) + more.get(tp, 0) for tp in {*start, *more}}
    cut = limited(start, end, most)
    assert set(cut) == set(end)
    assert all(start.get(tp, 0) <= cut[tp] <= end[tp] for tp in end)
    assert distance(start, cut) == min(most, distance(start, end))
    busy = [tp for tp in end if end[tp] > start.get(tp, 0)]
    if most >= len(busy):
        assert all(cut[tp] > start.get(tp, 0) for tp in busy)


def test_a_limit_is_shared_in_proportion() -> None:
    """A partition with ten times as many waiting records gets about ten times as much of the limit."""
    tens, ones = TopicPartition("a", 0), TopicPartition("a", 1)
    cut = limited({}, {tens: 10_000, ones: 1_000}, 1_100)
    assert cut[tens] + cut[ones] == 1_100
    assert abs(cut[tens] - 1_000) <= 1


@given(start=OFFSETS, more=OFFSETS, most=st.integers(1, 20_000), data=st.data())
def test_ends_between_files_keep_the_limit(
    start: dict[TopicPartition, int], more: dict[TopicPartition, int], most: int, data: st.DataObject
) -> None:
    """Ends that are moved to the bounds of files have never more than the limit and never much less, and a
    partition with records still gets some."""
    end = {tp: start.get(tp, 0) + more.get(tp, 0) for tp in {*start, *more}}
    limit = limited(start, end, most)
    cut = {
        tp: (data.draw(st.integers(0, at - 1)), data.draw(st.integers(at + 1, end[tp])))
        for tp, at in limit.items()
        if 0 < at < end[tp] and data.draw(st.booleans())
    }
    found = whole_files(start, limit, cut, most)
    assert set(found) == set(limit)
    assert distance(start, found) <= max(most, distance(start, limit))
    assert distance(start, found) * 8 >= distance(start, limit) * 7
    for tp, at in found.items():
        assert start.get(tp, 0) <= at <= end[tp]
        assert (at > start.get(tp, 0)) == (limit[tp] > start.get(tp, 0)) or at == cut[tp][1]
        assert at in (limit[tp], *cut.get(tp, ()))


def test_ends_between_files() -> None:
    """An end inside a file is moved to the file's beginning, or to its end if the limit has room for that.
    Otherwise it stays."""
    a, b = TopicPartition("a", 0), TopicPartition("a", 1)
    assert whole_files({}, {a: 90, b: 90}, {a: (80, 110), b: (85, 95)}, 180) == {a: 80, b: 95}
    assert whole_files({}, {a: 90, b: 90}, {a: (10, 300), b: (85, 95)}, 180) == {a: 90, b: 90}
    assert whole_files({a: 20}, {a: 90, b: 90}, {a: (10, 300), b: (85, 95)}, 160) == {a: 90, b: 85}
