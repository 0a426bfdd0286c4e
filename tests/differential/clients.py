"""Programs for whole clients: Kafka's own producer and consumer (Java, 4.4) next to the engine's.

Errors are compared by what they mean to the caller: FENCED (another producer has taken over), ABORTABLE,
ILLEGAL_STATE (a call out of order), and otherwise by name. They are also compared by the state that the
producer reports afterwards: nothing changed, only an abort is possible, or the producer is finished.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tests.differential.sides import Isolation, Place, Seen
from tests.differential.steps import Answer, Call, SkippedError

FENCED = ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")
FIRST_STAMP = 1_700_000_000_000

Polled = list[tuple[Place, int, bytes]]


@dataclass
class Ledger:
    """What the clients of one side have done so far, according to that side's own answers.

    `moves` counts the commits of a group's offset in a partition. `read_at` holds this count at the time when
    a reader fetched its position there. `polled` holds, for each reader, the next offset after the records
    that it has handed out since its last transaction.
    """

    ids: dict[str, str | None] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    reads: dict[str, tuple[Place, ...]] = field(default_factory=dict)
    superseded: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    pending: dict[str, set[tuple[str, Place]]] = field(default_factory=lambda: defaultdict(set))
    moves: Counter[tuple[str, Place]] = field(default_factory=Counter)
    read_at: dict[tuple[str, Place], int] = field(default_factory=dict)
    polled: dict[str, dict[Place, int]] = field(default_factory=lambda: defaultdict(dict))
    values: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))

    def opened(self, actor: str, transactional_id: str | None) -> None:
        """Record a new producer. Initialisation has aborted every open transaction of its id."""
        self.ids[actor] = transactional_id
        for other, held in self.ids.items():
            if other == actor or (transactional_id is not None and held == transactional_id):
                self.pending[other].clear()
                self.superseded.add(other)
        self.superseded.discard(actor)
        self.open.discard(actor)
        self.begin_reading_anew(actor)

    def begin_reading_anew(self, actor: str) -> None:
        """Record that the next poll starts at the group's position."""
        self.polled[actor].clear()
        self.values[actor].clear()
        for place in self.reads.get(actor, ()):
            self.read_at.pop((actor, place), None)

    def ended(self, actor: str, *, committed: bool) -> None:
        """Record that the transaction is decided."""
        for key in self.pending[actor]:
            self.moves[key] += committed
            if committed and self.groups.get(actor) == key[0]:
                self.read_at[actor, key[1]] = self.moves[key]
        self.pending[actor].clear()
        self.polled[actor].clear()
        self.open.discard(actor)

    def saw(self, actor: str, records: Polled) -> None:
        """Record that a poll has handed out these records."""
        for place in self.reads[actor]:
            self.read_at.setdefault((actor, place), self.moves[self.groups[actor], place])
        for place, offset, value in records:
            self.polled[actor][place] = max(offset + 1, self.polled[actor].get(place, 0))
            self.values[actor].append(value)

    def is_pending_by_another(self, actor: str | None, group: str, place: Place) -> bool:
        """Whether a transaction of another actor has sent an offset and is still open."""
        return any((group, place) in sent for other, sent in self.pending.items() if other != actor)

    def has_moved(self, actor: str) -> bool:
        """Whether another actor has committed for a partition since the actor's reader fetched its position
        there."""
        group = self.groups[actor]
        return any(
            self.moves[group, place] != self.read_at.get((actor, place)) for place in self.polled[actor]
        )


class ClientSide(Protocol):
    """The clients of one system, as a program uses them. Producers and readers are identified by their
    actor's name."""

    ledger: Ledger

    def open_producer(self, actor: str, transactional_id: str | None) -> None: ...
    def init_transactions(self, actor: str) -> None: ...
    def begin_transaction(self, actor: str) -> None: ...
    def commit_transaction(self, actor: str) -> None: ...
    def abort_transaction(self, actor: str) -> None: ...
    def send(self, actor: str, place: Place, values: Sequence[bytes], stamp: int | None = None) -> list[int]:
        """Return the offsets once the batch is in the log."""
        ...

    def send_offset(self, actor: str, group: str, place: Place, offset: int) -> None: ...
    def commit_offset(self, group: str, place: Place, offset: int) -> None: ...
    def committed(self, group: str, place: Place) -> int:
        """The committed offset, or -1 if there is no committed offset."""
        ...

    def is_unstable(self, group: str, place: Place) -> bool:
        """Whether an offset is held back because of an open transaction."""
        ...

    def rename_group(self, group: str) -> None:
        """Replace the program's group by a group that nobody has used."""

    def consume(self, place: Place, isolation: Isolation) -> tuple[list[tuple[int, bytes, int]], int, int]:
        """Return the consumer's records as (offset, value, timestamp), its position after them, and the end
        that it reports."""
        ...

    def offset_for_time(self, place: Place, isolation: Isolation, stamp: int) -> int | None: ...

    # --- a task: a producer, and a consumer of a group
    def open_reader(self, actor: str, group: str, places: Sequence[Place], *, subscribes: bool) -> None: ...
    def poll(self, actor: str, limit: int | None) -> Polled:
        """Return the next records, at most this many. Without a limit, return all readable records."""
        ...

    def send_positions(self, actor: str, positions: Mapping[Place, int]) -> None:
        """Send the positions with the reader's own group metadata."""

    def seek_to_committed(self, actor: str) -> None:
        """Continue to read at the group's position."""


def _pending(clients: ClientSide, actor: str | None, group: str, place: Place) -> bool:
    return clients.ledger.is_pending_by_another(actor, group, place) and clients.is_unstable(group, place)


@dataclass(frozen=True)
class ClientStep(Call):
    """One call of a client."""

    def call(self, clients: ClientSide) -> Answer:
        raise NotImplementedError

    def look(self, clients: ClientSide) -> Seen:
        return Seen(superseded=getattr(self, "actor", None) in clients.ledger.superseded)

    def begin_anew(self, clients: ClientSide) -> None:
        """Discard everything that has different states on the two sides after this step."""
        raise TypeError(f"nothing to begin anew after {self}")


@dataclass(frozen=True)
class OpenProducer(ClientStep):
    """Open a new producer, and call `init_transactions` if it has a transactional id."""

    actor: str
    transactional_id: str | None

    def call(self, clients: ClientSide) -> Answer:
        clients.open_producer(self.actor, self.transactional_id)
        if self.transactional_id is not None:
            clients.init_transactions(self.actor)
        clients.ledger.opened(self.actor, self.transactional_id)
        return "ready"


@dataclass(frozen=True)
class Begin(ClientStep):
    actor: str

    def call(self, clients: ClientSide) -> Answer:
        clients.begin_transaction(self.actor)
        clients.ledger.open.add(self.actor)
        return "begun"


@dataclass(frozen=True)
class Send(ClientStep):
    actor: str
    place: Place
    values: tuple[bytes, ...]
    stamp: int | None = None

    def call(self, clients: ClientSide) -> Answer:
        _check_may_send(clients, self.actor)
        return clients.send(self.actor, self.place, self.values, self.stamp)


def _check_may_send(clients: ClientSide, actor: str) -> None:
    """Skip the send if no transaction is open. Kafka's producer would keep the record, and every later flush
    would wait for it."""
    ledger = clients.ledger
    if actor not in ledger.ids or (ledger.ids[actor] is not None and actor not in ledger.open):
        raise SkippedError


def _in_log(clients: ClientSide, place: Place, offset: int) -> int:
    """The offset, or the end of the log if that is lower: the engine refuses a commit beyond it, Kafka does not."""
    return min(offset, clients.consume(place, "read_uncommitted")[2])


@dataclass(frozen=True)
class SendOffsets(ClientStep):
    actor: str
    group: str
    place: Place
    offset: int

    def call(self, clients: ClientSide) -> Answer:
        clients.send_offset(self.actor, self.group, self.place, _in_log(clients, self.place, self.offset))
        clients.ledger.pending[self.actor].add((self.group, self.place))
        return "sent"

    def look(self, clients: ClientSide) -> Seen:
        pending = _pending(clients, self.actor, self.group, self.place)
        return replace(super().look(clients), pending=pending)

    def begin_anew(self, clients: ClientSide) -> None:
        clients.abort_transaction(self.actor)
        clients.ledger.ended(self.actor, committed=False)


@dataclass(frozen=True)
class Commit(ClientStep):
    actor: str

    def call(self, clients: ClientSide) -> Answer:
        clients.commit_transaction(self.actor)
        clients.ledger.ended(self.actor, committed=True)
        return "committed"


@dataclass(frozen=True)
class Abort(ClientStep):
    actor: str

    def call(self, clients: ClientSide) -> Answer:
        clients.abort_transaction(self.actor)
        clients.ledger.ended(self.actor, committed=False)
        return "aborted"


@dataclass(frozen=True)
class CommitSync(ClientStep):
    group: str
    place: Place
    offset: int

    def call(self, clients: ClientSide) -> Answer:
        clients.commit_offset(self.group, self.place, _in_log(clients, self.place, self.offset))
        clients.ledger.moves[self.group, self.place] += 1
        return "committed"

    def look(self, clients: ClientSide) -> Seen:
        return Seen(pending=_pending(clients, None, self.group, self.place))

    def begin_anew(self, clients: ClientSide) -> None:
        clients.rename_group(self.group)


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
        found, position, end = clients.consume(self.place, self.isolation)
        return [(offset, value) for offset, value, _ in found], position, end


@dataclass(frozen=True)
class OffsetForTime(ClientStep):
    """Look up the first offset with this timestamp or a later one, as a reader of this isolation level gets
    it."""

    place: Place
    isolation: Isolation
    stamp: int

    def call(self, clients: ClientSide) -> Answer:
        return clients.offset_for_time(self.place, self.isolation, self.stamp)

    def look(self, clients: ClientSide) -> Seen:
        found, _, _ = clients.consume(self.place, self.isolation)
        return Seen(visible=tuple((offset, stamp >= self.stamp) for offset, _, stamp in found))


# --- consume, transform, produce --------------------------------------------------------------------------


@dataclass(frozen=True)
class OpenTask(ClientStep):
    """A producer with a transactional id and a consumer of a group: a job's run, or the next run after a
    crash."""

    actor: str
    transactional_id: str
    group: str
    places: tuple[Place, ...]
    subscribes: bool = False

    def call(self, clients: ClientSide) -> Answer:
        clients.open_producer(self.actor, self.transactional_id)
        clients.init_transactions(self.actor)
        clients.ledger.groups[self.actor] = self.group
        clients.ledger.reads[self.actor] = self.places
        clients.ledger.opened(self.actor, self.transactional_id)
        clients.open_reader(self.actor, self.group, self.places, subscribes=self.subscribes)
        return "ready"


@dataclass(frozen=True)
class Poll(ClientStep):
    actor: str
    limit: int | None = None

    def call(self, clients: ClientSide) -> Answer:
        if self.actor not in clients.ledger.reads:
            raise SkippedError
        found = clients.poll(self.actor, self.limit)
        clients.ledger.saw(self.actor, found)
        return sorted(found)


@dataclass(frozen=True)
class Process(ClientStep):
    """Transform the polled records and write them to a partition of the output."""

    actor: str
    place: Place

    def call(self, clients: ClientSide) -> Answer:
        _check_may_send(clients, self.actor)
        values = sorted(clients.ledger.values.pop(self.actor, []))
        if not values:
            raise SkippedError
        return clients.send(self.actor, self.place, [b"<" + value + b">" for value in values])


@dataclass(frozen=True)
class SendPositions(ClientStep):
    """Send the positions after the last polled record of each partition."""

    actor: str

    def call(self, clients: ClientSide) -> Answer:
        ledger = clients.ledger
        positions = dict(ledger.polled.get(self.actor, {}))
        if not positions:
            raise SkippedError
        clients.send_positions(self.actor, positions)
        ledger.pending[self.actor] |= {(ledger.groups[self.actor], place) for place in positions}
        return sorted(positions.items())

    def look(self, clients: ClientSide) -> Seen:
        ledger = clients.ledger
        if self.actor not in ledger.groups:
            return super().look(clients)
        group = ledger.groups[self.actor]
        pending = any(_pending(clients, self.actor, group, place) for place in ledger.polled[self.actor])
        return replace(super().look(clients), pending=pending, moved=ledger.has_moved(self.actor))

    def begin_anew(self, clients: ClientSide) -> None:
        """Abort, and read again from the group's position, as the caller has to."""
        clients.abort_transaction(self.actor)
        clients.ledger.ended(self.actor, committed=False)
        clients.seek_to_committed(self.actor)
        clients.ledger.begin_reading_anew(self.actor)


@dataclass(frozen=True)
class Restart(ClientStep):
    """Read again from the group's position after an abort."""

    actor: str

    def call(self, clients: ClientSide) -> Answer:
        if self.actor not in clients.ledger.reads:
            raise SkippedError
        clients.seek_to_committed(self.actor)
        clients.ledger.begin_reading_anew(self.actor)
        return "from the committed offsets"


class ClientWriter:
    """Write a program with two instances of an id, another id, an idempotent producer and a group."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.places = (Place("a", 0), Place("a", 1), Place("b", 0))
        self.actors: dict[str, str | None] = {"t0a": "t0", "t0b": "t0", "t1a": "t1", "p0": None}
        self._state = dict.fromkeys(self.actors, "new")
        self._count = 0
        self._steps: list[ClientStep] = []

    def steps(self) -> tuple[ClientStep, ...]:
        """Write ten to twenty calls, and a look at everything."""
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
        """Add a write only inside a transaction. Kafka's producer would keep another record, and every later
        flush would wait for it."""
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
        stamp = FIRST_STAMP + self._chance.randint(0, 9)
        self._steps.append(Send(actor, self._chance.choice(self.places), values, stamp))

    def _look(self) -> None:
        place = self._chance.choice(self.places)
        looks: list[ClientStep] = [
            Consume(place, "read_committed"),
            Consume(place, "read_uncommitted"),
            CommitSync("h", place, self._chance.randint(0, 9)),
            Committed("h", place),
            CommitSync("g", place, self._chance.randint(0, 9)),
            OffsetForTime(place, "read_committed", FIRST_STAMP + self._chance.randint(0, 10)),
            OffsetForTime(place, "read_uncommitted", FIRST_STAMP + self._chance.randint(0, 10)),
        ]
        self._steps.append(self._chance.choice(looks))


class LoopWriter:
    """Write a program of whole loops: tasks that consume, transform and produce, and commit records and
    offsets together.

    There are two runs of one job, each a zombie to the other, and another job over the same input or over its
    own part of it. They overlap at random, crash, abort, and begin again from the committed offsets. With
    `subscribes` one run at a time is a member of the group.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.subscribes = chance.random() < 0.2
        self._inputs = (Place("in", 0), Place("in", 1))
        self._outputs = (Place("out", 0), Place("out", 1))
        self.places = (*self._inputs, *self._outputs)
        is_split = not self.subscribes and chance.random() < 0.4
        first = (
            self._inputs[:1] if is_split or (not self.subscribes and chance.random() < 0.4) else self._inputs
        )
        second = self._inputs[1:] if is_split else first
        self._tasks = {"t0a": ("t0", first), "t0b": ("t0", first), "t1a": ("t1", second)}
        if self.subscribes:
            del self._tasks["t1a"]
        self._state = dict.fromkeys(self._tasks, "new")
        self._current = "t0a"
        self._count = 0
        self._steps: list[ClientStep] = []

    def steps(self) -> tuple[ClientStep, ...]:
        """Write an input, then turns of the tasks, and a look at everything."""
        self._steps += [OpenProducer("f", None), OpenProducer("ft", "feeder")]
        for _ in range(self._chance.randint(1, 3)):
            self._feed()
        for _ in range(self._chance.randint(16, 28)):
            self._turn()
            if self._chance.random() < 0.1:
                self._feed()
            if self._chance.random() < 0.12:
                self._look()
        for place in self._outputs:
            self._steps += [Consume(place, "read_committed"), Consume(place, "read_uncommitted")]
        self._steps += [Committed("r", place) for place in self._inputs]
        return tuple(self._steps)

    def _feed(self) -> None:
        """Add records to the input. Some are in a transaction, which may leave a gap."""
        place = self._chance.choice(self._inputs)
        if self._chance.random() < 0.7:
            self._steps.append(Send("f", place, self._values()))
            return
        self._steps += [Begin("ft"), Send("ft", place, self._values())]
        self._steps.append(Commit("ft") if self._chance.random() < 0.5 else Abort("ft"))

    def _values(self) -> tuple[bytes, ...]:
        count = self._chance.randint(1, 3)
        self._count += count
        return tuple(b"v%03d" % number for number in range(self._count - count, self._count))

    def _turn(self) -> None:
        actor = self._whose_turn()
        state = self._state[actor]
        if state == "new":
            self._open(actor)
        elif self._chance.random() < 0.05:
            self._state[actor] = "new"  # a crash: nothing is closed
            self._current = "t0b" if self._current == "t0a" else "t0a"
        elif state == "ready":
            self._steps += [Begin(actor), Poll(actor, self._limit(actor))]
            self._state[actor] = "polled"
        elif state == "polled":
            self._steps.append(Process(actor, self._chance.choice(self._outputs)))
            self._state[actor] = "processed"
        elif state == "processed":
            self._steps.append(SendPositions(actor))
            self._state[actor] = "sent"
        else:
            self._end(actor)

    def _whose_turn(self) -> str:
        if self.subscribes:
            return self._current
        return self._chance.choices(list(self._tasks), weights=(45, 15, 40))[0]

    def _limit(self, actor: str) -> int | None:
        is_one = (
            len(self._tasks[actor][1]) == 1
        )  # of several partitions, whose records come first is up to the client
        return self._chance.choice((None, 1, 3)) if is_one else None

    def _open(self, actor: str) -> None:
        transactional_id, places = self._tasks[actor]
        self._steps.append(OpenTask(actor, transactional_id, "r", places, self.subscribes))
        self._state[actor] = "ready"

    def _end(self, actor: str) -> None:
        if self._chance.random() < 0.72:
            self._steps.append(Commit(actor))
        else:
            self._steps.append(Abort(actor))
            if self._chance.random() < 0.85:
                self._steps.append(Restart(actor))
        self._state[actor] = "ready"

    def _look(self) -> None:
        looks: list[ClientStep] = [
            Consume(self._chance.choice(self._outputs), "read_committed"),
            Consume(self._chance.choice(self._inputs), "read_uncommitted"),
            Committed("r", self._chance.choice(self._inputs)),
        ]
        self._steps.append(self._chance.choice(looks))
