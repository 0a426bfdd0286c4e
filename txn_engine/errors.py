"""What can go wrong, one class a Kafka error code, each saying what the caller does next.

Every error carries `code` (Kafka's name, or ours where Kafka has none) and three flags for the producer's next call:
`retriable` (call again), `abortable` (abort the transaction, the producer lives on), `fatal` (this producer is
finished). Two more are for whoever runs a whole task or request:

    retry_helps   the same task, run again later as it is, may succeed: time, another process or a new producer can have
                  changed what it met. False: it fails the same until somebody mends the call, the data, the store or
                  the machine; or it belongs to a successor.
    is_refusal    the call was turned down by what was read, before anything of it was written. False: some of it, a
                  decision too, may stand.

Where a class covers several faults, `reason` says which one it was (`txn_engine/reasons.py`); otherwise it is None.
Where only the text arrives, as behind Spark's JVM, the text ends with `[CODE reason]` (`end_with_reason`).

The text is one line: actor, what was seen, where, what was expected, what to do; control characters in it are escaped.
All of them survive pickling, since Airflow and Spark carry them from process to process.
Source: `org.apache.kafka.common.protocol.Errors`, KIP-98, KIP-890, KIP-1050.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from txn_engine.names import printable


class TxnEngineError(Exception):
    """The base of all errors that the engine raises on purpose.

    `value`: what of a file or a record does not fit, for whoever may see the data. It is in no text, repr or pickle of
    the error, so that no log, alert or mail shows it; `with_value` makes the line for a person who asks.
    """

    code: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False
    abortable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False
    retry_helps: ClassVar[bool] = False
    is_refusal: ClassVar[bool] = False
    default_action: ClassVar[str] = ""
    value: str | None = None
    _ends_with_reason = False

    def __init__(
        self,
        seen: str,
        *,
        actor: str | None = None,
        place: str | None = None,
        expected: str | None = None,
        action: str | None = None,
        reason: StrEnum | None = None,
    ) -> None:
        self.seen = seen
        self.actor = actor
        self.place = place
        self.expected = expected
        self.reason = reason
        self.action = action or self.default_action or None
        super().__init__(seen)

    def __str__(self) -> str:
        return self._line(self.seen)

    def end_with_reason(self) -> None:
        """Let the text of this object end with `[CODE reason]` if it has a reason. A pickle does not keep that."""
        self._ends_with_reason = self.reason is not None

    def with_value(self) -> str:
        """The error's line, with the value in it."""
        return self._line(self.seen if self.value is None else f"{self.seen}: {self.value}")

    def _line(self, seen: str) -> str:
        text = f"{self.actor}: {seen}" if self.actor else seen
        if self.place:
            text += f" (at {self.place})"
        if self.expected:
            text += f"; expected {self.expected}"
        if self.action:
            text += f"; {self.action}"
        sign = f"{self.code} {self.reason}" if self._ends_with_reason else self.code
        return printable(" ".join(f"{text} [{sign}]".split()))

    def __reduce__(self) -> tuple[object, ...]:
        return (
            _rebuild,
            (type(self), self.seen, self.actor, self.place, self.expected, self.action, self.reason),
        )


def _rebuild(
    kind: type[TxnEngineError],
    seen: str,
    actor: str | None,
    place: str | None,
    expected: str | None,
    action: str | None,
    reason: StrEnum | None,
) -> TxnEngineError:
    return kind(seen, actor=actor, place=place, expected=expected, action=action, reason=reason)


# --- fencing: this producer is finished -------------------------------------------------------------------


class ProducerFencedError(TxnEngineError):
    """A newer producer with the same transactional id took over. Close this one; do not retry."""

    code = "PRODUCER_FENCED"
    fatal = True
    is_refusal = True
    default_action = "close this producer; its successor owns the transactional id"


class InvalidProducerEpochError(TxnEngineError):
    """A partition has seen a later epoch of this producer id: abort; if that is fenced too, close."""

    code = "INVALID_PRODUCER_EPOCH"
    abortable = True
    retry_helps = True
    default_action = "abort the transaction and initialise again"


class InvalidProducerIdMappingError(TxnEngineError):
    """The transactional id is unknown, expired, or mapped to another producer id. Initialise again."""

    code = "INVALID_PRODUCER_ID_MAPPING"
    fatal = True
    retry_helps = True
    is_refusal = True
    default_action = "make a new producer and call init_transactions()"


class TransactionCoordinatorFencedError(TxnEngineError):
    """A marker came from a decision older than the one the partition has already seen."""

    code = "TRANSACTION_COORDINATOR_FENCED"
    fatal = True
    retry_helps = True
    default_action = "drop this marker; a later decision is in force"


# --- transactions -----------------------------------------------------------------------------------------


class InvalidTxnStateError(TxnEngineError):
    """The request does not fit the transaction's state."""

    code = "INVALID_TXN_STATE"
    fatal = True
    retry_helps = True
    is_refusal = True
    default_action = "look at `transactions describe`; make a new producer and start again"


class ConcurrentTransactionsError(TxnEngineError):
    """The previous transaction of this id is decided but not complete yet. Try again."""

    code = "CONCURRENT_TRANSACTIONS"
    retriable = True
    retry_helps = True
    is_refusal = True
    default_action = (
        "try again when the previous transaction is complete (`coordinator markers` completes it)"
    )


class TransactionAbortableError(TxnEngineError):
    """A write of this transaction failed or is unknown: it can only abort."""

    code = "TRANSACTION_ABORTABLE"
    abortable = True
    retry_helps = True
    default_action = "call abort_transaction() and run the transaction again"


class TransactionalIdNotFoundError(TxnEngineError):
    """No such transactional id in the coordinator's log."""

    code = "TRANSACTIONAL_ID_NOT_FOUND"
    is_refusal = True
    default_action = "`transactions list` shows the ids there are"


class InvalidTransactionTimeoutError(TxnEngineError):
    """The transaction timeout is not above 0, or is above the store's limit."""

    code = "INVALID_TRANSACTION_TIMEOUT"
    fatal = True
    is_refusal = True


class OutOfOrderSequenceNumberError(TxnEngineError):
    """A batch's sequence does not follow the producer's last one: something before it is missing."""

    code = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    abortable = True
    retry_helps = True
    default_action = "abort the transaction; an idempotent producer starts again"


class ChecksFailedError(TxnEngineError):
    """Checks on what was about to be written were red: nothing of it is visible, and no offset moved.

    It was never part of a transaction. The error names checks and counts, and quotes no record.
    """

    code = "CHECKS_FAILED"
    is_refusal = True
    default_action = "nothing of this run is visible; mend the rows, or the checks, and run it again"


class ChecksErroredError(ChecksFailedError):
    """No check failed, but a critical one could not be made, so nothing was let through. Another try may succeed."""

    code = "CHECKS_ERRORED"
    retry_helps = True
    default_action = "nothing of this run is visible; mend the check, or what it looks at, and run it again"


# --- requests ---------------------------------------------------------------------------------------------


class InvalidRequestError(TxnEngineError):
    """The call itself is wrong. Nothing was written."""

    code = "INVALID_REQUEST"
    is_refusal = True


class MissingPackageError(InvalidRequestError, ModuleNotFoundError):
    """The call needs a package that is not installed; the error says which extra brings it. Nothing was done."""

    code = "MISSING_PACKAGE"


class SchemaChangedError(TxnEngineError):
    """A file of a version of the topic's schema that the reader has not heard of. Look it up, and do it again."""

    code = "SCHEMA_CHANGED"
    retriable = True
    retry_helps = True
    is_refusal = True
    default_action = "do it again: the topic's columns changed meanwhile"


class InvalidTimestampError(TxnEngineError):
    """A timestamp of records, or this machine's clock, is further off than allowed. Nothing was written or removed.

    `reason`: `TIMESTAMP_OUT_OF_RANGE` for records, `CLOCK_DIFFERS` for a clock that is too far from the store's.
    """

    code = "INVALID_TIMESTAMP"
    is_refusal = True


class InvalidRegularExpressionError(TxnEngineError):
    """A pattern is not a regular expression."""

    code = "INVALID_REGULAR_EXPRESSION"
    is_refusal = True


class InvalidRecordError(TxnEngineError):
    """The records do not fit the topic's schema. Nothing was written. `value` is what does not fit."""

    code = "INVALID_RECORD"
    default_action = "`topics describe` shows the schema; nothing of this call was written"

    def __init__(
        self,
        seen: str,
        *,
        actor: str | None = None,
        place: str | None = None,
        expected: str | None = None,
        action: str | None = None,
        reason: StrEnum | None = None,
        value: str | None = None,
    ) -> None:
        super().__init__(seen, actor=actor, place=place, expected=expected, action=action, reason=reason)
        self.value = value


class RecordTooLargeError(TxnEngineError):
    """A record is larger than a reader takes. Nothing of it was written, nor of the records beside it."""

    code = "MESSAGE_TOO_LARGE"
    default_action = "make it smaller: keep what is large as an object of its own, and its name in the record"


class InvalidTopicError(TxnEngineError):
    """The topic's name or definition is not allowed."""

    code = "INVALID_TOPIC_EXCEPTION"
    is_refusal = True


class InvalidConfigError(TxnEngineError):
    """A setting of a topic or a store is not allowed, does not fit the topic's columns, or others rely on its value."""

    code = "INVALID_CONFIG"
    is_refusal = True


class InvalidPartitionsError(TxnEngineError):
    """The number of partitions is not allowed."""

    code = "INVALID_PARTITIONS"
    is_refusal = True


class TopicExistsError(TxnEngineError):
    """A topic of that name is there already."""

    code = "TOPIC_ALREADY_EXISTS"
    retry_helps = True
    is_refusal = True


class UnknownTopicOrPartitionError(TxnEngineError):
    """No such topic, or no such partition of it."""

    code = "UNKNOWN_TOPIC_OR_PARTITION"
    is_refusal = True
    default_action = "`topics list` shows what there is"


class OffsetOutOfRangeError(TxnEngineError):
    """The offset lies before the log's start or behind its end."""

    code = "OFFSET_OUT_OF_RANGE"
    retry_helps = True
    is_refusal = True


class GroupIdNotFoundError(TxnEngineError):
    """No such consumer group."""

    code = "GROUP_ID_NOT_FOUND"
    is_refusal = True
    default_action = "`groups list` shows the groups there are"


class InvalidGroupIdError(TxnEngineError):
    """The call needs a group id, or the one given is not allowed."""

    code = "INVALID_GROUP_ID"
    is_refusal = True


# --- consumer offsets -------------------------------------------------------------------------------------


class UnstableOffsetCommitError(TxnEngineError):
    """A transaction that commits offsets for this partition is still undecided. Try again."""

    code = "UNSTABLE_OFFSET_COMMIT"
    retriable = True
    retry_helps = True
    is_refusal = True
    default_action = "try again when that transaction is complete"


class OffsetsPendingError(TxnEngineError):
    """Another producer's commit for the same group and partition is pending. Try again later."""

    code = "OFFSETS_PENDING"
    retriable = True
    abortable = True
    retry_helps = True
    is_refusal = True
    default_action = "abort this transaction and try again when that one is complete"


class OffsetsMovedError(TxnEngineError):
    """The group has moved on since this reader fetched its position: somebody else processed the range."""

    code = "OFFSETS_MOVED"
    abortable = True
    retry_helps = True
    is_refusal = True
    default_action = (
        "abort, and read again from the group's position (seek_to_committed); do not repeat this range"
    )


# --- the store --------------------------------------------------------------------------------------------


class OutcomeUnknownError(TxnEngineError):
    """A write may or may not have happened, and nothing that can still be read tells which."""

    code = "OUTCOME_UNKNOWN"
    abortable = True
    retry_helps = True
    default_action = "do not send it again under another name; abort, or ask the log once the store answers"


class InconsistentClusterIdError(TxnEngineError):
    """The store at this URL is not the one that was opened: it was deleted, or replaced by another one.

    Nothing that the call wrote is acknowledged. What its process knows of logs and topics is another store's.
    """

    code = "INCONSISTENT_CLUSTER_ID"
    fatal = True
    retry_helps = True
    default_action = (
        "connect again, and run it again: what the store that is there now has decides what is left to do"
    )


class CorruptObjectError(TxnEngineError):
    """An object on the store is damaged: it was changed, cut or mixed up after it was written."""

    code = "CORRUPT_MESSAGE"
    default_action = "run `txn-engine verify`, and restore the named object from a copy"


class UnsupportedFormatError(TxnEngineError):
    """The store was written by another version of the engine, or holds a control kind that this one does not know."""

    code = "UNSUPPORTED_VERSION"
    default_action = "upgrade txn-engine"


class StoreUnavailableError(TxnEngineError):
    """The store does not answer. Nothing is known to be wrong with the data."""

    code = "NETWORK_EXCEPTION"
    retriable = True
    retry_helps = True


class StoreAccessError(TxnEngineError):
    """The store refuses: wrong credentials, unwritable folder, or no put-if-absent.

    of_a_write: it was a put or a delete that was refused. Not kept by a pickle.
    """

    code = "CLUSTER_AUTHORIZATION_FAILED"
    of_a_write = False


class StoreNotFoundError(StoreAccessError):
    """There is no such bucket, no such folder, or no store in it: nobody was asked for rights."""

    code = "STORE_NOT_FOUND"


class StoreFaultError(StoreAccessError):
    """A disk or a bucket is full, a disk is mounted without the right to write or has failed, or the process has too
    many files open.

    Nobody refused anything: the same call works once the machine is well again.
    """

    code = "KAFKA_STORAGE_ERROR"
    retry_helps = True


class SpillFullError(TxnEngineError):
    """The local disk has no room for what a job on one machine puts aside. Nothing was changed for want of it."""

    code = "KAFKA_STORAGE_ERROR"
    retry_helps = True
    default_action = (
        "make room there, name another folder in TMPDIR, or allow it more; Spark needs none: --engine spark"
    )


class OneProcessLimitError(TxnEngineError):
    """A partition, or what is to be proved, is more than one process works on, and there is no Spark.

    Nothing was changed.
    """

    code = "POLICY_VIOLATION"
    default_action = (
        "install txn-engine[spark] and Java 17 or later, or name a cluster by spark.master; "
        "engine local takes the time it takes"
    )

    @classmethod
    def without_spark(
        cls, why: str, error: TxnEngineError | ModuleNotFoundError, *, actor: str
    ) -> OneProcessLimitError:
        """More than one process takes, for `why`; `error` is what Spark could not be begun for."""
        if isinstance(error, TxnEngineError):
            return cls(f"{why}; and no Spark: {error.seen}", actor=actor)
        return cls(f"{why}; and no Spark: the package {error.name!r} is not installed", actor=actor)


class RequestTimedOutError(TxnEngineError):
    """The engine's own retries did not end within the time limit."""

    code = "REQUEST_TIMED_OUT"
    retriable = True
    retry_helps = True


class UnexpectedError(TxnEngineError):
    """One partition of a job or a listing raised what nobody foresaw: its type, and where. The others are done.

    It may have been the moment's, so the same task run again may succeed.
    """

    code = "UNKNOWN_SERVER_ERROR"
    retry_helps = True
    default_action = (
        "run `txn-engine verify`; where it finds nothing there, report it with the traceback in the log"
    )


class IllegalStateError(TxnEngineError):
    """A call out of order, for instance a commit without a begin. Nothing was written."""

    code = "ILLEGAL_STATE"
    is_refusal = True
