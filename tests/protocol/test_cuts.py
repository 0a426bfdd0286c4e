"""The cut rule gives the same vector as a naive search through all vectors."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn_engine.protocol.batches import BatchDescriptor, Control
from txn_engine.protocol.cuts import HIDDEN, Span, SpansSeen, TransactionKey, lowered

PARTITIONS = ("a", "b", "c")
HIGHEST = 6


def is_torn(vector: Mapping[str, int], places: Mapping[str, Span]) -> bool:
    below = [span.end <= vector[at] for at, span in places.items()]
    above = [span.first >= vector[at] for at, span in places.items()]
    return not (all(below) or all(above))


spans = st.tuples(st.integers(0, HIGHEST - 1), st.integers(1, 3)).map(lambda each: Span(each[0], sum(each)))
transactions = st.lists(st.dictionaries(st.sampled_from(PARTITIONS), spans, min_size=1), max_size=7)
offsets = st.fixed_dictionaries({at: st.integers(0, HIGHEST) for at in PARTITIONS})


positions = st.dictionaries(
    st.sampled_from("ab"),
    st.lists(st.tuples(st.integers(0, HIGHEST), st.just("c"), st.integers(0, HIGHEST))),
    max_size=2,
)


def is_ahead(vector: Mapping[str, int], read: Mapping[str, list[tuple[int, str, int]]]) -> bool:
    """Whether a row inside the vector says that its group has read records outside of it."""
    return any(
        row < vector[place] and position > vector[at]
        for at, rows in read.items()
        for position, place, row in rows
    )


@given(found=transactions, stable=offsets, slots=st.sets(st.integers(1, HIGHEST)), read=positions)
def test_it_is_the_highest_vector_that_tears_nothing(
    found: list[dict[str, Span]],
    stable: dict[str, int],
    slots: set[int],
    read: dict[str, list[tuple[int, str, int]]],
) -> None:
    keyed = {TransactionKey(number, 0): places for number, places in enumerate(found)}
    by_partition = {
        at: {key: places[at] for key, places in keyed.items() if at in places} for at in PARTITIONS
    }
    boundaries = {"c": [0, *sorted(slots)]}
    vector = lowered(stable, by_partition, boundaries, read)
    allowed = (
        range(stable["a"] + 1),
        range(stable["b"] + 1),
        [at for at in boundaries["c"] if at <= stable["c"]],
    )
    sound = [
        each
        for each in (dict(zip(PARTITIONS, tried, strict=True)) for tried in product(*allowed))
        if not any(is_torn(each, places) for places in found) and not is_ahead(each, read)
    ]
    assert vector in sound
    assert all(each[at] <= vector[at] for each in sound for at in PARTITIONS)


def records(
    producer_id: int, base: int, *, epoch: int = 0, sequence: int = 0, count: int = 2
) -> BatchDescriptor:
    return BatchDescriptor(
        base, base + count - 1, 0, producer_id, epoch, sequence, is_transactional=True, record_count=count
    )


def marker(producer_id: int, offset: int, *, committed: bool = True, epoch: int = 1) -> BatchDescriptor:
    control = Control.COMMIT if committed else Control.ABORT
    return BatchDescriptor(offset, offset, 0, producer_id, epoch, control=control)


def seen(*batches: BatchDescriptor, is_whole: bool = True) -> SpansSeen:
    found = SpansSeen(is_whole)
    for batch in batches:
        found.see(batch)
    return found


def test_a_transaction_reaches_from_its_first_record_behind_its_last() -> None:
    found = seen(records(7, 0), records(8, 2), records(7, 4, sequence=2), marker(7, 6), marker(8, 7))
    assert found.spans == {TransactionKey(7, 0): Span(0, 6), TransactionKey(8, 0): Span(2, 4)}
    assert [each.offset for each in found.markers] == [6, 7]


def test_an_aborted_transaction_may_lie_anywhere() -> None:
    found = seen(records(7, 0), marker(7, 2, committed=False), records(7, 3, epoch=1))
    assert found.spans == {TransactionKey(7, 1): Span(3, 5)}


def test_records_of_no_transaction_may_lie_anywhere() -> None:
    assert seen(BatchDescriptor(0, 1, 0, 7, 0, 0)).spans == {}


@pytest.mark.parametrize(
    "batches",
    [(records(7, 9, sequence=2),), (marker(7, 9),)],
    ids=["it began before", "only its end is left"],
)
def test_what_began_in_sealed_entries_is_hidden(batches: tuple[BatchDescriptor, ...]) -> None:
    (span,) = seen(*batches, is_whole=False).spans.values()
    assert span.first == HIDDEN
    found = {"a": {TransactionKey(7, 0): span}, "b": {TransactionKey(7, 0): Span(5, 6)}}
    assert lowered({"a": 20, "b": 5}, found, {}, {})["a"] == HIDDEN
    assert lowered({"a": 20, "b": 6}, found, {}, {})["a"] == 20
