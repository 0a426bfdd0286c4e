"""A filled slot stays filled when it is sealed, and readers and writers that meet a seal load the log again
(PROTOCOL.md, sections 2 and 6)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from storage import MemoryStore
from tests.engine.conftest import SCHEMA, payments
from tests.engine.sealing import entry_bases, is_sealed, seal, seal_below_end
from tests.support.faults import Fault, FaultyStore, Operation, no_pause
from tests.support.refusals import refused
from tests.support.stores import accounts_in
from txn_engine import Engine, TopicPartition
from txn_engine.errors import (
    CorruptObjectError,
    OutcomeUnknownError,
    TransactionAbortableError,
)
from txn_engine.log.entry_log import EntryLog
from txn_engine.log.snapshot_format import encode_snapshot
from txn_engine.partition_log import PartitionLog
from txn_engine.protocol.proposals import ExpireProposal
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock, write_transaction_state

_NAMES = count()
ENTRIES = 12


class World:
    """A store with two engines on it: `engine` sleeps or fails as the test says, while `other` goes on."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.inner = MemoryStore(f"seals-{next(_NAMES)}")
        self.store = FaultyStore(self.inner)
        self.other = Engine(self.inner, clock=self.clock)
        self.other.admin.create_topic("payments", schema=SCHEMA)
        self.engine = Engine(self.store, clock=self.clock, pause=no_pause)

    def close(self) -> None:
        self.engine.close()
        self.other.close()

    @property
    def mine(self) -> PartitionLog:
        return self.engine.partition("payments", 0)

    @property
    def theirs(self) -> PartitionLog:
        return self.other.partition("payments", 0)

    @property
    def log(self) -> EntryLog:
        return self.engine.logs.get("payments", 0, 0)

    @property
    def their_log(self) -> EntryLog:
        return self.other.logs.get("payments", 0, 0)

    def fill(self, entries: int = ENTRIES) -> None:
        for number in range(entries):
            self.theirs.append(payments(number))

    def seal(self) -> int:
        return seal_below_end(self.other, self.their_log)

    def new_engine(self) -> Engine:
        return Engine(self.inner, clock=self.clock)

    def lose_the_next_reply(self, folder: str = "/log/") -> None:
        """Let the next put below the folder take effect. From then on, no call below it is answered."""
        deaf = {"on": False}

        def decide(operation: Operation, key: str, number: int) -> Fault | None:
            if folder not in key:
                return None
            if operation == "put_if_absent" and not deaf["on"]:
                deaf["on"] = True
                return "after"
            return "before" if deaf["on"] else None

        self.store.decide = decide


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    made.fill()
    yield made
    made.close()


def put_keys(world: World) -> list[str]:
    return [key for operation, key, _ in world.store.calls if operation == "put_if_absent" and "/log/" in key]


# --- readers ----------------------------------------------------------------------------------------------


def test_a_new_reader_starts_from_the_snapshot(world: World) -> None:
    """A reader that starts after the clean-up sees the same state and the same records."""
    before = world.theirs.state
    world.seal()
    with world.new_engine() as late:
        assert late.partition("payments", 0).state == world.theirs.state
        assert accounts_in(late) == list(range(ENTRIES))
        assert late.partition("payments", 0).state.live == before.live


@pytest.mark.parametrize("more", [2, 4, 7, 70])
def test_a_reader_in_the_middle_drops_its_view(world: World, more: int) -> None:
    """A reader whose view ends at a seal drops the view and loads the log from the snapshot, however many
    seals lie ahead of it."""
    assert world.mine.high_watermark == ENTRIES
    world.fill(more)
    world.seal()
    assert is_sealed(world.other, world.their_log, ENTRIES)
    assert world.mine.state == world.theirs.state


def test_a_view_moves_on_over_a_seal(world: World) -> None:
    """A view that moves on over a seal has the log's state and a new token, because it did not advance entry
    by entry."""
    world.mine.append(payments(77))
    token = world.log.token
    world.fill()
    world.seal()
    assert world.mine.state == world.theirs.state
    assert world.log.token is not token


def test_seals_among_the_entries_read_ahead(world: World) -> None:
    """A reader whose next entries are still there loads the log again if later entries that it reads ahead
    are sealed."""
    assert world.mine.high_watermark == ENTRIES
    world.fill(70)
    kept = {
        base: world.inner.get(world.log.keys.entry(base))
        for base in entry_bases(world.other, world.their_log)
    }
    world.seal()
    for base in range(ENTRIES, ENTRIES + 10):  # this cleaner has not come so far yet
        world.inner.put(world.log.keys.entry(base), kept[base])
    token = world.log.token
    assert world.mine.state == world.theirs.state
    assert world.log.token is not token


def test_a_cleaner_that_seals_while_a_reader_loads(world: World) -> None:
    """If entries are sealed while a reader loads the log, between its snapshot and the entries after it, the
    reader takes the newer snapshot."""
    world.their_log.write_snapshot()
    world.fill()
    done = {"sealed": False}

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        if operation == "get" and key.endswith(f"log/{ENTRIES:020d}.parquet") and not done["sealed"]:
            done["sealed"] = True
            world.seal()
        return None

    world.store.decide = decide
    assert world.mine.state == world.theirs.state
    assert done["sealed"]


def test_batches_begin_where_the_entries_start(world: World) -> None:
    """`batches` begins at the first entry that is not sealed. An entry that is sealed during the reading is
    an error, never the end of the log."""
    start = world.seal()
    assert next(iter(world.log.batches())).base_offset == start
    found = world.log.batches()
    next(found)
    seal(world.other, world.their_log, start + 1)
    with refused(OutcomeUnknownError, Reason.SLOT_SEALED):
        list(found)


# --- no sound snapshot ------------------------------------------------------------------------------------


def damage_snapshots(world: World, *, newest: int) -> None:
    keys = sorted(info.key for info in world.inner.list(world.their_log.keys.snapshots_prefix))
    for key in keys[-newest:]:
        world.inner.put(key, world.inner.get(key)[:-9])


def test_a_damaged_snapshot_is_passed_over(world: World) -> None:
    """If the newest snapshot is damaged, the older one that clean-up keeps is enough to load the log."""
    world.seal()
    world.fill(3)
    damage_snapshots(world, newest=1)
    assert world.mine.state == world.theirs.state


@pytest.mark.parametrize("seals", ["kept", "removed"])
def test_a_sealed_log_without_a_sound_snapshot(world: World, seals: str) -> None:
    """Readers and writers of a sealed log without a sound snapshot get one clear error. They never see an
    empty log, and never write into a slot that was filled."""
    start = world.seal()
    damage_snapshots(world, newest=2)
    slots = entry_bases(world.other, world.their_log)
    if seals == "removed":
        for base in slots:
            if base < start:
                world.inner.delete(world.their_log.keys.entry(base))
    slots = entry_bases(world.other, world.their_log)
    for attempt in (lambda: world.mine.state, lambda: world.mine.append(payments(1))):
        with refused(CorruptObjectError, Reason.NO_SOUND_SNAPSHOT) as raised:
            attempt()
        assert "snapshots/" in raised.value.seen  # the damaged ones are named
    assert entry_bases(world.other, world.their_log) == slots


# --- writers ----------------------------------------------------------------------------------------------


def sleep_over_a_clean_up(world: World) -> int:
    """Let `engine` load its view and sleep while `other` writes and seals. Returns the log's end by then."""
    world.log.refresh()
    world.fill(3)
    world.seal()
    world.store.calls.clear()
    return world.theirs.high_watermark


def test_a_sleeping_plain_append_is_unknown(world: World) -> None:
    """A plain append whose slot holds a seal has an unknown outcome, because nothing says whether its batch
    was there. It puts nothing else."""
    end = sleep_over_a_clean_up(world)
    with refused(OutcomeUnknownError, Reason.SLOT_SEALED):
        world.mine.append(payments(1))
    assert put_keys(world) == [world.log.keys.entry(ENTRIES)]
    assert world.theirs.high_watermark == end
    assert world.mine.append(payments(2)).base_offset == end


def test_a_sleeping_idempotent_append_goes_on(world: World) -> None:
    """If the slot holds a seal, an idempotent append goes on at the log's end, because the partition's state
    shows that its batch is not in the log yet."""
    world.mine.append(payments(1), producer_id=5, producer_epoch=0, base_sequence=0)
    end = sleep_over_a_clean_up(world)
    appended = world.mine.append(payments(2), producer_id=5, producer_epoch=0, base_sequence=1)
    assert (appended.base_offset, appended.is_duplicate) == (end, False)
    assert world.theirs.producers()[0].last_sequence == 1


def test_an_append_whose_reply_was_lost_and_whose_entry_was_sealed(world: World) -> None:
    """A batch whose reply was lost and whose entry was sealed is found in the state when it is sent again: it
    gets its offsets, and is not written twice."""
    world.mine.append(payments(1), producer_id=5, producer_epoch=0, base_sequence=0)
    world.lose_the_next_reply()
    batch = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 1}
    with pytest.raises(OutcomeUnknownError):
        world.mine.append(payments(2), **batch)
    world.fill(3)
    world.seal()
    world.store.decide = None
    end = world.theirs.high_watermark
    again = world.mine.append(payments(2), **batch)
    assert (again.base_offset, again.is_duplicate) == (ENTRIES + 1, True)
    assert world.theirs.high_watermark == end


def test_a_put_that_meets_its_own_sealed_entry(world: World) -> None:
    """A put that the store calls "already there" after its entry was stored and sealed has succeeded, at its
    own offsets."""
    world.mine.append(payments(1), producer_id=5, producer_epoch=0, base_sequence=0)
    acted = {"done": False}

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        if "/log/" in key and operation == "put_if_absent":
            return "after"
        if "/log/" in key and operation == "get" and not acted["done"]:
            acted["done"] = True  # the client reads back what became of its put, hours later
            world.fill(3)
            world.seal()
        return None

    world.store.decide = decide
    appended = world.mine.append(payments(2), producer_id=5, producer_epoch=0, base_sequence=1)
    assert acted["done"]
    assert (appended.base_offset, appended.is_duplicate) == (ENTRIES + 1, False)


def test_a_pending_put_over_a_sealed_slot(world: World) -> None:
    """A seal does not settle a put that was never answered, but later appends no longer wait for it and go to
    the log's end."""
    world.lose_the_next_reply()
    with pytest.raises(OutcomeUnknownError):
        world.mine.append(payments(70))
    world.fill(3)
    world.seal()
    world.store.decide = None
    world.store.calls.clear()
    end = world.theirs.high_watermark
    assert world.mine.append(payments(71)).base_offset == end
    assert put_keys(world) == [world.log.keys.entry(ENTRIES), world.log.keys.entry(end)]
    assert accounts_in(world.other).count(70) == 1


def test_an_expired_producer_behind_a_seal_is_unknown(world: World) -> None:
    """If the state has forgotten the producer, an append that finds a seal has an unknown outcome."""
    world.mine.append(payments(1), producer_id=5, producer_epoch=0, base_sequence=0)
    world.their_log.append_one(ExpireProposal((5,), world.clock()))
    assert 5 not in world.log.refresh().producers
    world.theirs.append(payments(2), producer_id=5, producer_epoch=0, base_sequence=1)
    world.clock.advance(1)
    world.their_log.append_one(ExpireProposal((5,), world.clock()))
    world.seal()
    end = world.theirs.high_watermark
    with pytest.raises(OutcomeUnknownError):
        world.mine.append(payments(2), producer_id=5, producer_epoch=0, base_sequence=1)
    assert world.theirs.high_watermark == end


def test_a_seal_and_a_store_that_does_not_answer(world: World) -> None:
    """While the log cannot be loaded again, an append that finds a seal has an unknown outcome, because
    nobody knows what the slot held."""
    sleep_over_a_clean_up(world)
    world.store.decide = lambda operation, key, number: "before" if "snapshots" in key else None
    with refused(OutcomeUnknownError, Reason.LOG_NOT_LOADED):
        world.mine.append(payments(1), producer_id=5, producer_epoch=0, base_sequence=0)
    world.store.decide = None
    assert world.mine.append(payments(1)).base_offset == world.theirs.high_watermark - 1


# --- groups and transactions ------------------------------------------------------------------------------


def group_log(engine: Engine) -> EntryLog:
    return engine.logs.of(engine.logs.group_partition("g"))


def test_a_sleeping_plain_commit_is_unknown(world: World) -> None:
    """A group's plain commit that finds a seal is not sent again, because the group may have moved on
    since."""
    mine, theirs = (engine.consumer(group_id="g") for engine in (world.engine, world.other))
    for consumer in (mine, theirs):
        consumer.assign([TopicPartition("payments", 0)])
    log = group_log(world.engine)
    acted = {"done": False}

    def decide(operation: Operation, key: str, number: int) -> Fault | None:
        if operation == "put_if_absent" and key.startswith(log.keys.log_prefix) and not acted["done"]:
            acted["done"] = True
            for offset in (1, 2, 3):
                theirs.commit({TopicPartition("payments", 0): offset})
            seal_below_end(world.other, group_log(world.other))
        return None

    world.store.decide = decide
    with pytest.raises(OutcomeUnknownError):
        mine.commit({TopicPartition("payments", 0): 9})
    assert acted["done"]
    assert world.other.admin.describe_group("g").partitions[0].committed_offset == 3


def test_end_transaction_over_a_sealed_log_is_answered_by_its_table(world: World) -> None:
    """If a decision's reply is lost and the coordinator's entries are sealed, the same call again says that
    it committed."""
    producer = world.engine.producer(transactional_id="t", markers="deferred")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", payments(50)).result()
    world.lose_the_next_reply("__transaction_state")
    with pytest.raises(OutcomeUnknownError):
        producer.commit_transaction()
    assert world.other.coordinator.write_pending_markers().transactional_ids == ("t",)
    seal_below_end(world.other, world.other.logs.coordinator("t"))
    world.store.decide = None
    producer.commit_transaction()
    assert 50 in accounts_in(world.other)
    producer.begin_transaction()
    producer.abort_transaction()


def test_a_decision_searched_for_where_there_are_seals_is_unknown(world: World) -> None:
    """If a producer is fenced after a lost reply and the entries of the decision are sealed, the outcome is
    unknown, never "not committed"."""
    producer = world.engine.producer(transactional_id="t")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", payments(50)).result()
    identity = (producer.producer_id, producer.producer_epoch)
    assert world.other.coordinator.was_committed("t", *identity) is False
    world.lose_the_next_reply("__transaction_state")
    with pytest.raises(OutcomeUnknownError):
        producer.commit_transaction()
    successor = world.other.producer(transactional_id="t")
    successor.init_transactions()
    assert world.other.coordinator.was_committed("t", *identity) is True
    seal_below_end(world.other, world.other.logs.coordinator("t"))
    world.store.decide = None
    with refused(OutcomeUnknownError, Reason.SLOT_SEALED):
        producer.commit_transaction()
    assert world.other.coordinator.was_committed("t", *identity) is None


def test_a_stalled_first_write_after_an_expiry_asks_the_coordinator(world: World) -> None:
    """If a producer's view is older than its AddPartitions and the partition has forgotten the producer
    since, its first write asks the coordinator."""
    producer = world.engine.producer(transactional_id="t")
    producer.init_transactions()
    with producer.transaction():
        producer.produce("payments", payments(1))
    producer.begin_transaction()
    target = world.engine.coordinator.resolve(TopicPartition("payments", 0))
    producer._sender.lanes_for([target])
    producer._effects.join([target])
    world.clock.advance(1)
    world.their_log.refresh()
    world.their_log.append_one(ExpireProposal((producer.producer_id,), world.clock()))
    write_transaction_state(
        world.other, "t", state="CompleteAbort", producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )  # fmt: skip
    end = world.theirs.high_watermark
    with pytest.raises(TransactionAbortableError):
        producer.produce("payments", payments(2), partition=0).result()
    assert world.theirs.high_watermark == end


# --- the snapshot writer ----------------------------------------------------------------------------------


def test_a_snapshot_of_a_sealed_log(world: World) -> None:
    """A snapshot of a sealed log is built from the older snapshot and the entries after it, and equals a
    replay from 0 byte for byte."""
    twin = MemoryStore(f"seals-{next(_NAMES)}")
    world.fill(3)
    for info in world.inner.list(""):
        twin.put(info.key, world.inner.get(info.key))
    world.seal()
    at = world.their_log.refresh().log_end_offset
    for engine in (world.other, world.engine):
        engine.partition("payments", 0).append(payments(99))
    assert world.log.write_snapshot() == at + 2
    snapshot = world.inner.get(world.log.keys.snapshot(at + 2))
    assert snapshot == encode_snapshot(world.theirs.state)
    assert world.log.write_snapshot() is None


def test_a_snapshot_writer_on_a_sealed_log_without_snapshots(world: World) -> None:
    """A snapshot writer writes nothing if the log cannot be read."""
    world.seal()
    world.fill(1)
    damage_snapshots(world, newest=2)
    keys = [info.key for info in world.inner.list(world.log.keys.snapshots_prefix)]
    with pytest.raises(CorruptObjectError):
        world.log.write_snapshot()
    assert [info.key for info in world.inner.list(world.log.keys.snapshots_prefix)] == keys
