"""A load that reads for longer than a transaction may be open: the transaction is open only while files are named."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from storage import open_store
from tests.loading.ledgers import SCHEMA, TOPIC, dead, ids, load, new_url, set_up
from tests.support.faults import FaultyStore, no_pause
from tests.support.internal import FEW_INTERNAL
from tests.support.refusals import refused
from txn_engine import Engine, connect
from txn_engine.clock import Waiting
from txn_engine.errors import (
    IllegalStateError,
    TransactionAbortableError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.reasons import Reason
from txn_engine.sqlite import load_query
from txn_engine.testing import ManualClock

MINUTES = 30


class Sweeper:
    """The time that passes for a store, and the sweep that runs every minute."""

    def __init__(self) -> None:
        self.url = new_url()
        self.clock = ManualClock(1_780_000_000_000)
        self.engine = connect(self.url, clock=self.clock, configs=FEW_INTERNAL)
        self.aborted: list[str] = []
        set_up(self.engine)

    def a_minute(self) -> None:
        self.clock.advance(60_000)
        self.aborted += self.engine.coordinator.abort_timed_out_transactions().transactional_ids
        at = self.engine.admin.list_offsets(TOPIC).values()
        assert all(each.last_stable_offset == each.high_watermark for each in at)  # no reader waits


@pytest.fixture
def sweeper() -> Iterator[Sweeper]:
    found = Sweeper()
    with found.engine:
        yield found


@pytest.fixture
def loader(sweeper: Sweeper) -> Iterator[Engine]:
    with connect(sweeper.url, clock=sweeper.clock) as engine:
        yield engine


def slow_pipe(path: Path, sweeper: Sweeper, header: str, rows: Callable[[int], str]) -> threading.Thread:
    """A named pipe whose writer takes a minute for each row."""
    os.mkfifo(path)

    def write() -> None:
        with path.open("w") as stream:
            stream.write(header)
            for number in range(MINUTES):
                stream.write(rows(number))
                stream.flush()
                sweeper.a_minute()

    writer = threading.Thread(target=write)
    writer.start()
    return writer


def test_files_that_take_half_an_hour(sweeper: Sweeper, loader: Engine, tmp_path: Path) -> None:
    """Files whose reading takes 30 minutes are loaded while a sweep runs every minute, and their bad rows with them."""
    writer = slow_pipe(
        tmp_path / "pipe.csv",
        sweeper,
        "id,amount,day,paid\n",
        lambda number: f"{number},{'bad' if number == 7 else '1.00'},,\n",
    )
    loaded = load(loader, tmp_path / "pipe.csv")
    writer.join()
    assert (loaded.records, loaded.dead_letters) == (MINUTES - 1, 1)
    assert ids(sweeper.engine) == [number for number in range(MINUTES) if number != 7]
    assert [letter["source_line"] for letter in dead(sweeper.engine)] == [9]
    assert sweeper.aborted == []
    assert sweeper.engine.admin.verify().ok


def test_a_query_that_takes_half_an_hour(sweeper: Sweeper, loader: Engine) -> None:
    """A query that takes a minute for each row is loaded once."""
    connection = sqlite3.connect(":memory:")
    connection.create_function("a_minute", 1, lambda number: sweeper.a_minute() or number)
    query = (
        "WITH RECURSIVE n(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id < 29)"
        " SELECT a_minute(id) AS id, '1.00' AS amount, NULL AS day, NULL AS paid FROM n"
    )
    for _ in range(2):
        load_query(loader, connection, query, TOPIC, run_id="monday")
    assert ids(sweeper.engine) == list(range(MINUTES))
    assert sweeper.aborted == []


def payments(*numbers: int) -> pa.Table:
    return pa.Table.from_arrays(
        [
            pa.array(numbers, pa.int64()),
            pa.array(["1.00"] * len(numbers)).cast(pa.decimal128(18, 2)),
            pa.nulls(len(numbers), pa.date32()),
            pa.nulls(len(numbers), pa.bool_()),
        ],
        schema=SCHEMA,
    )


@pytest.mark.parametrize("call", ["produce", "a new partition", "commit", "offsets"])
def test_a_transaction_that_is_open_too_long(sweeper: Sweeper, loader: Engine, call: str) -> None:
    """Whichever call is refused after the sweep says that the time-out passed."""
    producer = loader.producer(transactional_id="slow", transaction_timeout_ms=120_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(TOPIC, payments(1), partition=0).result()
    for _ in range(3):
        sweeper.clock.advance(60_000)
        sweeper.engine.coordinator.abort_timed_out_transactions()
    consumer = loader.consumer(group_id="readers")
    consumer.subscribe([TOPIC])
    calls: dict[str, Callable[[], object]] = {
        "produce": lambda: producer.produce(TOPIC, payments(2), partition=0).result(),
        "a new partition": lambda: producer.produce(TOPIC, payments(2), partition=1).result(),
        "commit": producer.commit_transaction,
        "offsets": lambda: producer.send_offsets_to_transaction(
            consumer.positions(), consumer.group_metadata()
        ),
    }
    with pytest.raises(TxnEngineError) as failed:  # which class it is, is Kafka's rule
        calls[call]()
    assert failed.value.reason is Reason.TRANSACTION_TIMED_OUT
    assert "transaction.timeout.ms of 120,000" in str(failed.value)
    assert "900,000" in str(failed.value)
    assert ids(sweeper.engine) == []


def test_a_refusal_after_the_sweep_while_settings_cannot_be_read(sweeper: Sweeper) -> None:
    """What is added to the refusal asks the store nothing, so the call ends even if the settings cannot be read."""
    unreadable, now_ms = FaultyStore(open_store(sweeper.url)), 0
    waiting = Waiting(lambda: now_ms, no_pause)
    with Engine(unreadable, clock=sweeper.clock, waiting=waiting, pause=no_pause) as engine:
        producer = engine.producer(transactional_id="slow", transaction_timeout_ms=120_000)
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(TOPIC, payments(1), partition=0).result()
        now_ms += 300_000  # the settings that were seen are old
        sweeper.clock.advance(300_000)
        sweeper.engine.coordinator.abort_timed_out_transactions()
        unreadable.decide = lambda operation, key, _: "before" if key.startswith("settings/") else None
        with pytest.raises(TxnEngineError) as failed:
            producer.produce(TOPIC, payments(2), partition=1).result(timeout=60)
    assert failed.value.reason is Reason.TRANSACTION_TIMED_OUT
    assert "900,000" in str(failed.value)


def test_uploads_are_for_one_epoch(loader: Engine) -> None:
    """Records that were uploaded before another transaction are not named by a later one."""
    with loader.producer(transactional_id="job") as producer:
        with pytest.raises(IllegalStateError):
            producer.upload()  # not initialised
        producer.init_transactions()
        uploads = producer.upload()
        uploads.produce(TOPIC, payments(1, 2, 3))
        uploads.wait()
        assert ids(loader) == []
        with producer.transaction():
            producer.produce(TOPIC, payments(4))
        producer.begin_transaction()
        with pytest.raises(IllegalStateError):
            uploads.send()
        producer.abort_transaction()
    assert ids(loader) == [4]


def test_uploads_of_a_topic_that_is_deleted(sweeper: Sweeper, loader: Engine) -> None:
    """Records for a topic that was deleted meanwhile are refused, by the next upload or by the commit."""
    producer = loader.producer(transactional_id="job")
    producer.init_transactions()
    uploads = producer.upload()
    uploads.produce(TOPIC, payments(1))
    loader.admin.delete_topic(TOPIC)
    loader.admin.create_topic(TOPIC, partitions=2, schema=SCHEMA, key="id")
    with refused(UnknownTopicOrPartitionError, Reason.TOPIC_DELETED):
        uploads.produce(TOPIC, payments(2))
    with pytest.raises(TransactionAbortableError), producer.transaction():
        uploads.send()
    assert ids(sweeper.engine) == []
