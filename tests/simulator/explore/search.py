"""Breadth first over everything that can happen next, each state once.

A state is what the store holds, where each process is, which puts are still to land, and how many faults are left. What
commutes leads to the same state and is looked at once. Three reductions, none of which leaves an outcome out:

- a request whose answer can not change any more (a get of an entry that stands, a put where one stands, a data file
  under its own name) is served at once and alone: it commutes with everything that others may do;
- a process that has ended, or died, is only what its client knows;
- finished states that differ by write ids alone are judged once (`judge.py`).
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.simulator.explore.asking import answer_from
from tests.simulator.explore.automaton import Automaton, Node, Told
from tests.simulator.explore.configurations import Configuration
from tests.simulator.explore.contents import Contents, Library, is_private
from tests.simulator.explore.judge import Judge
from tests.simulator.explore.operations import Answer, Failure, Operation
from tests.simulator.explore.words import Step

State = tuple[int, tuple[int, ...], tuple[int, ...], int]
"""Contents, each process (a node's number, or -1 minus the number of what its client knows), late puts, faults left."""

Move = tuple[int, int, str]
"""Process, task (of a landing put: the object's number), fault."""

_LANDS = -1
_STAYS = 0.9
_SAY_EVERY_SECONDS = 1.0


@dataclass(slots=True)
class Finding:
    """What is wrong, and one of the shortest schedules that lead there."""

    text: str
    steps: list[Step]


@dataclass(slots=True)
class Result:
    """One search. `complete` says that nothing within the configuration's bounds was left out."""

    configuration: str
    states: int = 0
    moves: int = 0
    terminal: int = 0
    judged: int = 0
    depth: int = 0
    local_states: int = 0
    runs: int = 0
    seconds: float = 0.0
    complete: bool = False
    findings: list[Finding] = field(default_factory=list)


Progress = Callable[[Result, int], None]
"""Called now and then with the result so far and the size of the frontier."""


class Search:
    """One configuration, searched."""

    def __init__(self, configuration: Configuration, *, progress: Progress = lambda _, __: None) -> None:
        self._configuration = configuration
        self._progress = progress
        self._library = Library()
        base, told = configuration.base()
        self._automata = [
            Automaton(actor.name, actor.body, base, skew_ms=actor.skew_ms, any_order=configuration.any_order)
            for actor in configuration.actors
        ]
        self._judge = Judge(self._library, base, told)
        self._chance = random.Random(0)
        self._told: list[tuple[Told, ...]] = []
        self._told_numbers: dict[tuple[Told, ...], int] = {}
        self._parents: dict[State, tuple[State, Move] | None] = {}
        self._start = (
            self._library.holding(base).number,
            tuple(self._place(automaton.root) for automaton in self._automata),
            (),
            configuration.faults,
        )
        self.result = Result(configuration.name)

    def run(
        self,
        *,
        states_max: int | None = None,
        findings_max: int = 1,
        dives: bool = False,
        until: float = math.inf,
    ) -> Result:
        """Search until everything is seen, there are this many states or findings, or the monotonic clock
        says `until`.

        The search is breadth first, which finds the shortest schedule, or in dives from some state to an end,
        again and again.
        """
        result, began = self.result, time.monotonic()
        say_at = began + _SAY_EVERY_SECONDS
        self._parents[self._start] = None
        frontier: deque[tuple[State, int]] = deque([(self._start, 0)])
        while frontier and len(result.findings) < findings_max:
            if (states_max is not None and len(self._parents) >= states_max) or time.monotonic() >= until:
                break
            state, depth = frontier.pop() if dives else frontier.popleft()
            result.depth = max(result.depth, depth)
            self._look_at(state)
            seen = len(self._parents)
            for move, after, wrong in self._moves(state):
                result.moves += 1
                if wrong:
                    self._found(wrong, [*self._steps_to(state), self._step(state, after, *move)])
                if after not in self._parents:
                    self._parents[after] = (state, move)
                    frontier.append((after, depth + 1))
            if dives and frontier:
                self._dive_on(frontier, len(self._parents) - seen, self._mover(state))
            if time.monotonic() >= say_at:
                say_at = time.monotonic() + _SAY_EVERY_SECONDS
                self._count(began)
                self._progress(result, len(frontier))
        result.complete = not frontier and not result.findings
        self._count(began)
        for automaton in self._automata:
            automaton.close()
        return result

    def _mover(self, state: State) -> int:
        came = self._parents[state]
        return _LANDS if came is None else came[1][0]

    def _dive_on(self, frontier: deque[tuple[State, int]], fresh: int, mover: int) -> None:
        """Put the state to go on from at the end of the queue: mostly the process that moved last, whose run
        waits there. If nothing new was seen, any state."""
        among = range(-(fresh or len(frontier)), 0)
        same = [at for at in among if self._mover(frontier[at][0]) == mover] if fresh else []
        chosen = self._chance.choice(same if same and self._chance.random() < _STAYS else among)
        frontier[chosen], frontier[-1] = frontier[-1], frontier[chosen]

    def _count(self, began: float) -> None:
        result = self.result
        result.states = len(self._parents)
        result.judged = self._judge.judged
        result.local_states = sum(len(automaton.nodes) for automaton in self._automata)
        result.runs = sum(automaton.runs for automaton in self._automata)
        result.seconds = time.monotonic() - began

    # --- what may happen next -------------------------------------------------------------------------------

    def _moves(self, state: State) -> Iterator[tuple[Move, State, str]]:
        number, places, late, faults = state
        contents = self._library.all[number]
        asks = [
            (index, task, operation)
            for index, place in enumerate(places)
            if place >= 0
            for task, operation in self._automata[index].nodes[place].asks
        ]
        for ask in asks:
            if self._is_settled(ask[2], contents, late):
                yield from self._served(state, contents, *ask)
                return
        for ask in asks:
            yield from self._served(state, contents, *ask)
        if faults and "crash" in self._configuration.kinds:
            for index, place in enumerate(places):
                if place >= 0:
                    told = self._known(self._automata[index].nodes[place].told)
                    yield (index, 0, "crash"), (number, _with(places, index, told), late, faults - 1), ""
        for landing in late:
            after, wrong = self._library.put(contents, landing)
            rest = self._still_late(late, after)
            yield (_LANDS, landing, "lands"), (after.number, places, rest, faults), wrong

    def _is_settled(self, operation: Operation, contents: Contents, late: tuple[int, ...]) -> bool:
        if operation.kind == "list":
            return False
        if operation.key in contents.objects:
            return True
        awaited = any(self._library.objects[number][0] == operation.key for number in late)
        return is_private(operation) and not awaited

    def _served(
        self, state: State, contents: Contents, index: int, task: int, operation: Operation
    ) -> Iterator[tuple[Move, State, str]]:
        """The ways in which the request may be served."""
        _, places, late, faults = state
        node = self._automata[index].nodes[places[index]]
        for fault, answer, effect in self._ways(operation, contents, faults):
            after, pending, wrong = contents, late, ""
            if effect:
                number = self._library.number_of(operation.key, operation.data)
                if effect == "late":
                    pending = tuple(sorted({*late, number}))
                else:
                    after, wrong = self._library.put(contents, number)
                    pending = self._still_late(late, after)
            child = self._automata[index].follow(node, task, answer)
            moved = _with(places, index, self._place(child))
            left = faults - 1 if fault else faults
            yield (index, task, fault), (after.number, moved, pending, left), wrong or child.error

    def _ways(
        self, operation: Operation, contents: Contents, faults: int
    ) -> Iterator[tuple[str, Answer, str]]:
        """The ways to answer, as (fault, what the process gets, what happens to a put: "", "now" or
        "late")."""
        answer = answer_from(operation, contents.objects)
        lands = "now" if operation.kind == "put" and answer else ""
        yield "", answer, lands
        if not faults:
            return
        kinds = self._configuration.kinds
        if operation.kind != "put":
            if "unread" in kinds:
                yield "unread", Failure.UNREACHABLE, ""
            return
        if "late" in kinds or "lost" in kinds:  # a late put that lands at once is a lost reply
            late = "late" if "late" in kinds else "now"
            yield ("late" if late == "late" else "lost"), Failure.UNREACHABLE, late if lands else ""
        if lands and "conflict" in kinds:
            yield "conflict", False, ""
        if lands and "taken-after" in kinds:
            yield "taken-after", False, "now"

    def _still_late(self, late: tuple[int, ...], contents: Contents) -> tuple[int, ...]:
        """Remove late puts whose key has been taken, because they can do nothing any more."""
        return tuple(number for number in late if self._library.objects[number][0] not in contents.objects)

    # --- names of things ------------------------------------------------------------------------------------

    def _place(self, node: Node) -> int:
        return self._known(node.told) if node.has_ended else node.number

    def _known(self, told: tuple[Told, ...]) -> int:
        number = self._told_numbers.get(told)
        if number is None:
            number = self._told_numbers[told] = len(self._told)
            self._told.append(told)
        return -1 - number

    # --- what is wrong --------------------------------------------------------------------------------------

    def _look_at(self, state: State) -> None:
        """If every process has ended, finish the rest and judge the state."""
        number, places, _, _ = state
        if any(place >= 0 for place in places):
            return
        self.result.terminal += 1
        told = tuple(each for place in places for each in self._told[-1 - place])
        for wrong in self._judge.judge(self._library.all[number], told):
            self._found(wrong, self._steps_to(state))

    def _found(self, text: str, steps: list[Step]) -> None:
        self.result.findings.append(Finding(text, steps))

    def _steps_to(self, state: State) -> list[Step]:
        steps = []
        while (came := self._parents[state]) is not None:
            before, move = came
            steps.append(self._step(before, state, *move))
            state = before
        return steps[::-1]

    def _step(self, before: State, after: State, index: int, task: int, fault: str) -> Step:
        contents = self._library.all[after[0]]
        if index == _LANDS:
            key, data = self._library.objects[task]
            return Step("store", Operation("put", key, data), "lands", contents.objects.get(key) == data)
        automaton = self._automata[index]
        if fault == "crash":
            return Step(automaton.name, None, fault, None)
        operation = dict(automaton.nodes[before[1][index]].asks)[task]
        answer = answer_from(operation, self._library.all[before[0]].objects)
        return Step(automaton.name, operation, fault, answer)


def _with(places: tuple[int, ...], index: int, place: int) -> tuple[int, ...]:
    return (*places[:index], place, *places[index + 1 :])
