"""Sealing goes upwards and stays below a settled trim, and stops if the snapshots have changed."""

from __future__ import annotations

import pytest

from storage import MemoryStore
from tests.maintain.ledgers import POLICY, PREFIX, TOPIC, YOUNG, accounts, keys, ledger, open_engine, sealed
from tests.support.faults import Fault, FaultyStore, Operation
from tests.support.stores import assert_sound
from txn_engine.log.entry_format import USER_LOG, encode_seal
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock


def trimmed() -> tuple[MemoryStore, ManualClock, int]:
    """A ledger whose entries may be sealed, and the offset up to which they may."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        entries_start = engine.maintenance.retain(TOPIC, policy=POLICY).partitions[0].entries_start
    return store, clock, entries_start


def test_all_entries_below_and_none_above() -> None:
    """Every entry below `entries_start` is sealed, and the others stay. Readers see the same."""
    store, clock, entries_start = trimmed()
    with open_engine(store, clock) as engine:
        (report,) = engine.maintenance.seal(TOPIC).partitions
        names = keys(store, "log")
        assert [int(name[:20]) < entries_start for name in names] == sealed(store)
        assert (report.first, report.entries_start, report.seals) == (0, entries_start, sum(sealed(store)))
        assert engine.maintenance.seal(TOPIC).partitions == ()
        assert accounts(engine) == YOUNG
        assert_sound(engine)


def test_seals_have_their_own_write_ids() -> None:
    """Each seal has a write id of its own, so no two seals have the same bytes."""
    store, clock, _ = trimmed()
    with open_engine(store, clock) as engine:
        engine.maintenance.seal(TOPIC)
    objects = [store.get(f"{PREFIX}/log/{name}") for name in keys(store, "log")]
    assert len(set(objects)) == len(objects)


def test_nothing_without_a_trim() -> None:
    """Without a trim nothing is sealed, even if there are snapshots."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        assert engine.maintenance.seal(TOPIC).partitions == ()
        assert not any(sealed(store))


def test_never_from_its_own_plan() -> None:
    """If the trim's put was not applied, the process that planned it seals nothing."""
    store, clock = ledger()
    unanswered = FaultyStore(store)

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        lost = operation == "put_if_absent" or (operation == "get" and key in blocked)
        if operation == "put_if_absent":
            blocked.add(key)
        return "before" if lost else None

    blocked: set[str] = set()
    with open_engine(unanswered, clock) as engine:
        unanswered.decide = decide
        report = engine.maintenance.retain(TOPIC, policy=POLICY)
        assert [failure.code for failure in report.failures] == ["OUTCOME_UNKNOWN"]
        unanswered.decide = None
        assert engine.maintenance.seal(TOPIC).partitions == ()
        assert not any(sealed(store))
        assert engine.maintenance.retain(TOPIC, policy=POLICY).failures == ()
        assert engine.maintenance.seal(TOPIC).partitions
        assert_sound(engine)


@pytest.mark.parametrize("stopped_after", [0, 1, 7])
def test_goes_on_where_a_run_stopped(stopped_after: int) -> None:
    """A half-sealed log is finished from its first unsealed entry on, without another look at the seals."""
    store, clock, entries_start = trimmed()
    names = [name for name in keys(store, "log") if int(name[:20]) < entries_start]
    for name in names[:stopped_after]:
        store.put(f"{PREFIX}/log/{name}", encode_seal(USER_LOG, "ab" * 16))
    counted = FaultyStore(store)
    with open_engine(counted, clock) as engine:
        assert accounts(engine) == YOUNG
        (report,) = engine.maintenance.seal(TOPIC).partitions
        assert report.first == int(names[stopped_after][:20])
        assert report.seals == len(names) - stopped_after
        assert [key for operation, key, _ in counted.calls if operation == "put"] == [
            f"{PREFIX}/log/{name}" for name in names[stopped_after:]
        ]
        assert_sound(engine)


def test_the_last_look() -> None:
    """If the snapshots were damaged after the trim, nothing is sealed, because the entries are stored nowhere
    else."""
    store, clock, _ = trimmed()
    for name in keys(store, "snapshots")[:-1]:
        store.put(f"{PREFIX}/snapshots/{name}", b"PAR1 damaged PAR1")
    with open_engine(store, clock) as engine:
        (failure,) = engine.maintenance.seal(TOPIC).failures
        assert failure.reason is Reason.TOO_FEW_SNAPSHOTS
        assert not any(sealed(store))


def test_a_damaged_entry_is_not_covered_up() -> None:
    """Sealing stops at an entry that cannot be read, because somebody has to look at it first."""
    store, clock, _ = trimmed()
    names = keys(store, "log")
    store.put(f"{PREFIX}/log/{names[5]}", b"PAR1 damaged PAR1")
    with open_engine(store, clock) as engine:
        (failure,) = engine.maintenance.seal(TOPIC).failures
        assert failure.place == f"{PREFIX}/log/{names[5]}"
        assert store.get(f"{PREFIX}/log/{names[5]}") == b"PAR1 damaged PAR1"


def test_a_dry_run_writes_nothing() -> None:
    """What a dry run reports is what the run then does."""
    store, clock, _ = trimmed()
    with open_engine(store, clock) as engine:
        planned = engine.maintenance.seal(TOPIC, dry_run=True)
        assert not any(sealed(store))
        assert planned.partitions == engine.maintenance.seal(TOPIC).partitions
