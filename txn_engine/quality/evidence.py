"""What was seen on the store, as plain values: what the suite judges, made by `gather` or, in tests, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from txn_engine.quality.check import ExactlyOnceCheck
from txn_engine.quality.input_file import InputRows
from txn_engine.types import GroupOffset

FINAL_STATES = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
"""States of a transactional id in which nothing is left to be done."""


NOT_KNOWN = -1
"""For a number that is not there, as in every value of the engine."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A data file as a scan lists it; `producer_id` None where its name does not say who wrote it."""

    partition: int
    base_offset: int
    producer_id: int | None


@dataclass(frozen=True, slots=True)
class TopicRows:
    """What reading one topic returned.

    `committed`: all columns, as read_committed returns them; `logged`: `_partition` and `_offset` of read_uncommitted,
    None where that could not be read; `files`: those that the read_uncommitted scan lists; `ends`: where the
    read_committed scan ended, by partition.
    """

    committed: pa.Table
    logged: pa.Table | None
    files: tuple[LogFile, ...] = ()
    ends: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionEvidence:
    """A partition's offsets and how many producers have a transaction open on it.

    `is_compacted`: compaction by key may have left records of it out.
    """

    topic: str
    partition: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    open_transactions: int
    is_compacted: bool = False


class AbortedRange(NamedTuple):
    """A transaction that its producer aborted: what it wrote lies from `first_offset` to the marker."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class ReplayedPartition:
    """A partition as the auditor's replay of the raw entries gives it, which shares no code with the engine's own.

    `live_records`: those of committed files that nothing has replaced; `open_transactions`: producers without a marker;
    `aborted`: what was aborted and not trimmed.
    """

    topic: str
    partition: int
    last_stable_offset: int
    log_end_offset: int
    live_records: int
    log_start_offset: int = 0
    open_transactions: int = 0
    aborted: tuple[AbortedRange, ...] = ()


@dataclass(frozen=True, slots=True)
class TransactionState:
    """A transactional id; `concerns`: its transaction touches the checked topics (or nobody can tell)."""

    transactional_id: str
    state: str
    concerns: bool = True


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """What a replay of the store found, in one line; a warning is work that a sweep will do, and breaks no rule."""

    text: str
    is_error: bool = True


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that the suite judges.

    `replayed_transactions`: by the raw rows, those that have not ended; `replayed_pending`: by partition of the checked
    topic, the producer whose commit for the group is pending by them.
    A part that could not be had is absent, and `failures` says why, under the part's name: `rows:<topic>`,
    `log:<topic>` (read_uncommitted), `offsets`, `group`, `transactions`, `audit`. Checks that need it error; they
    never pass.
    """

    check: ExactlyOnceCheck
    store: str
    gathered_ms: int
    input: InputRows | None = None
    rows: Mapping[str, TopicRows] = field(default_factory=dict)
    partitions: tuple[PartitionEvidence, ...] = ()
    replayed: tuple[ReplayedPartition, ...] = ()
    replayed_transactions: tuple[TransactionState, ...] = ()
    replayed_pending: Mapping[int, int] = field(default_factory=dict)
    group: tuple[GroupOffset, ...] = ()
    transactions: tuple[TransactionState, ...] = ()
    findings: tuple[AuditFinding, ...] = ()
    findings_not_listed: int = 0
    failures: Mapping[str, str] = field(default_factory=dict)


class EvidenceMissingError(Exception):
    """A part of the evidence could not be had; the text says which and why."""


def need(evidence: Evidence, *parts: str) -> None:
    """Raise EvidenceMissingError if one of the parts could not be had."""
    for part in parts:
        if part in evidence.failures:
            raise EvidenceMissingError(evidence.failures[part])


def replayed(evidence: Evidence, topic: str, partition: int) -> ReplayedPartition:
    """The auditor's side of a partition. Raises EvidenceMissingError where it could not replay it to its end."""
    need(evidence, "audit")
    for found in evidence.replayed:
        if (found.topic, found.partition) == (topic, partition):
            return found
    raise EvidenceMissingError(f"the audit could not replay {topic}-{partition} to its end: see its findings")


def rows_of(evidence: Evidence, topic: str) -> TopicRows:
    """What reading the topic returned. Raises EvidenceMissingError where it could not be read."""
    need(evidence, f"rows:{topic}")
    return evidence.rows[topic]
