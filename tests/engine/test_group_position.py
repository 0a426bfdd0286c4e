"""The state machine of a consumer's commits (`consumer/group_position.py`): its table of moves, and the rows
that commits name."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

import pytest

from tests.support.refusals import refused
from txn_engine.consumer.group_position import (
    NEXT_PHASES,
    Asked,
    Assigned,
    BrokenOff,
    CommitPhase,
    Committed,
    CommitWanted,
    Event,
    Fetched,
    GroupPosition,
    LearnOwnRows,
    OutcomeUnknown,
    OwnRows,
    Raise,
    Refused,
    Rewound,
    Send,
    move,
)
from txn_engine.errors import IllegalStateError, OffsetsMovedError
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.reasons import Reason
from txn_engine.types import FetchedRow, OffsetAndMetadata, TopicPartition

P0 = TopicPartition("payments", 0)
AT_0, AT_0_REMADE = TransactionPartition("payments", 0, 0), TransactionPartition("payments", 1, 0)
OLD, NEW = FetchedRow(1), FetchedRow(2)
START = GroupPosition("readers", "member")
ERROR = OffsetsMovedError("moved")
ONE = {AT_0: OffsetAndMetadata(10)}

EVENTS: tuple[Event, ...] = (
    Assigned({P0: 0}),
    Assigned({P0: 1}),
    Assigned({}),
    Rewound((P0,)),
    Fetched({P0: OLD}, (AT_0,)),
    Fetched({P0: NEW}, (AT_0_REMADE,)),
    Asked({P0: NEW}, (AT_0,)),
    CommitWanted(ONE),
    CommitWanted({}),
    Committed({P0: NEW}),
    Refused(ERROR),
    OwnRows({P0: NEW}),
    OwnRows({P0: OLD}),
    OwnRows({}),
    OutcomeUnknown(),
    BrokenOff(),
)
NAMING = (Assigned, Rewound, Fetched, Asked)


def every_state() -> Iterator[GroupPosition]:
    """Every state that these events lead to, in any order."""
    seen, waiting = [START], deque([START])
    while waiting:
        state = waiting.popleft()
        yield state
        for event in EVENTS:
            if isinstance(event, NAMING) or type(event) in NEXT_PHASES[state.phase]:
                after = move(state, event)[0]
                if after not in seen:
                    seen.append(after)
                    waiting.append(after)


def after(*events: Event, start: GroupPosition = START) -> GroupPosition:
    state = start
    for event in events:
        state, _ = move(state, event)
    return state


def test_the_table_is_what_happens() -> None:
    """From every reachable state, each event leads exactly where the table says. An event that the table does
    not list is refused, and an event that only names rows does not change the phase."""
    led: dict[CommitPhase, dict[type[Event], set[CommitPhase]]] = {
        phase: defaultdict(set) for phase in CommitPhase
    }
    for state in every_state():
        for event in EVENTS:
            if isinstance(event, NAMING):
                after_it, effects = move(state, event)
                assert (after_it.phase, after_it.sent, effects) == (state.phase, state.sent, ())
            elif type(event) in NEXT_PHASES[state.phase]:
                led[state.phase][type(event)].add(move(state, event)[0].phase)
            else:
                with refused(IllegalStateError, Reason.UNEXPECTED_EVENT):
                    move(state, event)
    assert led == {
        phase: {event: set(phases) for event, phases in moves.items()} for phase, moves in NEXT_PHASES.items()
    }


def test_a_phase_is_what_is_under_way() -> None:
    """Every move asks for at most one thing: the one that the new phase waits for. A refusal is raised when
    its commit ends. At rest, only an unanswered commit is left over."""
    awaited = {
        CommitPhase.SETTLING: Send,
        CommitPhase.COMMITTING: Send,
        CommitPhase.LEARNING: LearnOwnRows,
        CommitPhase.COMMITTING_AGAIN: Send,
    }
    for state in every_state():
        for event in EVENTS:
            if isinstance(event, NAMING) or type(event) not in NEXT_PHASES[state.phase]:
                continue
            found, effects = move(state, event)
            if found.phase is CommitPhase.AT_REST:
                assert (found.sent, found.wanted, found.refusal) == (None, {}, None)
                assert all(isinstance(effect, Raise) for effect in effects)
            else:
                assert [type(effect) for effect in effects] == [awaited[found.phase]]


def test_a_commit_without_an_answer_is_settled_before_the_next() -> None:
    """A commit without an answer is sent again unchanged before the next one. The next commit names the row
    that it got."""
    known = after(Assigned({P0: 0}), Fetched({P0: OLD}, (AT_0,)))
    lost = after(CommitWanted(ONE), OutcomeUnknown(), start=known)
    further = {AT_0: OffsetAndMetadata(20)}
    settling, (again,) = move(lost, CommitWanted(further))
    assert isinstance(again, Send)
    assert (again.commit.positions, again.commit.group.fetched) == (ONE, {P0: OLD})
    _, (following,) = move(settling, Committed({P0: NEW}))
    assert isinstance(following, Send)
    assert (following.commit.positions, following.commit.group.fetched) == (further, {P0: NEW})


def test_a_commit_without_an_answer_is_settled_by_a_commit_of_nothing() -> None:
    lost = after(CommitWanted(ONE), OutcomeUnknown())
    settled, effects = move(after(CommitWanted({}), start=lost), Committed({P0: NEW}))
    assert (settled.phase, settled.unsettled, effects) == (CommitPhase.AT_REST, None, ())


def test_an_answer_that_is_missing_again_is_waited_for_again() -> None:
    lost = after(CommitWanted(ONE), OutcomeUnknown())
    assert after(CommitWanted({}), OutcomeUnknown(), start=lost).unsettled == lost.unsettled


def test_a_refused_commit_goes_on_from_the_members_own_row() -> None:
    """If a producer has committed for this very member, a refused commit is sent once more from the member's
    own row. If the member has no newer row of its own, another member has moved the group, and the commit
    fails."""
    moved = after(Assigned({P0: 0}), Fetched({P0: OLD}, (AT_0,)), CommitWanted(ONE), Refused(ERROR))
    again, (effect,) = move(moved, OwnRows({P0: NEW}))
    assert isinstance(effect, Send)
    assert (effect.commit.positions, effect.commit.group.fetched) == (ONE, {P0: NEW})
    assert move(again, Refused(ERROR))[1] == (Raise(ERROR),)
    for rows in ({P0: OLD}, {}):
        state, effects = move(moved, OwnRows(rows))
        assert (effects, state.named[P0].row) == ((Raise(ERROR),), OLD)


def test_what_ctrl_c_ends_is_begun_anew() -> None:
    """A commit that begins while another one is interrupted takes its place."""
    for phase in CommitPhase:
        for state in every_state():
            if state.phase is phase and state.unsettled is None:
                found, (effect,) = move(state, CommitWanted(ONE))
                assert found.phase is CommitPhase.COMMITTING
                assert isinstance(effect, Send)


@pytest.mark.parametrize(
    ("events", "named"),
    [
        ([Fetched({P0: OLD}, (AT_0,))], (OLD, 0)),
        ([Fetched({P0: OLD}, (AT_0,)), Fetched({P0: NEW}, (AT_0,))], (NEW, 0)),
        ([Fetched({P0: OLD}, (AT_0,)), Asked({P0: NEW}, (AT_0,))], (OLD, 0)),
        ([Asked({P0: NEW}, (AT_0,))], (NEW, 0)),
        ([Fetched({P0: OLD}, (AT_0,)), Assigned({P0: 1})], None),
        ([Fetched({P0: OLD}, (AT_0,)), Assigned({})], (OLD, 0)),
        ([Assigned({P0: 1}), Fetched({P0: OLD}, (AT_0,))], None),
        ([Assigned({P0: 1}), Asked({P0: OLD}, (AT_0,))], None),
        ([Fetched({P0: NEW}, (AT_0_REMADE,)), Fetched({P0: OLD}, (AT_0,))], (NEW, 1)),
        ([Fetched({P0: OLD}, (AT_0,)), Asked({P0: NEW}, (AT_0_REMADE,))], (NEW, 1)),
        ([Fetched({P0: OLD}, (AT_0,)), Rewound((P0,))], None),
        ([Fetched({P0: OLD}, (AT_0,)), CommitWanted(ONE), Committed({P0: NEW})], (NEW, 0)),
        ([Assigned({P0: 1}), CommitWanted(ONE), Committed({P0: NEW})], None),
    ],
)
def test_which_row_a_commit_names(events: list[Event], named: tuple[FetchedRow, int] | None) -> None:
    """A commit names the row that was fetched to read from, of the topic that is read. Asking for an offset
    does not renew the row."""
    found = after(*events).named.get(P0)
    assert (None if found is None else (found.row, found.incarnation)) == named
