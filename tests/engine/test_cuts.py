"""What lies inside a cut, what is kept for it, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txn_engine
from storage import MemoryStore, ObjectInfo, encode_json
from tests.engine.conftest import SCHEMA, payments
from tests.support.faults import FaultyStore, no_pause
from tests.support.internal import FEW_INTERNAL
from tests.support.refusals import damaged_at, refused
from tests.support.stores import accounts_in
from txn_engine import Engine, TopicPartition
from txn_engine.errors import (
    CorruptObjectError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    UnknownTopicOrPartitionError,
)
from txn_engine.log.as_of import AsOfCut
from txn_engine.log.cut_format import Cut, Part, cut_key
from txn_engine.log.cuts import CLAIM_MS
from txn_engine.maintain import MaintenancePolicy
from txn_engine.maintain.policy import DAY_MS
from txn_engine.producer import Producer
from txn_engine.protocol.proposals import MarkerProposal, TrimProposal
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock

P0, P1 = TopicPartition("payments", 0), TopicPartition("payments", 1)
EAGER = MaintenancePolicy(orphan_age_ms=0, entries_age_ms=0, trim_step=1, min_files=2)
_IDS = count()


def commit(engine: Engine, *accounts: int, partitions: tuple[int, ...] = (0, 1)) -> None:
    with begun(engine, *accounts, partitions=partitions) as producer:
        producer.commit_transaction()


def begun(
    engine: Engine, *accounts: int, partitions: tuple[int, ...] = (0, 1), topic: str = "payments"
) -> Producer:
    """A producer in a transaction with these payments in each of the partitions."""
    producer = engine.producer(transactional_id=f"load-{next(_IDS)}", markers="deferred")
    producer.init_transactions()
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(topic, payments(*accounts), partition=partition).result()
    return producer


def mark(engine: Engine, producer: Producer, topic: str, partition: int, *, incarnation: int = 0) -> None:
    """Write the marker of the producer's decided transaction into one partition only."""
    (stored,) = [
        each for each in engine.coordinator.rows() if each.row.transactional_id == producer.transactional_id
    ]
    row = stored.row
    proposal = MarkerProposal(row.producer_id, row.producer_epoch, True, coordinator_epoch=stored.offset)
    engine.logs.get(topic, incarnation, partition).append_one(proposal)


def accounts_at(engine: Engine, cut: Cut | int, topic: str = "payments") -> list[int]:
    table = engine.scan(topic, cut=cut).to_table(["account_id"])
    return sorted(table.column("account_id").to_pylist())


def position_at(engine: Engine, cut: Cut, group_id: str, at: TopicPartition) -> int | None:
    as_of = AsOfCut(engine.logs.tools, cut)
    found = [
        stored.commit.offset
        for number in range(len(cut.groups))
        for key, stored in as_of.group_offsets(number).committed.items()
        if (key.group_id, key.topic, key.partition) == (group_id, *at)
    ]
    return found[0] if found else None


# --- what lies inside -----------------------------------------------------------------------------------------


def test_it_reads_what_was_committed_then(engine: Engine) -> None:
    commit(engine, 1)
    engine.coordinator.write_pending_markers()
    cut = engine.cut()
    commit(engine, 2)
    engine.coordinator.write_pending_markers()
    assert cut.offsets == {P0: 2, P1: 2}
    assert accounts_at(engine, cut) == accounts_at(engine, 0) == [1, 1]
    assert accounts_in(engine) == [1, 1, 2, 2]
    assert accounts_at(engine, engine.cut()) == [1, 1, 2, 2]
    assert [each.number for each in engine.cuts()] == [0, 1]
    assert engine.admin.verify().ok


def test_what_is_marked_here_and_not_there_is_outside_everywhere(engine: Engine) -> None:
    """A transaction with a missing marker is outside the cut, and so is all that was committed after it."""
    commit(engine, 1)
    engine.coordinator.write_pending_markers()
    with begun(engine, 2) as half:
        half.commit_transaction()
        mark(engine, half, "payments", 0)
        commit(engine, 3, partitions=(0,))
        engine.logs.get("payments", 0, 0)
        assert accounts_in(engine) == [1, 1, 2]
        cut = engine.cut()
    assert cut.offsets == {P0: 2, P1: 2}
    assert accounts_at(engine, cut) == [1, 1]


def test_an_open_transaction_draws_those_behind_it_out(engine: Engine) -> None:
    """The second transaction is committed in both partitions, but in the first it follows an open one. So it is outside
    the cut in both.
    """
    with begun(engine, 1, partitions=(0,)) as still_open:
        commit(engine, 2)
        commit(engine, 3, partitions=(1,))
        engine.coordinator.write_pending_markers()
        cut = engine.cut()
        assert cut.offsets == {P0: 0, P1: 0}
        still_open.abort_transaction()
    engine.coordinator.write_pending_markers()
    assert accounts_at(engine, cut) == []
    assert accounts_at(engine, engine.cut()) == [2, 2, 3]


def test_records_and_positions_are_inside_together(engine: Engine) -> None:
    """If a transaction has its marker in its output topic but not yet in the group's log, the cut has neither
    its records nor its offsets."""
    commit(engine, 1)
    engine.coordinator.write_pending_markers()
    engine.admin.create_topic("totals", partitions=1, schema=SCHEMA)
    consumer = engine.consumer(group_id="sums")
    consumer.subscribe(["payments"])
    consumer.poll()
    with engine.producer(transactional_id="sum", markers="deferred") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("totals", payments(9), partition=0).result()
        producer.send_offsets_to_transaction({P0: 2, P1: 2}, consumer.group_metadata())
        producer.commit_transaction()
        mark(engine, producer, "totals", 0)
        cut = engine.cut()
        assert accounts_at(engine, cut, "totals") == []
        assert position_at(engine, cut, "sums", P0) is None
        engine.coordinator.write_pending_markers()
    later = engine.cut()
    assert accounts_at(engine, later, "totals") == [9]
    assert position_at(engine, later, "sums", P0) == 2


def test_a_position_is_that_of_the_rows_below(engine: Engine) -> None:
    """A plain commit after an open transaction's offsets is outside the cut. In the cut the group is where it
    was before."""
    commit(engine, 1)
    engine.coordinator.write_pending_markers()
    consumer = engine.consumer(group_id="sums")
    consumer.assign([P0, P1])
    consumer.poll()
    consumer.commit({P0: 1})
    with engine.producer(transactional_id="sum") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({P1: 1}, consumer.group_metadata())
        consumer.commit({P0: 2})
        cut = engine.cut()
        assert position_at(engine, cut, "sums", P0) == 1
        producer.commit_transaction()
    assert position_at(engine, engine.cut(), "sums", P0) == 2


def test_partitions_and_topics_that_came_later_are_above_it(engine: Engine) -> None:
    commit(engine, 1)
    engine.coordinator.write_pending_markers()
    cut = engine.cut()
    engine.admin.add_partitions_to_topic("payments", 3)
    engine.admin.create_topic("refunds", partitions=1, schema=SCHEMA)
    commit(engine, 2, partitions=(0, 2))
    engine.coordinator.write_pending_markers()
    assert accounts_at(engine, cut) == [1, 1]
    with refused(InvalidRequestError, Reason.TOPIC_NOT_IN_CUT):
        engine.scan("refunds", cut=cut)
    later = engine.cut()
    assert accounts_at(engine, later) == [1, 1, 2, 2]
    assert later.offsets[TopicPartition("refunds", 0)] == 0


def test_a_cut_of_one_topic_minds_that_topic_alone(engine: Engine) -> None:
    engine.admin.create_topic("refunds", partitions=1, schema=SCHEMA)
    commit(engine, 1)
    engine.coordinator.write_pending_markers()
    with begun(engine, 5, partitions=(0,), topic="refunds"):
        cut = engine.cut(["payments"])
    assert set(cut.offsets) == {P0, P1}
    assert accounts_at(engine, cut) == [1, 1]


# --- what is kept ---------------------------------------------------------------------------------------------


@pytest.fixture
def old(clock: ManualClock) -> Iterator[Engine]:
    """An engine on a topic that keeps records for a day."""
    store = MemoryStore(f"cuts-{next(_IDS)}")
    with Engine(store, clock=clock, pause=no_pause, configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic(
            "payments", partitions=2, schema=SCHEMA, key="account_id", retention_ms=DAY_MS
        )
        yield engine


def age(engine: Engine, clock: ManualClock, *, rounds: int, days: int = 1) -> None:
    """Rounds of maintenance with all its jobs, each `days` days after the one before."""
    for _ in range(rounds):
        clock.advance(days * DAY_MS)
        commit(engine, 99)
        engine.coordinator.write_pending_markers()
        engine.admin.snapshot()
        engine.maintenance.compact(policy=EAGER)
        engine.maintenance.retain(policy=EAGER)
        report = engine.maintenance.clean(policy=EAGER)
        engine.maintenance.seal()
        assert report.failures == ()


def data_files(engine: Engine) -> int:
    return sum("/data/" in info.key for info in engine.store.list(""))


def test_it_is_read_after_compaction_retention_and_clean_up(old: Engine, clock: ManualClock) -> None:
    for account in range(4):
        commit(old, account)
    old.coordinator.write_pending_markers()
    cut = old.cut()
    before = old.scan("payments", cut=cut).to_table()
    age(old, clock, rounds=3, days=2)
    assert 0 not in accounts_in(old)
    assert old.scan("payments", cut=cut).to_table().equals(before)
    assert old.admin.verify().ok

    held = data_files(old)
    old.delete_cut(cut)
    clock.advance(DAY_MS - 1)
    old.maintenance.clean(policy=EAGER)
    assert data_files(old) == held
    clock.advance(1)
    old.maintenance.clean(policy=EAGER)
    assert data_files(old) < held
    assert old.admin.verify().ok


def test_the_next_cut_goes_on_from_the_last(old: Engine, clock: ManualClock) -> None:
    """A cut finds new records even if the entries after the last cut were sealed."""
    commit(old, 1)
    old.coordinator.write_pending_markers()
    old.cut()
    age(old, clock, rounds=2, days=2)
    commit(old, 7)
    old.coordinator.write_pending_markers()
    assert 7 in accounts_at(old, old.cut())


def test_what_has_not_moved_is_not_read_again(clock: ManualClock) -> None:
    """A new process that makes a cut reads only the partitions that have moved since the last cut."""
    store = FaultyStore(MemoryStore(f"cuts-{next(_IDS)}"))
    with Engine(store, clock=clock, pause=no_pause) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
        commit(engine, 1)
        engine.coordinator.write_pending_markers()
        consumer = engine.consumer(group_id="sums")
        consumer.assign([P0])
        consumer.poll()
        consumer.commit()
        before = engine.cut()
        engine.partition("payments", 0).append(payments(7))
    with Engine(store, clock=clock, pause=no_pause) as fresh:
        store.calls.clear()
        cut = fresh.cut()
        calls = [(operation, key) for operation, key, _ in store.calls if "/snapshots/" in key]
        assert position_at(fresh, cut, "sums", P0) == 2
        assert accounts_at(fresh, cut) == [1, 1, 7]
    first, second = (f"topics/payments/0/0/snapshots/{end:020d}.parquet" for end in (2, 3))
    assert calls == [("get", first), ("put_if_absent", second)]
    assert [log.offset for log in cut.topics[0].partitions] == [3, 2]
    assert cut.groups == before.groups


def test_what_has_moved_is_read_once(clock: ManualClock) -> None:
    """A cut lists and reads the new entries of a partition once, reads the snapshot of the last cut once, and
    looks twice where the partition ends. It writes one snapshot."""
    store = FaultyStore(MemoryStore(f"cuts-{next(_IDS)}"))
    with Engine(store, clock=clock, pause=no_pause) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=SCHEMA, key="account_id")
        engine.partition("payments", 0).append(payments(1))
        engine.cut()
        for account in (2, 3):
            engine.partition("payments", 0).append(payments(account))
        store.calls.clear()
        engine.cut()
        calls = [(operation, key) for operation, key, _ in store.calls if "topics/payments/0/0/" in key]
        written = next(store.get(key) for operation, key in calls if operation == "put_if_absent")
    entry, snapshot = (
        "topics/payments/0/0/log/{:020d}.parquet",
        "topics/payments/0/0/snapshots/{:020d}.parquet",
    )
    expected = [("get", entry.format(end)) for end in (1, 2, 3, 3)]
    expected += [
        ("list", "topics/payments/0/0/log/"),
        ("get", snapshot.format(1)),
        ("put_if_absent", snapshot.format(3)),
    ]
    assert sorted(calls) == sorted(expected)
    sections = pq.read_table(pa.BufferReader(written))["section"].to_pylist()
    assert sections == ["partition", "file", "file", "file"]


@pytest.mark.parametrize("damage", ["snapshot", "deleted"])
def test_a_cut_behind_one_that_tells_nothing(engine: Engine, clock: ManualClock, damage: str) -> None:
    """If the snapshots of the last cut are damaged or deleted, the next cut is made from the log itself."""
    commit(engine, 1)
    engine.coordinator.write_pending_markers()
    engine.cut()
    engine.partition("payments", 0).append(payments(7))
    snapshots = [info.key for info in engine.store.list("topics/payments/") if "/snapshots/" in info.key]
    for key in snapshots:
        if damage == "snapshot":
            engine.store.put(key, engine.store.get(key)[:-9])
        else:
            engine.store.delete(key)
    if damage == "deleted":
        engine.delete_cut(0)
    with txn_engine.connect(engine.url, clock=clock) as fresh:
        cut = fresh.cut()
        if damage == "deleted":
            assert accounts_at(fresh, cut) == [1, 1, 7]
            assert fresh.admin.verify().ok
            return
        table = fresh.scan("payments", cut=cut, partitions=[0]).to_table(["account_id"])
        assert sorted(table.column("account_id").to_pylist()) == [1, 7]
        with damaged_at(f"0/1/snapshots/{2:020d}.parquet"):
            fresh.scan("payments", cut=cut)


def test_an_expired_cut_is_deleted_by_clean_up(engine: Engine, clock: ManualClock) -> None:
    cut = engine.cut(keep_ms=DAY_MS)
    kept = engine.cut()
    engine.maintenance.clean()
    assert engine.cuts() == [cut, kept]
    clock.advance(DAY_MS)
    engine.maintenance.clean(dry_run=True)
    assert engine.cuts() == [cut, kept]
    engine.maintenance.clean()
    assert engine.cuts() == [kept]
    clock.advance(DAY_MS)
    engine.maintenance.clean()
    left = [info.key for info in engine.store.list("cuts/") if info.key.startswith(f"cuts/{0:020d}")]
    assert left == [cut_key(0, Part.CLAIM), cut_key(0, Part.DELETED)]
    with txn_engine.connect(engine.url, clock=clock) as another:
        assert another.cuts() == [kept]
        assert another.cut().number == 2


class CountingStore(MemoryStore):
    """A store that counts reads."""

    reads = 0

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        self.reads += 1
        return super().get(key, max_bytes=max_bytes)

    def head(self, key: str) -> ObjectInfo:
        self.reads += 1
        return super().head(key)


def test_the_newest_cuts_are_read_without_those_before_them(url: str, clock: ManualClock) -> None:
    """Reading the newest ten of 300 cuts does not read the older ones. A deleted cut is skipped,
    even if another engine deleted it."""
    with txn_engine.connect(url, clock=clock) as engine:
        for _ in range(300):
            engine._cuts.give_up(engine._cuts.claim())
        engine._cuts.claim()
        cuts = [engine.cut() for _ in range(4)]
        engine.delete_cut(cuts[2])
    store = CountingStore(url.removeprefix("memory://"))
    with Engine(store, clock=clock, pause=no_pause) as another:
        store.reads = 0
        first = list(islice(another.newest_cuts(), 10))
        assert store.reads <= 1 + 2 + 24 + 3 * 16 + 10 * 2
        assert [each.number for each in first] == [304, 302, 301, 300, *range(299, 293, -1)]
        assert [each.cut for each in first] == [cuts[3], cuts[1], cuts[0], *[None] * 7]
        assert {each.claimed_ms for each in first} == {clock()}
        assert [each.number for each in first if each.is_open] == [300]
        another.delete_cut(cuts[3])
        made = another.cut()
        store.reads = 0
        again = [each.cut for each in islice(another.newest_cuts(), 3)]
        assert again == [made, cuts[1], cuts[0]]
        assert store.reads <= 6  # the end, and what is new
        assert [each.number for each in another.newest_cuts()][-1] == 0


def test_a_damaged_cut_is_among_the_newest(engine: Engine) -> None:
    engine.cut()
    engine.cut()
    key = cut_key(0, Part.CUT)
    engine.store.put(key, engine.store.get(key).replace(b"offsets", b"offsetz", 1))
    with txn_engine.connect(engine.url) as another:
        newest, damaged = another.newest_cuts()
        assert (newest.error is None, damaged.cut) == (True, None)
        assert newest.cut == another.find_cut(1)
        assert isinstance(damaged.error, CorruptObjectError)


def test_while_a_cut_is_made_nothing_is_deleted(old: Engine, clock: ManualClock) -> None:
    for account in range(4):
        commit(old, account)
    old.coordinator.write_pending_markers()
    age(old, clock, rounds=1)
    clock.advance(DAY_MS)
    before = data_files(old)
    number = old._cuts.claim()
    with Engine(old.store, clock=clock, pause=no_pause) as another:
        another.maintenance.clean(policy=EAGER)
        assert data_files(old) == before
        old._cuts.give_up(number)
        another.maintenance.clean(policy=EAGER)
        assert data_files(old) < before


def test_an_old_claim_is_given_up_and_its_maker_told(old: Engine, clock: ManualClock) -> None:
    number = old._cuts.claim()
    assert old._cuts.holds("payments", 0, 0).is_open
    clock.advance(CLAIM_MS - 1)
    old.maintenance.clean()
    assert old._cuts.holds("payments", 0, 0).is_open
    clock.advance(1)
    old.maintenance.clean()
    assert not old._cuts.holds("payments", 0, 0).is_open
    late = Cut(number, old.config.store_id, 0, -1, True, (), old.cut().groups, ())
    with refused(OutcomeUnknownError, Reason.CLAIM_GIVEN_UP):
        old._cuts.settle(late)
    assert [cut.number for cut in old.cuts()] == [1]


# --- what cannot be read ----------------------------------------------------------------------------------------


def test_a_cut_that_is_not_there(engine: Engine) -> None:
    with refused(InvalidRequestError, Reason.CUT_NOT_FOUND):
        engine.scan("payments", cut=0)
    cut = engine.cut()
    engine.delete_cut(cut)
    for use in (lambda: engine.scan("payments", cut=cut), lambda: engine.delete_cut(0)):
        with refused(InvalidRequestError, Reason.CUT_DELETED):
            use()
    for number in (-1, True, "0"):
        with pytest.raises(InvalidRequestError):
            engine.find_cut(number)  # type: ignore[arg-type]


def test_a_cut_of_another_store(engine: Engine, clock: ManualClock) -> None:
    with txn_engine.connect(f"memory://cuts-{next(_IDS)}", clock=clock) as another:
        another.admin.create_topic("payments", partitions=2, schema=SCHEMA)
        foreign = another.cut()
    engine.cut()
    with refused(InvalidRequestError, Reason.CUT_OF_ANOTHER_STORE):
        engine.scan("payments", cut=foreign)
    engine.store.put(cut_key(1, Part.CLAIM), another.store.get(cut_key(0, Part.CLAIM)))
    engine.store.put(cut_key(1, Part.CUT), another.store.get(cut_key(0, Part.CUT)))
    with txn_engine.connect(engine.url, clock=clock) as later, pytest.raises(CorruptObjectError):
        later.find_cut(1)


def test_a_topic_that_was_made_again(engine: Engine) -> None:
    commit(engine, 1)
    engine.coordinator.write_pending_markers()
    cut = engine.cut()
    engine.admin.delete_topic("payments")
    with pytest.raises(UnknownTopicOrPartitionError):
        engine.scan("payments", cut=cut)
    engine.admin.create_topic("payments", partitions=2, schema=SCHEMA)
    with refused(InvalidRequestError, Reason.TOPIC_MADE_AGAIN):
        engine.scan("payments", cut=cut)
    assert engine.cut_changes(cut, engine.cut()).gone == ("payments",)


def test_bounds_and_isolation_as_of_a_cut(engine: Engine) -> None:
    for account in range(3):
        commit(engine, account)
    engine.coordinator.write_pending_markers()
    cut = engine.cut()
    commit(engine, 7)
    engine.coordinator.write_pending_markers()
    scan = engine.scan("payments", cut=cut, start={P0: 2}, partitions=[0])
    assert scan.to_table(["account_id"]).column("account_id").to_pylist() == [2]
    assert scan.offsets == {P0: cut.offsets[P0]}
    with pytest.raises(InvalidRequestError):
        engine.scan("payments", cut=cut, isolation_level="read_uncommitted")
    with pytest.raises(InvalidRequestError):
        engine.cut([])
    with pytest.raises(UnknownTopicOrPartitionError):
        engine.cut(["nowhere"])
    for keep_ms in (0, 2**63, True):
        with pytest.raises(InvalidRequestError):
            engine.cut(keep_ms=keep_ms)
    assert [each.number for each in engine.cuts()] == [0]  # what failed has given its claim up


@pytest.mark.parametrize("damage", ["bytes", "fields", "number"])
def test_a_damaged_cut_is_named_and_stops_clean_up(engine: Engine, damage: str) -> None:
    """A damaged cut is named and stops clean-up, because nobody knows which files it needs."""
    engine.cut()
    key = cut_key(0, Part.CUT)
    if damage == "bytes":
        engine.store.put(key, engine.store.get(key).replace(b"offsets", b"offsetz", 1))
    elif damage == "fields":
        engine.store.put(key, encode_json({"number": 0}, "cut"))
    else:
        engine.store.put(cut_key(1, Part.CLAIM), engine.store.get(cut_key(0, Part.CLAIM)))
        engine.store.put(cut_key(1, Part.CUT), engine.store.get(key))
    bad = 1 if damage == "number" else 0
    with txn_engine.connect(engine.url) as another:
        (named,) = another.cuts().unreadable
        assert named.place == f"cut {bad}"
        report = another.maintenance.clean()
        assert {type(failure.error) for failure in report.failures} <= {CorruptObjectError}
        with damaged_at(f"cuts/{bad:020d}/cut.json"):
            another._cuts.holds("payments", 0, 0)
        with pytest.raises(CorruptObjectError):
            another.find_cut(bad)
        made = another.cut()
        another.delete_cut(bad)
        assert another.cuts().unreadable == ()
        assert another.cuts()[-1] == made
        assert not another._cuts.holds("payments", 0, 0).is_open


def test_what_compaction_by_key_has_passed_is_waited_for(engine: Engine) -> None:
    """If compaction by key has passed a transaction that is marked in one partition only, the markers are
    written before the cut is made."""
    engine.admin.create_topic(
        "balances", partitions=2, schema=SCHEMA, key="account_id", cleanup_policy="compact"
    )
    with begun(engine, 1, topic="balances") as half:
        half.commit_transaction()
        mark(engine, half, "balances", 0)
        commit_to_balances(engine)
        engine.maintenance.compact("balances", 0, policy=MaintenancePolicy(min_files=2, min_dirty_ratio=0))
        cut = engine.cut()
    assert accounts_at(engine, cut, "balances") == [1, 1]


def commit_to_balances(engine: Engine) -> None:
    with begun(engine, 1, partitions=(0,), topic="balances") as producer:
        producer.commit_transaction()
        mark(engine, producer, "balances", 0)


def test_changes_between_two(engine: Engine) -> None:
    commit(engine, 1)
    engine.coordinator.write_pending_markers()
    earlier = engine.cut()
    commit(engine, 2, 3, partitions=(1,))
    engine.coordinator.write_pending_markers()
    consumer = engine.consumer(group_id="sums")
    consumer.assign([P0])
    consumer.poll()
    consumer.commit()
    changes = engine.cut_changes(earlier, engine.cut())
    (partition,) = changes.partitions
    assert (partition.partition, partition.start_offset, partition.end_offset, partition.records) == (
        1,
        2,
        5,
        2,
    )
    (position,) = changes.positions
    assert (position.group_id, position.partition, position.before, position.after) == ("sums", 0, -1, 2)
    with pytest.raises(InvalidRequestError):
        engine.cut_changes(1, 0)


def test_a_consumer_goes_on_behind_a_cut(engine: Engine) -> None:
    commit(engine, 1)
    engine.coordinator.write_pending_markers()
    cut = engine.cut()
    commit(engine, 2)
    engine.coordinator.write_pending_markers()
    engine.admin.add_partitions_to_topic("payments", 3)
    commit(engine, 3, partitions=(2,))
    engine.coordinator.write_pending_markers()
    consumer = engine.consumer(group_id="since")
    consumer.subscribe(["payments"])
    consumer.seek_to_cut(cut.number)
    table = consumer.poll()
    assert table is not None
    assert sorted(table.column("account_id").to_pylist()) == [2, 2, 3]
    with refused(InvalidRequestError, Reason.CUT_NOT_FOUND):
        consumer.seek_to_cut(9)


def test_nobody_goes_on_behind_a_cut_that_retention_has_passed(engine: Engine) -> None:
    """Where records that came after a cut were deleted, to begin behind it is refused, and no position changes. What is
    inside can still be read as of the cut."""
    commit(engine, 1, partitions=(0, 1))
    engine.coordinator.write_pending_markers()
    cut = engine.cut()
    commit(engine, 2, partitions=(1,))
    engine.coordinator.write_pending_markers()
    state = engine.logs.get("payments", 0, 1).refresh()
    engine.logs.get("payments", 0, 1).append([TrimProposal(state.high_watermark, 0)])
    consumer = engine.consumer()
    consumer.subscribe(["payments"])
    consumer.seek(P0, 1)
    with refused(OffsetOutOfRangeError, Reason.CUT_BEFORE_LOG_START) as told:
        consumer.seek_to_cut(cut)
    words = "cut 0 ends at offset 2 of payments-1, and retention has deleted what came after it: the log begins at"
    assert f"{words} offset {state.high_watermark}" in str(told.value)
    assert consumer.position(P0) == 1
    with refused(OffsetOutOfRangeError, Reason.CUT_BEFORE_LOG_START):
        engine.offsets_behind_cut(cut, [P0, P1])
    assert engine.offsets_behind_cut(cut, [P0]) == {P0: 2}
    assert accounts_at(engine, cut) == [1, 1]
