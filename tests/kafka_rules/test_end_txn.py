"""EndTxn under transactions V2 follows every cell of the table, through `Engine.coordinator` on rows put into
the log."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.kafka_rules.driver import MAX_EPOCH, T0, answer, put_row, row_of, state_of
from txn_engine import Engine
from txn_engine.testing import ManualClock

PID, EPOCH, OTHER_PID = 5_010, 5, 5_999
FENCED, INVALID = "PRODUCER_FENCED", "INVALID_TXN_STATE"
CONCURRENT, UNMAPPED = "CONCURRENT_TRANSACTIONS", "INVALID_PRODUCER_ID_MAPPING"

# state: (commit now, commit again, abort now, abort again); "again" is a request of the epoch before the stored one
TABLE = {
    "Empty": (INVALID, FENCED, "PrepareAbort", FENCED),
    "Ongoing": ("PrepareCommit", FENCED, "PrepareAbort", FENCED),
    "PrepareCommit": (FENCED, CONCURRENT, FENCED, INVALID),
    "PrepareAbort": (FENCED, INVALID, FENCED, CONCURRENT),
    "CompleteCommit": (INVALID, "OK", "PrepareAbort", INVALID),
    "CompleteAbort": (INVALID, INVALID, "PrepareAbort", "OK"),
    "Dead": (UNMAPPED, UNMAPPED, UNMAPPED, UNMAPPED),
}
WHO = ["now", "again", "older", "newer", "other producer"]


def expected(state: str, committed: bool, who: str) -> str:
    """The broker's answer, which depends on what is pending, then on the producer id, then on the epoch, then
    on the table."""
    if state == "Dead":
        return UNMAPPED
    if who == "other producer":
        return CONCURRENT if state.startswith("Prepare") else UNMAPPED
    if who in ("older", "newer"):
        return FENCED
    return TABLE[state][(0 if committed else 2) + (who == "again")]


def ask(engine: Engine, name: str, pid: int, epoch: int, *, committed: bool) -> Any:
    return answer(
        lambda: engine.coordinator.end_transaction(name, pid, epoch, committed=committed, markers="deferred")
    )


@pytest.mark.parametrize(("state", "committed", "who"), list(product(TABLE, [True, False], WHO)))
def test_tc_18_every_cell(table_engine: Engine, state: str, committed: bool, who: str) -> None:
    """TC-18: the answer depends on state, commit or abort, and caller. A decision is one row with the epoch
    bumped once, and a refusal writes no row."""
    name = put_row(table_engine, state, pid=PID, epoch=EPOCH, last_producer_epoch=EPOCH - 1)
    before = table_engine.coordinator.current(name)
    assert before is not None
    pid = OTHER_PID if who == "other producer" else PID
    epoch = {"again": EPOCH - 1, "older": EPOCH - 2, "newer": EPOCH + 1}.get(who, EPOCH)
    found = ask(table_engine, name, pid, epoch, committed=committed)
    after = table_engine.coordinator.current(name)
    cell = expected(state, committed, who)
    if cell.startswith("Prepare"):
        assert found == (PID, EPOCH + 1)
        assert state_of(table_engine, name) == (cell, PID, EPOCH + 1)
        row = row_of(table_engine, name)
        assert row.last_producer_epoch == EPOCH
        assert row.partitions == before.row.partitions
    else:
        assert found == ((PID, EPOCH) if cell == "OK" else cell)
        assert after == before


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_an_unknown_id(table_engine: Engine, committed: bool) -> None:
    """An id that nobody has initialised is INVALID_PRODUCER_ID_MAPPING, and an empty one is
    INVALID_REQUEST."""
    assert ask(table_engine, "never-initialised", PID, EPOCH, committed=committed) == UNMAPPED
    assert ask(table_engine, "", PID, EPOCH, committed=committed) == "INVALID_REQUEST"


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("markers", ["inline", "deferred"])
def test_a_decision_is_completed(engine: Engine, committed: bool, markers: Any) -> None:
    """The end of TM-11: the markers carry the bumped epoch, and the Complete row keeps it. A repeated request
    gets the same answer."""
    log = engine.partition("t", 0)
    name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH)
    reply = engine.coordinator.end_transaction(name, PID, EPOCH, committed=committed, markers=markers)
    assert reply == (PID, EPOCH + 1)
    complete = "CompleteCommit" if committed else "CompleteAbort"
    if markers == "deferred":
        assert log.high_watermark == 0
        assert ask(engine, name, PID, EPOCH, committed=committed) == CONCURRENT
        assert engine.coordinator.write_pending_markers().transactional_ids == (name,)
    assert state_of(engine, name) == (complete, PID, EPOCH + 1)
    (marked,) = log.producers()
    assert (marked.producer_id, marked.producer_epoch) == (PID, EPOCH + 1)
    assert ask(engine, name, PID, EPOCH, committed=committed) == (PID, EPOCH + 1)
    assert ask(engine, name, PID, EPOCH, committed=not committed) == INVALID
    assert log.high_watermark == 1


def test_a_delayed_end_does_not_decide_the_next_transaction(engine: Engine) -> None:
    """KIP-890: a request of an ended transaction that arrives in the next one is a zombie's, and is fenced
    for commit and abort."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH)
    engine.coordinator.end_transaction(name, PID, EPOCH, committed=False)
    engine.coordinator.add_partitions(name, PID, EPOCH + 1, [T0])
    for committed in (True, False):
        assert ask(engine, name, PID, EPOCH, committed=committed) == FENCED
    assert state_of(engine, name) == ("Ongoing", PID, EPOCH + 1)


# --- the end of the epochs --------------------------------------------------------------------------------

LAST = MAX_EPOCH - 1


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_tc_18_epochs_run_out(engine: Engine, committed: bool) -> None:
    """TC-18, testEpochBumpOnEndTxnOverflow: at 32766 the Prepare row and the markers keep the old producer id
    at 32767. The reply and the Complete row have the next id at epoch 0. A repeated request is known at every
    point."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=LAST)
    reply = ask(engine, name, PID, LAST, committed=committed)
    assert reply.producer_id != PID
    assert reply.producer_epoch == 0
    prepared = row_of(engine, name)
    assert (prepared.producer_id, prepared.producer_epoch) == (PID, MAX_EPOCH)
    assert prepared.next_producer_id == reply.producer_id
    assert ask(engine, name, PID, LAST, committed=committed) == CONCURRENT
    assert ask(engine, name, PID, LAST, committed=not committed) == INVALID
    assert ask(engine, name, *reply, committed=committed) == CONCURRENT  # another producer, while pending
    engine.coordinator.write_pending_markers()
    (marked,) = engine.partition("t", 0).producers()
    assert (marked.producer_id, marked.producer_epoch) == (PID, MAX_EPOCH)
    complete = "CompleteCommit" if committed else "CompleteAbort"
    assert state_of(engine, name) == (complete, *reply)
    assert ask(engine, name, PID, LAST, committed=committed) == reply
    assert ask(engine, name, PID, LAST, committed=not committed) == INVALID
    assert ask(engine, name, PID, LAST - 1, committed=committed) == UNMAPPED
    assert ask(engine, name, PID, MAX_EPOCH, committed=committed) == UNMAPPED


def test_the_retry_is_over_once_the_new_id_is_in_use(engine: Engine) -> None:
    """After the rotation the old pair is a retry only until the new id is used. In the next transaction, and
    after its end, it is a wrong mapping."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=LAST)
    new = engine.coordinator.end_transaction(name, PID, LAST, committed=True)
    engine.coordinator.add_partitions(name, *new, [T0])
    assert ask(engine, name, PID, LAST, committed=True) == UNMAPPED
    engine.coordinator.end_transaction(name, *new, committed=True)
    assert ask(engine, name, PID, LAST, committed=True) == UNMAPPED


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_an_abort_of_nothing_rotates_too(engine: Engine, state: str) -> None:
    """An abort without a transaction bumps the epoch too, so at the last epoch it rotates the id."""
    name = put_row(engine, state, pid=PID, epoch=LAST)
    reply = engine.coordinator.end_transaction(name, PID, LAST, committed=False)
    assert reply.producer_epoch == 0
    assert reply.producer_id != PID
    assert state_of(engine, name) == ("CompleteAbort", *reply)


def test_below_the_last_epoch_nothing_rotates(engine: Engine) -> None:
    """At 32765 the id is not exhausted, and the end bumps it to 32766 under the same id."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=LAST - 1)
    assert engine.coordinator.end_transaction(name, PID, LAST - 1, committed=True) == (PID, LAST)


# --- nothing but an end -----------------------------------------------------------------------------------


def test_int_05_an_abort_of_nothing_after_a_commit(engine: Engine, table_clock: ManualClock) -> None:
    """INT-05 at the coordinator: after a commit, an abort without records is accepted, bumps the epoch and
    writes no marker."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH)
    held = engine.coordinator.end_transaction(name, PID, EPOCH, committed=True)
    end = engine.partition("t", 0).high_watermark
    assert engine.coordinator.end_transaction(name, *held, committed=False) == (PID, EPOCH + 2)
    assert state_of(engine, name) == ("CompleteAbort", PID, EPOCH + 2)
    assert engine.partition("t", 0).high_watermark == end
