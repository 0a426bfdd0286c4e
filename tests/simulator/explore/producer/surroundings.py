"""What the steps of all threads share: machine and coordinator, what was seen, and small changes of a world."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.simulator.explore.producer import rules
from tests.simulator.explore.producer.remembered import RIVALS_MS, Remembered
from tests.simulator.explore.producer.threads import After
from tests.simulator.explore.producer.world import NO_ANSWER, PARTITIONS, Ref, Setting, Thread, Todo, World
from txn_engine.producer.machine import (
    AddPartitions,
    AskEnd,
    AskInit,
    Complete,
    Effect,
    Join,
    Start,
    Unfinished,
)
from txn_engine.producer.states import Call, ProducerState
from txn_engine.protocol.transaction_rows import StoredRow
from txn_engine.protocol.transactions import NOBODY

JOIN: Todo = (("join",),)


class Surroundings:
    """The surroundings of one search."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.known = Remembered()
        self.seen = rules.Seen()
        self._refusals: dict[tuple[Any, int], BaseException | None] = {}
        self._allowed: dict[tuple[Any, str], BaseException | None] = {}

    # --- the machine ----------------------------------------------------------------------------------------

    def move(self, world: World, event: str, *args: Any, **kwargs: Any) -> After:
        """Move the machine. Its effects come next."""
        moved = self.known.move(world.machine, event, *args, **kwargs)
        if moved.error is not None:
            return After(world, error=moved.error)
        rules.check_move(self.seen, world.machine.value, event, moved)
        return After(world._replace(machine=moved.machine), self.doing(moved.effects))

    def doing(self, effects: Sequence[Ref[Effect]]) -> Todo:
        """The shell's steps for these effects."""
        return tuple(step for effect in effects for step in self._doing(effect))

    def _doing(self, effect: Ref[Effect]) -> Todo:
        asked = effect.value
        match asked:
            case Start():
                return (("start",),)
            case Join():
                return (("join in the pool",),)
            case AskInit() if self.setting.resumes and asked.held == NOBODY:
                return (("take over",),)
            case AskInit():
                return (("wait for completion",), ("ask to init", asked.held))
            case AddPartitions():
                return (*self._finish(asked.unfinished), ("ask to add", effect), ("add over", effect))
            case AskEnd():
                return (*self._finish(asked.unfinished), ("ask to end", effect))
            case Complete():
                decision = self.known.refs.of(asked.decision)
                return (("ask to complete", decision), ("completed", decision))

    def _finish(self, unfinished: Unfinished | None) -> Todo:
        """The step that finishes the last transaction first."""
        if unfinished is None:
            return ()
        decision = self.known.refs.of(unfinished.decision)
        return (
            (("ask to complete", decision),) if unfinished.is_marked else (("mark what is owed", decision),)
        )

    def refusal_of(self, world: World, call: str) -> BaseException | None:
        """The error with which `allow` refuses a call."""
        key = (world.machine, call)
        if key not in self._allowed:
            self._allowed[key] = self.known.try_to_allow(world.machine, Call(call))
        return self._allowed[key]

    def refusal(self, world: World, partition: int) -> BaseException | None:
        """The error with which a lane's batches fail."""
        key = (world.machine, partition)
        if key not in self._refusals:
            self._refusals[key] = self.known.try_to_send(world.machine, PARTITIONS[partition])
        return self._refusals[key]

    def admits(self, world: World, partition: int) -> bool:
        """Whether a lane may append."""
        return world.machine.value.admits(PARTITIONS[partition])

    def has_work(self, world: World, partition: int) -> bool:
        """Whether a lane's thread would find something to do."""
        lane = world.lanes[partition]
        if lane == "uploaded":
            return self.admits(world, partition) or self.refusal(world, partition) is not None
        return lane == "queued"

    # --- the coordinator's log ------------------------------------------------------------------------------

    def write(self, world: World, row: Ref[StoredRow | None] | None, *, by: str) -> World:
        """Write a row, if there is one. `by`: whose decision allows it, "fenced" for anybody else's."""
        if row is None or row.value is None or world.row.value is None:
            return world
        after, before = row.value.row, world.row.value.row
        if after.state.is_prepared and not before.state.is_prepared:
            identity = (after.producer_id, after.last_producer_epoch)
            if identity == world.machine.value.identity and (by != "fenced" or before.start_ms != RIVALS_MS):
                if by != "fenced":
                    rules.check_decision(world, committed=by == "commit")
                world = world._replace(outcome=by)
        elif before.state.is_prepared:
            rules.check_complete(world)
        return world._replace(row=row)


def lane(world: World, partition: int, what: str) -> World:
    """Change the state of a partition's batch."""
    lanes = world.lanes
    return world._replace(lanes=(*lanes[:partition], what, *lanes[partition + 1 :]))


def submit(world: World, name: str, todo: Todo) -> World | None:
    """Add one thread to the pool. None if the engine is closed. A second thread with the same work adds
    nothing."""
    return None if world.engine_closed else world._replace(pool=world.pool | {Thread(name, todo)})


def marked(world: World, row: StoredRow, *, but: int = -1) -> World:
    """Write the decision's markers into its partitions, into all but one if something fails."""
    epoch = row.row.producer_epoch
    marks = tuple(
        max(mark, epoch) if PARTITIONS[number] in row.row.partitions and number != but else mark
        for number, mark in enumerate(world.marks)
    )
    return world._replace(marks=marks)


def lost(world: World, after: World) -> Iterator[After]:
    """A request without an answer, if one more thing may go wrong: not carried out, or carried out."""
    if world.faults:
        yield After(world, error=NO_ANSWER, fault="no answer, nothing done")
        if after.row is not world.row:
            yield After(after, error=NO_ANSWER, fault="the answer is lost")


def is_undecided(world: World) -> bool:
    """Whether `close` aborts."""
    return world.machine.value.state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR)
