"""What a state still says of a put whose slot holds a seal (PROTOCOL.md, section 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.protocol.memory_log import Log, at
from txn_engine.errors import OutcomeUnknownError
from txn_engine.protocol.offset_commits import OffsetCommit, OffsetKey
from txn_engine.protocol.proposals import (
    ExpireProposal,
    FloorProposal,
    MarkerProposal,
    OffsetCommitProposal,
    Proposal,
    TransactionProposal,
)
from txn_engine.protocol.sealed_slots import settle_sealed
from txn_engine.protocol.transaction_rows import TransactionRow, TransactionState
from txn_engine.reasons import Reason

MAX = 2**31 - 1
ROW = TransactionRow("id", TransactionState.EMPTY, 1, 0)
COMMIT = OffsetCommit(OffsetKey("g", "t", 0, 0), 7, member_id="m")


def settle(log: Log, *sent: Proposal, written: bool, then: Callable[[Log], None] = lambda _: None) -> object:
    """Plan these proposals, append them or not, let `then` happen, and settle a slot that is found sealed."""
    plan = log.plan(*sent)
    if written:
        log.state = plan.state
    then(log)
    outcome = settle_sealed(log.state, plan, sent)
    assert outcome is None or outcome == plan.verdicts
    return "won" if outcome else "judge again"


def plain(log: Log) -> None:
    log.plain(2)


def six_more(log: Log) -> None:
    for sequence in range(2, 8):
        log.data(1, 0, sequence, transactional=False)


def expire(log: Log) -> None:
    at(log.append(ExpireProposal((1,), log.now))[0])


def marker(log: Log) -> None:
    at(log.marker(1, 1, committed=True))


def later_epoch(log: Log) -> None:
    log.data(1, 1, 0, transactional=False)


@pytest.mark.parametrize(
    ("before", "sequence", "written", "then", "expected"),
    [
        (1, 1, True, plain, "won"),
        (1, 1, False, plain, "judge again"),
        (0, 0, True, plain, "won"),
        (1, 1, True, six_more, "unknown"),
        (1, 1, True, expire, "unknown"),
        (1, 1, False, expire, "unknown"),
        (0, 0, False, plain, "unknown"),
        (1, 1, True, later_epoch, "unknown"),
        (1, 1, False, later_epoch, "unknown"),
    ],
)
def test_a_batch_of_a_producer(
    before: int, sequence: int, written: bool, then: Callable[[Log], None], expected: str
) -> None:
    """A producer's batch is known by its sequence: if it is the last one it won, and if the last one is lower
    it lost. In all other cases the outcome is unknown."""
    log = Log()
    for number in range(before):
        log.data(1, 0, number, transactional=False)
    sent = log.propose(1, 0, sequence, transactional=False)
    if expected == "unknown":
        with pytest.raises(OutcomeUnknownError) as unknown:
            settle(log, sent, written=written, then=then)
        assert unknown.value.reason is Reason.SLOT_SEALED
    else:
        assert settle(log, sent, written=written, then=then) == expected


def test_sequences_wrap() -> None:
    """After sequence 2^31-1 comes 0, so a batch with sequence 0 that the state does not have was not in the
    slot."""
    log = Log()
    log.data(1, 0, MAX, transactional=False)
    assert settle(log, log.propose(1, 0, 0, transactional=False), written=False, then=plain) == "judge again"


def test_a_new_epoch() -> None:
    """If the partition knows only an older epoch, or this epoch without a batch, no batch of this epoch was
    in the slot."""
    log = Log()
    log.data(1, 0, 0)
    log.marker(1, 1, committed=True)
    assert settle(log, log.propose(1, 1, 0), written=False) == "judge again"
    assert settle(log, log.propose(1, 2, 0), written=False) == "judge again"


def test_the_same_batch_elsewhere() -> None:
    """A batch that is in the log at other offsets was not in this slot. It is judged again, as a
    duplicate."""
    log = Log()
    log.data(1, 0, 0, transactional=False)
    sent = log.propose(1, 0, 1, transactional=False)

    def elsewhere(log: Log) -> None:
        log.plain()
        log.append(replace(sent))

    assert settle(log, sent, written=False, then=elsewhere) == "judge again"


def test_an_entry_of_many_batches_is_known_by_its_last() -> None:
    """An entry of ten batches is known by its last one, although the partition remembers only five, because
    an entry is written as a whole."""
    log = Log()
    sent = [log.propose(1, 0, sequence, transactional=False) for sequence in range(10)]
    assert settle(log, *sent, written=True, then=plain) == "won"
    more = [log.propose(1, 0, sequence, transactional=False) for sequence in range(10, 20)]
    assert settle(log, *more, written=False, then=plain) == "judge again"


@pytest.mark.parametrize("written", [True, False])
def test_a_plain_append_is_unknown(written: bool) -> None:
    """The outcome of a plain append is unknown, because nothing in the state identifies its batch."""
    log = Log()
    with pytest.raises(OutcomeUnknownError):
        settle(log, log.propose(-1, -1, -1, transactional=False), written=written, then=plain)


@pytest.mark.parametrize("written", [True, False])
def test_a_plain_offset_commit_is_unknown(written: bool) -> None:
    """The outcome of a plain offset commit is unknown, because the group's row may be another member's with
    the same value."""
    with pytest.raises(OutcomeUnknownError):
        settle(Log(), OffsetCommitProposal(COMMIT), written=written, then=plain)


def test_an_offset_commit_in_a_transaction() -> None:
    """The outcome is known while the commit is pending, or if it is missing at the producer's epoch. After the marker
    it is unknown.
    """
    log = Log()
    log.marker(1, 0, committed=True)
    sent = OffsetCommitProposal(COMMIT, 1, 0)
    assert settle(log, sent, written=False) == "judge again"
    assert settle(log, sent, written=True) == "won"
    with pytest.raises(OutcomeUnknownError):
        settle(Log(), sent, written=True, then=marker)
    with pytest.raises(OutcomeUnknownError):
        settle(Log(), sent, written=False)


@pytest.mark.parametrize(
    "proposal",
    [MarkerProposal(9, 1, True, 3), FloorProposal(1), TransactionProposal("id", lambda _: ROW)],
)
def test_what_the_state_answers_is_judged_again(proposal: Proposal) -> None:
    """Markers, controls and coordinator rows are judged again, because the state shows whether they are in
    effect."""
    log = Log()
    log.plain()
    assert settle(log, proposal, written=False) == "judge again"
