"""Anomalies by the names of Jepsen's Kafka and Elle checkers, and what the auditor's findings say of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

LOST: Final = "lost write"
DUPLICATE: Final = "duplicate"
ABORTED_READ: Final = "aborted read (G1a)"
INTERMEDIATE_READ: Final = "intermediate read (G1b)"
TORN: Final = "torn transaction"
REORDERED: Final = "reordering"
SKIP: Final = "poll skip"
NON_MONOTONIC: Final = "internal non-monotonicity"
MOVED_BACK: Final = "committed offset moved back"
WITHOUT_OFFSETS: Final = "output without its offsets"

MEANINGS: Final[Mapping[str, str]] = {
    LOST: "a record that was committed is not there, or not in the output",
    DUPLICATE: "a record is there twice, or was taken twice into the output",
    ABORTED_READ: "readers see records of a transaction that was aborted",
    INTERMEDIATE_READ: "readers see records of a transaction that is not decided",
    TORN: "a transaction shows in some of its partitions, or shows as committed in one and aborted in another",
    REORDERED: "a producer's batches do not follow one another as it sent them",
    SKIP: "a reader is not given files that lie between those it is given",
    NON_MONOTONIC: "within one reading of a partition offsets fall",
    MOVED_BACK: "a group's committed offset is lower than one committed before, and nobody moved it on purpose",
    WITHOUT_OFFSETS: "output was committed, and the position that belongs to it was not",
}

TORN_CODES: Final = frozenset(
    {
        "decision-not-carried-out",
        "decision-overridden",
        "hanging-transaction",
        "marker-against-decision",
        "marker-of-another-epoch",
        "marker-outside-decision",
        "marker-without-decision",
        "transaction-partitions",
    }
)
ORDER_CODES: Final = frozenset(
    {
        "append-time-falls",
        "epoch-falls",
        "epoch-mixed",
        "sequence-gap",
        "sequence-missing",
        "sequence-repeated",
    }
)
_OF_CODE: Final[Mapping[str, str]] = {
    **dict.fromkeys(TORN_CODES, TORN),
    **dict.fromkeys(("append-time-falls", "epoch-falls", "epoch-mixed"), REORDERED),
    **dict.fromkeys(("sequence-gap", "sequence-missing", "entry-missing", "key-lost"), LOST),
    **dict.fromkeys(("data-file-missing", "data-file-truncated", "data-file-records"), LOST),
    **dict.fromkeys(
        ("sequence-repeated", "data-file-named-twice", "key-doubled", "entry-overlaps"), DUPLICATE
    ),
    "data-file-order": NON_MONOTONIC,
    "lso-wrong": INTERMEDIATE_READ,
    "offset-moved": MOVED_BACK,
    "offset-over-pending": MOVED_BACK,
}


def of_codes(codes: Iterable[str]) -> tuple[str, ...]:
    """The anomalies that findings of these codes show. Sequence numbers that skip and repeat: batches changed place."""
    seen = set(codes)
    found = {_OF_CODE[code] for code in seen if code in _OF_CODE}
    if {"sequence-gap", "sequence-repeated"} <= seen:
        found = found - {LOST, DUPLICATE} | {REORDERED}
    return tuple(name for name in MEANINGS if name in found)
