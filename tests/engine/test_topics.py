"""Topics that grow, and topics that are deleted and created again, while clients are using them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

import txn_engine
from storage import MemoryStore, arrow_schema, open_store
from tests.engine.conftest import SCHEMA, Later, payments
from tests.support.faults import Fault, FaultyStore, Operation, no_pause
from tests.support.refusals import refused
from tests.support.stores import accounts_in
from txn_engine import (
    AddColumn,
    DropColumn,
    Engine,
    MakeNullable,
    RenameColumn,
    ReorderColumns,
    TopicPartition,
    WidenColumn,
)
from txn_engine.errors import (
    InvalidPartitionsError,
    InvalidRecordError,
    OutcomeUnknownError,
    TransactionAbortableError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.producer.partitioner import choose_partitions
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock

_NAMES = count()


@pytest.fixture
def other(engine: Engine, url: str, clock: ManualClock, later: Later) -> Iterator[Engine]:
    """Another client, which has just used the topic and so knows it for the next five seconds."""
    with Engine(open_store(url), clock=clock, waiting=later.waiting) as connected:
        assert connected.scan("payments").to_table().num_rows == 0
        yield connected


def partitions_of(engine: Engine, account: int) -> list[int]:
    """The partitions that hold an account's records."""
    table = engine.scan("payments").to_table()
    pairs = zip(table["account_id"].to_pylist(), table["_partition"].to_pylist(), strict=True)
    return [partition for found, partition in pairs if found == account]


# --- growing ----------------------------------------------------------------------------------------------


def test_a_topic_grows(engine: Engine, url: str) -> None:
    """Partitions are added. Keyed records use the new number from then on, and old records stay where they are."""
    accounts = list(range(40))
    with engine.producer() as producer:
        producer.produce("payments", payments(*accounts)).result()
        assert engine.admin.add_partitions_to_topic("payments", 5).partitions == 5
        producer.produce("payments", payments(*accounts)).result()
    table = engine.scan("payments").to_table()
    assert sorted(table["account_id"].to_pylist()) == sorted(2 * accounts)
    column = payments(*accounts).column("account_id").combine_chunks()
    before, after = choose_partitions(column, 2, 0).tolist(), choose_partitions(column, 5, 0).tolist()
    for account in accounts:
        assert partitions_of(engine, account) == sorted([before[account], after[account]])
    with txn_engine.connect(url) as fresh:
        assert fresh.admin.describe_topic("payments").partitions == 5
        assert set(fresh.admin.list_offsets("payments")) == {TopicPartition("payments", n) for n in range(5)}
        assert fresh.admin.verify().ok


@pytest.mark.parametrize("total", [-1, 0, 1, 2, 10_001])
def test_a_topic_only_grows(engine: Engine, total: int) -> None:
    """The present number of partitions, fewer, or more than the limit is INVALID_PARTITIONS, and nothing is
    written."""
    with pytest.raises(InvalidPartitionsError):
        engine.admin.add_partitions_to_topic("payments", total)
    assert engine.admin.describe_topic("payments").partitions == 2


def test_a_topic_that_is_not_there_does_not_grow(engine: Engine) -> None:
    """Unknown and deleted topics cannot grow. A topic that is created again begins with its own number of
    partitions."""
    with pytest.raises(UnknownTopicOrPartitionError):
        engine.admin.add_partitions_to_topic("nowhere", 3)
    engine.admin.add_partitions_to_topic("payments", 4)
    engine.admin.delete_topic("payments")
    with pytest.raises(UnknownTopicOrPartitionError):
        engine.admin.add_partitions_to_topic("payments", 5)
    engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
    assert engine.admin.describe_topic("payments").partitions == 2


def test_two_who_grow_a_topic(clock: ManualClock) -> None:
    """Two engines grow a topic one after the other. Each growth that succeeds makes the topic larger, and the
    last one counts."""
    store = MemoryStore(f"topics-{next(_NAMES)}")
    grown: list[int] = []
    with Engine(store, clock=clock) as first, Engine(store, clock=clock) as second:
        first.admin.create_topic("t", partitions=1, schema=SCHEMA)
        barrier = threading.Barrier(2)

        def grow(engine: Engine, totals: range) -> None:
            barrier.wait()
            for total in totals:
                try:
                    engine.admin.add_partitions_to_topic("t", total)
                except InvalidPartitionsError:
                    continue
                grown.append(total)

        with ThreadPoolExecutor() as pool:
            for call in (
                pool.submit(grow, first, range(2, 40, 2)),
                pool.submit(grow, second, range(3, 40, 3)),
            ):
                call.result()
        assert first.admin.describe_topic("t").partitions == max(grown)
        assert len(store_growths(store)) == len(grown) == len(set(grown))


def store_growths(store: MemoryStore) -> list[str]:
    return [info.key for info in store.list("topics/t/0/partitions")]


def test_a_growth_whose_answer_was_lost(clock: ManualClock) -> None:
    """A growth whose answer was lost is settled by reading back, as any put. The same growth again is
    refused, because the topic has grown."""
    inner = MemoryStore(f"topics-{next(_NAMES)}")

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        return "after" if operation == "put_if_absent" and "/partitions/" in key else None

    with Engine(FaultyStore(inner, decide=decide), clock=clock, pause=no_pause) as engine:
        engine.admin.create_topic("t", partitions=1, schema=SCHEMA)
        assert engine.admin.add_partitions_to_topic("t", 3).partitions == 3
        with pytest.raises(InvalidPartitionsError):
            engine.admin.add_partitions_to_topic("t", 3)


def test_those_who_are_open_notice(engine: Engine, other: Engine, later: Later) -> None:
    """Open clients find a new partition at once if it is named. Keys and subscriptions follow within five
    seconds."""
    producer = other.producer()
    producer.produce("payments", payments(1)).result()
    consumer = other.consumer(auto_offset_reset="latest")
    consumer.subscribe(["payments"])
    assert consumer.poll() is None
    engine.admin.add_partitions_to_topic("payments", 3)
    assert producer.produce("payments", payments(2), partition=2).result()[0].partition == 2
    assert consumer.end_offsets([TopicPartition("payments", 2)]) == {TopicPartition("payments", 2): 1}
    engine.admin.add_partitions_to_topic("payments", 4)
    engine.partition("payments", 3).append(payments(7))
    later.advance(5_000)
    batch = consumer.poll()
    assert batch is not None  # all that a new partition holds is later than the subscription
    assert sorted(batch["account_id"].to_pylist()) == [2, 7]
    accounts = list(range(100, 140))
    producer.produce("payments", payments(*accounts)).result()
    assert {n for account in accounts for n in partitions_of(engine, account)} == {0, 1, 2, 3}


# --- deleted and made again -------------------------------------------------------------------------------


def remake(engine: Engine) -> None:
    engine.admin.delete_topic("payments")
    engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")


def test_a_plain_append_never_goes_to_what_is_gone(engine: Engine, other: Engine) -> None:
    """A plain append after a topic was created again goes to the new topic at once. After a deletion it is
    refused."""
    log = other.partition("payments", 0)
    log.append(payments(1))
    remake(engine)
    assert log.append(payments(2)).base_offset == 0
    assert accounts_in(engine) == [2]
    assert (log.high_watermark, log.read(0)["account_id"].to_pylist()) == (1, [2])
    engine.admin.delete_topic("payments")
    with pytest.raises(UnknownTopicOrPartitionError):
        log.append(payments(3))
    with pytest.raises(UnknownTopicOrPartitionError):
        _ = log.high_watermark


def test_an_idempotent_producer_never_acknowledges_what_is_gone(engine: Engine, other: Engine) -> None:
    """A batch handed over after the deletion is not acknowledged in the deleted topic, and the producer says so."""
    producer = other.producer()
    producer.produce("payments", payments(1), partition=0).result()
    remake(engine)
    with refused(UnknownTopicOrPartitionError, Reason.TOPIC_DELETED):
        producer.produce("payments", payments(2), partition=0).result()
    with refused(UnknownTopicOrPartitionError, Reason.TOPIC_DELETED):
        producer.flush()
    with other.producer() as again:
        again.produce("payments", payments(2), partition=0).result()
    assert accounts_in(engine) == [2]


def test_a_transaction_never_commits_into_what_is_gone(engine: Engine, other: Engine) -> None:
    """If a topic is created again during a transaction, the next batch to it is refused and the transaction
    can only abort."""
    producer = other.producer(transactional_id="job")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", payments(1), partition=0).result()
    remake(engine)
    sent = producer.produce("payments", payments(2), partition=0)
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    with refused(UnknownTopicOrPartitionError, Reason.TOPIC_DELETED):
        sent.result()
    producer.abort_transaction()
    with producer.transaction():
        producer.produce("payments", payments(3), partition=0)
    assert accounts_in(engine) == [3]


@pytest.mark.parametrize("knows", ["the producer's engine", "another engine"])
@pytest.mark.parametrize("again", [True, False], ids=["made again", "only deleted"])
@pytest.mark.parametrize("late", [True, False], ids=["records after", "no records after"])
def test_a_topic_deleted_during_a_transaction(
    engine: Engine, other: Engine, knows: str, again: bool, late: bool
) -> None:
    """A transaction with records in a topic that was deleted before the commit can only abort, whichever engine
    deleted it, whether it was created again, and whether records followed. `has_committed` says no."""
    engine.admin.create_topic("balances", partitions=1, schema=SCHEMA, key="account_id")
    deleter = other if knows == "the producer's engine" else engine
    producer = other.producer(transactional_id="job")
    producer.init_transactions()
    producer.begin_transaction(run_id="monday")
    producer.produce("payments", payments(1), partition=0).result()
    producer.produce("balances", payments(1), partition=0).result()
    deleter.admin.delete_topic("payments")
    if again:
        deleter.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
        if late:
            producer.produce("payments", payments(2), partition=0)
    elif late:
        producer.produce("balances", payments(2), partition=0)
    with pytest.raises(TransactionAbortableError) as failed:
        producer.commit_transaction()
    assert isinstance(failed.value.__cause__, UnknownTopicOrPartitionError)
    assert failed.value.__cause__.reason is Reason.TOPIC_DELETED
    producer.abort_transaction()
    producer.close()
    with engine.producer(transactional_id="job") as successor:
        successor.init_transactions()
        assert successor.has_committed("monday") is False
    assert engine.scan("balances").to_table().num_rows == 0
    assert engine.admin.verify().ok


def test_a_consumer_of_a_partition_that_is_gone(engine: Engine, later: Later) -> None:
    """A topic is created again with fewer partitions. A consumer that was assigned a missing one gets an error at each
    poll. A subscriber reads the partitions that exist, and a later one from its beginning.
    """
    engine.partition("payments", 1).append(payments(1))
    consumer = engine.consumer()
    consumer.assign([TopicPartition("payments", 1)])
    assert consumer.poll() is not None
    subscriber = engine.consumer(auto_offset_reset="latest")
    subscriber.subscribe(["payments"])
    assert subscriber.poll() is None
    engine.admin.delete_topic("payments")
    engine.admin.create_topic("payments", partitions=1, schema=SCHEMA, key="account_id")
    later.advance(5_000)
    for _ in range(2):
        with refused(UnknownTopicOrPartitionError, Reason.TOPIC_MADE_AGAIN):
            consumer.poll()
    assert subscriber.poll() is None
    engine.admin.add_partitions_to_topic("payments", 2)
    engine.partition("payments", 1).append(payments(2))
    found = subscriber.poll()
    assert found is not None
    assert found["account_id"].to_pylist() == [2]


def test_who_subscribes_again_misses_nothing_new(engine: Engine) -> None:
    """`latest` applies to what was there at the first subscription. A consumer that subscribes again gets all
    records of partitions and topics that are newer."""
    consumer = engine.consumer(auto_offset_reset="latest")
    engine.partition("payments", 0).append(payments(1))
    consumer.subscribe(["payments"])
    assert consumer.poll() is None
    partitions = engine.admin.describe_topic("payments").partitions
    engine.admin.add_partitions_to_topic("payments", partitions + 1)
    engine.partition("payments", partitions).append(payments(2))
    consumer.subscribe(["payments"])
    grown = consumer.poll()
    assert grown is not None
    assert grown["account_id"].to_pylist() == [2]
    engine.admin.delete_topic("payments")
    engine.admin.create_topic("payments", partitions=1, schema=SCHEMA, key="account_id")
    engine.partition("payments", 0).append(payments(3))
    consumer.subscribe(["payments"])
    remade = consumer.poll()
    assert remade is not None
    assert remade["account_id"].to_pylist() == [3]


def test_a_name_twice_is_one_topic(engine: Engine) -> None:
    """If a caller names a topic twice, each record is returned once."""
    engine.partition("payments", 0).append(payments(1))
    assert engine.scan(["payments", "payments"]).to_table().num_rows == 1


def test_a_transaction_keeps_to_the_topic_that_it_lists(engine: Engine, other: Engine) -> None:
    """A transaction adds a topic that was created again a moment ago, and is refused if that happens in the
    middle of it. Either way nothing hangs in a topic that no transaction lists."""
    engine.admin.delete_topic("payments")
    engine.admin.create_topic("payments", partitions=1, schema=SCHEMA, key="account_id")
    identity = other.coordinator.init_producer_id("job")
    place = TopicPartition("payments", 0)
    other.coordinator.add_partitions("job", *identity, [place])
    log = other.partition(*place)
    batch = {"producer_id": identity.producer_id, "is_transactional": True}
    log.append(payments(1), producer_epoch=identity.producer_epoch, base_sequence=0, **batch)
    identity = other.coordinator.end_transaction("job", *identity, committed=True)
    assert (log.last_stable_offset, log.high_watermark) == (2, 2)

    other.coordinator.add_partitions("job", *identity, [place])
    other.admin.delete_topic("payments")
    other.admin.create_topic("payments", partitions=1, schema=SCHEMA, key="account_id")
    with refused(UnknownTopicOrPartitionError, Reason.TOPIC_MADE_AGAIN):
        log.append(payments(2), producer_epoch=identity.producer_epoch, base_sequence=0, **batch)
    other.coordinator.end_transaction("job", *identity, committed=False)
    assert log.last_stable_offset == log.high_watermark == 0
    assert engine.admin.verify().ok


def test_a_growth_that_nobody_answers_for(clock: ManualClock) -> None:
    """If the store never answers, the outcome of a growth is unknown. The growth can be tried again."""

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        return "before" if "/partitions/" in key and operation == "put_if_absent" else None

    store = FaultyStore(MemoryStore(f"topics-{next(_NAMES)}"), decide=decide)
    with Engine(store, clock=clock, pause=no_pause) as engine:
        engine.admin.create_topic("t", partitions=1, schema=SCHEMA)
        with pytest.raises(OutcomeUnknownError):
            engine.admin.add_partitions_to_topic("t", 3)
        store.decide = None
        assert engine.admin.add_partitions_to_topic("t", 3).partitions == 3


TWICE = pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.int64()), pa.field("a", pa.int64())])
ALIKE = pa.struct([("a", pa.int64()), ("A", pa.int64())])


@pytest.mark.parametrize(
    "kind",
    [
        TWICE,
        ALIKE,
        pa.list_(TWICE),
        pa.large_list(ALIKE),
        pa.list_(ALIKE, 2),
        pa.map_(pa.string(), ALIKE),
        pa.struct([("inner", pa.list_(pa.struct([("x", TWICE)])))]),
        pa.struct([("straße", pa.int64()), ("STRASSE", pa.int64())]),
    ],
    ids=str,
)
def test_fields_of_a_struct_that_readers_do_not_tell_apart(engine: Engine, kind: pa.DataType) -> None:
    """A struct with two fields of one name, or of names that differ by case, is refused before anything is written."""
    before = {info.key: info.size for info in engine.store.list("")}
    with refused(InvalidRecordError, Reason.COLUMN_NAMES_ALIKE):
        engine.admin.create_topic("odd", partitions=1, schema=pa.schema([("x", pa.int64()), ("c", kind)]))
    assert {info.key: info.size for info in engine.store.list("")} == before


def test_fields_of_different_structs_may_have_one_name(engine: Engine) -> None:
    kind = pa.struct(
        [("a", pa.struct([("A", pa.int64())])), ("b", pa.map_(pa.string(), pa.struct([("a", pa.int64())])))]
    )
    engine.admin.create_topic("even", partitions=1, schema=pa.schema([("a", kind)]))
    assert engine.admin.describe_topic("even").schema.field("a").type == kind


def nested(around: Callable[[Any], Any], levels: int) -> pa.Schema:
    """A column of a type that is inside so many others."""
    kind: Any = pa.int64()
    for _ in range(levels):
        kind = around(kind)
    return pa.schema([("c", kind)])


@pytest.mark.parametrize(
    "schema",
    [
        nested(lambda kind: pa.struct([("a", kind)]), 62),
        nested(pa.list_, 31),
        nested(lambda kind: pa.list_(kind, 1), 31),
        nested(lambda kind: pa.map_(pa.string(), kind), 31),
        nested(lambda kind: pa.dictionary(pa.int32(), pa.struct([("a", kind)])), 31),
        pa.schema([("c", pa.binary(1 << 24))]),
        pa.schema([("c", pa.list_(pa.int64(), 1 << 20))]),
    ],
    ids=["struct", "list", "fixed_size_list", "map", "dictionary", "binary", "vector"],
)
def test_the_largest_types_can_be_used(engine: Engine, schema: pa.Schema) -> None:
    """A topic of the deepest and of the widest type that is taken is written, read, described and deleted, and stops
    no cut."""
    engine.admin.create_topic("large", partitions=1, schema=schema)
    with engine.producer() as producer:
        producer.produce("large", pa.table({"c": pa.nulls(1)})).result()
    assert engine.scan("large").to_table().num_rows == 1
    assert engine.sql('SELECT count(*) AS n FROM "large" WHERE c IS NULL').to_pylist() == [{"n": 1}]
    assert engine.admin.describe_topic("large").schema == schema
    engine.cut()
    engine.admin.delete_topic("large")


def test_what_could_not_be_read_again_is_not_written(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the limits of the reader are, a topic or a change beyond them is refused, and nothing is written."""
    narrow = pa.schema([("a", pa.int64())])
    engine.admin.create_topic("narrow", partitions=1, schema=narrow)
    before = {info.key: info.size for info in engine.store.list("")}
    monkeypatch.setattr(arrow_schema, "SCHEMA_ELEMENTS_MAX", 2)
    with refused(InvalidRecordError, Reason.UNSTORABLE_TYPE):
        engine.admin.create_topic(
            "wide", partitions=1, schema=pa.schema([(name, pa.int64()) for name in "abc"])
        )
    with refused(InvalidRecordError, Reason.UNSTORABLE_TYPE):
        engine.admin.alter_topic("narrow", [AddColumn(pa.field(name, pa.int64())) for name in "bcd"])
    assert {info.key: info.size for info in engine.store.list("")} == before
    assert engine.admin.describe_topic("narrow").schema == narrow


ODD = (None, 5, 1.5, True, b"x", ["a"], {"a": 1}, object())


@pytest.mark.parametrize("odd", ODD, ids=[type(each).__name__ for each in ODD])
def test_what_is_of_another_type_is_refused_in_one_line(engine: Engine, odd: Any) -> None:
    """Arguments of a wrong type are errors of one line, never Python's own, for topics, columns, partitions,
    changes and settings."""
    admin, schema = engine.admin, pa.schema([("id", pa.int64())])
    admin.create_topic("odd", schema=schema)
    calls: list[Callable[[], object]] = [
        lambda: admin.create_topic(odd, schema=schema),
        lambda: admin.describe_topic(odd),
        lambda: admin.alter_topic(odd, MakeNullable("id")),
        lambda: admin.alter_topic("odd", odd),
        lambda: admin.alter_topic("odd", [odd]),
        lambda: admin.alter_topic("odd", ReorderColumns(odd)),
        lambda: admin.alter_topic("odd", DropColumn(odd)),
        lambda: admin.alter_topic("odd", RenameColumn(odd, "x")),
        lambda: admin.alter_topic("odd", RenameColumn("id", odd)),
        lambda: admin.alter_topic("odd", MakeNullable(odd)),
        lambda: admin.alter_topic("odd", WidenColumn("id", odd)),
        lambda: admin.alter_topic("odd", AddColumn(odd)),
        lambda: admin.alter_configs(odd),
        lambda: admin.alter_configs(odd, topic="odd"),
        lambda: admin.alter_configs({"cleanup.policy": odd or 0}, topic="odd"),
        lambda: admin.create_topic("policy", schema=schema, cleanup_policy=odd),
        lambda: admin.create_topic("published", schema=schema, tables_publish=odd),
    ]
    if odd is not None:
        calls += [
            lambda: admin.alter_configs({"retention.ms": 1}, topic=odd),
            lambda: admin.create_topic("columns", schema=odd),
            lambda: admin.create_topic("columns", schema=odd, tables_publish="delta"),
        ]
    if type(odd) is not int:
        calls += [
            lambda: admin.create_topic("many", schema=schema, partitions=odd),
            lambda: admin.add_partitions_to_topic("odd", odd),
        ]
    for number, call in enumerate(calls):
        with pytest.raises(TxnEngineError) as refused:
            call()
        assert "\n" not in str(refused.value), number
    assert engine.logs.topics.look_up("odd").changes == 0
