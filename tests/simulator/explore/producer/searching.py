"""Search breadth first over everything that can happen next, with each state once."""

from __future__ import annotations

import gc
import math
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.simulator.explore.producer import calls, pool, rules
from tests.simulator.explore.producer.remembered import first_row
from tests.simulator.explore.producer.rules import Broken, Seen
from tests.simulator.explore.producer.surroundings import Surroundings
from tests.simulator.explore.producer.threads import Programs, Went
from tests.simulator.explore.producer.world import (
    INTERRUPT,
    NAME,
    PARTITIONS,
    RUN,
    Bounds,
    Setting,
    Thread,
    Todo,
    World,
)
from txn_engine.producer.machine import new_machine
from txn_engine.producer.states import Call, ProducerState

PROGRAMS = Programs(
    {**calls.STEPS, **pool.STEPS},
    {**calls.HANDLERS, **pool.HANDLERS},
    calls.LOOKS | pool.LOOKS,
    pool.ALONG,
    calls.ALONG,
)
_SAY_EVERY_SECONDS = 1.0
_UNSETTLED = ("queued", "uploaded", "sent")


@dataclass(slots=True)
class Finding:
    """The rule that did not hold, and a shortest way there."""

    text: str
    steps: list[str]


@dataclass(slots=True)
class Result:
    """A search. `complete` says that nothing within its bounds was left out."""

    states: int = 0
    moves: int = 0
    depth: int = 0
    machines: int = 0
    seconds: float = 0.0
    complete: bool = False
    seen: Seen = field(default_factory=Seen)
    findings: list[Finding] = field(default_factory=list)


Progress = Callable[[Result, int], None]

Happens = tuple[Any, ...]
"""Who, the step, what went wrong, and how the call ended."""


class Search:
    """Every state that a producer of one setting can reach within the bounds."""

    def __init__(self, setting: Setting, bounds: Bounds, seen: Seen | None = None) -> None:
        self._at = Surroundings(setting)
        if seen is not None:
            self._at.seen = seen
        self._bounds = bounds
        self._numbers: dict[World, int] = {}
        self._parents = array("q")
        self._happened: list[Happens] = []
        self._last: Happens = ("", (), "")
        self._refused_others: set[object] = set()
        self._inside = array("q")  # pairs of states with a call under way, the second one follows the first
        self.result = Result(seen=self._at.seen)

    def run(
        self, *, states_max: float = math.inf, until: float = math.inf, say: Progress | None = None
    ) -> Result:
        """Search until everything is seen, a rule is broken, there are this many states, or the monotonic
        clock says `until`."""
        result, began = self.result, time.monotonic()
        say_at = began + _SAY_EVERY_SECONDS
        layer = [self.start()]
        self._add(layer[0], -1, ("", (), ""))
        gc.disable()  # all that is made here stays
        try:
            while layer and len(self._numbers) < states_max and time.monotonic() < until:
                following: list[World] = []
                for world in layer:
                    self._expand(world, following)
                    if say is not None and time.monotonic() >= say_at:
                        say_at = time.monotonic() + _SAY_EVERY_SECONDS
                        self._count(began)
                        say(result, len(following))
                layer = following
                result.depth += bool(layer)
            result.complete = not layer
            if result.complete:
                self._check_circles()
        except _Found as found:
            result.findings.append(Finding(str(found.broken), self._way(found.at, found.step)))
        finally:
            gc.enable()
        self._count(began)
        return result

    def _count(self, began: float) -> None:
        self.result.states = len(self._numbers)
        self.result.machines = self._at.known.machines
        self.result.seconds = time.monotonic() - began

    def start(self) -> World:
        """A new producer, of an id that was initialised once."""
        machine = self._at.known.machine(new_machine(NAME))
        self._at.seen.states.add(machine.value.state)
        row = first_row()
        return World(
            machine=machine,
            row=self._at.known.refs.of(row),
            marks=(-1,) * len(PARTITIONS),
            lanes=("",) * len(PARTITIONS),
            user=None,
            pool=frozenset(),
            ender=False,
            broken_off=None,
            completion=-1,
            engine_closed=False,
            outcome="",
            is_torn=False,
            faults=self._bounds.faults,
            transactions=self._bounds.transactions,
            inits=self._bounds.inits,
            batches=self._bounds.batches,
            callbacks=self._bounds.callbacks,
        )

    # --- the graph ------------------------------------------------------------------------------------------

    def _add(self, world: World, parent: int, happens: Happens) -> int | None:
        """The state's number, if the state is new."""
        if world in self._numbers:
            return None
        number = self._numbers[world] = len(self._numbers)
        self._parents.append(parent)
        self._happened.append(happens)
        return number

    def _expand(self, world: World, following: list[World]) -> None:
        number = self._numbers[world]
        is_waiting = world.user is not None
        try:
            for happens, then, by_itself in self._moves(world):
                after = pool.without_idlers(self._at, then)
                rules.check_pool(after)
                self.result.moves += 1
                is_waiting = is_waiting and not by_itself
                if self._add(after, number, happens) is not None:
                    following.append(after)
                if world.user is not None and after.user is not None:
                    self._inside.extend((number, self._numbers[after]))
            if is_waiting and world.user is not None:
                raise Broken("nobody-waits-for-ever", f"{world.user.name} waits: {_step(world.user.todo[0])}")
            rules.check_rest(world)
        except Broken as broken:
            raise _Found(broken, number, self._last) from None

    def _moves(self, world: World) -> Iterator[tuple[Happens, World, bool]]:
        """What may happen next, as (what happens, the world after it, whether it comes by itself, without a
        fault or a new call)."""
        if world.user is None:
            for name, todo, called in self._new_calls(world):
                for happens, after, _ in self._user_moves(called, Thread(name, todo)):
                    yield happens, after, False
        else:
            self._refuse_others(world)
            yield from self._user_moves(world, world.user)
            if world.faults:
                self._last = (world.user.name, world.user.todo[0], "Ctrl-C")
                went = PROGRAMS.break_off(self._at, world, world.user.todo, INTERRUPT, "Ctrl-C")
                yield self._after_user(world.user.name, went)
        for thread in sorted(world.pool, key=_place):
            without = world._replace(pool=world.pool - {thread})
            for went in self._goes_on(without, thread, in_pool=True):
                after = _spent(went)
                if went.todo:
                    after = after._replace(pool=after.pool | {Thread(thread.name, went.todo)})
                yield (*self._last[:2], went.fault), after, not went.fault
        called_back = pool.callback_elsewhere(self._at, world)
        if called_back is not None:
            yield ("", ("a callback of another producer's batch",), ""), called_back, False
        for words, after in pool.others(self._at, world):
            yield ("", (words,), words), after, False

    def _goes_on(self, world: World, thread: Thread, *, in_pool: bool = False) -> Iterator[Went]:
        self._last = (thread.name, thread.todo[0], "")
        return PROGRAMS.go_on(self._at, world, thread, in_pool=in_pool)

    def _user_moves(self, world: World, thread: Thread) -> Iterator[tuple[Happens, World, bool]]:
        for went in self._goes_on(world, thread):
            yield self._after_user(thread.name, went)

    def _after_user(self, call: str, went: Went) -> tuple[Happens, World, bool]:
        after = _spent(went)
        if went.todo:
            return (*self._last[:2], went.fault), after._replace(user=Thread(call, went.todo)), not went.fault
        after = after._replace(user=None)
        if went.error is None:
            rules.check_return(after, call)
        ended = "returns" if went.error is None else type(went.error).__name__
        return (*self._last[:2], went.fault, ended), after, not went.fault

    # --- calls ----------------------------------------------------------------------------------------------

    def _new_calls(self, world: World) -> Iterator[tuple[str, Todo, World]]:
        state = world.machine.value.state
        for name, todo in self._offered(world):
            self._at.seen.calls.add((state, name))
            if name == Call.BEGIN_TRANSACTION:
                yield name, todo, world._replace(transactions=world.transactions - 1)
            elif name == Call.INIT_TRANSACTIONS:
                yield name, todo, world._replace(inits=world.inits - 1)
            elif name in (Call.PRODUCE, Call.SEND_OFFSETS):
                yield name, todo, world._replace(batches=world.batches - 1)
            else:
                yield name, todo, world

    def _offered(self, world: World) -> Iterator[tuple[str, Todo]]:
        """The calls that may be made now. A call that the machine refuses at once changes nothing and is
        checked here."""
        for call in Call:
            name = call.value
            refused = self._at.refusal_of(world, name)
            if refused is not None and world.broken_off is None:
                self._last = ("", (call, "refused"), "")
                rules.check_refusal(world, name, refused)
                self._at.seen.calls.add((world.machine.value.state, name))
            else:
                yield from ((name, todo) for todo in self._ways_of(world, call))
        if world.machine.value.state is not ProducerState.CLOSED:
            yield "close", calls.CLOSE
        elif world.broken_off is not None:
            yield "close again", calls.CLOSE
        else:
            self._at.seen.calls.add((ProducerState.CLOSED, "close"))
        if any(what in _UNSETTLED for what in world.lanes) or world.machine.value.waiting is not None:
            yield "flush", calls.FLUSH
        else:
            self._at.seen.calls.add((world.machine.value.state, "flush"))

    def _ways_of(self, world: World, call: Call) -> Iterator[Todo]:
        free = [number for number, what in enumerate(world.lanes) if not what and world.batches]
        meant = {step for thread in world.pool for step in thread.todo}
        free = [number for number in free if not meant & {("callback", number), ("handed over", number)}]
        match call:
            case Call.INIT_TRANSACTIONS if world.inits:
                yield calls.INIT
            case Call.BEGIN_TRANSACTION if world.transactions:
                yield calls.begin(None)
                yield calls.begin(RUN)
            case Call.PRODUCE if free:
                yield calls.produce(free[0])  # partitions are alike: the first will do
            case Call.SEND_OFFSETS if 1 in free:
                yield calls.SEND_OFFSETS
            case Call.COMMIT_TRANSACTION:
                yield calls.COMMIT
            case Call.ABORT_TRANSACTION:
                yield calls.ABORT

    def _refuse_others(self, world: World) -> None:
        """Let the machine refuse a second thread's call during an end, once for each machine."""
        is_closed = world.machine.value.state is ProducerState.CLOSED  # where a second close says nothing
        if not world.ender or is_closed or world.broken_off or world.machine in self._refused_others:
            return
        self._refused_others.add(world.machine)
        for todo in calls.BEGINNINGS:
            for went in self._goes_on(world, Thread("another thread", todo)):
                if went.error is None or went.world != world:
                    raise Broken("refused-alone", f"{_step(todo[0])} goes on beside an end")

    # --- what was found -------------------------------------------------------------------------------------

    def _check_circles(self) -> None:
        """Order all states with a call under way by Kahn's algorithm. States that are left over form a
        circle."""
        degrees = array("l", bytes(self._inside.itemsize * len(self._numbers)))
        after: dict[int, list[int]] = {}
        for at in range(0, len(self._inside), 2):
            degrees[self._inside[at + 1]] += 1
            after.setdefault(self._inside[at], []).append(self._inside[at + 1])
        ready = [number for number in range(len(degrees)) if not degrees[number]]
        left = len(degrees)
        while ready:
            number = ready.pop()
            left -= 1
            for following in after.get(number, ()):
                degrees[following] -= 1
                if not degrees[following]:
                    ready.append(following)
        if left:
            at = next(number for number in range(len(degrees)) if degrees[number])
            raise _Found(Broken("calls-end", f"{left} states"), at, None)

    def _way(self, number: int, last: Happens | None) -> list[str]:
        steps = [] if last is None else [last]
        while number > 0:
            steps.append(self._happened[number])
            number = self._parents[number]
        return [_words(*step) for step in reversed(steps)]


class _Found(Exception):
    def __init__(self, broken: Broken, at: int, step: Happens | None) -> None:
        super().__init__()
        self.broken, self.at, self.step = broken, at, step


def _place(thread: Thread) -> tuple[str, int]:
    """The order in which threads are looked at, which is the same in every run."""
    return thread.name, len(thread.todo)


def _spent(went: Went) -> World:
    return went.world._replace(faults=went.world.faults - 1) if went.fault else went.world


def _words(who: str, step: tuple[object, ...], fault: str, ended: str = "") -> str:
    text = f"{who}: {_step(step)}" if who else _step(step)
    return text + (f"  *** {fault} ***" if fault else "") + (f" -> {ended}" if ended else "")


def _step(step: tuple[object, ...]) -> str:
    told = [str(part) for part in step if isinstance(part, (str, int)) and not isinstance(part, bool)]
    return " ".join(told)
