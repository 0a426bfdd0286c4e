"""Compaction by key on the pure core: which rewrites and clean rows are legal, and what state they lead to on
replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.protocol.memory_log import Log, at, busy, error
from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.protocol.batches import BatchDescriptor, Control
from txn_engine.protocol.cleaning import Cleaning
from txn_engine.protocol.controls import Clean, Rewrite, decode_control, encode_control
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.proposals import Appended, CleanProposal, Duplicate, RewriteProposal
from txn_engine.protocol.replay import apply
from txn_engine.reasons import Reason

DAY_MS = 86_400_000
NOTHING = Duplicate(-1, -1)


def by_key(log: Log, *bases: int, **changes: object) -> RewriteProposal:
    """A rewrite of these files by key. `changes` are made to the output that would keep everything."""
    return replace(log.merged(*bases, **changes), tombstones_to=0)


def nothing_kept(log: Log, *bases: int) -> RewriteProposal:
    return RewriteProposal(log.merged(*bases).inputs, (), tombstones_to=0)


# --- rewrites by key --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"record_count": 3},
        {"record_count": 1, "base_offset": 2, "last_offset": 2},
        {"record_count": 2, "base_offset": 1, "last_offset": 5},
    ],
)
def test_an_output_may_hold_fewer_records(changes: dict[str, int]) -> None:
    """A rewrite by key may keep any of its inputs' records, each at its own offset. Its inputs are dead
    afterwards."""
    log = busy()
    at(log.append(by_key(log, 0, 3, 4, **changes))[0])
    first = changes.get("base_offset", 0)
    assert set(log.state.live) == {first, 9}
    assert log.state.live[first].record_count == changes.get("record_count", 6)
    assert sorted(dead.log_file.base_offset for dead in log.state.dead.values()) == [0, 3, 4, 6]


def test_nothing_may_be_left_of_a_range() -> None:
    """A rewrite by key may have no output. The offsets become a gap, and the LSO stays where it is."""
    log = busy()
    end, stable = log.state.log_end_offset, log.state.last_stable_offset
    rewrite = nothing_kept(log, 0, 3)
    at(log.append(rewrite)[0])
    assert set(log.state.live) == {4, 9}
    assert (log.state.log_end_offset, log.state.last_stable_offset) == (end + 1, stable)
    assert error(log.append(rewrite)[0]) is InvalidRequestError


def undecided(log: Log) -> RewriteProposal:
    return RewriteProposal((log.state.undecided[12],), (), tombstones_to=0)


def above_the_lso(log: Log) -> RewriteProposal:
    log.plain()
    return nothing_kept(log, 13)


def rewritten(log: Log) -> RewriteProposal:
    mine = by_key(log, 0, 3, record_count=2)
    log.append(by_key(log, 3, 4, record_count=1))
    return mine


def two_outputs(log: Log) -> RewriteProposal:
    one, other = by_key(log, 0, 3), by_key(log, 4)
    return replace(one, inputs=one.inputs + other.inputs, outputs=one.outputs + other.outputs)


ILLEGAL: dict[str, Callable[[Log], RewriteProposal]] = {
    "no inputs": lambda log: RewriteProposal((), (), tombstones_to=0),
    "nothing left, and not by key": lambda log: replace(nothing_kept(log, 0), tombstones_to=-1),
    "fewer records, and not by key": lambda log: log.merged(0, 3, record_count=3),
    "undecided": undecided,
    "at the LSO and above": above_the_lso,
    "rewritten by another": rewritten,
    "two outputs": two_outputs,
    "more records": lambda log: by_key(log, 0, 3, record_count=5),
    "no records": lambda log: by_key(log, 0, 3, record_count=0),
    "more than there are offsets": lambda log: by_key(log, 0, 3, base_offset=3, record_count=2),
    "from before": lambda log: by_key(log, 3, 4, base_offset=2),
    "beyond": lambda log: by_key(log, 0, 3, last_offset=4),
    "backwards": lambda log: by_key(log, 0, 3, base_offset=3, last_offset=0),
    "older": lambda log: by_key(log, 0, 3, first_timestamp=0),
    "newer": lambda log: by_key(log, 0, 3, max_timestamp=9_999),
    "around a file that is not rewritten": lambda log: by_key(log, 0, 4, record_count=2),
    "tombstones that no clean row has found": lambda log: replace(by_key(log, 0), tombstones_to=1),
}


@pytest.mark.parametrize("illegal", ILLEGAL.values(), ids=ILLEGAL.keys())
def test_illegal_rewrites_by_key(illegal: Callable[[Log], RewriteProposal]) -> None:
    """A rewrite by key has to obey all the rules of a merge, except that records may be missing."""
    log = busy()
    rewrite = illegal(log)
    before = log.state
    assert error(log.append(rewrite)[0]) is InvalidRequestError
    assert log.state == before


def test_the_same_output_again_writes_nothing() -> None:
    """A rewrite whose outcome was unknown writes nothing when it is sent again, because its output is in the
    log."""
    log = busy()
    rewrite = by_key(log, 0, 3, record_count=2)
    assert isinstance(log.append(rewrite)[0], Appended)
    assert log.append(rewrite)[0] == NOTHING


# --- clean rows, and the horizon of tombstones ------------------------------------------------------------------


def test_how_far_it_is_clean_only_grows() -> None:
    """A clean row that says less than an earlier one writes nothing, and neither does the same row again."""
    log = busy()
    at(log.append(CleanProposal(6, 0))[0])
    assert log.state.cleaning == Cleaning(6, 0, 6, 1_000)
    assert log.append(CleanProposal(6, 0))[0] == NOTHING
    assert log.append(CleanProposal(4, 0))[0] == NOTHING
    at(log.append(CleanProposal(12, 0))[0])
    assert log.state.cleaning.cleaned_to == 12


@pytest.mark.parametrize(("clean", "legal"), [((12, 0), True), ((13, 0), False), ((6, 6), False)])
def test_illegal_clean_rows(clean: tuple[int, int], legal: bool) -> None:
    """A clean row reaches at most to the LSO, and drops tombstones only below a horizon that an earlier row
    has set."""
    log = busy()
    verdict = log.append(CleanProposal(*clean))[0]
    assert isinstance(verdict, Appended) if legal else error(verdict) is InvalidRequestError


def test_a_tombstone_waits_from_the_row_that_found_it_alone() -> None:
    """Tombstones wait for one horizon at a time. Whatever is cleaned meanwhile waits for the next horizon,
    which begins when this one was used."""
    log = busy()
    log.append(CleanProposal(6, 0))
    log.now += 1_000
    log.append(CleanProposal(9, 0))
    cleaning = log.state.cleaning
    assert cleaning == Cleaning(9, 0, 6, 1_000)
    assert cleaning.due_tombstones_to(DAY_MS + 999, DAY_MS) == 0
    assert cleaning.due_tombstones_to(DAY_MS + 1_000, DAY_MS) == 6
    log.now += DAY_MS
    at(log.append(replace(nothing_kept(log, 3), tombstones_to=6))[0])
    assert log.state.cleaning == Cleaning(9, 6, 6, 1_000)
    at(log.append(CleanProposal(12, 6))[0])
    assert log.state.cleaning == Cleaning(12, 6, 12, log.now)


def test_the_logs_own_time_says_whether_a_tombstone_has_waited() -> None:
    """The log's time decides, because the planner's clock may have been set back before anything was written."""
    log = busy()
    log.append(CleanProposal(6, 0))
    log.now += DAY_MS - 1
    for proposal in (CleanProposal(6, 6, DAY_MS), replace(nothing_kept(log, 3), tombstones_to=6)):
        assert error(log.append(proposal)[0]) is InvalidRequestError
    log.now += 1
    at(log.append(CleanProposal(6, 6, DAY_MS))[0])


def test_a_used_horizon_is_due_no_more() -> None:
    """A horizon that was used is not due again until more of the log is clean."""
    log = busy()
    log.append(CleanProposal(6, 0))
    log.now += DAY_MS
    at(log.append(CleanProposal(6, 6))[0])
    assert log.state.cleaning.due_tombstones_to(10 * DAY_MS, DAY_MS) == 6 == log.state.cleaning.tombstones_to


def test_replay_takes_the_highest() -> None:
    """Replay refuses nothing, and a row that says less does not take anything back."""
    log = busy()
    log.append(CleanProposal(9, 0))
    end = log.state.log_end_offset
    row = BatchDescriptor(end, end, 5_000, control=Control.CLEAN, control_value=encode_control(Clean(3, 0)))
    assert apply(log.state, row).cleaning.cleaned_to == 9


def test_rows_are_the_formats() -> None:
    """Clean rows are JSON with sorted keys and no spaces, as the format says."""
    assert encode_control(Clean(5, 3)) == '{"cleaned_to":5,"tombstones_to":3}'
    assert (
        encode_control(Rewrite(("data/a",), (), 7)) == '{"inputs":["data/a"],"outputs":[],"tombstones_to":7}'
    )
    for value, control in ((Clean(5, 3), Control.CLEAN), (Rewrite(("data/a",), (), 7), Control.REWRITE)):
        row = BatchDescriptor(0, 0, 0, control=control, control_value=encode_control(value))
        assert decode_control(row) == value


@pytest.mark.parametrize("text", ["", "{}", '{"cleaned_to":1}', '{"cleaned_to":"x","tombstones_to":1}'])
def test_a_clean_row_that_says_nothing(text: str) -> None:
    """A clean row whose value does not have the format's form stops the replay."""
    with pytest.raises(CorruptObjectError) as damaged:
        apply(PartitionState(), BatchDescriptor(0, 0, 0, control=Control.CLEAN, control_value=text))
    assert damaged.value.reason is Reason.BAD_CONTROL_VALUE
