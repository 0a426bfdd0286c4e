"""Who does the parts of a compaction that take time and room: this process, or Spark.

What is done with what they find is decided elsewhere, and judged by the log: they are told which files, and put new
files on the store, which nobody sees before an entry names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from txn_engine.log.topics import Topic
from txn_engine.maintain.neighbours import Run
from txn_engine.maintain.target import Target
from txn_engine.protocol.partition import LogFile


@dataclass(frozen=True, slots=True)
class Rule:
    """How runs are merged. Names of new files say `log_end`, what the log's end was before any of them was begun.

    by_key: what is superseded is left out, and a run of which nothing is left out stays as it is. tombstones_to: so are
    tombstones below that offset, -1: none. dry_run: nothing is put on the store.
    """

    log_end: int
    by_key: bool
    tombstones_to: int = -1
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of a run: `output` holds its records without those `dropped`.

    None: nothing stays, or nothing was to be written.
    """

    run: Run
    output: LogFile | None
    dropped: int

    @property
    def kept(self) -> int:
        """How many records stay."""
        return sum(file.record_count for file in self.run) - self.dropped


@dataclass(frozen=True, slots=True)
class By:
    """Who works: `local` or `spark`, and why, in a line; nothing where nobody was asked to choose."""

    engine: str = "local"
    why: str = ""


class Selection(Protocol):
    """Some of the records of the files that were asked about."""

    @property
    def by(self) -> By:
        """Who merges them; known once the first of them is merged."""

    @property
    def counts(self) -> Sequence[int]:
        """How many there are of each file."""

    def merge(self, runs: Sequence[tuple[int, int]], rule: Rule) -> Iterator[Merged]:
        """Make one file of each of these runs (the number of its first file, and of the one behind its last).

        In their order. Of whoever stops asking the workers take back what no entry will name; of one that dies it
        stays, for the clean-up. Raises `CorruptObjectError` unless each input is, byte for byte, the one that the log
        names.
        """


class Workers(Protocol):
    """Choose records of one partition's files, which are given by offset, and merge them."""

    def every(
        self, target: Target, topic: Topic, files: Sequence[LogFile]
    ) -> AbstractContextManager[Selection]:
        """All their records."""

    def latest(
        self, target: Target, topic: Topic, files: Sequence[LogFile]
    ) -> AbstractContextManager[Selection]:
        """Of each key its last record among them: keys as they are, exactly. `CorruptObjectError` as `merge`."""
