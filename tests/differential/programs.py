"""Seeded programs of what a producer, its zombie, another producer, a group and an operator may do to each
other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tests.differential.clients import ClientWriter, LoopWriter
from tests.differential.sides import Identity, Place
from tests.differential.steps import (
    AbortHanging,
    AddPartitions,
    Append,
    Call,
    CommitOffset,
    DeleteTopic,
    Describe,
    End,
    ExpireIds,
    Fence,
    FetchOffset,
    Init,
    ListTransactions,
    Look,
    MakeTopic,
    Mark,
    Produce,
    Read,
    RemoveRecords,
    SendOffset,
    SequenceKind,
    Settle,
    Step,
    TimeOut,
)
from txn_engine.protocol.sequences import MAX_SEQUENCE, increment_sequence

Kind = Literal["partition", "expiry", "coordinator", "topics", "epochs", "time-out", "client", "loop"]
KINDS: tuple[Kind, ...] = (
    "partition",
    "expiry",
    "coordinator",
    "topics",
    "epochs",
    "time-out",
    "client",
    "loop",
)
SHARES = (16, 3, 12, 6, 5, 4, 22, 32)
"""Of a hundred programs, so many of each kind."""

SHORT_TIMEOUT_MS = 2_000
PRESET_PLACE = Place("preset", 0)
GROUPS = ("g0", "g1")


class Preset(NamedTuple):
    """A row in the coordinator's log before the program begins, of an id near the end of its epochs."""

    state: str
    producer_epoch: int


PRESETS = tuple(
    Preset(state, epoch)
    for state in ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")
    for epoch in (32_764, 32_765, 32_766)  # no row at rest or open has the last epoch, 32767
)


@dataclass(frozen=True)
class Program:
    """The steps of a program, and the names that they use. With `own_topics` no other program may use its
    topics."""

    seed: int
    kind: Kind
    steps: tuple[Call, ...]
    places: tuple[Place, ...]
    transactional_ids: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()
    preset: Preset | None = None
    own_topics: bool = False


def generate(seed: int, kind: Kind | None = None) -> Program:
    """The program of a seed, which is always the same. Consecutive seeds take turns between the kinds."""
    chance = random.Random(seed)
    chosen = kind or chance.choices(KINDS, weights=SHARES)[0]
    if chosen == "client":
        writer = ClientWriter(chance)
        return Program(seed, chosen, writer.steps(), writer.places)
    if chosen == "loop":
        loop = LoopWriter(chance)
        return Program(seed, chosen, loop.steps(), loop.places, own_topics=loop.subscribes)
    if chosen == "partition":
        return _PartitionWriter(seed, chance).program()
    if chosen == "expiry":
        return _ExpiryWriter(seed, chance).program()
    return _CoordinatorWriter(seed, chance, chosen).program()


class _Values:
    """Values that are unique in the program."""

    def __init__(self) -> None:
        self._count = 0

    def take(self, count: int) -> tuple[bytes, ...]:
        first = self._count
        self._count += count
        return tuple(b"v%d" % number for number in range(first, first + count))


class _CoordinatorWriter:
    """Programs over transactional ids with two instances each, an idempotent producer, and two groups."""

    def __init__(self, seed: int, chance: random.Random, kind: Kind) -> None:
        self._seed = seed
        self._chance = chance
        self._kind: Kind = kind
        self._values = _Values()
        count = 1 if kind == "epochs" else chance.randint(1, 2 if kind == "time-out" else 3)
        self._ids = tuple(f"t{number}" for number in range(count))
        self._timeout_ms = SHORT_TIMEOUT_MS if kind == "time-out" else 60_000
        topics = [("a", chance.randint(2, 3)), ("b", chance.randint(1, 3))][: chance.randint(1, 2)]
        self._places = [Place(topic, number) for topic, size in topics for number in range(size)]
        self._preset = chance.choice(PRESETS) if kind == "epochs" else None
        if self._preset:
            self._places.append(PRESET_PLACE)
        self._sizes = dict(topics)
        self._deleted: set[str] = set()
        self._current = {name: f"{name}a" for name in self._ids}
        self._last: tuple[str, str, Place] | None = None
        # A partition that was made anew holds an attempt that it refused against the plain batch, as below.
        self._is_mixed = kind == "topics"
        self._steps: list[Step] = []

    def program(self) -> Program:
        for name in self._ids:
            if not self._preset and self._chance.random() < 0.9:
                self._add(Init(f"{name}a", name, self._timeout_ms))
        if self._preset and self._preset.state == "Ongoing" and self._chance.random() < 0.5:
            self._add(Init("t0b", "t0", self._timeout_ms))  # a fence, and the fenced one's abort
            self._add(End("t0a", "t0", False))
        if self._chance.random() < 0.4:
            self._add(Init("p0", None))
        if self._preset and self._chance.random() < 0.2:
            self._add(Init("t0b", "t0", self._timeout_ms, "t0a", -1))
        length = self._chance.randint(10, 22)
        halfway = {length // 2}
        at = {"time-out": halfway | {length}, "topics": halfway}.get(self._kind, set())
        while len(self._steps) < length:
            self._step()
            if any(len(self._steps) >= each for each in at):
                at = {each for each in at if each > len(self._steps)}
                if self._kind == "topics":
                    self._change_topics()
                else:
                    self._add(TimeOut(self._ids, self._timeout_ms))
        for topic in sorted(self._deleted):
            if self._chance.random() < 0.8:
                self._make(topic)
        self._look_at_everything()
        actors = (*(f"{name}{instance}" for name in self._ids for instance in "ab"), "p0")
        return Program(
            self._seed,
            self._kind,
            tuple(self._steps),
            tuple(self._places),
            self._ids,
            actors,
            self._preset,
            own_topics=self._kind == "topics",
        )

    def _add(self, step: Step) -> None:
        self._steps.append(step)

    def _step(self) -> None:
        writers = {
            self._produce: 34,
            self._burst: 6,
            self._end: 26,
            self._init: 9,
            self._add_partitions: 3,
            self._send_offset: 7,
            self._commit_offset: 2,
            self._plain: 5,
            self._look: 16,
            self._race: 0 if self._kind == "topics" else 6,
            self._operate: 4,
            self._change_topics: 12 if self._kind == "topics" else 0,
        }
        self._chance.choices(list(writers), weights=list(writers.values()))[0]()

    def _who(self) -> tuple[str, str]:
        """A pair (transactional id, actor). The actor is mostly the id's current instance."""
        name = self._chance.choice(self._ids)
        actor = self._current[name] if self._chance.random() < 0.8 else f"{name}{self._chance.choice('ab')}"
        return name, actor

    def _place(self, name: str | None = None) -> Place:
        """Any partition. In programs of time-outs an id has its own partitions, because the sweep chooses the
        order of the ids' markers."""
        if name is not None and self._kind == "time-out":
            return self._chance.choice(self._places[self._ids.index(name) :: len(self._ids)])
        return self._chance.choice(self._places)

    def _shift(self) -> int:
        return self._chance.choices((0, -1, 1, 2, -2), weights=(88, 6, 3, 2, 1))[0]

    def _produce(self) -> None:
        """Add a batch, often after the last one, because a sequence can be wrong only there."""
        if self._last is None or self._chance.random() < 0.5:
            name, actor = self._who()
            self._last = name, actor, self._place(name)
        name, actor, place = self._last
        kinds: dict[SequenceKind, int] = {
            "next": 68,
            "again": 8,
            "again 5": 3,
            "again 6": 3,
            "gap": 7,
            "zero": 4,
            "longer": 3,
            "negative gap": 4,
        }
        kind = self._chance.choices(list(kinds), weights=list(kinds.values()))[0]
        values = self._values.take(self._chance.randint(1, 3))
        # Never a later epoch than was given out: Kafka's partition remembers the refused attempt's sequence, and holds
        # it against the batches that follow (`VerificationStateEntry.lowestSequence`).
        self._add(Produce(actor, name, place, values, kind, min(self._shift(), 0)))

    def _burst(self) -> None:
        """Add enough batches to move the oldest out of the window of five, for a producer that is most likely
        to write."""
        name = self._chance.choice(self._ids)
        actor, place = self._current[name], self._place(name)
        for _ in range(6):
            self._add(Produce(actor, name, place, self._values.take(1)))
        back: SequenceKind = self._chance.choice(("again 5", "again 6"))
        self._add(Produce(actor, name, place, self._values.take(1), back))

    def _end(self) -> None:
        name, actor = self._who()
        if self._kind != "time-out" and self._chance.random() < 0.06:
            name = self._chance.choice(self._ids)  # maybe another's
        shift = self._chance.choices((0, -1, 1, -2, 2), weights=(74, 18, 4, 2, 2))[0]
        self._add(End(actor, name, self._chance.random() < 0.6, shift))

    def _init(self) -> None:
        name = self._chance.choice(self._ids)
        actor = f"{name}{self._chance.choice('ab')}"
        holding, shift = None, 0
        if self._chance.random() < 0.4:
            holding = self._chance.choice((actor, self._current[name], self._who()[1]))
            shift = self._chance.choices((0, -1, 1), weights=(6, 3, 1))[0]
        timeout_ms = self._timeout_ms
        if self._kind != "time-out" and self._chance.random() < 0.1:
            timeout_ms = self._chance.choice((0, -1, 900_000, 900_001))
        step = Init(actor, name, timeout_ms, holding, shift)
        self._add(step)
        self._current[name] = actor
        if self._chance.random() < 0.6:  # a client asks again after CONCURRENT_TRANSACTIONS
            self._add(step)

    def _add_partitions(self) -> None:
        name, actor = self._who()
        places = tuple(sorted({self._place(name), self._place(name)}))
        if self._chance.random() < 0.1:
            places = (*places, Place("nowhere", 0))
        self._add(AddPartitions(actor, name, places, self._shift()))

    def _send_offset(self) -> None:
        name, actor = self._who()
        group = self._chance.choice(GROUPS)
        offset = self._chance.randint(0, 9)
        self._add(SendOffset(actor, name, group, self._place(), offset, self._shift()))

    def _commit_offset(self) -> None:
        self._add(CommitOffset(self._chance.choice(GROUPS), self._place(), self._chance.randint(0, 9)))

    def _plain(self) -> None:
        """Add a batch outside of any transaction, of the idempotent producer or once of a producer with a
        transactional id.

        The latter is in sequence: `_produce` explains what Kafka's partition remembers of refused attempts.
        """
        if self._last is not None and not self._is_mixed and self._chance.random() < 0.4:
            self._is_mixed = True
            _, actor, place = self._last
            self._add(Produce(actor, None, place, self._values.take(2)))
            return
        kind: SequenceKind = self._chance.choices(("next", "again", "gap"), weights=(7, 2, 1))[0]
        self._add(Produce("p0", None, self._place(), self._values.take(2), kind))

    def _look(self) -> None:
        name, actor = self._who()
        place = self._place()
        looks: list[Step] = [
            Read(place, "read_committed"),
            Read(place, "read_uncommitted"),
            Look(place, self._chance.randint(0, 4)),
            Describe(name),
            Describe(name),
            FetchOffset(self._chance.choice(GROUPS), place, self._chance.random() < 0.5),
            self._list(actor),
            self._list(actor),
        ]
        self._add(self._chance.choice(looks))

    def _list(self, actor: str) -> ListTransactions:
        """List transactions with any of the filters, or several at once."""
        return ListTransactions(
            self._chance.choice(((), ("Ongoing",), ("Empty", "CompleteAbort"), ("PrepareCommit", "Dead"))),
            (actor,) if self._chance.random() < 0.3 else (),
            self._chance.choice((-1, -1, 86_400_000)),
            self._chance.choice(("", "", "t[01].*", "t0", "x.*")),
        )

    def _operate(self) -> None:
        """What an operator does to ids and logs."""
        if self._kind in ("coordinator", "topics") and self._chance.random() < 0.5:
            self._add(Fence(self._chance.choice(self._ids)))
        elif self._kind in ("coordinator", "topics"):
            self._add(RemoveRecords(self._place()))

    def _change_topics(self) -> None:
        """Delete a topic, mostly with an open transaction in it or a group's offsets for it, or create it
        again."""
        topic = self._chance.choice(sorted(self._deleted or self._sizes))
        if topic in self._deleted:
            if self._chance.random() < 0.1:
                self._add(DeleteTopic(topic))  # once more
            self._make(topic)
            return
        place = self._chance.choice([each for each in self._places if each.topic == topic])
        name, group = self._chance.choice(self._ids), self._chance.choice(GROUPS)
        actor = self._current[name]
        if self._chance.random() < 0.7:
            self._add(Produce(actor, name, place, self._values.take(1)))
            self._last = name, actor, place
        if self._chance.random() < 0.3:
            self._add(SendOffset(actor, name, group, place, self._chance.randint(0, 9)))
        if self._chance.random() < 0.3:
            self._add(CommitOffset(self._chance.choice(GROUPS), place, self._chance.randint(0, 9)))
        is_decided = self._chance.random() < 0.2
        if is_decided:  # the markers meet the deletion
            self._add(End(actor, name, self._chance.random() < 0.5, settle=False))
        self._add(DeleteTopic(topic))
        if is_decided:
            self._add(Settle(name))
        self._deleted.add(topic)
        if self._chance.random() < 0.5:
            self._make(topic)

    def _make(self, topic: str) -> None:
        """Create a topic again, sometimes with one partition less."""
        size = self._sizes[topic]
        if size > 1 and self._chance.random() < 0.1:
            size -= 1
        self._add(MakeTopic(topic, size, self._chance.random() < 0.6))
        if self._chance.random() < 0.05:
            self._add(MakeTopic(topic, size, False))  # once more
        self._deleted.discard(topic)

    def _race(self) -> None:
        """Ask an id's coordinator between the decision and its completion."""
        name = self._chance.choice(self._ids)
        actor, committed = self._current[name], self._chance.random() < 0.5
        self._add(Produce(actor, name, self._place(name), self._values.take(1)))
        self._add(End(actor, name, committed, settle=False))
        for _ in range(self._chance.randint(1, 3)):
            shift = self._chance.choice((0, -1, -1, 1))
            again = End(actor, name, self._chance.choice((committed, committed, not committed)), shift)
            others: list[Step] = [
                again,
                again,
                Init(actor, name, self._timeout_ms),
                AddPartitions(actor, name, (self._place(name),), shift),
            ]
            self._add(self._chance.choice(others))
        self._add(Settle(name))

    def _look_at_everything(self) -> None:
        for place in self._places:
            self._steps += _everything(place)
            for group in GROUPS:
                self._steps += [FetchOffset(group, place, True), FetchOffset(group, place, False)]
        self._steps += [Describe(name) for name in self._ids]
        self._add(ListTransactions())


@dataclass
class _Guess:
    """What the writer of a program believes about a producer in a partition. It makes most requests legal."""

    epoch: int = 0
    next_sequence: int = 0
    is_open: bool = False
    coordinator_epoch: int = 0
    sent: list[tuple[int, int]] = field(default_factory=list)


class _PartitionWriter:
    """Programs over partitions alone, with any producer id, epoch, sequence and marker."""

    def __init__(self, seed: int, chance: random.Random) -> None:
        self._seed = seed
        self._chance = chance
        self._values = _Values()
        self._places = [Place("a", number) for number in range(chance.randint(1, 2))]
        self._producers = [101 + number for number in range(chance.randint(1, 3))]
        self._guesses: dict[tuple[int, Place], _Guess] = {}
        self._steps: list[Step] = []

    def program(self) -> Program:
        for _ in range(self._chance.randint(12, 25)):
            writers = {self._append: 60, self._mark: 26, self._look: 14, self._operate: 4}
            self._chance.choices(list(writers), weights=list(writers.values()))[0]()
        for place in self._places:
            self._steps += _everything(place, coordinator_epochs=True)
        return Program(self._seed, "partition", tuple(self._steps), tuple(self._places))

    def _guess(self) -> tuple[int, Place, _Guess]:
        producer_id, place = self._chance.choice(self._producers), self._chance.choice(self._places)
        if (producer_id, place) not in self._guesses:
            start = self._chance.choice((0, 0, 0, 7, MAX_SEQUENCE - 2, MAX_SEQUENCE))
            epoch = self._chance.choice((0, 0, 5, 32_765))
            self._guesses[producer_id, place] = _Guess(epoch, start)
        return producer_id, place, self._guesses[producer_id, place]

    def _append(self) -> None:
        producer_id, place, guess = self._guess()
        if producer_id == self._producers[-1] and self._chance.random() < 0.3:
            self._nobody(place)
            return
        values = self._values.take(self._chance.randint(1, 4))
        epoch, sequence = guess.epoch, guess.next_sequence
        transactional = guess.is_open or (self._chance.random() < 0.6 and (bool(guess.sent) or sequence == 0))
        what = self._chance.choices(
            ("next", "again", "off", "new epoch", "new epoch off", "old epoch", "other kind"),
            weights=(60, 12, 8, 8, 3, 5, 4),
        )[0]
        if what == "again" and guess.sent:
            sequence, count = self._chance.choice(guess.sent[-7:])
            values = self._values.take(count)
        elif what == "off":
            sequence = max(sequence + self._chance.choice((-2, -1, 1, 5)), 0) & MAX_SEQUENCE
        elif what == "new epoch":
            epoch, sequence = min(epoch + self._chance.choice((1, 1, 2)), 32_767), 0
        elif what == "new epoch off":
            epoch, sequence = min(epoch + 1, 32_767), 4
        elif what == "old epoch":
            epoch = max(epoch - 1, 0)
        elif what == "other kind":
            transactional = not transactional
        self._steps.append(Append(Identity(producer_id, epoch), place, sequence, values, transactional))
        if what in ("next", "new epoch"):
            if epoch != guess.epoch:
                guess.epoch, guess.sent = epoch, []
            guess.sent.append((sequence, len(values)))
            guess.next_sequence = increment_sequence(sequence, len(values))
            guess.is_open = guess.is_open or transactional

    def _nobody(self, place: Place) -> None:
        """Add a batch without a producer id."""
        values = self._values.take(self._chance.randint(1, 3))
        self._steps.append(Append(Identity(-1, -1), place, -1, values, False))

    def _mark(self) -> None:
        producer_id, place, guess = self._guess()
        shift = self._chance.choices((1, 0, -1, 3), weights=(80, 4, 9, 7))[0]
        epoch = min(max(guess.epoch + shift, 0), 32_767)
        token = max(guess.coordinator_epoch + self._chance.choices((0, 1, -1), weights=(5, 4, 1))[0], 0)
        committed = self._chance.random() < 0.5
        self._steps.append(Mark(Identity(producer_id, epoch), place, committed, token))
        if shift > 0 and token >= guess.coordinator_epoch:
            guess.epoch, guess.next_sequence, guess.sent = epoch, 0, []
            guess.is_open, guess.coordinator_epoch = False, token
        if self._chance.random() < 0.03:  # and again: a coordinator that lost its answer
            self._steps.append(self._steps[-1])

    def _look(self) -> None:
        place = self._chance.choice(self._places)
        self._steps.append(self._chance.choice(_everything(place, coordinator_epochs=True)))

    def _operate(self) -> None:
        place = self._chance.choice(self._places)
        self._steps.append(self._chance.choice((AbortHanging(place), RemoveRecords(place))))


class _ExpiryWriter:
    """Programs over ids that are idle until they are forgotten, and come back."""

    def __init__(self, seed: int, chance: random.Random) -> None:
        self._seed = seed
        self._chance = chance
        self._ids = ("t0", "t1")
        self._places = [Place("a", 0), Place("a", 1)]
        self._steps: list[Step] = []

    def program(self) -> Program:
        self._steps += [Init(f"{name}a", name, 60_000) for name in self._ids]
        for _ in range(self._chance.randint(2, 4)):
            self._transaction()
        self._steps.append(ExpireIds(self._ids))
        self._look()
        for _ in range(self._chance.randint(2, 4)):
            self._come_back()
        self._look()
        actors = tuple(f"{name}{instance}" for name in self._ids for instance in "ab")
        return Program(self._seed, "expiry", tuple(self._steps), tuple(self._places), self._ids, actors)

    def _transaction(self) -> None:
        """Add partitions only, because this broker does not ask the coordinator about writes."""
        name = self._chance.choice(self._ids)
        self._steps.append(AddPartitions(f"{name}a", name, (self._chance.choice(self._places),)))
        if self._chance.random() < 0.7:
            self._steps.append(End(f"{name}a", name, self._chance.random() < 0.6))

    def _come_back(self) -> None:
        name = self._chance.choice(self._ids)
        actor = f"{name}{self._chance.choice('aab')}"
        steps: list[Step] = [
            AddPartitions(actor, name, (self._places[0],)),
            End(actor, name, self._chance.random() < 0.5, self._chance.choice((0, -1))),
            Init(f"{name}a", name, 60_000, f"{name}a"),
            Init(f"{name}b", name, 60_000),
            Init(f"{name}b", name, 60_000, f"{name}a", self._chance.choice((0, -1))),
        ]
        self._steps.append(self._chance.choice(steps))

    def _look(self) -> None:
        self._steps += [Describe(name) for name in self._ids]
        self._steps += [ListTransactions(), ListTransactions(pattern="t0"), ListTransactions(("Ongoing",))]
        self._steps += [Look(place) for place in self._places]


def _everything(place: Place, *, coordinator_epochs: bool = False) -> Sequence[Step]:
    return (
        Read(place, "read_committed"),
        Read(place, "read_uncommitted"),
        Look(place, coordinator_epochs=coordinator_epochs),
    )
