"""A partition whose log and snapshots are all gone. What else is on the store says how far it went."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.refusals import refused
from txn_engine import Engine, OffsetAndMetadata, TopicPartition, connect
from txn_engine.errors import CorruptObjectError
from txn_engine.reasons import Reason

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
            shutil.rmtree(self.path / FOLDER / name)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


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
