"""What maintenance did, or in a dry run would do: one record a partition where there was something to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

Done = TypeVar("Done", covariant=True)


@dataclass(frozen=True, slots=True)
class Compacted:
    """Files of a partition that were rewritten: small ones, and by key those with something to leave out.

    `files` and `bytes` went in, `outputs` and `output_bytes` came out; what went in stays for 24 hours. `records` were
    kept; `dropped` were superseded by later ones of their keys, or tombstones that had their time. `overtaken`:
    rewrites that came too late, since inputs were replaced or trimmed meanwhile; what was uploaded for them is an
    orphan. `engine`: `local` or `spark`, whoever did it, and `why` in a line, where it was to be chosen.
    """

    topic: str
    partition: int
    files: int
    bytes: int
    outputs: int
    output_bytes: int
    records: int
    dropped: int = 0
    overtaken: int = 0
    engine: str = "local"
    why: str = ""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Where a partition begins now: its records, and its entries.

    `files`, `records`, `bytes`: what retention took away; the files stay for 24 hours.
    """

    topic: str
    partition: int
    log_start_before: int
    log_start_offset: int
    entries_start_before: int
    entries_start: int
    files: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """Entries below `entries_start` that are seals now, from offset `first` on; `bytes` is what they held."""

    topic: str
    partition: int
    entries_start: int
    first: int
    seals: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Objects of a partition that were deleted, and the floor below which a file without an entry is nobody's."""

    topic: str
    partition: int
    floor_before: int
    floor: int
    snapshots: int
    snapshot_bytes: int
    dead_files: int
    dead_bytes: int
    orphans: int
    orphan_bytes: int

    @property
    def bytes(self) -> int:
        """All that was deleted."""
        return self.snapshot_bytes + self.dead_bytes + self.orphan_bytes


@dataclass(frozen=True, slots=True)
class Expired:
    """Producers that a partition has forgotten."""

    topic: str
    partition: int
    producer_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """What was left of a deleted topic, and is gone."""

    topic: str
    incarnation: int
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionFailure:
    """A partition where the job stopped, and why. `message` is one line; the rest are the error's attributes.

    `partition` -1: a job that works on topics. `place`: the object or folder that the error names.
    """

    topic: str
    partition: int
    code: str
    message: str
    retry_helps: bool = True
    reason: StrEnum | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True)
class MaintenanceReport(Generic[Done]):
    """What a job did, by partition; `failures` are partitions that need somebody's eye. A dry run wrote nothing."""

    partitions: tuple[Done, ...]
    failures: tuple[PartitionFailure, ...] = ()
    dry_run: bool = False
