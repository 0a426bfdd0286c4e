"""The steps of programs. A step names actors, not numbers, because each side fills in the numbers that it
gave out.

An *actor* is one instance of a producer. It has the identity of its last `Init` or `End`, and its own
sequences. Two actors of one transactional id are a producer and its zombie.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from tests.differential.errors import CallError, Kind
from tests.differential.records import RecordBatch
from tests.differential.sides import (
    NOBODY,
    Batch,
    Identity,
    Isolation,
    KnownProducer,
    KnownTransaction,
    Place,
    Seen,
    Side,
)
from txn_engine.protocol.sequences import increment_sequence

Answer = object
SequenceKind = Literal["next", "again", "again 5", "again 6", "gap", "zero", "longer", "negative gap"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a step on one side: an answer, or an error's code and the state in which it leaves the
    caller."""

    answer: Answer = None
    code: str | None = None
    kind: Kind | None = None

    def __str__(self) -> str:
        return f"{self.code} ({self.kind})" if self.code else str(self.answer)


class SkippedError(Exception):
    """The step makes no sense now because its actor has no identity yet, so neither side is asked."""


@dataclass
class Actor:
    """The knowledge of one instance of a producer."""

    identity: Identity = NOBODY
    next_sequence: dict[Place, int] = field(default_factory=lambda: defaultdict(int))
    sent: dict[tuple[Place, bool], list[Batch]] = field(default_factory=lambda: defaultdict(list))

    def begin(self, identity: Identity) -> None:
        """Continue with this identity. If it is another one, sequences start again."""
        if identity != self.identity:
            self.identity = identity
            self.next_sequence.clear()
            self.sent.clear()

    def leave(self, place: Place) -> None:
        """Forget the batches that were sent to this partition, so none of them is sent again."""
        self.next_sequence.pop(place, None)
        for kind in (True, False):
            self.sent.pop((place, kind), None)


@dataclass(frozen=True)
class Namesakes:
    """A transaction, and its partitions whose topic was deleted and created again, and which it has not
    joined again."""

    writer: Identity
    places: set[Place]


class Scene:
    """One side with a program's actors as they are there, and with names for its producer ids."""

    def __init__(
        self,
        side: Side,
        actors: Iterable[str],
        places: Iterable[Place],
        known_producer_ids: Iterable[int] = (),
        transactional_ids: Iterable[str] = (),
    ) -> None:
        self.side = side
        self.places = tuple(places)
        self.transactional_ids = tuple(transactional_ids)
        self.actors = {name: Actor() for name in actors}
        self.sent_offsets: dict[tuple[str, Place], set[str]] = defaultdict(set)
        self.namesakes: dict[str, Namesakes] = {}
        self._deleted: set[str] = set()
        self._moved: set[Place] = set()
        self._names: dict[int, str] = {-1: "-"}
        self._passed_over = 0
        for producer_id in known_producer_ids:
            self.name(producer_id)

    def name(self, producer_id: int) -> str:
        """Name the producer ids `p0`, `p1`, ... in the order in which they first appear."""
        return self._names.setdefault(producer_id, f"p{self._given() - 1}")

    def _given(self) -> int:
        return len(self._names) + self._passed_over

    def name_like(self, other: Scene) -> None:
        """Give later ids the same names as the other side, even if one of the sides was given one more id."""
        most = max(self._given(), other._given())
        for scene in (self, other):
            scene._passed_over += most - scene._given()

    def named(self, identity: Identity) -> str:
        """An identity in a form in which the two sides may be compared."""
        return f"{self.name(identity.producer_id)} epoch {identity.producer_epoch}"

    def identity(self, actor: str, epoch_shift: int = 0) -> Identity:
        """The actor's identity, or one with an earlier or a later epoch."""
        identity = self.actors[actor].identity
        if identity == NOBODY:
            raise SkippedError
        shifted = identity.producer_epoch + epoch_shift
        if not 0 <= shifted <= 32_767:
            raise SkippedError
        return Identity(identity.producer_id, shifted)

    def is_over(self, transactional_id: str) -> None:
        """Record that the id's transaction is decided, so no offset of it is pending for long."""
        for senders in self.sent_offsets.values():
            senders.discard(transactional_id)

    def is_pending_by_another(self, group: str, place: Place, transactional_id: str | None = None) -> bool:
        """Whether this side holds back the group's offset because a transaction of another id has sent
        one."""
        if not self.sent_offsets[group, place] - {transactional_id}:
            return False
        try:
            self.side.fetch_offset(group, place, require_stable=True)
        except CallError as error:
            return error.code == "UNSTABLE_OFFSET_COMMIT"
        return False

    def row(self, transactional_id: str) -> KnownTransaction | None:
        """The id as its coordinator knows it, or None if it does not."""
        try:
            return self.side.describe(transactional_id)
        except CallError:
            return None

    # --- topics that change -----------------------------------------------------------------------------------

    def is_gone(self, *places: Place) -> bool:
        """Whether any of these partitions does not exist."""
        return any(
            (place not in self.places or place.topic in self._deleted) and not self.side.has(place)
            for place in places
        )

    def note_deleted(self, topic: str) -> None:
        """Record that the topic's partitions may not exist from now on."""
        self._deleted.add(topic)

    def note_made_anew(self, topic: str) -> None:
        """Record that open transactions may have a partition of the earlier topic with the same name."""
        for name in self.transactional_ids:
            row = self.row(name)
            if row is not None and row.state == "Ongoing":
                here = {each for each in row.partitions if each.topic == topic} - self._moved
                before = self.namesakes.pop(name, None)
                places = here | (before.places if before else set())
                if places:
                    self.namesakes[name] = Namesakes(Identity(row.producer_id, row.producer_epoch), places)

    def has_joined(self, transactional_id: str, *places: Place) -> None:
        """Record that the transaction has these partitions of the present topic."""
        if transactional_id in self.namesakes:
            self.namesakes[transactional_id].places.difference_update(places)

    def decided_namesakes(self, transactional_id: str) -> tuple[Place, ...]:
        """The partitions that this id's decided transaction had only in the earlier topic."""
        namesakes = self.namesakes.get(transactional_id)
        if namesakes is None or not namesakes.places:
            return ()
        row = self.row(transactional_id)
        is_open = row is not None and row.state == "Ongoing"
        if row is not None and is_open and namesakes.writer == (row.producer_id, row.producer_epoch):
            return ()
        return tuple(sorted(namesakes.places))

    # --- beginning anew ---------------------------------------------------------------------------------------

    def move(self, place: Place) -> None:
        """Put an empty partition in the place of one that has different batches on the two sides."""
        self.side.move(place)
        self._moved.add(place)
        for namesakes in self.namesakes.values():
            namesakes.places.discard(place)
        for actor in self.actors.values():
            actor.leave(place)

    def rename_group(self, group: str) -> None:
        """Put a group without offsets in the place of one that has different offsets on the two sides."""
        self.side.rename(group)
        for key in [key for key in self.sent_offsets if key[0] == group]:
            del self.sent_offsets[key]

    def rename_id(self, transactional_id: str | None) -> None:
        """Put an unused id in the place of one that has different states on the two sides. The old id's
        transaction may stay open for ever wherever it has written, so the partitions move too."""
        if transactional_id is None:
            raise TypeError("no id to begin anew with")
        for place in self.places:
            self.move(place)
        self.side.rename(transactional_id)
        self.is_over(transactional_id)
        for name, actor in self.actors.items():
            if name.startswith(transactional_id):
                actor.begin(NOBODY)


@dataclass(frozen=True)
class Call:
    """One step of a program. It is an immutable value that knows its own requests."""

    @property
    def touches(self) -> str | None:
        """The transactional id about which the step asks the coordinator."""
        return None

    def __str__(self) -> str:
        shown = [f"{name}={value}" for name, value in vars(self).items() if value not in (None, 0, False)]
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True)
class Step(Call):
    """A request. `ask` returns what the sides have to agree on, and `look` returns the state that it will
    meet."""

    def ask(self, scene: Scene) -> Answer:
        raise NotImplementedError

    def look(self, scene: Scene) -> Seen:
        return Seen()

    def begin_anew(self, scene: Scene) -> None:
        """Discard everything that has different states on the two sides after this step."""
        raise TypeError(f"nothing to begin anew after {self}")


# --- a producer and its coordinator -----------------------------------------------------------------------


@dataclass(frozen=True)
class Init(Step):
    """InitProducerId. `holding` is the actor whose identity is given as the expected one."""

    actor: str
    transactional_id: str | None
    timeout_ms: int = 60_000
    holding: str | None = None
    epoch_shift: int = 0

    def ask(self, scene: Scene) -> Answer:
        expected = NOBODY if self.holding is None else scene.identity(self.holding, self.epoch_shift)
        try:
            given = scene.side.init_producer_id(self.transactional_id, self.timeout_ms, expected)
        except CallError as error:
            if self.transactional_id:
                scene.side.settle(self.transactional_id)
                if error.code == "CONCURRENT_TRANSACTIONS":
                    scene.is_over(self.transactional_id)
            raise
        scene.actors[self.actor].begin(given)
        return scene.named(given)

    def look(self, scene: Scene) -> Seen:
        return Seen(NOBODY if self.holding is None else scene.identity(self.holding, self.epoch_shift))

    @property
    def touches(self) -> str | None:
        return self.transactional_id

    def begin_anew(self, scene: Scene) -> None:
        scene.rename_id(self.touches)


@dataclass(frozen=True)
class AddPartitions(Step):
    """AddPartitionsToTxn, without a write to the partitions."""

    actor: str
    transactional_id: str
    places: tuple[Place, ...]
    epoch_shift: int = 0

    def ask(self, scene: Scene) -> Answer:
        who = scene.identity(self.actor, self.epoch_shift)
        scene.side.add_partitions(self.transactional_id, who, self.places)
        scene.has_joined(self.transactional_id, *self.places)
        return "added"

    def look(self, scene: Scene) -> Seen:
        return Seen(gone=scene.is_gone(*self.places))

    @property
    def touches(self) -> str | None:
        return self.transactional_id


@dataclass(frozen=True)
class Produce(Step):
    """A batch. With a transactional id it is in the id's transaction, and it adds the partition to the
    transaction."""

    actor: str
    transactional_id: str | None
    place: Place
    values: tuple[bytes, ...]
    sequence: SequenceKind = "next"
    epoch_shift: int = 0

    def ask(self, scene: Scene) -> Answer:
        actor = scene.actors[self.actor]
        who = scene.identity(self.actor, self.epoch_shift)
        sent = actor.sent[self.place, self.transactional_id is not None]
        batch = _batch(sent, actor.next_sequence[self.place], self.values, self.sequence)
        offset = scene.side.produce(self.transactional_id, who, self.place, batch)
        if self.epoch_shift == 0 and not self.sequence.startswith("again"):
            sent.append(batch)
            actor.next_sequence[self.place] = increment_sequence(batch.base_sequence, len(batch.values))
        if self.transactional_id is not None:
            scene.has_joined(self.transactional_id, self.place)
        return offset

    def look(self, scene: Scene) -> Seen:
        return Seen(scene.identity(self.actor, self.epoch_shift), gone=scene.is_gone(self.place))

    @property
    def touches(self) -> str | None:
        return self.transactional_id


def _batch(sent: list[Batch], following: int, values: tuple[bytes, ...], kind: SequenceKind) -> Batch:
    if kind == "next":
        return Batch(following, values)
    if kind == "zero":
        return Batch(0, values)
    if kind == "gap":
        return Batch(following + 3, values)
    if not sent:
        raise SkippedError
    if kind == "longer":
        return Batch(sent[-1].base_sequence, (*sent[-1].values, *values))
    if kind == "negative gap":
        return Batch(max(following - 1, 0), values)
    back = {"again": 1, "again 5": 5, "again 6": 6}[kind]
    return sent[max(len(sent) - back, 0)]


@dataclass(frozen=True)
class End(Step):
    """EndTxn. Without `settle` the next steps meet the transaction while it is decided and not complete."""

    actor: str
    transactional_id: str
    committed: bool
    epoch_shift: int = 0
    settle: bool = True

    def ask(self, scene: Scene) -> Answer:
        who = scene.identity(self.actor, self.epoch_shift)
        ended = scene.side.end_transaction(
            self.transactional_id, who, committed=self.committed, settle=self.settle
        )
        scene.actors[self.actor].begin(ended)
        scene.is_over(self.transactional_id)
        return scene.named(ended)

    def look(self, scene: Scene) -> Seen:
        return Seen(scene.identity(self.actor, self.epoch_shift))

    @property
    def touches(self) -> str | None:
        return self.transactional_id

    def begin_anew(self, scene: Scene) -> None:
        scene.rename_id(self.touches)


@dataclass(frozen=True)
class Settle(Step):
    """Wait until the transaction is complete."""

    transactional_id: str

    def ask(self, scene: Scene) -> Answer:
        scene.side.settle(self.transactional_id)
        return "settled"


@dataclass(frozen=True)
class TimeOut(Step):
    """Let time pass until the open transactions of these ids have timed out and were swept."""

    transactional_ids: tuple[str, ...]
    timeout_ms: int

    def ask(self, scene: Scene) -> Answer:
        scene.side.wait_for_time_outs(self.transactional_ids, self.timeout_ms)
        for name in self.transactional_ids:
            scene.is_over(name)
        return "over"


def _in_log(scene: Scene, place: Place, offset: int) -> int:
    """The offset, or the end of the log if that is lower: the engine refuses a commit beyond it, Kafka does not."""
    return min(offset, scene.side.ends(place).high_watermark) if scene.side.has(place) else offset


@dataclass(frozen=True)
class SendOffset(Step):
    """A group's offset in the transaction."""

    actor: str
    transactional_id: str
    group: str
    place: Place
    offset: int
    epoch_shift: int = 0

    def ask(self, scene: Scene) -> Answer:
        who = scene.identity(self.actor, self.epoch_shift)
        offset = _in_log(scene, self.place, self.offset)
        scene.side.send_offset(self.transactional_id, who, self.group, self.place, offset)
        scene.sent_offsets[self.group, self.place].add(self.transactional_id)
        return "pending"

    def look(self, scene: Scene) -> Seen:
        who = scene.identity(self.actor, self.epoch_shift)
        if scene.is_gone(self.place):
            return Seen(who, gone=True)
        return Seen(who, pending=scene.is_pending_by_another(self.group, self.place, self.transactional_id))

    @property
    def touches(self) -> str | None:
        return self.transactional_id

    def begin_anew(self, scene: Scene) -> None:
        scene.rename_group(self.group)


# --- a partition alone ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Append(Step):
    """A batch of any producer."""

    who: Identity
    place: Place
    base_sequence: int
    values: tuple[bytes, ...]
    is_transactional: bool

    def ask(self, scene: Scene) -> Answer:
        batch = Batch(self.base_sequence, self.values)
        return scene.side.append(self.who, self.place, batch, is_transactional=self.is_transactional)

    def look(self, scene: Scene) -> Seen:
        return Seen(self.who, _producer(scene, self.place, self.who))

    def begin_anew(self, scene: Scene) -> None:
        scene.move(self.place)


@dataclass(frozen=True)
class Mark(Step):
    """A marker of any producer."""

    who: Identity
    place: Place
    committed: bool
    coordinator_epoch: int

    def ask(self, scene: Scene) -> Answer:
        written = scene.side.append_marker(
            self.who, self.place, committed=self.committed, coordinator_epoch=self.coordinator_epoch
        )
        return "marked" if written else "nothing written"

    def look(self, scene: Scene) -> Seen:
        return Seen(self.who, _producer(scene, self.place, self.who))

    def begin_anew(self, scene: Scene) -> None:
        scene.move(self.place)


def _producer(scene: Scene, place: Place, who: Identity) -> KnownProducer | None:
    known = scene.side.producers(place)
    return next((each for each in known if each.producer_id == who.producer_id), None)


# --- groups -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CommitOffset(Step):
    """A plain commit of a group's offset."""

    group: str
    place: Place
    offset: int

    def ask(self, scene: Scene) -> Answer:
        scene.side.commit_offset(self.group, self.place, _in_log(scene, self.place, self.offset))
        return "committed"

    def look(self, scene: Scene) -> Seen:
        if scene.is_gone(self.place):
            return Seen(gone=True)
        return Seen(pending=scene.is_pending_by_another(self.group, self.place))

    def begin_anew(self, scene: Scene) -> None:
        scene.rename_group(self.group)


@dataclass(frozen=True)
class FetchOffset(Step):
    """A group's offset as its next reader gets it."""

    group: str
    place: Place
    require_stable: bool

    def ask(self, scene: Scene) -> Answer:
        return scene.side.fetch_offset(self.group, self.place, require_stable=self.require_stable)

    def look(self, scene: Scene) -> Seen:
        return Seen(gone=scene.is_gone(self.place))


# --- topics -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeleteTopic(Step):
    """Delete a topic of the program, with everything that is in it or about it."""

    topic: str

    def ask(self, scene: Scene) -> Answer:
        scene.side.delete_topic(self.topic)
        scene.note_deleted(self.topic)
        return "deleted"

    def look(self, scene: Scene) -> Seen:
        return Seen(gone=scene.is_gone(Place(self.topic, 0)))


@dataclass(frozen=True)
class MakeTopic(Step):
    """Create the topic again under its name. With `known` the producers know it too, and begin new sequences
    there."""

    topic: str
    partitions: int
    known: bool

    def ask(self, scene: Scene) -> Answer:
        scene.side.make_topic(self.topic, self.partitions)
        scene.note_made_anew(self.topic)
        for place in scene.places if self.known else ():
            if place.topic == self.topic:
                for actor in scene.actors.values():
                    actor.leave(place)
        return "made"


@dataclass(frozen=True)
class CountMarkers(Step):
    """Count the markers in partitions that a decided transaction had only in the earlier topic of that name.

    No program has this step. It is taken after the step that decided the transaction.
    """

    transactional_id: str
    places: tuple[Place, ...]

    def ask(self, scene: Scene) -> Answer:
        scene.side.settle(self.transactional_id)
        scene.namesakes.pop(self.transactional_id, None)
        return tuple(
            sum(batch.control != "none" for batch in scene.side.log(place)) if scene.side.has(place) else 0
            for place in self.places
        )

    def begin_anew(self, scene: Scene) -> None:
        for place in self.places:
            scene.move(place)


# --- looking ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Read(Step):
    """Read everything that a reader of this isolation level may see, with offsets."""

    place: Place
    isolation: Isolation

    def ask(self, scene: Scene) -> Answer:
        return scene.side.read(self.place, self.isolation)

    def look(self, scene: Scene) -> Seen:
        return Seen(gone=scene.is_gone(self.place))


@dataclass(frozen=True)
class Look(Step):
    """Look at the partition itself: its ends, its log batch by batch, its producers and its aborted
    transactions.

    Coordinator epochs are compared as numbers only where the program has chosen them.
    """

    place: Place
    start: int = 0
    coordinator_epochs: bool = False

    def ask(self, scene: Scene) -> Answer:
        side, ends = scene.side, scene.side.ends(self.place)
        start = max(min(self.start, ends.last_stable_offset), ends.log_start_offset)
        return {
            "ends": ends,
            "log": [_shown(batch, scene) for batch in side.log(self.place)],
            "producers": sorted(self._producer(each, scene) for each in side.producers(self.place)),
            "aborted": sorted((scene.name(who), offset) for who, offset in side.aborted(self.place, start)),
        }

    def _producer(self, producer: KnownProducer, scene: Scene) -> tuple[str, int, int, int, int]:
        epoch = producer.coordinator_epoch if self.coordinator_epochs else min(producer.coordinator_epoch, 0)
        named = scene.name(producer.producer_id)
        return named, producer.producer_epoch, producer.last_sequence, epoch, producer.open_since


def _shown(batch: RecordBatch, scene: Scene) -> RecordBatch | tuple[str, RecordBatch]:
    values = () if batch.control != "none" else batch.values
    return scene.name(batch.producer_id), replace(batch, producer_id=-1, values=values)


@dataclass(frozen=True)
class Describe(Step):
    """A transactional id as its coordinator knows it."""

    transactional_id: str

    def ask(self, scene: Scene) -> Answer:
        found = scene.side.describe(self.transactional_id)
        return found._replace(producer_id=0), scene.name(found.producer_id)


@dataclass(frozen=True)
class ListTransactions(Step):
    """List the transactional ids with these filters."""

    states: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()
    duration_ms: int = -1
    pattern: str = ""

    def ask(self, scene: Scene) -> Answer:
        wanted = [scene.identity(actor).producer_id for actor in self.actors]
        found = scene.side.list_transactions(self.states, wanted, self.duration_ms, self.pattern)
        return sorted((name, scene.name(who), state) for name, who, state in found)


# --- the operator -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RemoveRecords(Step):
    """Remove all decided records, and compare the new start of the log."""

    place: Place

    def ask(self, scene: Scene) -> Answer:
        return scene.side.remove_records(self.place)


@dataclass(frozen=True)
class ExpireIds(Step):
    """Let time pass until the ids without an open transaction are forgotten."""

    transactional_ids: tuple[str, ...]

    def ask(self, scene: Scene) -> Answer:
        scene.side.expire_ids(self.transactional_ids)
        return "over"


@dataclass(frozen=True)
class AbortHanging(Step):
    """Find the hanging transactions of a partition, and abort the first one."""

    place: Place

    def ask(self, scene: Scene) -> Answer:
        found = sorted(scene.side.find_hanging(self.place), key=lambda each: each.start_offset)
        for hanging in found[:1]:
            scene.side.abort_hanging(self.place, hanging)
        return [each._replace(producer_id=0) for each in found], [
            scene.name(each.producer_id) for each in found
        ]


@dataclass(frozen=True)
class Fence(Step):
    """Fence the producer that has this id, as an operator does."""

    transactional_id: str

    def ask(self, scene: Scene) -> Answer:
        given = scene.side.fence([self.transactional_id])[self.transactional_id]
        scene.is_over(self.transactional_id)
        return scene.named(given)

    @property
    def touches(self) -> str | None:
        return self.transactional_id
