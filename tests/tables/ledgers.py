"""A topic to which everything happens that can, chosen by a seed. Tables are compared with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import count
from random import Random

import pyarrow as pa

from storage import MemoryStore, ObjectStore
from tests.support.faults import no_pause
from tests.support.internal import FEW_INTERNAL
from txn_engine import Engine
from txn_engine.clock import Waiting
from txn_engine.log.cut_format import Cut
from txn_engine.maintain import MaintenancePolicy
from txn_engine.maintain.policy import DAY_MS
from txn_engine.producer import Producer
from txn_engine.protocol.proposals import MarkerProposal
from txn_engine.testing import ManualClock

SCHEMA = pa.schema([pa.field("account", pa.int64(), nullable=False), ("amount", pa.decimal128(18, 2))])
EAGER = MaintenancePolicy(orphan_age_ms=0, entries_age_ms=0, trim_step=1, min_files=2, min_dirty_ratio=0)
_IDS = count()


def rows(*accounts: int) -> pa.Table:
    amounts = pa.array([Decimal(f"{each}.25") for each in accounts], pa.decimal128(18, 2))
    return pa.table({"account": pa.array(accounts, pa.int64()), "amount": amounts}, schema=SCHEMA)


def append(engine: Engine, *accounts: int, partition: int = 0) -> None:
    """Append a record of each account to the topic `payments`."""
    engine.partition("payments", partition).append(rows(*accounts))


@contextmanager
def engine_on(store: ObjectStore | None = None, clock: ManualClock | None = None) -> Iterator[Engine]:
    store = store or MemoryStore(f"tables-{next(_IDS)}")
    waiting = Waiting(pause_ms=lambda _: None)
    configs = None if any(store.list("")) else FEW_INTERNAL
    with Engine(
        store, clock=clock or ManualClock(), pause=no_pause, waiting=waiting, configs=configs
    ) as engine:
        yield engine


class Ledger:
    """Payments into a topic, chosen by a seed: plain ones, transactions that commit, abort or stay open,
    merges, compaction by key, retention, seals and new partitions."""

    def __init__(self, engine: Engine, clock: ManualClock, seed: int, *, topic: str = "payments") -> None:
        self.engine, self.clock, self.topic = engine, clock, topic
        self.random = Random(seed)
        policy = self.random.choice(("delete", "compact", "compact,delete"))
        engine.admin.create_topic(
            topic,
            partitions=2,
            schema=SCHEMA,
            key="account",
            retention_ms=self.random.choice((-1, DAY_MS // 4, DAY_MS // 2)),
            cleanup_policy=policy,
            delete_retention_ms=0,
        )
        self._plain = engine.producer()
        self._open: list[Producer] = []

    def close(self) -> None:
        self._plain.close()
        for each in self._open:
            each.abort_transaction()
            each.close()

    def step(self) -> None:
        """Do the next step."""
        does = (self.append, self.append, self.transact, self.transact, self.begin, self.end, self.compact)
        self.random.choice((*does, self.compact, self.retain, self.seal, self.grow))()

    def append(self) -> None:
        self._produce(self._plain)

    def transact(self) -> None:
        self.begin()
        self.end()

    def begin(self) -> None:
        producer = self.engine.producer(
            transactional_id=f"t-{next(_IDS)}", markers=self.random.choice(("inline", "deferred"))
        )
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(self.random.randint(1, 3)):
            self._produce(producer)
        self._open.append(producer)

    def end(self) -> None:
        if self._open:
            producer = self._open.pop(self.random.randrange(len(self._open)))
            if self.random.random() < 0.3:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
            producer.close()
            self._mark_one(producer)
        if self.random.random() < 0.7:
            self.engine.coordinator.write_pending_markers()

    def _mark_one(self, producer: Producer) -> None:
        """Write the marker of a decided transaction into one of its partitions only."""
        for stored in self.engine.coordinator.rows():
            row = stored.row
            if row.transactional_id == producer.transactional_id and row.state.value.startswith("Prepare"):
                at = self.random.choice(sorted(row.partitions, key=str))
                committed = row.state.value == "PrepareCommit"
                proposal = MarkerProposal(
                    row.producer_id, row.producer_epoch, committed, coordinator_epoch=stored.offset
                )
                self.engine.logs.of(at).append_one(proposal)

    def compact(self) -> None:
        self.engine.maintenance.compact(self.topic, policy=EAGER)

    def retain(self) -> None:
        self.clock.advance(self.random.choice((1, DAY_MS // 4, DAY_MS // 2, DAY_MS)))
        self.engine.maintenance.retain(self.topic, policy=EAGER)

    def seal(self) -> None:
        self.engine.admin.snapshot(self.topic)
        self.engine.maintenance.retain(self.topic, policy=EAGER)
        self.engine.maintenance.seal(self.topic)
        self.engine.maintenance.clean(self.topic, policy=EAGER)

    def grow(self) -> None:
        count = self.engine.admin.describe_topic(self.topic).partitions
        if count < 4 and self.random.random() < 0.3:
            self.engine.admin.add_partitions_to_topic(self.topic, count + 1)

    def _produce(self, producer: Producer) -> None:
        partitions = self.engine.admin.describe_topic(self.topic).partitions
        accounts = [self.random.randrange(12) for _ in range(self.random.randint(1, 4))]
        producer.produce(self.topic, rows(*accounts), partition=self.random.randrange(partitions)).result()

    def cut(self) -> Cut:
        """Make a cut, even if markers are missing."""
        return self.engine.cut()
