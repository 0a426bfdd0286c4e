"""Appends, transactions and large batches, each beside its bare limit."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from storage import is_remote, open_store
from txn_engine.bench.bare import BareObject, BareTransaction, BareWriter, bare_objects
from txn_engine.bench.blocks import Side, blocks_in_turn
from txn_engine.bench.measure import Measured, paired, ratio_of, timed
from txn_engine.bench.payments import SCHEMA, payments
from txn_engine.bench.progress import Progress
from txn_engine.bench.transactions import PARTITIONS, ROWS, Ours, batches
from txn_engine.bench.watched import WatchedStore, watching
from txn_engine.engine import Engine
from txn_engine.partition_log import PartitionLog

_WARM_UP = 5


@dataclass(frozen=True, slots=True)
class Aims:
    """How much more than bare a write may take, and how much processor time a transaction, in ms."""

    append: float
    transaction: float
    processor_ms: float = 10.0


LOCAL, REMOTE = Aims(1.2, 1.3), Aims(1.1, 1.15)


@dataclass(frozen=True, slots=True)
class WriteSizes:
    """How often each is done; transactions in `blocks` of `block` too."""

    appends: int
    transactions: int
    blocks: int
    block: int
    large: int
    flat: int


QUICK, USUAL = WriteSizes(50, 30, 3, 10, 5, 600), WriteSizes(400, 200, 10, 40, 15, 10_000)


def write_numbers(
    engine: Engine, prefix: str, *, sizes: WriteSizes, progress: Progress
) -> Iterator[Measured]:
    """The write side: small appends, transactions, flatness, and large batches."""
    aims = REMOTE if is_remote(engine.url) else LOCAL
    bare = BareWriter(engine.store, f"{prefix}-bare")
    store = watching(open_store(engine.url))
    with Engine(store) as watched:
        bench = _Bench(watched, store, bare, prefix, progress)
        yield _appends(bench, sizes.appends, aims)
        yield from _transactions(bench, sizes, aims)
        yield _large_batches(bench, sizes.large)
    yield _flatness(engine, prefix, sizes.flat, progress)


@dataclass(frozen=True, slots=True)
class _Bench:
    """An engine over a store that notes its calls, and a writer that knows nothing of it."""

    engine: Engine
    store: WatchedStore
    bare: BareWriter
    prefix: str
    progress: Progress


def _appends(bench: _Bench, rounds: int, aims: Aims) -> Measured:
    log = _partition(bench.engine, f"{bench.prefix}-appends")
    records = payments(100)
    objects = _objects_of_append(bench.store, log, records)
    bench.progress("append of 100 rows", 0, rounds)
    mine, theirs = paired(
        lambda: log.append(records), lambda: bench.bare.one_by_one(objects), rounds, warm_up=5
    )
    return _times("append of 100 rows", mine, theirs, aims.append, _described(objects))


def _objects_of_append(store: WatchedStore, log: PartitionLog, records: pa.Table) -> list[BareObject]:
    """Those of one that is made for it."""
    store.take()
    log.append(records)
    return bare_objects(store.watched, store.take())


def _described(objects: Sequence[BareObject]) -> str:
    columns = " and ".join(str(thing.table.num_columns) for thing in objects)
    return f"a data file, then an entry; bare: the same {columns} columns encoded by PyArrow, and put"


def _transactions(bench: _Bench, sizes: WriteSizes, aims: Aims) -> Iterator[Measured]:
    """In turn, each from a coordinator at rest; and in blocks without a pause."""
    topic, bare, rounds = f"{bench.prefix}-transactions", bench.bare, sizes.transactions
    bench.engine.admin.create_topic(topic, partitions=PARTITIONS, schema=SCHEMA, key="account_id")
    with bench.engine.producer(transactional_id=f"{bench.prefix}-bench") as producer:
        producer.init_transactions()
        ours = Ours(bench.store, producer, topic, batches())
        for _ in range(_WARM_UP):
            ours.timed()
        remade = ours.bare()

        theirs: list[float] = []

        def bare_one() -> None:
            theirs.append(timed(lambda: bare.transact(remade)))
            bare.rest()

        for number in range(rounds):
            bench.progress("transactions over 4 partitions", number, rounds)
            pair = [ours.timed, bare_one]
            for transact in pair if number % 2 else reversed(pair):
                transact()
        mine = [each.visible for each in ours.seconds()[_WARM_UP:]]
        note = (
            f"{PARTITIONS} x {ROWS} rows in {ours.objects()} objects, to the last marker; bare: {remade.objects}"
            " objects of the same columns in four rounds"
        )
        yield _times("transaction to visible", mine, theirs, aims.transaction, note)
        yield from _back_to_back(bench, ours, remade, sizes, aims)


def _back_to_back(
    bench: _Bench, ours: Ours, remade: BareTransaction, sizes: WriteSizes, aims: Aims
) -> Iterator[Measured]:
    bare = bench.bare
    mine, theirs = blocks_in_turn(
        Side(ours.transact, ours.rest),
        Side(lambda: bare.transact(remade), bare.rest),
        blocks=sizes.blocks,
        size=sizes.block,
        progress=partial(bench.progress, "transactions back to back"),
    )
    note = f"each, in blocks of {sizes.block} without a pause"
    seconds = [block.seconds for block in mine], [block.seconds for block in theirs]
    yield _times("transactions back to back", *seconds, aims.transaction, note)
    worked = [block.processor for block in mine], [block.processor for block in theirs]
    number = _times("processor time, transaction", *worked, aims.processor_ms, f"{note}; all threads")
    yield replace(number, aim=f"at most {aims.processor_ms:g} ms", met=number.ours <= aims.processor_ms)


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


def _large_batches(bench: _Bench, rounds: int) -> Measured:
    rows = 100_000
    log = _partition(bench.engine, f"{bench.prefix}-large")
    records = payments(rows)
    objects = _objects_of_append(bench.store, log, records)
    bench.progress("batches of 100,000 rows", 0, rounds)
    mine, theirs = paired(lambda: log.append(records), lambda: bench.bare.one_by_one(objects), rounds)
    speed = ratio_of(theirs, mine)
    return Measured(
        "batches of 100,000 rows", "Mrow/s", rows / statistics.median(mine) / 1e6,
        rows / statistics.median(theirs) / 1e6, speed, "at least 0.8", speed >= 0.8, rounds, _described(objects),
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
