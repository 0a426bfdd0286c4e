"""Clean-up: which objects it deletes, which it never deletes, and on which evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage import InvalidKeyError, LogKeys, MemoryStore
from tests.engine.conftest import SCHEMA, payments
from tests.maintain.ledgers import (
    EAGER,
    HOUR_MS,
    POLICY,
    PREFIX,
    START_MS,
    TOPIC,
    abort,
    accounts,
    commit,
    keys,
    ledger,
    new_store,
    open_engine,
    upload,
)
from tests.support.faults import Fault, FaultyStore, Operation
from tests.support.refusals import refused
from tests.support.stores import assert_sound, copy_of
from txn_engine import Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.log.data_files import EncodedFile
from txn_engine.log.snapshot_format import decode_snapshot, encode_snapshot
from txn_engine.maintain import Cleaned, MaintenancePolicy
from txn_engine.maintain.policy import DAY_MS
from txn_engine.protocol.proposals import DataProposal
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock


def fresh(clock: ManualClock, store: MemoryStore | None = None) -> Engine:
    engine = open_engine(store or new_store(), clock)
    engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, key="account_id")
    return engine


def cleaned(engine: Engine, policy: MaintenancePolicy = POLICY) -> Cleaned:
    report = engine.maintenance.clean(TOPIC, policy=policy)
    (done,) = report.partitions
    assert report.failures == ()
    return done


def name_it(engine: Engine, uploaded: EncodedFile) -> None:
    """Append the entry of a file that was uploaded before."""
    batch = DataProposal(
        uploaded.record_count, uploaded.first_timestamp, uploaded.max_timestamp, uploaded.file
    )
    engine.logs.get(TOPIC, 0, 0).append_one(batch)


# --- files that died ---------------------------------------------------------------------------------------


def test_grace_is_24_hours_of_the_logs_time() -> None:
    """An aborted file stays for 24 hours from its marker on, to the millisecond."""
    clock, store = ManualClock(START_MS), new_store()
    with fresh(clock, store) as engine:
        clock.advance(7 * HOUR_MS)
        abort(engine, 1)
        clock.advance(DAY_MS - 1)
        assert engine.maintenance.clean(TOPIC).partitions == ()
        assert len(keys(store, "data")) == 1
        clock.advance(1)
        done = cleaned(engine)
        assert (done.dead_files, done.orphans, done.floor) == (1, 0, 0)
        assert keys(store, "data") == []
        assert engine.maintenance.clean(TOPIC).partitions == ()
        assert_sound(engine)


def test_trimmed_and_rewritten_files_have_their_grace_too() -> None:
    """Files that retention or compaction has replaced stay for 24 hours after the entry that says so. Then
    clean-up deletes them."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        engine.maintenance.compact(TOPIC, policy=POLICY)
        engine.maintenance.retain(TOPIC, policy=POLICY)
        engine.maintenance.clean(TOPIC, policy=POLICY)
        held = len(keys(store, "data"))
        clock.advance(DAY_MS)
        done = cleaned(engine)
        assert done.dead_files == 14
        assert len(keys(store, "data")) == held - 14 == 2
        assert_sound(engine)


def test_the_dead_are_forgotten_by_a_floor_only() -> None:
    """Deleting dead files changes no state. Only the floor's entry makes every replay forget the files that
    were dead for 24 hours."""
    clock, store = ManualClock(START_MS), new_store()
    with fresh(clock, store) as engine:
        abort(engine, 1)
        clock.advance(DAY_MS)
        cleaned(engine)
        assert len(engine.partition(TOPIC, 0).state.dead) == 1
        clock.advance(7 * DAY_MS)
        done = cleaned(engine)
        assert (done.floor_before, done.floor) == (0, 2)
        assert (done.dead_files, done.orphans) == (0, 0)
        assert not engine.partition(TOPIC, 0).state.dead
    with open_engine(store, clock) as engine:
        assert not engine.partition(TOPIC, 0).state.dead
        assert_sound(engine)


# --- orphans -----------------------------------------------------------------------------------------------


def test_orphans_of_seven_days() -> None:
    """A file without an entry is deleted if, seven days ago, the log had already gone past the offset where
    the file's upload began."""
    clock, store = ManualClock(START_MS), new_store()
    with fresh(clock, store) as engine:
        commit(engine, 1)
        orphan = upload(engine, 9)
        clock.advance(1)
        commit(engine, 2)
        clock.advance(7 * DAY_MS - 1)
        assert engine.maintenance.clean(TOPIC).partitions == ()
        clock.advance(1)
        done = cleaned(engine)
        assert (done.floor, done.orphans, done.orphan_bytes) == (4, 1, orphan.file.data_bytes)
        assert len(keys(store, "data")) == 2
        assert accounts(engine) == [1, 2]
        assert_sound(engine)


def test_strictly_below_the_floor() -> None:
    """A file whose upload began at the floor can still be named, so it stays. A file from below the floor is
    deleted."""
    clock, store = ManualClock(START_MS), new_store()
    with fresh(clock, store) as engine:
        below = upload(engine, 8)
        commit(engine, 1)
        at_floor = upload(engine, 9)
        clock.advance(8 * DAY_MS)
        done = cleaned(engine)
        assert (done.floor, done.orphans) == (2, 1)
        assert below.file.data_path.removeprefix("data/") not in keys(store, "data")
        name_it(engine, at_floor)
        assert accounts(engine) == [1, 9]
        with refused(InvalidRequestError, Reason.FILE_BELOW_FLOOR):
            name_it(engine, below)
        assert_sound(engine)


@pytest.mark.parametrize("how", ["idempotent", "transaction", "append"])
def test_an_engine_that_was_idle_for_weeks_uploads_under_the_present_log_end(how: str) -> None:
    """An engine that was idle for weeks uploads under the present log end, so its file is not below the floor
    although its view is older."""
    clock, store = ManualClock(START_MS), new_store()
    with fresh(clock, store) as engine, open_engine(store, clock) as idle:
        with idle.producer() as before:
            before.produce(TOPIC, payments(0)).result()
        abort(engine, 1)
        for account in range(2, 14):
            clock.advance(DAY_MS)
            commit(engine, account)
        assert cleaned(engine).floor > 2
        if how == "append":
            idle.partition(TOPIC, 0).append(payments(99))
        elif how == "idempotent":
            with idle.producer() as producer:
                producer.produce(TOPIC, payments(99)).result()
        else:
            producer = idle.producer(transactional_id="idle")
            producer.init_transactions()
            with producer.transaction():
                producer.produce(TOPIC, payments(99))
        assert accounts(engine) == [0, *range(2, 14), 99]


def test_a_file_named_before_the_floor_is_not_an_orphan() -> None:
    """If a writer names its old file after clean-up has looked and right before the floor's entry, the file
    stays.

    Clean-up would delete it if it decided on a replay that ends before the floor.
    """
    store, clock = new_store(), ManualClock(START_MS)
    with fresh(clock, store) as engine:
        slow = upload(engine, 9)
        upload(engine, 8)
        commit(engine, 1)
        clock.advance(8 * DAY_MS)

    woken: list[bool] = []

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        if operation == "put_if_absent" and not woken:
            woken.append(True)
            with open_engine(store, clock) as writer:
                name_it(writer, slow)
        return None

    watched = FaultyStore(store)
    with open_engine(watched, clock) as engine:
        watched.decide = decide
        done = cleaned(engine)
        watched.decide = None
        assert woken
        assert (done.floor, done.orphans) == (2, 1)
        assert accounts(engine) == [1, 9]
        assert_sound(engine)


def test_a_floor_whose_put_was_lost_deletes_nothing() -> None:
    """If the put of the floor's entry has no answer and did not take effect, no file is deleted."""
    store, clock = ledger()
    silent = FaultyStore(store)
    blocked: set[str] = set()

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        if operation == "put_if_absent":
            blocked.add(key)
        return "before" if key in blocked else None

    before = keys(store, "data")
    with open_engine(silent, clock) as engine:
        silent.decide = decide
        (failure,) = engine.maintenance.clean(TOPIC, policy=POLICY).failures
        assert failure.code == "OUTCOME_UNKNOWN"
        orphan = before[0]
        assert orphan in keys(store, "data")


def test_no_floor_without_need() -> None:
    """If there is nothing to collect, clean-up writes no floor, however often it runs."""
    clock, store = ManualClock(START_MS), new_store()
    with fresh(clock, store) as engine:
        commit(engine, 1)
        clock.advance(30 * DAY_MS)
        end = engine.partition(TOPIC, 0).high_watermark
        for _ in range(3):
            clock.advance(DAY_MS)
            assert engine.maintenance.clean(TOPIC).partitions == ()
        assert engine.partition(TOPIC, 0).high_watermark == end


def test_the_log_does_not_say_where_it_ended() -> None:
    """If all entries of that time are sealed, clean-up cannot know where the log ended then, and leaves the
    floor where it is."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        engine.maintenance.retain(TOPIC, policy=EAGER)
        engine.maintenance.seal(TOPIC)
        clock.advance(-2 * DAY_MS)
        assert engine.partition(TOPIC, 0).state.entries_start > 0
        done = cleaned(engine)
        assert (done.floor, done.orphans) == (0, 0)
        assert keys(store, "data")[0].startswith("0" * 20)


# --- what is not ours --------------------------------------------------------------------------------------


def test_foreign_objects_are_left_alone() -> None:
    """Clean-up only ever deletes keys that the format gives, right in the partition's folders."""
    store, clock = ledger()
    foreign = [
        f"{PREFIX}/data/notes.txt",
        f"{PREFIX}/data/{0:020d}-p-1-e-1-{'ab' * 16}.parquet.bak",
        f"{PREFIX}/data/{0:020d}-p-1-e-1-{'AB' * 16}.parquet",
        f"{PREFIX}/data/sub/{0:020d}-p-1-e-1-{'ab' * 16}.parquet",
        f"{PREFIX}/data/0-p-1-e-1-{'ab' * 16}.parquet",
        f"{PREFIX}/elsewhere/{0:020d}-p-1-e-1-{'ab' * 16}.parquet",
        f"topics/{TOPIC}/0/00/data/{0:020d}-p-1-e-1-{'ab' * 16}.parquet",
    ]
    for key in foreign:
        store.put(key, b"not ours")
    with open_engine(store, clock) as engine:
        clock.advance(30 * DAY_MS)
        assert cleaned(engine, EAGER).orphans == 1
    for key in foreign:
        assert store.get(key) == b"not ours"


@pytest.mark.parametrize(
    "key", ["t/0/1/data/", "t/0/1/data/a/b", "t/0/10/data/a", "t/0/1/log/a", "a", "data/a"]
)
def test_foreign_data_keys(key: str) -> None:
    """A key that is not right in the partition's data folder is refused."""
    with pytest.raises(InvalidKeyError):
        LogKeys("t/0/1").parse_data(key)
    assert LogKeys("t/0/1").parse_data("t/0/1/data/a-1.parquet") == "a-1.parquet"


# --- snapshots ---------------------------------------------------------------------------------------------


def snapshots(store: MemoryStore) -> list[int]:
    return [int(name[:20]) for name in keys(store, "snapshots")]


def test_two_newer_ones_and_the_first_of_a_day() -> None:
    """Clean-up keeps the two newest snapshots, the oldest ones that can be replayed from, and the first one
    of each later day of the log."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        before = snapshots(store)
        done = cleaned(engine)
        assert snapshots(store) == [*before[:2], *before[-2:]]
        assert done.snapshots == len(before) - 4 > 0
        for _ in range(3):
            clock.advance(DAY_MS)
            for account in (1, 2, 3):
                commit(engine, account)
                engine.admin.snapshot(TOPIC)
        firsts = snapshots(store)[-9::3]
        engine.maintenance.clean(TOPIC, policy=POLICY)
        assert snapshots(store) == [*before[:2], *firsts, *snapshots(store)[-2:]]
        assert_sound(engine)


def test_behind_sealed_entries_they_go() -> None:
    """A snapshot from before the sealed entries is deleted even if it is the first of its day, because
    nothing can be replayed from it any more."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        engine.maintenance.retain(TOPIC, policy=EAGER)
        engine.maintenance.seal(TOPIC)
        before = snapshots(store)
        engine.maintenance.clean(TOPIC, policy=POLICY)
        assert snapshots(store) == before[-2:]
        assert_sound(engine)


@pytest.mark.parametrize("which", [-1, -2])
def test_a_damaged_one_does_not_count(which: int) -> None:
    """A damaged snapshot among the newest two does not count as one of them, and two sound ones stay."""
    store, clock = ledger()
    before = snapshots(store)
    damaged = f"{PREFIX}/snapshots/{before[which]:020d}.parquet"
    store.put(damaged, b"PAR1 damaged PAR1")
    with open_engine(store, clock) as engine:
        engine.maintenance.clean(TOPIC, policy=POLICY)
    assert snapshots(store) == [*before[:2], *before[-3:]]


def test_one_that_differs_from_the_log_stops_the_deletions() -> None:
    """If the newest snapshot is whole but differs from the log, clean-up deletes none of the snapshots and
    names it."""
    store, clock = ledger()
    before = snapshots(store)
    newest = f"{PREFIX}/snapshots/{before[-1]:020d}.parquet"
    state = decode_snapshot(store.get(newest), key=newest)
    store.put(newest, encode_snapshot(replace(state, floor=1)))
    with open_engine(store, clock) as engine:
        (failure,) = engine.maintenance.clean(TOPIC, policy=POLICY).failures
        assert failure.place == newest
        assert snapshots(store) == before


def test_a_dry_run_says_the_same_and_writes_nothing() -> None:
    """What a dry run reports is what the run then does."""
    store, clock = ledger()
    untouched = copy_of(store)
    with open_engine(store, clock) as engine:
        planned = engine.maintenance.clean(TOPIC, policy=POLICY, dry_run=True)
        assert {info.key for info in store.list("")} == {info.key for info in untouched.list("")}
        assert planned.partitions == (cleaned(engine),)
        assert planned.partitions[0].bytes > 0


def test_internal_topics_have_snapshots_only() -> None:
    """The coordinator's old snapshots are deleted too. Clean-up looks for nothing else there."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        report = engine.maintenance.clean("__transaction_state", policy=POLICY)
        assert report.failures == ()
        (done,) = report.partitions
        assert done.snapshots > 0
        assert (done.dead_files, done.orphans, done.floor) == (0, 0, 0)
        assert_sound(engine)
