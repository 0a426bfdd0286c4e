"""Run a program on both sides, and find the step at which they differ."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from tests.differential.clients import ClientSide, ClientStep
from tests.differential.engine_clients import EngineClients
from tests.differential.engine_side import EngineSide
from tests.differential.errors import CallError
from tests.differential.programs import PRESET_PLACE, Program
from tests.differential.reviewed import Difference, Reviewed, find_reviewed
from tests.differential.sides import Identity, Seen, Side
from tests.differential.steps import (
    Answer,
    Call,
    CountMarkers,
    End,
    Init,
    Outcome,
    Scene,
    Settle,
    SkippedError,
    Step,
)

SKIPPED = Outcome(code="SKIPPED")


@dataclass(frozen=True)
class Line:
    """One step as both sides took it.

    `reviewed` is the entry of the list that explains a difference. An `is_extra` step is not in the program,
    but follows from the steps before it.
    """

    step: Call
    ours: Outcome
    kafka: Outcome
    reviewed: Reviewed | None = None
    is_extra: bool = False

    @property
    def agrees(self) -> bool:
        """Whether nobody needs to look at this line."""
        return self.ours == self.kafka or self.reviewed is not None


@dataclass(frozen=True)
class Comparison:
    """A program, step by step, to its end or to a difference that nobody has reviewed.

    `cut` counts the steps that were not taken because an actor had to begin again after a reviewed
    difference.
    """

    program: Program
    lines: tuple[Line, ...]
    cut: int = 0

    @property
    def agrees(self) -> bool:
        """Whether the sides did the same in every step, except for reviewed differences."""
        return all(line.agrees for line in self.lines)


def compare(program: Program, kafka: Side, preset_identity: Identity | None) -> Comparison:
    """Run the program on both sides, step by step, until they differ in a way that is not reviewed."""
    with EngineSide(program.places) as ours:
        known = [] if preset_identity is None else [preset_identity.producer_id]
        sides: tuple[Side, Side] = (ours, kafka)
        scenes = [
            Scene(side, program.actors, program.places, known, program.transactional_ids) for side in sides
        ]
        if preset_identity is not None and program.preset is not None:
            ours.write_transaction_state(
                program.transactional_ids[0], program.preset.state, preset_identity, PRESET_PLACE
            )
            for scene in scenes:
                scene.actors[f"{program.transactional_ids[0]}a"].begin(preset_identity)
        return _Run(program, *scenes).done()


def compare_clients(program: Program, kafka: ClientSide) -> Comparison:
    """Run a program of clients on both sides, until they differ in a way that is not reviewed."""
    lines: list[Line] = []
    cut, is_anew = 0, False
    with contextlib.closing(EngineClients(program.places)) as ours:
        for step in program.steps:
            if not isinstance(step, ClientStep):
                raise TypeError(f"{step} is no call of a client")
            kafka_saw, theirs = _client_outcome(step, kafka)
            if theirs is None:
                cut += is_anew
                continue
            ours_saw, mine = _client_outcome(step, ours)
            difference = Difference(step, mine or SKIPPED, theirs, ours_saw, kafka_saw)
            lines.append(Line(step, difference.ours, theirs, _explained(difference)))
            if not lines[-1].agrees:
                break
            reviewed = lines[-1].reviewed
            if reviewed is not None and reviewed.anew:
                is_anew = True
                for side in (ours, kafka):
                    step.begin_anew(side)
    return Comparison(program, tuple(lines), cut)


def _client_outcome(step: ClientStep, clients: ClientSide) -> tuple[Seen, Outcome | None]:
    try:
        seen = step.look(clients)
    except SkippedError:
        return Seen(), None
    return seen, _outcome(partial(step.call, clients))


class _Run:
    """One program that is running on both sides."""

    def __init__(self, program: Program, ours: Scene, kafka: Scene) -> None:
        self._program = program
        self._ours = ours
        self._kafka = kafka
        self._undecided: set[str] = set()
        self._lines: list[Line] = []
        self._is_anew = False
        self._cut = 0

    def done(self) -> Comparison:
        """Run to the end of the program, or to a difference that nobody has reviewed."""
        goes_on = True
        for group in _groups(step for step in self._program.steps if isinstance(step, Step)):
            goes_on = self._take(group) and self._take_extra(self._to_count(group))
            if not goes_on:
                break
        return Comparison(self._program, tuple(self._lines), self._cut)

    def _take_extra(self, steps: Iterable[Step]) -> bool:
        """Take steps that are not in the program."""
        return all(self._take([step], is_extra=True) for step in steps)

    def _take(self, group: list[Step], *, is_extra: bool = False) -> bool:
        """Take one group of steps on both sides. Returns whether the program goes on."""
        asked = [self._ask_kafka(step) for step in group]
        for number, (step, kafka_saw, theirs) in enumerate(asked, start=1):
            if theirs is None:
                self._cut += self._is_anew
                continue
            line = replace(self._line(step, kafka_saw, theirs), is_extra=is_extra)
            self._lines.append(line)
            if not line.agrees:
                return False
            if line.reviewed is not None and line.reviewed.anew:
                self._is_anew = True
                self._cut += len(asked) - number  # Kafka was asked those of the state that is left behind
                return self._take_extra(self._begin_anew(step))
        return True

    def _to_count(self, group: list[Step]) -> Iterator[CountMarkers]:
        """Count the markers of the transactions that these steps may have decided and that have a topic which
        was created again."""
        for name in sorted({step.touches for step in group if step.touches is not None}):
            if places := self._ours.decided_namesakes(name):
                yield CountMarkers(name, places)

    def _ask_kafka(self, step: Step) -> tuple[Step, Seen, Outcome | None]:
        seen = _seen(step, self._kafka)
        return step, seen, _outcome(partial(step.ask, self._kafka))

    def _begin_anew(self, step: Step) -> list[Step]:
        """Bring both sides to the same state after a difference that left them in two. Returns the steps to
        take after that."""
        for scene in (self._ours, self._kafka):
            step.begin_anew(scene)
        self._ours.name_like(self._kafka)
        if isinstance(step, Init | End) and step.transactional_id is not None:
            name = step.transactional_id
            return [Init(f"{name}{instance}", name) for instance in "ab"]
        return []

    def _line(self, step: Step, kafka_saw: Seen, theirs: Outcome) -> Line:
        """The engine's answer to a step, compared with Kafka's."""
        is_undecided = step.touches in self._undecided
        mine, difference = self._ask_ours(step, kafka_saw, theirs, undecided=is_undecided)
        explained = _explained(difference)
        if mine != theirs and mine.code and is_undecided and explained is None:
            # Kafka completes at a moment of its own: what is right afterwards is right too.
            self._ours.side.settle(str(step.touches))
            self._undecided.discard(str(step.touches))
            mine, difference = self._ask_ours(step, kafka_saw, theirs, undecided=False)
            explained = _explained(difference)
        if isinstance(step, End) and not step.settle and mine.code is None:
            self._undecided.add(step.transactional_id)
        elif isinstance(step, Settle):
            self._undecided.discard(step.transactional_id)
        return Line(step, mine, theirs, explained)

    def _ask_ours(
        self, step: Step, kafka_saw: Seen, theirs: Outcome, *, undecided: bool
    ) -> tuple[Outcome, Difference]:
        ours_saw = _seen(step, self._ours)
        if step.touches is not None:
            ours_saw = replace(ours_saw, row=self._ours.row(step.touches))
        mine = _outcome(partial(step.ask, self._ours)) or SKIPPED
        if mine != theirs and step.touches is not None:
            # No difference that is reviewed lets Kafka's coordinator write anything: what stands there stood there.
            kafka_saw = replace(kafka_saw, row=self._kafka.row(step.touches))
        return mine, Difference(step, mine, theirs, ours_saw, kafka_saw, undecided)


def _groups(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Split the steps into groups that Kafka is asked in one go, because an incomplete transaction will soon
    be complete there."""
    group: list[Step] = []
    for step in steps:
        group.append(step)
        if isinstance(step, Settle) or not any(isinstance(each, End) and not each.settle for each in group):
            yield group
            group = []
    yield group


def _seen(step: Step, scene: Scene) -> Seen:
    try:
        return step.look(scene)
    except SkippedError:
        return Seen()


def _explained(difference: Difference) -> Reviewed | None:
    return None if difference.ours == difference.kafka else find_reviewed(difference)


def _outcome(ask: Callable[[], Answer]) -> Outcome | None:
    """The outcome of a call, or None if the step was skipped."""
    try:
        return Outcome(answer=ask())
    except CallError as error:
        return Outcome(code=error.code, kind=error.kind)
    except SkippedError:
        return None
