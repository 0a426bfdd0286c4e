"""Kafka's settings of producers and consumers: each has its effect, and none of them is ignored."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage import MemoryStore, StoreUnreachableError
from tests.engine.conftest import SCHEMA, payments
from tests.support.faults import Fault, FaultyStore, Operation, no_pause
from tests.support.refusals import refused
from tests.support.stores import accounts_in
from tests.support.waiting import LIMIT_S, wait_for
from txn_engine import Engine
from txn_engine.clock import Waiting
from txn_engine.configs import Setting
from txn_engine.configs.client import (
    CONSUMER,
    NOT_A_CONSUMERS,
    NOT_A_PRODUCERS,
    PRODUCER,
    ConsumerKeywords,
    ConsumerSettings,
    ProducerKeywords,
    ProducerSettings,
)
from txn_engine.errors import (
    InvalidConfigError,
    InvalidGroupIdError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    RecordTooLargeError,
    RequestTimedOutError,
    StoreUnavailableError,
    TransactionAbortableError,
)
from txn_engine.producer import Producer
from txn_engine.producer.states import ProducerState
from txn_engine.protocol.log_time import LATEST_MS
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock
from txn_engine.types import TopicPartition

P0 = TopicPartition("payments", 0)
_NAMES = count()


class SlowStore:
    """A store in which puts to keys that contain `held` wait until the test releases them."""

    def __init__(self, inner: MemoryStore) -> None:
        self.inner = inner
        self.held = ""
        self.let = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if self.held and self.held in key:
            assert self.let.wait(LIMIT_S)
        return self.inner.put_if_absent(key, data)


@pytest.fixture
def slow(clock: ManualClock) -> Iterator[tuple[SlowStore, Engine]]:
    store = SlowStore(MemoryStore(f"client-settings-{next(_NAMES)}"))
    with Engine(store, clock=clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
        yield store, engine
        store.let.set()


def begun(engine: Engine, config: dict[str, object] | None = None, **settings: Any) -> Producer:
    producer = engine.producer(config, transactional_id="job", **settings)
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def files_of(engine: Engine, topic: str = "payments") -> list[int]:
    """The number of records in each of the topic's files."""
    return [file.record_count for file in engine.scan(topic).files()]


def entries_of(store: Any, partition: int = 0) -> int:
    return len([*store.list(f"topics/payments/0/{partition}/log")])


# --- how they are given -----------------------------------------------------------------------------------


def test_as_keywords_and_as_kafkas_dict(engine: Engine) -> None:
    """Settings can be keywords, or Kafka's names in a dict with texts as a properties file has them. A call
    may use both forms."""
    config = {"transactional.id": "job", "transaction.timeout.ms": "5000", "linger.ms": "7", "acks": -1}
    producer = engine.producer(config, batch_size=99, enable_idempotence=True)
    assert producer._settings == ProducerSettings("job", 5_000, linger_ms=7, batch_size=99)
    assert engine.producer()._settings == ProducerSettings()
    consumer = engine.consumer(
        {"group.id": "g", "auto.offset.reset": "latest", "enable.auto.commit": "false"}
    )
    assert consumer.group_id == "g"
    assert engine.consumer(group_id="g", max_poll_records=5).group_id == "g"


@pytest.mark.parametrize(
    ("make", "config", "reason"),
    [
        ("producer", {"linger.m": 1}, Reason.UNKNOWN_SETTING),
        ("producer", {"reconnect.backoff.ms": 5}, Reason.NO_MEANING_HERE),
        ("producer", {"ssl.keystore.location": "x"}, Reason.NO_MEANING_HERE),
        ("consumer", {"client.rack": "a"}, Reason.NO_MEANING_HERE),
        ("consumer", {"receive.buffer.bytes": 1}, Reason.NO_MEANING_HERE),
        ("producer", {"linger.ms": -1}, Reason.BAD_SETTING),
        ("producer", {"linger.ms": "soon"}, Reason.BAD_SETTING),
        ("producer", {"acks": "1"}, Reason.BAD_SETTING),
        ("producer", {"enable.idempotence": False}, Reason.BAD_SETTING),
        ("producer", {"retries": 3}, Reason.NO_MEANING_HERE),
        ("producer", {"bootstrap.servers": "x"}, Reason.NO_MEANING_HERE),
        ("producer", {"group.id": "g"}, Reason.NO_MEANING_HERE),
        ("producer", {"compression.type": "gzip"}, Reason.BAD_SETTING),
        ("producer", {"max.in.flight.requests.per.connection": 65}, Reason.BAD_SETTING),
        ("producer", "linger.ms=1", Reason.NO_SETTINGS_DICT),
        ("consumer", {"enable.auto.commit": True}, Reason.BAD_SETTING),
        ("consumer", {"session.timeout.ms": 1}, Reason.NO_MEANING_HERE),
        ("consumer", {"linger.ms": 1}, Reason.NO_MEANING_HERE),
        ("consumer", {"fetch.min.bytes": 1}, Reason.NO_MEANING_HERE),
        ("consumer", {"max.poll.records": 0}, Reason.BAD_SETTING),
    ],
)
def test_what_is_refused(engine: Engine, make: str, config: Any, reason: Reason) -> None:
    """A setting is refused in either form, and never ignored."""
    with refused(InvalidConfigError, reason):
        getattr(engine, make)(config)
    if isinstance(config, dict):
        with refused(InvalidConfigError, reason):
            getattr(engine, make)(**{name.replace(".", "_"): value for name, value in config.items()})


def test_the_nearest_name_is_offered(engine: Engine) -> None:
    with refused(InvalidConfigError, Reason.UNKNOWN_SETTING) as caught:
        engine.producer({"linger.m": 1})
    assert caught.value.expected == "'linger.ms'"


def test_twice_is_refused(engine: Engine) -> None:
    with refused(InvalidConfigError, Reason.SETTING_TWICE):
        engine.producer({"linger.ms": 1}, linger_ms=1)


def test_what_kafkas_own_errors_refuse(engine: Engine) -> None:
    """Settings whose values Kafka has an error for are refused with that error."""
    with pytest.raises(InvalidRequestError):
        engine.consumer(isolation_level="serializable")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError):
        engine.producer(transactional_id="")
    with pytest.raises(InvalidRequestError):
        engine.producer({"transactional.id": 5}).init_transactions()
    with pytest.raises(InvalidGroupIdError):
        engine.consumer({"group.id": 5})


@pytest.mark.parametrize("name", [*NOT_A_PRODUCERS, *NOT_A_CONSUMERS])
def test_kafkas_settings_that_have_no_meaning_here_are_known(engine: Engine, name: str) -> None:
    """None of these names is a setting of ours, and each is refused with what to use instead."""
    for make, known, others in (
        (engine.producer, PRODUCER, NOT_A_PRODUCERS),
        (engine.consumer, CONSUMER, NOT_A_CONSUMERS),
    ):
        if name in others:
            assert name not in known
            with refused(InvalidConfigError, Reason.NO_MEANING_HERE) as caught:
                make({name: "x"})
            assert caught.value.expected == others[name]


@pytest.mark.parametrize(
    ("table", "kind", "keywords"),
    [(PRODUCER, ProducerSettings, ProducerKeywords), (CONSUMER, ConsumerSettings, ConsumerKeywords)],
)
def test_the_tables_agree(table: dict[str, Setting], kind: Any, keywords: Any) -> None:
    """The defaults on the page are those in the code, and every setting is a keyword."""
    made = kind()
    for setting in table.values():
        if setting.field in kind.__dataclass_fields__:
            held = getattr(made, setting.field)
            assert ("" if held is None else held) == setting.default, setting.name
    assert set(keywords.__annotations__) == {setting.field for setting in table.values()}
    assert set(kind.__dataclass_fields__) <= {setting.field for setting in table.values()}


# --- batches ----------------------------------------------------------------------------------------------


@pytest.fixture
def timeless(engine: Engine, clock: ManualClock) -> Iterator[Engine]:
    """An engine on the same store for which no time passes, so that lingering never ends by itself."""
    with Engine(engine.store, clock=clock, waiting=Waiting(lambda: 0)) as other:
        yield other


def test_linger_puts_calls_into_one_file(timeless: Engine) -> None:
    """With linger, the records of several calls are one file. Each future says where its own records are, and
    each record keeps its own timestamp. Without linger each call is a batch."""
    engine = timeless
    with begun(engine, {"linger.ms": 60_000}) as producer:
        futures = [
            producer.produce("payments", payments(n, n), partition=0, timestamp_ms=1_000 + n)
            for n in range(20)
        ]
        producer.commit_transaction()  # nobody waits for what lingers, else this call would never return
    assert files_of(engine) == [40]
    places = [future.result() for future in futures]
    assert [(place.base_offset, place.last_offset) for (place,) in places] == [
        (2 * n, 2 * n + 1) for n in range(20)
    ]
    table = engine.scan("payments").to_table()
    assert table["account_id"].to_pylist() == [n for n in range(20) for _ in range(2)]
    assert [round(stamp.timestamp() * 1_000) for stamp in table["_timestamp"].to_pylist()][::2] == [
        1_000 + n for n in range(20)
    ]
    with begun(engine) as producer:
        for n in range(3):
            producer.produce("payments", payments(n), partition=1)
        producer.commit_transaction()
    assert files_of(engine) == [40, 1, 1, 1]
    assert not engine.admin.verify().findings


def test_linger_ends_by_itself(engine: Engine) -> None:
    with begun(engine, linger_ms=30) as producer:
        producer.produce("payments", payments(1), partition=0).result(timeout=LIMIT_S)
        producer.commit_transaction()


def test_batch_size_ends_lingering(engine: Engine) -> None:
    """A file is sent without waiting once it has enough records, and no file has more than that."""
    one = payments(*range(100))
    with begun(engine, linger_ms=60_000, batch_size=3 * one.nbytes) as producer:
        futures = [producer.produce("payments", one, partition=0) for _ in range(6)]
        futures[0].result(timeout=LIMIT_S)
        producer.commit_transaction()
    assert sum(files_of(engine)) == 600
    assert max(files_of(engine)) <= 300
    assert len(files_of(engine)) < 6


def test_what_lingers_holds_back_nothing_before_it(slow: tuple[SlowStore, Engine]) -> None:
    """A file that was uploaded before its partition joined the transaction is appended once it has joined, although
    later records still linger.
    """
    store, engine = slow
    one = payments(*range(100))
    with begun(engine, linger_ms=60_000, batch_size=2 * one.nbytes) as producer:
        store.held = "__transaction_state"
        futures = [producer.produce("payments", one, partition=0) for _ in range(2)]
        wait_for(lambda: [*store.list("topics/payments/0/0/data")], what="the upload of the file")
        late = producer.produce("payments", payments(7), partition=0)
        time.sleep(0.05)  # a thread that sends has looked at what lingers
        store.held = ""
        store.let.set()
        futures[0].result(timeout=LIMIT_S)
        futures[1].result(timeout=LIMIT_S)
        assert not late.done()
        producer.commit_transaction()
    assert files_of(engine) == [200, 1]


def test_max_in_flight_is_how_many_an_entry_names(slow: tuple[SlowStore, Engine]) -> None:
    for most, least, at_most in ((1, 8, 8), (4, 2, 7)):
        store, engine = slow
        before = entries_of(store)
        with begun(engine, {"max.in.flight.requests.per.connection": most}) as producer:
            store.held = (
                "__transaction_state"  # nothing is appended before the partition is in the transaction
            )
            for n in range(8):
                producer.produce("payments", payments(n), partition=0)
            store.held = ""
            store.let.set()
            producer.commit_transaction()
        assert least <= entries_of(store) - before - 1 <= at_most, most  # without the marker
        store.let.clear()


def test_a_batch_that_is_too_large_is_split(engine: Engine) -> None:
    """A batch that is too large is split: sequences and offsets follow one another, and the answer has one
    entry for each part, in the order of the records."""
    engine.admin.alter_configs({"max.message.bytes": 4_000}, topic="payments")
    with begun(engine) as producer:
        first = producer.produce("payments", payments(*range(1_000)), partition=0)
        second = producer.produce("payments", payments(1_000), partition=0)
        second.result(timeout=LIMIT_S)
        (state,) = engine.partition("payments", 0).producers()
        assert state.last_sequence == 1_000
        producer.commit_transaction()
    places = first.result()
    assert len(places) > 3
    assert [place.base_offset for place in places[1:]] == [place.last_offset + 1 for place in places[:-1]]
    assert (places[0].base_offset, places[-1].last_offset, second.result()[0].base_offset) == (0, 999, 1_000)
    assert accounts_in(engine) == list(range(1_001))
    assert all(file.bytes <= 4_000 for file in engine.scan("payments").files())
    assert not engine.admin.verify().findings


@pytest.mark.parametrize("limit", ["topic", "client"])
def test_a_record_that_is_too_large_is_refused(engine: Engine, limit: str) -> None:
    """A record larger than the topic's or the client's limit is MESSAGE_TOO_LARGE, and its transaction can
    only abort."""
    if limit == "topic":
        engine.admin.alter_configs({"max.message.bytes": 100}, topic="payments")
    producer = begun(engine, max_request_size=1 << 30 if limit == "topic" else 100)
    sent = producer.produce("payments", payments(1), partition=0)
    with pytest.raises(RecordTooLargeError):
        sent.result(timeout=LIMIT_S)
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    producer.abort_transaction()
    assert accounts_in(engine) == []
    if limit == "topic":
        with pytest.raises(RecordTooLargeError):
            engine.partition("payments", 0).append(payments(1))
        assert not list(engine.store.list("topics/payments/0/0/data"))


def test_records_with_times_of_their_own(engine: Engine) -> None:
    """Records keep their timestamps when a batch is split. Timestamps that do not fit the records are
    refused."""
    times = [1_000 + each * 37 % 101 for each in range(300)]
    table = pa.table({"id": pa.array(range(300), pa.int64())})
    engine.admin.create_topic("stamped", partitions=2, schema=table.schema, key="id")
    with engine.producer(max_request_size=1_500) as producer:
        sent = producer.produce("stamped", table, timestamp_ms=pa.array(times, pa.int64())).result()
        assert (
            producer.produce("stamped", table.slice(0, 0), timestamp_ms=pa.array([], pa.int64())).result()
            == []
        )
        for wrong in (
            pa.array([1], pa.int64()),
            pa.array(times, pa.int32()),
            pa.array([None] * 300, pa.int64()),
        ):
            with refused(InvalidRequestError, Reason.BAD_TIMESTAMP):
                producer.produce("stamped", table, timestamp_ms=wrong)
        with refused(InvalidRequestError, Reason.BAD_TIMESTAMP):
            producer.produce("stamped", table.to_reader(), timestamp_ms=pa.array(times, pa.int64()))
        with refused(InvalidRequestError, Reason.BAD_TIMESTAMP):
            producer.produce("stamped", table, timestamp_ms=pa.array([-1] * 300, pa.int64()))
    found = engine.scan("stamped").to_table(["id", "_timestamp"]).sort_by("id")
    assert found.column("_timestamp").cast(pa.int64()).to_pylist() == times
    assert len(sent) > 2
    assert max(each.timestamp_ms for each in sent) == max(times)
    assert len({each.timestamp_ms for each in sent}) > 1
    assert engine.admin.verify().findings == ()


@pytest.mark.parametrize(
    "wrong", [-1, LATEST_MS + 1, 2**62, 2**63, "5", 1.5, True, [5], datetime(2026, 1, 1, tzinfo=UTC)], ids=str
)
def test_a_time_that_no_record_may_have(engine: Engine, wrong: Any) -> None:
    """The call is refused before anything is written, because readers could not handle a record after the end of the
    calendar.
    """
    engine.admin.alter_configs({"message.timestamp.after.max.ms": 2**63 - 1}, topic="payments")
    is_long = type(wrong) is int and wrong < 2**63
    column = pa.array([1, wrong], pa.int64()) if is_long else wrong
    with engine.producer() as producer:
        for each in (wrong, column):
            with refused(InvalidRequestError, Reason.BAD_TIMESTAMP):
                producer.produce("payments", payments(1, 2), partition=0, timestamp_ms=each)
        with pytest.raises(InvalidRequestError):
            producer.produce("payments", [1], partition=0, timestamp_ms=pa.array([5], pa.int64()))  # type: ignore[arg-type]
        sent = producer.produce("payments", payments(1), partition=0, timestamp_ms=LATEST_MS).result()
    assert [each.timestamp_ms for each in sent] == [LATEST_MS]
    if wrong != -1:
        with refused(InvalidRequestError, Reason.BAD_TIMESTAMP):
            engine.partition("payments", 0).append(payments(3), timestamp_ms=wrong)
    assert engine.scan("payments").to_table()["account_id"].to_pylist() == [1]


def test_files_are_compressed(engine: Engine) -> None:
    """Files are compressed with zstd once they are large enough for it to pay."""
    with engine.producer({"compression.type": "zstd"}) as producer:
        producer.produce("payments", payments(*range(40_000)), partition=0).result(timeout=LIMIT_S)
    (file,) = engine.store.list("topics/payments/0/0/data")
    with pq.ParquetFile(io.BytesIO(engine.store.get(file.key))) as opened:
        group = opened.metadata.row_group(0)
        assert {group.column(at).compression for at in range(group.num_columns)} == {"ZSTD"}


def test_acks_is_all(slow: tuple[SlowStore, Engine]) -> None:
    """A record is not acknowledged before the store has its entry."""
    store, engine = slow
    store.held = "/log/"
    with engine.producer({"acks": "all"}) as producer:
        sent = producer.produce("payments", payments(1), partition=0)
        wait_for(lambda: [*store.list("topics/payments/0/0/data")], what="the upload of the file")
        assert not sent.done()
        assert entries_of(store) == 0
        store.let.set()
        sent.result(timeout=LIMIT_S)
        assert entries_of(store) == 1


def test_idempotence_is_always_there(clock: ManualClock) -> None:
    """A batch whose answer was lost is sent again, and is in the log once."""
    lost: list[str] = []

    def decide(operation: Operation, key: str, _: int) -> Fault | None:
        if operation == "put_if_absent" and "/0/0/log/" in key and not lost:
            lost.append(key)
            return "after"
        return None

    store = FaultyStore(MemoryStore(f"client-settings-{next(_NAMES)}"), decide=decide)
    with Engine(store, clock=clock, pause=no_pause) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=SCHEMA)
        with engine.producer({"enable.idempotence": "true"}) as producer:
            producer.produce("payments", payments(1)).result(timeout=LIMIT_S)
            producer.produce("payments", payments(2)).result(timeout=LIMIT_S)
        assert lost
        assert accounts_in(engine) == [1, 2]
        (state,) = engine.partition("payments", 0).producers()
        assert state.last_sequence == 1


# --- time -------------------------------------------------------------------------------------------------


def test_buffer_memory_and_max_block(slow: tuple[SlowStore, Engine]) -> None:
    """A call waits for room in the buffer for as long as max_block_ms, then raises BUFFER_FULL. Its records
    are not sent."""
    store, engine = slow
    store.held = "/data/"
    with engine.producer(buffer_memory=payments(1).nbytes, max_block_ms=30) as producer:
        first = producer.produce("payments", payments(1), partition=0)
        with refused(RequestTimedOutError, Reason.BUFFER_FULL):
            producer.produce("payments", payments(2), partition=0)
        store.let.set()
        first.result(timeout=LIMIT_S)
        producer.produce("payments", payments(3), partition=0).result(timeout=LIMIT_S)
    assert accounts_in(engine) == [1, 3]


class Hours:
    """A clock that the test moves on. A pause moves it on too."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.waiting = Waiting(lambda: self.now_ms, self._pause)

    def _pause(self, ms: int) -> None:
        self.now_ms += ms


def test_delivery_timeout(clock: ManualClock) -> None:
    """Records that waited too long fail before any of them is appended. The producer can abort and send other
    records."""
    store = SlowStore(MemoryStore(f"client-settings-{next(_NAMES)}"))
    hours = Hours()
    with Engine(store, clock=clock, waiting=hours.waiting) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=SCHEMA)
        producer = begun(engine, {"delivery.timeout.ms": 1_000})
        store.held = "/data/"
        sent = producer.produce("payments", payments(1))
        hours.now_ms += 1_001
        store.let.set()
        with refused(RequestTimedOutError, Reason.DELIVERY_TIMEOUT):
            sent.result(timeout=LIMIT_S)
        assert producer.state is ProducerState.ABORTABLE_ERROR
        producer.abort_transaction()
        producer.begin_transaction()
        producer.produce("payments", payments(2)).result(timeout=LIMIT_S)
        producer.commit_transaction()
        assert accounts_in(engine) == [2]
        producer.close()


@pytest.mark.parametrize("call", ["init_transactions", "commit_transaction", "abort_transaction"])
def test_max_block_is_how_long_it_is_asked_again(clock: ManualClock, call: str) -> None:
    """A call whose store does not answer fails after a few tries if max_block_ms is not set. If it is set,
    the call is retried until the store answers."""
    failing: list[int] = []

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        if failing and "__transaction_state" in key and operation in ("put_if_absent", "get"):
            failing[0] -= 1
            if failing[0] <= 0:
                failing.clear()
            return "before"
        return None

    def error(operation: Operation, key: str) -> StoreUnreachableError:
        return StoreUnreachableError(operation, actor="faulty store", place=key)

    store = FaultyStore(MemoryStore(f"client-settings-{next(_NAMES)}"), decide=decide, error=error)
    with Engine(store, clock=clock, pause=no_pause, waiting=Hours().waiting) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=SCHEMA)
        for most_ms in (-1, 600_000):
            producer = engine.producer(transactional_id=f"job{most_ms}", max_block_ms=most_ms)
            if call != "init_transactions":
                producer.init_transactions()
                producer.begin_transaction()
                producer.produce("payments", payments(1)).result(timeout=LIMIT_S)
            failing[:] = [60]
            if most_ms < 0:
                with pytest.raises((OutcomeUnknownError, StoreUnavailableError)):
                    getattr(producer, call)()
                failing.clear()
            else:
                getattr(producer, call)()
                assert not failing
                assert producer.state is ProducerState.READY


# --- consumers --------------------------------------------------------------------------------------------


def test_consumer_settings(engine: Engine) -> None:
    with begun(engine) as producer:
        producer.produce("payments", payments(1, 2, 3, 4), partition=0)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.produce("payments", payments(9), partition=0).result()
        consumer = engine.consumer({"max.poll.records": 3, "isolation.level": "read_uncommitted"})
        consumer.assign([P0])
        first, second = consumer.poll(), consumer.poll()
        assert first is not None
        assert second is not None
        assert (first.num_rows, second["account_id"].to_pylist()) == (3, [4, 9])
        latest = engine.consumer({"auto.offset.reset": "latest"})
        latest.assign([P0])
        assert latest.poll() is None
        nowhere = engine.consumer({"auto.offset.reset": "none"})
        nowhere.assign([P0])
        with pytest.raises(OffsetOutOfRangeError):
            nowhere.poll()
        producer.abort_transaction()


def test_positions_are_a_groups_and_committed_by_its_reader_alone(engine: Engine) -> None:
    """A consumer that closes without a commit has committed nothing, and each group has its own position."""
    with engine.producer() as producer:
        producer.produce("payments", payments(1, 2), partition=0).result()

    def read(group: str, *, commits: bool) -> list[int]:
        with engine.consumer({"group.id": group, "enable.auto.commit": "false"}) as consumer:
            consumer.assign([P0])
            polled = consumer.poll()
            if commits:
                consumer.commit()
        return [] if polled is None else polled["account_id"].to_pylist()

    assert read("sums", commits=False) == [1, 2]
    assert read("sums", commits=True) == [1, 2]
    assert read("sums", commits=False) == []
    assert read("others", commits=False) == [1, 2]


def test_fetch_max_bytes_is_what_is_read_ahead(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll reads ahead as many files as fetch.max.bytes allows. With 0 it opens no more than one."""
    from txn_engine.consumer import files_ahead

    monkeypatch.setattr(files_ahead, "ALONE_BYTES", 1)
    with engine.producer() as producer:
        for n in range(6):
            producer.produce("payments", payments(n), partition=0).result()
    for most, ahead in ((0, 1), (1 << 20, 3)):
        consumer = engine.consumer({"fetch.max.bytes": most, "max.poll.records": 3})
        consumer.assign([P0])
        assert consumer.poll() is not None
        assert len(consumer._fetcher._files._under_way) == ahead
