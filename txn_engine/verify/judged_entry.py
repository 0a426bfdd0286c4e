"""Where a rule is being applied, and what a rule is."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Protocol

from txn_engine.verify.audited_partition import AuditedPartition
from txn_engine.verify.descriptors import Batch
from txn_engine.verify.findings import FindingLog, Place


@dataclass(frozen=True, slots=True)
class JudgedEntry:
    """The entry being judged.

    slots: the base offsets that are taken in this log, ascending. `sound` is False once damage has made the replayed
    state a guess.
    """

    place: Place
    key: str
    findings: FindingLog
    slots: array[int]
    sound: bool

    def note(self, code: str, batch: Batch, seen: str, expected: str = "", *, action: str = "") -> None:
        """Note a finding about one row of this entry."""
        self.findings.add(
            code,
            self.key,
            seen,
            expected=expected,
            action=action,
            place=self.place,
            offsets=batch.offsets,
            producer_id=batch.producer_id if batch.producer_id >= 0 else None,
            since_ms=batch.append_time,
        )


class Rule(Protocol):
    """One thing that must hold of every row."""

    def judge(self, state: AuditedPartition, batch: Batch, entry: JudgedEntry) -> None:
        """Note what is wrong with `batch`, given the state before it. Changes nothing of the state."""
        ...
