"""Retention: which files are trimmed, which stay, and which evidence allows it."""

from __future__ import annotations

import pytest

from storage import LogKeys
from tests.engine.conftest import SCHEMA, payments
from tests.maintain.ledgers import (
    EAGER,
    OLD,
    P0,
    POLICY,
    PREFIX,
    START_MS,
    TOPIC,
    YOUNG,
    abort,
    accounts,
    commit,
    keys,
    ledger,
    new_store,
    open_engine,
)
from tests.support.faults import FaultyStore
from tests.support.refusals import refused
from tests.support.stores import assert_sound
from txn_engine import Engine
from txn_engine.errors import InvalidRequestError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from txn_engine.log.snapshot_format import decode_snapshot, encode_snapshot
from txn_engine.maintain import MaintenancePolicy
from txn_engine.maintain.policy import DAY_MS
from txn_engine.maintain.reports import Trimmed
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock

KEYS = LogKeys(PREFIX)


def fresh(clock: ManualClock, retention_ms: int) -> Engine:
    engine = open_engine(new_store(), clock)
    engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, key="account_id", retention_ms=retention_ms)
    return engine


def only(report: object) -> Trimmed:
    (trimmed,) = report.partitions  # type: ignore[attr-defined]
    assert report.failures == ()  # type: ignore[attr-defined]
    assert isinstance(trimmed, Trimmed)
    return trimmed


# --- records -----------------------------------------------------------------------------------------------


def test_whole_files_by_their_newest_record() -> None:
    """A file is trimmed once its newest record is more than the retention old. At exactly that age it
    stays."""
    clock = ManualClock(START_MS)
    with fresh(clock, 1_000) as engine:
        log = engine.partition(TOPIC, 0)
        for account, stamp in ((1, START_MS), (2, START_MS + 1), (3, START_MS + 2)):
            log.append(payments(account, account), timestamp_ms=stamp)
        clock.advance(1_001)
        trimmed = only(engine.maintenance.retain(TOPIC))
        assert (trimmed.log_start_before, trimmed.log_start_offset) == (0, 2)
        assert (trimmed.files, trimmed.records) == (1, 2)
        assert accounts(engine) == [2, 2, 3, 3]
        assert log.log_start_offset == 2
        assert_sound(engine)


def test_a_merged_file_stays_for_its_newest_record() -> None:
    """A merged file stays until all its records are old. A merge spans at most a tenth of the retention."""
    clock = ManualClock(START_MS)
    with fresh(clock, 10_000) as engine:
        log = engine.partition(TOPIC, 0)
        for account, stamp in ((1, 0), (2, 1_000), (3, 1_001)):
            log.append(payments(account), timestamp_ms=START_MS + stamp)
        assert engine.maintenance.compact(TOPIC, policy=POLICY).partitions[0].records == 2
        clock.advance(11_000)
        assert engine.maintenance.retain(TOPIC).partitions == ()
        clock.advance(1)
        assert only(engine.maintenance.retain(TOPIC)).records == 2
        assert accounts(engine) == [3]


def test_an_old_file_behind_a_young_one_waits() -> None:
    """An old file after a young one stays as long as the young one, because a log begins at one offset."""
    clock = ManualClock(START_MS)
    with fresh(clock, 1_000) as engine:
        log = engine.partition(TOPIC, 0)
        for account, stamp in ((1, START_MS), (2, START_MS + 5_000), (3, START_MS)):
            log.append(payments(account), timestamp_ms=stamp)
        clock.advance(2_000)
        assert only(engine.maintenance.retain(TOPIC)).log_start_offset == 1
        assert accounts(engine) == [2, 3]


def test_never_past_the_last_stable_offset() -> None:
    """An open transaction holds retention back, however old the records after it are."""
    clock = ManualClock(START_MS)
    with fresh(clock, 1_000) as engine:
        commit(engine, 1)
        producer = engine.producer(transactional_id="open")
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(TOPIC, payments(2), partition=0).result()
        commit(engine, 3)
        clock.advance(DAY_MS)
        stable = engine.partition(TOPIC, 0).last_stable_offset
        assert only(engine.maintenance.retain(TOPIC)).log_start_offset == 1 <= stable
        assert engine.maintenance.retain(TOPIC).partitions == ()
        producer.commit_transaction()
        assert accounts(engine) == [2, 3]
        assert only(engine.maintenance.retain(TOPIC)).log_start_offset == 4
        assert accounts(engine) == []
        assert_sound(engine)


def test_the_index_of_aborted_transactions_does_not_grow_for_ever() -> None:
    """Where everything was aborted the log's start moves past it, although nothing is old, but never into a
    merged file."""
    clock = ManualClock(START_MS)
    with fresh(clock, 1_000) as engine:
        abort(engine, 1)
        abort(engine, 2)
        assert only(engine.maintenance.retain(TOPIC)).log_start_offset == 4
        assert engine.partition(TOPIC, 0).aborted_transactions(0, 100) == []
        commit(engine, 3)
        abort(engine, 4)
        commit(engine, 5)
        engine.maintenance.compact(TOPIC, policy=POLICY)
        assert engine.maintenance.retain(TOPIC).partitions == ()
        clock.advance(2_000)
        abort(engine, 6)
        commit(engine, 7)
        assert only(engine.maintenance.retain(TOPIC)).records == 2
        assert accounts(engine) == [7]
        assert engine.maintenance.retain(TOPIC).partitions == ()
        assert_sound(engine)


def test_kept_for_ever() -> None:
    """Without a retention nothing is trimmed. With a retention of zero everything decided is trimmed,
    once."""
    clock = ManualClock(START_MS)
    with fresh(clock, -1) as engine:
        commit(engine, 1)
        clock.advance(1000 * DAY_MS)
        assert engine.maintenance.retain(TOPIC).partitions == ()
    with fresh(clock, 0) as engine:
        commit(engine, 1)
        clock.advance(1)
        assert only(engine.maintenance.retain(TOPIC)).records == 1
        end = engine.partition(TOPIC, 0).high_watermark
        assert engine.maintenance.retain(TOPIC).partitions == ()
        assert engine.partition(TOPIC, 0).high_watermark == end, "a trim that trims nothing"


def test_readers_of_what_went_are_told() -> None:
    """A read from before the log's start is OFFSET_OUT_OF_RANGE, and a group with that position begins at the
    log's start."""
    clock = ManualClock(START_MS)
    with fresh(clock, 1_000) as engine:
        commit(engine, 1)
        with engine.consumer(group_id="g") as consumer:
            consumer.subscribe([TOPIC])
            consumer.commit({P0: 0})
        clock.advance(DAY_MS)
        commit(engine, 2)
        engine.maintenance.retain(TOPIC)
        with pytest.raises(OffsetOutOfRangeError):
            engine.partition(TOPIC, 0).read(0)
        with engine.consumer(group_id="g") as consumer:
            consumer.subscribe([TOPIC])
            batch = consumer.poll()
            assert batch is not None
            assert batch.column("account_id").to_pylist() == [2]


# --- entries -----------------------------------------------------------------------------------------------


def test_entries_start_is_the_last_entry_inside_an_old_snapshot() -> None:
    """The entries' start moves to the last entry inside the newest snapshot that is old enough."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        old = int(keys(store, "snapshots")[0][:20])
        trimmed = only(engine.maintenance.retain(TOPIC, policy=POLICY))
        below = [int(name[:20]) for name in keys(store, "log") if int(name[:20]) < old]
        assert trimmed.entries_start == below[-1]
        assert engine.partition(TOPIC, 0).state.entries_start == below[-1]
        assert engine.maintenance.retain(TOPIC, policy=POLICY).partitions == ()
        assert_sound(engine)


def test_internal_logs_too() -> None:
    """Retention also moves the entries' start of the coordinator's log. Its rows are in the snapshots, and
    nothing is forgotten."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        report = engine.maintenance.retain("__transaction_state", policy=POLICY)
        assert report.failures == ()
        assert [trimmed.log_start_offset for trimmed in report.partitions] == [0]
        (at,) = [trimmed.partition for trimmed in report.partitions]
        sealed = engine.maintenance.seal("__transaction_state").partitions
        assert [(each.partition, each.seals > 10) for each in sealed] == [(at, True)]
    with open_engine(store, clock) as engine:
        assert engine.admin.describe_transaction("load").state == "CompleteCommit"
        assert engine.admin.describe_transaction("left-open").state == "Ongoing"
        commit(engine, 106)
        assert_sound(engine)


def test_young_entries_stay() -> None:
    """If no snapshot is old enough, the entries' start does not move."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        patient = MaintenancePolicy(entries_age_ms=10 * DAY_MS, trim_step=1)
        assert only(engine.maintenance.retain(TOPIC, policy=patient)).entries_start == 0
        assert engine.maintenance.retain("__transaction_state", policy=patient).partitions == ()


def test_a_trim_must_be_worth_its_own_entry() -> None:
    """A log that nobody writes to is not trimmed again and again because of its own last trim."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        coordinator = "__transaction_state"
        assert engine.maintenance.retain(coordinator, policy=POLICY).partitions
        end = engine.admin.snapshot(coordinator)
        assert end
        default = MaintenancePolicy()
        for _ in range(3):
            clock.advance(8 * DAY_MS)
            engine.admin.snapshot(coordinator)
            assert engine.maintenance.retain(coordinator, policy=default).partitions == ()


def test_a_single_snapshot_vouches_for_nothing() -> None:
    """`entries_start` moves only if a second, newer snapshot was verified too."""
    store, clock = ledger()
    names = keys(store, "snapshots")
    for name in names[1:]:
        store.delete(f"{PREFIX}/snapshots/{name}")
    with open_engine(store, clock) as engine:
        assert only(engine.maintenance.retain(TOPIC, policy=POLICY)).entries_start == 0


def test_a_damaged_snapshot_is_not_counted() -> None:
    """If the old snapshot is damaged, the entries' start does not move. If a newer one is damaged, the next
    one takes its place."""
    store, clock = ledger()
    names = keys(store, "snapshots")
    store.put(f"{PREFIX}/snapshots/{names[0]}", b"PAR1 no more PAR1")
    with open_engine(store, clock) as engine:
        assert only(engine.maintenance.retain(TOPIC, policy=POLICY)).entries_start == 0
    store, clock = ledger()
    store.put(f"{PREFIX}/snapshots/{names[1]}", b"")
    with open_engine(store, clock) as engine:
        assert only(engine.maintenance.retain(TOPIC, policy=POLICY)).entries_start == int(names[0][:20]) - 1
    assert names == keys(store, "snapshots"), "a damaged snapshot is nobody's to delete here"


def test_a_snapshot_that_differs_from_the_log_stops_the_partition() -> None:
    """If a whole snapshot has another state than the log gives, nothing is trimmed, and the report names the
    object."""
    store, clock = ledger()
    names = keys(store, "snapshots")
    for name in (names[0], names[1]):
        key = f"{PREFIX}/snapshots/{name}"
        good = store.get(key)
        state = decode_snapshot(good, key=key)
        forgotten = state.named.delete(
            min(state.live.values(), key=lambda file: file.base_offset).file.data_path
        )
        lying = encode_snapshot(_replace(state, live=state.live.delete(min(state.live)), named=forgotten))
        store.put(key, lying)
        with open_engine(store, clock) as engine:
            report = engine.maintenance.retain(TOPIC, policy=POLICY)
            (failure,) = report.failures
            assert (failure.code, failure.place) == ("CORRUPT_MESSAGE", key)
            assert report.partitions == ()
            assert engine.partition(TOPIC, 0).state.entries_start == 0
        store.put(key, good)


def _replace(state: object, **changes: object) -> object:
    from dataclasses import replace

    return replace(state, **changes)  # type: ignore[type-var]


# --- and so on ---------------------------------------------------------------------------------------------


def test_a_dry_run_says_the_same_and_writes_nothing() -> None:
    """What a dry run reports is what the run then does."""
    store, clock = ledger()
    counted = FaultyStore(store)
    with open_engine(counted, clock) as engine:
        counted.calls.clear()
        planned = engine.maintenance.retain(TOPIC, policy=POLICY, dry_run=True)
        assert {operation for operation, _, _ in counted.calls} <= {"get", "list", "list_folders"}
        assert accounts(engine) == [*OLD, *YOUNG]
        done = engine.maintenance.retain(TOPIC, policy=POLICY)
        assert planned.dry_run
        assert only(planned) == only(done)
        assert accounts(engine) == YOUNG


def test_targets() -> None:
    """Without a name, all topics and the internal ones are maintained. A partition without a topic is
    refused."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        with refused(InvalidRequestError, Reason.PARTITION_WITHOUT_TOPIC):
            engine.maintenance.retain(partition=0)
        with pytest.raises(UnknownTopicOrPartitionError):
            engine.maintenance.retain(TOPIC, 7)
        told: list[tuple[str, int, int]] = []
        report = engine.maintenance.retain(policy=EAGER, progress=lambda *state: told.append(state))
        assert {trimmed.topic for trimmed in report.partitions} == {TOPIC, "__transaction_state"}
        partitions = 1 + sum(engine.config.internal_partitions.values())
        assert told[-1] == (f"{TOPIC}-0", partitions, partitions)


@pytest.mark.parametrize(
    "wrong",
    [{"orphan_age_ms": -1}, {"entries_age_ms": DAY_MS}, {"trim_step": 0}, {"min_files": 1}, {"target_file_bytes": 0}],
)  # fmt: skip
def test_impossible_policies(wrong: dict[str, int]) -> None:
    """A policy with impossible values is refused where it is made."""
    with pytest.raises(InvalidRequestError):
        MaintenancePolicy(**wrong)
