"""What was seen on the store: plain values, and rows that can be reduced. Made by `gather` or, in tests, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from txn_engine.quality.declaration import Declaration
from txn_engine.quality.digest import Digest
from txn_engine.quality.rows import FileRows, Rows
from txn_engine.schemas.layout import Schemas
from txn_engine.types import GroupOffset, TopicPartition

FINAL_STATES = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
"""States of a transactional id in which nothing is left to be done."""


NOT_KNOWN = -1
"""For a number that is not there, as in every value of the engine."""


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A data file as a scan lists it, and what is in the part of it that the scan means.

    `producer_id` and `producer_epoch`: who wrote it by its name; None where that does not say. `records`: those that
    are in it, at offsets from `first_offset` to `last_offset`; where nobody looked inside (a hidden file) those that
    the log names. `falls` and `repeats`: records at a lower, or the same, offset as the one before them;
    `first_fault`: where the first is.
    """

    key: str
    partition: int
    records: int
    first_offset: int
    last_offset: int
    producer_id: int | None = None
    producer_epoch: int | None = None
    falls: int = 0
    repeats: int = 0
    first_fault: int = NOT_KNOWN
    digest: Digest = field(default_factory=Digest)


@dataclass(frozen=True, slots=True)
class TopicRows:
    """What reading one topic gives.

    `rows`: what read_committed returns; `files`: those it comes from, in the order of the scan; `hidden`: files that
    only a read_uncommitted scan lists, None where that could not be had; `ends`: where the read_committed scan ended,
    by partition.

    Where an earlier proof is gone on from, `since` says up to where that went, `earlier` has the rows below and `rows`
    those from there on; `looked` are the files, or parts of them, that were looked into. Else these are all.
    """

    schema: pa.Schema
    rows: Rows
    files: tuple[SeenFile, ...]
    hidden: tuple[SeenFile, ...] | None = ()
    ends: Mapping[int, int] = field(default_factory=dict)
    since: Mapping[int, int] = field(default_factory=dict)
    earlier: Rows | None = None
    looked: tuple[SeenFile, ...] | None = None

    @property
    def schemas(self) -> Schemas:
        """Every version of the columns, and the one by which the rows are judged."""
        return self.rows.schemas if isinstance(self.rows, FileRows) else Schemas.of(self.schema)

    @property
    def inside(self) -> tuple[SeenFile, ...]:
        """The files that were looked into."""
        return self.files if self.looked is None else self.looked

    @property
    def records(self) -> int:
        """How many read_committed returns."""
        return sum(file.records for file in self.files)

    @property
    def looked_at(self) -> int:
        """How many records were looked at."""
        return sum(file.records for file in self.inside)

    def of(self, partition: int) -> list[SeenFile]:
        """The partition's files that readers see, in the order of the scan."""
        return [file for file in self.files if file.partition == partition]

    def digests(self) -> dict[int, Digest]:
        """Of each partition's rows that were looked at."""
        found: dict[int, Digest] = {}
        for file in self.inside:
            found[file.partition] = found.get(file.partition, Digest()).plus(file.digest)
        return found


class CommittedOffset(NamedTuple):
    """What the declared group committed for a partition of the topic, by a row of its log, in which transaction (-1: in
    none); `metadata` is the committer's note.
    """

    partition: int
    row: int
    offset: int
    producer_id: int
    producer_epoch: int
    metadata: str
    took_effect: bool = True  # its transaction, if it has one, is neither aborted nor open


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """The group's commits for the topic as its raw log has them; `is_whole`: none of the log is sealed; `writers`:
    producer id and epoch of each that committed for the group, whatever the topic.
    """

    is_whole: bool = True
    commits: tuple[CommittedOffset, ...] = ()
    writers: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class InputRows:
    """The input file as rows of the topic's types: `_line` says where each stands, `_unfit` which cells the types
    cannot hold (those are null here). `columns`: the file's, in its order, by the topic's names; `compared`: those that
    the topic has too; `unknown`: those of which nobody says that they were not loaded, and that the topic has not.
    """

    path: Path
    rows: pa.Table | Path
    count: int
    columns: tuple[str, ...]
    compared: tuple[str, ...]
    unknown: tuple[str, ...] = ()


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


class ReplayedFile(NamedTuple):
    """A data file that is live by the raw entries."""

    key: str
    base_offset: int
    last_offset: int
    record_count: int


@dataclass(frozen=True, slots=True)
class ReplayedPartition:
    """A partition as the auditor's replay of the raw entries gives it, which shares no code with the engine's own.

    `live_records`: those of committed files that nothing has replaced; `open_transactions`: producers without a marker;
    `aborted`: what was aborted and not trimmed; `live`: the files, None where the replay did not list them.
    """

    topic: str
    partition: int
    last_stable_offset: int
    log_end_offset: int
    live_records: int
    log_start_offset: int = 0
    open_transactions: int = 0
    aborted: tuple[AbortedRange, ...] = ()
    live: tuple[ReplayedFile, ...] | None = None


@dataclass(frozen=True, slots=True)
class TransactionState:
    """A transactional id; `concerns`: its transaction touches the checked topics (or nobody can tell)."""

    transactional_id: str
    state: str
    concerns: bool = True


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """What a replay of the store found, in one line; a warning is work that a sweep will do, and breaks no rule.

    `object`: the key that it is about.
    """

    text: str
    is_error: bool = True
    code: str = ""
    object: str = ""


class ChainDifference(NamedTuple):
    """A partition whose records are not those that the chain of proofs has, from the proof of that number on."""

    topic: str
    partition: int
    proof: int
    proved: str
    seen: str


class AsOf(NamedTuple):
    """The cut as of which everything was looked at, and when it was made.

    `cut` is its number, or -1 for a cut that the run made for itself and nothing keeps. Of such a cut `offsets` are
    where it goes through the checked topics, and `group_end` where it goes through the group's log; of a kept cut they
    are empty and -1, for the store has them.
    """

    cut: int
    created_ms: int
    offsets: Mapping[TopicPartition, int] = MappingProxyType({})
    group_end: int = NOT_KNOWN

    @property
    def is_kept(self) -> bool:
        """Whether the cut is on the store, and can be named again."""
        return self.cut >= 0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that the suite judges.

    `as_of`: the cut that it is about; None for the store as it was when it was looked at. `replayed_positions`: as of a
    cut, by partition of the checked topic, where the group stood by the raw objects; None where they do not say.
    `under_way`: for the checks that find what is under way, what was so when a cut that nothing keeps was made, and was
    still when all else was gathered; None for any other.
    `replayed_letters`: by dead-letter topic and partition, from which offset on letters wait to be replayed.

    `chain`: where records that were proved before differ now; None where none were looked at again. `chain_unjudged`:
    partitions of which that cannot be told, at least of a part.

    `replayed_transactions`: by the raw rows, those that have not ended; `replayed_pending`: by partition of the checked
    topic, the producer whose commit for the group is pending by them. `fates`: the keys of visible files that by the
    coordinator's own rows, whatever a marker says, are not committed: `aborted` or `undecided`.
    A part that could not be had is absent, and `failures` says why, under the part's name: `rows:<topic>`,
    `log:<topic>` (read_uncommitted), `offsets`, `group`, `letters`, `transactions`, `audit`. Checks that need it
    error; they never pass.
    """

    check: Declaration
    store: str
    gathered_ms: int
    input: InputRows | None = None
    rows: Mapping[str, TopicRows] = field(default_factory=dict)
    partitions: tuple[PartitionEvidence, ...] = ()
    replayed: tuple[ReplayedPartition, ...] = ()
    replayed_transactions: tuple[TransactionState, ...] = ()
    replayed_pending: Mapping[int, int] = field(default_factory=dict)
    fates: Mapping[str, str] = field(default_factory=dict)
    group_history: GroupHistory = field(default_factory=GroupHistory)
    group: tuple[GroupOffset, ...] = ()
    transactions: tuple[TransactionState, ...] = ()
    findings: tuple[AuditFinding, ...] = ()
    findings_not_listed: int = 0
    chain: tuple[ChainDifference, ...] | None = None
    chain_unjudged: int = 0
    as_of: AsOf | None = None
    under_way: Evidence | None = None
    replayed_positions: Mapping[int, int] | None = None
    replayed_letters: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_of_kept_cut(self) -> bool:
        """Whether it is about a cut of the store, in which nothing is under way."""
        return self.as_of is not None and self.as_of.is_kept

    @property
    def columns_not_in_file(self) -> tuple[str, ...]:
        """The columns of the checked topic that the input file does not have. Empty without a file or without rows."""
        rows = self.rows.get(self.check.topic)
        if self.input is None or rows is None:
            return ()
        return tuple(name for name in rows.schema.names if name not in self.input.compared)


class EvidenceMissingError(Exception):
    """A part of the evidence could not be had: which and why, and what was `said`, which may quote a record."""

    def __init__(self, why: str, said: str = "") -> None:
        super().__init__(why)
        self.said = said


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
    """What reading the topic gives. Raises EvidenceMissingError where it could not be read."""
    need(evidence, f"rows:{topic}")
    return evidence.rows[topic]
