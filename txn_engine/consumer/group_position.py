"""What a consumer knows of its group: the rows that its commits name, and the commit it is in the middle of.

Pure: `move(state, event)` gives the next state and what is to be done for it. Whoever does it tells the outcome as the
next event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from txn_engine.errors import IllegalStateError, OffsetsMovedError
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.reasons import Reason
from txn_engine.types import ConsumerGroupMetadata, FetchedRow, OffsetAndMetadata, TopicPartition

Positions: TypeAlias = Mapping[TransactionPartition, OffsetAndMetadata]
Rows: TypeAlias = Mapping[TopicPartition, FetchedRow]


class CommitPhase(StrEnum):
    """What is under way of a commit."""

    AT_REST = "AtRest"
    SETTLING = (
        "Settling"  # a commit that had no answer is sent again: whether or not it landed, it is recognised
    )
    COMMITTING = "Committing"
    LEARNING = "Learning"  # it was refused: perhaps for a row that was written for this very member
    COMMITTING_AGAIN = "CommittingAgain"  # from that row


@dataclass(frozen=True, slots=True)
class Commit:
    """A plain commit: these positions, from the rows that were named as it was made."""

    group: ConsumerGroupMetadata
    positions: Positions


@dataclass(frozen=True, slots=True)
class NamedRow:
    """The row that a commit for this partition names, and the incarnation of the topic that it is about."""

    row: FetchedRow
    incarnation: int


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """A member of a group. `reads`: the incarnation that is read of each partition."""

    group_id: str
    member_id: str
    reads: Mapping[TopicPartition, int] = field(default_factory=dict)
    named: Mapping[TopicPartition, NamedRow] = field(default_factory=dict)
    phase: CommitPhase = CommitPhase.AT_REST
    sent: Commit | None = None  # what the phase is about
    wanted: Positions = field(default_factory=dict)  # to be committed once the unsettled commit is settled
    unsettled: Commit | None = None
    refusal: OffsetsMovedError | None = None  # what the user is told unless the row is this member's own

    def metadata(self) -> ConsumerGroupMetadata:
        """For a commit: group, member, the rows that it names, and the topics that its positions are about."""
        incarnations = {tp: named.incarnation for tp, named in self.named.items()}
        rows = {tp: named.row for tp, named in self.named.items()}
        return ConsumerGroupMetadata(self.group_id, self.member_id, rows, incarnations | dict(self.reads))

    def names(self, partition: TopicPartition) -> bool:
        """Whether a commit for it names a row."""
        return partition in self.named


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions are read from now on, under these incarnations, and no others."""

    reads: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Rewound:
    """These partitions are to be begun again where the group is: their rows are fetched anew."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Offsets were fetched to read from: these rows are named from now on, where they are about the topic that is
    read.
    """

    rows: Rows
    partitions: tuple[TransactionPartition, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """Offsets were asked for, which changes nothing of what is read and named: only who names nothing of that topic
    yet has fetched this.
    """

    rows: Rows
    partitions: tuple[TransactionPartition, ...]


@dataclass(frozen=True, slots=True)
class CommitWanted:
    """The user commits."""

    positions: Positions


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit that was sent stands, in these rows."""

    rows: Rows


@dataclass(frozen=True, slots=True)
class Refused:
    """The commit that was sent names a row that does not stand there any more."""

    error: OffsetsMovedError


@dataclass(frozen=True, slots=True)
class OwnRows:
    """The rows that stand there and were written for this very member."""

    rows: Rows


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """Nobody knows whether the commit that was sent landed."""


@dataclass(frozen=True, slots=True)
class BrokenOff:
    """What was to be done failed in another way, or Ctrl-C ended it."""


Event: TypeAlias = (
    Assigned
    | Rewound
    | Fetched
    | Asked
    | CommitWanted
    | Committed
    | Refused
    | OwnRows
    | OutcomeUnknown
    | BrokenOff
)


# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Commit this; the outcome is `Committed`, `Refused` or `OutcomeUnknown`."""

    commit: Commit


@dataclass(frozen=True, slots=True)
class LearnOwnRows:
    """Find the rows of these partitions that were written for this member: `OwnRows`."""

    partitions: tuple[TransactionPartition, ...]


@dataclass(frozen=True, slots=True)
class Raise:
    """Tell the user."""

    error: OffsetsMovedError


Effect: TypeAlias = Send | LearnOwnRows | Raise
Moved: TypeAlias = tuple[GroupPosition, tuple[Effect, ...]]


# --- moves ------------------------------------------------------------------------------------------------------

_ENDS = frozenset({CommitPhase.AT_REST})
_ANEW = frozenset({CommitPhase.AT_REST, CommitPhase.COMMITTING})

NEXT_PHASES: dict[CommitPhase, dict[type[Event], frozenset[CommitPhase]]] = {
    CommitPhase.AT_REST: {CommitWanted: _ANEW | {CommitPhase.SETTLING}, BrokenOff: _ENDS},
    CommitPhase.SETTLING: {
        CommitWanted: _ANEW,
        Committed: frozenset({CommitPhase.AT_REST, CommitPhase.COMMITTING}),
        Refused: _ENDS,
        OutcomeUnknown: _ENDS,
        BrokenOff: _ENDS,
    },
    CommitPhase.COMMITTING: {
        CommitWanted: _ANEW,
        Committed: _ENDS,
        Refused: frozenset({CommitPhase.LEARNING}),
        OutcomeUnknown: _ENDS,
        BrokenOff: _ENDS,
    },
    CommitPhase.LEARNING: {
        CommitWanted: _ANEW,
        OwnRows: frozenset({CommitPhase.AT_REST, CommitPhase.COMMITTING_AGAIN}),
        BrokenOff: _ENDS,
    },
    CommitPhase.COMMITTING_AGAIN: {
        CommitWanted: _ANEW,
        Committed: _ENDS,
        Refused: _ENDS,
        OutcomeUnknown: _ENDS,
        BrokenOff: _ENDS,
    },
}
"""Where an event leads from each phase; what is not listed cannot happen there. A commit is wanted in the middle of
another where Ctrl-C ended that. What only names rows may happen at any time, and leaves the phase.
"""


def move(state: GroupPosition, event: Event) -> Moved:
    """The state after the event, and what is to be done then. `IllegalStateError` for an event that cannot happen."""
    match event:
        case Assigned():
            return _assign(state, event.reads), ()
        case Rewound():
            left = {tp: named for tp, named in state.named.items() if tp not in event.partitions}
            return replace(state, named=left), ()
        case Fetched():
            return _name(state, event.rows, event.partitions), ()
        case Asked():
            return _name(state, event.rows, [at for at in event.partitions if _is_news(state, at)]), ()
    if type(event) not in NEXT_PHASES[state.phase]:
        raise IllegalStateError(
            f"{type(event).__name__} in phase {state.phase}",
            actor=f"group {state.group_id!r}",
            expected=" or ".join(sorted(kind.__name__ for kind in NEXT_PHASES[state.phase])),
            reason=Reason.UNEXPECTED_EVENT,
        )
    match event:
        case CommitWanted():
            return _begin(state, event.positions)
        case Committed():
            return _committed(state, event.rows)
        case Refused():
            return _refused(state, event.error)
        case OwnRows():
            return _go_on_from(state, event.rows)
        case OutcomeUnknown():
            return replace(_at_rest(state), unsettled=state.sent), ()
        case BrokenOff():
            return _at_rest(state), ()


def _assign(state: GroupPosition, reads: Mapping[TopicPartition, int]) -> GroupPosition:
    """What is named of a topic that was made again is not about the one that is read."""
    left = {
        tp: named
        for tp, named in state.named.items()
        if reads.get(tp, named.incarnation) == named.incarnation
    }
    return replace(state, reads=dict(reads), named=left)


def _name(state: GroupPosition, rows: Rows, partitions: Iterable[TransactionPartition]) -> GroupPosition:
    """The next commit names these rows, where they are about the topic that is read; of a partition that is not read,
    about no older one than what is named.
    """
    named = dict(state.named)
    for at in partitions:
        tp = TopicPartition(at.topic, at.partition)
        known = named.get(tp)
        is_newest = known is None or known.incarnation <= at.incarnation
        if state.reads[tp] == at.incarnation if tp in state.reads else is_newest:
            named[tp] = NamedRow(rows[tp], at.incarnation)
    return replace(state, named=named)


def _is_news(state: GroupPosition, at: TransactionPartition) -> bool:
    known = state.named.get(TopicPartition(at.topic, at.partition))
    return known is None or known.incarnation != at.incarnation


def _at_rest(state: GroupPosition) -> GroupPosition:
    return replace(state, phase=CommitPhase.AT_REST, sent=None, wanted={}, refusal=None)


def _send(state: GroupPosition, phase: CommitPhase, commit: Commit) -> Moved:
    return replace(state, phase=phase, sent=commit), (Send(commit),)


def _begin(state: GroupPosition, positions: Positions) -> Moved:
    """What had no answer goes first: until it is known, nobody can say which row the next commit has to name."""
    state = _at_rest(state)
    if state.unsettled is not None:
        waiting = replace(state, wanted=positions, unsettled=None)
        return _send(waiting, CommitPhase.SETTLING, state.unsettled)
    if not positions:
        return state, ()
    return _send(state, CommitPhase.COMMITTING, Commit(state.metadata(), positions))


def _committed(state: GroupPosition, rows: Rows) -> Moved:
    wanted = state.wanted
    named = _at_rest(_name(state, rows, _sent(state).positions))
    return _begin(named, wanted) if wanted else (named, ())


def _refused(state: GroupPosition, error: OffsetsMovedError) -> Moved:
    if state.phase is CommitPhase.COMMITTING:
        learning = replace(state, phase=CommitPhase.LEARNING, refusal=error)
        return learning, (LearnOwnRows(tuple(_sent(state).positions)),)
    return _at_rest(state), (Raise(error),)


def _go_on_from(state: GroupPosition, rows: Rows) -> Moved:
    """A producer's commits for this very member moved the group: the same positions, from there. Anything else is
    refused again.
    """
    positions = _sent(state).positions
    if state.refusal is not None and all(_names_row(state, tp, row) for tp, row in rows.items()):
        return _at_rest(state), (Raise(state.refusal),)
    own = [at for at in positions if TopicPartition(at.topic, at.partition) in rows]
    named = _name(state, rows, own)
    return _send(named, CommitPhase.COMMITTING_AGAIN, Commit(named.metadata(), positions))


def _names_row(state: GroupPosition, tp: TopicPartition, row: FetchedRow) -> bool:
    known = state.named.get(tp)
    return known is not None and known.row == row


def _sent(state: GroupPosition) -> Commit:
    if state.sent is None:
        raise IllegalStateError("no commit was sent", actor=f"group {state.group_id!r}")
    return state.sent
