"""What an erasure found and did: counts, names and times, never a value."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

SOME: Final = -1
"""As a number of records: there are some, or nobody can tell how many."""


@dataclass(frozen=True, slots=True)
class StillHeld:
    """A place that still holds records that were asked for. records: how many, or `SOME`. until: in a few words."""

    place: str
    records: int
    until: str


@dataclass(frozen=True, slots=True)
class PartitionFound:
    """What was found in one partition. searched_to: what lies at this offset or above was not decided yet.

    records: committed ones that readers see. live_files, dead_files: that hold any; the dead ones were merged, trimmed
    or aborted, or are kept for a cut or a table. unnamed_files: uploads that no entry names.
    """

    partition: int
    searched_to: int
    records: int
    live_files: int
    dead_files: int
    unnamed_files: int
    all_records: int


@dataclass(frozen=True, slots=True)
class FormerFound:
    """What the topic has left of an incarnation that was deleted, at `deleted_ms`.

    records: how many of the records it holds, -1: some, or nobody can tell; one that holds any goes whole. cuts: that
    are without the deleted topic then. removed: the objects that are gone.
    """

    incarnation: int
    deleted_ms: int
    records: int
    cuts: tuple[int, ...] = ()
    removed: int = 0
    removed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Temporary files and folders that programs have left: how many are gone, or would be; the paths of folders on this
    machine that may hold some of the records, of programs that are at work, or of nobody knows whom.
    """

    gone: int = 0
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What was asked for, found and done in one topic. incarnation: the present one; the last one of a topic that was
    deleted.

    executed: False: nothing was written. erasures: the numbers of those begun and finished for it. finished_before:
    those that somebody else had begun, and that were finished first. files: of which records were erased; deleted: data
    files that are gone, and their bytes. cuts, pins: those that named one of these files; reading as of them goes on
    without the records. tables: by format the version that shows what is left, and those before it, whose own files are
    gone. withdrawn: by format the tables that cannot show what is left, and why: they are published no more, or would
    not be. former: of the topic from before it was deleted. leftovers: of programs that were killed.
    still_held: what holds records still.
    """

    topic: str
    incarnation: int
    executed: bool
    partitions: tuple[PartitionFound, ...]
    erasures: tuple[int, ...] = ()
    finished_before: tuple[int, ...] = ()
    files: int = 0
    deleted: int = 0
    deleted_bytes: int = 0
    cuts: tuple[int, ...] = ()
    pins: tuple[str, ...] = ()
    tables: dict[str, int] = field(default_factory=dict)
    withdrawn: dict[str, str] = field(default_factory=dict)
    former: tuple[FormerFound, ...] = ()
    leftovers: Leftovers = Leftovers()
    still_held: tuple[StillHeld, ...] = ()

    @property
    def records(self) -> int:
        """How many committed records it is about."""
        return sum(each.records for each in self.partitions)

    @property
    def all_records(self) -> int:
        """How many committed records the topic has, or had before."""
        return sum(each.all_records for each in self.partitions)

    @property
    def is_complete(self) -> bool:
        """Whether nothing holds them any more, as far as the store goes."""
        return self.executed and not self.still_held

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        counts = {"records": self.records, "all_records": self.all_records}
        return {**asdict(self), **counts, "is_complete": self.is_complete}
