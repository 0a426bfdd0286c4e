"""What an audit answers: the findings, and how much was looked at."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field

from txn_engine.verify.findings import Finding


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """One partition after its replay; `judged` is False where damage ended the judging early."""

    topic: str
    incarnation: int
    partition: int
    log_start_offset: int
    last_stable_offset: int
    log_end_offset: int
    entries: int
    batches: int
    records: dict[str, int]  # by what became of their file: live, undecided, aborted, replaced
    data_files: int
    orphan_files: int
    snapshots: int
    judged: bool


@dataclass(slots=True)
class Tally:
    """What has been read so far."""

    objects: int = 0
    bytes: int = 0
    entries: int = 0
    batches: int = 0
    records: int = 0
    transactions: Counter[str] = field(default_factory=Counter)
    latest_append_time: int = 0


@dataclass(frozen=True, slots=True)
class VerifyStats:
    """How much was looked at.

    `objects` and `bytes`: read from the store. `records`: in the data topics, whatever became of them.
    `transactions`: decisions by how far they are (CompleteCommit, CompleteAbort, PrepareCommit, PrepareAbort), and
    Ongoing ones. `findings_not_listed`: beyond the first 20 of a kind in a partition.
    """

    objects: int
    bytes: int
    entries: int
    batches: int
    records: int
    transactions: dict[str, int]
    partitions: tuple[PartitionStats, ...]
    orphan_files: int
    findings_not_listed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The findings in a fixed order (errors first, then by place), and the statistics."""

    findings: tuple[Finding, ...]
    stats: VerifyStats

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong: warnings (work that a sweep will do, or what may be meant) do not count."""
        return all(finding.severity != "error" for finding in self.findings)

    def to_dict(self) -> dict[str, object]:
        """The report as JSON values."""
        return {
            "ok": self.ok,
            "findings": [finding.to_dict() for finding in self.findings],
            "stats": asdict(self.stats),
        }
