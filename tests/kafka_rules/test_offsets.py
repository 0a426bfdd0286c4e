"""Group offsets in transactions follow OffsetMetadataManagerTest, and TransactionsTest's loops over them."""

from __future__ import annotations

import pytest

from tests.kafka_rules.driver import SCHEMA, T0, T1, TOPIC, Partition, answer, records
from txn_engine import Engine, OffsetAndMetadata, TopicPartition
from txn_engine.consumer import Consumer
from txn_engine.producer import Producer
from txn_engine.testing import ManualClock
from txn_engine.types import ForgottenOffset


@pytest.fixture
def loaded(engine: Engine) -> Engine:
    """An engine whose t-0 and t-1 hold ten records each."""
    for number in range(2):
        engine.partition(TOPIC, number).append(records(count=10))
    return engine


def member(engine: Engine, group: str = "g", **more: object) -> Consumer:
    """A member of the group that has fetched its positions in t-0 and t-1."""
    consumer = engine.consumer(group_id=group, **more)  # type: ignore[arg-type]
    consumer.assign([T0, T1])
    consumer.positions()
    return consumer


def begun(engine: Engine, name: str) -> Producer:
    producer = engine.producer(transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def committed(engine: Engine, group: str = "g") -> dict[TopicPartition, int]:
    """The group's committed offsets, without pending ones."""
    consumer = engine.consumer(group_id=group, isolation_level="read_uncommitted")
    return {tp: at.offset for tp, at in consumer.committed([T0, T1]).items()}


def offset_log(engine: Engine, group: str = "g") -> Partition:
    number = engine.logs.group_partition(group).partition
    return Partition(engine.partition("__consumer_offsets", number))


def test_off_02_a_commit_applies_and_an_abort_drops(loaded: Engine) -> None:
    """OFF-02: pending offsets become the group's with the commit marker and vanish with the abort marker."""
    one, other = begun(loaded, "one"), begun(loaded, "other")
    consumer = member(loaded)
    one.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, consumer.group_metadata())
    other.send_offsets_to_transaction({T1: OffsetAndMetadata(7)}, consumer.group_metadata())
    assert committed(loaded) == {}
    one.commit_transaction()
    assert committed(loaded) == {T0: 5}
    other.abort_transaction()
    assert committed(loaded) == {T0: 5}


def test_off_02_a_marker_of_a_producer_with_nothing_pending(loaded: Engine) -> None:
    """OFF-02: a marker for a producer that has nothing pending moves nothing."""
    member(loaded).commit({T0: 3})
    log = offset_log(loaded)
    assert isinstance(log.commit(5_010, 0), int)
    assert isinstance(log.abort(5_011, 0), int)
    assert committed(loaded) == {T0: 3}


def test_the_later_row_of_one_transaction_counts(loaded: Engine) -> None:
    """If one transaction commits twice for a partition, the later commit is the group's."""
    producer, consumer = begun(loaded, "one"), member(loaded)
    for offset in (4, 9, 6):
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(offset)}, consumer.group_metadata())
    producer.commit_transaction()
    assert committed(loaded) == {T0: 6}


@pytest.mark.parametrize("who", ["another producer", "a plain commit", "a reset"])
def test_off_04_what_is_pending_is_waited_for(loaded: Engine, who: str) -> None:
    """OFF-04, and beyond Kafka: while a producer's commit for a partition is pending, nobody else can commit
    there. Another partition is free."""
    holder, consumer = begun(loaded, "holder"), member(loaded)
    holder.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, consumer.group_metadata())
    late = member(loaded, isolation_level="read_uncommitted")

    def attempt(tp: TopicPartition) -> object:
        if who == "another producer":
            producer = begun(loaded, f"late-{tp.partition}")
            return answer(lambda: producer.send_offsets_to_transaction({tp: 1}, late.group_metadata()))
        if who == "a plain commit":
            return answer(lambda: late.commit({tp: 1}))
        return answer(lambda: loaded.admin.reset_offsets("g", {tp: 1}, execute=True))

    assert attempt(T0) == "OFFSETS_PENDING"
    assert attempt(T1) != "OFFSETS_PENDING"
    holder.commit_transaction()
    assert committed(loaded)[T0] == 5


def test_off_04_a_group_with_pending_offsets_only_is_a_group(loaded: Engine) -> None:
    """OFF-04: a group exists from its first pending offset on, and shows it as pending."""
    producer = begun(loaded, "one")
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, member(loaded).group_metadata())
    assert loaded.admin.list_groups() == ["g"]
    (part,) = loaded.admin.describe_group("g").partitions
    assert (part.committed_offset, part.pending_offset) == (-1, 5)
    assert part.pending_producer_id == producer.producer_id
    producer.abort_transaction()
    assert loaded.admin.list_groups() == []
    assert answer(lambda: loaded.admin.describe_group("g")) == "GROUP_ID_NOT_FOUND"


@pytest.mark.parametrize(("age", "forgotten"), [(999, False), (1_000, True)])
def test_off_04_old_offsets_are_forgotten(
    loaded: Engine, clock: ManualClock, age: int, forgotten: bool
) -> None:
    """OFF-04: an offset goes at the retention time, not before, and the group goes with its last one."""
    member(loaded).commit({T0: 5, T1: 7})
    clock.advance(age)
    due = [ForgottenOffset("g", TOPIC, 0, 5), ForgottenOffset("g", TOPIC, 1, 7)] if forgotten else []
    assert loaded.admin.expire_group_offsets(retention_ms=1_000, dry_run=True) == due
    assert committed(loaded) == {T0: 5, T1: 7}
    assert loaded.admin.expire_group_offsets(retention_ms=1_000) == due
    assert committed(loaded) == ({} if forgotten else {T0: 5, T1: 7})
    assert loaded.admin.list_groups() == ([] if forgotten else ["g"])


def test_off_04_what_is_pending_is_not_forgotten(loaded: Engine, clock: ManualClock) -> None:
    """OFF-04: a partition with a pending offset keeps its committed one, however old it is, and the group's
    other offsets go. A group that has only pending offsets is not deleted."""
    member(loaded).commit({T0: 5, T1: 7})
    holder, lonely = begun(loaded, "holder"), begun(loaded, "lonely")
    holder.send_offsets_to_transaction({T0: OffsetAndMetadata(6)}, member(loaded).group_metadata())
    lonely.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, member(loaded, "h").group_metadata())
    clock.advance(50_000)
    due = [ForgottenOffset("g", TOPIC, 1, 7)]
    assert loaded.admin.expire_group_offsets(retention_ms=1_000, dry_run=True) == due
    assert loaded.admin.expire_group_offsets(retention_ms=1_000) == due
    assert committed(loaded) == {T0: 5}
    assert loaded.admin.list_groups() == ["g", "h"]
    for producer in (holder, lonely):
        producer.commit_transaction()
    assert (committed(loaded), committed(loaded, "h")) == ({T0: 6}, {T0: 1})


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_stable_offsets(loaded: Engine, isolation_level: str) -> None:
    """KIP-447: a fetch of stable offsets has to be repeated while a commit is pending. Another fetch gets the last
    committed offset.
    """
    first = member(loaded)
    first.commit({T0: 2})
    producer = begun(loaded, "one")
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, first.group_metadata())
    asked = loaded.consumer(group_id="g", isolation_level=isolation_level)  # type: ignore[arg-type]
    found = answer(lambda: asked.committed([T0]))
    expected = (
        {T0: OffsetAndMetadata(2)} if isolation_level == "read_uncommitted" else "UNSTABLE_OFFSET_COMMIT"
    )
    assert found == expected
    assert asked.committed([T1]) == {}
    producer.commit_transaction()
    assert asked.committed([T0]) == {T0: OffsetAndMetadata(5)}


def test_of_two_overlapping_members_one_commits(loaded: Engine) -> None:
    """Beyond Kafka, where the later commit would win: if two members fetched the same position, the second
    commit is refused for good, in a transaction or plainly."""
    first, second, third = member(loaded), member(loaded), member(loaded)
    producer = begun(loaded, "one")
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, first.group_metadata())
    producer.commit_transaction()
    late = begun(loaded, "two")
    sent = answer(lambda: late.send_offsets_to_transaction({T0: 5}, second.group_metadata()))
    assert sent == "OFFSETS_MOVED"
    assert answer(lambda: third.commit({T0: 5})) == "OFFSETS_MOVED"
    assert committed(loaded) == {T0: 5}


def test_metadata_is_kept(loaded: Engine) -> None:
    """An offset's note and leader epoch come back as they were committed."""
    note = OffsetAndMetadata(5, "by hand", 7)
    producer = begun(loaded, "one")
    producer.send_offsets_to_transaction({T0: note}, member(loaded).group_metadata())
    producer.commit_transaction()
    assert loaded.consumer(group_id="g").committed([T0]) == {T0: note}


# --- whole loops ------------------------------------------------------------------------------------------


def test_int_01_undecided_records_are_not_read(engine: Engine) -> None:
    """INT-01: one of two interleaved producers commits around the other's open records. A committed reader
    gets the records before the first open one, ends there, and finds no later timestamp."""
    tp = TopicPartition(TOPIC, 0)
    first, second = begun(engine, "first"), begun(engine, "second")
    second.produce(TOPIC, records(1), partition=0, timestamp_ms=1_000).result()
    first.produce(TOPIC, records(2), partition=0, timestamp_ms=2_000).result()
    second.produce(TOPIC, records(3), partition=0, timestamp_ms=3_000).result()
    second.commit_transaction()
    consumer = engine.consumer()
    consumer.assign([tp])
    table = consumer.poll()
    assert table is not None
    assert table.column("value").to_pylist() == [1]
    assert consumer.position(tp) == 1
    assert consumer.end_offsets([tp]) == {tp: 1}
    assert consumer.offsets_for_times({tp: 3_000}) == {tp: None}
    first.commit_transaction()
    again = consumer.poll()
    assert again is not None
    assert again.column("value").to_pylist() == [2, 3]
    assert consumer.offsets_for_times({tp: 3_000}) == {tp: 2}


def test_int_02_a_copy_with_every_other_transaction_aborted(engine: Engine) -> None:
    """INT-02: 500 records are copied with offsets in the transaction, and every other transaction is aborted
    and its input read again. The copy has 500 values, each once."""
    engine.admin.create_topic("copy", partitions=4, schema=SCHEMA)
    with engine.producer() as seed:
        for number in range(4):
            seed.produce(TOPIC, records(*range(number, 500, 4)), partition=number)
    producer = engine.producer(transactional_id="copy")
    producer.init_transactions()
    consumer = engine.consumer(group_id="copiers")
    consumer.subscribe([TOPIC])
    rounds = 0
    while (batch := consumer.poll(max_records=20)) is not None:
        producer.begin_transaction()
        producer.produce("copy", batch.select(["value"]))
        producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
        rounds += 1
        if rounds % 2:
            producer.abort_transaction()
            for tp in consumer.assignment():
                at = consumer.committed([tp]).get(tp)
                consumer.seek(tp, at.offset if at else 0)
        else:
            producer.commit_transaction()
    values = engine.scan("copy").to_table(["value"]).column("value").to_pylist()
    assert len(values) == 500
    assert set(values) == set(range(500))
    assert rounds == 50
    assert engine.admin.verify().ok


def test_int_05_an_empty_abort_after_a_commit(engine: Engine) -> None:
    """INT-05: after a commit, an empty transaction may abort or commit, and the producer goes on."""
    producer = begun(engine, "one")
    producer.produce(TOPIC, records(1), partition=0)
    producer.commit_transaction()
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        end()
    producer.begin_transaction()
    producer.produce(TOPIC, records(2), partition=0)
    producer.commit_transaction()
    values = engine.scan(TOPIC).to_table(["value"]).column("value").to_pylist()
    assert values == [1, 2]
    producer.close()  # until then the Complete row may still be on its way
    assert engine.admin.describe_transaction("one").state == "CompleteCommit"


def test_int_06_many_partitions(engine: Engine) -> None:
    """INT-06: 10 000 records over 20 partitions are aborted, and 1 000 are committed. A committed reader gets
    1 000 records, and an uncommitted one 11 000."""
    engine.admin.create_topic("wide", partitions=20, schema=SCHEMA)
    producer = begun(engine, "one")
    for number in range(20):
        producer.produce("wide", records(count=500), partition=number)
    producer.flush()
    producer.abort_transaction()
    producer.begin_transaction()
    for number in range(20):
        producer.produce("wide", records(count=50), partition=number)
    producer.commit_transaction()
    assert engine.scan("wide").to_table(["_offset"]).num_rows == 1_000
    dirty = engine.scan("wide", isolation_level="read_uncommitted").to_table(["_offset"])
    assert dirty.num_rows == 11_000
    for offsets in engine.admin.list_offsets("wide").values():
        assert (offsets.last_stable_offset, offsets.high_watermark) == (552, 552)
