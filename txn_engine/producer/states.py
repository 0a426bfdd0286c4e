"""The producer's own states and moves (`TransactionManager.State`)."""

from __future__ import annotations

from enum import StrEnum

from txn_engine.errors import InvalidTxnStateError, TxnEngineError


class ProducerState(StrEnum):
    """What a producer may do next."""

    UNINITIALIZED = "UNINITIALIZED"  # init_transactions leads out
    READY = "READY"  # begin_transaction leads out; an idempotent producer stays here
    IN_TRANSACTION = "IN_TRANSACTION"  # produce, commit, abort
    COMMITTING = "COMMITTING"  # commit was asked for and is not answered: only commit again
    ABORTING = "ABORTING"  # abort was asked for and is not answered: only abort again
    ABORTABLE_ERROR = "ABORTABLE_ERROR"  # something of the transaction failed: only abort
    FATAL_ERROR = "FATAL_ERROR"  # finished: every call raises the same error
    CLOSED = "CLOSED"


def is_fatal_to_a_write(error: BaseException) -> bool:
    """Whether an error of a write or of AddPartitions finishes the producer; else the transaction can only abort.

    INVALID_TXN_STATE is Kafka's exception: fatal as an answer of the coordinator, abortable as a partition's
    (`TransactionManager.maybeTransitionToErrorState`); AddPartitions has no such answer.
    """
    return isinstance(error, TxnEngineError) and error.fatal and not isinstance(error, InvalidTxnStateError)


def describe_error(error: BaseException | None) -> str:
    """An error in words; those of an interrupt are its name."""
    return str(error) or type(error).__name__
