"""Programs for whole clients: Kafka's own producer and consumer (Java, 4.2) beside the engine's.

Errors are compared by what they mean to the caller: FENCED (this producer is finished), ABORTABLE, ILLEGAL_STATE (a
call out of order), and otherwise by name. What can still be done after one, the steps that follow show.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.differential.sides import Isolation, Place
from tests.differential.steps import Answer, Call

FENCED = ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")


class ClientSide(Protocol):
    """The clients of one system, as a program uses them. A producer is known by its actor's name."""

    def open_producer(self, actor: str, transactional_id: str | None) -> None: ...
    def init_transactions(self, actor: str) -> None: ...
    def begin_transaction(self, actor: str) -> None: ...
    def commit_transaction(self, actor: str) -> None: ...
    def abort_transaction(self, actor: str) -> None: ...
    def send(self, actor: str, place: Place, values: Sequence[bytes]) -> list[int]:
        """The offsets, once the batch is in the log."""
        ...

    def send_offset(self, actor: str, group: str, place: Place, offset: int) -> None: ...
    def commit_offset(self, group: str, place: Place, offset: int) -> None: ...
    def committed(self, group: str, place: Place) -> int:
        """-1 for none."""
        ...

    def consume(self, place: Place, isolation: Isolation) -> tuple[list[tuple[int, bytes]], int, int]:
        """All that the consumer hands out, its position then, and what it says is the end."""
        ...


@dataclass(frozen=True)
class ClientStep(Call):
    """A call of a client."""

    def call(self, clients: ClientSide) -> Answer:
        raise NotImplementedError


@dataclass(frozen=True)
class OpenProducer(ClientStep):
    """A new producer, and `init_transactions` where it has a transactional id."""

    actor: str
    transactional_id: str | None

    def call(self, clients: ClientSide) -> Answer:
        clients.open_producer(self.actor, self.transactional_id)
        if self.transactional_id is not None:
            clients.init_transactions(self.actor)
        return "ready"


@dataclass(frozen=True)
class Begin(ClientStep):
    actor: str

    def call(self, clients: ClientSide) -> Answer:
        clients.begin_transaction(self.actor)
        return "begun"


@dataclass(frozen=True)
class Send(ClientStep):
    actor: str
    place: Place
    values: tuple[bytes, ...]

    def call(self, clients: ClientSide) -> Answer:
        return clients.send(self.actor, self.place, self.values)


@dataclass(frozen=True)
class SendOffsets(ClientStep):
    actor: str
    group: str
    place: Place
    offset: int

    def call(self, clients: ClientSide) -> Answer:
        clients.send_offset(self.actor, self.group, self.place, self.offset)
        return "sent"


@dataclass(frozen=True)
class Commit(ClientStep):
    actor: str

    def call(self, clients: ClientSide) -> Answer:
        clients.commit_transaction(self.actor)
        return "committed"


@dataclass(frozen=True)
class Abort(ClientStep):
    actor: str

    def call(self, clients: ClientSide) -> Answer:
        clients.abort_transaction(self.actor)
        return "aborted"


@dataclass(frozen=True)
class CommitSync(ClientStep):
    group: str
    place: Place
    offset: int

    def call(self, clients: ClientSide) -> Answer:
        clients.commit_offset(self.group, self.place, self.offset)
        return "committed"


@dataclass(frozen=True)
class Committed(ClientStep):
    group: str
    place: Place

    def call(self, clients: ClientSide) -> Answer:
        return clients.committed(self.group, self.place)


@dataclass(frozen=True)
class Consume(ClientStep):
    place: Place
    isolation: Isolation

    def call(self, clients: ClientSide) -> Answer:
        return clients.consume(self.place, self.isolation)


class ClientWriter:
    """Writes a program: two instances of an id, another id, an idempotent producer, a group."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.places = (Place("a", 0), Place("a", 1), Place("b", 0))
        self.actors: dict[str, str | None] = {"t0a": "t0", "t0b": "t0", "t1a": "t1", "p0": None}
        self._state = dict.fromkeys(self.actors, "new")
        self._count = 0
        self._steps: list[ClientStep] = []

    def steps(self) -> tuple[ClientStep, ...]:
        """Ten to twenty calls, and a look at everything."""
        self._open("t0a")
        for _ in range(self._chance.randint(10, 20)):
            actor = self._chance.choices(list(self.actors), weights=(45, 25, 18, 12))[0]
            if self._state[actor] == "new":
                self._open(actor)
            elif actor == "p0":
                self._send(actor)
            else:
                self._act(actor)
            if self._chance.random() < 0.25:
                self._look()
        for place in self.places:
            self._steps += [Consume(place, "read_committed"), Consume(place, "read_uncommitted")]
            self._steps.append(Committed("g", place))
        return tuple(self._steps)

    def _open(self, actor: str) -> None:
        self._steps.append(OpenProducer(actor, self.actors[actor]))
        self._state[actor] = "ready"
        for other, transactional_id in self.actors.items():
            if transactional_id is not None and transactional_id == self.actors[actor] and other != actor:
                self._state[other] = "zombie" if self._state[other] != "new" else "new"

    def _act(self, actor: str) -> None:
        state = self._state[actor]
        if state == "ready":
            self._steps.append(Begin(actor) if self._chance.random() < 0.93 else Commit(actor))
            if isinstance(self._steps[-1], Begin):
                self._state[actor] = "open"
                self._send(actor)
        elif state == "zombie" and self._chance.random() < 0.15:
            self._state[actor] = "new"
        elif self._chance.random() < 0.5:
            self._write(actor)
        else:
            self._steps.append(Commit(actor) if self._chance.random() < 0.65 else Abort(actor))
            if state == "open":
                self._state[actor] = "ready"

    def _write(self, actor: str) -> None:
        """Never where no transaction was begun: Kafka's producer keeps such a record, and every later flush waits."""
        if self._state[actor] == "zombie":
            self._steps.append(self._chance.choice((Commit(actor), Abort(actor), Begin(actor))))
        elif self._chance.random() < 0.7:
            self._send(actor)
        else:
            place = self._chance.choice(self.places)
            self._steps.append(SendOffsets(actor, "g", place, self._chance.randint(0, 9)))

    def _send(self, actor: str) -> None:
        count = self._chance.randint(1, 3)
        values = tuple(b"v%d" % (self._count + number) for number in range(count))
        self._count += count
        self._steps.append(Send(actor, self._chance.choice(self.places), values))

    def _look(self) -> None:
        place = self._chance.choice(self.places)
        looks: list[ClientStep] = [
            Consume(place, "read_committed"),
            Consume(place, "read_uncommitted"),
            CommitSync("h", place, self._chance.randint(0, 9)),
            Committed("h", place),
        ]
        self._steps.append(self._chance.choice(looks))
