"""A store with thousands of cuts: what the keys alone say, how much is read, and what a refusal means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import AccessDeniedError, MemoryStore
from tests.engine.conftest import SCHEMA, payments
from tests.support.faults import Fault, FaultyStore, Operation, no_pause, raising
from tests.support.internal import FEW_INTERNAL
from txn_engine import Engine
from txn_engine.errors import StoreAccessError
from txn_engine.log.cut_format import NEVER, Cut, CutTopic, LogCut, Part, cut_key, encoded_cut
from txn_engine.log.cut_keys import CutKeys
from txn_engine.log.cuts import CLAIM_MS, CutStore
from txn_engine.log.objects import Objects, encode_json
from txn_engine.log.snapshot_format import encode_snapshot
from txn_engine.log.store_config import StoreConfig
from txn_engine.maintain import MaintenancePolicy
from txn_engine.maintain.policy import DAY_MS
from txn_engine.testing import ManualClock

_NAMES = count()
_GROUPS = (LogCut(0, 0, 0),)
MANY = 2_000


@pytest.fixture(scope="module")
def readers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def put(store: MemoryStore, number: int, part: Part, fields: Mapping[str, object]) -> None:
    store.put(cut_key(number, part), encode_json({"number": number, **fields}, part.kind))


def put_cut(
    store: MemoryStore, number: int, *, end: int = 7, expires_ms: int = NEVER, topic: str = "t"
) -> None:
    """Store a claim and a cut that names the snapshot at `end` of one partition."""
    log = LogCut(end, end, end)
    cut = Cut(number, "s", 0, expires_ms, topic == "t", (CutTopic(topic, 0, (log,)),), _GROUPS, (0,))
    put(store, number, Part.CLAIM, {"created_ms": 0})
    put(store, number, Part.CUT, encoded_cut(cut, number, "s"))


def cut_store(store: object, readers: ThreadPoolExecutor, clock: ManualClock) -> CutStore:
    ids = count()
    return CutStore(
        Objects(store, no_pause), clock, lambda: f"{next(ids):032x}", StoreConfig("s", 0, {}), readers
    )  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def many() -> MemoryStore:
    """Cuts 0 to 1,999. Every hundredth is of another topic only, and the first 500 are deleted."""
    store = MemoryStore(f"cuts-many-{next(_NAMES)}")
    for number in range(MANY):
        put_cut(store, number, end=number + 1, topic="u" if number % 100 == 99 else "t")
        if number < 500:
            store.delete(cut_key(number, Part.CUT))
            put(store, number, Part.DELETED, {"deleted_ms": 0})
    return store


def counted(store: FaultyStore) -> Counter[Operation]:
    found = Counter(operation for operation, _, _ in store.calls)
    store.calls.clear()
    return found


# --- numbers --------------------------------------------------------------------------------------------------


@given(st.integers(0, 3_000), st.integers(0, 3_000))
def test_the_end_is_found_in_a_few_rounds(claimed: int, start: int) -> None:
    class Claims(CutKeys):
        asked = 0

        def _claimed(self, number: int) -> bool:
            self.asked += 1
            return number < claimed

    with ThreadPoolExecutor(1) as one:
        numbers = Claims(Objects(MemoryStore("no-such-claims"), no_pause), one)
        assert numbers.first_free(start) == max(claimed, start)
    assert numbers.asked <= 1 + 2 + 24 + 16 * 3


@pytest.mark.parametrize("near", [True, False])
def test_a_listing_is_the_same_however_it_is_asked_for(
    many: MemoryStore, readers: ThreadPoolExecutor, *, near: bool
) -> None:
    """The cuts are listed alike in one listing and in several listings at once, which a distant store
    needs."""
    numbers = CutKeys(Objects(many if near else FaultyStore(many), no_pause), readers)
    found = numbers.listed(300)
    assert found.keys() == set(range(300, MANY))
    assert found[300] == {Part.CLAIM, Part.DELETED}
    assert found[1_000] == {Part.CLAIM, Part.CUT}
    assert numbers.listed(490, 510).keys() == set(range(490, 510))
    assert numbers.listed(MANY) == {}


def test_a_claim_that_somebody_removed_gives_its_number_to_nobody(readers: ThreadPoolExecutor) -> None:
    store, clock = MemoryStore(f"cuts-hole-{next(_NAMES)}"), ManualClock()
    for number in range(3):
        put_cut(store, number)
    store.delete(cut_key(0, Part.CLAIM))
    assert cut_store(store, readers, clock).claim() == 3
    holder = cut_store(store, readers, clock)
    assert holder.holds("t", 0, 0).is_open
    cut_store(store, readers, clock).give_up(3)
    assert not holder.holds("t", 0, 0).is_open
    put(store, 4, Part.CLAIM, {"created_ms": 0})
    assert holder.holds("t", 0, 0).is_open


# --- what is read ---------------------------------------------------------------------------------------------


def test_a_fresh_process_claims_and_finds_the_last_cut_by_a_few_keys(
    many: MemoryStore, readers: ThreadPoolExecutor
) -> None:
    store = FaultyStore(many)
    cuts = cut_store(store, readers, ManualClock())
    number = cuts.claim()
    assert number == MANY
    assert counted(store)["get"] <= 2  # what became of the claim that was put
    found = cuts.newest_over(None, number)
    assert found is not None
    assert (found.cut.number, found.is_deleted) == (MANY - 2, False)  # the last one is of another topic
    assert counted(store) == {"get": 4, "head": 4}
    another = cuts.newest_over({"u": 0}, MANY - 1)
    assert another is not None
    assert another.cut.number == MANY - 2  # of all topics, so of this one too
    assert cuts.newest_over({"u": 0}, 500) is None
    assert counted(store)["get"] <= 8  # the others are listed as gone
    many.delete(cut_key(number, Part.CLAIM))


def test_clean_up_reads_each_cut_once(many: MemoryStore, readers: ThreadPoolExecutor) -> None:
    store = FaultyStore(many)
    cuts = cut_store(store, readers, ManualClock())
    held = cuts.holds("t", 0, 0)
    assert held.snapshots == {number + 1 for number in range(500, MANY) if number % 100 != 99}
    assert not held.is_open
    first = counted(store)
    assert first["get"] == MANY - 500
    assert first["head"] + first["list"] <= 100
    assert cuts.holds("u", 0, 0).snapshots == {number + 1 for number in range(599, MANY, 100)}
    assert cuts.holds("u", 0, 1).snapshots == frozenset()
    cuts.tend(dry_run=False)
    again = counted(store)
    assert again["get"] == again["put_if_absent"] == again["delete"] == 0
    put_cut(many, MANY, end=9_999)
    assert 9_999 in cuts.holds("t", 0, 0).snapshots
    assert counted(store)["get"] == 1
    many.delete(cut_key(MANY, Part.CLAIM))
    many.delete(cut_key(MANY, Part.CUT))


def test_of_the_snapshots_that_are_held_a_few_tell_which_files_are(clock: ManualClock) -> None:
    """Clean-up reads only a few of the held snapshots to find which files they need, because a file is live
    over one stretch of the log and bisection finds its end."""
    inner = MemoryStore(f"cuts-files-{next(_NAMES)}")
    store = FaultyStore(inner)
    with Engine(store, clock=clock, pause=no_pause, configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic("t", partitions=1, schema=SCHEMA, key="account_id")
        for number in range(_APPENDS):
            append_and_cut(engine, inner, number)
            if number in (_FIRST_CUT - 10, 99, _APPENDS - 1):
                policy = MaintenancePolicy(min_files=2, target_file_bytes=1 << 20)
                engine.maintenance.compact("t", 0, policy=policy)
        before = data_files(inner)
        clock.advance(2 * DAY_MS)
        store.calls.clear()
        engine.maintenance.clean("t", 0, policy=MaintenancePolicy(orphan_age_ms=DAY_MS))
        read = {key for operation, key, _ in store.calls if operation == "get" and "/snapshots/" in key}
        assert 8 <= len(read) <= 30  # of 160
        assert len(before - data_files(inner)) == _FIRST_CUT - 9  # put together before there were cuts
        for number in range(0, _APPENDS - _FIRST_CUT, 10):
            table = engine.scan("t", cut=number).to_table(["account_id"])
            assert table.column("account_id").to_pylist() == list(range(_FIRST_CUT + number + 1))


_APPENDS, _FIRST_CUT = 200, 40


def append_and_cut(engine: Engine, store: MemoryStore, number: int) -> None:
    """Append a record in a file of its own. From the fortieth record on, store a cut after it."""
    engine.partition("t", 0).append(payments(number))
    if number >= _FIRST_CUT:
        log = engine.logs.get("t", 0, 0)
        state = log.refresh()
        end, store_id = state.log_end_offset, engine.config.store_id
        store.put(log.keys.snapshot(end), encode_snapshot(state))
        cut = number - _FIRST_CUT
        held = Cut(
            cut, store_id, 0, NEVER, True, (CutTopic("t", 0, (LogCut(end, end, end),)),), _GROUPS, (0,)
        )
        put(store, cut, Part.CLAIM, {"created_ms": 0})
        put(store, cut, Part.CUT, encoded_cut(held, cut, store_id))


def data_files(store: MemoryStore) -> set[str]:
    return {info.key for info in store.list("topics/t/0/0/data/")}


# --- what is refused ------------------------------------------------------------------------------------------


def refusing(store: FaultyStore, *refused: str) -> None:
    def decide(operation: Operation, key: str, _: int) -> Fault | None:
        return "before" if operation in ("get", "head") and key in refused else None

    store.decide, store.error = decide, raising(AccessDeniedError)


def test_a_cut_that_is_refused_once_is_asked_for_again(readers: ThreadPoolExecutor) -> None:
    """Clean-up stops for as long as the store refuses to give a cut, and does not call the cut damaged."""
    store = FaultyStore(MemoryStore(f"cuts-refused-{next(_NAMES)}"))
    put_cut(store.inner, 0, end=5)  # type: ignore[arg-type]
    cuts = cut_store(store, readers, ManualClock())
    refusing(store, cut_key(0, Part.CUT))
    with pytest.raises(StoreAccessError):
        cuts.holds("t", 0, 0)
    assert [each.place for each in cuts.all().unreadable] == ["cut 0"]
    assert cuts.newest_over(None, 1) is None
    with pytest.raises(StoreAccessError):
        cuts.delete(0)
    refusing(store)
    assert cuts.holds("t", 0, 0).snapshots == {5}
    assert [cut.number for cut in cuts.all()] == [0]


def test_a_deleted_cut_that_is_refused_holds_until_it_is_over(readers: ThreadPoolExecutor) -> None:
    store, clock = FaultyStore(MemoryStore(f"cuts-refused-{next(_NAMES)}")), ManualClock()
    put_cut(store.inner, 0, end=5)  # type: ignore[arg-type]
    cuts = cut_store(store, readers, clock)
    cuts.delete(0)
    refusing(store, cut_key(0, Part.DELETED))
    fresh = cut_store(store, readers, clock)
    assert fresh.holds("t", 0, 0).snapshots == {5}
    clock.advance(DAY_MS)
    assert fresh.holds("t", 0, 0).snapshots == {5}
    refusing(store)
    assert fresh.holds("t", 0, 0).snapshots == frozenset()


@pytest.mark.parametrize("before", [0, 1, 20])
def test_a_claim_that_is_refused_is_open_and_nobody_gives_it_up(
    readers: ThreadPoolExecutor, before: int
) -> None:
    inner, clock = MemoryStore(f"cuts-refused-{next(_NAMES)}"), ManualClock()
    store = FaultyStore(inner)
    for number in range(before):
        put_cut(inner, number)
    maker = cut_store(store, readers, clock)
    number = maker.claim()
    refusing(store, cut_key(number, Part.CLAIM))
    keeper = cut_store(store, readers, clock)
    assert keeper.holds("t", 0, 0).is_open
    clock.advance(CLAIM_MS)
    keeper.tend(dry_run=False)
    assert keeper.holds("t", 0, 0).is_open
    refusing(store)
    keeper.tend(dry_run=False)
    assert not keeper.holds("t", 0, 0).is_open


def test_where_all_claims_are_refused_nobody_looks_for_ever(readers: ThreadPoolExecutor) -> None:
    store = FaultyStore(MemoryStore(f"cuts-refused-{next(_NAMES)}"))
    store.decide = lambda operation, key, _: "before" if operation == "head" else None
    store.error = raising(AccessDeniedError)
    cuts = cut_store(store, readers, ManualClock())
    for ask in (cuts.claim, lambda: cuts.holds("t", 0, 0)):
        with pytest.raises(StoreAccessError):
            ask()


def test_a_claim_whose_time_is_damaged_is_given_up(readers: ThreadPoolExecutor) -> None:
    """A claim with a damaged time is given up, because nobody can know its age."""
    store = MemoryStore(f"cuts-damaged-{next(_NAMES)}")
    put(store, 0, Part.CLAIM, {"created_ms": "noon"})
    keeper = cut_store(store, readers, ManualClock())
    assert keeper.holds("t", 0, 0).is_open
    keeper.tend(dry_run=False)
    assert not keeper.holds("t", 0, 0).is_open
