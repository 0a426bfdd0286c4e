"""Apache Kafka behind the adapter for one program, with its own partitions, ids and groups on a shared
broker."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from tests.differential.broker import READ_COMMITTED, READ_UNCOMMITTED, Broker
from tests.differential.errors import (
    CallError,
    Kind,
    TooSlowError,
    kind_of_a_read,
    kind_of_a_request,
    kind_of_a_write,
)
from tests.differential.java_clients import Operator
from tests.differential.records import RecordBatch, encode_batch
from tests.differential.sides import (
    Batch,
    Ends,
    Hanging,
    Identity,
    Isolation,
    KnownProducer,
    KnownTransaction,
    Place,
)
from tests.support.kafka_server import ID_EXPIRATION_MS
from tests.support.waiting import wait_for

T = TypeVar("T")

SETTLE_LIMIT_S = 30.0
FIRST_FILLER_ID = 1 << 50
FENCE_TIMEOUT_MS = 30_000  # the admin client's request timeout
_NOT_YET = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "NOT_LEADER_OR_FOLLOWER",
)


class KafkaSide:
    """Apache Kafka as one program sees it.

    `places` maps the program's partitions to partitions of the broker. `prefix` makes the program's names
    unique. `operator` returns Kafka's own admin client. `fresh` returns a partition that nobody has used.
    """

    def __init__(
        self,
        broker: Broker,
        places: Mapping[Place, tuple[str, int]],
        prefix: str,
        operator: Callable[[], Operator],
        fresh: Callable[[], tuple[str, int]],
    ) -> None:
        self._broker = broker
        self._operator = operator
        self._fresh = fresh
        self._names: dict[str, str] = {}
        self._left: set[str] = set()
        self._at = dict(places)
        self._place_of = {physical: place for place, physical in places.items()}
        self._prefix = prefix
        self._timeouts_ms: dict[str, int] = {}
        self._opened_s: dict[str, float] = {}
        self._idle_since_s: float | None = None
        self._fillers: set[int] = set()

    # --- beginning anew -------------------------------------------------------------------------------------

    def move(self, place: Place) -> None:
        self._at[place] = self._fresh()
        self._place_of[self._at[place]] = place

    def rename(self, name: str) -> None:
        self._left.add(self._name(name))
        self._names[name] = f"{name}-{len(self._left)}"

    # --- a producer and its coordinator ---------------------------------------------------------------------

    def init_producer_id(self, transactional_id: str | None, timeout_ms: int, expected: Identity) -> Identity:
        name = None if transactional_id is None else self._name(transactional_id)
        if transactional_id is not None:
            self._check_pace(transactional_id)
            self._timeouts_ms[transactional_id] = timeout_ms
        self._idle_since_s = self._idle_since_s or time.monotonic()
        with _of_a_request():
            given = when_ready(lambda: self._broker.init_producer_id(name, timeout_ms, *expected))
        return Identity(*given)

    def add_partitions(self, transactional_id: str, who: Identity, places: Sequence[Place]) -> None:
        self._note_open(transactional_id)
        where = [self._at.get(place, ("nowhere", place.partition)) for place in places]
        name = self._name(transactional_id)
        with _of_a_request():
            when_ready(lambda: self._broker.add_partitions(name, *who, where))

    def end_transaction(
        self, transactional_id: str, who: Identity, *, committed: bool, settle: bool
    ) -> Identity:
        self._check_pace(transactional_id)
        name = self._name(transactional_id)
        with _of_a_request():
            ended = when_ready(lambda: self._broker.end_transaction(name, *who, committed=committed))
        self._opened_s.pop(transactional_id, None)
        if settle:
            self.settle(transactional_id)
        return Identity(*ended)

    def produce(self, transactional_id: str | None, who: Identity, place: Place, batch: Batch) -> int:
        if transactional_id is not None:
            self._note_open(transactional_id)
        name = None if transactional_id is None else self._name(transactional_id)
        records = _encode(who, batch, is_transactional=transactional_id is not None)
        where = self._at[place]
        with _of_a_write():
            return when_ready(lambda: self._broker.produce(*where, records, transactional_id=name))

    def send_offset(
        self, transactional_id: str, who: Identity, group: str, place: Place, offset: int
    ) -> None:
        self._note_open(transactional_id)
        where = self._at[place]
        name, group_id = self._name(transactional_id), self._name(group)
        with _of_a_request():
            when_ready(lambda: self._broker.txn_offset_commit(name, group_id, *who, *where, offset))

    def settle(self, transactional_id: str) -> None:
        def is_settled() -> bool:
            return not self._state(transactional_id).startswith("Prepare")

        wait_for(is_settled, what=f"{transactional_id} to be complete", limit_s=SETTLE_LIMIT_S)

    def _state(self, transactional_id: str) -> str:
        try:
            name = self._name(transactional_id)
            return when_ready(lambda: self._broker.describe_transaction(name)).state
        except CallError as error:
            if error.code != "TRANSACTIONAL_ID_NOT_FOUND":
                raise
            return "none"

    def _note_open(self, transactional_id: str) -> None:
        self._opened_s.setdefault(transactional_id, time.monotonic())
        self._check_pace(transactional_id)

    def _check_pace(self, transactional_id: str) -> None:
        """Raise an error if Kafka may have timed out something that is still young on the other side's
        clock."""
        opened_s = self._opened_s.get(transactional_id)
        limit_ms = self._timeouts_ms.get(transactional_id, 60_000)
        if opened_s is not None and limit_ms > 0 and (time.monotonic() - opened_s) * 1_000 > limit_ms * 0.8:
            raise TooSlowError(f"{transactional_id} was open for too long before it was to time out")

    def wait_for_time_outs(self, transactional_ids: Sequence[str], timeout_ms: int) -> None:
        for name in transactional_ids:
            self._check_pace(name)
            self._opened_s.pop(name, None)

        def is_over() -> bool:
            return all(self._state(name) not in _OPEN for name in transactional_ids)

        wait_for(is_over, what="a transaction to time out", limit_s=SETTLE_LIMIT_S)

    def expire_ids(self, transactional_ids: Sequence[str]) -> None:
        """Wait until the broker's own short limit has passed. Raises an error if the broker may have
        forgotten an id before."""
        is_late = time.monotonic() - (self._idle_since_s or time.monotonic()) > ID_EXPIRATION_MS / 1_000 * 0.7
        self._idle_since_s = None
        if is_late:
            raise TooSlowError("an id was idle for too long before it was to expire")
        idle = [name for name in transactional_ids if self._state(name) not in _OPEN]
        wait_for(
            lambda: all(self._state(name) == "none" for name in idle),
            what="an id to expire",
            limit_s=SETTLE_LIMIT_S,
        )

    # --- topics ---------------------------------------------------------------------------------------------

    def delete_topic(self, topic: str) -> None:
        """Delete the topic. Groups forget its offsets last of all, so an offset of a witness group shows when
        they have."""
        name, witness = self._prefix + topic, f"{self._prefix}witness"
        with contextlib.suppress(CallError):  # nothing to be forgotten where the topic is not there
            when_ready(lambda: self._broker.offset_commit(witness, name, 0, 1))
        with _of_a_read():
            self._broker.delete_topic(name)
        wait_for(lambda: not self._is_led(name, 0), what=f"the end of {topic}", limit_s=SETTLE_LIMIT_S)
        wait_for(
            lambda: self._broker.offset_fetch(witness, name, 0, require_stable=False) < 0,
            what=f"the offsets of {topic} to be forgotten",
            limit_s=SETTLE_LIMIT_S,
        )

    def make_topic(self, topic: str, partitions: int) -> None:
        with _of_a_read():
            make_topic(self._broker, self._prefix + topic, partitions)

    def has(self, place: Place) -> bool:
        return self._is_led(*self._at.get(place, place))

    def _is_led(self, name: str, partition: int) -> bool:
        try:
            self._broker.list_offsets(name, partition, -1, isolation=READ_UNCOMMITTED)
        except CallError as error:
            if error.code != "UNKNOWN_TOPIC_OR_PARTITION":
                raise
            return False
        return True

    # --- a partition alone ----------------------------------------------------------------------------------

    def append(self, who: Identity, place: Place, batch: Batch, *, is_transactional: bool) -> int:
        records = _encode(who, batch, is_transactional=is_transactional)
        name = self._name("nobody") if is_transactional else None
        with _of_a_write():
            return self._broker.produce(*self._at[place], records, transactional_id=name, version=11)

    def append_marker(self, who: Identity, place: Place, *, committed: bool, coordinator_epoch: int) -> bool:
        before = self.ends(place).high_watermark
        self._broker.write_marker(
            *self._at[place],
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            committed=committed,
            coordinator_epoch=coordinator_epoch,
        )
        return self.ends(place).high_watermark > before

    # --- groups ---------------------------------------------------------------------------------------------

    def commit_offset(self, group: str, place: Place, offset: int) -> None:
        where, group_id = self._at[place], self._name(group)
        with _of_a_read():
            when_ready(lambda: self._broker.offset_commit(group_id, *where, offset))

    def fetch_offset(self, group: str, place: Place, *, require_stable: bool) -> int:
        where, group_id = self._at[place], self._name(group)
        with _of_a_read():
            return when_ready(
                lambda: self._broker.offset_fetch(group_id, *where, require_stable=require_stable)
            )

    # --- the operator ---------------------------------------------------------------------------------------

    def remove_records(self, place: Place) -> int:
        """Remove records up to the end of the last decided ones (DeleteRecords). A marker that aborts them
        goes too, and other markers stay."""
        before, stable, _ = self.ends(place)
        bound = max([before, *(end for end in _ends_of_what_is_decided(self.log(place)) if end <= stable)])
        if bound > before:
            self._broker.delete_records(*self._at[place], bound)
            self._take_an_offset(place)
        return self.ends(place).log_start_offset

    def _take_an_offset(self, place: Place) -> None:
        """Write a marker that no reader is shown. The engine's log start is a row of the log, so this keeps
        the offsets alike."""
        self._fillers.add(FIRST_FILLER_ID + len(self._fillers))
        self._broker.write_marker(
            *self._at[place],
            producer_id=max(self._fillers),
            producer_epoch=0,
            committed=True,
            coordinator_epoch=0,
        )

    def find_hanging(self, place: Place) -> list[Hanging]:
        """Find hanging transactions as `kafka-transactions.sh` does: open in the partition, and unknown to
        every coordinator."""
        found = [each for each in self.producers(place) if each.open_since >= 0]
        known = {
            who for _, who, _ in self._broker.list_transactions((), [each[0] for each in found], -1, None)
        }
        return [
            Hanging(each.producer_id, each.producer_epoch, each.coordinator_epoch, each.open_since)
            for each in found
            if each.producer_id not in known
        ]

    def abort_hanging(self, place: Place, hanging: Hanging) -> None:
        self._operator().abort_transaction(self._at[place], hanging)

    def fence(self, transactional_ids: Sequence[str]) -> Mapping[str, Identity]:
        for own in transactional_ids:
            self._check_pace(own)
            self._opened_s.pop(own, None)
            self._timeouts_ms[own] = FENCE_TIMEOUT_MS
        own_of = {self._name(own): own for own in transactional_ids}
        fenced = self._operator().fence(own_of)
        for own in transactional_ids:
            self.settle(own)
        return {own_of[name]: given for name, given in fenced.items()}

    # --- looking --------------------------------------------------------------------------------------------

    def read(self, place: Place, isolation: Isolation) -> list[tuple[int, bytes]]:
        level = READ_COMMITTED if isolation == "read_committed" else READ_UNCOMMITTED
        with _of_a_read():
            start = self.ends(place).log_start_offset
            fetched = self._broker.fetch(*self._at[place], start, isolation=level)
        return [each for each in _visible(fetched.batches, fetched.aborted) if each[0] >= start]

    def log(self, place: Place) -> list[RecordBatch]:
        start = self.ends(place).log_start_offset
        fetched = self._broker.fetch(*self._at[place], start, isolation=READ_UNCOMMITTED)
        return [each for each in fetched.batches if each.producer_id not in self._fillers]

    def ends(self, place: Place) -> Ends:
        where = self._at[place]
        start = self._broker.list_offsets(*where, -2, isolation=READ_UNCOMMITTED)
        stable = self._broker.list_offsets(*where, -1, isolation=READ_COMMITTED)
        return Ends(start, stable, self._broker.list_offsets(*where, -1, isolation=READ_UNCOMMITTED))

    def aborted(self, place: Place, start: int) -> list[tuple[int, int]]:
        return sorted(self._broker.fetch(*self._at[place], start, isolation=READ_COMMITTED).aborted)

    def producers(self, place: Place) -> list[KnownProducer]:
        return [
            KnownProducer(
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.coordinator_epoch,
                each.current_transaction_start_offset,
            )
            for each in self._broker.describe_producers(*self._at[place])
            if each.producer_id not in self._fillers
        ]

    def describe(self, transactional_id: str) -> KnownTransaction:
        name = self._name(transactional_id)
        found = when_ready(lambda: self._broker.describe_transaction(name))
        places = {self._place_of.get(each, Place("offsets", 0)) for each in found.partitions}
        identity = found.producer_id, found.producer_epoch
        return KnownTransaction(found.state, *identity, found.timeout_ms, tuple(sorted(places)))

    def list_transactions(
        self, states: Sequence[str], producer_ids: Sequence[int], duration_ms: int, pattern: str
    ) -> list[tuple[str, int, str]]:
        wanted = f"{self._prefix}({pattern or '.*'})"
        with _of_a_read():
            found = self._broker.list_transactions(states, producer_ids, duration_ms, wanted)
        own_of = {name: own for own, name in self._names.items()}
        listed = [(name, name.removeprefix(self._prefix), who, state) for name, who, state in found]
        return [
            (own_of.get(own, own), who, state) for name, own, who, state in listed if name not in self._left
        ]

    def _name(self, own: str) -> str:
        return self._prefix + self._names.get(own, own) if own else own


def _ends_of_what_is_decided(batches: Sequence[RecordBatch]) -> Iterator[int]:
    """The end of each plain or committed batch, and the end of each marker that aborts any batch."""
    undecided: dict[int, list[int]] = {}
    for batch in batches:
        if batch.control != "none":
            ends = undecided.pop(batch.producer_id, [])
            yield from ends if batch.control == "commit" else [batch.last_offset + 1] * bool(ends)
        elif batch.is_transactional:
            undecided.setdefault(batch.producer_id, []).append(batch.last_offset + 1)
        else:
            yield batch.last_offset + 1


@contextlib.contextmanager
def _of(kind: Callable[[str], Kind]) -> Iterator[None]:
    """Raise errors with the kind that the sending client gives them."""
    try:
        yield
    except CallError as error:
        raise CallError(error.code, str(error), kind(error.code)) from error


def _of_a_write() -> contextlib.AbstractContextManager[None]:
    return _of(kind_of_a_write)


def _of_a_request() -> contextlib.AbstractContextManager[None]:
    return _of(kind_of_a_request)


def _of_a_read() -> contextlib.AbstractContextManager[None]:
    return _of(kind_of_a_read)


_OPEN = ("Ongoing", "PrepareAbort", "PrepareCommit", "PrepareEpochFence")


def _encode(who: Identity, batch: Batch, *, is_transactional: bool) -> bytes:
    return encode_batch(
        batch.values,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=is_transactional,
        timestamp_ms=time.time_ns() // 1_000_000,
    )


def _visible(
    batches: Sequence[RecordBatch], aborted: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, bytes]]:
    """The records that a consumer returns, without markers and without batches of aborted transactions
    (`CompletedFetch`)."""
    waiting = sorted(aborted, key=lambda each: each[1])
    inside: set[int] = set()
    for batch in batches:
        while waiting and waiting[0][1] <= batch.last_offset:
            inside.add(waiting.pop(0)[0])
        if batch.control == "abort":
            inside.discard(batch.producer_id)
        elif batch.control == "none" and not (batch.is_transactional and batch.producer_id in inside):
            yield from batch.records


def when_ready(ask: Callable[[], T], *not_yet: str) -> T:
    """Repeat the call while a coordinator is still loading its partition, or a partition has no leader
    yet."""
    deadline = time.monotonic() + SETTLE_LIMIT_S
    while True:
        try:
            return ask()
        except CallError as error:
            if error.code not in (*_NOT_YET, *not_yet) or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def make_topic(broker: Broker, topic: str, partitions: int) -> None:
    """Create a topic and wait until each partition has its leader."""
    broker.create_topics({topic: partitions})
    for partition in range(partitions):
        ask = partial(broker.list_offsets, topic, partition, -1, isolation=READ_UNCOMMITTED)
        when_ready(ask, "UNKNOWN_TOPIC_OR_PARTITION")
