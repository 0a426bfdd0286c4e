"""The producer as a pure machine (`TransactionManager`): its state and an event give its next state and what to do.

Each function takes the machine and what has happened, and returns the next machine with the effects that the shell is
to carry out, or raises what the caller is to be told. Nothing here waits, asks the store or knows of threads.

A transaction goes through these events; those in brackets come from the pool's threads, at any time:

    init_called  initialised  begun  wanted [join_begins  joined]  committing  decided [completion_begins  completed]

An effect may be lost (Ctrl-C), or carried out and its answer lost. So every call that may be made again gives its
effects again, and what an effect asks of the coordinator may be asked twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from txn_engine.errors import (
    IllegalStateError,
    InvalidTxnStateError,
    OutcomeUnknownError,
    TransactionAbortableError,
)
from txn_engine.producer.group_memory import GroupMemory
from txn_engine.producer.partition_list import PartitionList
from txn_engine.producer.states import (
    LEGAL,
    VALID_PREVIOUS_STATES,
    Call,
    ProducerState,
    describe_error,
    is_fatal_to_a_write,
)
from txn_engine.protocol.transaction_rows import StoredRow, TransactionPartition, TransactionRow
from txn_engine.protocol.transactions import NOBODY, with_run_id
from txn_engine.reasons import Reason
from txn_engine.types import ConsumerGroupMetadata, ProducerIdAndEpoch, TopicPartition

_NOTHING = PartitionList()


# --- effects ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskInit:
    """Ask the coordinator for an identity, naming the one that is held."""

    held: ProducerIdAndEpoch


@dataclass(frozen=True, slots=True)
class Join:
    """See to it that a thread joins what waits."""


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Make these part of the transaction; first finish what the last one left.

    `begins`: nobody else may have added anything under this identity, which was taken over.
    """

    identity: ProducerIdAndEpoch
    partitions: tuple[TransactionPartition, ...]
    begins: bool
    unfinished: Unfinished | None


@dataclass(frozen=True, slots=True)
class Start:
    """Start the lanes to these partitions, or all (None): some may go on, or have to fail what they hold."""

    partitions: tuple[TransactionPartition, ...] | None = None


@dataclass(frozen=True, slots=True)
class AskEnd:
    """Ask the coordinator to end the transaction; first finish what the last one left."""

    identity: ProducerIdAndEpoch
    committed: bool
    run_id: str | None
    unfinished: Unfinished | None


@dataclass(frozen=True, slots=True)
class Complete:
    """Write the Complete row of a decision whose markers are all there."""

    decision: StoredRow


Effect = AskInit | Join | AddPartitions | Start | AskEnd | Complete


# --- the state --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The decision of the last transaction, as long as its Complete row is owed. `is_marked`: nothing else is."""

    decision: StoredRow
    is_marked: bool


@dataclass(frozen=True, slots=True)
class Machine:
    """All that a producer knows of itself.

    `transaction` counts them: what was sent in one is never taken for another's. `error` is what a finished producer's
    calls raise, and in ABORTABLE_ERROR the first thing that failed. Of the transaction's partitions some are `joined`,
    some are in the row that is being written (`joining`; None: no row is), and some wait for the next row (`waiting`;
    None: nothing does; empty: a row, for a run that had nothing to write). `asked`: something was to be written, so
    that its end is the coordinator's to decide. `sending` counts calls of `produce` in callbacks.
    """

    transactional_id: str | None
    state: ProducerState
    identity: ProducerIdAndEpoch = NOBODY
    is_resumed: bool = False
    history: TransactionRow | None = None
    groups: GroupMemory = field(default_factory=GroupMemory)
    transaction: int = 0
    run_id: str | None = None
    error: BaseException | None = None
    join_error: BaseException | None = None
    asked: bool = False
    joined: frozenset[TransactionPartition] = frozenset()
    joining: PartitionList | None = None
    waiting: PartitionList | None = None
    sending: int = 0
    unfinished: Unfinished | None = None
    is_completing: bool = False

    @property
    def actor(self) -> str:
        """Who it is, in an error."""
        name = f"transactional id {self.transactional_id!r}, " if self.transactional_id else ""
        return f"{name}producer {self.identity.producer_id} epoch {self.identity.producer_epoch}"

    @property
    def is_joining(self) -> bool:
        """Whether a row is being written, or will be: after a failure nothing that waits is joined any more."""
        waits = self.waiting is not None and self.state is ProducerState.IN_TRANSACTION
        return self.joining is not None or waits

    def admits(self, partition: TransactionPartition) -> bool:
        """Whether batches may be appended there."""
        return self.transactional_id is None or partition in self.joined

    def refusal(self, partition: TransactionPartition) -> BaseException | None:
        """What batches that are not appended yet fail with; None where they may go out."""
        if self.state is ProducerState.ABORTING_TRANSACTION:
            return TransactionAbortableError("the transaction is being aborted", actor=self.actor)
        if self.state is ProducerState.CLOSED:
            return IllegalStateError(
                "the producer was closed before this was written",
                actor=self.actor,
                reason=Reason.PRODUCER_CLOSED,
            )
        if self.error is None:
            return None
        if self.join_error is not None and partition not in self.joined:
            return self.join_error
        what = "the transaction" if self.transactional_id is not None else "an earlier batch"
        return TransactionAbortableError(f"{what} failed: {describe_error(self.error)}", actor=self.actor)


Step = tuple[Machine, tuple[Effect, ...]]


def new_machine(transactional_id: str | None) -> Machine:
    """A producer that has just been made."""
    is_transactional = transactional_id is not None
    return Machine(transactional_id, ProducerState.UNINITIALIZED if is_transactional else ProducerState.READY)


def _to(machine: Machine, state: ProducerState) -> Machine:
    if machine.state not in VALID_PREVIOUS_STATES[state]:
        raise IllegalStateError(f"a move from {machine.state} to {state}", actor=machine.actor)
    return replace(machine, state=state)


# --- calls ------------------------------------------------------------------------------------------------


def allow(machine: Machine, call: Call) -> None:
    """Raise unless the call is legal now: the fatal error again, TRANSACTION_ABORTABLE, or ILLEGAL_STATE."""
    legal = LEGAL[call] if machine.transactional_id is not None else {ProducerState.READY}
    if machine.state in legal:
        return
    if machine.state is ProducerState.FATAL_ERROR and machine.error is not None:
        raise machine.error.with_traceback(
            None
        )  # else it would hold the frames of every call, and their records
    if machine.state is ProducerState.ABORTABLE_ERROR:
        raise TransactionAbortableError(
            f"the transaction failed: {describe_error(machine.error)}", actor=machine.actor
        ) from machine.error
    raise IllegalStateError(
        f"a call in state {machine.state}", actor=machine.actor, expected=" or ".join(sorted(legal))
    )


def init_called(machine: Machine) -> Step:
    """`init_transactions`: until it is answered nothing else is allowed."""
    allow(machine, Call.INIT_TRANSACTIONS)
    return _to(machine, ProducerState.INITIALIZING), (AskInit(machine.identity),)


def initialised(
    machine: Machine, identity: ProducerIdAndEpoch, history: TransactionRow, *, is_resumed: bool = False
) -> Step:
    """The coordinator has given the identity, or one was taken over (`is_resumed`); an earlier one is forgotten."""
    ready = _to(machine, ProducerState.READY)
    return replace(
        _at_rest(ready), identity=identity, history=history, is_resumed=is_resumed, unfinished=None
    ), ()


def begun(machine: Machine, run_id: str | None) -> Step:
    """`begin_transaction`: nothing is written yet."""
    allow(machine, Call.BEGIN_TRANSACTION)
    return replace(_to(machine, ProducerState.IN_TRANSACTION), run_id=run_id), ()


def identified(machine: Machine, identity: ProducerIdAndEpoch) -> Step:
    """An idempotent producer has its id."""
    return replace(machine, identity=identity), ()


def callback_begins(machine: Machine) -> Step:
    """`produce` in a callback: the transaction does not end before it is over."""
    allow(machine, Call.PRODUCE)
    return replace(machine, sending=machine.sending + 1), ()


def callback_ends(machine: Machine) -> Step:
    """It is over."""
    return replace(machine, sending=machine.sending - 1), ()


# --- joining ----------------------------------------------------------------------------------------------


def wanted(machine: Machine, partitions: Sequence[TransactionPartition]) -> Step:
    """Something is to be written to these. Those that the transaction has not joined wait for the next row.

    A thread is asked for as long as one of them waits: what asked for it before may have been lost.
    """
    if machine.transactional_id is None:
        return machine, ()
    joined, joining = machine.joined, machine.joining or _NOTHING
    missing = [partition for partition in partitions if partition not in joined and partition not in joining]
    if not missing:
        return machine, ()
    waiting = machine.waiting.with_more(missing) if machine.waiting is not None else PartitionList(missing)
    return replace(machine, waiting=waiting, asked=True), (Join(),)


def row_wanted(machine: Machine) -> Step:
    """A run that had nothing to write is a run all the same: its id needs a row."""
    if machine.waiting is not None or machine.asked:
        return machine, ()
    return replace(machine, waiting=_NOTHING, asked=True), (Join(),)


def join_begins(machine: Machine) -> Step:
    """A thread takes what waits. One row at a time, and none before the last transaction's Complete row is settled."""
    is_open = machine.state is ProducerState.IN_TRANSACTION
    if machine.waiting is None or machine.joining is not None or machine.is_completing or not is_open:
        return machine, ()
    row = AddPartitions(
        machine.identity,
        tuple(machine.waiting),
        begins=machine.is_resumed,
        unfinished=machine.unfinished,
    )
    return replace(machine, joining=machine.waiting, waiting=None), (row,)


def joined(machine: Machine) -> Step:
    """The row is durable: their lanes may append. Whoever wrote it looks for more that waits."""
    done = replace(
        machine,
        joined=machine.joined.union(machine.joining or ()),
        joining=None,
        is_resumed=False,
        unfinished=None,
    )
    return done, (Start(tuple(machine.joining or ())),)


def join_failed(machine: Machine, error: BaseException) -> Step:
    """The coordinator refused the row, or nobody knows whether it is there.

    INVALID_TXN_STATE says that a resumed identity is in another's hands: what is open under it is not this producer's
    to abort.
    """
    settled = replace(machine, joining=None, join_error=machine.join_error or error)
    return finished(settled, error) if isinstance(error, InvalidTxnStateError) else failed(settled, error)


def wrote_offsets(
    machine: Machine, group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, int]
) -> Step:
    """Rows with a group's positions were written in the transaction, at these offsets of the group's log."""
    return replace(machine, groups=machine.groups.wrote(group, offsets)), ()


# --- failures ---------------------------------------------------------------------------------------------


def failed(machine: Machine, error: BaseException) -> Step:
    """Something was not written, or may not have been (`maybeTransitionToErrorState`): what is queued fails too."""
    if machine.state in (ProducerState.FATAL_ERROR, ProducerState.CLOSED):
        return machine, ()
    if machine.transactional_id is None or is_fatal_to_a_write(error):
        return finished(machine, _told(machine, error))
    if machine.state is ProducerState.IN_TRANSACTION:
        return replace(_to(machine, ProducerState.ABORTABLE_ERROR), error=error), (Start(),)
    return machine, ()


def finished(machine: Machine, error: BaseException) -> Step:
    """Nothing can be done with this producer any more: each later call raises this error."""
    if machine.state in (ProducerState.FATAL_ERROR, ProducerState.CLOSED):
        return machine, ()
    return replace(_to(machine, ProducerState.FATAL_ERROR), error=error), (Start(),)


def _told(machine: Machine, error: BaseException) -> BaseException:
    """What the calls of a finished producer raise: an interrupt was that of one call alone."""
    if isinstance(error, Exception):
        return error
    return OutcomeUnknownError(
        f"produce() was broken off ({describe_error(error)}): some of its records may be there",
        actor=machine.actor,
    )


# --- the end ----------------------------------------------------------------------------------------------


def aborting(machine: Machine) -> Step:
    """`abort_transaction`: what is not on its way yet is dropped."""
    allow(machine, Call.ABORT_TRANSACTION)
    if machine.state is ProducerState.ABORTING_TRANSACTION:
        return machine, (Start(),)
    return replace(_to(machine, ProducerState.ABORTING_TRANSACTION), waiting=None), (Start(),)


def aborted(machine: Machine) -> Step:
    """All that was on its way has settled: ask for the end, where the coordinator may know of the transaction.

    What is open under a resumed identity is another's as long as no row of this producer's went out. A row that was
    refused meanwhile may have finished the producer: then nothing is asked.
    """
    allow(machine, Call.ABORT_TRANSACTION)
    is_untouched = machine.is_resumed and machine.join_error is None
    if machine.asked and not is_untouched:
        return machine, (_ask_end(machine, committed=False),)
    return _ended(machine, committed=False), ()


def committing(machine: Machine) -> Step:
    """`commit_transaction`, when all that was sent has settled: ask for the end, unless some of it failed."""
    allow(machine, Call.COMMIT_TRANSACTION)
    ask = _ask_end(machine, committed=True)
    if machine.state is ProducerState.COMMITTING_TRANSACTION:
        return machine, (ask,)
    moved = _to(machine, ProducerState.COMMITTING_TRANSACTION)
    return (moved, (ask,)) if machine.asked else (_ended(moved, committed=True), ())


def _ask_end(machine: Machine, *, committed: bool) -> AskEnd:
    return AskEnd(machine.identity, committed, machine.run_id, machine.unfinished)


def decided(
    machine: Machine, *, committed: bool, identity: ProducerIdAndEpoch, unfinished: Unfinished | None
) -> Step:
    """The coordinator has decided, and has given the next epoch."""
    ended = _ended(machine, committed=committed)
    return replace(ended, identity=identity, is_resumed=False, unfinished=unfinished), ()


def decided_before(machine: Machine, error: BaseException) -> Step:
    """The transaction was committed by a call whose answer was lost, and a successor has taken over since."""
    return finished(_remembering(machine, committed=True), error)


def _ended(machine: Machine, *, committed: bool) -> Machine:
    return _at_rest(_to(_remembering(machine, committed=committed), ProducerState.READY))


def _remembering(machine: Machine, *, committed: bool) -> Machine:
    history = machine.history
    if committed and machine.run_id is not None and history is not None:
        history = with_run_id(history, machine.run_id)
    return replace(machine, history=history, groups=machine.groups.end(committed=committed))


def _at_rest(machine: Machine) -> Machine:
    """Nothing is left of a transaction."""
    return replace(
        machine,
        transaction=machine.transaction + 1,
        run_id=None,
        error=None,
        join_error=None,
        asked=False,
        joined=frozenset(),
        waiting=None,
    )


def completion_begins(machine: Machine) -> Step:
    """A thread takes the Complete row that is owed; none while a row is written that would find it owed itself."""
    owed = machine.unfinished
    if owed is None or not owed.is_marked or machine.is_completing or machine.joining is not None:
        return machine, ()
    return replace(machine, is_completing=True), (Complete(owed.decision),)


def completed(machine: Machine, decision: StoredRow) -> Step:
    """It is there, or left to whoever comes next: the coordinator then answers CONCURRENT_TRANSACTIONS. Whoever wrote
    it looks for what waits to be joined.
    """
    owed = machine.unfinished
    left = owed if owed is not None and owed.decision is not decision else None
    return replace(machine, is_completing=False, unfinished=left), ()


def closed(machine: Machine) -> Step:
    """`close` is over."""
    if machine.state is ProducerState.CLOSED:
        return machine, ()
    return _to(machine, ProducerState.CLOSED), (Start(),)
