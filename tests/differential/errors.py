"""Kafka's error codes by number, as far as the comparison can meet them
(`org.apache.kafka.common.protocol.Errors`)."""

from __future__ import annotations

from typing import Literal

ERROR_NAMES = {
    -1: "UNKNOWN_SERVER_ERROR",
    1: "OFFSET_OUT_OF_RANGE",
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    19: "NOT_ENOUGH_REPLICAS",
    22: "ILLEGAL_GENERATION",
    24: "INVALID_GROUP_ID",
    25: "UNKNOWN_MEMBER_ID",
    36: "TOPIC_ALREADY_EXISTS",
    42: "INVALID_REQUEST",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    46: "DUPLICATE_SEQUENCE_NUMBER",
    47: "INVALID_PRODUCER_EPOCH",
    48: "INVALID_TXN_STATE",
    49: "INVALID_PRODUCER_ID_MAPPING",
    50: "INVALID_TRANSACTION_TIMEOUT",
    51: "CONCURRENT_TRANSACTIONS",
    52: "TRANSACTION_COORDINATOR_FENCED",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    55: "OPERATION_NOT_ATTEMPTED",
    59: "UNKNOWN_PRODUCER_ID",
    69: "GROUP_ID_NOT_FOUND",
    78: "OFFSET_NOT_AVAILABLE",
    87: "INVALID_RECORD",
    88: "UNSTABLE_OFFSET_COMMIT",
    90: "PRODUCER_FENCED",
    105: "TRANSACTIONAL_ID_NOT_FOUND",
    120: "TRANSACTION_ABORTABLE",
    128: "INVALID_REGULAR_EXPRESSION",
}


Kind = Literal["retriable", "abortable", "fatal", "refused"]
"""What an error leaves of its caller: ask again; abort, and go on; finished; or nothing changes."""


class CallError(Exception):
    """The failure of a call on either side: Kafka's name for the error, and the state in which it leaves a
    producer that made the call."""

    def __init__(self, code: str, text: str = "", kind: Kind = "refused") -> None:
        super().__init__(f"{code} {text}".strip())
        self.code = code
        self.kind = kind


class TooSlowError(Exception):
    """The machine was so slow that something may have timed out too early. The program has to run again."""


KINDS_BY_STATE: dict[str, Kind] = {"ABORTABLE_ERROR": "abortable", "FATAL_ERROR": "fatal"}
"""What a producer's own state says, by Kafka's name of it; in any other nothing has changed."""

_RETRIABLE = (
    "UNKNOWN_TOPIC_OR_PARTITION",
    "NOT_LEADER_OR_FOLLOWER",
    "REQUEST_TIMED_OUT",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "NOT_ENOUGH_REPLICAS",
    "CONCURRENT_TRANSACTIONS",
    "UNSTABLE_OFFSET_COMMIT",
)
_FATAL_TO_A_WRITE = (
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_ID_MAPPING",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
)


def kind_of_a_write(code: str) -> Kind:
    """The kind that Kafka's producer gives to a Produce's error (`Sender`,
    `TransactionManager.maybeTransitionToErrorState`)."""
    if code in _RETRIABLE:
        return "retriable"
    return "fatal" if code in _FATAL_TO_A_WRITE else "abortable"


def kind_of_a_request(code: str) -> Kind:
    """The kind that Kafka's producer gives to an error of its coordinators (`TransactionManager`'s
    handlers)."""
    if code in _RETRIABLE:
        return "retriable"
    return "abortable" if code == "TRANSACTION_ABORTABLE" else "fatal"


def kind_of_a_read(code: str) -> Kind:
    """The kind that every other client gives to an error."""
    return "retriable" if code in _RETRIABLE else "refused"


def check(number: int, text: str | None = None) -> None:
    """Raise a `CallError` if this error code of an answer is not zero."""
    if number:
        raise CallError(ERROR_NAMES.get(number, f"ERROR_{number}"), text or "")
