"""`txn-engine bench --rounds`: what each operation costs in rounds, over a store in memory that takes as long over a
call as a distant one.

Two figures each, for neither is honest alone. *Rounds* are counted in the log of the store's calls: the most calls of
which each began after the one before had ended. *Time* is what passed, in calls: rounds, and the processor's time
between them; more than the rounds by more than that where threads waited for one another, or for a free one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from storage import MemoryStore
from txn_engine.bench.marks import EntryKinds, entry_kinds, objects_put, wait_until_complete
from txn_engine.bench.payments import SCHEMA, payments
from txn_engine.bench.progress import Progress
from txn_engine.bench.watched import Call, WatchedStore, in_a_row
from txn_engine.consumer import Consumer
from txn_engine.engine import Engine
from txn_engine.producer import Producer

PARTITIONS = 4
_ROWS = 100
_INPUT_ROWS = 10_000
_ENTRIES = 50
_IN, _OUT, _GROUP, _ID = "bench-in", "bench-out", "bench", "bench"
_QUIET_CALLS = 2.5
"""Calls' time without a call: then nothing works behind the caller's back any more."""


@dataclass(frozen=True, slots=True)
class Point:
    """Up to some event: `rounds`, counted; `time`, in calls."""

    rounds: int
    time: float


@dataclass(frozen=True, slots=True)
class Least:
    """What no engine with these objects can do with less, up to each event; and why."""

    why: str
    returned: int
    visible: int | None = None
    complete: int | None = None
    objects: int = 0


@dataclass(frozen=True, slots=True)
class Rounds:
    """One line: medians of `tries`. `returned`: the call came back; `visible`, `complete`: as `Marks` has them;
    `objects` that were put, those behind the caller's back too.
    """

    name: str
    returned: Point
    visible: Point | None
    complete: Point | None
    objects: int
    least: Least
    tries: int


@dataclass(frozen=True, slots=True)
class _Step:
    """One measured operation: its calls, up to when nothing was under way any more."""

    began: float
    returned: float
    calls: list[Call]

    def point(self, until: float | None) -> Point | None:
        """Up to some moment."""
        if until is None:
            return None
        return Point(in_a_row([call for call in self.calls if call.ended <= until]), until - self.began)


@dataclass(slots=True)
class _Stage:
    """A store in memory whose calls take their time while an operation is measured, and none between."""

    call_ms: float
    store: WatchedStore = field(default_factory=lambda: WatchedStore(MemoryStore()))

    def open(self) -> Engine:
        """An engine of its own, with nothing known: what another process would begin with."""
        return Engine(self.store)

    def measure(self, work: Callable[[], object], *, completes: bool = False) -> _Step:
        """One operation, and what it leaves running; `completes`: a transaction whose markers are not deferred."""
        self.store.wait_until_quiet(0.005)
        self.store.take()
        self.store.call_ms = self.call_ms
        try:
            began = time.perf_counter()
            work()
            returned = time.perf_counter()
            if completes:
                wait_until_complete(self.store)
            self.store.wait_until_quiet(_QUIET_CALLS * self.call_ms / 1_000)
        finally:
            self.store.call_ms = 0.0
        return _Step(began, returned, self.store.take())

    def warm_up(self, work: Callable[[], object]) -> None:
        """A transaction that is not measured, to its Complete row."""
        self.store.take()
        work()
        wait_until_complete(self.store)

    def row(self, name: str, steps: Sequence[_Step], least: Least) -> Rounds:
        """The line of an operation that was measured a few times."""
        kinds = entry_kinds(self.store.watched, [call for step in steps for call in step.calls])
        return _row(name, [(step, kinds) for step in steps], least, self.call_ms)


def _row(name: str, steps: Sequence[tuple[_Step, EntryKinds]], least: Least, call_ms: float) -> Rounds:
    marks = [kinds.marks(step.calls) for step, kinds in steps]
    only = [step for step, _ in steps]
    returned = _median([step.point(step.returned) for step in only], call_ms)
    if returned is None:
        raise ValueError("nothing was measured")
    return Rounds(
        name,
        returned,
        _median([step.point(mark.visible) for step, mark in zip(only, marks, strict=True)], call_ms),
        _median([step.point(mark.complete) for step, mark in zip(only, marks, strict=True)], call_ms),
        statistics.median_low([objects_put(step.calls) for step in only]),
        least,
        len(steps),
    )


def _median(points: Sequence[Point | None], call_ms: float) -> Point | None:
    """None where one of them is."""
    found = [point for point in points if point is not None]
    if len(found) < len(points):
        return None
    return Point(
        statistics.median_low([point.rounds for point in found]),
        statistics.median([point.time for point in found]) * 1_000 / call_ms,
    )


# --- the operations ---------------------------------------------------------------------------------------------------


def rounds_table(*, call_ms: float, tries: int, progress: Progress) -> Iterator[Rounds]:
    """Every line, each over stores of its own."""
    parts = (_transactions, _deferred, _cycles, _first_cycle, _append, _plans, _init)
    for number, part in enumerate(parts):
        progress("rounds", number, len(parts))
        yield from part(call_ms, tries)


_TRANSACTION = Least("row and files; entries; decision; markers; Complete row", 4, 4, 5, 3 + 3 * PARTITIONS)


def _by_key(producer: Producer, topic: str = _OUT) -> None:
    producer.produce(topic, payments(_ROWS * PARTITIONS))


def _by_call(producer: Producer) -> None:
    for number in range(PARTITIONS):
        producer.produce(_OUT, payments(_ROWS), partition=number)


def _awaited(producer: Producer) -> None:
    for number in range(PARTITIONS):
        producer.produce(_OUT, payments(_ROWS), partition=number).result()


def _in_transaction(producer: Producer, produce: Callable[[Producer], None]) -> Callable[[], None]:
    def work() -> None:
        producer.begin_transaction()
        produce(producer)
        producer.commit_transaction()

    return work


def _transactions(call_ms: float, tries: int) -> Iterator[Rounds]:
    """Warm: the producer has committed before."""
    each = 2 * PARTITIONS
    awaited = Least(
        "each call: row and file, then its entry; then decision, markers, Complete row",
        each + 2, each + 2, each + 3, 3 * PARTITIONS + PARTITIONS + 2,
    )  # fmt: skip
    stage = _Stage(call_ms)
    with stage.open() as engine, engine.producer(transactional_id=_ID) as producer:
        _make_topic(engine, _OUT)
        producer.init_transactions()
        for name, produce, least in (
            ("transaction, by key", _by_key, _TRANSACTION),
            (f"transaction, {PARTITIONS} calls", _by_call, _TRANSACTION),
            (f"transaction, {PARTITIONS} awaited calls", _awaited, awaited),
        ):
            work = _in_transaction(producer, produce)
            stage.warm_up(work)
            yield stage.row(name, [stage.measure(work, completes=True) for _ in range(tries)], least)


def _deferred(call_ms: float, tries: int) -> Iterator[Rounds]:
    """Each finds the markers of the one before unwritten."""
    least = Least(
        "markers and Complete row of the one before, files meanwhile; row; entries; decision",
        5, objects=3 + 3 * PARTITIONS,
    )  # fmt: skip
    stage = _Stage(call_ms)
    with stage.open() as engine:
        _make_topic(engine, _OUT)
        producer = engine.producer(transactional_id=_ID, markers="deferred")
        producer.init_transactions()
        work = _in_transaction(producer, _by_key)
        work()
        steps = [stage.measure(work) for _ in range(tries)]
        producer.close()
        row = stage.row("transaction, deferred markers", steps, least)
        yield replace(row, visible=None, complete=None)  # what there is of them is the transaction before's


@dataclass(frozen=True, slots=True)
class _Cycle:
    """A consumer and a producer, and what one does between them."""

    consumer: Consumer
    producer: Producer

    def poll(self) -> None:
        """The next records."""
        table = self.consumer.poll(_ROWS)
        if table is None or table.num_rows != _ROWS:
            raise RuntimeError("bench: the input has run out")

    def rest(self) -> None:
        """Their transaction."""
        self.producer.begin_transaction()
        _by_key(self.producer)
        self.producer.send_offsets_to_transaction(self.consumer.positions(), self.consumer.group_metadata())
        self.producer.commit_transaction()

    def whole(self) -> None:
        """Both."""
        self.poll()
        self.rest()


_REST = Least(
    "row (the offsets' partition in it) and files; entries and offsets; decision; markers; Complete row",
    4, 4, 5, 3 + 3 * PARTITIONS + 2,
)  # fmt: skip


def _cycles(call_ms: float, tries: int) -> Iterator[Rounds]:
    """Warm: the consumer is in the middle of its files, the producer has committed before."""
    stage = _Stage(call_ms)
    with stage.open() as engine:
        _make_input(engine)
        consumer, producer = engine.consumer(group_id=_GROUP), engine.producer(transactional_id=_ID)
        with consumer, producer:
            consumer.subscribe([_IN])
            producer.init_transactions()
            cycle = _Cycle(consumer, producer)
            for _ in range(PARTITIONS + 1):
                stage.warm_up(cycle.whole)
            polls, rests = [], []
            for _ in range(tries):
                polls.append(stage.measure(cycle.poll))
                rests.append(stage.measure(cycle.rest, completes=True))
            name = "warm cycle"
            yield stage.row(f"{name}: poll", polls, Least("the logs' ends are looked at", 1))
            yield stage.row(f"{name}: the rest", rests, _REST)


def _first_cycle(call_ms: float, tries: int) -> Iterator[Rounds]:
    """A process that starts again where another has stopped: of a group and an id that are known."""
    found = [_fresh_cycle(_used_stage(call_ms)) for _ in range(tries)]
    polls, inits, rests = zip(*found, strict=True)
    name = "first cycle"
    least = Least("store.json and topic; listings of the logs; their entries; the file", 4)
    yield _row(f"{name}: connect, poll", polls, least, call_ms)
    least = Least("listing of the coordinator's log; its entries; row", 3, objects=1)
    yield _row(f"{name}: init_transactions", inits, least, call_ms)
    least = Least(
        "topic; listings of the logs; their entries; and a warm one's", 3 + 4, 3 + 4, 3 + 5, _REST.objects
    )
    yield _row(f"{name}: the rest", rests, least, call_ms)


def _used_stage(call_ms: float) -> _Stage:
    """With an input, a group that has read of it, and an id that has written."""
    stage = _Stage(call_ms)
    with stage.open() as engine:
        _make_input(engine)
        consumer, producer = engine.consumer(group_id=_GROUP), engine.producer(transactional_id=_ID)
        with consumer, producer:
            consumer.subscribe([_IN])
            producer.init_transactions()
            stage.warm_up(_Cycle(consumer, producer).whole)
    return stage


def _fresh_cycle(stage: _Stage) -> list[tuple[_Step, EntryKinds]]:
    """Poll, init and rest of a process that knows nothing."""
    made: list[Engine] = []
    cycles: list[_Cycle] = []

    def poll() -> None:
        engine = stage.open()
        made.append(engine)
        consumer, producer = engine.consumer(group_id=_GROUP), engine.producer(transactional_id=_ID)
        consumer.subscribe([_IN])
        cycles.append(_Cycle(consumer, producer))
        cycles[0].poll()

    steps = [stage.measure(poll)]
    with made[0], cycles[0].consumer, cycles[0].producer as producer:
        steps.append(stage.measure(producer.init_transactions))
        steps.append(stage.measure(cycles[0].rest, completes=True))
        kinds = entry_kinds(stage.store.watched, [call for step in steps for call in step.calls])
    return [(step, kinds) for step in steps]


def _append(call_ms: float, tries: int) -> Iterator[Rounds]:
    """Warm: the log was written to before."""
    stage = _Stage(call_ms)
    with stage.open() as engine:
        _make_topic(engine, _OUT)
        log, records = engine.partition(_OUT, 0), payments(_ROWS)
        log.append(records)
        steps = [stage.measure(lambda: log.append(records)) for _ in range(tries)]
        yield stage.row("append", steps, Least("the file; the entry that names it", 2, objects=2))


def _plans(call_ms: float, tries: int) -> Iterator[Rounds]:
    """Of a scan over logs of 50 entries, and with snapshots that hold them all."""
    stage = _Stage(call_ms)

    def plan() -> None:
        with stage.open() as engine:
            engine.scan(_OUT).files()

    with stage.open() as engine:
        _make_topic(engine, _OUT)
        for number in range(PARTITIONS):
            log, records = engine.partition(_OUT, number), payments(1)
            for _ in range(_ENTRIES):
                log.append(records)
        name = f"plan of {PARTITIONS} x {_ENTRIES} entries"
        why = "store.json and topic; listings of the logs; all their entries and the empty slots"
        yield stage.row(name, [stage.measure(plan) for _ in range(tries)], Least(why, 3))
        engine.admin.snapshot()
        why = "store.json and topic; listings of the snapshots; these and the empty slots"
        yield stage.row(f"{name}, snapshots", [stage.measure(plan) for _ in range(tries)], Least(why, 3))


def _init(call_ms: float, tries: int) -> Iterator[Rounds]:
    """With the store opened."""
    known = Least("store.json; listing of the coordinator's log; its entries; row", 4, objects=1)
    new = replace(known, why="the same; a block of ids is taken meanwhile", objects=2)
    for transactional_id, name, least in ((_ID, "a known id", known), ("new", "a new id", new)):
        steps = [_fresh_init(_used_stage(call_ms), transactional_id) for _ in range(tries)]
        yield _row(f"init_transactions, {name}", steps, least, call_ms)


def _fresh_init(stage: _Stage, transactional_id: str) -> tuple[_Step, EntryKinds]:
    def init() -> None:
        with stage.open() as engine, engine.producer(transactional_id=transactional_id) as producer:
            producer.init_transactions()

    return stage.measure(init), EntryKinds({})


def _make_topic(engine: Engine, topic: str) -> None:
    engine.admin.create_topic(topic, partitions=PARTITIONS, schema=SCHEMA, key="account_id")


def _make_input(engine: Engine) -> None:
    """A file in each partition of the input; and an empty output."""
    _make_topic(engine, _IN)
    _make_topic(engine, _OUT)
    for number in range(PARTITIONS):
        engine.partition(_IN, number).append(payments(_INPUT_ROWS))
