"""Compaction by key: a table built from the topic is the same before, during and after a pass, whatever dies
or interferes."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from storage import MemoryStore, ObjectStore
from tests.maintain.ledgers import HOUR_MS, START_MS, new_store, open_engine
from tests.maintain.many_files import Report, measure
from tests.maintain.tables import (
    ALWAYS,
    PLACE,
    TABLE,
    assert_is_part,
    by_offset,
    compact,
    doubled,
    held,
    new_table,
    put,
    rows,
    table_of,
)
from tests.maintain.test_deaths import FAULTS, attempt, faulty
from tests.suite.tiers import in_shard
from tests.support.faults import Fault, FaultyStore, Operation
from tests.support.stores import assert_sound, copy_of
from txn_engine import Engine
from txn_engine.maintain import MaintenancePolicy
from txn_engine.maintain.by_key import KeyCompactor
from txn_engine.maintain.merged_files import RunMerger, replace_inputs
from txn_engine.maintain.policy import DAY_MS
from txn_engine.maintain.target import Target
from txn_engine.maintain.workers import Merged
from txn_engine.protocol.proposals import RewriteProposal, Verdict
from txn_engine.testing import ManualClock

KEYS = "abcdef"


# --- against a dictionary ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", in_shard("kills", range(4), keep=1))
def test_a_table_built_from_it_is_the_same(seed: int) -> None:
    """However records are written, aborted, left open and compacted, a reader from the start builds the same
    table as all committed records do, and each record is as it was written."""
    draw = random.Random(seed)
    clock, store = ManualClock(START_MS), new_store()
    with new_table(store, clock) as engine:
        written = held(engine)
        opened = 0
        for step in range(40):
            kind = draw.choice(("commit", "commit", "commit", "abort", "open", "compact", "compact", "wait"))
            pairs = [(draw.choice(KEYS), draw.choice((step, step, None))) for _ in range(draw.randint(1, 4))]
            if kind in ("commit", "abort"):
                put(engine, *pairs, commit=kind == "commit")
            elif kind == "open":
                opened += 1
                left = engine.producer(transactional_id=f"open-{opened}", transaction_timeout_ms=60_000)
                left.init_transactions()
                left.begin_transaction()
                left.produce(TABLE, pa.table({"key": [pairs[0][0]], "value": pa.array([-1], pa.int64())}))
                left.flush()
            elif kind == "wait":
                clock.advance(draw.choice((1_000, HOUR_MS, DAY_MS)))
                engine.coordinator.abort_timed_out_transactions()
            else:
                compact(engine, _any_policy(draw))
            written |= held(engine)
            _check(engine, written)
        assert_sound(engine)
        engine.admin.snapshot()
        state = engine.partition(TABLE, 0).state
    with open_engine(store, clock) as fresh:
        assert fresh.partition(TABLE, 0).state == state
        _check(fresh, written)


def _any_policy(draw: random.Random) -> MaintenancePolicy:
    return replace(
        ALWAYS,
        min_dirty_ratio=draw.choice((0.0, 0.5)),
        key_memory_bytes=draw.choice((1, 600, 1 << 20)),
        target_file_bytes=draw.choice((1, 3_000, 1 << 20)),
    )


def _check(engine: Engine, written: dict[int, tuple[str, int | None]]) -> None:
    found = held(engine)
    stable = engine.partition(TABLE, 0).last_stable_offset
    assert_is_part(found, written)
    assert table_of(found) == table_of({at: record for at, record in written.items() if at < stable})
    cleaned_to = engine.partition(TABLE, 0).state.cleaning.cleaned_to
    assert doubled({at: record for at, record in found.items() if at < cleaned_to}) == []


def test_after_a_pass_each_key_stands_once() -> None:
    """After a pass each key is there once, and another pass has nothing to do."""
    clock = ManualClock(START_MS)
    with new_table(new_store(), clock) as engine:
        for number in range(30):
            put(engine, (KEYS[number % 6], number), ("z", number), commit=number % 4 != 3)
        before = table_of(held(engine))
        compact(engine)
        assert doubled(held(engine)) == []
        assert table_of(held(engine)) == before
        assert engine.maintenance.compact(TABLE, policy=ALWAYS).partitions == ()


# --- rounds, sizes, types ------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [1, 1_000, 1 << 20])
def test_more_keys_than_there_is_room_for(room: int) -> None:
    """If the keys do not fit into memory they go to the disk and come back, and the result is the same."""
    clock = ManualClock(START_MS)
    with new_table(new_store(), clock) as engine:
        for number in range(12):
            put(engine, *((f"key-{(number * 7 + n) % 20}", number) for n in range(5)))
        before = table_of(held(engine))
        compact(engine, replace(ALWAYS, key_memory_bytes=room))
        assert table_of(held(engine)) == before
        assert doubled(held(engine)) == []
        assert_sound(engine)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.int64(), [0, -1, 2**63 - 1, -(2**63)]),
        (pa.int32(), [0, -1, 2**31 - 1]),
        (pa.string(), ["", "a", "ä", "a\0"]),
        (pa.large_string(), ["", "a"]),
        (pa.binary(), [b"", b"\0", b"\0\0", b"\xff"]),
        (pa.large_binary(), [b"", b"\0"]),
    ],
    ids=str,
)
def test_every_type_of_key(kind: pa.DataType, keys: list[object]) -> None:
    """Keys that differ in anything are different keys, and the auditor agrees."""
    clock = ManualClock(START_MS)
    with open_engine(new_store(), clock) as engine:
        schema = pa.schema([("k", kind), ("v", pa.int64())])
        engine.admin.create_topic(TABLE, partitions=1, schema=schema, key="k", cleanup_policy="compact")
        for number in range(3):
            values = pa.array([number] * len(keys), pa.int64())
            engine.partition(TABLE, 0).append(pa.table([pa.array(keys, kind), values], schema=schema))
        compact(engine)
        found = engine.scan(TABLE).to_table()
        assert found.column("k").to_pylist() == keys
        assert set(found.column("v").to_pylist()) == {2}
        assert_sound(engine)


def test_no_tombstones_without_columns_that_may_be_null() -> None:
    """A topic whose columns cannot be null has no tombstones, and neither has one with its key alone.
    Compaction keeps all their keys."""
    clock = ManualClock(START_MS)
    with open_engine(new_store(), clock) as engine:
        only = pa.schema([("k", pa.string())])
        strict = pa.schema([pa.field("k", pa.string()), pa.field("v", pa.int64(), nullable=False)])
        for name, schema in (("only", only), ("strict", strict)):
            topic = engine.admin.create_topic(name, schema=schema, key="k", cleanup_policy="compact")
            columns = {"k": ["a", "b"], "v": pa.array([1, 2], pa.int64())}
            table = pa.table({field: columns[field] for field in schema.names})
            engine.partition(topic.topic, 0).append(table)
            for _ in range(3):
                engine.maintenance.compact(name, policy=ALWAYS)
                clock.advance(2 * DAY_MS)
            assert engine.scan(name).to_table().column("k").to_pylist() == ["a", "b"]


def test_a_dry_run_writes_nothing() -> None:
    """A dry run writes nothing, and counts the records that the first round would drop."""
    clock, store = ManualClock(START_MS), new_store()
    with new_table(store, clock) as engine:
        for number in range(6):
            put(engine, ("a", number))
        before = [info.key for info in store.list("")]
        (would,) = engine.maintenance.compact(TABLE, policy=ALWAYS, dry_run=True).partitions
        assert [info.key for info in store.list("")] == before
        (done,) = engine.maintenance.compact(TABLE, policy=ALWAYS).partitions
        assert (
            (would.files, would.records, would.dropped)
            == (done.files, done.records, done.dropped)
            == (6, 1, 5)
        )


def test_a_range_without_a_record_left() -> None:
    """Files whose records are all superseded leave no file in their place, and readers step over the gap."""
    clock = ManualClock(START_MS)
    with new_table(new_store(), clock) as engine:
        put(engine, ("a", 1), ("b", 1))
        put(engine, ("a", 2), ("b", 2))
        compact(engine, replace(ALWAYS, target_file_bytes=1, min_files=1_000))
        state = engine.partition(TABLE, 0).state
        assert [file.base_offset for file in state.live.values()] == [3]
        assert list(held(engine)) == [3, 4]
        for start in range(3):
            with engine.consumer() as consumer:
                consumer.assign([PLACE])
                consumer.seek(PLACE, start)
                batch = consumer.poll()
                assert batch is not None
                assert batch.column("_offset").to_pylist() == [3, 4]
        assert_sound(engine)


# --- readers on the way ---------------------------------------------------------------------------------------


def test_a_reader_that_keeps_a_table() -> None:
    """A reader that goes on from its last position, before and after passes, has the same table as one that
    reads everything from the start, as long as it never falls behind by `delete.retention.ms`."""
    draw = random.Random(7)
    clock = ManualClock(START_MS)
    with new_table(new_store(), clock, delete_retention_ms=10 * HOUR_MS) as engine:
        kept: dict[int, tuple[str, int | None]] = {}
        position = 0
        for step in range(40):
            put(engine, (draw.choice(KEYS), draw.choice((step, None))), commit=draw.random() < 0.8)
            if draw.random() < 0.5:
                compact(engine)
            clock.advance(HOUR_MS)
            if step % 4 == 3:
                scan = engine.scan(TABLE, start={PLACE: position})
                kept |= by_offset(scan.to_table())
                position = scan.offsets[PLACE]
                assert table_of(kept) == table_of(held(engine))


def test_what_was_planned_is_read() -> None:
    """A scan that was planned before a pass reads the records that it planned, and a consumer between two
    polls does not lose any."""
    clock = ManualClock(START_MS)
    with new_table(new_store(), clock) as engine:
        for number in range(10):
            put(engine, (KEYS[number % 3], number))
        before, planned = held(engine), engine.scan(TABLE)
        compact(engine)
        assert by_offset(planned.to_table()) == before
        assert table_of(held(engine)) == table_of(before)


# --- death and company ------------------------------------------------------------------------------------------


def dirty() -> tuple[MemoryStore, ManualClock]:
    """A partition that was clean once, has a tombstone that is due, is dirty again, and has an open
    transaction at its end."""
    clock, store = ManualClock(START_MS), new_store()
    with new_table(store, clock) as engine:
        put(engine, ("a", 1), ("b", 1), ("c", 1), ("e", 1))
        put(engine, ("a", None))
        compact(engine)
        clock.advance(DAY_MS)
        put(engine, ("b", 2))
        put(engine, ("b", 3), commit=False)
        put(engine, ("d", 1), ("e", 1))
        put(engine, ("d", 2), ("f", 2))
        put(engine, ("c", 4), ("d", 4))
        left = engine.producer(transactional_id="left")
        left.init_transactions()
        left.begin_transaction()
        left.produce(
            TABLE, pa.table({"key": ["d"], "value": pa.array([9], pa.int64())}), partition=0
        ).result()
    return store, clock


POLICY = replace(ALWAYS, target_file_bytes=600, key_memory_bytes=30)
"""Several rewrites, and keys on the disk."""


def _job(engine: Engine) -> object:
    return engine.maintenance.compact(TABLE, policy=POLICY)


def _finish(store: ObjectStore, clock: ManualClock) -> None:
    """Whatever happened, the table is right, the auditor finds nothing, another run finishes, and a third one
    has nothing to do."""
    with open_engine(store, clock) as engine:
        for _ in range(2):
            assert table_of(held(engine)) == {"b": 2, "c": 4, "d": 4, "e": 1, "f": 2}
            compact(engine, POLICY)
        assert doubled(held(engine)) == []
        assert engine.maintenance.compact(TABLE, policy=POLICY).partitions == ()
        assert engine.partition(TABLE, 0).state.cleaning.tombstones_to > 0
        clock.advance(120_000)
        engine.coordinator.abort_timed_out_transactions()
        put(engine, ("b", 7))
        assert table_of(held(engine)) == {"b": 7, "c": 4, "d": 4, "e": 1, "f": 2}
        assert_sound(engine)


def _writes(made: ObjectStore, now_ms: int, policy: MaintenancePolicy = POLICY) -> list[int]:
    counted = FaultyStore(copy_of(made))
    with open_engine(counted, ManualClock(now_ms)) as engine:
        counted.calls.clear()
        compact(engine, policy)
    return [at for at, (operation, _, _) in enumerate(counted.calls) if operation.startswith("put")]


@pytest.mark.parametrize(
    ("fault", "step"), in_shard("kills", [("dies after", 3), *((fault, 1) for fault in FAULTS)], keep=1)
)
def test_every_write(fault: str, step: int) -> None:
    """Any write is the last, or fails once before or after it took effect. `make test` tries every third one."""
    made, clock = dirty()
    writes = _writes(made, clock())
    assert len(writes) >= 6
    for at in writes[::step]:
        store, now = copy_of(made), ManualClock(clock())
        attempt(_job, faulty(store, fault, at), now)  # type: ignore[arg-type]
        _finish(store, now)


def tombstones() -> tuple[MemoryStore, ManualClock]:
    """A clean partition that holds only tombstones, each in a file of its own, all of them due."""
    clock, store = ManualClock(START_MS), new_store()
    with new_table(store, clock) as engine:
        for value in (1, None):
            for key in KEYS:
                put(engine, (key, value))
        compact(engine, FILE_BY_FILE)
        clock.advance(DAY_MS)
        assert set(held(engine).values()) == {(key, None) for key in KEYS}
    return store, clock


FILE_BY_FILE = replace(ALWAYS, target_file_bytes=1, min_files=1_000)


def _take_tombstones(engine: Engine) -> object:
    return engine.maintenance.compact(TABLE, policy=FILE_BY_FILE)


@pytest.mark.shard("kills")
@pytest.mark.parametrize("fault", FAULTS)
def test_every_write_of_a_pass_over_tombstones(fault: str) -> None:
    """Whichever write of a pass over tombstones fails, the next run finishes, and the log never says that
    tombstones are gone that are still there."""
    made, clock = tombstones()
    writes = _writes(made, clock(), FILE_BY_FILE)
    assert len(writes) == len(KEYS)
    for at in writes:
        store, now = copy_of(made), ManualClock(clock())
        attempt(_take_tombstones, faulty(store, fault, at), now)  # type: ignore[arg-type]
        with open_engine(store, now) as engine:
            gone_below = engine.partition(TABLE, 0).state.cleaning.tombstones_to
            assert all(offset >= gone_below for offset in held(engine))
            compact(engine, FILE_BY_FILE)
            assert held(engine) == {}
            assert engine.maintenance.compact(TABLE, policy=FILE_BY_FILE).partitions == ()
            assert_sound(engine)


def test_behind_a_rewrite_that_was_overtaken_no_tombstone_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a rewrite is overtaken, the log does not say that the tombstones of its inputs are gone, because
    they are still there. The next run removes all of them."""
    store, clock = tombstones()
    asked: list[RewriteProposal] = []

    def overtaken_once(target: Target, rewrite: RewriteProposal) -> Verdict | None:
        asked.append(rewrite)
        return None if len(asked) == 3 else replace_inputs(target, rewrite)

    monkeypatch.setattr("txn_engine.maintain.by_key.replace_inputs", overtaken_once)
    with open_engine(store, clock) as engine:
        (report,) = engine.maintenance.compact(TABLE, policy=FILE_BY_FILE).partitions
        assert report.overtaken == 1
        gone_below = engine.partition(TABLE, 0).state.cleaning.tombstones_to
        assert [offset >= gone_below for offset in held(engine)] == [True] * 4
        compact(engine, FILE_BY_FILE)
        assert held(engine) == {}
        assert_sound(engine)


def test_a_rewrite_that_is_refused_though_its_inputs_are_live_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refused rewrite counts as overtaken only if another run has replaced or trimmed its inputs. If they
    are live, it is a failure."""
    clock = ManualClock(START_MS)
    with new_table(new_store(), clock) as engine:
        for number in range(6):
            put(engine, ("a", number))
        for by_key in (True, False):
            with monkeypatch.context() as patch:
                patch.setattr(RunMerger, "merge", _too_long)
                if not by_key:
                    patch.setattr(KeyCompactor, "run", lambda self: None)
                report = engine.maintenance.compact(TABLE, policy=ALWAYS)
            assert report.partitions == ()
            assert "output" in report.failures[0].message
        compact(engine)
        assert table_of(held(engine)) == {"a": 5}


_MERGE = RunMerger.merge


def _too_long(merger: RunMerger, *args: object) -> Merged:
    merged = _MERGE(merger, *args)  # type: ignore[arg-type]
    assert merged.output is not None
    output = replace(merged.output, last_offset=merged.output.last_offset + 1, record_count=100)
    return replace(merged, output=output)


def test_one_clock_that_was_ahead_stops_nothing_unless_the_topic_has_a_lag() -> None:
    """One writer's clock that runs ahead delays compaction only if `min.compaction.lag.ms` is above 0, as in
    Kafka."""
    for lag_ms, left in ((0, []), (1, ["a"])):
        clock, store = ManualClock(START_MS), new_store()
        with new_table(store, clock, min_compaction_lag_ms=lag_ms) as engine:
            put(engine, ("a", 1))
            with open_engine(store, ManualClock(START_MS + 365 * DAY_MS)) as ahead:
                ahead.partition(TABLE, 0).append(rows(("z", 1)))
            for number in (2, 3):
                put(engine, ("a", number))
            clock.advance(1_000)
            compact(engine)
            found = held(engine)
            assert table_of(found) == {"a": 3, "z": 1}
            assert doubled(found) == left


@pytest.mark.parametrize(
    ("other_policy", "step"),
    in_shard(
        "kills",
        [
            pytest.param(POLICY, 3, id="some"),
            pytest.param(POLICY, 1, id="the same"),
            pytest.param(ALWAYS, 1, id="another"),
        ],
        keep=1,
    ),
)
def test_another_run_at_any_moment(other_policy: MaintenancePolicy, step: int) -> None:
    """Another compactor does all its work between any two writes of this one. No rewrite replaces what the other has
    replaced, and neither calls a range clean that is not. `make test` tries every third write, the shard tries all.
    """
    made, clock = dirty()
    for at in _writes(made, clock())[::step]:
        store, now = copy_of(made), ManualClock(clock())
        happened: list[int] = []

        def decide(operation: Operation, key: str, number: int) -> Fault | None:
            if number == at and not happened:  # noqa: B023
                happened.append(number)  # noqa: B023
                with open_engine(store, now) as other:  # noqa: B023
                    compact(other, other_policy)
            return None

        watched = FaultyStore(store)
        with open_engine(watched, now) as engine:
            watched.calls.clear()
            watched.decide = decide
            assert engine.maintenance.compact(TABLE, policy=POLICY).failures == ()
            watched.decide = None
        assert happened
        _finish(store, now)


# --- many files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("files", in_shard("kills", [150, 1_000], keep=1))
@pytest.mark.parametrize("by_key", in_shard("kills", [False, True], keep=[True]), ids=["merged", "by key"])
def test_many_small_files(by_key: bool, files: int) -> None:
    """A reader gets the same records, or the same table by key, before, during and after many small files are
    compacted."""
    report: Report = measure(f"memory://{files}-files-{by_key}", files=files, keys=100, by_key=by_key)
    assert report.files_before == files
    assert report.files_after == 1
    assert report.same_during
    assert report.same_after
    assert report.records_after == (100 if by_key else report.records_before)
