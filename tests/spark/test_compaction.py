"""Compaction on Spark has the same result as in one process, whatever the keys, and when it is killed, raced
or gets wrong data."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

import txn_engine
from storage import ObjectStore, open_store
from tests.maintain.ledgers import HOUR_MS, START_MS
from tests.maintain.tables import ALWAYS, TABLE, held, new_table, put, rows, table_of
from tests.suite.tiers import in_shard
from tests.support.faults import Fault, FaultyStore, Operation, no_pause
from tests.support.kills import Death, ProcessDiedError, kill_myself
from tests.support.refusals import refused
from tests.support.stores import assert_sound
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRecordError, InvalidRequestError, StoreUnavailableError
from txn_engine.maintain import MaintenancePolicy
from txn_engine.maintain.by_size import BySize
from txn_engine.maintain.neighbours import committed_files
from txn_engine.maintain.policy import DAY_MS
from txn_engine.maintain.target import Target
from txn_engine.maintain.workers import Rule, Workers
from txn_engine.reasons import Reason
from txn_engine.spark import compact_topic, compaction
from txn_engine.spark.compaction import Merger, SparkWorkers, Work
from txn_engine.testing import ManualClock

pytestmark = pytest.mark.spark

POLICY = replace(ALWAYS, target_file_bytes=600)
"""Several rewrites."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def opened(folder: Path, clock: ManualClock, store: ObjectStore | None = None) -> Engine:
    return Engine(store or open_store(folder.as_uri()), clock=clock, pause=no_pause)


def copied(folder: Path) -> Path:
    """A copy of the ledger."""
    number = len(list(folder.parent.glob("copy-*")))
    return Path(shutil.copytree(folder, folder.parent / f"copy-{number}"))


class SeenStore(FaultyStore):
    """A faulty store on the driver. Tasks get the real store."""

    def __reduce__(self) -> tuple[Callable[[str], ObjectStore], tuple[str]]:
        return open_store, (self.inner.url,)


def same(first: Engine, second: Engine, topic: str = TABLE) -> None:
    """Check that both have the same records at the same offsets in files of the same extent, and that their
    logs say the same of them."""
    # In words, for NaN is no NaN to Arrow, and -0.0 is 0.0.
    assert repr(first.scan(topic).to_table().to_pylist()) == repr(second.scan(topic).to_table().to_pylist())
    states = [engine.partition(topic, 0).state for engine in (first, second)]
    assert states[0].cleaning == states[1].cleaning
    live = [
        [replace(file, file=replace(file.file, data_path="", checksum="")) for file in state.live.values()]
        for state in states
    ]
    assert live[0] == live[1]
    for engine in (first, second):
        assert_sound(engine)


# --- the same as in one process ---------------------------------------------------------------------------------


WORDS = ["", "a", "a\0", "\0", "ä" * 9, "x" * 600, "x" * 600 + "y", "12345678", "123456789", "A", "a "]
KEYS: dict[pa.DataType, list[Any]] = {
    pa.int64(): [0, -1, 1, 2**63 - 1, -(2**63)],
    pa.int32(): [0, -1, 1, 2**31 - 1, -(2**31)],
    pa.string(): WORDS,
    pa.large_string(): WORDS,
    pa.binary(): [word.encode() for word in WORDS] + [b"\xff", b"\xff\xfe", b"\xc0\x80"],
    pa.large_binary(): [b"", b"\0", b"\0\0", b"\xff"],
}
VALUES = pa.schema(
    [
        ("float", pa.float64()),
        ("decimal", pa.decimal128(38, 18)),
        ("stamp", pa.timestamp("ns", tz="UTC")),
        ("nested", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
    ]
)


def values(number: int, count: int) -> list[pa.Array]:
    """Values that Spark would lose or confuse if it made its own rows of them."""
    floats = [float("nan"), -0.0, 0.0, float("inf"), 1e-320]
    return [
        pa.array([floats[(number + n) % len(floats)] for n in range(count)], pa.float64()),
        pa.array([f"{number}.{n:018}" for n in range(count)], pa.string()).cast(pa.decimal128(38, 18)),
        pa.array([number * 1_000_000_007 + n for n in range(count)], pa.timestamp("ns", tz="UTC")),
        pa.array([[{"name": "id", "value": b"\xff%d" % number}]] * count, VALUES.field("nested").type),
    ]


@pytest.mark.parametrize("kind", in_shard("spark", KEYS, keep=[pa.string()]), ids=str)
def test_every_type_of_key(spark: SparkSession, folder: Path, kind: pa.DataType) -> None:
    """Keys that differ in anything are different keys, on Spark and in one process, and values stay the same
    bit for bit."""
    clock = ManualClock(START_MS)
    schema = pa.schema([pa.field("k", kind), *VALUES])
    with opened(folder, clock) as engine:
        engine.admin.create_topic(TABLE, partitions=1, schema=schema, key="k", cleanup_policy="compact")
        for number in range(4):
            keys = KEYS[kind][number % 2 :]
            table = pa.Table.from_arrays(
                [pa.array(keys, kind), *values(number, len(keys))], names=schema.names
            )
            engine.partition(TABLE, 0).append(table.cast(engine.admin.describe_topic(TABLE).schema))
    twin = copied(folder)
    with opened(folder, clock) as local, opened(twin, clock) as cluster:
        (there,) = local.maintenance.compact(TABLE, policy=POLICY).partitions
        (here,) = compact_topic(spark, cluster, TABLE, policy=POLICY, engine="spark").partitions
        assert (here.engine, here.why) == ("spark", "Spark was asked for")
        assert replace(here, engine=there.engine, why=there.why) == there
        same(local, cluster)
        assert cluster.scan(TABLE).to_table().num_rows == len(KEYS[kind])
        before = bits(local)
        assert before == bits(cluster)


def bits(engine: Engine) -> list[bytes]:
    """The floats as they are stored."""
    column = engine.scan(TABLE).to_table(["float"]).column("float").combine_chunks()
    return [buffer.to_pybytes() for buffer in column.buffers() if buffer is not None]


@pytest.mark.parametrize("kind", [pa.float64(), pa.decimal128(9, 2), pa.timestamp("ms"), pa.bool_()], ids=str)
def test_no_other_types_are_keys(folder: Path, kind: pa.DataType) -> None:
    """Columns of other types cannot be keys, so nobody has to decide whether NaN equals itself or 1.0 equals
    1.00."""
    with (
        opened(folder, ManualClock(START_MS)) as engine,
        refused(InvalidRecordError, Reason.UNSUPPORTED_KEY_TYPE),
    ):
        engine.admin.create_topic(TABLE, schema=pa.schema([("k", kind)]), key="k", cleanup_policy="compact")


@pytest.fixture
def dirty(folder: Path) -> tuple[Path, ManualClock]:
    """A partition that was clean once, has a tombstone that is due, is dirty again, and has an open
    transaction at its end."""
    clock = ManualClock(START_MS)
    with new_table(open_store(folder.as_uri()), clock) as engine:
        put(engine, ("a", 1), ("b", 1), ("c", 1), ("e", 1))
        put(engine, ("a", None))
        assert engine.maintenance.compact(TABLE, policy=ALWAYS).failures == ()
        clock.advance(DAY_MS)
        put(engine, ("b", 2))
        put(engine, ("b", 3), commit=False)
        put(engine, ("d", 1), ("e", 1))
        put(engine, ("d", 2), ("f", 2))
        put(engine, ("c", 4), ("d", 4))
        left = engine.producer(transactional_id="left")
        left.init_transactions()
        left.begin_transaction()
        left.produce(TABLE, rows(("d", 9)), partition=0).result()
    return folder, clock


AFTER = {"b": 2, "c": 4, "d": 4, "e": 1, "f": 2}


def on_spark(spark: SparkSession, engine: Engine, policy: MaintenancePolicy = POLICY) -> None:
    """Run compaction once, without a failure."""
    assert compact_topic(spark, engine, TABLE, policy=policy, engine="spark").failures == ()


def finished(spark: SparkSession, folder: Path, now_ms: int) -> None:
    """Check that, whatever happened, the table is right, another run finishes, a third one has nothing to do,
    and the auditor agrees."""
    with opened(folder, ManualClock(now_ms)) as engine:
        assert table_of(held(engine)) == AFTER
        on_spark(spark, engine)
        assert engine.maintenance.compact(TABLE, policy=POLICY).failures == ()
        assert table_of(held(engine)) == AFTER
        assert engine.maintenance.compact(TABLE, policy=POLICY).partitions == ()
        keys = [key for key, _ in held(engine).values()]
        assert sorted(keys) == sorted(set(keys))
        assert_sound(engine)


def test_tombstones_aborts_and_what_is_open(spark: SparkSession, dirty: tuple[Path, ManualClock]) -> None:
    """As in one process, a tombstone that is due is removed, and aborted or undecided records supersede no
    record."""
    folder, clock = dirty
    twin = copied(folder)
    with opened(folder, clock) as local, opened(twin, clock) as cluster:
        for _ in range(2):
            assert local.maintenance.compact(TABLE, policy=POLICY).failures == ()
            on_spark(spark, cluster)
            same(local, cluster)
        assert table_of(held(cluster)) == AFTER
        assert cluster.partition(TABLE, 0).state.cleaning.tombstones_to > 0


def test_small_files_of_any_topic_are_merged(spark: SparkSession, folder: Path) -> None:
    """Small files of any topic are merged as in one process: records keep their offsets, and aborted ones are
    left out."""
    clock = ManualClock(START_MS)
    policy = replace(ALWAYS, target_file_bytes=3_000)
    with opened(folder, clock) as engine:
        engine.admin.create_topic(TABLE, partitions=1, schema=rows(("a", 1)).schema, key="key")
        for number in range(12):
            put(engine, ("a", number), ("b", number), commit=number % 4 != 3)
        before = engine.scan(TABLE).to_table()
    twin = copied(folder)
    with opened(folder, clock) as local, opened(twin, clock) as cluster:
        (would,) = compact_topic(
            spark, cluster, TABLE, policy=policy, engine="spark", dry_run=True
        ).partitions
        (there,) = local.maintenance.compact(TABLE, policy=policy).partitions
        (here,) = compact_topic(spark, cluster, TABLE, policy=policy, engine="spark").partitions
        assert (would.files, would.outputs) == (here.files, here.outputs) == (there.files, there.outputs)
        assert here.outputs > 1
        same(local, cluster)
        assert cluster.scan(TABLE).to_table().equals(before)


class InThisProcess:
    """As much of a session as merging needs, without a JVM."""

    defaultParallelism = 4

    @property
    def sparkContext(self) -> InThisProcess:
        return self

    def parallelize(self, works: list[Work], _slices: int) -> InThisProcess:
        self.works = works
        return self

    def mapPartitions(self, merger: Merger) -> InThisProcess:
        self.merger = merger
        return self

    def collect(self) -> list[Any]:
        return list(self.merger(self.works))


def in_this_process() -> Workers:
    return SparkWorkers(InThisProcess())  # type: ignore[arg-type]


ENDS: dict[str, tuple[BaseException | None, int]] = {
    "another run was quicker": (None, 1),
    "the store refuses": (StoreUnavailableError("no answer", actor="compact"), 1),
    "the process dies": (ProcessDiedError("put_if_absent"), 3),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("by_size", [False, True])
def test_a_compaction_that_stops_deletes_the_files_that_its_tasks_merged(
    folder: Path, end: str, by_size: bool
) -> None:
    """A compaction that stops after an error, or after another run was faster, deletes the files that its
    tasks have merged ahead. A process that dies cannot delete them."""
    error, stay = ENDS[end]
    with opened(folder, ManualClock(START_MS)) as engine:
        engine.admin.create_topic(TABLE, partitions=1, schema=rows(("a", 1)).schema, key="key")
        for number in range(6):
            put(engine, ("a", number), ("b", number))
        logs, keeper = engine.logs, engine.maintenance
        log = logs.get(TABLE, 0, 0)
        info = logs.topics.look_up(TABLE)
        target = Target(TABLE, 0, log, logs.tools, keeper._cuts, keeper._pins, info, logs.topics)
        files = committed_files(target.read_back())
        before = set(engine.store.list(f"{log.keys.prefix}/data/"))
        workers = BySize(POLICY, in_this_process, always=True) if by_size else in_this_process()
        rule = Rule(target.read_back().log_end_offset, by_key=False)
        with raised(error), workers.every(target, info, files) as selected:
            merging = selected.merge([(0, 2), (2, 4), (4, 6)], rule)
            first = next(merging)
            assert len(set(engine.store.list(f"{log.keys.prefix}/data/")) - before) == 3
            if error is not None:
                raise error
        left = set(engine.store.list(f"{log.keys.prefix}/data/")) - before
        assert len(left) == stay
        assert first.output is not None
        assert any(each.key.endswith(first.output.file.data_path) for each in left)


def raised(error: BaseException | None) -> AbstractContextManager[object]:
    return nullcontext() if error is None else pytest.raises(type(error))


@pytest.mark.shard("spark")
def test_more_records_than_a_chunk_and_a_task_have(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is the same if keys need several tasks, bits several chunks, and runs several rounds."""
    for name, value in {
        "PART_BYTES": 40_000, "KEYS_A_TASK": 900, "CHUNKS_A_TASK": 2, "RUNS_A_SLOT": 1, "BATCH_ROWS": 77,
    }.items():  # fmt: skip
        monkeypatch.setattr(compaction, name, value)
    clock = ManualClock(START_MS)
    schema = pa.schema([("key", pa.int64()), ("value", pa.int64())])
    with opened(folder, clock) as engine:
        engine.admin.create_topic(TABLE, partitions=1, schema=schema, key="key", cleanup_policy="compact")
        for first in range(0, 5_001, 333):
            ids = range(first, first + 333)
            table = pa.table({"key": [n * 7_919 % 1_213 for n in ids], "value": list(ids)}, schema=schema)
            engine.partition(TABLE, 0).append(table)
    twin = copied(folder)
    policy = replace(ALWAYS, target_file_bytes=9_000)
    with opened(folder, clock) as local, opened(twin, clock) as cluster:
        assert local.maintenance.compact(TABLE, policy=policy).failures == ()
        on_spark(spark, cluster, policy)
        same(local, cluster)
        assert cluster.scan(TABLE).to_table().num_rows == 1_213
        assert len(cluster.scan(TABLE).files()) > 2


# --- death and company ------------------------------------------------------------------------------------------


def driver_puts(spark: SparkSession, folder: Path, now_ms: int) -> list[int]:
    """The numbers of the driver's own writes, which are rows of the log. Tasks put the files."""
    seen = SeenStore(open_store(folder.as_uri()))
    with opened(folder, ManualClock(now_ms), seen) as engine:
        seen.calls.clear()
        on_spark(spark, engine)
    puts = [(at, key) for at, (operation, key, _) in enumerate(seen.calls) if operation == "put_if_absent"]
    assert all("/log/" in key for _, key in puts)
    return [at for at, _ in puts]


@pytest.mark.shard("spark")
@pytest.mark.slow
@pytest.mark.parametrize("effect", ["before", "after"])
def test_a_driver_that_dies_at_any_write(
    spark: SparkSession, dirty: tuple[Path, ManualClock], effect: Fault
) -> None:
    """If the driver dies before or after any write takes effect, readers see the same table, and the next run
    finishes."""
    made, clock = dirty
    puts = driver_puts(spark, copied(made), clock())
    assert len(puts) >= 3
    for at in puts:
        folder = copied(made)
        die(spark, folder, clock(), at, effect)
        finished(spark, folder, clock())


def die(spark: SparkSession, folder: Path, now_ms: int, at: int, effect: Fault) -> None:
    death = Death(f"dies {effect}", at)  # type: ignore[arg-type]
    seen = SeenStore(open_store(folder.as_uri()), error=death.error)
    with opened(folder, ManualClock(now_ms), seen) as engine:
        seen.calls.clear()
        seen.decide = death.client()
        with pytest.raises(ProcessDiedError):
            compact_topic(spark, engine, TABLE, policy=POLICY, engine="spark")
        seen.decide = None


@pytest.mark.shard("spark")
@pytest.mark.slow
@pytest.mark.parametrize("other", ["local", "spark"])
def test_another_run_at_any_moment(spark: SparkSession, dirty: tuple[Path, ManualClock], other: str) -> None:
    """Another run, in this process or on Spark, may do all its work between any two writes of this one, while
    writers go on."""
    made, clock = dirty
    for at in driver_puts(spark, copied(made), clock()):
        folder, happened = copied(made), list[int]()

        def decide(operation: Operation, key: str, number: int) -> Fault | None:
            if number == at and not happened:  # noqa: B023
                happened.append(number)  # noqa: B023
                with opened(folder, ManualClock(clock())) as second:  # noqa: B023
                    put(second, ("z", 1), by="another")
                    report = compact_topic(spark, second, TABLE, policy=POLICY, engine=other)  # type: ignore[arg-type]
                    assert report.failures == ()
                    put(second, ("z", None), by="another")
            return None

        seen = SeenStore(open_store(folder.as_uri()))
        with opened(folder, ManualClock(clock()), seen) as engine:
            seen.calls.clear()
            seen.decide = decide
            on_spark(spark, engine)
            seen.decide = None
        assert happened
        finished(spark, folder, clock())


@pytest.mark.shard("spark")
def test_writers_go_on(spark: SparkSession, folder: Path) -> None:
    """Readers see each key's latest acknowledged record while compactors of both kinds run."""
    with txn_engine.connect(folder.as_uri()) as engine:
        engine.admin.create_topic(
            TABLE, partitions=1, schema=rows(("a", 1)).schema, key="key", cleanup_policy="compact"
        )
        log = engine.partition(TABLE, 0)
        log.append(rows(*((f"key-{n}", -1) for n in range(50))))
        ending = threading.Event()
        wrote: list[int] = []

        def write() -> None:
            with txn_engine.connect(folder.as_uri()) as own:
                while not ending.is_set():
                    number = len(wrote)
                    own.partition(TABLE, 0).append(rows((f"key-{number % 50}", number), ("hot", number)))
                    wrote.append(number)

        def keep() -> None:
            with txn_engine.connect(folder.as_uri()) as own:
                while not ending.is_set():
                    assert own.maintenance.compact(TABLE, policy=POLICY).failures == ()

        threads = [threading.Thread(target=write), threading.Thread(target=keep)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(3):
                on_spark(spark, engine)
        finally:
            ending.set()
            for thread in threads:
                thread.join()
        wanted = {f"key-{n}": -1 for n in range(50)} | {f"key-{n % 50}": n for n in wrote}
        assert table_of(held(engine)) == wanted | {"hot": wrote[-1]}
        assert_sound(engine)


# --- tasks ------------------------------------------------------------------------------------------------------


def data_files(folder: Path) -> int:
    return len(list(folder.glob("topics/*/0/*/data/*.parquet")))


class FailsAtFirst(Merger):
    """A task whose worker is killed after the upload, at its first attempt."""

    __slots__ = ()

    def __call__(self, works: Iterator[Work]) -> Iterator[Any]:  # type: ignore[override]
        done = list(Merger.__call__(self, works))
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            kill_myself()
        yield from done


class Twice(Merger):
    """A task that runs twice, like a speculated one: two attempts put their files, and Spark counts one."""

    __slots__ = ()

    def __call__(self, works: Iterator[Work]) -> Iterator[Any]:  # type: ignore[override]
        held = list(works)
        list(Merger.__call__(self, held))
        yield from Merger.__call__(self, held)


@pytest.mark.shard("spark")
@pytest.mark.parametrize("merger", [FailsAtFirst, Twice])
def test_one_attempt_is_named(
    spark: SparkSession,
    dirty: tuple[Path, ManualClock],
    monkeypatch: pytest.MonkeyPatch,
    merger: type[Merger],
) -> None:
    """Only the files of one attempt are named. Those of the other are orphans, which clean-up deletes."""
    folder, clock = dirty
    before = data_files(folder)
    monkeypatch.setattr(compaction, "Merger", merger)
    with opened(folder, clock) as engine:
        report = compact_topic(spark, engine, TABLE, policy=POLICY, engine="spark")
        assert report.failures == ()
        made = data_files(folder) - before
        assert made == 2 * report.partitions[0].outputs
        stats = engine.admin.verify().stats
        assert stats.orphan_files == made // 2
        clock.advance(HOUR_MS)
        engine.coordinator.abort_timed_out_transactions()
        clock.advance(9 * DAY_MS)
        put(engine, ("y", 1))
        clock.advance(9 * DAY_MS)
        put(engine, ("y", 2))
        engine.maintenance.clean(TABLE)
        assert engine.admin.verify().stats.orphan_files == 0
        assert table_of(held(engine)) == AFTER | {"y": 2}
        assert_sound(engine)


@pytest.mark.shard("spark")
def test_a_damaged_file_stops_its_partition(spark: SparkSession, dirty: tuple[Path, ManualClock]) -> None:
    """If a byte of a file with keys is wrong, the failure names the file, and nothing is rewritten."""
    folder, clock = dirty
    with opened(folder, clock) as engine:
        path = Path(engine.scan(TABLE).files()[1].uri.removeprefix("file://"))
        sound = path.read_bytes()
        path.chmod(0o600)
        path.write_bytes(sound[:8] + bytes([sound[8] ^ 1]) + sound[9:])
        before = engine.partition(TABLE, 0).state
        report = compact_topic(spark, engine, TABLE, policy=POLICY, engine="spark")
        (failure,) = report.failures
        assert (report.partitions, failure.code, failure.retry_helps) == ((), "CORRUPT_MESSAGE", False)
        assert path.name in failure.message
        assert "\n" not in failure.message
        assert engine.partition(TABLE, 0).state == before
        path.write_bytes(sound)
        on_spark(spark, engine)
        assert table_of(held(engine)) == AFTER
        assert_sound(engine)


@pytest.mark.shard("spark")
def test_what_a_task_raises_that_is_no_error_of_ours_quotes_no_record(
    spark: SparkSession, dirty: tuple[Path, ManualClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report names the error's class only."""
    folder, clock = dirty

    class Quoting(Merger):
        __slots__ = ()

        def __call__(self, works: Iterator[Work]) -> Iterator[Any]:  # type: ignore[override]
            raise ValueError("the secret of account 7")

    monkeypatch.setattr(compaction, "Merger", Quoting)
    with opened(folder, clock) as engine:
        (failure,) = compact_topic(spark, engine, TABLE, policy=POLICY, engine="spark").failures
        assert failure.code == "SPARK_JOB_FAILED"
        assert "ValueError in a task" in failure.message
        assert "secret" not in failure.message


def test_keys_that_spark_has_lost_are_missed(
    spark: SparkSession, dirty: tuple[Path, ManualClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Spark loses keys, the run fails and nothing changes, because all keys are counted before any record
    is left out."""
    folder, clock = dirty
    one = compaction.one_a_task
    monkeypatch.setattr(compaction, "PART_FILES", 1)
    monkeypatch.setattr(compaction, "one_a_task", lambda spark, parts: one(spark, parts[1:]))
    with opened(folder, clock) as engine:
        before = held(engine)
        (failure,) = compact_topic(spark, engine, TABLE, policy=POLICY, engine="spark").failures
        assert (failure.code, failure.reason) == ("SPARK_JOB_FAILED", Reason.KEYS_LOST)
        assert held(engine) == before


def test_a_store_in_memory_is_refused(spark: SparkSession) -> None:
    with (
        txn_engine.connect("memory://compaction") as engine,
        refused(InvalidRequestError, Reason.STORE_IN_MEMORY),
    ):
        compact_topic(spark, engine)
