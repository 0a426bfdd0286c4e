"""Producer ids are given out once, also where claims to them are lost."""

from __future__ import annotations

import pytest

import txn_engine
from tests.engine.conftest import payments
from tests.support.refusals import refused
from tests.support.stores import accounts_in
from txn_engine import Engine
from txn_engine.coordinator.producer_ids import BLOCK_SIZE, ProducerIds
from txn_engine.errors import InvalidProducerIdMappingError
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock

CLAIMS = "producer_ids/"


def key(block: int) -> str:
    return f"{CLAIMS}{block:020d}.json"


def claims(engine: Engine) -> list[str]:
    return [info.key for info in engine.store.list(CLAIMS)]


def write(engine: Engine, *accounts: int, transactional_id: str | None = None) -> int:
    """One batch of a new producer; its id."""
    with engine.producer(transactional_id=transactional_id) as producer:
        if transactional_id is not None:
            producer.init_transactions()
            producer.begin_transaction()
        producer.produce("payments", payments(*accounts), partition=0)
        producer.flush()
        if transactional_id is not None:
            producer.commit_transaction()
        return producer.producer_id


@pytest.mark.parametrize("lost", range(6))
def test_any_one_lost_claim(engine: Engine, url: str, clock: ManualClock, lost: int) -> None:
    """Whichever claim is lost, no id of it is given out again, and the doctor and the audit name it."""
    ids = {write(engine, 1), write(engine, 2, transactional_id="load")}
    for account in (3, 4):
        with txn_engine.connect(url, clock=clock) as other:
            ids.add(write(other, account))
    assert len(claims(engine)) == 6
    engine.store.delete(key(lost))
    used = {each // BLOCK_SIZE for each in ids}
    is_needed = lost in used or lost == max(used) + 1
    for account in (5, 6):
        named = [each.place for each in engine.unreadable_producer_ids(engine.look_at_everything()[1])]
        errors = [each.object for each in engine.admin.verify().findings if each.severity == "error"]
        assert named == errors == ([key(lost)] if is_needed else [])
        with txn_engine.connect(url, clock=clock) as other:
            new = write(other, account)
        assert new not in ids
        assert new // BLOCK_SIZE not in used
        ids.add(new)
        is_needed = lost in used  # what was above the others is made up for by the next claims
        used.add(new // BLOCK_SIZE)
    assert sorted(accounts_in(engine)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("now_ms", [0, 1_800_000_000_000])
@pytest.mark.parametrize("first", [None, "other"])
def test_every_claim_lost(engine: Engine, url: str, now_ms: int, first: str | None) -> None:
    """The logs say which ids are in use, and the next ones are above these, whatever the clock says; also where the id
    is asked for in the middle of an append to one of these logs."""
    ids = {write(engine, 1), write(engine, 2, transactional_id="load")}
    for claim in claims(engine):
        engine.store.delete(claim)
    assert [each.place for each in engine.unreadable_producer_ids(engine.look_at_everything()[1])] == [
        key(0),
        key(1),
    ]
    assert not engine.admin.verify().ok
    with txn_engine.connect(url, clock=ManualClock(now_ms)) as other:
        new = {write(other, 3, transactional_id=first), write(other, 4, transactional_id="another")}
    assert min(new) > max(ids)
    assert min(new) >= now_ms * BLOCK_SIZE
    assert sorted(accounts_in(engine)) == [1, 2, 3, 4]
    assert not engine.admin.verify().ok


def test_claims_that_a_listing_does_not_show_yet(
    engine: Engine, url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If ids are in use and the claim to them is there, nothing is lost: the next block follows."""
    write(engine, 1)
    monkeypatch.setattr(ProducerIds, "_highest_seen", lambda _: -1)
    with txn_engine.connect(url, clock=clock) as other:
        assert write(other, 2) == 2 * BLOCK_SIZE
    assert engine.admin.verify().findings == ()


def test_a_block_is_used_once_another_is_claimed_above_it(engine: Engine) -> None:
    assert write(engine, 1) // BLOCK_SIZE == 0
    assert claims(engine) == [key(0), key(1)]


@pytest.mark.parametrize("transactional_id", [None, "other"])
def test_a_batch_of_another_producer_with_this_ones_id(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, transactional_id: str | None
) -> None:
    """A batch that was never sent before is not acknowledged as the duplicate of one that the log has."""
    taken = write(engine, 1, 2)
    before = engine.partition("payments", 0).high_watermark
    monkeypatch.setattr(engine.coordinator._producer_ids, "take", lambda: taken)
    with (
        refused(InvalidProducerIdMappingError, Reason.PRODUCER_ID_IN_USE),
        engine.producer(transactional_id=transactional_id) as producer,
    ):
        if transactional_id is not None:
            producer.init_transactions()
            producer.begin_transaction()
        future = producer.produce("payments", payments(3, 4), partition=0)
        producer.flush()
        future.result()
    assert engine.partition("payments", 0).high_watermark == before
    assert accounts_in(engine) == [1, 2]
