"""One producer, two threads: one runs transactions, and the other flushes, produces, aborts and closes
meanwhile."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from tests.simulator.applications import Application, create_topics, note_places, records
from tests.simulator.history import RecordId, Writing
from tests.simulator.kernel import HOUR, MS, SECOND, sleep
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background, reader
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.producer import Producer

TOPICS = (
    "first",
    "second",
)  # each thread has a topic of its own, so that the order of its records is its own
_CLIENTS = 2
_CALLS = 6


@dataclass(slots=True)
class _Shared:
    """What the two threads of a process know of each other."""

    app: Application
    writing: Writing | None = None
    is_over: bool = False
    calls: int = 0
    steps: int = 0
    """How often the first thread has gone on."""


def set_up(world: World) -> None:
    """Processes of two threads each, and a reader."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    for number in range(_CLIENTS):
        world.client(f"pair{number}", _pair(number, max(world.knobs.transactions // _CLIENTS, 1)))
    world.client("dashboard", reader(TOPICS), worker=False)
    add_background(world, TOPICS, sweepers=1)


def _pair(number: int, transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        shared = _Shared(Application(process, engine, f"pair-{number}", timeout_ms=30_000))
        process.start("second", lambda: _second(shared))
        try:
            for index in range(transactions):
                name = f"{process.name}-{index}"
                # A run id keeps the application from deciding behind the producer's back, which no thread can know of.
                shared.app.transact(
                    name, lambda producer, writing: _first(shared, producer, writing), run_id=name
                )
                shared.app.rest(high=5 * SECOND)
        finally:
            shared.is_over = True

    return body


def _first(shared: _Shared, producer: Producer, writing: Writing) -> None:
    shared.writing = writing
    world = shared.app.world
    draw = world.chance.random("first", writing.name)
    for _ in range(draw.randint(1, 4)):
        shared.steps += 1
        shared.app.write(
            producer, writing, TOPICS[0], draw.randrange(world.knobs.partitions), draw.randint(1, 3)
        )
        if draw.random() < 0.3:
            shared.app.rest(high=200 * MS)


def _second(shared: _Shared) -> None:
    app = shared.app
    name = f"second-{app.process.name}"
    heard, longest = 0, 2 * SECOND
    while not shared.is_over:
        shared.calls += 1
        draw = app.world.chance.random(name, shared.calls)
        # One call of the first thread may take days: this one rests the longer, the longer nothing happens there.
        longest = 2 * SECOND if shared.steps != heard else min(longest * 2, HOUR)
        heard = shared.steps
        sleep(app.world.chance.spread(5 * MS, longest, name, shared.calls))
        producer = app.producer
        if producer is None:
            continue
        with suppress(TxnEngineError):  # refused, or failed: the first thread goes by what it is told itself
            for _ in range(draw.randint(1, _CALLS)):
                what = draw.random()
                if what < 0.6:
                    producer.flush()
                elif what < 0.95:
                    _produce(shared, producer, draw.randrange(app.world.knobs.partitions))
                elif what < 0.98:
                    producer.abort_transaction()
                else:
                    producer.close()


def _produce(shared: _Shared, producer: Producer, partition: int) -> None:
    """Produce records that belong to the transaction that was open when they were accepted, and share its
    fate."""
    shared.calls += 1
    ids: list[RecordId] = [(f"{shared.app.process.name}/{shared.calls}", 0)]
    future = producer.produce(TOPICS[1], records(ids), partition=partition)
    writing = shared.writing
    if writing is None:
        shared.app.world.history.complain("threads: records were taken before there was a transaction")
        return
    writing.records.setdefault((TOPICS[1], partition), []).extend(ids)
    future.add_done_callback(lambda done: note_places(writing, ids, done))
