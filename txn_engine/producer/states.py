"""The producer's own states and moves (`TransactionManager.State`)."""

from __future__ import annotations

from enum import StrEnum


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
