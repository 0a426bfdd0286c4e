"""The numbers that people see are never negative, and never 0 if they are unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from immutables import Map

from txn_engine.protocol.measures import (
    CLOCKS_DIFFER_MS,
    group_lag,
    holder_of,
    measure,
    oldest_open_ms,
    owners_of,
    time_since_ms,
    total,
    transaction_age_ms,
)
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.producers import ProducerEntry
from txn_engine.protocol.transaction_rows import (
    StoredRow,
    TransactionPartition,
    TransactionRow,
    TransactionState,
)

NOW = 1_000_000
AT = TransactionPartition("t", 0, 0)
ELSEWHERE = TransactionPartition("t", 0, 1)


def row(
    state: TransactionState, start_ms: int, *, partitions: tuple[TransactionPartition, ...] = (AT,)
) -> StoredRow:
    stored = TransactionRow("id", state, 7, 0, start_ms=start_ms, update_ms=start_ms, partitions=partitions)
    return StoredRow(3, stored, start_ms, start_ms)


def held(append_time: int) -> PartitionState:
    entry = ProducerEntry(7, 0, append_time=append_time, open_first_offset=4)
    return PartitionState(
        log_end_offset=20,
        last_append_time=append_time,
        producers=Map({7: entry}),
        open_transactions=Map({7: 4}),
    )


@pytest.mark.parametrize(
    ("at_ms", "age_ms"),
    [
        (NOW - 1_500, 1_500),
        (NOW, 0),
        (0, NOW),
        (NOW + CLOCKS_DIFFER_MS, 0),  # two machines in order
        (NOW + CLOCKS_DIFFER_MS + 1, -1),  # a clock that is wrong
        (2**62, -1),
        (-1, -1),
    ],
)
def test_an_age_is_never_negative_and_never_made_up(at_ms: int, age_ms: int) -> None:
    assert time_since_ms(at_ms, NOW) == age_ms


@pytest.mark.parametrize("state", list(TransactionState))
def test_only_what_is_unfinished_has_an_age(state: TransactionState) -> None:
    """Only a transaction that has not ended has an age."""
    unfinished = state is TransactionState.ONGOING or state.is_prepared
    assert transaction_age_ms(row(state, NOW - 5), NOW) == (5 if unfinished else -1)


def test_the_oldest_of_none_is_not_known() -> None:
    assert oldest_open_ms([], NOW) == -1
    assert oldest_open_ms([row(TransactionState.ONGOING, NOW + 3_600_000)], NOW) == -1
    rows = [row(TransactionState.ONGOING, NOW - age) for age in (5, 50)]
    assert oldest_open_ms([*rows, row(TransactionState.PREPARE_COMMIT, 0)], NOW) == 50


def test_a_row_owns_only_what_it_names() -> None:
    """A row owns only the partitions that it names. If a producer's row names another partition, the age of
    what it left here is counted from this partition."""
    state = held(NOW - 900)
    own = holder_of(AT, state, owners_of([row(TransactionState.ONGOING, NOW - 1_000)]), NOW)
    assert own is not None
    assert (own.name, own.is_owned, own.start_offset, own.held_for_ms(NOW)) == ("id", True, 4, 1_000)
    other = row(TransactionState.ONGOING, NOW - 10, partitions=(ELSEWHERE,))
    left = holder_of(AT, state, owners_of([other]), NOW)
    assert left is not None
    assert (left.name, left.is_owned, left.held_for_ms(NOW)) == ("producer 7", False, 900)
    assert holder_of(AT, PartitionState(log_end_offset=20), {}, NOW) is None


def test_a_holder_whose_clock_ran_ahead_has_no_age() -> None:
    left = holder_of(AT, held(NOW + 3_600_000), {}, NOW)
    assert left is not None
    assert left.held_for_ms(NOW) == -1


def test_a_lag_says_what_waits_and_what_is_gone() -> None:
    state = replace(held(NOW), log_start_offset=2)
    assert measure(AT, state, {}, NOW).held_back_offsets == 16
    full = group_lag(4, state)
    assert (full.lag_offsets, full.held_back_offsets, full.gone_offsets) == (0, 16, 0)
    behind = group_lag(0, state)
    assert (behind.lag_offsets, behind.held_back_offsets, behind.gone_offsets) == (4, 16, 2)
    beyond = group_lag(20, state)  # of a reader of uncommitted records
    assert (beyond.lag_offsets, beyond.held_back_offsets, beyond.gone_offsets) == (0, 0, 0)
    nothing = group_lag(-1, state)
    assert (nothing.lag_offsets, nothing.held_back_offsets, nothing.high_watermark) == (-1, 16, 20)
    gone = group_lag(4, None)
    assert {gone.lag_offsets, gone.held_back_offsets, gone.gone_offsets, gone.last_stable_offset} == {-1}


def test_a_sum_of_nothing_known_is_not_zero() -> None:
    assert (total([]), total([-1, -1]), total([-1, 0]), total([-1, 2, 3])) == (-1, -1, 0, 5)
