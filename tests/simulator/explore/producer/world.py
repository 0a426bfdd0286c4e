"""One state of the search: the machine, the threads that move it, the lanes, the coordinator's row.

A thread is what is left of its program: a list of steps, the next one first. A step may put others in front of the
rest; an error or an interrupt takes steps away up to one that handles it (`threads.py`). Everything is a value.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from txn_engine.errors import (
    ConcurrentTransactionsError,
    InvalidRequestError,
    InvalidTxnStateError,
    OutcomeUnknownError,
    ProducerFencedError,
)
from txn_engine.producer.machine import Machine
from txn_engine.producer.states import is_fatal_to_a_write
from txn_engine.protocol.transaction_rows import StoredRow, TransactionPartition

T = TypeVar("T")

NAME, RUN = "shared", "run"
PARTITIONS = (TransactionPartition("topic", 0, 0), TransactionPartition("topic", 0, 1))
"""One of a topic; the other takes a topic's records or a group's offsets, as they come."""

INTERRUPT = KeyboardInterrupt()
NO_ANSWER = OutcomeUnknownError("no answer")
FATAL = ProducerFencedError("a request, or a write for good")
NOT_MINE = InvalidTxnStateError("a resumed identity is in another's hands")
OTHER = InvalidRequestError("any other")
CONCURRENT = ConcurrentTransactionsError("a request")


def kind_of(error: BaseException) -> BaseException:
    """The error that represents all errors to which machine and shell do the same. States that differ only in
    words are the same."""
    for kind in (CONCURRENT, INTERRUPT, NO_ANSWER, NOT_MINE):
        if type(error) is type(kind):
            return kind
    return FATAL if is_fatal_to_a_write(error) else OTHER


def as_failure(error: BaseException) -> BaseException:
    """What the machine keeps of an error: whether it is fatal."""
    if error is NOT_MINE:
        return error
    return FATAL if is_fatal_to_a_write(error) else NO_ANSWER


class Ref(Generic[T]):
    """A value that represents all equal ones, and is quick to compare."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


class Refs:
    """The values found so far."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Ref[Any]] = {}

    def of(self, value: T) -> Ref[T]:
        """The value's one reference."""
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = Ref(value)
        return found


Instruction = tuple[Any, ...]
Todo = tuple[Instruction, ...]


class Thread(NamedTuple):
    """A thread: its name and the rest of its steps."""

    name: str
    todo: Todo


class World(NamedTuple):
    """A state.

    `lanes`: what became of the transaction's batch in each partition ("" none, "expected" counted and not queued,
    "queued", "uploaded", "appended", "failed"; "sent" and "lost" as the last two, with a future that does not say so
    yet). `marks`: the epoch of the last marker in each partition. `ender`, `broken_off` and `completion` (the last one
    that was submitted and is not over) are the shell's own. `outcome` is what the log holds of the open transaction:
    its decision, or that somebody fenced it. `is_torn`: a `produce` of it failed half-way or was broken off.
    """

    machine: Ref[Machine]
    row: Ref[StoredRow | None]
    marks: tuple[int, ...]
    lanes: tuple[str, ...]
    user: Thread | None
    pool: frozenset[Thread]
    ender: bool
    broken_off: BaseException | None
    completion: int
    engine_closed: bool
    outcome: str
    is_torn: bool
    faults: int
    transactions: int
    inits: int
    batches: int
    callbacks: int


def _plural(what: str, count: int) -> str:
    first, _, rest = what.partition(" ")
    return " ".join(part for part in (first if count == 1 else f"{first}s", rest) if part)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen: transactions, calls of `init_transactions`, calls that write (the same number in
    callbacks), and faults and interrupts in all."""

    transactions: int
    inits: int
    batches: int
    callbacks: int
    faults: int

    @property
    def words(self) -> str:
        """The bounds in a few words."""
        counts = {"transaction": self.transactions, "init": self.inits, "write": self.batches}
        counts |= {"write in a callback": self.callbacks} if self.callbacks else {}
        counts |= {"fault": self.faults}
        return ", ".join(f"{count} {_plural(what, count)}" for what, count in counts.items())


@dataclass(frozen=True, slots=True)
class Setting:
    """How the producer was made: with its markers `deferred` to the sweep, or with an identity to resume.
    `elsewhere` says that callbacks of another producer's batches produce."""

    words: str
    deferred: bool = False
    resumes: bool = False
    elsewhere: bool = False


INLINE = Setting("markers inline")
DEFERRED = Setting("markers deferred", deferred=True)
RESUMED = Setting("an identity resumed", resumes=True)
ELSEWHERE = Setting("markers inline, callbacks of another producer", elsewhere=True)


@dataclass(frozen=True, slots=True)
class Sought:
    """One search."""

    name: str
    setting: Setting
    bounds: Bounds


_ONE = Bounds(transactions=1, inits=2, batches=2, callbacks=1, faults=1)
_TWO = Bounds(transactions=2, inits=1, batches=2, callbacks=0, faults=1)
_FAULTS = Bounds(transactions=1, inits=1, batches=1, callbacks=0, faults=2)
SEARCHES = (
    Sought("inline", INLINE, _ONE),
    Sought("deferred", DEFERRED, _ONE),
    Sought("resumed", RESUMED, _ONE),
    Sought("elsewhere", ELSEWHERE, Bounds(transactions=1, inits=1, batches=1, callbacks=1, faults=1)),
    Sought("inline, two", INLINE, _TWO),
    Sought("deferred, two", DEFERRED, _TWO),
    Sought("inline, two faults", INLINE, _FAULTS),
)
"""What `make explore` looks at, one after the other."""
