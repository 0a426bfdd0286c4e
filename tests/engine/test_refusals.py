"""If the store refuses something in one place, or an unforeseen error occurs there, that place fails and all
others are done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from storage import AccessDeniedError, MemoryStore, StorageError, StoreUnreachableError
from tests.engine.conftest import SCHEMA, payments
from tests.suite.tiers import in_shard
from tests.support.faults import FaultyStore, no_pause, raising
from tests.support.refusals import damaged_at
from tests.support.stores import copy_of
from txn_engine import Engine, OffsetAndMetadata, TopicPartition, connect
from txn_engine.errors import StoreAccessError, StoreUnavailableError, UnexpectedError
from txn_engine.maintain import MaintenancePolicy, MaintenanceReport
from txn_engine.maintain.policy import DAY_MS
from txn_engine.testing import ManualClock, write_transaction_state
from txn_engine.types import ConsumerGroupMetadata

BAD, GOOD = TopicPartition("bad", 0), TopicPartition("good", 0)
EAGER = MaintenancePolicy(orphan_age_ms=0, entries_age_ms=0, trim_step=1, min_files=2)
JOBS: dict[str, Callable[[Engine], MaintenanceReport]] = {
    "compact": lambda engine: engine.maintenance.compact(policy=EAGER),
    "retain": lambda engine: engine.maintenance.retain(policy=EAGER),
    "seal": lambda engine: engine.maintenance.seal(),
    "clean": lambda engine: engine.maintenance.clean(policy=EAGER),
    "expire": lambda engine: engine.maintenance.expire_producers(),
    "remove": lambda engine: engine.maintenance.remove_deleted_topics(),
}
REFUSALS = {"access": AccessDeniedError, "a bad sector": StorageError}
REFUSED = raising(AccessDeniedError)
_NAMES = count()


class Unforeseen(pa.ArrowNotImplementedError):
    """An error that no code expects."""


@cache
def made() -> tuple[MemoryStore, int]:
    """A store with two topics in which every job has something to do, deleted topics whose names sort before
    and after them, and two groups."""
    store, clock = MemoryStore(f"refusals-{next(_NAMES)}"), ManualClock(1_700_000_000_000)
    with Engine(store, clock=clock, pause=no_pause) as engine:
        for topic in ("aaa", "bad", "good", "zzz"):
            engine.admin.create_topic(topic, schema=SCHEMA, retention_ms=5 * DAY_MS)
        for transactional_id in ("once to", "to"):
            for topic in ("aaa", "bad", "good", "zzz"):
                fill(engine, topic, 1, transactional_id)
                fill(engine, topic, 2, transactional_id)
            engine.admin.snapshot()
        for topic in ("aaa", "zzz"):
            engine.admin.delete_topic(topic)
        clock.advance(10 * DAY_MS)
        for number in (8, 9):
            for topic in ("bad", "good"):
                fill(engine, topic, number)
            engine.admin.snapshot()
    return store, clock()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(made()[1])


@pytest.fixture
def store() -> MemoryStore:
    return copy_of(made()[0])


def fill(engine: Engine, topic: str, number: int, transactional_id: str = "to") -> None:
    with engine.producer(transactional_id=f"{transactional_id} {topic}") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce(topic, payments(number), partition=0).result()
            producer.send_offsets_to_transaction(
                {TopicPartition(topic, 0): OffsetAndMetadata(number)},
                ConsumerGroupMetadata(f"of {topic}", ""),
            )


def open_with(
    store: MemoryStore,
    clock: ManualClock,
    operations: tuple[str, ...],
    *places: str,
    error: Callable[..., Exception] = REFUSED,
) -> Engine:
    """An engine on a store that fails these operations on keys that begin with these places."""
    faulty = FaultyStore(
        store,
        decide=lambda operation, key, _: (
            "before" if operation in operations and f"{key}/".startswith(places) else None
        ),
        error=error,  # type: ignore[arg-type]
    )
    return Engine(faulty, clock=clock, pause=no_pause)


def failed(report: MaintenanceReport) -> set[tuple[str, int, str]]:
    for each in report.failures:
        assert "\n" not in each.message
    return {(each.topic, each.partition, each.code) for each in report.failures}


def done(report: MaintenanceReport) -> set[str]:
    return {each.topic for each in report.partitions}


def test_each_job_has_something_to_do_for_both(store: MemoryStore, clock: ManualClock) -> None:
    """The tests below would prove nothing if a job had nothing to do."""
    with Engine(store, clock=clock, pause=no_pause) as engine:
        for name, job in JOBS.items():
            report = job(engine)
            assert not report.failures
            assert done(report) >= ({"aaa", "zzz"} if name == "remove" else {"bad", "good"}), name
            clock.advance(2 * DAY_MS)


# --- reads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", REFUSALS.values(), ids=REFUSALS)
def test_a_data_file_that_is_refused_stops_no_other_compaction(
    store: MemoryStore, clock: ManualClock, kind: type[StorageError]
) -> None:
    """An archived file, for example, is refused again and again. The failure names the file."""
    key = sorted(info.key for info in store.list("topics/bad/0/0/data"))[2]
    with open_with(store, clock, ("get",), key, error=raising(kind)) as engine:
        for expected in ({"good"}, set()):
            report = JOBS["compact"](engine)
            assert done(report) == expected
            assert failed(report) == {("bad", 0, "CLUSTER_AUTHORIZATION_FAILED")}
            assert key in report.failures[0].message
            assert failed(engine.maintenance.compact("bad", policy=EAGER)) == failed(report)


LISTED = [
    (name, folder)
    for name in ("retain", "clean", "compact", "expire", "seal")
    for folder in ("log", "data", "snapshots")
]
ONE_FOLDER_PER_JOB = (
    ("retain", "log"),
    ("clean", "data"),
    ("clean", "snapshots"),
    ("compact", "data"),
    ("expire", "snapshots"),
    ("seal", "log"),
)


@pytest.mark.parametrize(("name", "folder"), in_shard("damage", LISTED, keep=ONE_FOLDER_PER_JOB))
def test_a_folder_that_is_not_listed_stops_no_other_partition(
    store: MemoryStore, clock: ManualClock, name: str, folder: str
) -> None:
    with open_with(store, clock, ("list",), f"topics/bad/0/0/{folder}/") as engine:
        if name == "seal":
            JOBS["retain"](engine)
        report = JOBS[name](engine)
        assert failed(report) <= {("bad", 0, "CLUSTER_AUTHORIZATION_FAILED")}
        assert "good" in done(report)
        if (name, folder) in (("clean", "data"), ("clean", "snapshots"), ("retain", "log")):
            assert failed(report)


@pytest.mark.parametrize("place", ["topics/bad", "topics/zzz", "topics/aaa"])
def test_a_topic_that_is_not_listed_keeps_no_deleted_one(
    store: MemoryStore, clock: ManualClock, place: str
) -> None:
    topic = place.partition("/")[2]
    with open_with(store, clock, ("list_folders",), f"{place}/") as engine:
        report = JOBS["remove"](engine)
    assert done(report) == {"aaa", "zzz"} - {topic}
    assert failed(report) == {(topic, -1, "CLUSTER_AUTHORIZATION_FAILED")}


def test_topics_of_which_none_is_given(store: MemoryStore, clock: ManualClock) -> None:
    """If the store refuses all topics, the internal ones are maintained all the same, because the store does
    not refuse everything."""
    topics = ("topics/bad/0.json", "topics/good/0.json")
    with open_with(store, clock, ("get",), *topics) as engine:
        report = JOBS["retain"](engine)
        wanted = {(name, -1, "CLUSTER_AUTHORIZATION_FAILED") for name in ("bad", "good")}
        assert failed(report) == wanted
        assert "__transaction_state" in done(report)
        assert failed(JOBS["compact"](engine)) == wanted
        fill_ids(engine)
        written = engine.admin.snapshot()
        assert {each.place for each in written.unreadable} == {"bad", "good"}
        assert written
        hanging = engine.admin.find_hanging_transactions()
        assert {each.place for each in hanging.unreadable} == {"bad", "good"}


def fill_ids(engine: Engine) -> None:
    with engine.producer(transactional_id="another") as producer:
        producer.init_transactions()


def test_more_topics_refused_than_partitions_done(store: MemoryStore, clock: ManualClock) -> None:
    """The report has what was done, however many topics were refused."""
    with Engine(store, clock=clock, pause=no_pause) as engine:
        for name in ("b1", "b2", "b3"):
            engine.admin.create_topic(name, schema=SCHEMA)
    with open_with(store, clock, ("get",), "topics/b") as engine:
        report = JOBS["compact"](engine)
    assert done(report) == {"good"}
    assert {topic for topic, _, _ in failed(report)} == {"b1", "b2", "b3", "bad"}


@pytest.mark.parametrize("name", JOBS)
def test_a_store_that_refuses_everything_is_one_error(
    store: MemoryStore, clock: ManualClock, name: str
) -> None:
    reads = ("get", "get_range", "head", "list", "list_folders")
    with open_with(store, clock, reads, "topics/") as engine, pytest.raises(StoreAccessError):
        JOBS[name](engine)


@pytest.mark.parametrize("name", JOBS)
def test_a_store_that_does_not_answer_ends_the_job(store: MemoryStore, clock: ManualClock, name: str) -> None:
    reads = ("get", "list", "list_folders")
    gone = raising(StoreUnreachableError)
    with (
        open_with(store, clock, reads, "topics/bad/", error=gone) as engine,
        pytest.raises(StoreUnavailableError),
    ):
        JOBS[name](engine)


# --- writes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", in_shard("damage", ["compact", "retain", "seal", "clean", "expire"], keep=["compact", "seal"])
)
def test_a_write_that_is_refused_is_its_partition_s_failure(
    store: MemoryStore, clock: ManualClock, name: str
) -> None:
    if name == "seal":
        with Engine(store, clock=clock, pause=no_pause) as engine:
            JOBS["retain"](engine)
    with open_with(store, clock, ("put_if_absent", "put", "delete"), "topics/bad/") as engine:
        report = JOBS[name](engine)
    assert failed(report) == {("bad", 0, "CLUSTER_AUTHORIZATION_FAILED")}
    assert "good" in done(report)


def test_a_delete_that_is_refused_keeps_no_other_topic(store: MemoryStore, clock: ManualClock) -> None:
    with open_with(store, clock, ("delete",), "topics/aaa/") as engine:
        report = JOBS["remove"](engine)
    assert (done(report), failed(report)) == ({"zzz"}, {("aaa", -1, "CLUSTER_AUTHORIZATION_FAILED")})


@pytest.mark.parametrize("name", in_shard("damage", JOBS, keep=["compact", "seal"]))
def test_a_store_that_takes_no_write_is_one_error(store: MemoryStore, clock: ManualClock, name: str) -> None:
    if name == "seal":
        with Engine(store, clock=clock, pause=no_pause) as engine:
            JOBS["retain"](engine)
    with (
        open_with(store, clock, ("put_if_absent", "put", "delete"), "") as engine,
        pytest.raises(StoreAccessError, check=lambda error: "topics/" in str(error.place)),
    ):
        JOBS[name](engine)


def test_snapshots_and_group_offsets_where_writes_are_refused(store: MemoryStore, clock: ManualClock) -> None:
    """A refusal in one place is named. A refusal everywhere is one error."""
    with Engine(store, clock=clock, pause=no_pause) as engine:
        home = engine.logs.group_partition("of bad")
        assert home != engine.logs.group_partition("of good")
        for topic in ("bad", "good"):
            fill(engine, topic, 10)
    clock.advance(DAY_MS)
    offsets = f"topics/__consumer_offsets/0/{home.partition}/"
    puts = ("put_if_absent",)
    with open_with(store, clock, puts, "") as engine:
        with pytest.raises(StoreAccessError):
            engine.admin.snapshot()
        with pytest.raises(StoreAccessError):
            engine.admin.expire_group_offsets(retention_ms=1)
    with open_with(store, clock, puts, "topics/bad/", offsets) as engine:
        written = engine.admin.snapshot()
        place = f"__consumer_offsets-{home.partition}"
        assert {each.place for each in written.unreadable} == {"bad-0", place}
        assert GOOD in written
        forgotten = engine.admin.expire_group_offsets(retention_ms=1)
        assert {each.group_id for each in forgotten} >= {"of good"}
        assert "of bad" not in {each.group_id for each in forgotten}
        assert [each.place for each in forgotten.unreadable] == [place]


# --- what nobody foresaw --------------------------------------------------------------------------------------


def surprising(operation: str, key: str) -> Exception:
    return Unforeseen(f"no type\nfor {operation}")


@pytest.mark.parametrize("name", in_shard("damage", JOBS, keep=["compact", "remove"]))
def test_what_nobody_foresaw_is_its_partition_s_failure(
    store: MemoryStore, clock: ManualClock, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An unforeseen error is a failure of its partition, with its type and place in one line. The log has the
    traceback."""
    operation, place, code = {
        "remove": ("list_folders", "topics/bad/", ("bad", -1, "UNKNOWN_SERVER_ERROR")),
        "compact": ("get", "topics/bad/0/0/data/", ("bad", 0, "UNKNOWN_SERVER_ERROR")),
    }.get(name, ("get", "topics/bad/0/0/log/", ("bad", 0, "UNKNOWN_SERVER_ERROR")))
    if name == "seal":
        with Engine(store, clock=clock, pause=no_pause) as engine:
            JOBS["retain"](engine)
    with open_with(store, clock, (operation,), place, error=surprising) as engine:
        report = JOBS[name](engine)
    assert failed(report) == {code}
    assert "Unforeseen at " in report.failures[0].message
    assert "no type" not in report.failures[0].message + caplog.text  # what libraries say may quote a record
    assert "an unexpected Unforeseen in bad" in caplog.text
    assert done(report) >= ({"zzz"} if name == "remove" else {"good"})
    assert "in _next" in caplog.text


def test_ctrl_c_is_no_failure_of_a_partition(store: MemoryStore, clock: ManualClock) -> None:
    def stop(operation: str, key: str) -> BaseException:
        return KeyboardInterrupt()

    with (
        open_with(store, clock, ("get",), "topics/bad/0/0/log/", error=stop) as engine,  # type: ignore[arg-type]
        pytest.raises(KeyboardInterrupt),
    ):
        JOBS["compact"](engine)


@pytest.fixture
def surprised(store: MemoryStore, clock: ManualClock) -> Iterator[Engine]:
    """An engine for which reading the log of `bad` and one coordinator partition raises an unforeseen
    error."""
    with Engine(store, clock=clock, pause=no_pause) as engine:
        number = engine.admin.coordinator_partition("to bad")
        assert number != engine.admin.coordinator_partition("to good")
        for name, topic in (("hurt", "bad"), ("sound", "good")):
            write_transaction_state(
                engine,
                name,
                state="PrepareAbort",
                producer_id=5_000,
                producer_epoch=1,
                partitions=[TopicPartition(topic, 0)],
            )
    places = ("topics/bad/0/0/log/", f"topics/__transaction_state/0/{number}/log/")
    with open_with(store, clock, ("get",), *places, error=surprising) as engine:
        yield engine


def test_sweeps_and_lists_go_on_over_what_nobody_foresaw(surprised: Engine, clock: ManualClock) -> None:
    number = surprised.admin.coordinator_partition("to bad")
    home = f"__transaction_state-{number}"
    report = surprised.coordinator.write_pending_markers()
    assert report.transactional_ids == ("sound",)
    assert len(report.failures) == 2
    assert all("Unforeseen at " in failure for failure in report.failures)
    admin = surprised.admin
    assert {each.place for each in admin.measure_partitions().unreadable} == {"bad-0"}
    assert {each.place for each in admin.find_hanging_transactions().unreadable} == {"bad-0"}
    assert {each.place for each in admin.snapshot().unreadable} == {"bad-0", home}
    listed = admin.list_transactions()
    assert "to good" in {each.transactional_id for each in listed}
    assert [type(each.error) for each in listed.unreadable] == [UnexpectedError]
    assert {each.place for each in admin.describe_group("of bad").unreadable} == {"bad-0"}
    before = admin.describe_transaction("to good")
    with pytest.raises(UnexpectedError):
        admin.fence_producers(["to bad", "to good"])
    after = admin.describe_transaction("to good")
    assert (after.producer_id, after.producer_epoch) > (before.producer_id, before.producer_epoch)
    clock.advance(8 * DAY_MS)
    expired = surprised.coordinator.expire_transactional_ids()
    assert "to good" in expired.transactional_ids
    assert len(expired.failures) == 1


def test_a_sweep_s_entry_that_nobody_foresaw(store: MemoryStore, clock: ManualClock) -> None:
    """An unforeseen error in one coordinator partition does not stop the sweep of the others."""
    with Engine(store, clock=clock, pause=no_pause) as engine:
        number = engine.admin.coordinator_partition("to bad")
    clock.advance(8 * DAY_MS)
    log = f"topics/__transaction_state/0/{number}/log/"
    with open_with(store, clock, ("put_if_absent",), log, error=surprising) as engine:
        report = engine.coordinator.expire_transactional_ids()
    assert "to good" in report.transactional_ids
    assert "to bad" not in report.transactional_ids
    assert ["Unforeseen" in failure for failure in report.failures] == [True]


def test_a_topic_that_nobody_foresaw(store: MemoryStore, clock: ManualClock) -> None:
    with open_with(store, clock, ("get",), "topics/bad/0.json", error=surprising) as engine:
        found = engine.admin.list_topics()
        assert found == ["bad", "good"]
        assert [(each.place, type(each.error)) for each in found.unreadable] == [("bad", UnexpectedError)]


# --- a folder where an object is to be ------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["data", "log"])
def test_a_file_where_a_folder_should_be_is_damage(tmp_path: Path, folder: str) -> None:
    """A file in the place of a folder is damage of this one partition, for writers too."""
    with connect(tmp_path.as_uri()) as engine:
        engine.admin.create_topic("bad", schema=SCHEMA)
        place = tmp_path / "topics/bad/0/0"
        place.mkdir(parents=True)
        (place / folder).write_bytes(b"x")
        with damaged_at(f"topics/bad/0/0/{folder}"):
            engine.partition("bad", 0).append(payments(1))


@pytest.mark.parametrize(
    "key",
    [
        f"topics/good/0/0/log/{0:020d}.parquet",
        "topics/good/0.json",
        f"topics/good/0/partitions/{0:020d}.json",
    ],
)
def test_a_folder_in_the_way_is_damage(tmp_path: Path, key: str) -> None:
    """It is damage of this one place, and the error names the folder. Once the folder is gone, everything goes on."""

    def write(engine: Engine) -> None:
        if "good" not in engine.admin.list_topics():
            engine.admin.create_topic("good", schema=SCHEMA)
        if engine.admin.describe_topic("good").partitions == 1:
            engine.admin.add_partitions_to_topic("good", 2)
        with engine.producer(transactional_id="load") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.produce("good", payments(1), partition=0).result()

    folder = tmp_path / key
    with connect(tmp_path.as_uri()) as engine:
        if "/0/" in key:
            engine.admin.create_topic("good", schema=SCHEMA)
        folder.mkdir(parents=True)
        with damaged_at(key):
            write(engine)
        folder.rmdir()
    with connect(tmp_path.as_uri()) as engine:
        write(engine)
        assert not [found for found in engine.admin.verify().findings if found.severity == "error"]
