"""What the auditor found, in words that somebody can act on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from txn_engine.names import printable
from txn_engine.verify.codes import CODES, Severity

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


class Witness(NamedTuple):
    """A partition's log once went at least to this offset, by what `name` names."""

    offset: int
    name: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not hold: what, where, whose, since when, and what to do.

    `object` is a key relative to the store; `offsets` are inclusive; `transactional_id` is the producer's, where the
    coordinator's log tells; `since_ms` is the append time in the log, where there is one.
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
    transactional_id: str | None = None
    since_ms: int | None = None

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        text = f"{self.severity} {self.code}: {self.object}{where}: {self.seen}"
        if self.expected:
            text += f"; expected {self.expected}"
        return " ".join((f"{text}; {self.action}" if self.action else text).split())

    @property
    def where(self) -> str:
        """Partition, offsets, producer and time, in words; empty where none of them applies."""
        parts = [] if self.topic is None else [f"{self.topic}-{self.partition}"]
        if self.offsets is not None:
            first, last = self.offsets
            parts.append(f"offset {first}" if first == last else f"offsets {first} to {last}")
        if self.producer_id is not None:
            parts.append(f"producer {self.producer_id}")
        if self.transactional_id is not None:
            parts.append(f"transactional id {self.transactional_id!r}")
        if self.since_ms is not None:
            parts.append(f"since {_instant(self.since_ms)}")
        return ", ".join(parts)

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
            "transactional_id": self.transactional_id,
            "since_ms": self.since_ms,
            "since": None if self.since_ms is None else _instant(self.since_ms),
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
                severity=severity or CODES[code].severity,
                object=printable(object_key),  # a foreign key may hold what moves a terminal's cursor
                seen=seen,
                expected=expected,
                action=action or CODES[code].action,
                topic=place.topic if place else None,
                partition=place.partition if place else None,
                offsets=offsets,
                producer_id=producer_id,
                since_ms=since_ms,
            )
        )

    @property
    def has_errors(self) -> bool:
        """Whether anything is wrong so far."""
        return any(found.severity == "error" for found in self._findings)

    @property
    def found(self) -> list[Finding]:
        """What is listed, in the order in which it came."""
        return self._findings

    def take(self, found: Iterable[Finding], not_listed: int) -> None:
        """Add what was found elsewhere."""
        for each in found:
            kind = (each.code, each.topic, each.partition)
            self._listed[kind] += 1
            if self._listed[kind] > LISTED_MAX:
                self.not_listed += 1
            else:
                self._findings.append(each)
        self.not_listed += not_listed

    def leave_out(self, count: int) -> None:
        """Count what is not listed."""
        self.not_listed += count

    def sorted(self, owner_of: Callable[[int], str | None]) -> tuple[Finding, ...]:
        """All of them, in their order, each producer with the transactional id that it belongs to."""
        named = (
            found
            if found.producer_id is None
            else replace(found, transactional_id=owner_of(found.producer_id))
            for found in self._findings
        )
        return tuple(sorted(named, key=lambda finding: finding.order))


def _instant(time_ms: int) -> str:
    try:
        return (
            datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        )
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
