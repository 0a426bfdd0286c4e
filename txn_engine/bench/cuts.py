"""Cuts over many partitions with many transactions open, beside the reads and puts of the same objects done bare."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

from storage import LocalStore, ObjectNotFoundError, ObjectStore, open_store
from txn_engine.bench.measure import Measured, ratio_of, timed
from txn_engine.bench.payments import SCHEMA, payments
from txn_engine.bench.progress import Progress
from txn_engine.bench.watched import Call, watching
from txn_engine.engine import Engine
from txn_engine.producer import Producer

_TIMEOUT_MS = 900_000
_THREADS_NEAR, _THREADS_FAR = 16, 128  # as many as the engine has to read with
_AIM = 2.0


@dataclass(frozen=True, slots=True)
class CutSizes:
    """Partitions of the one topic, transactions that are open in two of them each, and how many cuts of each kind."""

    partitions: int
    transactions: int
    rounds: int


QUICK, USUAL = CutSizes(50, 100, 5), CutSizes(50, 1_000, 30)


def cut_numbers(engine: Engine, prefix: str, *, sizes: CutSizes, progress: Progress) -> Iterator[Measured]:
    """Cuts of all that is in the store: where nothing came since the last one, and where something did in every
    partition; each by an engine that is open, and by one that knows nothing.

    The cuts are deleted at the end.
    """
    topic = f"{prefix}-cuts"
    engine.admin.create_topic(topic, partitions=sizes.partitions, schema=SCHEMA, key="account_id")
    logs = [engine.partition(topic, number) for number in range(sizes.partitions)]
    opened = list(_open(engine, topic, sizes, progress))
    bench = _Bench(engine.url, f"{prefix}-bare", progress, sizes.rounds)

    def move() -> None:
        for log in logs:
            log.append(payments(1))

    try:
        bench.warm_up(move)
        yield bench.beside_bare("cut, nothing new", _nothing, is_fresh=False)
        yield bench.beside_bare("cut, new rows in every partition", move, is_fresh=False)
        yield bench.beside_bare("cut by a fresh process, nothing new", _nothing, is_fresh=True)
        yield bench.beside_bare("cut by a fresh process, new rows", move, is_fresh=True)
    finally:
        bench.close()
        for done, producer in enumerate(opened):
            progress("transactions aborted", done, len(opened))
            producer.close()


def _nothing() -> None:
    return


def _open(engine: Engine, topic: str, sizes: CutSizes, progress: Progress) -> Iterator[Producer]:
    for number in range(sizes.transactions):
        progress("transactions opened", number, sizes.transactions)
        producer = engine.producer(transactional_id=f"{topic}-{number}", transaction_timeout_ms=_TIMEOUT_MS)
        producer.init_transactions()
        producer.begin_transaction()
        for partition in (number % sizes.partitions, (7 * number + 3) % sizes.partitions):
            producer.produce(topic, payments(1), partition=partition)
        producer.flush()
        yield producer


class _Bench:
    """Two engines over stores that note their calls; the fresh one is another at each cut."""

    def __init__(self, url: str, bare_prefix: str, progress: Progress, rounds: int) -> None:
        self._store = watching(open_store(url))
        self._engine = Engine(self._store)
        self._progress = progress
        self._rounds = rounds
        self._numbers: list[int] = []
        self._bare_keys = (f"{bare_prefix}/{number}" for number in count())

    def warm_up(self, move: Callable[[], None]) -> None:
        """The first cut reads all that there is; it is no matter here."""
        self._cut(self._engine)
        move()
        self._cut(self._engine)

    def beside_bare(self, name: str, prepare: Callable[[], None], *, is_fresh: bool) -> Measured:
        """So many cuts, each behind `prepare`, in turn with the bare program."""
        ours = self._cut_afresh if is_fresh else self._cut_again
        prepare()
        self._store.take()
        ours()
        bare = BareCut.of(self._store.watched, self._store.take())
        mine: list[float] = []
        theirs: list[float] = []
        for number in range(self._rounds + 1):
            self._progress(name, number, self._rounds + 1)
            prepare()
            pair = [(ours, mine), (lambda: bare.make(next(self._bare_keys)), theirs)]
            for work, into in pair if number % 2 else reversed(pair):
                seconds = timed(work)
                if number:
                    into.append(seconds)
        ratio = ratio_of(mine, theirs)
        slowest = sorted(mine)[-1 - len(mine) // 100] * 1e3
        note = f"{bare.says()}; p99 {slowest:.0f} ms"
        return Measured(
            name, "ms", statistics.median(mine) * 1e3, statistics.median(theirs) * 1e3, ratio, f"at most {_AIM}",
            ratio <= _AIM, len(mine), note,
        )  # fmt: skip

    def close(self) -> None:
        """Delete the cuts that were made."""
        for number in self._numbers:
            self._engine.delete_cut(number)
        self._engine.close()

    def _cut_again(self) -> None:
        self._cut(self._engine)

    def _cut_afresh(self) -> None:
        with Engine(self._store) as fresh:
            self._cut(fresh)

    def _cut(self, engine: Engine) -> None:
        self._numbers.append(engine.cut().number)


@dataclass(frozen=True, slots=True)
class BareCut:
    """What a program does that is told which objects a cut is made of: it puts the claim, asks for what the first look
    asked for, for what the second one did, puts the snapshots, puts the cut; each time all at once, and judges nothing.
    """

    store: ObjectStore
    claim: bytes
    first: Sequence[str]
    second: Sequence[str]
    snapshots: Sequence[bytes]
    cut: bytes

    @classmethod
    def of(cls, store: ObjectStore, calls: Sequence[Call]) -> BareCut:
        """That of the one cut that these calls made."""
        put = [call.key for call in calls if call.stored]
        times = Counter(call.key for call in calls if call.kind in ("get", "head") and call.key not in put)
        held = {key: store.get(key) for key in put}
        return cls(
            store,
            next(data for key, data in held.items() if key.endswith("/claim.json")),
            list(times),
            [key for key, asked in times.items() if asked > 1],
            [data for key, data in held.items() if "/snapshots/" in key],
            next(data for key, data in held.items() if key.endswith("/cut.json")),
        )

    def says(self) -> str:
        """What is done bare."""
        return (
            f"bare: {len(self.first)} reads, {len(self.second)} again, {2 + len(self.snapshots)} puts, in the same"
            " order"
        )

    def make(self, prefix: str) -> None:
        """Do it once, under keys below this."""
        threads = _THREADS_NEAR if isinstance(self.store, LocalStore) else _THREADS_FAR
        with ThreadPoolExecutor(threads) as pool:
            self._put(f"{prefix}/claim.json", self.claim)
            for asked in (self.first, self.second):
                list(pool.map(self._find, asked))
            keys = [f"{prefix}/{number}.parquet" for number in range(len(self.snapshots))]
            list(pool.map(self._put, keys, self.snapshots))
            self._put(f"{prefix}/cut.json", self.cut)

    def _find(self, key: str) -> None:
        try:
            self.store.get(key)
        except ObjectNotFoundError:
            return

    def _put(self, key: str, data: bytes) -> None:
        self.store.put_if_absent(key, data)
