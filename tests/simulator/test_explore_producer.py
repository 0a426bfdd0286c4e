"""The search of the producer's machine: small bounds are searched completely, the model takes the shell's
steps, and bugs are found."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from storage import MemoryStore
from tests.kafka_rules.driver import SCHEMA, T3, TOPIC, fresh_id, records
from tests.simulator.explore.hunting import PRODUCER, WHERE, hunt_all
from tests.simulator.explore.producer import calls
from tests.simulator.explore.producer.bugs import MUTANTS
from tests.simulator.explore.producer.calls import begin, produce
from tests.simulator.explore.producer.rules import RULES
from tests.simulator.explore.producer.searching import PROGRAMS, Result, Search
from tests.simulator.explore.producer.surroundings import Surroundings
from tests.simulator.explore.producer.world import INLINE, RESUMED, SEARCHES, Bounds, Thread, Todo, World
from txn_engine import Engine, OffsetAndMetadata
from txn_engine.producer import Producer
from txn_engine.producer.cell import Cell
from txn_engine.types import ConsumerGroupMetadata, FetchedRow

SMALL = Bounds(transactions=1, inits=1, batches=1, callbacks=0, faults=1)
LONG = {
    "a-row-beside-the-complete-row": "damage",
    "an-abort-takes-a-rivals-transaction": "damage",
    "joined-for-good": "engines",
    "a-callback-is-over-before-it-has-failed": "engines",
    "whoever-completes-looks-no-further": "machine",
    "close-waits-for-the-last-thread-alone": "machine",
}
"""Bugs whose hunt goes through hundreds of thousands of states, and the shards that have time for it."""
"""A few bugs that are found again: the first in `make test`, the others in the shard."""


def _check(result: Result) -> None:
    lines = [line for finding in result.findings for line in (finding.text, *finding.steps)]
    assert not result.findings, "\n".join(lines)


def test_one_transaction_and_one_fault_are_seen_whole() -> None:
    """A complete search with one transaction and one fault finds nothing wrong, and a second search sees
    exactly the same."""
    first, again = Search(INLINE, SMALL).run(), Search(INLINE, SMALL).run()
    _check(first)
    assert first.complete
    assert first.states > 5_000
    assert (again.states, again.moves, again.machines) == (first.states, first.moves, first.machines)


def test_an_identity_resumed_and_a_rival() -> None:
    """If two producers resume one identity, the second one ends nothing of the first one's, whatever is interrupted."""
    result = Search(RESUMED, SMALL).run()
    _check(result)
    assert result.complete


def test_what_nobody_saw_is_said() -> None:
    """With small bounds some moves of the machine are never made, and the search names them."""
    missing = Search(INLINE, SMALL).run().seen.missing()
    assert "move READY to FATAL_ERROR" in missing
    assert "move IN_TRANSACTION to ABORTABLE_ERROR" not in missing


def test_the_searches_have_names_of_their_own() -> None:
    assert len({sought.name for sought in SEARCHES}) == len(SEARCHES)


def test_every_bug_of_the_producer_is_sought_in_its_machine() -> None:
    assert {WHERE[mutant.name] for mutant in MUTANTS} == {PRODUCER}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(mutant.name, marks=pytest.mark.shard(LONG.get(mutant.name, "simulator")))
        for mutant in MUTANTS
    ],
)
def test_every_bug_of_the_producer_is_found_again(name: str) -> None:
    """Each bug that belongs to the producer's machine is found, by one of its rules and with a schedule."""
    (hunt,) = hunt_all([name])
    assert hunt.finding.partition(":")[0] in RULES
    assert hunt.steps


# --- the model and the shell --------------------------------------------------------------------------------

GROUP = ConsumerGroupMetadata("g", "member", {T3: FetchedRow(-1, 0)})
CALM: tuple[tuple[str, Todo, Callable[[Producer], Any]], ...] = (
    ("init", calls.INIT, Producer.init_transactions),
    ("begin", begin(None), Producer.begin_transaction),
    ("produce", produce(0), lambda producer: producer.produce(TOPIC, records(count=1), partition=0).result()),
    (
        "offsets",
        calls.SEND_OFFSETS,
        lambda p: p.send_offsets_to_transaction({T3: OffsetAndMetadata(0)}, GROUP),
    ),
    ("flush", calls.FLUSH, Producer.flush),
    ("commit", calls.COMMIT, Producer.commit_transaction),
    ("begin", begin("run"), lambda producer: producer.begin_transaction("run")),
    ("commit", calls.COMMIT, Producer.commit_transaction),
    ("begin", begin(None), Producer.begin_transaction),
    ("abort", calls.ABORT, Producer.abort_transaction),
    ("begin", begin(None), Producer.begin_transaction),
    ("produce", produce(0), lambda producer: producer.produce(TOPIC, records(count=1), partition=0).result()),
    ("close", calls.CLOSE, Producer.close),
)
"""Calls of which each is answered before the next, in the model and as users make them."""


def _of_the_shell(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """For each move that a producer's caller makes in its own thread: the call, the event and the state after it."""
    made: list[tuple[str, str, str]] = []
    real, caller = Cell.move, threading.get_ident()
    calling = [""]

    def move(cell: Cell, event: Any, *args: Any, **kwargs: Any) -> Any:
        before = cell.now
        effects = real(cell, event, *args, **kwargs)
        if threading.get_ident() == caller and event.__name__ != "wrote_offsets" and cell.now != before:
            made.append((calling[0], event.__name__, str(cell.now.state)))
        return effects

    monkeypatch.setattr(Cell, "move", move)
    engine = Engine(MemoryStore(fresh_id("store")))
    engine.admin.create_topic(TOPIC, partitions=4, schema=SCHEMA)
    producer = engine.producer(transactional_id="shared")
    for called, _, call in CALM:
        calling[:] = [called]
        call(producer)
    engine.close()
    return made


def _of_the_model() -> list[tuple[str, str, str]]:
    """The same for the model: the pool's threads go on while the caller waits, and between two calls."""
    at = Surroundings(INLINE)
    made: list[tuple[str, str, str]] = []
    named: dict[tuple[object, object], str] = {}
    real = at.move

    def move(world: World, event: str, *args: Any, **kwargs: Any) -> Any:
        after = real(world, event, *args, **kwargs)
        named[world.machine, after.world.machine] = event
        return after

    at.move = move  # type: ignore[method-assign]
    world = Search(INLINE, Bounds(9, 9, 9, 0, 1)).start()
    world = world._replace(machine=at.known.machine(world.machine.value))
    for called, todo, _ in CALM:
        world = world._replace(user=Thread(called, todo))
        while world.user is not None:
            before = world
            went = next(
                (w for w in PROGRAMS.go_on(at, world, world.user, in_pool=False) if not w.fault), None
            )
            if went is None:
                world = _pool_goes_on(at, world)
                continue
            assert went.error is None
            world = went.world._replace(user=Thread(called, went.todo) if went.todo else None)
            if world.machine is not before.machine:
                event = named[before.machine, world.machine]
                made.append((called, event, str(world.machine.value.state)))
        while world.pool:
            world = _pool_goes_on(at, world)
    return made


def _pool_goes_on(at: Surroundings, world: World) -> World:
    """Let one of the pool's threads take one step."""
    thread = min(world.pool, key=lambda each: each.name)
    without = world._replace(pool=world.pool - {thread})
    went = next(w for w in PROGRAMS.go_on(at, without, thread, in_pool=True) if not w.fault)
    rest = {Thread(thread.name, went.todo)} if went.todo else set()
    return went.world._replace(pool=went.world.pool | rest)


def test_the_model_takes_the_shells_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing goes wrong, a real producer's caller moves its machine by the same events as the model's
    caller, call by call, and ends in the same states."""
    assert _of_the_model() == _of_the_shell(monkeypatch)
