"""What can go wrong with a database, in one line that quotes no value; the driver's own error stays in `__cause__`."""

from __future__ import annotations

from typing import ClassVar

from txn_engine.errors import IllegalStateError, InvalidRequestError, TxnEngineError
from txn_engine.reasons import Reason


class DatabaseError(TxnEngineError):
    """The database refused a statement. Its transaction was rolled back: nothing of it is there."""

    code: ClassVar[str] = "DATABASE_REFUSED"
    is_refusal = True


class DatabaseUnavailableError(DatabaseError):
    """The connection is lost, or the server is. What was not committed is rolled back by the server."""

    code: ClassVar[str] = "DATABASE_UNAVAILABLE"
    retry_helps = True
    is_refusal = False
    default_action = "nothing of this batch is there; run it again when the server answers"


class DatabaseOutcomeUnknownError(DatabaseUnavailableError):
    """The connection was lost at the commit: the batch may be there, with its positions, or not."""

    code: ClassVar[str] = "DATABASE_OUTCOME_UNKNOWN"
    default_action = "run it again: it goes on from where the database is, and repeats nothing"


def ended_by_write(actor: str, place: str) -> IllegalStateError:
    """The error for a `write` that ended the transaction it was called in."""
    return IllegalStateError(
        "write ended the transaction",
        actor=actor,
        place=place,
        expected="a write that neither commits nor rolls back: the rows and how far they go are one transaction",
        action="take that out of it; of this batch there is what it committed itself, and nothing else",
        reason=Reason.WRITE_ENDED_TRANSACTION,
    )


def require_idle(actor: str, *, is_open: bool, is_idle: bool) -> None:
    """Raise `IllegalStateError` for a connection in a transaction: what is done here would end with that one."""
    if not is_open:
        raise IllegalStateError(
            "a closed connection", actor=actor, expected="an open one", reason=Reason.CONNECTION_CLOSED
        )
    if not is_idle:
        raise IllegalStateError(
            "a connection with a transaction open",
            actor=actor,
            expected="one that is idle: each batch is committed by itself",
            action="commit or roll back before, or connect with autocommit",
            reason=Reason.TRANSACTION_OPEN,
        )


def not_a_connection(given: object, actor: str) -> InvalidRequestError:
    """The error for what is not a connection of this database."""
    return InvalidRequestError(
        f"a connection of type {type(given).__name__}",
        actor=actor,
        expected="an open connection of the database's driver",
        reason=Reason.BAD_ARGUMENT,
    )


def check_counts(actor: str, **given: object) -> None:
    """Raise `InvalidRequestError` for a limit that is neither None nor a whole number from 1 on: below that, what does
    nothing would be told as done.
    """
    for name, value in given.items():
        if value is not None and (type(value) is not int or value < 1):
            raise InvalidRequestError(
                f"{name}={value!r:.40}",
                actor=actor,
                expected="1 or more, or None",
                reason=Reason.BAD_ARGUMENT,
            )
