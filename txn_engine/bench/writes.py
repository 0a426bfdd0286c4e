"""Appends, transactions and large batches, each beside its bare limit."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from txn_engine.bench.bare import BareWriter, with_record_columns
from txn_engine.bench.measure import Measured, paired, ratio_of, timed
from txn_engine.bench.payments import SCHEMA, payments
from txn_engine.bench.progress import Progress
from txn_engine.engine import Engine
from txn_engine.partition_log import PartitionLog

_PARTITIONS = 4


def write_numbers(
    engine: Engine, prefix: str, *, quick: bool, aim: float, progress: Progress
) -> Iterator[Measured]:
    """The write side: small appends, transactions, flatness, and large batches."""
    bare = BareWriter(engine.store, f"{prefix}-bare")
    yield _appends(engine, bare, prefix, 50 if quick else 400, aim, progress)
    yield _transactions(engine, bare, prefix, 30 if quick else 200, aim, progress)
    yield _flatness(engine, prefix, 600 if quick else 10_000, progress)
    yield _large_batches(engine, bare, prefix, 5 if quick else 15, progress)


def _appends(
    engine: Engine, bare: BareWriter, prefix: str, rounds: int, aim: float, progress: Progress
) -> Measured:
    log = _partition(engine, f"{prefix}-appends")
    records = payments(100)
    physical = with_record_columns(records)
    progress("append of 100 rows", 0, rounds)
    mine, theirs = paired(lambda: log.append(records), lambda: bare.append(physical), rounds, warm_up=5)
    return _times("append of 100 rows", mine, theirs, aim, "a data file and an entry: two encodes, two puts")


def _transactions(
    engine: Engine, bare: BareWriter, prefix: str, rounds: int, aim: float, progress: Progress
) -> Measured:
    topic = f"{prefix}-transactions"
    engine.admin.create_topic(topic, partitions=_PARTITIONS, schema=SCHEMA, key="account_id")
    records = payments(100)
    parts = [with_record_columns(records.slice(25 * number, 25)) for number in range(_PARTITIONS)]
    with engine.producer(transactional_id=f"{prefix}-bench") as producer:
        producer.init_transactions()

        def ours() -> None:
            with producer.transaction():
                producer.produce(topic, records)

        progress("transaction over 4 partitions", 0, rounds)
        mine, theirs = paired(ours, lambda: bare.transaction(parts), rounds, warm_up=5)
    return _times(
        "4-partition transaction",
        mine,
        theirs,
        aim,
        f"100 rows, inline markers: {3 + 3 * _PARTITIONS} puts in 5 rounds",
    )


def _flatness(engine: Engine, prefix: str, appends: int, progress: Progress) -> Measured:
    log = _partition(engine, f"{prefix}-flat")
    records = payments(100)
    seconds: list[float] = []
    for number in range(appends):
        if number % 200 == 0:
            progress("appends to one partition", number, appends)
        seconds.append(timed(lambda: log.append(records)))
    edge = max(appends // 50, 50)
    first = statistics.median(seconds[5 : 5 + edge])
    last = statistics.median(seconds[-edge:])
    return Measured(
        f"append no. {appends:,}", "ms", last * 1e3, first * 1e3, last / first, "at most 1.1",
        last / first <= 1.1, appends, f"over the first ones; medians of {edge}",
    )  # fmt: skip


def _large_batches(
    engine: Engine, bare: BareWriter, prefix: str, rounds: int, progress: Progress
) -> Measured:
    rows = 100_000
    log = _partition(engine, f"{prefix}-large")
    records = payments(rows)
    physical = with_record_columns(records)
    progress("batches of 100,000 rows", 0, rounds)
    mine, theirs = paired(lambda: log.append(records), lambda: bare.append(physical, large=True), rounds)
    speed = ratio_of(theirs, mine)
    return Measured(
        "batches of 100,000 rows", "Mrow/s", rows / statistics.median(mine) / 1e6,
        rows / statistics.median(theirs) / 1e6, speed, "at least 0.8", speed >= 0.8, rounds,
        "bare: pq.write_table with the same settings, and the puts",
    )  # fmt: skip


def _partition(engine: Engine, topic: str) -> PartitionLog:
    engine.admin.create_topic(topic, partitions=1, schema=SCHEMA, key="account_id")
    return engine.partition(topic, 0)


def _times(name: str, mine: list[float], theirs: list[float], aim: float, note: str) -> Measured:
    ratio = ratio_of(mine, theirs)
    return Measured(
        name, "ms", statistics.median(mine) * 1e3, statistics.median(theirs) * 1e3, ratio, f"at most {aim}",
        ratio <= aim, len(mine), note,
    )  # fmt: skip
