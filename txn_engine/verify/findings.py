"""What the auditor found, in words that somebody can act on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

Severity = Literal["error", "warning"]

_RESTORE = "restore this object from a copy; until then nothing behind it can be trusted"
_RESTORE_FILE = "restore this data file from a copy; reads of its offsets fail or are wrong until then"
_REPORT = (
    "keep the store as it is and report this: a writer broke the protocol, or the log was edited by hand"
)
_SNAPSHOT = (
    "remove this snapshot (a reader falls back to an older one) and run `txn-engine coordinator snapshot`"
)
_FOREIGN = "look at who put it there and move it away"

CODES: Mapping[str, str] = MappingProxyType(
    {
        # objects and entries (invariant 1)
        "object-missing": _RESTORE,
        "object-damaged": _RESTORE,
        "object-misnamed": _FOREIGN,
        "entry-damaged": _RESTORE,
        "entry-missing": _RESTORE,
        "entry-misnamed": _RESTORE,
        "entry-overlaps": _RESTORE,
        "entry-malformed": _REPORT,
        "descriptor-malformed": _REPORT,
        "append-time-falls": _REPORT,
        "control-unknown": "audit this store with the version of txn-engine that wrote it",
        "seal-misplaced": _RESTORE,
        "sealed-without-snapshot": "restore a snapshot from a copy: the sealed rows stand only there",
        # data files
        "data-file-missing": _RESTORE_FILE,
        "data-file-damaged": _RESTORE_FILE,
        "data-file-truncated": _RESTORE_FILE,
        "data-file-swapped": _RESTORE_FILE,
        "data-file-misnamed": _REPORT,
        "data-file-named-twice": _REPORT,
        "data-file-below-floor": _REPORT,
        "data-file-records": _REPORT,
        "data-file-timestamps": _REPORT,
        "data-file-schema": _REPORT,
        # producers (invariants 4 and 7)
        "epoch-falls": _REPORT,
        "epoch-mixed": _REPORT,
        "plain-batch-in-transaction": _REPORT,
        "sequence-gap": _REPORT,
        "sequence-repeated": _REPORT,
        "sequence-missing": _REPORT,
        # markers and decisions (invariants 3 and 7)
        "marker-epoch": _REPORT,
        "marker-repeated": _REPORT,
        "marker-fenced": _REPORT,
        "marker-without-decision": _REPORT,
        "marker-against-decision": _REPORT,
        "marker-of-another-epoch": _REPORT,
        "marker-outside-decision": _REPORT,
        "decision-overridden": _REPORT,
        "decision-not-carried-out": _REPORT,
        "hanging-transaction": "`txn-engine transactions find-hanging` shows it, `transactions abort` ends it",
        # the coordinator's log (invariant 6)
        "wrong-partition": _REPORT,
        "state-move": _REPORT,
        "transaction-epoch": _REPORT,
        "transaction-producer": _REPORT,
        "transaction-partitions": _REPORT,
        "decision-offset": _REPORT,
        "run-id-lost": _REPORT,
        "producer-id-shared": _REPORT,
        "transaction-timed-out": "`txn-engine coordinator sweep` aborts it",
        "transaction-pending": "`txn-engine coordinator markers` finishes it",
        # consumer groups (invariant 8)
        "offset-over-pending": _REPORT,
        "offset-moved": _REPORT,
        "offset-beyond-end": "reset the group (`txn-engine groups reset-offsets`) once the log is whole",
        # control rows, LSO and snapshots (invariants 5 and 9)
        "rewrite-illegal": _REPORT,
        "trim-illegal": _REPORT,
        "expire-illegal": _REPORT,
        "floor-illegal": _REPORT,
        "lso-wrong": _REPORT,
        "snapshot-damaged": _SNAPSHOT,
        "snapshot-differs": _SNAPSHOT,
        "snapshot-ahead": "the log behind this snapshot lost its last entries: restore them from a copy",
        "snapshot-misplaced": _SNAPSHOT,
        "producer-id-block": _REPORT,
    }
)
"""Every kind of finding, and what to do about it unless the finding itself says something better."""

WARNINGS = frozenset({"transaction-timed-out", "transaction-pending", "producer-id-block"})
LISTED_MAX = 20  # of one kind in one partition; the rest is counted


class Place(NamedTuple):
    """A partition of one incarnation of a topic."""

    topic: str
    incarnation: int
    partition: int

    @property
    def prefix(self) -> str:
        """The partition's folder on the store."""
        return f"topics/{self.topic}/{self.incarnation}/{self.partition}"

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not hold: what, where, since when, and what to do.

    `object` is a key relative to the store; `offsets` are inclusive; `since_ms` is the append time in the log, where
    there is one.
    """

    code: str
    severity: Severity
    object: str
    seen: str
    expected: str = ""
    action: str = ""
    topic: str | None = None
    partition: int | None = None
    offsets: tuple[int, int] | None = None
    producer_id: int | None = None
    since_ms: int | None = None

    def __str__(self) -> str:
        text = f"{self.severity} {self.code}: {self.object}{self._where()}: {self.seen}"
        if self.expected:
            text += f"; expected {self.expected}"
        return " ".join((f"{text}; {self.action}" if self.action else text).split())

    def _where(self) -> str:
        parts = [] if self.topic is None else [f"{self.topic}-{self.partition}"]
        if self.offsets is not None:
            first, last = self.offsets
            parts.append(f"offset {first}" if first == last else f"offsets {first} to {last}")
        if self.producer_id is not None:
            parts.append(f"producer {self.producer_id}")
        if self.since_ms is not None:
            parts.append(f"since {_instant(self.since_ms)}")
        return f" ({', '.join(parts)})" if parts else ""

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON values."""
        return {
            "code": self.code,
            "severity": self.severity,
            "object": self.object,
            "topic": self.topic,
            "partition": self.partition,
            "offsets": list(self.offsets) if self.offsets else None,
            "producer_id": self.producer_id,
            "since_ms": self.since_ms,
            "seen": self.seen,
            "expected": self.expected,
            "action": self.action,
        }

    @property
    def order(self) -> tuple[Any, ...]:
        """Errors first, then by place: the same findings always come in the same order."""
        return (
            self.severity,
            self.topic or "",
            -1 if self.partition is None else self.partition,
            self.offsets or (-1, -1),
            self.object,
            self.code,
            -1 if self.producer_id is None else self.producer_id,
            self.seen,
        )


class FindingLog:
    """Collects findings; of one kind in one partition it lists 20 and counts the rest, so that memory stays bounded."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._listed: Counter[tuple[str, str | None, int | None]] = Counter()
        self.not_listed = 0

    def add(
        self,
        code: str,
        object_key: str,
        seen: str,
        *,
        expected: str = "",
        action: str = "",
        severity: Severity | None = None,
        place: Place | None = None,
        offsets: tuple[int, int] | None = None,
        producer_id: int | None = None,
        since_ms: int | None = None,
    ) -> None:
        """Note one finding; severity and action are the code's own unless given."""
        kind = (code, place.topic if place else None, place.partition if place else None)
        self._listed[kind] += 1
        if self._listed[kind] > LISTED_MAX:
            self.not_listed += 1
            return
        self._findings.append(
            Finding(
                code=code,
                severity=severity or ("warning" if code in WARNINGS else "error"),
                object=object_key,
                seen=seen,
                expected=expected,
                action=action or CODES[code],
                topic=place.topic if place else None,
                partition=place.partition if place else None,
                offsets=offsets,
                producer_id=producer_id,
                since_ms=since_ms,
            )
        )

    def sorted(self) -> tuple[Finding, ...]:
        """All of them, in their order."""
        return tuple(sorted(self._findings, key=lambda finding: finding.order))


def _instant(time_ms: int) -> str:
    try:
        return (
            datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        )
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
