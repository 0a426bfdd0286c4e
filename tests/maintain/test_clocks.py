"""Wrong clocks and what is removed by its age: the case table of decision 33, on disk and on a real MinIO.

On disk the files are made as old as a row of the table wants. MinIO dates its objects itself, so there retention
becomes one second, once that has passed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import txn_engine
from storage import AccessDeniedError, MemoryStore, ObjectInfo, open_store, read_store_clock
from tests.conftest import S3Bucket
from tests.engine.conftest import SCHEMA, payments
from tests.maintain.ledgers import EAGER, POLICY, accounts, commit, upload
from tests.support.aging import age, age_memory
from tests.support.internal import FEW_INTERNAL
from tests.support.stores import assert_sound
from txn_engine import Engine, TopicPartition
from txn_engine.backup import restore
from txn_engine.clock import system_clock
from txn_engine.errors import InvalidTimestampError
from txn_engine.maintain.policy import DAY_MS
from txn_engine.protocol.controls import GRACE_MS
from txn_engine.protocol.proposals import DataProposal
from txn_engine.reasons import Reason

HOUR_MS = 3_600_000
YEAR_MS = 365 * DAY_MS
TOPIC = "payments"
P0 = TopicPartition(TOPIC, 0)


def off_by(ms: int) -> Callable[[], int]:
    """The clock of a machine that differs from the true time by so much."""
    return lambda: system_clock() + ms


def client(url: str, off_ms: int = 0) -> Engine:
    return txn_engine.connect(url, clock=off_by(off_ms))


def set_up(url: str, retention_ms: int) -> str:
    with txn_engine.connect(url, configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic(
            TOPIC, partitions=1, schema=SCHEMA, key="account_id", retention_ms=retention_ms
        )
    return url


def load(url: str, *numbers: int, off_ms: int = 0) -> None:
    """Commit payments from a machine whose clock is off, each in a file of its own."""
    with client(url, off_ms) as engine:
        for number in numbers:
            commit(engine, number, transactional_id=f"load-{number}")


def load_ago(folder: Path, ago_ms: int, *numbers: int, off_ms: int = 0) -> None:
    """As `load`, into the store in this folder, so long ago."""
    before = set(folder.rglob("*"))
    load(f"file://{folder}", *numbers, off_ms=off_ms - ago_ms)
    age(folder, ago_ms, lambda path: path not in before)


def left_after_retention(url: str) -> list[int]:
    """The accounts that are there once a maintainer with a right clock has run retention."""
    with client(url) as engine:
        report = engine.maintenance.retain(TOPIC, policy=POLICY)
        assert report.failures == ()
        assert_sound(engine)
        return accounts(engine)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store on disk, with seven days of retention."""
    return set_up(f"file://{tmp_path}/ledger", 7 * DAY_MS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
def bucket_url(minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store in a bucket of MinIO, with seven days of retention."""
    for name, value in minio_bucket.environment.items():
        monkeypatch.setenv(name, value)
    return set_up(f"{minio_bucket.url}/ledger", 7 * DAY_MS)


def wait_until_old(url: str) -> None:
    """Let everything become older than the retention, which is one second from now on."""
    with client(url) as engine:
        engine.admin.alter_configs({"retention.ms": 1_000}, topic=TOPIC)
    time.sleep(2.5)  # a bucket's times are whole seconds


# --- writers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("off_ms", [-8 * DAY_MS, -YEAR_MS])
def test_a_writer_behind_loses_nothing(url: str, folder: Path, off_ms: int) -> None:
    """What a loader commits whose clock is eight days behind stays for seven days by the store's time, and then goes.
    The retry of the load is told that it was committed, and it is there.
    """
    for is_retry in (False, True):
        with client(url, off_ms) as engine, engine.producer(transactional_id="daily") as producer:
            producer.init_transactions()
            assert producer.has_committed("2026-11-30") is is_retry
            if not is_retry:
                with producer.transaction(run_id="2026-11-30"):
                    producer.produce(TOPIC, payments(*range(500)), partition=0)
        assert left_after_retention(url) == [*range(500)]
    age(folder, 6 * DAY_MS)
    assert left_after_retention(url) == [*range(500)]
    age(folder, 2 * DAY_MS)
    assert left_after_retention(url) == []


@pytest.mark.parametrize("off_ms", [HOUR_MS, YEAR_MS])
def test_a_writer_ahead_does_not_stop_retention(url: str, folder: Path, off_ms: int) -> None:
    """A writer that is ahead pushes the log's time ahead. What it wrote goes when it is old, and so does what others
    wrote before it and after it.
    """
    load_ago(folder, 8 * DAY_MS, 1)
    load_ago(folder, 8 * DAY_MS, 2, off_ms=off_ms)
    load_ago(folder, 8 * DAY_MS, 3)
    load(url, 4)
    assert left_after_retention(url) == [4]


def test_a_writer_ahead_delays_retention_at_most_once(url: str, folder: Path) -> None:
    """Where the log's time lies ahead of the truth by less than the retention, and has passed by now, records are kept
    for so much longer.
    """
    load_ago(folder, 9 * DAY_MS, 1)
    load_ago(folder, 8 * DAY_MS, 2, off_ms=2 * DAY_MS)
    load_ago(folder, 8 * DAY_MS, 3)
    assert left_after_retention(url) == [2, 3], (
        "by the log's time, which may be right, these are six days old"
    )


def test_a_record_from_the_future_does_not_stop_retention(url: str, folder: Path) -> None:
    """The time that a producer gave to a record says nothing once it lies ahead of the store's clock."""
    with client(url) as engine:
        engine.admin.alter_configs({"message.timestamp.after.max.ms": 2 * YEAR_MS}, topic=TOPIC)
    with client(url, -8 * DAY_MS) as engine, engine.producer() as producer:
        producer.produce(TOPIC, payments(1), partition=0, timestamp_ms=system_clock() + YEAR_MS)
    assert left_after_retention(url) == [1]
    age(folder, 8 * DAY_MS)
    assert left_after_retention(url) == []


def test_old_records_are_kept_since_they_were_loaded(url: str, folder: Path) -> None:
    """Records that a producer gives old times of their own stay for the retention, counted from their load."""
    with client(url, -8 * DAY_MS) as engine, engine.producer() as producer:
        producer.produce(TOPIC, payments(1), partition=0, timestamp_ms=1_000)
    assert left_after_retention(url) == [1]
    age(folder, 8 * DAY_MS)
    assert left_after_retention(url) == []


@pytest.mark.minio
@pytest.mark.parametrize("off_ms", [-8 * DAY_MS, -HOUR_MS, YEAR_MS])
def test_a_writer_with_a_wrong_clock_on_a_real_server(bucket_url: str, off_ms: int) -> None:
    """On a bucket the server's times decide: what was written just now stays, and goes once it is old."""
    load(bucket_url, 1, off_ms=off_ms)
    assert left_after_retention(bucket_url) == [1]
    wait_until_old(bucket_url)
    assert left_after_retention(bucket_url) == []


@pytest.mark.minio
def test_a_wrong_clock_among_right_ones_on_a_real_server(bucket_url: str) -> None:
    """Writers with right clocks before and after one that is a year ahead: all go when they are old."""
    load(bucket_url, 1)
    load(bucket_url, 2, off_ms=YEAR_MS)
    load(bucket_url, 3)
    assert left_after_retention(bucket_url) == [1, 2, 3]
    wait_until_old(bucket_url)
    assert left_after_retention(bucket_url) == []


# --- the machine that removes -----------------------------------------------------------------------------

_JOBS: dict[str, Callable[[Engine], object]] = {
    "compact": lambda engine: engine.maintenance.compact(policy=POLICY),
    "retain": lambda engine: engine.maintenance.retain(policy=POLICY),
    "clean": lambda engine: engine.maintenance.clean(policy=POLICY),
    "expire producers": lambda engine: engine.maintenance.expire_producers(),
    "remove deleted topics": lambda engine: engine.maintenance.remove_deleted_topics(),
    "expire offsets": lambda engine: engine.admin.expire_group_offsets(retention_ms=1),
    "erase": lambda engine: engine.erase(TOPIC, "account_id = 1", execute=True),
}


@pytest.mark.parametrize("off_ms", [8 * DAY_MS, 301_500, -HOUR_MS])
@pytest.mark.parametrize("job", list(_JOBS))
def test_a_machine_with_a_wrong_clock_removes_nothing(url: str, folder: Path, job: str, off_ms: int) -> None:
    """Every job that goes by ages is refused where this machine's clock is more than five minutes off the store's. It
    writes nothing.
    """
    load(url, 1, 2)
    before = sorted(folder.rglob("*"))
    with client(url, off_ms) as engine, pytest.raises(InvalidTimestampError) as caught:
        _JOBS[job](engine)
    assert caught.value.reason is Reason.CLOCK_DIFFERS
    left = [path for path in sorted(folder.rglob("*")) if path not in before and path.is_file()]
    assert left == []


def test_a_sweeper_ahead_expires_no_id(url: str, folder: Path) -> None:
    """A sweeper by whose clock an id has been idle for a week asks for the store's time, and is refused. One by whose
    clock none is idle need not ask.
    """
    load(url, 1)
    before = sorted(folder.rglob("*"))
    with client(url, 8 * DAY_MS) as engine, pytest.raises(InvalidTimestampError) as caught:
        engine.coordinator.expire_transactional_ids()
    assert caught.value.reason is Reason.CLOCK_DIFFERS
    for off_ms in (0, -8 * DAY_MS):
        with client(url, off_ms) as engine:
            assert engine.coordinator.expire_transactional_ids().transactional_ids == ()
    assert [path for path in sorted(folder.rglob("*")) if path not in before and path.is_file()] == []


@pytest.mark.parametrize("job", list(_JOBS))
def test_a_machine_that_is_a_little_off_works(url: str, job: str) -> None:
    """Minutes of difference are no reason to stop, because the store's time counts, not the machine's."""
    load(url, 1, 2)
    with client(url, 290_000) as engine:
        _JOBS[job](engine)
    assert left_after_retention(url) == ([2] if job == "erase" else [1, 2])


@pytest.mark.minio
@pytest.mark.parametrize("off_ms", [8 * DAY_MS, -HOUR_MS])
def test_a_machine_with_a_wrong_clock_on_a_real_server(bucket_url: str, off_ms: int) -> None:
    """Against a server the same: with 30 minutes of retention one hour would be enough to lose everything."""
    with client(bucket_url) as engine:
        engine.admin.alter_configs({"retention.ms": 1_800_000}, topic=TOPIC)
    load(bucket_url, 1)
    for job in _JOBS.values():
        with client(bucket_url, off_ms) as engine, pytest.raises(InvalidTimestampError) as caught:
            job(engine)
        assert caught.value.reason is Reason.CLOCK_DIFFERS
    assert left_after_retention(bucket_url) == [1]


# --- what became of the store -----------------------------------------------------------------------------


def test_a_copy_that_keeps_times_keeps_ages(url: str, folder: Path, tmp_path: Path) -> None:
    """`cp -a` keeps the files' times: the copy's records are as old as the original's."""
    load_ago(folder, 8 * DAY_MS, 1)
    shutil.copytree(folder, tmp_path / "copy")
    assert left_after_retention(f"file://{tmp_path}/copy") == []


def test_a_copy_with_new_times_begins_anew(url: str, folder: Path, tmp_path: Path) -> None:
    """`cp` gives new times: nobody can tell how old the records are, so they are kept for the retention once more."""
    load_ago(folder, 8 * DAY_MS, 1)
    shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copy)
    copied = f"file://{tmp_path}/copy"
    assert left_after_retention(copied) == [1]
    age(tmp_path / "copy", 8 * DAY_MS)
    assert left_after_retention(copied) == []


def test_a_restored_store_begins_anew(url: str, folder: Path, tmp_path: Path) -> None:
    """All objects of a restored store are new, and its logs have no entries: its records are kept for the retention
    once more, and then go.
    """
    load_ago(folder, 8 * DAY_MS, 1, 2)
    place, target = (open_store(f"file://{tmp_path}/{name}", create=True) for name in ("backups", "restored"))
    with client(url) as engine:
        engine.backup(place)
    restore(place, target)
    restored = f"file://{tmp_path}/restored"
    assert left_after_retention(restored) == [1, 2]
    age(tmp_path / "restored", 8 * DAY_MS)
    assert left_after_retention(restored) == []


# --- what maintenance writes ------------------------------------------------------------------------------


def test_compaction_does_not_make_records_young(url: str, folder: Path) -> None:
    """The file that compaction writes is new; its records are as old as before."""
    load_ago(folder, 8 * DAY_MS, *range(6))
    load(url, 10)
    with client(url) as engine:
        (done,) = engine.maintenance.compact(TOPIC, policy=POLICY).partitions
        assert done.files >= 6
        assert accounts(engine) == [*range(6), 10]
    assert left_after_retention(url) == [10]


def test_sealing_does_not_make_records_young(url: str, folder: Path) -> None:
    """Seals and merged files are new, and the entries that told are gone. The names of data files that were uploaded
    later still say that the log went on.
    """
    load_ago(folder, 32 * DAY_MS, *range(3))
    load_ago(folder, 31 * DAY_MS, 9)
    load_ago(folder, 12 * DAY_MS, 10, 11)
    with client(url) as engine:
        for number in (12, 13, 14):
            commit(engine, number)
            engine.admin.snapshot()
        engine.admin.alter_configs({"retention.ms": -1}, topic=TOPIC)
        assert engine.maintenance.retain(TOPIC, policy=EAGER).failures == ()
        engine.admin.alter_configs({"retention.ms": 30 * DAY_MS}, topic=TOPIC)
        assert engine.maintenance.seal(TOPIC).partitions
        state = engine.partition(TOPIC, 0).state
        assert (state.log_start_offset, state.entries_start > 10) == (0, True)
    assert left_after_retention(url) == [9, 10, 11, 12, 13, 14]


@pytest.mark.minio
def test_compaction_and_sealing_on_a_real_server(bucket_url: str) -> None:
    """Where the server dates what maintenance writes, records go when they are old all the same."""
    load(bucket_url, *range(6))
    wait_until_old(bucket_url)
    with client(bucket_url) as engine:
        assert engine.maintenance.compact(TOPIC, policy=POLICY).partitions
    assert left_after_retention(bucket_url) == []


# --- a disk of which the times are not the truth ------------------------------------------------------------


def test_files_that_were_dated_back_are_still_young_by_the_log(url: str, folder: Path) -> None:
    """On a disk anybody can set a file's time. What the log's own time calls young stays, whatever the records say."""
    with client(url) as engine, engine.producer() as producer:
        producer.produce(TOPIC, payments(1), partition=0, timestamp_ms=1_000)
    age(folder, 50 * YEAR_MS)
    assert left_after_retention(url) == [1]


def test_files_from_the_future_are_told_of(url: str, folder: Path) -> None:
    """If the disk dates a file later than its clock's present time, nobody knows its age: retention keeps it, and the
    job fails with the name of the file, so that somebody sees that it stands still.
    """
    with client(url, -8 * DAY_MS) as engine:
        commit(engine, 1)
        commit(engine, 2)
    age(folder, 8 * DAY_MS, lambda path: "/data/" in str(path) or path.name == f"{0:020}.parquet")
    age(folder, -YEAR_MS, lambda path: "/log/" in str(path) and path.name != f"{0:020}.parquet")
    with client(url) as engine:
        (failure,) = engine.maintenance.retain(TOPIC, policy=POLICY).failures
        assert failure.reason is Reason.STORED_IN_THE_FUTURE
        assert accounts(engine) == [1, 2]


# --- what else goes by its age ----------------------------------------------------------------------------


def test_a_committer_behind_keeps_its_groups_position(url: str, folder: Path) -> None:
    """The position that a consumer committed whose clock is eight days behind is not forgotten as eight days old."""
    load(url, 1)
    with client(url, -8 * DAY_MS) as engine, engine.consumer(group_id="g") as consumer:
        consumer.assign([P0])
        consumer.commit({P0: 1})
    with client(url) as engine:
        assert engine.admin.expire_group_offsets(retention_ms=7 * DAY_MS, dry_run=True) == []
        assert engine.admin.expire_group_offsets(retention_ms=7 * DAY_MS) == []
    age(folder, 8 * DAY_MS)
    with client(url) as engine:
        (forgotten,) = engine.admin.expire_group_offsets(retention_ms=7 * DAY_MS)
        assert (forgotten.group_id, forgotten.offset) == ("g", 1)


def test_a_producer_behind_is_not_forgotten(url: str, folder: Path) -> None:
    """A producer whose clock is two days behind is not idle for two days: its last batch is still known when it comes
    again.
    """
    batch = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    with client(url, -2 * DAY_MS) as engine:
        first = engine.partition(TOPIC, 0).append(payments(1), **batch)
    with client(url) as right:
        assert right.maintenance.expire_producers(TOPIC).partitions == ()
    with client(url, -2 * DAY_MS) as engine:
        again = engine.partition(TOPIC, 0).append(payments(1), **batch)
        assert (again.base_offset, again.is_duplicate) == (first.base_offset, True)
    age(folder, 2 * DAY_MS)
    with client(url) as right:
        (expired,) = right.maintenance.expire_producers(TOPIC).partitions
        assert expired.producer_ids == (7,)


def test_an_upload_of_a_writer_behind_is_no_orphan(url: str, folder: Path) -> None:
    """The file that a writer uploads whose clock is eight days behind is not deleted as one that was left eight days
    ago: the writer may name it.
    """
    load(url, 1, 2, off_ms=-8 * DAY_MS)
    with client(url, -8 * DAY_MS) as slow:
        uploaded = upload(slow, 3)
        commit(slow, 4)
        with client(url) as right:
            assert right.maintenance.clean(TOPIC).failures == ()
        batch = DataProposal(
            uploaded.record_count, uploaded.first_timestamp, uploaded.max_timestamp, uploaded.file
        )
        slow.logs.get(TOPIC, 0, 0).append_one(batch)
    with client(url) as right:
        assert sorted(accounts(right)) == [1, 2, 3, 4]


def test_a_younger_than_the_compaction_lag_by_a_clock_behind(tmp_path: Path) -> None:
    """`min.compaction.lag.ms` counts from when the log had the records, whatever their writer's clock says."""
    url = f"file://{tmp_path}/table"
    with txn_engine.connect(url, configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic(
            TOPIC, partitions=1, schema=SCHEMA, key="account_id", cleanup_policy="compact",
            min_compaction_lag_ms=DAY_MS,
        )  # fmt: skip
    with client(url, -8 * DAY_MS) as slow:
        for _ in range(3):
            commit(slow, 1)
    for by_ms, left in ((0, [1, 1, 1]), (2 * DAY_MS, [1])):
        age(tmp_path / "table", by_ms)
        with client(url) as engine:
            assert engine.maintenance.compact(TOPIC, policy=POLICY).failures == ()
            assert accounts(engine) == left


def test_what_was_trimmed_stays_for_a_day(url: str, folder: Path) -> None:
    """The files that retention leaves behind are deleted a day later, counted from the trim."""
    load_ago(folder, 8 * DAY_MS, 1)
    assert left_after_retention(url) == []
    with client(url) as engine:
        assert all(done.dead_files == 0 for done in engine.maintenance.clean(TOPIC).partitions)
        (dead,) = engine.partition(TOPIC, 0).state.dead.values()
        assert abs(dead.died_ms - system_clock()) < GRACE_MS // 2


def test_a_cut_of_a_machine_behind_is_kept_as_long_as_it_was_asked_for(url: str, folder: Path) -> None:
    """A cut that is to be kept for seven days stays for seven days, though its maker's clock is eight days behind."""
    load(url, 1)
    with client(url, -8 * DAY_MS) as engine:
        cut = engine.cut(keep_ms=7 * DAY_MS)
    for by_ms, left in ((0, [cut.number]), (6 * DAY_MS, [cut.number]), (2 * DAY_MS, [])):
        age(folder, by_ms)
        with client(url) as engine:
            assert engine.maintenance.clean().failures == ()
            assert [each.number for each in engine.cuts()] == left


@pytest.mark.parametrize("off_ms", [YEAR_MS, -2 * HOUR_MS])
def test_a_claim_is_as_old_as_the_store_says(url: str, folder: Path, off_ms: int) -> None:
    """A claim to a cut's number, which holds clean-up back, is given up after an hour, whatever the clock of its maker
    says: one that is a year ahead does not stop clean-up for a year, and one that is behind loses no cut.
    """
    with client(url, off_ms) as engine:
        number = engine._cuts.claim()
    for by_ms, is_open in ((0, True), (2 * HOUR_MS, False)):
        age(folder, by_ms)
        with client(url) as engine:
            assert engine.maintenance.clean().failures == ()
            assert engine._cuts.holds(TOPIC, 0, 0).is_open is is_open
    assert number == 0


def test_a_cut_that_was_deleted_by_a_machine_behind_holds_its_files_for_a_day(url: str, folder: Path) -> None:
    """What only a deleted cut needs stays for 24 hours by the store's clock."""
    load(url, 1)
    with client(url) as engine:
        cut = engine.cut()
    with client(url, -8 * DAY_MS) as engine:
        engine.delete_cut(cut)
    for by_ms, is_held in ((0, True), (2 * DAY_MS, False)):
        age(folder, by_ms)
        with client(url) as engine:
            assert engine.maintenance.clean().failures == ()
            assert bool(engine._cuts.holds(TOPIC, 0, 0).snapshots) is is_held


@pytest.mark.parametrize("off_ms", [-8 * DAY_MS, YEAR_MS])
def test_a_deleted_topic_stays_for_a_day(url: str, folder: Path, off_ms: int) -> None:
    """What is left of a topic goes a day after its deletion by the store's clock, not by that of who deleted it."""
    load(url, 1)
    with client(url, off_ms) as engine:
        engine.admin.delete_topic(TOPIC)
    for by_ms, gone in ((0, 0), (2 * DAY_MS, 1)):
        age(folder, by_ms)
        with client(url) as engine:
            assert len(engine.maintenance.remove_deleted_topics().partitions) == gone


def test_a_tables_files_stay_though_its_publisher_was_behind(url: str, folder: Path) -> None:
    """The files of a table's earlier version stay for seven days after the next one by the store's clock."""
    with client(url, -8 * DAY_MS) as engine:
        for number in range(4):
            commit(engine, number)
            engine.tables.publish(TOPIC, ("delta",))
    pins = folder / "topics" / TOPIC / "0" / "published" / "delta"
    before = len(list(pins.iterdir()))
    for by_ms, is_left in ((0, True), (8 * DAY_MS, False)):
        age(folder, by_ms)
        with client(url) as engine:
            assert engine.maintenance.clean(TOPIC).failures == ()
            assert (len(list(pins.iterdir())) == before) is is_left


def test_what_died_after_a_writer_ahead_goes_a_day_later(url: str, folder: Path) -> None:
    """Where one writer was a year ahead, the log says of everything that it dies in a year. Files that retention has
    left behind are deleted after the day that readers have, and entries are sealed after their seven days.
    """
    load_ago(folder, 20 * DAY_MS, 1)
    load_ago(folder, 20 * DAY_MS, 2, off_ms=YEAR_MS)
    data = folder / "topics" / TOPIC / "0" / "0" / "data"
    for day in range(10):
        with client(url) as engine:
            commit(engine, 100 + day)
            engine.admin.snapshot()
            assert engine.maintenance.retain(TOPIC, policy=POLICY).failures == ()
            assert engine.maintenance.clean(TOPIC, policy=POLICY).failures == ()
            assert accounts(engine)[0] == 100
        assert len(list(data.iterdir())) == day + (3 if day == 0 else 1)
        age(folder, 25 * HOUR_MS)
        if day == 6:
            break
    with client(url) as engine:
        commit(engine, 300)
        for _ in range(2):
            engine.admin.snapshot()
            commit(engine, 301)
        engine.admin.snapshot()
        age(folder, 2 * DAY_MS)
        assert engine.maintenance.retain(TOPIC, policy=POLICY).failures == ()
        assert engine.partition(TOPIC, 0).state.entries_start > 6
        assert_sound(engine)


# --- what it costs, and stores that tell no time ------------------------------------------------------------


class Counting(MemoryStore):
    """A store in memory that counts heads and listings, or gives its objects no time."""

    def __init__(self, *, dates: bool = True) -> None:
        super().__init__()
        self.heads = self.lists = 0
        self._dates = dates

    def head(self, key: str) -> ObjectInfo:
        self.heads += 1
        found = super().head(key)
        return found if self._dates else replace(found, modified_ms=0)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self.lists += 1
        return super().list(prefix, start_after=start_after)


def test_retention_asks_for_no_file_by_itself() -> None:
    """Retention asks for one object's time, that of its probe, and lists a partition's entries a few times, however
    many files there are; where every record is young it lists nothing more than before.
    """
    lists = []
    for count in (10, 160):
        store = Counting()
        with Engine(store, configs=FEW_INTERNAL) as engine:
            engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, retention_ms=7 * DAY_MS)
        with Engine(store, clock=off_by(-8 * DAY_MS)) as earlier:
            for number in range(count):
                earlier.partition(TOPIC, 0).append(payments(number))
        age_memory(store, 8 * DAY_MS)
        with Engine(store) as engine:
            engine.partition(TOPIC, 0).append(payments(1_000))
            store.heads = store.lists = 0
            (done,) = engine.maintenance.retain(TOPIC, 0).partitions
            assert (done.records, store.heads) == (count, 1)
            lists.append(store.lists)
            store.lists = 0
            assert engine.maintenance.retain(TOPIC, 0).partitions == ()
            assert store.lists <= 4, "those of the state and of the snapshots"
    assert lists[1] - lists[0] <= 2 * 2 * 4, "two bisections, four steps more each"


def test_a_store_that_dates_nothing_is_refused() -> None:
    """Where the store does not say when an object was written, nobody knows what is old: nothing is removed."""
    store = Counting(dates=False)
    with Engine(store, configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, retention_ms=0)
        engine.partition(TOPIC, 0).append(payments(1))
        for job in _JOBS.values():
            with pytest.raises(InvalidTimestampError) as caught:
                job(engine)
            assert caught.value.reason is Reason.STORE_CLOCK_UNKNOWN
        assert accounts(engine) == [1]


def test_a_probe_that_may_not_be_removed_is_no_obstacle() -> None:
    """Who may not delete can measure all the same; the probe is left, as the reading says."""

    class Undeletable(MemoryStore):
        def delete(self, key: str) -> None:
            raise AccessDeniedError("403", actor="store", place=key)

    reading = read_store_clock(Undeletable(), off_by(-HOUR_MS), "probes/clock-0")
    assert reading.not_removed is not None
    assert abs(reading.skew_ms + HOUR_MS) < 60_000
    assert read_store_clock(MemoryStore(), system_clock, "probes/clock-0").not_removed is None
