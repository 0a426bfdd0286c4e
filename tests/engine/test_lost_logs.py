"""A partition whose log and snapshots are all gone. What else is on the store says how far it went, or that it was
begun."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from storage import open_store
from tests.support.refusals import refused
from txn_engine import Engine, OffsetAndMetadata, TopicPartition, connect
from txn_engine.backup import restore
from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.loading import DEAD_LETTERS, LoadResult, load_files
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock
from txn_engine.verify import verify_store

SCHEMA = pa.schema([("id", pa.int64())])
LOST = TopicPartition("ledger", 1)
FOLDER = "topics/ledger/0/1"


def records(count: int = 3) -> pa.Table:
    return pa.table({"id": list(range(count))}, schema=SCHEMA)


def write_plainly(engine: Engine) -> None:
    engine.partition("ledger", 1).append(records())


def a_cut(engine: Engine) -> None:
    write_plainly(engine)
    engine.cut()


def a_table(engine: Engine) -> None:
    write_plainly(engine)
    engine.tables.publish("ledger", ("delta",))
    for cut in engine.cuts():
        engine.delete_cut(cut)


def a_group(engine: Engine) -> None:
    write_plainly(engine)
    with engine.consumer(group_id="readers") as consumer:
        consumer.assign([LOST])
        consumer.poll()
        consumer.commit()


def a_transaction(engine: Engine) -> None:
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("ledger", records(), partition=1)


def a_data_file(engine: Engine) -> None:
    write_plainly(engine)
    write_plainly(engine)


@dataclass(frozen=True)
class Store:
    """A store of which partition 0 has records, and partition 1 had some."""

    path: Path

    @property
    def url(self) -> str:
        return f"file://{self.path}"

    def prepare(self, witness: Callable[[Engine], None] | None = None) -> None:
        with connect(self.url) as engine:
            engine.admin.create_topic("ledger", partitions=2, schema=SCHEMA)
            engine.partition("ledger", 0).append(records(5))
            if witness is not None:
                witness(engine)
                engine.admin.snapshot()
        if witness is not None:
            self.lose(keep_data=witness is a_data_file)

    def lose(self, *, keep_data: bool) -> None:
        for name in ("log", "snapshots") if keep_data else ("log", "snapshots", "data"):
            shutil.rmtree(self.path / FOLDER / name, ignore_errors=True)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


WITNESSES = [(a_cut, 3), (a_table, 3), (a_group, 3), (a_transaction, 1), (a_data_file, 3)]


@pytest.mark.parametrize(("witness", "offset"), WITNESSES)
def test_whoever_needs_a_lost_log_is_told(
    store: Store, witness: Callable[[Engine], None], offset: int
) -> None:
    """No reader takes a log that is gone for one without records, and nobody writes behind it."""
    store.prepare(witness)
    lost = refused(CorruptObjectError, Reason.LOG_LOST)
    with connect(store.url) as engine:
        with lost as told:
            engine.scan("ledger")
        assert told.value.place == f"{FOLDER}/"
        assert f"the log of ledger-1 is empty, but {_named(witness)}" in str(told.value)
        assert f"offset {offset} at least" in str(told.value)
        with lost, engine.consumer() as consumer:
            consumer.subscribe(["ledger"])
            consumer.poll()
        with lost:
            engine.partition("ledger", 1).append(records())
        with lost:
            engine.scan("ledger", cut=engine.cut())
        with lost:
            engine.sql("SELECT count(*) FROM ledger")
        with lost:
            engine.backup(f"memory://of-a-lost-log-{witness.__name__}")
        (unreadable,) = engine.admin.list_offsets("ledger").unreadable
        assert unreadable.place == "ledger-1"
        assert unreadable.error.reason is Reason.LOG_LOST
        assert engine.scan("ledger", partitions=[0]).to_table().num_rows == 5
        found = [each for each in engine.admin.verify().findings if each.code == "log-lost"]
        assert [(each.object, each.severity) for each in found] == [(f"{FOLDER}/", "error")]
        assert f"the log of ledger-1 is empty, but {_named(witness)}" in str(found[0])
    assert not (store.path / FOLDER / "log").exists()


def _named(witness: Callable[[Engine], None]) -> str:
    return {
        "a_cut": "cut ",
        "a_table": "version 0 of its delta table",
        "a_group": "the offset of group 'readers'",
        "a_transaction": "a transaction of 'load'",
        "a_data_file": "the name of data file 00000000000000000003-p-1-e-1-",
    }[witness.__name__]


def test_a_log_without_records_is_not_lost(store: Store) -> None:
    """An empty partition of a topic that is cut, published, read and written elsewhere is read as empty."""
    store.prepare()
    with connect(store.url) as engine:
        with engine.producer(transactional_id="load") as producer, engine.consumer(group_id="g") as consumer:
            consumer.subscribe(["ledger"])
            consumer.poll()
            producer.init_transactions()
            with producer.transaction():
                producer.produce("ledger", records(), partition=0)
                producer.send_offsets_to_transaction(
                    {TopicPartition("ledger", 0): OffsetAndMetadata(5)}, consumer.group_metadata()
                )
            consumer.commit({LOST: 0})
        engine.tables.publish("ledger")
    with connect(store.url) as engine:
        assert engine.scan("ledger").to_table().num_rows == 8
        engine.partition("ledger", 1).append(records())
        assert engine.scan("ledger").to_table().num_rows == 11
        assert engine.admin.verify().ok


def test_a_topic_that_was_deleted_has_lost_nothing(store: Store) -> None:
    """What speaks of an earlier topic of the name says nothing of the one that is there now."""
    store.prepare()
    with connect(store.url) as engine:
        a_group(engine)
        engine.admin.delete_topic("ledger")
        engine.admin.create_topic("ledger", partitions=2, schema=SCHEMA)
    with connect(store.url) as engine:
        assert engine.scan("ledger").to_table().num_rows == 0


def test_an_entry_that_comes_while_witnesses_are_asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that had its first entry after it was found empty is not lost, whatever says so by then."""
    store.prepare()
    with connect(store.url) as engine, connect(store.url) as other:
        log = engine.logs.get("ledger", 0, 1)
        loss_of = log._tools.loss_of

        def late(prefix: str) -> CorruptObjectError | None:
            other.partition("ledger", 1).append(records())
            other.cut()
            return loss_of(prefix)

        object.__setattr__(log._tools, "loss_of", late)
        assert engine.scan("ledger").to_table().num_rows == 8


# --- the internal topics ----------------------------------------------------------------------------------


def use_internal(store: Store) -> None:
    """Load in a transaction with a run's id, and commit a group's offset."""
    with connect(store.url) as engine:
        engine.admin.create_topic("ledger", partitions=1, schema=SCHEMA)
        with engine.producer(transactional_id="load") as producer:
            producer.init_transactions()
            with producer.transaction(run_id="day-1"):
                producer.produce("ledger", records(), partition=0)
        with engine.consumer(group_id="readers") as consumer:
            consumer.assign([TopicPartition("ledger", 0)])
            consumer.poll()
            consumer.commit()


def homes(store: Store) -> tuple[str, str]:
    """The folders of the logs that keep the id and the group."""
    with connect(store.url) as engine:
        ids = engine.logs.coordinator_partition("load")
        groups = engine.logs.group_partition("readers").partition
    return f"topics/__transaction_state/0/{ids}", f"topics/__consumer_offsets/0/{groups}"


def begun_by(folder: str) -> str:
    _, topic, _, partition = folder.split("/")
    return f"begun/{topic}/{partition}.json"


def test_a_lost_log_of_the_coordinator_is_no_empty_one(store: Store) -> None:
    """Without its log the coordinator does not know which runs were loaded. It refuses each id of that log, and
    nobody writes there."""
    use_internal(store)
    folder, _ = homes(store)
    shutil.rmtree(store.path / "topics/__transaction_state")
    lost = refused(CorruptObjectError, Reason.LOG_LOST)
    with connect(store.url) as engine:
        with lost as told, engine.producer(transactional_id="load") as producer:
            producer.init_transactions()
        assert told.value.place == f"{folder}/"
        assert begun_by(folder) in str(told.value)
        (unreadable,) = engine.admin.list_transactions().unreadable
        assert unreadable.error.reason is Reason.LOG_LOST
        with lost:
            engine.backup("memory://of-a-lost-coordinator")
        with lost:
            engine.cut()
        found = [(each.code, each.object) for each in engine.admin.verify().findings]
        assert found == [("log-lost", f"{folder}/")]
        with engine.producer(transactional_id="another") as producer:  # of another log
            assert engine.logs.coordinator_partition("another") != int(folder.rpartition("/")[2])
            producer.init_transactions()
    assert not (store.path / folder).exists()


def test_a_lost_log_of_groups_is_no_empty_one(store: Store) -> None:
    """A group whose log is lost does not begin again at the start, and its name is not given away."""
    use_internal(store)
    _, folder = homes(store)
    shutil.rmtree(store.path / folder)
    lost = refused(CorruptObjectError, Reason.LOG_LOST)
    with connect(store.url) as engine:
        with lost as told, engine.consumer(group_id="readers") as consumer:
            consumer.subscribe(["ledger"])
            consumer.poll()
        assert told.value.place == f"{folder}/"
        with lost, engine.producer(transactional_id="load") as producer:
            producer.init_transactions()
            with producer.transaction():
                with engine.consumer(group_id="readers") as consumer:
                    metadata = consumer.group_metadata()
                producer.send_offsets_to_transaction(
                    {TopicPartition("ledger", 0): OffsetAndMetadata(1)}, metadata
                )
        found = [
            (each.code, each.object) for each in engine.admin.verify().findings if each.severity == "error"
        ]
        assert found == [("log-lost", f"{folder}/")]
        engine.coordinator.write_pending_markers()
    assert not (store.path / folder).exists()


def test_what_says_that_a_log_was_begun_is_put_by_the_next_writer(store: Store) -> None:
    """The first writer may die between its entry and the object that says so."""
    use_internal(store)
    for folder in homes(store):
        (store.path / begun_by(folder)).unlink()
    with connect(store.url) as engine:
        engine.admin.list_transactions()
        with engine.consumer(group_id="readers") as consumer:
            consumer.subscribe(["ledger"])
            consumer.poll()
    assert not list(store.path.glob("begun/*/*.json")), "readers put nothing"
    with connect(store.url) as engine:
        with engine.producer(transactional_id="load") as producer:
            producer.init_transactions()
        with engine.consumer(group_id="readers") as consumer:
            consumer.commit({TopicPartition("ledger", 0): 1})
    assert all((store.path / begun_by(folder)).exists() for folder in homes(store))


def test_another_stores_word_says_nothing(store: Store, tmp_path: Path) -> None:
    """A process of a store that stood here may put its object into the one that does now."""
    use_internal(store)
    other = Store(tmp_path / "other")
    other.prepare()
    for folder in homes(store):
        copied = other.path / begun_by(folder)
        copied.parent.mkdir(parents=True)
        shutil.copy(store.path / begun_by(folder), copied)
    with connect(other.url) as engine:
        with engine.producer(transactional_id="load") as producer:
            producer.init_transactions()
        with engine.consumer(group_id="readers") as consumer:
            consumer.commit({TopicPartition("ledger", 0): 1})
        found = [(each.code, each.object) for each in engine.admin.verify().findings]
        assert sorted(found) == sorted(("object-damaged", begun_by(folder)) for folder in homes(store))


def test_a_copy_of_a_store_and_a_restored_one_know_their_logs(store: Store, tmp_path: Path) -> None:
    """A copy that has got an id of its own takes the word of the store that it was. A restore says which logs it
    has begun."""
    use_internal(store)
    place, copy = Store(tmp_path / "backups"), Store(tmp_path / "copy")
    shutil.copytree(store.path, copy.path)
    with connect(store.url) as engine:
        engine.backup(place.url)
    with connect(copy.url) as engine:
        engine.take_new_id(execute=True, watch_ms=0)
    again = Store(tmp_path / "again")
    restore(open_store(place.url), open_store(again.url, create=True))
    (root,) = (again.path / "restored").iterdir()
    for folder in homes(store):
        shutil.rmtree(copy.path / folder)
        shutil.rmtree(root / folder)
    for each in (copy, again):
        with connect(each.url) as engine, refused(CorruptObjectError, Reason.LOG_LOST):
            engine.coordinator.init_producer_id("load")
        with connect(each.url) as engine, refused(CorruptObjectError, Reason.LOG_LOST):
            engine.consumer(group_id="readers").committed({TopicPartition("ledger", 0)})


# --- runs that were committed -----------------------------------------------------------------------------


def load(store: Store, run_id: str, topic: str = "ledger") -> None:
    """A run that writes to all partitions of the topic."""
    with connect(store.url) as engine, engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        with producer.transaction(run_id=run_id):
            for partition in range(2):
                producer.produce(topic, records(), partition=partition)


def test_whoever_initialises_an_id_leaves_what_its_last_transaction_wrote(store: Store) -> None:
    """A retry fences the id, and the log that its last transaction has marked is not forgotten by that."""
    store.prepare()
    load(store, "day-1")
    store.lose(keep_data=False)
    for _ in range(2):
        with connect(store.url) as engine, engine.producer(transactional_id="load") as producer:
            producer.init_transactions()
    with connect(store.url) as engine, engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("ledger", records(1), partition=0).result()
        with refused(CorruptObjectError, Reason.LOG_LOST), connect(store.url) as other:
            other.scan("ledger")
        producer.abort_transaction()


def test_a_run_whose_topic_is_lost_is_not_done(store: Store, tmp_path: Path) -> None:
    """A retry of a run that was committed says so only where its topic's logs are there."""
    file = tmp_path / "rows.csv"
    file.write_text("id\n1\n2\n3\n")

    def retry() -> LoadResult:
        with connect(store.url) as engine:
            return load_files(engine, "ledger", [file], run_id="day-1", transactional_id="load")

    with connect(store.url) as engine:
        for topic in ("ledger", "other"):
            engine.admin.create_topic(topic, partitions=2, schema=SCHEMA)
    retry()
    assert retry().already_committed
    load(store, "day-2", "other")  # which is now the last transaction of the id
    assert retry().already_committed
    for partition in (0, 1):
        shutil.rmtree(store.path / f"topics/ledger/0/{partition}", ignore_errors=True)
    with refused(CorruptObjectError, Reason.LOG_LOST) as told:
        retry()
    assert "ledger" in str(told.value.place)


def test_a_run_that_wrote_nothing_is_done(store: Store, tmp_path: Path) -> None:
    """A run of dead letters alone has written nothing to its topic, and a retry has nothing to load."""
    file = tmp_path / "rows.csv"
    file.write_text("id\nnone\n")
    with connect(store.url) as engine:
        engine.admin.create_topic("ledger", partitions=1, schema=SCHEMA)
        engine.admin.create_topic("dead", partitions=1, schema=DEAD_LETTERS)
        for again in (False, True):
            done = load_files(
                engine, "ledger", [file], run_id="day-1", transactional_id="load", dead_letter_topic="dead"
            )
            assert done.already_committed is again
        load_files(
            engine, "ledger", [file], run_id="day-2", transactional_id="load", dead_letter_topic="dead"
        )
        assert load_files(
            engine, "ledger", [file], run_id="day-1", transactional_id="load", dead_letter_topic="dead"
        ).already_committed


# --- whole topics -----------------------------------------------------------------------------------------


def an_empty_cut(engine: Engine) -> None:
    engine.cut()


TOPIC_WITNESSES = [a_cut, a_group, a_transaction, an_empty_cut]


@pytest.mark.parametrize("witness", TOPIC_WITNESSES)
def test_a_topic_that_is_gone_as_a_whole(store: Store, witness: Callable[[Engine], None]) -> None:
    """What names a topic of which no object is left says that it was lost, and nobody begins it anew under its name."""
    with connect(store.url) as engine:
        engine.admin.create_topic("ledger", partitions=2, schema=SCHEMA)
        witness(engine)
    shutil.rmtree(store.path / "topics/ledger")
    lost = refused(CorruptObjectError, Reason.TOPIC_LOST)
    with connect(store.url) as engine:
        if witness in (a_cut, an_empty_cut):
            with lost:
                engine.cut()
        (found,) = engine.lost_topics()
        assert (found.topic, found.error.reason) == ("ledger", Reason.TOPIC_LOST)
        with lost:
            engine.admin.create_topic("ledger", partitions=2, schema=SCHEMA)
        with lost:
            engine.backup("memory://of-a-lost-topic")
        errors = [each for each in engine.admin.verify().findings if each.severity == "error"]
        assert [(each.code, each.object) for each in errors] == [("topic-lost", "topics/ledger/0.json")]
        engine.admin.delete_topic("ledger")
    with connect(store.url) as engine:
        assert engine.lost_topics() == []
        assert engine.admin.list_topics() == []
        assert engine.admin.verify().ok
        engine.admin.create_topic("ledger", partitions=2, schema=SCHEMA)
        write_plainly(engine)
        assert engine.scan("ledger").to_table().num_rows == 3
        assert engine.admin.verify().ok


def test_a_topic_that_was_deleted_is_not_lost(store: Store) -> None:
    """Its tombstone stays when the clean-up has taken all that it had."""
    clock = ManualClock(1_700_000_000_000)
    with connect(store.url, clock=clock) as engine:
        engine.admin.create_topic("ledger", partitions=2, schema=SCHEMA)
        a_transaction(engine)
        a_group(engine)
        engine.cut()
        engine.admin.delete_topic("ledger")
        clock.advance(3 * 86_400_000)
        assert engine.maintenance.remove_deleted_topics().partitions
    assert not list(store.path.glob("topics/ledger/0/**/*.parquet"))
    with connect(store.url) as engine:
        assert engine.lost_topics() == []
        assert engine.admin.verify().ok
        engine.admin.create_topic("ledger", partitions=2, schema=SCHEMA)


def test_a_backup_without_a_topic_of_the_one_before(store: Store, tmp_path: Path) -> None:
    """A backup that lacks what an earlier one has does not become the newest, by which that one would be pruned."""
    place = f"file://{tmp_path}/backups"
    with connect(store.url) as engine:
        for topic in ("ledger", "other"):
            engine.admin.create_topic(topic, partitions=2, schema=SCHEMA)
        write_plainly(engine)
        engine.backup(place)
        for cut in engine.cuts():
            engine.delete_cut(cut)
    shutil.rmtree(store.path / "topics/ledger")
    for deleted in store.path.glob("cuts/*/cut.json"):
        deleted.unlink()  # as clean-up does
    with connect(store.url) as engine:
        assert engine.lost_topics() == [], "nothing on the store names it"
        with refused(CorruptObjectError, Reason.TOPIC_LOST) as told:
            engine.backup(place)
        assert "backup 0" in str(told.value)


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_lost_topic_that_is_recorded_as_gone(store: Store, tmp_path: Path, made_anew: bool) -> None:
    """Its last copy stays the newest of its place, and the store is backed up elsewhere."""
    with connect(store.url) as engine:
        engine.admin.create_topic("ledger", partitions=2, schema=SCHEMA)
        a_cut(engine)
        engine.backup(f"file://{tmp_path}/backups")
    shutil.rmtree(store.path / "topics/ledger")
    with connect(store.url) as engine:
        engine.admin.delete_topic("ledger")
    with connect(store.url) as engine:
        if made_anew:
            engine.admin.create_topic("ledger", partitions=2, schema=SCHEMA)
        with refused(InvalidRequestError, Reason.TOPIC_LOST):
            engine.backup(f"file://{tmp_path}/backups")
        engine.backup(f"file://{tmp_path}/others")


def test_an_audit_that_goes_on_finds_what_a_whole_one_does(store: Store, tmp_path: Path) -> None:
    """A kept audit has judged the decisions of a topic that is lost by now."""
    with connect(store.url) as engine:
        engine.admin.create_topic("ledger", partitions=2, schema=SCHEMA)
        a_transaction(engine)
        state = tmp_path / "audit"
        state.mkdir(mode=0o700)
        assert verify_store(engine.place, kept_in=state).ok
        shutil.rmtree(store.path / "topics/ledger")
        kept = [str(each) for each in verify_store(engine.place, kept_in=state).findings]
        assert kept == [str(each) for each in verify_store(engine.place).findings]
        assert len(kept) == 1
