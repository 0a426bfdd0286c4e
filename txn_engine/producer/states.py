"""The producer's own states, the moves between them, and which call is legal where (`TransactionManager.State`)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from txn_engine.errors import (
    InvalidTxnStateError,
    OutcomeUnknownError,
    RequestTimedOutError,
    StoreUnavailableError,
    TxnEngineError,
)


class ProducerState(StrEnum):
    """What a producer may do next, under Kafka's names; the last is ours."""

    UNINITIALIZED = "UNINITIALIZED"  # init_transactions leads out
    INITIALIZING = (
        "INITIALIZING"  # init_transactions was called and is not answered: only the same call again
    )
    READY = "READY"  # begin_transaction leads out; an idempotent producer stays here
    IN_TRANSACTION = "IN_TRANSACTION"  # produce, commit, abort
    COMMITTING_TRANSACTION = "COMMITTING_TRANSACTION"  # commit was asked for, no answer: only commit again
    ABORTING_TRANSACTION = "ABORTING_TRANSACTION"  # abort was asked for, no answer: only abort again
    ABORTABLE_ERROR = "ABORTABLE_ERROR"  # something of the transaction failed: only abort
    FATAL_ERROR = "FATAL_ERROR"  # finished: every call raises the same error
    CLOSED = "CLOSED"


class Call(StrEnum):
    """The calls that a state allows or refuses. `flush` and `close` are allowed in all of them."""

    INIT_TRANSACTIONS = "init_transactions"
    BEGIN_TRANSACTION = "begin_transaction"
    PRODUCE = "produce"
    UPLOAD = "upload"
    SEND_OFFSETS = "send_offsets_to_transaction"
    COMMIT_TRANSACTION = "commit_transaction"
    ABORT_TRANSACTION = "abort_transaction"


_S = ProducerState
_OPEN: Final = frozenset({_S.IN_TRANSACTION})

VALID_PREVIOUS_STATES: Final[Mapping[ProducerState, frozenset[ProducerState]]] = {
    _S.UNINITIALIZED: frozenset(),
    _S.INITIALIZING: frozenset({_S.UNINITIALIZED, _S.INITIALIZING, _S.READY}),
    _S.READY: frozenset({_S.INITIALIZING, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION}),
    _S.IN_TRANSACTION: frozenset({_S.READY}),
    _S.COMMITTING_TRANSACTION: _OPEN,
    _S.ABORTING_TRANSACTION: frozenset({_S.IN_TRANSACTION, _S.ABORTABLE_ERROR}),
    _S.ABORTABLE_ERROR: _OPEN,
    _S.FATAL_ERROR: frozenset(_S) - {_S.UNINITIALIZED, _S.CLOSED, _S.FATAL_ERROR},
    _S.CLOSED: frozenset(_S) - {_S.CLOSED},
}
"""Which states may come before a state. Kafka's table has no way from READY to INITIALIZING: its producers initialise
once. KIP-939's PREPARED_TRANSACTION would stand between IN_TRANSACTION or INITIALIZING and the two that end.
"""

LEGAL: Final[Mapping[Call, frozenset[ProducerState]]] = {
    Call.INIT_TRANSACTIONS: VALID_PREVIOUS_STATES[_S.INITIALIZING],
    Call.BEGIN_TRANSACTION: VALID_PREVIOUS_STATES[_S.IN_TRANSACTION],
    Call.PRODUCE: _OPEN,
    Call.UPLOAD: _OPEN | {_S.READY},
    Call.SEND_OFFSETS: _OPEN,
    Call.COMMIT_TRANSACTION: frozenset({_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION}),
    Call.ABORT_TRANSACTION: frozenset({_S.IN_TRANSACTION, _S.ABORTABLE_ERROR, _S.ABORTING_TRANSACTION}),
}
"""In which states a call of a transactional producer is legal. An idempotent one uploads and produces, in READY."""

UNDECIDED: Final = frozenset({_S.IN_TRANSACTION, _S.ABORTABLE_ERROR})
"""A transaction is open, and nobody was asked to end it."""


NO_ANSWER: Final = (OutcomeUnknownError, StoreUnavailableError, RequestTimedOutError)
"""What says that nobody knows what became of a request, or that it was not heard: the same one may be made again."""


def is_fatal_to_a_write(error: BaseException) -> bool:
    """Whether an error of a write or of AddPartitions finishes the producer; else the transaction can only abort.

    INVALID_TXN_STATE is Kafka's exception: abortable as a partition's answer, which is meant here, and fatal as the
    coordinator's (`TransactionManager.maybeTransitionToErrorState`).
    """
    return isinstance(error, TxnEngineError) and error.fatal and not isinstance(error, InvalidTxnStateError)


def describe_error(error: BaseException | None) -> str:
    """An error in words; those of an interrupt are its name."""
    return str(error) or type(error).__name__
