"""Compaction merges small files, and readers do not notice."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage import MemoryStore
from tests.engine.conftest import SCHEMA
from tests.maintain.ledgers import (
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
    records,
)
from tests.support.faults import Fault, FaultyStore, Operation
from tests.support.stores import assert_sound
from txn_engine import Engine
from txn_engine.errors import CorruptObjectError
from txn_engine.maintain import Compacted, MaintenancePolicy, merging
from txn_engine.maintain.merging import FileMerger
from txn_engine.maintain.neighbours import committed_files, runs
from txn_engine.maintain.policy import DAY_MS
from txn_engine.protocol.batches import FileRef
from txn_engine.protocol.partition import LogFile
from txn_engine.testing import ManualClock

ANY_SPAN = 2**63


# --- which -------------------------------------------------------------------------------------------------


def files(*sizes: int, stamps: tuple[int, ...] = ()) -> list[LogFile]:
    """Consecutive files of these sizes, with ten records each."""
    return [
        LogFile(
            -1, -1, 10 * number, 10 * number + 9, 10,
            stamps[number] if stamps else 0, stamps[number] if stamps else 0, FileRef(str(number), size, ""),
        )
        for number, size in enumerate(sizes)
    ]  # fmt: skip


def chosen(sizes: list[int], target: int = 100, least: int = 2) -> list[list[int]]:
    policy = MaintenancePolicy(target_file_bytes=target, min_files=least)
    return [list(sizes[start:end]) for start, end in runs(files(*sizes), policy, ANY_SPAN)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([10], []),
        ([10, 10], [[10, 10]]),
        ([50, 50], [[50, 50]]),
        ([51, 49, 49], [[49, 49]]),
        ([49, 49, 51, 30, 30], [[49, 49], [30, 30]]),
        ([40, 40, 40, 40, 40], [[40, 40], [40, 40]]),
        ([30, 10, 10], [[10, 10]]),
        ([20, 10, 10], [[20, 10, 10]]),
        ([40, 30, 8, 8], [[40, 30, 8, 8]]),
        ([40, 30, 4, 4], [[4, 4]]),
        ([30, 10], []),
        ([40, 10, 5, 5], [[10, 5, 5]]),
    ],
)
def test_runs(sizes: list[int], expected: list[list[int]]) -> None:
    """A run has consecutive files of at most half the target each and the target together, and its first file
    is not larger than the rest."""
    assert chosen(sizes) == expected


def test_enough_files_and_not_too_many() -> None:
    """Fewer than `min_files` files are left alone, and a rewrite names at most a thousand."""
    assert chosen([10] * 7, least=8) == []
    assert [len(run) for run in chosen([1] * 2_500, target=10_000)] == [1_000, 1_000, 500]


def test_records_of_one_run_are_of_one_time() -> None:
    """A run does not combine old records with young ones, because retention goes by the newest record of a
    file."""
    some = files(1, 1, 1, 1, stamps=(0, 5, 11, 16))
    assert runs(some, POLICY, 5) == [(0, 2), (2, 4)]
    assert runs(some, POLICY, 4) == []


def test_rewriting_is_logarithmic() -> None:
    """However often compaction runs while small files are written, it rewrites each record only a few
    times."""
    sizes: list[int] = []
    rewritten = 0
    for _ in range(2_000):
        sizes.append(1)
        for run in chosen(sizes, target=10_000, least=4):
            start = len(sizes) - len(run)
            assert sizes[start:] == run
            sizes[start:] = [sum(run)]
            rewritten += sum(run)
    assert rewritten / 2_000 < 12
    assert len(sizes) < 30


def test_only_below_the_last_stable_offset() -> None:
    """Compaction leaves everything after an open transaction alone until the transaction is decided."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        commit(engine, 8000)
        state = engine.partition(TOPIC, 0).state
        assert len(state.live) == len(committed_files(state)) + 1
        (done,) = engine.maintenance.compact(TOPIC, policy=POLICY).partitions
        assert done.records == len(OLD) + len(YOUNG)
        assert accounts(engine) == [*OLD, *YOUNG]
        assert accounts(engine, "read_uncommitted")[-2:] == [2000, 8000]
        assert_sound(engine)


# --- and nobody can tell -----------------------------------------------------------------------------------


def many(clock: ManualClock, store: MemoryStore | None = None, *, count: int = 12) -> Engine:
    """Transactions of three records with timestamps of their own. Every third one is aborted."""
    engine = open_engine(store or new_store(), clock)
    engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, key="account_id")
    for number in range(count):
        clock.advance(1_000)
        (abort if number % 3 == 2 else commit)(engine, *range(10 * number, 10 * number + 3))
    return engine


def compacted(engine: Engine) -> Compacted:
    report = engine.maintenance.compact(TOPIC, policy=POLICY)
    assert report.failures == ()
    (done,) = report.partitions
    return done


def test_the_same_records_at_the_same_offsets_and_times() -> None:
    """A scan, a scan that was planned before, and another process read the same table as before, without
    aborted records."""
    clock, store = ManualClock(START_MS), new_store()
    with many(clock, store) as engine:
        before, planned = records(engine), engine.scan(TOPIC)
        done = compacted(engine)
        assert (done.files, done.outputs, done.records) == (8, 1, 24)
        assert records(engine).equals(before)
        assert planned.to_table().equals(before)
        (file,) = engine.scan(TOPIC).files()
        assert (file.base_offset, file.record_count, file.bytes) == (0, 24, done.output_bytes)
        assert_sound(engine)
    with open_engine(store, clock) as engine:
        assert records(engine).equals(before)
        assert engine.maintenance.compact(TOPIC, policy=POLICY).partitions == ()
        clock.advance(DAY_MS)
        engine.maintenance.clean(TOPIC)
        assert records(engine).equals(before)
        assert len(keys(store, "data")) == 1
        assert_sound(engine)


def test_merged_files_are_merged_again() -> None:
    """Files with gaps can be merged again."""
    clock = ManualClock(START_MS)
    with many(clock, count=4) as engine:
        for number in range(3):
            compacted(engine)
            for account in range(4):
                (abort if account == number else commit)(engine, 500 + account)
            before = records(engine)
        assert compacted(engine).outputs == 1
        (file,) = engine.scan(TOPIC).files()
        assert file.record_count == before.num_rows == 9 + 9
        assert records(engine).equals(before)
        assert_sound(engine)


def test_every_bound_inside_a_merged_file() -> None:
    """A scan between any two offsets gives the same records as before, and `ScanFile` names the same rows."""
    clock = ManualClock(START_MS)
    with many(clock, count=6) as engine:
        end = engine.partition(TOPIC, 0).high_watermark
        bounds = [(start, stop) for start in range(end + 1) for stop in range(start, end + 1)]

        def read(start: int, stop: int) -> tuple[list[int], int]:
            scan = engine.scan(TOPIC, start={P0: start}, end={P0: stop})
            rows = sum(file.end_row - file.first_row for file in scan.files())
            return scan.to_table(["_offset"]).column("_offset").to_pylist(), rows

        before = [read(*bound) for bound in bounds]
        compacted(engine)
        assert [read(*bound) for bound in bounds] == before


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_a_consumer_in_the_middle(size: int) -> None:
    """A consumer is inside a small file when the file is merged. It goes on after its last record,
    whatever it polls.
    """
    clock = ManualClock(START_MS)
    with many(clock) as engine:
        expected = records(engine).column("_offset").to_pylist()
        with engine.consumer() as consumer:
            consumer.assign([P0])
            seen: list[int] = []
            polls = 0
            while (batch := consumer.poll(max_records=size)) is not None:
                seen += batch.column("_offset").to_pylist()
                polls += 1
                if polls == 2:
                    compacted(engine)
            assert seen == expected


def test_times_are_found_in_a_merged_file() -> None:
    """Before and after a merge, a time leads to the same first record that is at least as new."""
    clock = ManualClock(START_MS)
    with many(clock) as engine, engine.consumer() as consumer:
        consumer.assign([P0])
        times = range(START_MS - 500, START_MS + 14_000, 500)
        before = [consumer.offsets_for_times({P0: time}) for time in times]
        compacted(engine)
        assert [consumer.offsets_for_times({P0: time}) for time in times] == before


def test_read_uncommitted_keeps_its_order() -> None:
    """A read_uncommitted reader no longer sees aborted records inside a merged range, as in a compacted Kafka
    log. Offsets never fall."""
    clock = ManualClock(START_MS)
    with many(clock) as engine:
        committed = records(engine).column("_offset").to_pylist()
        compacted(engine)
        offsets = records(engine, "read_uncommitted").column("_offset").to_pylist()
        assert offsets == sorted(offsets)
        assert set(committed) <= set(offsets)


def test_two_compactors() -> None:
    """If another process merges the same files while this one writes its own, only one rewrite wins and no
    record is there twice."""
    clock, store = ManualClock(START_MS), new_store()
    with many(clock, store) as engine:
        before = records(engine)
    other_done: list[Compacted] = []

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        if operation == "put_if_absent" and "/log/" in key and not other_done:
            with open_engine(store, clock) as other:
                other_done.append(compacted(other))
        return None

    watched = FaultyStore(store)
    with open_engine(watched, clock) as engine:
        watched.decide = decide
        done = compacted(engine)
        watched.decide = None
        assert (other_done[0].outputs, other_done[0].overtaken) == (1, 0)
        assert (done.outputs, done.overtaken) == (0, 1)
        assert records(engine).equals(before)
        assert_sound(engine)
        commit(engine, 9)
        clock.advance(8 * DAY_MS)
        (cleaned,) = engine.maintenance.clean(TOPIC).partitions
        assert (cleaned.orphans, cleaned.dead_files) == (0, 12)
        assert_sound(engine)


def test_a_trim_in_between() -> None:
    """If retention trims an input during the merge, the rewrite is refused, and the trimmed records do not
    come back."""
    store, clock = ledger()

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        if operation == "put_if_absent" and "/log/" in key and not trimmed:
            trimmed.append(True)
            with open_engine(store, clock) as other:
                other.maintenance.retain(TOPIC, policy=POLICY)
        return None

    trimmed: list[bool] = []
    watched = FaultyStore(store)
    with open_engine(watched, clock) as engine:
        watched.decide = decide
        (done,) = engine.maintenance.compact(TOPIC, policy=POLICY).partitions
        watched.decide = None
        assert (done.outputs, done.overtaken) == (1, 1)
        assert accounts(engine) == YOUNG
        assert_sound(engine)


def test_a_damaged_input_is_not_merged() -> None:
    """If an input differs in any byte from the file that the log names, its partition is a failure and
    nothing is rewritten."""
    clock, store = ManualClock(START_MS), new_store()
    with many(clock, store) as engine:
        key = f"{PREFIX}/data/{keys(store, 'data')[1]}"
        good = store.get(key)
        store.put(key, good[:-30] + bytes([good[-30] ^ 1]) + good[-29:])
        (failure,) = engine.maintenance.compact(TOPIC, policy=POLICY).failures
        assert (failure.code, failure.place) == (CorruptObjectError.code, key)
        assert len(engine.partition(TOPIC, 0).state.live) == 8


def test_a_dry_run_writes_nothing() -> None:
    """A dry run writes nothing, and counts the files and bytes that it would merge."""
    clock, store = ManualClock(START_MS), new_store()
    with many(clock, store) as engine:
        before = keys(store, "data")
        planned = engine.maintenance.compact(TOPIC, policy=POLICY, dry_run=True)
        assert keys(store, "data") == before
        done = compacted(engine)
        (would,) = planned.partitions
        assert (would.files, would.bytes, would.outputs, would.records) == (
            done.files, done.bytes, done.outputs, done.records,
        )  # fmt: skip


def test_internal_topics_have_nothing_to_merge() -> None:
    """Compaction merges nothing in internal topics, because their records are inside their entries."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        assert engine.maintenance.compact("__transaction_state", policy=POLICY).partitions == ()


# --- memory ------------------------------------------------------------------------------------------------


class CountingExecutor(Executor):
    """Runs each task at once, and knows how many results nobody has taken yet."""

    def __init__(self) -> None:
        self.waiting = self.most = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        executor = self

        class Counted(Future[Any]):
            def result(self, timeout: float | None = None) -> Any:
                executor.waiting -= 1
                return super().result(timeout)

        future: Future[Any] = Counted()
        future.set_result(fn(*args, **kwargs))
        return future


def test_inputs_stream_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a few inputs and one row group are in memory at a time, however many files there are."""
    monkeypatch.setattr(merging, "ROW_GROUP_ROWS", 10)
    clock = ManualClock(START_MS)
    with many(clock, count=90) as engine:
        topic = engine.logs.topics.look_up(TOPIC)
        state = engine.partition(TOPIC, 0).state
        executor = CountingExecutor()
        merger = FileMerger(engine.logs.tools.objects, executor, topic, 0)
        data = merger.merge(committed_files(state), "ab" * 16).data
        merged = pq.ParquetFile(pa.BufferReader(data))
        assert merged.metadata.num_rows == 180
        assert merged.metadata.num_row_groups == 15
        assert executor.most == 16
        monkeypatch.setattr(merging, "AHEAD_BYTES", 1_500)
        executor.most = 0
        merger.merge(committed_files(state), "ab" * 16)
        assert executor.most == 2


def test_larger_than_one_row_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A merged file is cut into row groups when they are full, and its records stay in order."""
    monkeypatch.setattr(merging, "ROW_GROUP_BYTES", 200)
    clock = ManualClock(START_MS)
    with many(clock) as engine:
        before = records(engine)
        compacted(engine)
        assert records(engine).equals(before)


def test_nullable_and_nested_columns() -> None:
    """A merged file has the topic's types, nullable and nested ones too."""
    clock = ManualClock(START_MS)
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("text", pa.string()),
            pa.field("day", pa.date32()),
            pa.field("tags", pa.list_(pa.struct([("k", pa.string()), ("v", pa.binary())]))),
            pa.field("large", pa.large_string()),
        ]
    )
    with open_engine(new_store(), clock) as engine:
        engine.admin.create_topic("wide", partitions=1, schema=schema, key="id")
        engine.admin.create_topic("plain", partitions=1)
        for number in range(3):
            row = {"id": number, "text": None if number % 2 else "x" * number, "day": None,
                   "tags": [{"k": "a", "v": bytes([number])}] if number else None, "large": "y"}  # fmt: skip
            engine.partition("wide", 0).append(pa.Table.from_pylist([row], schema=schema))
            kafka = {"key": bytes([number]), "value": None, "headers": [{"key": "h", "value": b""}]}
            topic = engine.logs.topics.look_up("plain")
            engine.partition("plain", 0).append(pa.Table.from_pylist([kafka], schema=topic.schema))
        before = {name: engine.scan(name).to_table() for name in ("wide", "plain")}
        assert len(engine.maintenance.compact(policy=POLICY).partitions) == 2
        for name, table in before.items():
            assert engine.scan(name).to_table().equals(table)
        assert_sound(engine)
