"""Consumers and group offsets: positions, pending commits, and the start position that refuses an overlapping run."""

from __future__ import annotations

import pytest

import txn_engine
from storage import StoreUnreachableError
from tests.engine.conftest import SCHEMA, payments
from tests.support.faults import Fault, FaultyStore, Operation, no_pause, raising
from tests.support.refusals import refused
from txn_engine import Engine, OffsetAndMetadata, TopicPartition
from txn_engine.consumer import Consumer
from txn_engine.errors import (
    GroupIdNotFoundError,
    InvalidGroupIdError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    OffsetsMovedError,
    OffsetsPendingError,
    OutcomeUnknownError,
    StoreUnavailableError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from txn_engine.producer import Producer
from txn_engine.protocol.offset_commits import OffsetCommit, OffsetKey
from txn_engine.protocol.proposals import Appended, OffsetCommitProposal, TrimProposal
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock
from txn_engine.types import ConsumerGroupMetadata, ForgottenOffset

DAY_MS = 86_400_000
P0, P1 = TopicPartition("payments", 0), TopicPartition("payments", 1)


def load(engine: Engine, *accounts: int, partition: int | None = None) -> None:
    with engine.producer() as producer:
        producer.produce("payments", payments(*accounts), partition=partition).result()


def test_polling_reads_each_record_once(engine: Engine) -> None:
    """Whatever the poll size, each record is returned once and in order, and None means that there are no
    more yet."""
    load(engine, *range(50))
    load(engine, *range(50, 100))
    for size in (1, 7, 1000):
        with engine.consumer() as consumer:
            consumer.subscribe(["payments"])
            seen: list[tuple[int, int]] = []
            while (batch := consumer.poll(size)) is not None:
                assert batch.num_rows <= size
                seen += zip(batch["_partition"].to_pylist(), batch["_offset"].to_pylist(), strict=True)
            assert len(seen) == len(set(seen)) == 100
            for partition in (0, 1):
                offsets = [offset for number, offset in seen if number == partition]
                assert offsets == sorted(offsets)


def test_positions_step_over_gaps(engine: Engine) -> None:
    """After an aborted transaction and its marker the consumer's position is the LSO, and its lag is 0
    (FET-01, FET-08)."""
    producer = engine.producer(transactional_id="load")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", payments(1, 2), partition=0).result()
    producer.abort_transaction()
    consumer = engine.consumer()
    consumer.assign([P0])
    assert consumer.lag() == {P0: 3}
    assert consumer.poll() is None
    assert consumer.position(P0) == 3
    assert consumer.lag() == {P0: 0}
    uncommitted = engine.consumer(isolation_level="read_uncommitted")
    uncommitted.assign([P0])
    batch = uncommitted.poll()
    assert batch is not None
    assert batch["account_id"].to_pylist() == [1, 2]


def test_a_group_goes_on_where_it_was(engine: Engine) -> None:
    """Committed positions survive the consumer, with their metadata. Another group starts at the beginning."""
    load(engine, *range(10), partition=0)
    with engine.consumer(group_id="g") as first:
        first.assign([P0])
        assert first.poll(4) is not None
        first.commit({P0: OffsetAndMetadata(4, "so far")})
        first.commit({P0: 4})
        assert first.committed([P0, P1]) == {P0: OffsetAndMetadata(4)}
    with engine.consumer(group_id="g") as second:
        second.assign([P0])
        batch = second.poll()
        assert batch is not None
        assert batch["_offset"].to_pylist() == [4, 5, 6, 7, 8, 9]
    with engine.consumer(group_id="other") as third:
        third.assign([P0])
        assert third.position(P0) == 0
    described = engine.admin.describe_group("g").partitions[0]
    assert (described.committed_offset, described.lag) == (4, 6)
    assert engine.admin.list_groups() == ["g"]
    with pytest.raises(GroupIdNotFoundError):
        engine.admin.describe_group("nobody")


def test_of_two_plain_readers_one_commits(engine: Engine) -> None:
    """If two members have fetched the same position, the second commit is OFFSETS_MOVED, even to the same
    offset."""
    load(engine, *range(10), partition=0)
    first, second = engine.consumer(group_id="g"), engine.consumer(group_id="g")
    for consumer in (first, second):
        consumer.assign([P0])
        consumer.poll()
    first.commit()
    with pytest.raises(OffsetsMovedError):
        second.commit()
    load(engine, 11, partition=0)
    assert first.poll() is not None
    first.commit()


def test_a_reset_is_not_mistaken_for_no_change(engine: Engine) -> None:
    """A commit names the row and not the value: after a reset to the same value, a reader that fetched before
    is refused."""
    load(engine, *range(10), partition=0)
    reader = engine.consumer(group_id="g")
    reader.assign([P0])
    reader.poll()
    reader.commit({P0: 3})
    late = engine.consumer(group_id="g")
    late.assign([P0])
    late.poll()
    assert engine.admin.reset_offsets("g", {P0: 0}) == {P0: (3, 0)}
    assert engine.admin.describe_group("g").partitions[0].committed_offset == 3
    engine.admin.reset_offsets("g", {P0: 0}, execute=True)
    engine.admin.reset_offsets("g", {P0: 3}, execute=True)
    with pytest.raises(OffsetsMovedError):
        late.commit()
    with pytest.raises(OffsetOutOfRangeError):
        engine.admin.reset_offsets("g", {P0: 99})


def test_pending_offsets(engine: Engine) -> None:
    """Offsets in an open transaction are pending: unstable to a read_committed reader, refused to others,
    applied at the end.
    """
    load(engine, *range(10), partition=0)
    consumer = engine.consumer(group_id="g")
    consumer.assign([P0])
    consumer.poll()
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
    reader = engine.consumer(group_id="g")
    reader.assign([P0])
    with pytest.raises(UnstableOffsetCommitError):
        reader.committed([P0])
    dirty = engine.consumer(group_id="g", isolation_level="read_uncommitted")
    dirty.assign([P0])
    assert dirty.committed([P0]) == {}
    with pytest.raises(OffsetsPendingError):
        dirty.commit({P0: 1})
    with pytest.raises(OffsetsPendingError):
        engine.admin.reset_offsets("g", {P0: 0}, execute=True)
    pending = engine.admin.describe_group("g").partitions[0]
    assert (pending.committed_offset, pending.pending_offset) == (-1, 10)
    producer.commit_transaction()
    assert reader.committed([P0]) == {P0: OffsetAndMetadata(10)}


def test_none_while_pending_is_not_none_afterwards(engine: Engine) -> None:
    """A member that fetched "no offset" while an offset was pending is refused once that offset is
    committed."""
    load(engine, *range(10), partition=0)
    first = engine.consumer(group_id="g")
    first.assign([P0])
    first.poll()
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction(first.positions(), first.group_metadata())
    overlapping = engine.consumer(group_id="g", isolation_level="read_uncommitted")
    overlapping.assign([P0])
    overlapping.poll()
    producer.commit_transaction()
    with pytest.raises(OffsetsMovedError):
        overlapping.commit()


def test_aborted_offsets_are_dropped(engine: Engine) -> None:
    """An abort leaves the group where it was, and the same reader may try again."""
    load(engine, *range(10), partition=0)
    consumer = engine.consumer(group_id="g")
    consumer.assign([P0])
    consumer.poll()
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    for commit in (False, True):
        producer.begin_transaction()
        producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
            assert consumer.committed([P0]) == {}
    assert consumer.committed([P0]) == {P0: OffsetAndMetadata(10)}


def test_a_loop_of_transactions_keeps_its_place(engine: Engine) -> None:
    """One consumer and one producer run transaction after transaction, and each commit names the row that the
    previous one left."""
    engine.admin.create_topic("out", partitions=1, schema=SCHEMA)
    load(engine, *range(10), partition=0)
    consumer = engine.consumer(group_id="g")
    consumer.assign([P0])
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    rounds = 0
    while (batch := consumer.poll(3)) is not None:
        with producer.transaction():
            producer.produce("out", batch.select(SCHEMA.names))
            producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
        rounds += 1
    assert rounds == 4
    assert engine.scan("out").to_table()["account_id"].to_pylist() == list(range(10))
    assert engine.admin.verify().ok


def test_two_members_of_one_producer_are_still_two(engine: Engine) -> None:
    """If one producer commits for two overlapping members of a group, the second member is refused, although
    the producer knows the newest row itself."""
    load(engine, *range(10), partition=0)
    members = [engine.consumer(group_id="g") for _ in range(2)]
    for member in members:
        member.assign([P0])
        member.poll()
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    with producer.transaction():
        producer.send_offsets_to_transaction(members[0].positions(), members[0].group_metadata())
    producer.begin_transaction()
    with pytest.raises(OffsetsMovedError):
        producer.send_offsets_to_transaction(members[1].positions(), members[1].group_metadata())
    producer.abort_transaction()


def test_offsets_of_a_topic_made_again(engine: Engine, clock: ManualClock) -> None:
    """A topic that was deleted and created again is another topic, so the group starts at its beginning."""
    load(engine, *range(10), partition=0)
    consumer = engine.consumer(group_id="g")
    consumer.assign([P0])
    consumer.poll()
    consumer.commit()
    engine.admin.delete_topic("payments")
    clock.advance(60_000)
    with pytest.raises(UnknownTopicOrPartitionError):
        consumer.poll()
    engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
    load(engine, 77, partition=0)
    batch = consumer.poll()
    assert batch is not None
    assert batch["account_id"].to_pylist() == [77]


@pytest.mark.parametrize("way", ["plain", "explicit", "sought", "transaction"])
def test_a_position_is_not_committed_in_a_later_topic_of_the_name(engine: Engine, way: str) -> None:
    """If a topic is deleted and created again before a consumer commits, its commit is refused, because the
    position in the old topic would skip records of the new one."""
    load(engine, 1, 2, 3, partition=0)
    consumer = engine.consumer(group_id="g")
    consumer.assign([P0])
    if way == "sought":
        consumer.seek(P0, 1)
    consumer.poll()
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    engine.admin.delete_topic("payments")
    engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
    load(engine, 11, 12, 13, 14, partition=0)
    if way == "transaction":
        producer.begin_transaction()
        producer.produce("payments", payments(99), partition=1).result()
        with refused(UnknownTopicOrPartitionError, Reason.TOPIC_MADE_AGAIN):
            producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
    else:
        with refused(UnknownTopicOrPartitionError, Reason.TOPIC_MADE_AGAIN):
            consumer.commit({P0: 3} if way == "explicit" else None)
    batch = consumer.poll()
    assert batch is not None
    assert batch["account_id"].to_pylist() == [11, 12, 13, 14]
    consumer.commit()
    assert engine.consumer(group_id="g").committed([P0])[P0].offset == 4


def test_a_topic_made_again_is_read_from_its_start(engine: Engine) -> None:
    """A subscriber reads a topic that was created again from its start in all partitions, whatever
    auto_offset_reset says, because its records are later than the subscription."""
    engine.admin.create_topic("again", partitions=1, schema=SCHEMA, key="account_id")
    consumer = engine.consumer(auto_offset_reset="latest")
    consumer.subscribe(["again"])
    assert consumer.poll() is None
    engine.admin.delete_topic("again")
    engine.admin.create_topic("again", partitions=2, schema=SCHEMA, key="account_id")
    with engine.producer() as producer:
        for number in range(2):
            producer.produce("again", payments(number), partition=number).result()
    batch = consumer.poll()
    assert batch is not None
    assert sorted(batch["account_id"].to_pylist()) == [0, 1]


def test_what_was_committed_is_asked_anew_of_a_topic_made_again(engine: Engine) -> None:
    """A consumer without partitions can ask for and commit offsets of a topic that was created again. What it
    learned of the old topic does not matter."""
    consumer = engine.consumer(group_id="g")
    for _ in range(2):
        load(engine, 1, 2, partition=0)
        assert consumer.committed([P0]) == {}
        consumer.commit({P0: 2})
        assert consumer.committed([P0])[P0].offset == 2
        engine.admin.delete_topic("payments")
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")


def test_a_refused_commit_does_not_come_back(engine: Engine, clock: ManualClock) -> None:
    """A commit whose reply was lost is settled once. The consumer reports that it did not land, and the next
    commit is not blocked."""
    load(engine, 1, 2, 3, partition=0)
    put: list[str] = []

    def from_the_put_on(operation: Operation, key: str, _: int) -> Fault | None:
        if "__consumer_offsets" in key and (put or operation == "put_if_absent"):
            put.append(key)
            return "before"
        return None

    faulty = FaultyStore(engine.store, error=raising(StoreUnreachableError))
    reader = Engine(faulty, clock=clock, pause=no_pause).consumer(group_id="g")
    reader.assign([P0])
    reader.poll(1)
    faulty.decide = from_the_put_on
    with pytest.raises(OutcomeUnknownError):
        reader.commit()
    faulty.decide = None
    other = engine.consumer(group_id="g")
    other.assign([P0])
    other.poll(2)
    other.commit()
    with pytest.raises(OffsetsMovedError):
        reader.commit()
    reader.assign([])
    reader.assign([P0])
    reader.poll()
    reader.commit()
    assert engine.consumer(group_id="g").committed([P0])[P0].offset == 3


def test_an_unanswered_commit_does_not_bind_a_topic_made_again(engine: Engine, clock: ManualClock) -> None:
    """A commit whose answer was lost does not hinder commits in a topic that is created again."""
    load(engine, 1, partition=0)
    faulty = FaultyStore(engine.store, error=raising(StoreUnreachableError))
    with Engine(faulty, clock=clock, pause=no_pause) as mine:
        reader = mine.consumer(group_id="g")
        reader.subscribe(["payments"])
        reader.poll()
        put: list[str] = []

        def after_the_put(operation: Operation, key: str, _: int) -> Fault | None:
            if "__consumer_offsets" in key and (put or operation == "put_if_absent"):
                put.append(key)
                return "after"
            return None

        faulty.decide = after_the_put
        with pytest.raises(OutcomeUnknownError):
            reader.commit()
        faulty.decide = None
        mine.admin.delete_topic("payments")
        mine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
        load(mine, 7, 8, partition=0)
        for offset in (1, 2):
            assert reader.poll(1) is not None
            reader.commit()
            assert mine.consumer(group_id="g").committed([P0])[P0].offset == offset


def test_where_a_consumer_begins(engine: Engine) -> None:
    """Without a committed offset, a consumer begins where earliest, latest or none says, as in Kafka."""
    load(engine, 1, 2, partition=0)
    for reset, expected in (("earliest", 0), ("latest", 2)):
        consumer = engine.consumer(auto_offset_reset=reset)  # type: ignore[arg-type]
        consumer.assign([P0])
        assert consumer.position(P0) == expected
    strict = engine.consumer(group_id="g", auto_offset_reset="none")
    strict.assign([P0])
    with refused(OffsetOutOfRangeError, Reason.NO_COMMITTED_OFFSET):
        strict.poll()
    strict.seek(P0, 1)
    assert strict.position(P0) == 1
    with pytest.raises(OffsetOutOfRangeError):
        strict.seek(P0, 3)


def test_offsets_for_times(engine: Engine, clock: ManualClock) -> None:
    """offsets_for_times returns the first offset at or after a time, and None for a time after the last
    record that may be read (INT-01)."""
    start = clock()
    load(engine, 1, 2, partition=0)
    clock.advance(1_000)
    load(engine, 3, partition=0)
    consumer = engine.consumer()
    assert consumer.offsets_for_times({P0: start}) == {P0: 0}
    assert consumer.offsets_for_times({P0: start + 1}) == {P0: 2}
    assert consumer.offsets_for_times({P0: start + 1_001}) == {P0: None}
    assert consumer.end_offsets([P0]) == {P0: 3}
    assert consumer.beginning_offsets([P0]) == {P0: 0}


def test_bad_calls(engine: Engine) -> None:
    """Each of these calls is refused."""
    with pytest.raises(InvalidGroupIdError):
        engine.consumer(group_id="")
    with pytest.raises(InvalidGroupIdError):
        engine.consumer().commit({P0: 0})
    with pytest.raises(InvalidRequestError):
        engine.consumer(isolation_level="serializable")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError):
        engine.consumer().subscribe("payments")
    consumer = engine.consumer(group_id="g")
    with pytest.raises(UnknownTopicOrPartitionError):
        consumer.assign([TopicPartition("payments", 9)])
    with pytest.raises(InvalidRequestError):
        consumer.commit({P0: -5})


def test_several_topics_at_once(engine: Engine, url: str) -> None:
    """A consumer of several topics says which one each record is from."""
    engine.admin.create_topic("fees", partitions=1, schema=SCHEMA)
    load(engine, 1, partition=0)
    with engine.producer() as producer:
        producer.produce("fees", payments(2)).result()
    with txn_engine.connect(url) as other:
        consumer = other.consumer()
        consumer.subscribe(["payments", "fees"])
        batch = consumer.poll()
        assert batch is not None
        assert sorted(zip(batch["_topic"].to_pylist(), batch["account_id"].to_pylist(), strict=True)) == [
            ("fees", 2),
            ("payments", 1),
        ]
        table = other.scan(["payments", "fees"]).to_table()
        assert sorted(table["_topic"].to_pylist()) == ["fees", "payments"]


# --- what a group forgets ---------------------------------------------------------------------------------


def committed(engine: Engine, group_id: str, offset: int, partition: TopicPartition = P0) -> None:
    with engine.consumer(group_id=group_id) as consumer:
        consumer.assign([partition])
        consumer.commit({partition: offset})


def pending_in_a_transaction(engine: Engine, group_id: str, partition: TopicPartition = P0) -> Producer:
    """A producer in the middle of a transaction that commits the group's offset 3."""
    consumer = engine.consumer(group_id=group_id)
    consumer.assign([partition])
    consumer.poll()
    producer = engine.producer(transactional_id=f"job-{group_id}", transaction_timeout_ms=900_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({partition: 3}, consumer.group_metadata())
    return producer


def test_offsets_are_kept_unless_told(engine: Engine, clock: ManualClock) -> None:
    """By default no sweep forgets an offset, so a group that reads once a year keeps its place."""
    load(engine, *range(10), partition=0)
    committed(engine, "yearly", 4)
    clock.advance(366 * DAY_MS)
    engine.coordinator.abort_timed_out_transactions()
    engine.coordinator.expire_transactional_ids()
    engine.admin.snapshot()
    with engine.consumer(group_id="yearly") as consumer:
        consumer.assign([P0])
        assert consumer.position(P0) == 4


def test_off_04_expiry_is_by_the_logs_time_and_leaves_what_is_pending(
    engine: Engine, clock: ManualClock
) -> None:
    """OFF-04: an offset exactly as old as the retention is forgotten. An offset with a pending commit is
    kept, and so is its group."""
    load(engine, *range(10), partition=0)
    load(engine, *range(10), partition=1)
    committed(engine, "old", 4)
    committed(engine, "half", 4)
    committed(engine, "both", 4)
    committed(engine, "both", 5, P1)
    pending = [
        pending_in_a_transaction(engine, "half"),
        pending_in_a_transaction(engine, "both"),
        pending_in_a_transaction(engine, "only pending"),
    ]
    clock.advance(999)
    committed(engine, "young", 4)
    clock.advance(1)
    assert engine.admin.expire_group_offsets(retention_ms=1_001) == []
    due = [ForgottenOffset("both", "payments", 1, 5), ForgottenOffset("old", "payments", 0, 4)]
    assert engine.admin.expire_group_offsets(retention_ms=1_000) == due
    assert engine.admin.list_groups() == ["both", "half", "only pending", "young"]
    for producer in pending:
        producer.commit_transaction()
    offsets = {name: engine.admin.describe_group(name).partitions for name in engine.admin.list_groups()}
    assert {name: [part.committed_offset for part in parts] for name, parts in offsets.items()} == {
        "both": [3], "half": [3], "only pending": [3], "young": [4],
    }  # fmt: skip
    names = ("both", "half", "only pending")
    decided = [ForgottenOffset(name, "payments", 0, 3) for name in names]  # as old as rows, not as markers
    assert engine.admin.expire_group_offsets(retention_ms=1_000) == decided
    assert engine.admin.verify().ok


def test_offsets_are_forgotten_only_in_the_topic_and_partition_that_are_named(engine: Engine) -> None:
    """Offsets are forgotten only in the named topic and partition, however old other ones are. A partition
    without a topic is refused."""
    load(engine, *range(4), partition=0)
    load(engine, *range(5), partition=1)
    committed(engine, "g", 4)
    committed(engine, "g", 5, P1)
    assert engine.admin.expire_group_offsets(retention_ms=0, topic="other") == []
    gone = [ForgottenOffset("g", "payments", 1, 5)]
    scope = {"topic": "payments", "partition": 1}
    assert engine.admin.expire_group_offsets(retention_ms=0, **scope, dry_run=True) == gone
    assert engine.admin.expire_group_offsets(retention_ms=0, **scope) == gone
    assert engine.admin.expire_group_offsets(retention_ms=0, topic="payments") == [
        ForgottenOffset("g", "payments", 0, 4)
    ]
    with refused(InvalidRequestError, Reason.PARTITION_WITHOUT_TOPIC):
        engine.admin.expire_group_offsets(retention_ms=0, partition=1)


def test_off_02_a_marker_applies_or_drops_what_is_pending(engine: Engine) -> None:
    """OFF-02: a commit marker applies the producer's pending offsets, an abort marker drops them, and the
    marker of a producer without pending offsets changes nothing."""
    load(engine, *range(10), partition=0)
    committed(engine, "g", 1)
    home = TopicPartition("__consumer_offsets", engine.logs.group_partition("g").partition)
    engine.partition(*home).append_marker(
        producer_id=77, producer_epoch=0, committed=True, coordinator_epoch=0
    )
    pending_in_a_transaction(engine, "g").abort_transaction()
    assert engine.admin.describe_group("g").partitions[0].committed_offset == 1
    pending_in_a_transaction(engine, "g").commit_transaction()
    assert engine.admin.describe_group("g").partitions[0].committed_offset == 3


@pytest.mark.parametrize("how", ["deleted", "expired"])
def test_a_reader_under_way_is_refused_by_what_was_forgotten(engine: Engine, how: str) -> None:
    """Forgetting offsets moves the group, as a reset does. A reader that fetched before is refused, and a later one
    starts at the beginning.
    """
    load(engine, *range(10), partition=0)
    committed(engine, "g", 4)
    late = engine.consumer(group_id="g")
    late.assign([P0])
    late.poll()
    gone = [ForgottenOffset("g", "payments", 0, 4)]
    if how == "deleted":
        assert engine.admin.delete_group("g") == gone
    else:
        assert engine.admin.expire_group_offsets(retention_ms=0) == gone
    with pytest.raises(OffsetsMovedError):
        late.commit()
    with pytest.raises(GroupIdNotFoundError):
        engine.admin.delete_group("g")
    with engine.consumer(group_id="g") as anew:
        anew.assign([P0])
        assert anew.position(P0) == 0
        anew.commit({P0: 2})
    assert engine.admin.list_groups() == ["g"]
    assert engine.admin.verify().ok


def test_a_group_with_something_pending_is_not_deleted(engine: Engine) -> None:
    """A group with pending offsets in a transaction is not deleted: the transaction decides about them, and
    the deletion writes nothing."""
    load(engine, *range(10), partition=0)
    load(engine, *range(10), partition=1)
    committed(engine, "g", 4, P1)
    producer = pending_in_a_transaction(engine, "g")
    for dry_run in (True, False):
        with pytest.raises(OffsetsPendingError):
            engine.admin.delete_group("g", dry_run=dry_run)
    producer.commit_transaction()
    both = [ForgottenOffset("g", "payments", 0, 3), ForgottenOffset("g", "payments", 1, 4)]
    assert engine.admin.delete_group("g", dry_run=True) == both
    assert engine.admin.list_groups() == ["g"]
    assert engine.admin.delete_group("g") == both
    assert engine.admin.list_groups() == []


# --- plain commits beside transactions --------------------------------------------------------------------


def test_a_plain_commit_follows_the_consumers_own_transactions(engine: Engine) -> None:
    """A consumer whose offsets went through a producer may commit plainly afterwards, as in Kafka."""
    load(engine, *range(10), partition=0)
    consumer = engine.consumer(group_id="g")
    consumer.assign([P0])
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    for _ in range(2):
        assert consumer.poll(3) is not None
        with producer.transaction():
            producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
    assert consumer.poll(2) is not None
    consumer.commit()
    assert consumer.committed([P0])[P0].offset == 8
    assert consumer.poll() is not None
    with producer.transaction():  # and the other way round
        producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
    consumer.commit()
    assert consumer.committed([P0])[P0].offset == 10
    assert engine.admin.verify().ok


def test_a_plain_commit_does_not_follow_anothers_transaction(engine: Engine) -> None:
    """A plain commit does not follow offsets that another member committed, even through the same
    producer."""
    load(engine, *range(10), partition=0)
    mine, others = (engine.consumer(group_id="g") for _ in range(2))
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    for consumer in (mine, others):
        consumer.assign([P0])
        assert consumer.poll(3) is not None
    with producer.transaction():
        producer.send_offsets_to_transaction(others.positions(), others.group_metadata())
    with pytest.raises(OffsetsMovedError):
        mine.commit()


def test_two_tries_of_one_range_are_not_both_taken(engine: Engine, url: str) -> None:
    """If two producers commit the same offsets with the same metadata, the second is refused, because a
    transaction names the rows that its member fetched."""
    load(engine, *range(10), partition=0)
    consumer = engine.consumer(group_id="g")
    consumer.assign([P0])
    consumer.poll()
    offsets, metadata = consumer.positions(), consumer.group_metadata()
    with txn_engine.connect(url) as other:
        for number, used in enumerate((engine, other)):
            producer = used.producer(transactional_id=f"try-{number}")
            producer.init_transactions()
            producer.begin_transaction()
            if number == 0:
                producer.send_offsets_to_transaction(offsets, metadata)
                producer.commit_transaction()
                continue
            with pytest.raises(OffsetsMovedError):
                producer.send_offsets_to_transaction(offsets, metadata)
            producer.abort_transaction()


# --- what can be kept -------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["committed", "assign", "seek"])
def test_of_two_runs_that_seek_one_commits(engine: Engine, first: str) -> None:
    """If two runs seek to the same offset, only one commits, in whatever order they ask, assign and seek:
    each commit names the row that its run knew."""
    load(engine, *range(10), partition=0)

    def begun() -> Consumer:
        consumer = engine.consumer(group_id="g")
        if first == "committed":
            assert consumer.committed([P0]) == {}
            consumer.assign([P0])
        else:
            consumer.assign([P0])
            if first == "assign":
                assert consumer.committed([P0]) == {}
        consumer.seek(P0, 0)
        assert consumer.poll(5) is not None
        return consumer

    runs = [begun(), begun()]
    for number, consumer in enumerate(runs):
        producer = engine.producer(transactional_id=f"run-{number}")
        producer.init_transactions()
        producer.begin_transaction()
        if number == 0:
            producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
            producer.commit_transaction()
        else:
            with pytest.raises(OffsetsMovedError):
                producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
            producer.abort_transaction()


def test_after_a_fence_a_consumer_begins_again_where_its_group_is(engine: Engine) -> None:
    """A consumer that goes on with a new producer after a fence is refused until it seeks to the committed
    offsets, as a new consumer would begin there."""
    load(engine, *range(10), partition=0)
    consumer = engine.consumer(group_id="g")
    consumer.assign([P0])

    def one_turn() -> None:
        producer = engine.producer(transactional_id="job")
        producer.init_transactions()
        assert consumer.poll(2) is not None
        with producer.transaction():
            producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())

    one_turn()
    with pytest.raises(OffsetsMovedError):  # a new producer does not know what the old one wrote
        one_turn()
    for expected in (2, 4):
        consumer.seek_to_committed()
        assert consumer.position(P0) == expected
        one_turn()
    consumer.seek_to_committed([P0])
    consumer.seek(P0, 7)  # past a record that cannot be processed
    one_turn()
    assert consumer.committed([P0])[P0].offset == 9


def test_a_seek_to_a_groups_offset_is_no_look_at_it(engine: Engine) -> None:
    """If another run commits, a consumer that asks for the committed offset and rewinds to it is still
    refused, because a seek does not fetch the group's row."""
    load(engine, *range(20), partition=0)
    first, second = (engine.consumer(group_id="g") for _ in range(2))
    for consumer in (first, second):
        consumer.assign([P0])
        assert consumer.poll(10) is not None
    second.commit()
    assert first.committed([P0])[P0].offset == 10
    first.poll(10)
    first.seek(P0, 10)
    first.poll(10)
    with pytest.raises(OffsetsMovedError):
        first.commit()


@pytest.mark.parametrize("then", [[], [P1]])
def test_a_partition_that_is_read_no_more_is_committed_from_where_it_was_fetched(
    engine: Engine, then: list[TopicPartition]
) -> None:
    """A consumer that has given up a partition commits from the row that it fetched there, and is refused if
    another run has committed since."""
    load(engine, *range(10), partition=0)
    runs = [engine.consumer(group_id="g") for _ in range(2)]
    for consumer in runs:
        consumer.assign([P0])
        assert consumer.poll(5) is not None
        consumer.assign(then)
    runs[0].commit({P0: 5})
    with pytest.raises(OffsetsMovedError):
        runs[1].commit({P0: 5})
    runs[1].assign([P0])
    runs[1].seek(P0, 0)
    with pytest.raises(OffsetsMovedError):
        runs[1].commit({P0: 5})


def test_where_retention_has_overtaken_a_group(
    engine: Engine, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """If retention has removed a group's position, seek_to_committed goes where auto_offset_reset says, and
    the next commit goes from there."""
    engine.admin.create_topic("short", partitions=1, schema=SCHEMA, key="account_id", retention_ms=DAY_MS)
    at = TopicPartition("short", 0)
    consumer = engine.consumer(group_id="g")
    consumer.assign([at])
    for accounts in ((1, 2), (3, 4)):
        with engine.producer() as producer:
            producer.produce("short", payments(*accounts)).result()
        clock.advance(2 * DAY_MS)
    consumer.poll(1)
    consumer.commit()
    for _ in range(3):
        engine.admin.snapshot()
    engine.maintenance.retain("short")
    start = engine.partition("short", 0).log_start_offset
    assert start > 1
    with engine.consumer(group_id="g") as another:
        another.assign([at])
        assert another.position(at) == start
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert f"group 'g' at offset 1 of short-0, where the log begins at {start}" in warning
    consumer.seek_to_committed()
    assert consumer.position(at) == start
    consumer.commit()
    assert consumer.committed([at])[at].offset == start
    assert skipped(engine) == start - 1


def skipped(engine: Engine) -> int:
    (described,) = engine.admin.describe_group("g").partitions
    return described.skipped_offsets


def overtaken(engine: Engine) -> None:
    """Let a group read one record of five, and delete three."""
    load(engine, *range(3), partition=0)
    load(engine, *range(2), partition=0)
    with engine.consumer(group_id="g") as consumer:
        consumer.assign([P0])
        consumer.poll(1)
        consumer.commit()
    delete_up_to(engine, 3)


def delete_up_to(engine: Engine, offset: int) -> None:
    (verdict,) = engine.logs.get("payments", 0, 0).append([TrimProposal(offset, 0)])
    assert isinstance(verdict, Appended)


def test_a_group_keeps_how_many_offsets_it_skipped(engine: Engine) -> None:
    """The count is committed with the positions behind what was deleted, plainly and in a transaction. It adds up, goes
    on with other members and ends with a reset."""
    overtaken(engine)
    with engine.consumer(group_id="g") as consumer:
        consumer.assign([P0])
        consumer.poll(1)
        assert skipped(engine) == 0
        consumer.commit({P0: consumer.position(P0)})
        assert skipped(engine) == 2
        consumer.poll()
        consumer.commit()
        assert skipped(engine) == 2
    load(engine, *range(8), partition=0)
    end = engine.partition("payments", 0).high_watermark
    load(engine, 9, partition=0)
    delete_up_to(engine, end)
    with engine.consumer(group_id="g") as consumer, engine.producer(transactional_id="job") as producer:
        consumer.assign([P0])
        consumer.poll()
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
    assert skipped(engine) == 2 + 8
    engine.admin.reset_offsets("g", {P0: "latest"}, execute=True)
    assert skipped(engine) == 0


def test_what_a_member_writes_beside_its_position_stays(engine: Engine) -> None:
    """A member's own metadata is committed as it is."""
    overtaken(engine)
    with engine.consumer(group_id="g") as consumer:
        consumer.assign([P0])
        consumer.poll(1)
        consumer.commit({P0: OffsetAndMetadata(4, "mine")})
        assert consumer.committed([P0])[P0].metadata == "mine"


def test_a_poll_that_fails_counts_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failed poll passed over is counted once, by the poll that follows."""
    with engine.consumer(group_id="g") as consumer:
        consumer.assign([P0])
        load(engine, *range(3), partition=0)
        load(engine, *range(2), partition=0)
        consumer.poll(1)
        delete_up_to(engine, 3)

        def fail(*_: object) -> None:
            raise StoreUnavailableError("no answer")

        with monkeypatch.context() as patched:
            patched.setattr(consumer._fetcher, "_parts", fail)
            with pytest.raises(StoreUnavailableError):
                consumer.poll(1)
        consumer.poll(1)
        consumer.commit()
    assert skipped(engine) == 2


def test_a_commit_beyond_the_end_is_refused(engine: Engine) -> None:
    """Nobody has read beyond the end, so nobody may say so: not plainly, and not in a transaction, which can only abort
    then."""
    load(engine, 1, 2, partition=0)
    beyond = refused(OffsetOutOfRangeError, Reason.OFFSET_BEYOND_END)
    with engine.consumer(group_id="g") as consumer, engine.producer(transactional_id="job") as producer:
        consumer.assign([P0])
        with beyond:
            consumer.commit({P0: 3})
        producer.init_transactions()
        producer.begin_transaction()
        with beyond:
            producer.send_offsets_to_transaction({P0: 3}, consumer.group_metadata())
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        assert consumer.committed([P0]) == {}
        consumer.commit({P0: 2})


def test_a_group_beyond_the_end_is_shown_as_such(engine: Engine) -> None:
    """A group that is beyond the end of a log, because that lost its last entries, has no lag that anybody knows."""
    load(engine, 1, 2, partition=0)
    key = OffsetKey("g", "payments", 0, 0)
    engine.logs.of(engine.logs.group_partition("g")).append([OffsetCommitProposal(OffsetCommit(key, 9))])
    (described,) = engine.admin.describe_group("g").partitions
    assert (described.committed_offset, described.lag, described.beyond_offsets) == (9, -1, 7)


def test_offsets_that_name_no_topic_are_about_the_present_one(
    engine: Engine, url: str, clock: ManualClock
) -> None:
    """Offsets without a topic's identity are committed for the topic that exists now, even if the engine has
    only just used a deleted one of the same name."""
    with txn_engine.connect(url, clock=clock) as other:
        plain = other.consumer(group_id="plain")
        other.admin.describe_topic("payments")
        engine.admin.delete_topic("payments")
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
        load(engine, *range(10), partition=0)
        plain.commit({P0: 5})
        producer = other.producer(transactional_id="job")
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction({P0: 6}, ConsumerGroupMetadata("bare", "", {}))
        for group, offset in (("plain", 5), ("bare", 6)):
            for reader in (engine, other):
                assert reader.consumer(group_id=group).committed([P0])[P0].offset == offset


def test_what_is_no_utf8_is_refused_before_anything_is_written(engine: Engine) -> None:
    """Text that is not valid UTF-8 is refused as an id, run, group or metadata of a commit, and nothing is
    written. The command line passes such bytes on as lone surrogates."""
    bad = b"\xff".decode(errors="surrogateescape")
    load(engine, 1, partition=0)
    with refused(InvalidGroupIdError, Reason.NOT_UTF8):
        engine.consumer(group_id=bad)
    with refused(InvalidGroupIdError, Reason.NOT_UTF8):
        engine.admin.reset_offsets(bad, {P0: "earliest"}, execute=True)
    with refused(InvalidRequestError, Reason.NOT_UTF8):
        engine.producer(transactional_id=bad).init_transactions()
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    with refused(InvalidRequestError, Reason.UNPRINTABLE_NAME):
        producer.begin_transaction(bad)
    assert engine.admin.describe_transaction("job").state == "Empty"
    consumer = engine.consumer(group_id="g")
    consumer.assign([P0])
    consumer.poll()
    with refused(InvalidRequestError, Reason.NOT_UTF8):
        consumer.commit({P0: OffsetAndMetadata(1, bad)})
    assert engine.admin.list_groups() == []
