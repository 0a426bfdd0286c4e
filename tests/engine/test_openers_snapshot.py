"""A writer that had to replay much of the log writes a snapshot: when it does, what the snapshot holds, and
that it harms nobody."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from storage import MemoryStore
from storage.errors import AccessDeniedError
from tests.engine.conftest import SCHEMA, payments
from tests.support.stores import accounts_in
from txn_engine import ConsumerGroupMetadata, Engine, TopicPartition
from txn_engine.log.snapshot_format import decode_snapshot
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txn_engine.verify import verify_store

ENTRIES = 6
_NAMES = count()


class Shelf(MemoryStore):
    """A store that refuses snapshots while `refuses` is set."""

    refuses = False

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if self.refuses and "/snapshots/" in key:
            raise AccessDeniedError("403", actor="put", place=key, expected="leave", action="ask")
        return super().put_if_absent(key, data)

    def snapshots(self, topic: str = "payments") -> list[str]:
        return [info.key for info in self.list(f"topics/{topic}/") if "/snapshots/" in info.key]


@pytest.fixture
def store() -> Iterator[Shelf]:
    """Six entries in one partition, and no snapshot."""
    made = Shelf(f"openers-{next(_NAMES)}")
    with Engine(made, snapshot_after=ENTRIES) as engine:
        engine.admin.create_topic("payments", schema=SCHEMA)
        log = engine.partition("payments", 0)
        for account in range(ENTRIES):
            log.append(payments(account))
    assert made.snapshots() == []
    yield made
    assert verify_store(made).ok


def append(store: MemoryStore, account: int, after: int = ENTRIES - 1) -> None:
    with Engine(store, snapshot_after=after) as engine:
        engine.partition("payments", 0).append(payments(account))


def test_a_writer_that_had_to_replay_much_leaves_what_it_read(store: Shelf) -> None:
    """A writer that replayed many entries writes a snapshot of the state before its own entry, and the next
    writer replays little."""
    append(store, 100)
    (key,) = store.snapshots()
    state = decode_snapshot(store.get(key), key=key)
    assert state.log_end_offset == ENTRIES
    append(store, 101)
    assert store.snapshots() == [key]
    with Engine(store) as engine:
        assert engine.partition("payments", 0).high_watermark == ENTRIES + 2
        assert engine.admin.snapshot("payments") == {TopicPartition("payments", 0): ENTRIES + 2}


def test_a_writer_that_had_little_to_replay_leaves_none(store: Shelf) -> None:
    """A writer that replays no more entries than `snapshot_after` writes no snapshot."""
    append(store, 100, after=ENTRIES)
    assert store.snapshots() == []


def test_who_reads_leaves_none(store: Shelf) -> None:
    """Scans, lists and descriptions write no snapshot."""
    with Engine(store, snapshot_after=1) as engine:
        assert len(accounts_in(engine)) == ENTRIES
        assert engine.partition("payments", 0).high_watermark == ENTRIES
        engine.admin.list_transactions()
        engine.admin.describe_producers("payments", 0)
    assert store.snapshots() == []


def test_a_writer_that_writes_nothing_leaves_none(store: Shelf) -> None:
    """A writer whose batch is a duplicate writes no snapshot."""
    with Engine(store, snapshot_after=1) as engine:
        log = engine.partition("payments", 0)
        log.append(payments(7), producer_id=9, producer_epoch=0, base_sequence=0)
    made = store.snapshots()
    with Engine(store, snapshot_after=0) as engine:
        log = engine.partition("payments", 0)
        assert log.append(payments(7), producer_id=9, producer_epoch=0, base_sequence=0).is_duplicate
    assert store.snapshots() == made


def test_a_refused_snapshot_is_nobodys_failure(store: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    """The refusal is logged once, and the append succeeds."""
    store.refuses = True
    with caplog.at_level("INFO"):
        append(store, 100)
    assert [
        record.message.partition(":")[0] for record in caplog.records if "snapshot" in record.message
    ] == ["no snapshot was left in topics/payments/0/0/snapshots/"]
    with Engine(store) as engine:
        assert accounts_in(engine)[-1] == 100


def test_another_opener_was_quicker(store: Shelf) -> None:
    """A writer writes no snapshot if another client has written one of as much of the log meanwhile."""
    with Engine(store, snapshot_after=1) as engine:
        log = engine.partition("payments", 0)
        assert log.high_watermark == ENTRIES
        append(store, 100, after=10)
        with Engine(store) as quicker:
            quicker.admin.snapshot("payments")
        log.append(payments(101))
    assert len(store.snapshots()) == 1


def test_a_damaged_snapshot_at_its_place_stays(store: Shelf) -> None:
    """A writer does not repair it, because it is evidence. Readers pass over it."""
    with Engine(store) as engine:
        engine.admin.snapshot("payments")
    (key,) = store.snapshots()
    sound = store.get(key)
    store.put(key, b"no snapshot")
    append(store, 100)
    assert store.get(key) == b"no snapshot"
    with Engine(store) as engine:
        assert accounts_in(engine)[-1] == 100
    store.put(key, sound)


def test_coordinators_and_groups_leave_theirs(store: Shelf) -> None:
    """Writers to the logs of coordinators and groups write snapshots of them too, because every producer and
    every member of a group opens these logs."""
    for _ in range(4):
        with (
            Engine(store, snapshot_after=2) as engine,
            engine.producer(transactional_id="loader") as producer,
        ):
            producer.init_transactions()
            producer.begin_transaction()
            producer.send_offsets_to_transaction(
                {TopicPartition("payments", 0): 1}, ConsumerGroupMetadata("group", "member")
            )
            producer.commit_transaction()
    assert store.snapshots(TRANSACTION_STATE_TOPIC)
    assert store.snapshots(CONSUMER_OFFSETS_TOPIC)


SWEEPS = ["abort_timed_out_transactions", "write_pending_markers", "expire_transactional_ids"]


@pytest.mark.parametrize("sweep", SWEEPS)
def test_a_sweep_that_had_to_replay_much_leaves_what_it_read(store: Shelf, sweep: str) -> None:
    """A sweep comes every minute or so. If it replayed more than 64 entries of a coordinator's log, the next one finds
    a snapshot. Reading the ids leaves none."""
    with Engine(store) as engine:
        home = engine.logs.coordinator_partition("job")
        for _ in range(65):
            engine.coordinator.init_producer_id("job")
        end = engine.logs.coordinator("job").refresh().log_end_offset
    with Engine(store) as engine:
        assert len(engine.coordinator.rows()) == 1
    assert store.snapshots(TRANSACTION_STATE_TOPIC) == []
    for _ in range(2):
        with Engine(store) as engine:
            assert getattr(engine.coordinator, sweep)().failures == ()
        assert store.snapshots(TRANSACTION_STATE_TOPIC) == [
            f"topics/{TRANSACTION_STATE_TOPIC}/0/{home}/snapshots/{end:020d}.parquet"
        ]


def test_a_sweep_that_may_leave_no_snapshot_sweeps(store: Shelf) -> None:
    """A store that refuses the snapshot does not stop the sweep."""
    with Engine(store) as engine:
        for _ in range(65):
            engine.coordinator.init_producer_id("job")
    store.refuses = True
    with Engine(store) as engine:
        assert engine.coordinator.abort_timed_out_transactions().failures == ()
    assert store.snapshots(TRANSACTION_STATE_TOPIC) == []
