"""The adapter has everything that a program may ask Apache Kafka and the engine alike.

Every call returns a value or raises `CallError` with Kafka's name for the error. Each side has its own
producer ids. The run compares them by the order in which they first appear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from tests.differential.records import RecordBatch

Isolation = Literal["read_committed", "read_uncommitted"]


class Place(NamedTuple):
    """A partition by its name in the program."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}{self.partition}"


class Identity(NamedTuple):
    """The producer id and epoch that a producer writes with."""

    producer_id: int
    producer_epoch: int


NOBODY = Identity(-1, -1)


class Ends(NamedTuple):
    """The start of a partition, and the offsets at which readers of either kind have to stop."""

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
    """A transaction that is open in a partition and unknown to every coordinator."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int


class Batch(NamedTuple):
    """Records to append, with their place in the producer's sequence."""

    base_sequence: int
    values: tuple[bytes, ...]


@dataclass(frozen=True)
class Seen:
    """The state that a step acts on, as one side knows it. Reviewed differences are judged by it.

    `writer` is the identity that sends the step. `producer` is what the partition remembered of it before.
    `row` is the transactional id at its coordinator. `pending` says whether a transaction of another id had
    offsets of this group and partition pending. `moved` says whether another client has committed for a
    reader's group since the reader fetched its position. `superseded` says whether another producer has
    initialised the caller's transactional id since. `gone` says whether a named partition does not exist.
    `visible` has the offsets that a reader gets, each with whether its record is as late as the requested
    time.
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
        """Put an empty partition in the place of the program's partition."""

    def rename(self, name: str) -> None:
        """Replace the program's transactional id or group by one that nobody has used."""

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
        """Wait until no transaction of this id is decided and not complete."""

    def wait_for_time_outs(self, transactional_ids: Sequence[str], timeout_ms: int) -> None:
        """Wait until the open transactions of these ids are older than `timeout_ms` and the sweep has run."""

    def expire_ids(self, transactional_ids: Sequence[str]) -> None:
        """Wait until the ids without an open transaction have been idle too long and are forgotten."""

    # --- topics
    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until every client and coordinator knows it."""

    def make_topic(self, topic: str, partitions: int) -> None:
        """Create a topic, also after it was deleted, and wait until every client and coordinator knows it."""

    def has(self, place: Place) -> bool: ...

    # --- a partition alone: any producer id, no coordinator
    def append(self, who: Identity, place: Place, batch: Batch, *, is_transactional: bool) -> int: ...
    def append_marker(self, who: Identity, place: Place, *, committed: bool, coordinator_epoch: int) -> bool:
        """Append a marker. Returns whether anything was written."""
        ...

    # --- groups
    def commit_offset(self, group: str, place: Place, offset: int) -> None: ...
    def fetch_offset(self, group: str, place: Place, *, require_stable: bool) -> int: ...

    # --- the operator
    def remove_records(self, place: Place) -> int:
        """Remove all decided records. Returns the new start of the log."""
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
        """List transactions. A `duration_ms` of -1 or a `pattern` of "" is no filter. A pattern applies to
        the program's names."""
        ...
