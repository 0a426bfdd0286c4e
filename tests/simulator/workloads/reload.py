"""A load is run again after a crash or a lost reply: its run id says whether an earlier try was committed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from tests.simulator.applications import Application, create_topics
from tests.simulator.checks import Final
from tests.simulator.history import Writing
from tests.simulator.kernel import MINUTE, SECOND
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background, rest
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.producer import Producer
from txn_engine.protocol.transaction_rows import MAX_RUN_IDS

TOPICS = ("loaded",)
_CLIENTS = 2
_TRIES = 10


def shape(knobs: Knobs) -> Knobs:
    """Ids that expire after a minute, so that a load finds its id forgotten."""
    return replace(knobs, id_expiration_ms=60_000)


def set_up(world: World) -> None:
    """Two loaders that begin with their first load again after each crash, like a task that is run again."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    has_elder = world.chance.at("elder") < 0.2
    if has_elder:
        world.run_alone("elder runs", _elder_runs)  # before there is an undertaker, whose clock may be ahead
    for number in range(_CLIENTS):
        world.client(f"loader{number}", _loader(number, max(world.knobs.transactions // _CLIENTS, 1)))
    world.client("undertaker", _undertaker, worker=False)
    if has_elder:
        world.client("elder", _elder)
    add_background(world, TOPICS)


def _elder_runs(_: Process, engine: Engine) -> None:
    """Commit more runs with an id than its row remembers."""
    producer = engine.producer(transactional_id="elder")
    producer.init_transactions()
    for number in range(MAX_RUN_IDS + 1):
        with producer.transaction(run_id=f"elder-{number}"):
            pass


def _elder(process: Process, engine: Engine) -> None:
    """For a run that the log has forgotten the answer is None, which is different from False."""
    app = Application(process, engine, "elder")
    producer = app.ready()
    if producer is None:
        return
    forgotten, known = producer.has_committed("elder-0"), producer.has_committed(f"elder-{MAX_RUN_IDS}")
    if forgotten is not None or known is not True:
        process.world.history.complain(f"elder: a forgotten run is {forgotten}, the last one {known}")


def _undertaker(process: Process, engine: Engine) -> None:
    world, rounds = process.world, 0
    while not world.stopping:
        rounds += 1
        with suppress(TxnEngineError):
            engine.coordinator.expire_transactional_ids()
        rest(process, rounds)


def _loader(number: int, loads: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, f"loader-{number}", timeout_ms=20_000)
        for load in range(loads):
            run_id = f"run-{number}-{load}"
            for attempt in range(_TRIES):
                if _load(app, run_id, f"{run_id}@{process.name}-{attempt}"):
                    break
                app.rest(high=5 * SECOND)
            if process.world.chance.at("idle", process.name, load) < 0.2:
                app.rest(low=MINUTE, high=10 * MINUTE)

    return body


def _load(app: Application, run_id: str, name: str) -> bool:
    producer = app.ready()
    if producer is None:
        return False
    try:
        known = producer.has_committed(run_id)
    except TxnEngineError:
        return False
    if known is None:
        app.world.history.complain(f"unknown run: has_committed({run_id!r}) is None within the last 100 runs")
    if known:
        return True
    writing = app.transact(name, lambda producer, writing: _fill(app, producer, writing), run_id=run_id)
    return writing is not None and writing.outcome == "ok"


def _fill(app: Application, producer: Producer, writing: Writing) -> None:
    draw = app.world.chance.random("load", writing.name)
    if draw.random() < 0.1:
        return  # a load that finds nothing to do is a run all the same
    for _ in range(draw.randint(1, 3)):
        app.write(
            producer, writing, TOPICS[0], draw.randrange(app.world.knobs.partitions), draw.randint(1, 2)
        )


def check(world: World, final: Final) -> list[str]:
    """No load is there twice."""
    tries: dict[str, set[str]] = {}
    for rows in final.values():
        for _, (name, _n) in rows:
            tries.setdefault(name.partition("@")[0], set()).add(name)
    return [f"loaded twice: {run_id} by {sorted(names)}" for run_id, names in tries.items() if len(names) > 1]
