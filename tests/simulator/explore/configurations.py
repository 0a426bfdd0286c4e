"""The searched configurations: one id, two partitions, one or two owners, one or two sweepers, and one record
in each partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa

from tests.simulator.applications import Application, create_topics, note_places, records
from tests.simulator.explore.automaton import Told, told_by
from tests.simulator.history import RecordId, Writing
from tests.simulator.kernel import HOUR
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.producer import Producer
from txn_engine.producer.partitioner import split_by_key
from txn_engine.types import MarkerMode

TOPIC = "pair"
_ID = "shared"
_TIMED_OUT_MS = HOUR // 1_000


@dataclass(frozen=True, slots=True)
class Actor:
    """One process of a configuration."""

    name: str
    body: Body
    skew_ms: int = 0


@dataclass(frozen=True, slots=True)
class Configuration:
    """The actors and their store, and what may go wrong: at most `faults` times in all, of these `kinds`.

    Kinds: "late" (an error; the put lands at any later moment or never, and is a lost reply if it lands at
    once), "lost" (only that), "conflict" (409, nothing written), "taken-after" (stored, and 412 to the
    writer), "unread" (a read fails), "crash". `any_order`: the threads of one process interleave too, not
    only the processes.
    """

    name: str
    words: str
    actors: tuple[Actor, ...]
    prepare: Callable[[Process, Engine], None]
    faults: int = 0
    kinds: frozenset[str] = frozenset()
    any_order: bool = False

    def base(self) -> tuple[dict[str, bytes], tuple[Told, ...]]:
        """The store before anybody acts, and what the clients that prepared it know."""
        world = World(1, replace(Knobs(intensity=0.0, skewed_clocks=False), coordinator_partitions=1))
        world.plan.enabled = False
        world.set_up_store()
        world.run_alone("setup", self.prepare)
        world.bury()
        return {key: data for key, (data, _) in world.shelf.objects.items()}, told_by(world)


# --- what the store holds before --------------------------------------------------------------------------


def _known_id(process: Process, engine: Engine) -> None:
    """Create the topic, and an id that was initialised once: its producer id is given out, and its epoch is
    0."""
    create_topics(engine, 2, TOPIC)
    engine.producer(transactional_id=_ID).init_transactions()


def _decided(process: Process, engine: Engine) -> None:
    """Write a transaction that was decided to commit, without any marker."""
    create_topics(engine, 2, TOPIC)
    _transact(process, engine, "deferred")


# --- who acts ---------------------------------------------------------------------------------------------


def _transact(process: Process, engine: Engine, markers: MarkerMode) -> None:
    app = Application(process, engine, _ID, markers=markers)
    app.transact(process.name, lambda producer, writing: _write(app, producer, writing))


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    """Write one record into each of the two partitions, in one call."""
    ids: list[RecordId] = [(writing.name, 0), (writing.name, 1)]
    writing.records = {(TOPIC, number): [ids[number]] for number in range(2)}
    future = producer.produce(TOPIC, _table(tuple(ids)))
    future.add_done_callback(lambda done: note_places(writing, ids, done))


@cache
def _table(ids: tuple[RecordId, ...]) -> pa.Table:
    return records(list(ids), accounts=list(_ACCOUNTS))


def _account_in(partition: int) -> int:
    for account in range(1, 1_000):
        table = records([("", 0)], accounts=[account])
        if next(iter(split_by_key(table, "account", 2, 0)))[0] == partition:
            return account
    raise AssertionError(f"no account falls into partition {partition}")


_ACCOUNTS = (_account_in(0), _account_in(1))


def _owner(name: str, *, markers: MarkerMode = "inline") -> Actor:
    return Actor(name, lambda process, engine: _transact(process, engine, markers))


def _marker_sweeper(name: str) -> Actor:
    def body(process: Process, engine: Engine) -> None:
        try:
            engine.coordinator.write_pending_markers()
        except TxnEngineError:
            return  # the next sweep does it

    return Actor(name, body)


def _time_out_sweeper(name: str) -> Actor:
    """A sweeper whose clock makes every open transaction look timed out, at any moment."""

    def body(process: Process, engine: Engine) -> None:
        try:
            engine.coordinator.abort_timed_out_transactions()
        except TxnEngineError:
            return  # the next sweep does it

    return Actor(name, body, skew_ms=_TIMED_OUT_MS)


CONFIGURATIONS = {
    each.name: each
    for each in (
        Configuration("a", "two owners of one id", (_owner("owner-a"), _owner("owner-b")), _known_id),
        Configuration(
            "b",
            "an owner, a time-out sweeper, a marker sweeper",
            (_owner("owner"), _time_out_sweeper("time-out"), _marker_sweeper("markers")),
            _known_id,
        ),
        Configuration(
            "c",
            "two owners of one id, a marker sweeper",
            (_owner("owner-a"), _owner("owner-b"), _marker_sweeper("markers")),
            _known_id,
        ),
        Configuration(
            "d",
            "two marker sweepers on a decided transaction; one dies anywhere",
            (_marker_sweeper("markers-a"), _marker_sweeper("markers-b")),
            _decided,
            faults=1,
            kinds=frozenset({"crash"}),
        ),
        Configuration(
            "e",
            "an owner, a time-out sweeper; one put goes wrong in any way",
            (_owner("owner"), _time_out_sweeper("time-out")),
            _known_id,
            faults=1,
            kinds=frozenset({"late", "conflict", "taken-after"}),
        ),
        Configuration(
            "f",
            "an owner, a time-out sweeper; one of them dies anywhere, or a read fails",
            (_owner("owner"), _time_out_sweeper("time-out")),
            _known_id,
            faults=1,
            kinds=frozenset({"crash", "unread"}),
        ),
        Configuration(
            "g",
            "an owner, a time-out sweeper; a late put whose sender dies or cannot read back, and any two of these",
            (_owner("owner"), _time_out_sweeper("time-out")),
            _known_id,
            faults=2,
            kinds=frozenset({"late", "unread", "crash"}),
        ),
        Configuration(
            "h",
            "an owner, a time-out sweeper, whose threads interleave as well; one of them dies anywhere",
            (_owner("owner"), _time_out_sweeper("time-out")),
            _known_id,
            faults=1,
            kinds=frozenset({"crash"}),
            any_order=True,
        ),
    )
}
