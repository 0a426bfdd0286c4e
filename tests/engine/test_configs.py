"""Settings of a topic and of a store are changed, also under races, faults and damage."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pyarrow as pa
import pytest

import txn_engine
from storage import MemoryStore
from storage.reasons import StoreReason
from tests.engine.conftest import SCHEMA, Later
from tests.support.faults import Fault, FaultyStore, Operation, no_pause
from tests.support.refusals import damaged_at, refused
from txn_engine import Engine
from txn_engine.errors import (
    CorruptObjectError,
    InvalidConfigError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    OutcomeUnknownError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
    UnsupportedFormatError,
)
from txn_engine.log import topics
from txn_engine.log.objects import decode_json, encode_json
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock

DAY_MS = 86_400_000
_NAMES = count()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(f"configs-{next(_NAMES)}")


@pytest.fixture
def made(store: MemoryStore, clock: ManualClock, later: Later) -> Iterator[Engine]:
    """A store with a topic."""
    with Engine(store, clock=clock, waiting=later.waiting) as engine:
        engine.admin.create_topic("t", partitions=1, schema=SCHEMA, key="account_id", retention_ms=DAY_MS)
        yield engine


def change_key(number: int, topic: str = "t", incarnation: int = 0) -> str:
    return f"topics/{topic}/{incarnation}/changes/{number:020d}.json"


def settings_key(number: int) -> str:
    return f"settings/{number:020d}.json"


def put_change(store: MemoryStore, at: int, /, **changed: object) -> None:
    """Store a change as a writer leaves it, except for the fields that the test names."""
    held = {
        "topic": "t",
        "incarnation": 0,
        "number": at,
        "created_ms": 0,
        "schema": None,
        "write_id": "0" * 32,
    }
    held |= {"settings": {"retention.ms": 5}} | changed
    store.put(change_key(at), encode_json(held, "topic_change"))


# --- what is changed --------------------------------------------------------------------------------------


def test_a_topics_settings(made: Engine, store: MemoryStore, clock: ManualClock) -> None:
    """A topic's settings are described by Kafka's names. A change leaves the settings that it does not name
    as they are, and None resets one to its default."""
    assert made.admin.describe_configs("t")["retention.ms"] == DAY_MS
    given = {"retention.ms": str(7 * DAY_MS), "tables.publish": "iceberg,delta"}
    after = made.admin.alter_configs(given, topic="t")
    assert [(each.name, each.before, each.after) for each in after.changes] == [
        ("retention.ms", DAY_MS, 7 * DAY_MS),
        ("tables.publish", "", "delta,iceberg"),
    ]
    assert made.admin.describe_topic("t").retention_ms == 7 * DAY_MS
    made.admin.alter_configs({"retention.ms": None}, topic="t")
    with Engine(store, clock=clock) as fresh:
        found = fresh.admin.describe_configs("t")
        assert (found["retention.ms"], found["tables.publish"], found.version) == (-1, "delta,iceberg", 2)
        assert found.entries["retention.ms"].is_default
        assert not fresh.admin.verify().findings


def test_a_stores_settings(made: Engine, store: MemoryStore, clock: ManualClock) -> None:
    """A changed setting of the store counts for every client: a longer transaction time-out is accepted once
    the store allows it, and not before."""
    with pytest.raises(InvalidTransactionTimeoutError):
        made.coordinator.init_producer_id("job", transaction_timeout_ms=3_600_000)
    after = made.admin.alter_configs({"transaction.max.timeout.ms": 3_600_000})
    assert (after["transaction.max.timeout.ms"], after["offsets.topic.num.partitions"]) == (3_600_000, 50)
    made.coordinator.init_producer_id("job", transaction_timeout_ms=3_600_000)
    with Engine(store, clock=clock) as fresh:
        fresh.coordinator.init_producer_id("job", transaction_timeout_ms=3_600_000)
        fresh.admin.alter_configs({"transaction.max.timeout.ms": None})
        assert fresh.limits.max_transaction_timeout_ms == 900_000
        assert not fresh.admin.verify().findings


def test_an_id_lives_as_long_as_the_store_says(made: Engine, clock: ManualClock) -> None:
    made.coordinator.init_producer_id("job")
    made.admin.alter_configs({"transactional.id.expiration.ms": 30 * DAY_MS})
    clock.advance(29 * DAY_MS)
    assert not made.coordinator.expire_transactional_ids().transactional_ids
    made.admin.alter_configs({"transactional.id.expiration.ms": 28 * DAY_MS})
    assert made.coordinator.expire_transactional_ids().transactional_ids == ("job",)


def test_a_producer_is_remembered_as_long_as_the_store_says(made: Engine, clock: ManualClock) -> None:
    with made.producer() as producer:
        producer.produce(
            "t", pa.table({"account_id": [1], "amount": pa.array([None], SCHEMA.field(1).type)})
        ).result()
    made.admin.alter_configs({"producer.id.expiration.ms": 3 * DAY_MS})
    clock.advance(2 * DAY_MS)
    made.maintenance.expire_producers("t")
    assert len(made.partition("t", 0).producers()) == 1
    made.admin.alter_configs({"producer.id.expiration.ms": 600_000})
    made.maintenance.expire_producers("t")
    assert not made.partition("t", 0).producers()


def test_nothing_is_written_for_nothing(made: Engine, store: MemoryStore) -> None:
    """A change to the present value writes nothing. A dry run writes nothing either, and has the same answer
    and refusals as the change itself."""
    assert not made.admin.alter_configs({"retention.ms": DAY_MS}, topic="t").changes
    assert not made.admin.alter_configs({"transaction.max.timeout.ms": 900_000}).changes
    assert made.admin.alter_configs({"retention.ms": 5}, topic="t", dry_run=True).changes
    assert made.admin.alter_configs({"transaction.max.timeout.ms": 5}, dry_run=True).changes
    with pytest.raises(InvalidConfigError):
        made.admin.alter_configs({"retention.ms": -2}, topic="t", dry_run=True)
    assert not [info.key for info in store.list("") if "/changes/" in info.key or "settings/" in info.key]
    assert made.admin.describe_configs("t").version == made.admin.describe_configs().version == 0


@pytest.mark.parametrize(
    ("topic", "settings", "reason"),
    [
        ("t", {"retention.m": 1}, Reason.UNKNOWN_SETTING),
        ("t", {"RETENTION.MS": 1}, Reason.UNKNOWN_SETTING),
        ("t", {"no such": 1}, Reason.UNKNOWN_SETTING),
        ("t", {"retention.byte": 1}, Reason.UNKNOWN_SETTING),
        ("t", {"compresion.type": 1}, Reason.UNKNOWN_SETTING),
        ("t", {"compression.gzip.level": 1}, Reason.NO_MEANING_HERE),
        ("t", {"message.timestamp.type": "LogAppendTime"}, Reason.NO_MEANING_HERE),
        ("t", {"remote.log.copy.disable": True}, Reason.NO_MEANING_HERE),
        ("t", {"segment.ms": 1}, Reason.NO_MEANING_HERE),
        ("t", {"transaction.max.timeout.ms": 1}, Reason.NO_MEANING_HERE),
        ("t", {"retention.ms": -2}, Reason.BAD_SETTING),
        ("t", {"retention.ms": 2**63}, Reason.BAD_SETTING),
        ("t", {"retention.ms": "a week"}, Reason.BAD_SETTING),
        ("t", {"retention.ms": "1_000"}, Reason.BAD_SETTING),
        ("t", {"retention.ms": 1.5}, Reason.BAD_SETTING),
        ("t", {"retention.ms": float("nan")}, Reason.BAD_SETTING),
        ("t", {"retention.ms": True}, Reason.BAD_SETTING),
        ("t", {"retention.ms": [1]}, Reason.BAD_SETTING),
        ("t", {"cleanup.policy": "keep"}, Reason.BAD_SETTING),
        ("t", {"cleanup.policy": 1}, Reason.BAD_SETTING),
        ("t", {"cleanup.policy": "compact"}, Reason.NULLABLE_KEY),
        ("t", {"tables.publish": "hudi"}, Reason.BAD_SETTING),
        ("t", {"retention.ms": 5, "cleanup.policy": "compact"}, Reason.NULLABLE_KEY),
        (None, {"retention.ms": 1}, Reason.NO_MEANING_HERE),
        (None, {"transaction.max.timeout.ms": 0}, Reason.BAD_SETTING),
        (None, {"transaction.max.timeout.ms": 2**31 - 1}, Reason.BAD_SETTING),
        (None, {"transactional.id.expiration.ms": DAY_MS}, Reason.BAD_SETTING),
        (None, {"producer.id.expiration.ms": 1}, Reason.BAD_SETTING),
        (None, {"offsets.topic.num.partitions": 3}, Reason.FIXED_SETTING),
        (None, {"transaction.two.phase.commit.enable": True}, Reason.NO_MEANING_HERE),
        (None, {1: 1}, Reason.UNKNOWN_SETTING),
        (None, {"log.cleaner.threads": 1}, Reason.NO_MEANING_HERE),
        (None, {"log.retention.hours": 1}, Reason.NO_MEANING_HERE),
        (None, {"transaction.state.log.segment.bytes": 1}, Reason.NO_MEANING_HERE),
        (None, {"transaction.state.log.num.partition": 1}, Reason.UNKNOWN_SETTING),
    ],
)
def test_what_is_refused(
    made: Engine, store: MemoryStore, topic: str | None, settings: dict[str, object], reason: Reason
) -> None:
    """The refusal is one line. Nothing is written, and none of several settings either."""
    before = {info.key for info in store.list("")}
    with refused(InvalidConfigError, reason) as caught:
        made.admin.alter_configs(settings, topic=topic)
    assert "\n" not in str(caught.value)
    assert {info.key for info in store.list("")} == before


def test_nothing_to_alter_and_no_such_topic(made: Engine) -> None:
    with pytest.raises(InvalidRequestError):
        made.admin.alter_configs({}, topic="t")
    with pytest.raises(InvalidRequestError):
        made.admin.alter_configs([("retention.ms", 1)])  # type: ignore[arg-type]
    for call in (
        made.admin.describe_configs,
        lambda name: made.admin.alter_configs({"retention.ms": 1}, topic=name),
    ):
        with pytest.raises(UnknownTopicOrPartitionError):
            call("nowhere")


# --- who sees it ------------------------------------------------------------------------------------------


def test_others_see_it_within_five_seconds(
    made: Engine, store: MemoryStore, clock: ManualClock, later: Later
) -> None:
    with Engine(store, clock=clock, waiting=later.waiting) as other:
        assert other.logs.topics.get("t").retention_ms == DAY_MS
        assert other.limits.max_transaction_timeout_ms == 900_000
        made.admin.alter_configs({"retention.ms": 5}, topic="t")
        made.admin.alter_configs({"transaction.max.timeout.ms": 5})
        assert (made.logs.topics.get("t").retention_ms, made.limits.max_transaction_timeout_ms) == (5, 5)
        assert (other.logs.topics.get("t").retention_ms, other.limits.max_transaction_timeout_ms) == (
            DAY_MS,
            900_000,
        )
        later.advance(5_000)
        assert (other.logs.topics.get("t").retention_ms, other.limits.max_transaction_timeout_ms) == (5, 5)


def test_two_who_change_other_settings_at_once(store: MemoryStore, made: Engine, clock: ManualClock) -> None:
    """Two engines that change different settings at once do not undo each other's changes, however they
    race."""
    with Engine(store, clock=clock) as other:
        barrier = threading.Barrier(2)

        def alter(engine: Engine, topic: str | None, name: str) -> None:
            barrier.wait()
            for value in range(1_000_000, 1_000_020):
                engine.admin.alter_configs({name: value}, topic=topic)

        with ThreadPoolExecutor() as pool:
            for topic, names in (
                ("t", ("retention.ms", "delete.retention.ms")),
                (None, ("transaction.max.timeout.ms", "producer.id.expiration.ms")),
            ):
                calls = [
                    pool.submit(alter, engine, topic, name)
                    for engine, name in zip((made, other), names, strict=True)
                ]
                for call in calls:
                    call.result()
                found = made.admin.describe_configs(topic)
                assert [found[name] for name in names] == [1_000_019, 1_000_019]
                assert found.version == 40
        assert not other.admin.verify().findings


def test_who_loses_the_race_is_judged_by_what_is_there_now(
    made: Engine, store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that loses the race for a change decides again from the settings that it then finds, so the
    later put counts."""
    with Engine(store, clock=clock) as other:
        judged = []

        def first_let_the_other(topic: topics.Topic) -> topics.Topic:
            judged.append(topic.retention_ms)
            if len(judged) == 1:
                made.admin.alter_configs({"retention.ms": 11, "min.compaction.lag.ms": 3}, topic="t")
            return topic.with_settings({"retention.ms": 22})

        before, after = other.logs.topics.change("t", first_let_the_other)
        assert judged == [DAY_MS, 11]
        assert (before.retention_ms, after.retention_ms, after.min_compaction_lag_ms) == (11, 22, 3)


def test_a_topic_that_is_deleted_and_made_again_begins_anew(made: Engine) -> None:
    made.admin.alter_configs({"retention.ms": 5}, topic="t")
    made.admin.delete_topic("t")
    with pytest.raises(UnknownTopicOrPartitionError):
        made.admin.alter_configs({"retention.ms": 6}, topic="t")
    made.admin.create_topic("t", schema=SCHEMA)
    assert made.admin.describe_configs("t")["retention.ms"] == -1
    assert made.admin.describe_configs("t").version == 0
    assert not made.admin.verify().findings


def test_a_topic_that_is_deleted_under_a_change(made: Engine, store: MemoryStore, clock: ManualClock) -> None:
    """A change is not reported as done if the topic was deleted meanwhile."""
    with Engine(store, clock=clock) as other:

        def first_delete(topic: topics.Topic) -> topics.Topic:
            made.admin.delete_topic("t")
            return topic.with_settings({"retention.ms": 22})

        with refused(UnknownTopicOrPartitionError, Reason.TOPIC_DELETED):
            other.logs.topics.change("t", first_delete)


# --- faults -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["t", None])
def test_a_change_whose_answer_was_lost(clock: ManualClock, topic: str | None) -> None:
    """A change whose answer was lost is settled by reading the object back. A change that the store never
    answered can be made again."""
    faults: list[Fault | None] = ["after"]
    name = "retention.ms" if topic else "producer.id.expiration.ms"

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        return (
            faults[0] if operation == "put_if_absent" and ("changes/" in key or "settings/" in key) else None
        )

    store = FaultyStore(MemoryStore(f"configs-{next(_NAMES)}"), decide=decide)
    with Engine(store, clock=clock, pause=no_pause) as engine:
        engine.admin.create_topic("t", schema=SCHEMA)
        assert engine.admin.alter_configs({name: 700_000}, topic=topic)[name] == 700_000
        faults[0] = "before"
        with pytest.raises(OutcomeUnknownError):
            engine.admin.alter_configs({name: 800_000}, topic=topic)
        faults[0] = None
        assert engine.admin.alter_configs({name: 800_000}, topic=topic)[name] == 800_000
        assert engine.admin.describe_configs(topic).version == 2


# --- damage -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"number": 1}, "change 1 of topic"),
        ({"number": False}, "change False of topic"),
        ({"topic": "other"}, "topic 'other'"),
        ({"incarnation": 1}, "incarnation 1"),
        ({"settings": None}, "settings None"),
        ({"settings": {"retention.ms": -2}}, "retention.ms -2"),
        ({"settings": {"retention.ms": "5"}}, "retention.ms '5'"),
        ({"settings": {"retention.ms": 5.0}}, "retention.ms 5.0"),
        ({"settings": {"retention.ms": None}}, "retention.ms None"),
        ({"settings": {"cleanup.policy": "delete,compact"}}, "cleanup.policy 'delete,compact'"),
        ({"settings": {"cleanup.policy": "compact"}}, "that may be null"),
        ({"created_ms": -1}, "created_ms -1"),
        ({"created_ms": "now"}, "created_ms 'now'"),
    ],
)
def test_a_change_that_no_writer_leaves(
    made: Engine, store: MemoryStore, changed: dict[str, object], said: str
) -> None:
    """A change that no writer would leave is damage, and is never skipped, because an older change may say
    the opposite. Other topics are not affected."""
    made.admin.create_topic("other", schema=SCHEMA)
    put_change(store, 0, **changed)
    with pytest.raises(CorruptObjectError) as error:
        made.admin.describe_configs("t")
    assert said in error.value.seen + str(error.value.expected)
    assert error.value.place == change_key(0)
    assert made.admin.describe_configs("other")["retention.ms"] == -1
    findings = made.admin.verify().findings
    assert [finding.object for finding in findings] == [change_key(0)] or "null" in said


def test_a_change_of_a_later_version(made: Engine, store: MemoryStore) -> None:
    """A change of a later version is refused, because the engine could not do what it asks for."""
    put_change(store, 0, settings={"retention.weeks": 5})
    with pytest.raises(UnsupportedFormatError):
        made.scan("t")


def test_a_change_that_is_gone(made: Engine, store: MemoryStore, clock: ManualClock) -> None:
    """A missing change is damage, not the end of the changes, if a later one exists or a process has seen it
    before."""
    for value in (1, 2, 3):
        made.admin.alter_configs({"retention.ms": value}, topic="t")
    store.delete(change_key(1))
    with Engine(store, clock=clock) as fresh, damaged_at(change_key(1)):
        fresh.admin.describe_configs("t")
    assert [finding.object for finding in made.admin.verify().findings] == [change_key(1)]
    store.delete(change_key(2))
    with damaged_at(change_key(2)):
        made.admin.describe_configs("t")


def test_a_changed_byte(made: Engine, store: MemoryStore) -> None:
    made.admin.alter_configs({"retention.ms": 1}, topic="t")
    data = store.get(change_key(0))
    store.put(change_key(0), data.replace(b'"retention.ms": 1', b'"retention.ms": 2'))
    with refused(CorruptObjectError, StoreReason.CHECKSUM):
        made.admin.describe_configs("t")


def damage_settings(store: MemoryStore, kind: str) -> None:
    held = {"number": 0, "created_ms": 0, "settings": {}, "write_id": "0" * 32}
    if kind == "number":
        held["number"] = 4
    elif kind == "range":
        held["settings"] = {"transaction.max.timeout.ms": 0}
    elif kind == "fixed":
        held["settings"] = {"offsets.topic.num.partitions": 3}
    store.put(settings_key(1 if kind == "gap" else 0), encode_json(held, "settings"))


@pytest.mark.parametrize("kind", ["number", "range", "fixed", "gap"])
def test_settings_that_no_writer_leaves(
    made: Engine, store: MemoryStore, clock: ManualClock, kind: str
) -> None:
    """Calls that need the limits fail. Reads, and transactions that have begun, do not need them and go on."""
    with made.producer(transactional_id="job") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        damage_settings(store, kind)
        producer.commit_transaction()
    with Engine(store, clock=clock) as fresh:
        assert fresh.scan("t").to_table().num_rows == 0
        for call in (fresh.admin.describe_configs, lambda: fresh.coordinator.init_producer_id("job")):
            with pytest.raises(TxnEngineError) as error:
                call()
            assert error.value.code in ("CORRUPT_MESSAGE", "UNSUPPORTED_VERSION")
            assert "settings/" in str(error.value.place)
        assert all("settings/" in finding.object for finding in fresh.admin.verify().findings)
        assert fresh.admin.verify().findings


# --- from creation on -------------------------------------------------------------------------------------


def test_a_compacted_topic_may_stop_and_go_on(made: Engine, url: str) -> None:
    """Its key is in every record, so that either policy goes with its columns."""
    made.admin.create_topic("table", schema=SCHEMA, key="account_id", cleanup_policy="compact")
    for policy in ("delete", "compact,delete", "compact"):
        after = made.admin.alter_configs({"cleanup.policy": policy}, topic="table")
        assert after["cleanup.policy"] == made.admin.describe_topic("table").cleanup_policy == policy
    assert not made.admin.verify().findings


def test_many_changes_are_found_from_any_beginning(
    made: Engine, store: MemoryStore, clock: ManualClock
) -> None:
    for value in range(1, 75):
        made.admin.alter_configs({"retention.ms": value}, topic="t")
    with Engine(store, clock=clock) as fresh:
        assert fresh.admin.describe_configs("t")["retention.ms"] == 74
    assert txn_engine.InvalidConfigError is InvalidConfigError


def test_a_fresh_store_begins_with_what_it_is_given(store: MemoryStore, clock: ManualClock) -> None:
    """The configs given at the creation of a store become its settings. Partition counts cannot be changed
    afterwards."""
    configs = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": 2}
    with Engine(store, clock=clock, configs=configs | {"transaction.max.timeout.ms": 5_000}) as engine:
        assert dict(engine.config.internal_partitions) == {"__transaction_state": 3, "__consumer_offsets": 2}
        found = engine.admin.describe_configs()
        assert (found["offsets.topic.num.partitions"], found["transaction.max.timeout.ms"]) == (2, 5_000)
        engine.admin.create_topic("t", schema=SCHEMA)
        with pytest.raises(InvalidTransactionTimeoutError):
            engine.coordinator.init_producer_id("job", transaction_timeout_ms=5_001)
        assert not engine.admin.verify().findings
    with Engine(store, clock=clock, configs=configs) as again:
        assert again.config.internal_partitions["__transaction_state"] == 3
    for others, reason in (
        ({"offsets.topic.num.partitions": 7}, Reason.FIXED_SETTING),
        ({"transaction.max.timeout.ms": 6_000}, Reason.STORE_HAS_OTHER_SETTINGS),
        ({"offsets.topic.num.partitions": 0}, Reason.BAD_SETTING),
        ({"retention.ms": 5}, Reason.NO_MEANING_HERE),
    ):
        with refused(InvalidConfigError, reason):
            Engine(store, clock=clock, configs=others)


def test_old_offsets_go_as_the_store_says(made: Engine, clock: ManualClock) -> None:
    """Committed offsets stay for ever by default, and otherwise for the configured minutes."""
    with made.consumer(group_id="rare") as consumer:
        consumer.subscribe(["t"])
        consumer.poll()
        consumer.commit()
    clock.advance(400 * DAY_MS)
    assert not made.admin.expire_group_offsets()
    made.admin.alter_configs({"offsets.retention.minutes": 500 * 1_440})
    assert not made.admin.expire_group_offsets()
    made.admin.alter_configs({"offsets.retention.minutes": 400 * 1_440})
    assert [each.group_id for each in made.admin.expire_group_offsets()] == ["rare"]


def test_retention_ms_keeps_what_is_young(made: Engine, clock: ManualClock) -> None:
    """A dry run says before how many records and bytes the next run of retention drops, and that run drops them."""
    log = made.partition("t", 0)
    for n in range(4):
        log.append(pa.table({"account_id": [n], "amount": pa.array([None], SCHEMA.field(1).type)}))
        clock.advance(DAY_MS)
    made.admin.alter_configs({"retention.ms": None}, topic="t")
    given = {"retention.ms": 2 * DAY_MS + 1}
    told = made.admin.alter_configs(given, topic="t", dry_run=True).would_drop
    assert told is not None
    assert made.maintenance.retain("t").partitions == ()
    assert made.admin.alter_configs(given, topic="t").would_drop is None
    (dropped,) = made.maintenance.retain("t").partitions
    assert (told.records, told.bytes, told.unreadable) == (dropped.records, dropped.bytes, ())
    assert dropped.records == 2
    assert made.scan("t").to_table()["account_id"].to_pylist() == [2, 3]
    by_size = made.admin.alter_configs({"retention.bytes": 1}, topic="t", dry_run=True).would_drop
    assert by_size is not None
    assert by_size.records == 1
    assert made.admin.alter_configs({"max.message.bytes": 5}, topic="t", dry_run=True).would_drop is None
    assert made.admin.alter_configs({"cleanup.policy": "delete"}, topic="t", dry_run=True).would_drop is None


def test_what_a_damaged_partition_would_lose_is_not_known(
    made: Engine, store: MemoryStore, clock: ManualClock
) -> None:
    """A dry run names the partitions that it cannot read, and counts what the others would lose."""
    made.admin.create_topic("two", partitions=2, schema=SCHEMA)
    one = pa.table({"account_id": [1], "amount": pa.array([None], SCHEMA.field(1).type)})
    for number in (0, 1):
        made.partition("two", number).append(one)
    store.put(f"topics/two/0/1/log/{0:020d}.parquet", b"nothing")
    clock.advance(DAY_MS)
    with Engine(store, clock=clock) as fresh:
        told = fresh.admin.alter_configs({"retention.ms": 5}, topic="two", dry_run=True).would_drop
    assert told is not None
    assert (told.records, told.unreadable) == (1, (1,))


def test_retention_bytes_keeps_the_newest_files(made: Engine) -> None:
    """The oldest files are deleted as long as the others still have the configured number of bytes."""
    log = made.partition("t", 0)
    for n in range(6):
        log.append(pa.table({"account_id": [n], "amount": pa.array([None], SCHEMA.field(1).type)}))
    size = made.scan("t").files()[0].bytes
    made.admin.alter_configs({"retention.ms": None, "retention.bytes": 3 * size}, topic="t")
    assert made.maintenance.retain("t", dry_run=True).partitions[0].records == 3
    made.maintenance.retain("t")
    assert made.scan("t").to_table()["account_id"].to_pylist() == [3, 4, 5]
    made.maintenance.retain("t")
    assert log.log_start_offset == 3
    made.admin.alter_configs({"cleanup.policy": "delete", "retention.bytes": 0}, topic="t")
    made.maintenance.retain("t")
    assert made.scan("t").to_table().num_rows == 0
    assert not made.admin.verify().findings


def table_of(engine: Engine, **settings: object) -> None:
    """Create a compacted topic with three records of one key, and one record of another key with a tombstone
    after it."""
    schema = pa.schema([("key", pa.string()), ("value", pa.int64())])
    engine.admin.create_topic("table", schema=schema, key="key", cleanup_policy="compact", **settings)  # type: ignore[arg-type]
    log = engine.partition("table", 0)
    for key, value in (("a", 1), ("a", 2), ("b", 1), ("b", None), ("a", 3)):
        log.append(pa.table({"key": [key], "value": pa.array([value], pa.int64())}))


def held(engine: Engine) -> list[tuple[str, int | None]]:
    table = engine.scan("table").to_table()
    return list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def test_the_dirty_ratio_is_the_topics(made: Engine) -> None:
    """A run without a ratio of its own uses the topic's. The default is a half."""
    table_of(made, min_cleanable_dirty_ratio=1.0)
    made.maintenance.compact("table")
    assert held(made) == [("b", None), ("a", 3)]
    made.partition("table", 0).append(pa.table({"key": ["a"], "value": [4]}))
    made.maintenance.compact("table")
    assert held(made) == [("b", None), ("a", 3), ("a", 4)]
    made.admin.alter_configs({"min.cleanable.dirty.ratio": 0}, topic="table")
    made.maintenance.compact("table")
    assert held(made) == [("b", None), ("a", 4)]


def test_tombstones_are_not_judged_anew(made: Engine, store: MemoryStore, clock: ManualClock) -> None:
    """A longer delete.retention.ms does not bring back tombstones that compaction has removed, and the audit
    finds nothing wrong."""
    table_of(made)
    made.maintenance.compact("table")
    made.admin.alter_configs({"delete.retention.ms": 1_000}, topic="table")
    clock.advance(2_000)
    made.maintenance.compact("table")
    assert held(made) == [("a", 3)]
    made.admin.alter_configs({"delete.retention.ms": 365 * DAY_MS}, topic="table")
    assert not made.admin.verify().findings
    with Engine(store, clock=clock) as fresh:
        assert held(fresh) == [("a", 3)]
        assert not fresh.admin.verify().findings


def test_compaction_stops_where_the_topic_is_altered_under_it(
    made: Engine, store: MemoryStore, clock: ManualClock, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that was planned by another policy writes nothing more, and the next run plans again."""
    table_of(made)
    with Engine(store, clock=clock) as other:
        from txn_engine.maintain.by_key import KeyCompactor

        plan = KeyCompactor.plan

        def altered_meanwhile(self: KeyCompactor, state: object) -> object:
            planned = plan(self, state)  # type: ignore[arg-type]
            other.admin.alter_configs({"cleanup.policy": "delete"}, topic="table")
            later.advance(5_000)
            return planned

        monkeypatch.setattr(KeyCompactor, "plan", altered_meanwhile)
        made.maintenance.compact("table")
    assert len(held(made)) == 5
    assert not made.admin.verify().findings


def test_what_was_written_before_there_were_settings(
    made: Engine, store: MemoryStore, clock: ManualClock
) -> None:
    """Topics, cuts and a store.json that were written before a setting existed are read with its default."""
    cut = made.cut()
    new = {
        "retention_bytes",
        "min_cleanable_dirty_ratio",
        "max_message_bytes",
        "message_timestamp_before_max_ms",
        "message_timestamp_after_max_ms",
    }
    for key, kind, strip in (
        ("topics/t/0.json", "topic", lambda held: [held.pop(name) for name in new]),
        ("store.json", "store", lambda held: held["limits"].pop("offsets_retention_minutes")),
        (
            f"cuts/{cut.number:020d}/cut.json",
            "cut",
            lambda held: (held.pop("settings"), held["topics"][0].pop("changes")),
        ),
    ):
        found = decode_json(store.get(key), key=key, kind=kind, needed=())
        strip(found)
        store.put(
            key,
            encode_json({n: v for n, v in found.items() if n not in ("format", "kind", "checksum")}, kind),
        )
    with Engine(store, clock=clock) as fresh:
        assert dict(fresh.admin.describe_configs("t")) == dict(made.admin.describe_configs("t"))
        assert dict(fresh.admin.describe_configs()) == dict(made.admin.describe_configs())
        assert fresh.find_cut(cut.number) == cut
        assert not fresh.admin.verify().findings
