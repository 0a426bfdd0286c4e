"""The adapter: what a program may ask, of Apache Kafka and of the engine alike.

Every call answers with a value or raises `CallError` with Kafka's name for what was wrong. Producer ids are each side's
own; the run compares them by the order in which they turned up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from tests.differential.records import RecordBatch

Isolation = Literal["read_committed", "read_uncommitted"]


class Place(NamedTuple):
    """A partition by the name that the program has for it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}{self.partition}"


class Identity(NamedTuple):
    """What a producer writes under."""

    producer_id: int
    producer_epoch: int


NOBODY = Identity(-1, -1)


class Ends(NamedTuple):
    """Where a partition begins, and where readers of either kind have to stop."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


class KnownProducer(NamedTuple):
    """A producer as a partition remembers it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    coordinator_epoch: int
    open_since: int


class KnownTransaction(NamedTuple):
    """A transactional id as its coordinator knows it."""

    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    partitions: tuple[Place, ...]


class Hanging(NamedTuple):
    """A transaction that is open in a partition and that no coordinator knows of."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int


class Batch(NamedTuple):
    """Records to append: where in the producer's sequence, and what."""

    base_sequence: int
    values: tuple[bytes, ...]


@dataclass(frozen=True)
class Seen:
    """What stands where a step acts, as one side knows it: what a reviewed difference goes by.

    `writer`: whom the step is sent as. `producer`: what the partition remembered of it before. `row`: the transactional
    id at its coordinator. `pending`: whether a transaction of another id had offsets of this group and partition
    pending. `moved`: whether another has committed for a reader's group since the reader was there. `superseded`:
    whether another producer has initialised the caller's transactional id since. `gone`: whether a partition that it
    names is not there. `visible`: the offsets that a reader gets, each with whether its record is as late as the time
    that is asked for.
    """

    writer: Identity = NOBODY
    producer: KnownProducer | None = None
    row: KnownTransaction | None = None
    pending: bool = False
    moved: bool = False
    superseded: bool = False
    gone: bool = False
    visible: tuple[tuple[int, bool], ...] = ()


NOTHING = Seen()


class Side(Protocol):
    """One of the two systems, as one program sees it."""

    # --- beginning anew, where the two are no longer at the same
    def move(self, place: Place) -> None:
        """Let the program's partition be an empty one from now on."""

    def rename(self, name: str) -> None:
        """Let the program's transactional id or group be one that nobody has used."""

    # --- a producer and its coordinator
    def init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, expected: Identity
    ) -> Identity: ...
    def add_partitions(self, transactional_id: str, who: Identity, places: Sequence[Place]) -> None: ...
    def end_transaction(
        self, transactional_id: str, who: Identity, *, committed: bool, settle: bool
    ) -> Identity: ...
    def produce(self, transactional_id: str | None, who: Identity, place: Place, batch: Batch) -> int: ...
    def send_offset(
        self, transactional_id: str, who: Identity, group: str, place: Place, offset: int
    ) -> None: ...
    def settle(self, transactional_id: str) -> None:
        """Until no transaction of this id is decided and not complete."""

    def wait_for_time_outs(self, transactional_ids: Sequence[str], timeout_ms: int) -> None:
        """Until what these ids had open has been open for longer than `timeout_ms`, and the sweep has been."""

    def expire_ids(self, transactional_ids: Sequence[str]) -> None:
        """Until those of these ids that nothing is open under have been idle for too long, and are forgotten."""

    # --- topics
    def delete_topic(self, topic: str) -> None:
        """Until everybody has heard of it."""

    def make_topic(self, topic: str, partitions: int) -> None:
        """Anew, where it was deleted before. Until everybody has heard of it."""

    def has(self, place: Place) -> bool: ...

    # --- a partition alone: any producer id, no coordinator
    def append(self, who: Identity, place: Place, batch: Batch, *, is_transactional: bool) -> int: ...
    def append_marker(self, who: Identity, place: Place, *, committed: bool, coordinator_epoch: int) -> bool:
        """Whether anything was written."""
        ...

    # --- groups
    def commit_offset(self, group: str, place: Place, offset: int) -> None: ...
    def fetch_offset(self, group: str, place: Place, *, require_stable: bool) -> int: ...

    # --- the operator
    def remove_records(self, place: Place) -> int:
        """Let go of all decided records; where the log starts then."""
        ...

    def find_hanging(self, place: Place) -> list[Hanging]: ...
    def abort_hanging(self, place: Place, hanging: Hanging) -> None: ...
    def fence(self, transactional_ids: Sequence[str]) -> Mapping[str, Identity]: ...

    # --- looking
    def read(self, place: Place, isolation: Isolation) -> list[tuple[int, bytes]]: ...
    def log(self, place: Place) -> list[RecordBatch]: ...
    def ends(self, place: Place) -> Ends: ...
    def aborted(self, place: Place, start: int) -> list[tuple[int, int]]: ...
    def producers(self, place: Place) -> list[KnownProducer]: ...
    def describe(self, transactional_id: str) -> KnownTransaction: ...
    def list_transactions(
        self, states: Sequence[str], producer_ids: Sequence[int], duration_ms: int, pattern: str
    ) -> list[tuple[str, int, str]]:
        """`duration_ms` -1, `pattern` "": no such filter. A pattern is of the program's names."""
        ...
