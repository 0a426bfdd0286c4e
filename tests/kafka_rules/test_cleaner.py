"""`Engine.maintenance` compacts a topic by key as Kafka does (LogCleanerTest, LogCleanerManagerTest,
LogValidator)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.kafka_rules.driver import DAY_MS, Partition, answer
from txn_engine import Engine, TopicPartition
from txn_engine.maintain import Compacted, MaintenancePolicy
from txn_engine.testing import ManualClock
from txn_engine.types import AbortedTransaction

TABLE = "table"
ALWAYS = MaintenancePolicy(min_files=1_000, min_dirty_ratio=0.0)
"""Whatever is dirty is cleaned, and nothing else merged."""


class Table(Partition):
    """A compacted partition with Kafka's columns. It takes batches of keys, each with a value of its own or
    with none."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.partition(TABLE, 0))
        self._engine = engine
        self._written = 0
        self.schema = engine.logs.topics.look_up(TABLE).schema

    def put(
        self, *keys: int, pid: int = -1, epoch: int = -1, seq: int = -1, tombstone: bool = False
    ) -> tuple[int, int] | str:
        """Append one batch, in a transaction if it has a producer."""
        self._written += 1
        value = None if tombstone else b"%d" % self._written
        rows = [{"key": b"%d" % key, "value": value, "headers": None} for key in keys]
        table = pa.Table.from_pylist(rows, schema=self.schema)

        def append() -> tuple[int, int]:
            result = self.log.append(
                table, producer_id=pid, producer_epoch=epoch, base_sequence=seq, is_transactional=pid >= 0
            )
            return result.base_offset, result.last_offset

        found: tuple[int, int] | str = answer(append)
        return found

    def clean(self) -> Compacted | None:
        """Run the cleaner once. Returns what it did, or None if it did nothing."""
        report = self._engine.maintenance.compact(TABLE, policy=ALWAYS)
        assert report.failures == ()
        return report.partitions[0] if report.partitions else None

    @property
    def held(self) -> list[tuple[int, int]]:
        """The (key, offset) of every record that a reader gets."""
        found = self.log.read(0)
        keys = [int(key) for key in found.column("key").to_pylist()]
        return list(zip(keys, found.column("_offset").to_pylist(), strict=True))


@pytest.fixture
def table(engine: Engine) -> Table:
    """A topic with cleanup.policy=compact."""
    engine.admin.create_topic(TABLE, partitions=1, cleanup_policy="compact")
    return Table(engine)


def test_cln_01_the_cleaner_knows_transactions(table: Table) -> None:
    """CLN-01: aborted records supersede nothing and are removed. The latest committed record of each key stays at its
    offset, the markers stay, and the aborted index is unchanged.
    """
    table.put(1, 2, pid=1, epoch=0, seq=0)  # 0, 1
    table.put(2, 3, pid=2, epoch=0, seq=0)  # 2, 3
    table.put(3, 4, pid=1, epoch=0, seq=2)  # 4, 5
    assert table.abort(1, 1) == 6
    assert table.commit(2, 1) == 7
    table.put(2, pid=1, epoch=1, seq=0)  # 8
    assert table.commit(1, 2) == 9
    index = table.log.aborted_transactions(0, 10)
    cleaned = table.clean()
    assert cleaned is not None
    assert (cleaned.records, cleaned.dropped) == (2, 1)
    assert table.held == [(3, 3), (2, 8)]
    assert table.log.aborted_transactions(0, 10) == index == [AbortedTransaction(1, 0, 6, 2)]
    assert table.commit(2, 1) == table.commit(1, 2) == -1  # the markers are known still


def test_cln_02_a_marker_stays_when_its_records_are_gone(table: Table, clock: ManualClock) -> None:
    """CLN-02, by other means: the cleaner removes no entry, so it removes no marker. The partition's state
    keeps the last sequence and the epoch that a marker ended, however long ago the records went."""
    table.put(1, 2, pid=1, epoch=0, seq=0)  # 0, 1
    assert table.commit(1, 1, coordinator_epoch=7) == 2
    table.put(1, 2, pid=2, epoch=0, seq=0)  # 3, 4
    assert table.commit(2, 1, coordinator_epoch=8) == 5
    before = table.log.producers()
    for _ in range(2):
        table.clean()
        clock.advance(DAY_MS)
        assert table.held == [(1, 3), (2, 4)]
        assert table.log.producers() == before
    assert table.put(1, pid=1, epoch=0, seq=2) == "INVALID_PRODUCER_EPOCH"
    assert table.abort(1, 2, coordinator_epoch=6) == "TRANSACTION_COORDINATOR_FENCED"


def test_cln_02_the_last_sequence_outlives_its_record(table: Table) -> None:
    """In Kafka an empty batch keeps a producer's last sequence. Here the state keeps it, so a duplicate is
    still known and a gap still refused."""
    for sequence in range(3):
        table.log.append(
            pa.Table.from_pylist([{"key": b"1", "value": b"x", "headers": None}], schema=table.schema),
            producer_id=9, producer_epoch=0, base_sequence=sequence,
        )  # fmt: skip
    table.put(1)  # 3
    table.clean()
    assert table.held == [(1, 3)]
    state = table.producer(9)
    assert state is not None
    assert state.last_sequence == 2
    again = table.log.append(
        pa.Table.from_pylist([{"key": b"1", "value": b"x", "headers": None}], schema=table.schema),
        producer_id=9, producer_epoch=0, base_sequence=2,
    )  # fmt: skip
    assert (again.base_offset, again.is_duplicate) == (2, True)


def test_cln_02_a_tombstone_waits_for_its_horizon(table: Table, clock: ManualClock) -> None:
    """A tombstone has the delete horizon. It stays for `delete.retention.ms` after the records that it
    supersedes were removed, and goes in a later pass even if nothing was written since."""
    table.put(1, 2)  # 0, 1
    table.put(1, tombstone=True)  # 2
    clock.advance(5 * DAY_MS)
    table.clean()
    assert table.held == [(2, 1), (1, 2)]
    clock.advance(DAY_MS - 1)
    assert table.clean() is None
    clock.advance(1)
    cleaned = table.clean()
    assert cleaned is not None
    assert (cleaned.records, cleaned.dropped) == (1, 1)
    assert table.held == [(2, 1)]
    assert table.clean() is None


def test_cln_05_what_is_undecided_waits_for_the_next_pass(table: Table) -> None:
    """CLN-05: records from the first undecided one on are not cleaned. Records of a transaction that is aborted later
    never count, so the final keys are those of the committed one.
    """
    table.put(1, 2)  # 0, 1
    table.put(1, pid=1, epoch=0, seq=0)  # 2, aborted later
    table.put(2, pid=2, epoch=0, seq=0)  # 3, committed later
    table.put(1)  # 4, plain, above the LSO
    cleaned = table.clean()
    assert cleaned is not None
    assert (cleaned.files, cleaned.dropped) == (0, 0)
    assert table.stable == 2
    assert table.held == [(1, 0), (2, 1)]
    table.abort(1, 1)
    assert table.clean() is None  # the other one is open still
    table.commit(2, 1)
    table.clean()
    assert table.held == [(2, 3), (1, 4)]


def test_a_record_without_a_key_is_refused(engine: Engine, table: Table) -> None:
    """LogValidator: a compacted topic refuses a record without a key, and another topic accepts it."""
    row = {"key": None, "value": b"x", "headers": None}
    records = pa.Table.from_pylist([row], schema=pa.schema([(f.name, f.type) for f in table.schema]))
    assert answer(lambda: table.log.append(records)) == "INVALID_RECORD"
    with engine.producer() as producer:
        assert answer(lambda: producer.produce(TABLE, records)) == "INVALID_RECORD"
    engine.admin.create_topic("plain", partitions=1)
    assert engine.partition("plain", 0).append(records).base_offset == 0


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"cleanup_policy": "compact"}, None),
        ({"cleanup_policy": "delete,compact"}, None),
        ({"cleanup_policy": "none"}, "INVALID_CONFIG"),
        ({"cleanup_policy": ""}, "INVALID_CONFIG"),
        ({"cleanup_policy": "compact", "delete_retention_ms": -1}, "INVALID_CONFIG"),
        ({"cleanup_policy": "compact", "min_compaction_lag_ms": -1}, "INVALID_CONFIG"),
        ({"cleanup_policy": "compact", "schema": pa.schema([("a", pa.int64())])}, "INVALID_CONFIG"),
    ],
)
def test_topic_configuration(engine: Engine, config: dict[str, object], code: str | None) -> None:
    """A topic takes Kafka's names and values, in any order. A compacted topic needs a key."""
    found = answer(lambda: engine.admin.create_topic("configured", **config))  # type: ignore[arg-type]
    assert found == code or code is None
    if code is None:
        described = engine.admin.describe_topic("configured")
        assert set(described.cleanup_policy.split(",")) == set(str(config["cleanup_policy"]).split(","))


def test_min_compaction_lag(engine: Engine, clock: ManualClock) -> None:
    """With `min.compaction.lag.ms` a record stays that long, with all records after it, even if it is
    superseded."""
    engine.admin.create_topic(TABLE, partitions=1, cleanup_policy="compact", min_compaction_lag_ms=1_000)
    table = Table(engine)
    table.put(1)
    clock.advance(600)
    table.put(1)
    clock.advance(999)
    assert table.clean() is not None  # the first is clean: it is alone
    assert table.held == [(1, 0), (1, 1)]
    clock.advance(1)
    table.clean()
    assert table.held == [(1, 1)]


def test_the_dirty_ratio(engine: Engine, table: Table) -> None:
    """With `min.cleanable.dirty.ratio` a partition waits until half of its bytes were written since the last
    pass."""
    half = MaintenancePolicy(min_files=1_000)
    table.put(*range(500))
    table.put(*range(500))
    assert engine.maintenance.compact(TABLE, policy=half).partitions
    table.put(1)
    assert engine.maintenance.compact(TABLE, policy=half).partitions == ()
    table.put(*range(500))
    assert engine.maintenance.compact(TABLE, policy=half).partitions
    assert len(table.held) == 500


def test_compact_and_delete(engine: Engine, clock: ManualClock) -> None:
    """With both policies the latest record of each key stays unless it is too old. With `compact` alone age does not
    matter.
    """
    for name, policy in (("both", "compact,delete"), (TABLE, "compact")):
        engine.admin.create_topic(name, partitions=1, cleanup_policy=policy, retention_ms=DAY_MS)
        log = engine.partition(name, 0)
        for key in (b"1", b"1", b"2"):
            row = {"key": key, "value": b"x", "headers": None}
            log.append(pa.Table.from_pylist([row], schema=engine.logs.topics.look_up(name).schema))
        engine.maintenance.compact(name, policy=ALWAYS)
        clock.advance(2 * DAY_MS)
        engine.maintenance.retain(name)
        left = log.read(log.log_start_offset).column("_offset").to_pylist()
        assert left == ([] if name == "both" else [1, 2])


def test_a_consumer_keeps_its_place(engine: Engine, table: Table) -> None:
    """A consumer whose next record was cleaned goes on at the next existing one (FetcherTest, compacted
    topics)."""
    for _ in range(6):
        table.put(1, 2)
    consumer = engine.consumer()
    place = TopicPartition(TABLE, 0)
    consumer.assign([place])
    first = consumer.poll(max_records=3)
    assert first is not None
    assert first.column("_offset").to_pylist() == [0, 1, 2]
    table.clean()
    rest = consumer.poll()
    assert rest is not None
    assert rest.column("_offset").to_pylist() == [10, 11]
    assert consumer.position(place) == table.end
