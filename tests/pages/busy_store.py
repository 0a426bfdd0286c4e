"""A store with an example of everything that the pages show, written by real producers and consumers."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.support.internal import FEW_INTERNAL
from txn_engine import Engine, OffsetAndMetadata, TopicPartition, connect
from txn_engine.clock import system_clock
from txn_engine.loading import DEAD_LETTERS

SCHEMA = pa.schema([("account_id", pa.int64()), ("amount", pa.decimal128(18, 2)), ("note", pa.string())])
HOUR_MS = 3_600_000
SECRET_NOTE = "<b>salary</b> of account"
HANGING_PRODUCER = 999_001
DEAD = "payments-dead"
EVIL = "<img src=x onerror=alert(1)>\x1b[2J\u202e"


def records(first: int, count: int) -> pa.Table:
    rows = range(first, first + count)
    return pa.table(
        {
            "account_id": pa.array(rows, pa.int64()),
            "amount": pa.array([Decimal(row) for row in rows], pa.decimal128(18, 2)),
            "note": [f"{SECRET_NOTE} {row}" for row in rows],
        },
        schema=SCHEMA,
    )


def build(url: str) -> None:
    """Write committed, aborted, open, overdue, undecided and hanging transactions, and groups with and without a
    pending commit.
    """
    now_ms = system_clock()
    with connect(url, clock=lambda: now_ms - 2 * HOUR_MS, configs=FEW_INTERNAL) as past:
        past.admin.create_topic("payments", partitions=3, schema=SCHEMA, key="account_id")
        past.admin.create_topic("balances", partitions=1, schema=SCHEMA, key="account_id")
        past.admin.create_topic(DEAD, partitions=1, schema=DEAD_LETTERS)
        _hang(past)
    with connect(url, clock=lambda: now_ms - HOUR_MS // 4) as earlier:
        for run in range(3):
            _load(earlier, "load-payments", run)
        _overdue(earlier)
    with connect(url) as engine:
        _load(engine, "load-payments", 3)
        _fail(engine)
        _abort(engine)
        _undecided(engine)
        _consume(engine)
        engine.cut(keep_ms=7 * 24 * HOUR_MS)
        _open(engine)


def _hang(engine: Engine) -> None:
    log = engine.partition("payments", 2)
    log.append(
        records(0, 5), producer_id=HANGING_PRODUCER, producer_epoch=0, base_sequence=0, is_transactional=True
    )


def _load(engine: Engine, transactional_id: str, run: int) -> None:
    with engine.producer(transactional_id=transactional_id) as producer:
        producer.init_transactions()
        with producer.transaction(run_id=f"run-{run}"):
            producer.produce(
                "payments", records(run * 100, 40), partition=0
            ).result()  # so that the next adds a row
            producer.produce("payments", records(run * 100 + 40, 20), partition=1)


def _overdue(engine: Engine) -> None:
    producer = engine.producer(transactional_id="nightly/import of accounts", transaction_timeout_ms=10_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", records(500, 7), partition=1)
    producer.flush()


def letter(**values: Any) -> dict[str, Any]:
    """A row for `payments` that could not be used."""
    given = {
        "topic": "payments",
        "columns": f'{{"account_id": "7", "amount": "x", "note": "{SECRET_NOTE} 7"}}',
        "reading": '{"format": "csv"}',
        "reason": "amount does not fit; expected decimal(18,2)",
        "error_class": "InvalidRecordError",
        "failed_at": system_clock(),
        "tries": 1,
        **values,
    }
    return {name: given.get(name) for name in DEAD_LETTERS.names}


def letters(*rows: dict[str, Any]) -> pa.Table:
    """A table of letters, as a topic of dead letters has them."""
    return pa.Table.from_pylist(list(rows), schema=DEAD_LETTERS)


def put_letters(engine: Engine, *rows: dict[str, Any]) -> None:
    """Put letters into one file."""
    engine.partition(DEAD, 0).append(letters(*rows))


def _fail(engine: Engine) -> None:
    """Write dead letters: rows of a file, a row of a topic, and a letter that somebody made up."""
    run = "load_payments/load@manual__2026-11-20T04:00:00+00:00"
    rows = [letter(source_file="landing/2026-11-20.csv", source_line=line, run_id=run) for line in (3, 17)]
    short = {"columns": None, "raw": f"8,{SECRET_NOTE} 8\n".encode(), "reason": "2 fields; expected 3"}
    put_letters(
        engine, *rows, letter(source_file="landing/2026-11-20.csv", source_line=18, run_id=run, **short)
    )
    read = {"source_topic": "balances", "source_partition": 0, "source_offset": 1, "topic": EVIL}
    put_letters(engine, letter(**read, reason=EVIL, error_class=EVIL, run_id=EVIL, raw=b"\xff\x00", tries=2))


def _abort(engine: Engine) -> None:
    with engine.producer(transactional_id="wrong-file") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("payments", records(900, 30), partition=0)
        producer.flush()
        producer.abort_transaction()


def _undecided(engine: Engine) -> None:
    producer = engine.producer(transactional_id="deferred-load", markers="deferred")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", records(700, 9), partition=0)
    producer.commit_transaction()


def _consume(engine: Engine) -> None:
    """`audit` commits without a transaction. `balances` has committed once and has a commit pending in an open
    transaction.
    """
    with engine.consumer(group_id="audit") as consumer:
        consumer.assign([TopicPartition("payments", 0)])
        consumer.poll(max_records=50)
        consumer.commit()
    producer = engine.producer(transactional_id="balances")
    producer.init_transactions()
    consumer = engine.consumer(group_id="balances")
    consumer.assign([TopicPartition("payments", 0)])
    for ends in (True, False):
        producer.begin_transaction()
        consumer.poll(max_records=40)
        producer.produce("balances", records(0, 4), partition=0)
        at = TopicPartition("payments", 0)
        offsets = {at: OffsetAndMetadata(consumer.position(at))}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        if ends:
            producer.commit_transaction()
    producer.flush()


def _open(engine: Engine) -> None:
    producer = engine.producer(transactional_id="stream-7", transaction_timeout_ms=600_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", records(800, 6), partition=0)
    producer.flush()
    producer.produce("payments", records(820, 6), partition=1)
    producer.flush()
