"""Transactions in every state that a sweep can find, written by real producers."""

from __future__ import annotations

import time
from decimal import Decimal

import pyarrow as pa

from txn_engine import Engine, OffsetAndMetadata, TopicPartition
from txn_engine.producer import Producer
from txn_engine.types import MarkerMode

ROWS = 12


def rows(first: int = 0) -> pa.Table:
    """Twelve payments in both partitions."""
    accounts = pa.array(range(first, first + ROWS), pa.int64())
    return pa.table(
        {"account_id": accounts, "amount": pa.array([Decimal("1.25")] * ROWS, pa.decimal128(18, 2))}
    )


def leave_open(engine: Engine, transactional_id: str, *, timeout_ms: int = 60_000) -> Producer:
    """A producer that wrote and then died with its transaction open, which is older than a time-out of 1 ms
    when this returns."""
    producer = engine.producer(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", rows())
    producer.flush()
    time.sleep(0.01)
    return producer


def commit(engine: Engine, transactional_id: str, *, deferred: bool = False) -> None:
    """Commit a transaction. With `deferred` it is decided, and its markers are left to the sweep."""
    markers: MarkerMode = "deferred" if deferred else "inline"
    with engine.producer(transactional_id=transactional_id, markers=markers) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("payments", rows())


def leave_offsets_pending(engine: Engine, group_id: str, transactional_id: str, offset: int) -> Producer:
    """Give a group a new offset in a transaction that stays open."""
    consumer = engine.consumer(group_id=group_id)
    consumer.subscribe(["payments"])
    consumer.poll(max_records=1)
    producer = engine.producer(transactional_id=transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        {TopicPartition("payments", 0): OffsetAndMetadata(offset)}, consumer.group_metadata()
    )
    producer.flush()
    return producer


def trailing(engine: Engine) -> int:
    """How many offsets read_committed readers are behind the log's end."""
    return sum(
        at.high_watermark - at.last_stable_offset for at in engine.admin.list_offsets("payments").values()
    )


def committed_rows(engine: Engine) -> int:
    """The rows that a fresh read_committed reader sees."""
    return engine.scan("payments").to_table().num_rows


def damage_log(engine: Engine, topic: str) -> str:
    """Put an object that is not an entry at the next entry's key of the empty partition 0. Returns the
    key."""
    incarnation = engine.admin.describe_topic(topic).incarnation
    key = engine.logs.get(topic, incarnation, 0).keys.entry(0)
    engine.store.put_if_absent(key, b"not an entry")
    return key
