"""How a thread goes on: with its next step or, after an error, with a step that handles it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulator.explore.producer.world import Thread, Todo, World

if TYPE_CHECKING:
    from tests.simulator.explore.producer.surroundings import Surroundings


class After(NamedTuple):
    """One result of a step: the world after it, and the steps to come before the rest or the error that it
    raised. `fault`: what went wrong, which counts against the limit."""

    world: World
    first: Todo = ()
    error: BaseException | None = None
    fault: str = ""


Step = Callable[..., Iterable[After]]
"""`step(surroundings, world, *arguments)`. No way at all: the thread waits."""

Handler = Callable[..., After]
"""`handler(surroundings, world, error, *arguments)`: what an error comes to where it passes; an error that is left in
the answer goes on after the answer's steps.
"""


class Went(NamedTuple):
    """A thread after a step: the world, the rest of its steps, and the error with which it ended."""

    world: World
    todo: Todo
    error: BaseException | None
    fault: str


class Programs:
    """All steps, by name. Steps that are named as handlers are skipped if nothing went wrong, unless they are
    steps too (like a `finally`).

    Two kinds of steps are taken together with the one before, if they can go only one way. `looks` change
    nothing: whatever others do between the two, they may do before both. `along` are steps of the pool's
    threads in which no interrupt can land and which commute with everything that others do meanwhile. The
    caller's thread takes more steps together once nothing may go wrong any more.
    """

    def __init__(
        self,
        steps: Mapping[str, Step],
        handlers: Mapping[str, Handler],
        looks: frozenset[str],
        along: frozenset[str],
        along_for_the_caller: frozenset[str],
    ) -> None:
        self._steps = steps
        self._handlers = handlers
        self._looks = looks
        self._along = along
        self._along_for_the_caller = along | along_for_the_caller

    def go_on(self, at: Surroundings, world: World, thread: Thread, *, in_pool: bool) -> Iterator[Went]:
        """Every way in which the thread's next step may go."""
        (name, *arguments), rest = thread.todo[0], thread.todo[1:]
        for after in self._steps[name](at, world, *arguments):
            if after.error is None:
                then, todo = self._run_on(at, after.world, self._next(after.first + rest), in_pool)
                yield Went(then, todo, None, after.fault)
            else:
                yield self.break_off(at, after.world, after.first + rest, after.error, after.fault)

    def _run_on(self, at: Surroundings, world: World, todo: Todo, in_pool: bool) -> tuple[World, Todo]:
        while todo:
            (name, *arguments), rest = todo[0], todo[1:]
            goes_along = name in (
                self._along if in_pool else () if world.faults else self._along_for_the_caller
            )
            if not goes_along and name not in self._looks:
                break
            ways = tuple(self._steps[name](at, world, *arguments))
            if len(ways) != 1 or ways[0].error is not None or not (goes_along or ways[0].world == world):
                break
            world, todo = ways[0].world, self._next(ways[0].first + rest)
        return world, todo

    def break_off(
        self, at: Surroundings, world: World, todo: Todo, error: BaseException | None, fault: str = ""
    ) -> Went:
        """Let the error remove the steps up to one that handles it."""
        for number, (name, *arguments) in enumerate(todo):
            handler = self._handlers.get(name)
            if handler is None or error is None:
                continue
            after = handler(at, world, error, *arguments)
            world, rest = after.world, todo[number + 1 :]
            if after.first or after.error is None:
                again: Todo = () if after.error is None else (("raise", after.error),)
                return Went(world, self._next(after.first + again + rest), None, fault)
            error = after.error
        return Went(world, (), error, fault)

    def _next(self, todo: Todo) -> Todo:
        while todo and todo[0][0] not in self._steps:
            todo = todo[1:]
        return todo


def raise_again(_: Surroundings, world: World, error: BaseException) -> Sequence[After]:
    """End the handling of an error."""
    return (After(world, error=error),)


def pass_by(at: Any, world: World, error: BaseException) -> After:
    """Ignore an error that is only logged."""
    return After(world)
