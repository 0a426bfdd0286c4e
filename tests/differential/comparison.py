"""Running a program on both sides, and where they part."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from tests.differential.clients import ClientSide, ClientStep
from tests.differential.engine_clients import EngineClients
from tests.differential.engine_side import EngineSide
from tests.differential.errors import CallError
from tests.differential.programs import PRESET_PLACE, Program
from tests.differential.reviewed import Reviewed, find_reviewed
from tests.differential.sides import Identity, Side
from tests.differential.steps import Answer, Call, End, Outcome, Scene, Settle, SkippedError, Step


@dataclass(frozen=True)
class Line:
    """One step as both sides took it. `reviewed`: the entry of the list that explains a difference."""

    step: Call
    ours: Outcome
    kafka: Outcome
    reviewed: Reviewed | None = None

    @property
    def agrees(self) -> bool:
        """Whether nobody needs to look at it."""
        return self.ours == self.kafka or self.reviewed is not None

    @property
    def goes_on(self) -> bool:
        """Whether both sides are in the same state still."""
        return self.ours == self.kafka or (self.reviewed is not None and not self.reviewed.parts)


@dataclass(frozen=True)
class Comparison:
    """A program, step by step, up to where the sides part or the end."""

    program: Program
    lines: tuple[Line, ...]

    @property
    def agrees(self) -> bool:
        """Whether the sides did the same all the way, but for what is reviewed."""
        return all(line.agrees for line in self.lines)


def compare(program: Program, kafka: Side, preset_identity: Identity | None) -> Comparison:
    """Run the program on both sides, step by step, until they differ."""
    with EngineSide(program.places) as ours:
        known = [] if preset_identity is None else [preset_identity.producer_id]
        sides: tuple[Side, Side] = (ours, kafka)
        scenes = [Scene(side, program.actors, known) for side in sides]
        if preset_identity is not None and program.preset is not None:
            ours.write_transaction_state(
                program.transactional_ids[0], program.preset.state, preset_identity, PRESET_PLACE
            )
            for scene in scenes:
                scene.actors[f"{program.transactional_ids[0]}a"].begin(preset_identity)
        return Comparison(program, tuple(_lines(program, *scenes)))


def compare_clients(program: Program, kafka: ClientSide) -> Comparison:
    """Run a program of clients on both sides, until they differ."""
    lines: list[Line] = []
    with contextlib.closing(EngineClients(program.places)) as ours:
        for step in program.steps:
            if isinstance(step, ClientStep):
                theirs, mine = (_outcome(partial(step.call, side)) for side in (kafka, ours))
                if theirs is None or mine is None:
                    continue
                lines.append(Line(step, mine, theirs, _explained(step, mine, theirs, undecided=False)))
                if not lines[-1].goes_on:
                    break
    return Comparison(program, tuple(lines))


def _lines(program: Program, ours: Scene, kafka: Scene) -> list[Line]:
    lines: list[Line] = []
    undecided: set[str] = set()
    for group in _groups(step for step in program.steps if isinstance(step, Step)):
        for step, theirs in [(step, _outcome(partial(step.ask, kafka))) for step in group]:
            if theirs is None:
                continue
            lines.append(_line(step, ours, theirs, undecided))
            if not lines[-1].goes_on:
                return lines
    return lines


def _groups(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Steps to be asked of Kafka in one go: while a transaction is not complete there, it soon will be."""
    group: list[Step] = []
    for step in steps:
        group.append(step)
        if isinstance(step, Settle) or not any(isinstance(each, End) and not each.settle for each in group):
            yield group
            group = []
    yield group


def _line(step: Step, ours: Scene, theirs: Outcome, undecided: set[str]) -> Line:
    """What the engine says to a step. `undecided`: the ids with a transaction that is decided and not complete here."""
    mine = _asked(step, ours)
    explained = _explained(step, mine, theirs, undecided=step.touches in undecided)
    if mine != theirs and mine.code and step.touches in undecided and explained is None:
        # Kafka completes at a moment of its own: what is right afterwards is right too.
        ours.side.settle(str(step.touches))
        undecided.discard(str(step.touches))
        mine = _asked(step, ours)
        explained = _explained(step, mine, theirs, undecided=False)
    if isinstance(step, End) and not step.settle and mine.code is None:
        undecided.add(step.transactional_id)
    elif isinstance(step, Settle):
        undecided.discard(step.transactional_id)
    return Line(step, mine, theirs, explained)


def _explained(step: Call, ours: Outcome, kafka: Outcome, *, undecided: bool) -> Reviewed | None:
    if ours == kafka:
        return None
    return find_reviewed(step, ours, kafka, undecided=undecided)


def _asked(step: Step, scene: Scene) -> Outcome:
    """As `_outcome`, of a step that the other side has not skipped."""
    outcome = _outcome(partial(step.ask, scene))
    return Outcome(code="SKIPPED") if outcome is None else outcome


def _outcome(ask: Callable[[], Answer]) -> Outcome | None:
    """None where there is nothing to ask."""
    try:
        return Outcome(answer=ask())
    except CallError as error:
        return Outcome(code=error.code)
    except SkippedError:
        return None
