"""A small store with one of everything, which the cases change, and the names in it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import asdict
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa

from storage import MemoryStore, PutIfAbsentProof, encode_json
from txn_engine import Engine, TopicPartition
from txn_engine.clock import Waiting
from txn_engine.log.store_config import StoreConfig
from txn_engine.testing import ManualClock

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
PAYMENTS = pa.schema(
    [
        pa.field("account", pa.int64(), nullable=False),
        ("amount", pa.decimal128(18, 2)),
        ("note", pa.string()),
        ("tags", pa.list_(pa.string())),
    ]
)
Objects = dict[str, bytes]


class AtOnce(Executor):
    """Runs a task as soon as it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        """Run the task and return its outcome."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **named))
        except BaseException as error:  # noqa: BLE001 -- as a pool does
            future.set_exception(error)
        return future


def open_ledger(objects: Objects, clock: ManualClock) -> Engine:
    """An engine over these objects, in a store of its own."""
    store = MemoryStore(clock=clock)
    for key, data in objects.items():
        store._shelf.put(key, data, START_MS)
    ids = count(1)
    return Engine(
        store,
        clock=clock,
        new_id=lambda: f"{next(ids):032x}",
        waiting=Waiting(pause_ms=lambda _: None),
        executors=lambda *_: AtOnce(),
    )


def held(engine: Engine) -> Objects:
    """The objects that are in the store now."""
    return {info.key: engine.store.get(info.key) for info in engine.store.list("")}


def payments(*accounts: int) -> pa.Table:
    rows = [
        {"account": n, "amount": Decimal(n) / 4, "note": f"payment {n}", "tags": ["a", "b"][: n % 3]}
        for n in accounts
    ]
    return pa.Table.from_pylist(rows, schema=PAYMENTS)


def build() -> Objects:
    """Build a store with committed, aborted, open, merged, trimmed and sealed records, groups, deleted and
    grown topics, and snapshots."""
    clock = ManualClock(START_MS)
    with open_ledger({"store.json": _store()}, clock) as engine:
        admin = engine.admin
        admin.create_topic("payments", partitions=2, schema=PAYMENTS, key="account")
        admin.create_topic("events", partitions=1, cleanup_policy="compact")
        admin.create_topic("gone", partitions=1)
        admin.delete_topic("gone")
        admin.add_partitions_to_topic("payments", 3)
        with engine.producer(transactional_id="load") as producer:
            producer.init_transactions()
            for turn in range(4):
                with producer.transaction():
                    for partition in range(3):
                        first = turn * 9 + partition * 3
                        producer.produce(
                            "payments", payments(*range(first, first + 3)), partition=partition
                        ).result()
                    producer.produce("events", _events(turn)).result()
                clock.advance(HOUR_MS)
                if turn % 2:
                    admin.snapshot()
            producer.begin_transaction()
            producer.produce("payments", payments(70, 71), partition=0).result()
            producer.abort_transaction()
        _consume(engine)
        engine.maintenance.compact()
        engine.maintenance.expire_producers()
        admin.snapshot()
        clock.advance(30 * 24 * HOUR_MS)
        engine.maintenance.clean()
        engine.maintenance.retain()
        engine.maintenance.seal("events")
        with engine.producer() as plain:
            plain.produce("payments", payments(*range(80, 90)), partition=2).result()
        left = engine.producer(transactional_id="left")
        left.init_transactions()
        left.begin_transaction()
        left.produce("payments", payments(90, 91), partition=1).result()
        return held(engine)


def _store() -> bytes:
    """The store's settings with few internal partitions, because a case asks each of them."""
    counts = {"__transaction_state": 3, "__consumer_offsets": 3}
    proof = PutIfAbsentProof(
        first_won=True,
        second_lost=True,
        bytes_kept=True,
        racers=4,
        race_winners=1,
        latency_ms=1.0,
        race_ms=1.0,
    )
    return encode_json(
        asdict(StoreConfig("0" * 32, START_MS, asdict(proof), internal_partitions=counts)), "store"
    )


def _events(turn: int) -> pa.Table:
    rows = [
        {"key": b"k%d" % (n % 3), "value": b"v%d" % n, "headers": [{"key": "h", "value": b"x"}]}
        for n in range(4)
    ]
    return pa.Table.from_pylist([*rows, {"key": b"k1", "value": None, "headers": []}][: 3 + turn % 3])


def _consume(engine: Engine) -> None:
    """Read with a group that commits plainly, and with one whose offsets go through a producer."""
    with engine.consumer(group_id="readers") as consumer:
        consumer.subscribe(["payments"])
        consumer.poll(7)
        consumer.commit()
    with (
        engine.consumer(group_id="copiers") as consumer,
        engine.producer(transactional_id="copy") as producer,
    ):
        consumer.assign([TopicPartition("events", 0)])
        producer.init_transactions()
        producer.begin_transaction()
        consumer.poll(3)
        producer.produce("payments", payments(60, 61), partition=0).result()
        producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
        producer.commit_transaction()
