"""A topic's table in some format, as publishing sees it: versions, each made by put-if-absent, and the cut that the
newest one shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from txn_engine.log.topic_cut import TopicCut
from txn_engine.tables.changes import Step, StepKind
from txn_engine.tables.files import TableFile


@dataclass(frozen=True, slots=True)
class Published:
    """The newest version of a table, as the table itself says.

    at: the cut that it shows; None once the table was unpublished. schema_version: of the topic's, whose columns it
    has. Where a publisher stopped between the versions of
    one cut, `done` is the last step that is shown, `earlier` the cut that the steps began from, and `added` and
    `removed` are the paths of this version.
    """

    version: int
    at: TopicCut | None
    created_ms: int
    schema_version: int = 0
    earlier: TopicCut | None = None
    done: StepKind | None = None
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Commit:
    """A version to be made: these steps on the way from cut `earlier` (None: from no table) to cut `at`.

    schema_version: of the topic's, whose columns it has; is_new_schema: the version before has others, or there is none
    that readers take. is_complete: these steps are the last ones.
    """

    version: int
    earlier: TopicCut | None
    at: TopicCut
    steps: tuple[Step, ...]
    schema_version: int
    is_new_schema: bool
    is_complete: bool


class View(Protocol):
    """One table of one topic."""

    @property
    def table_format(self) -> str:
        """One of `txn_engine.types.TABLE_FORMATS`."""
        ...

    @property
    def looks_into_files(self) -> bool:
        """Whether `misread` may open files: what else can be refused `check` knows."""
        ...

    def check(self) -> None:
        """Raise `InvalidRequestError` for a column of a type that the format has not, and where else it cannot be."""
        ...

    def uri(self, published: Published) -> str:
        """What readers open."""
        ...

    def elsewhere(self) -> str:
        """The address by which the newest version that was read names its files, where it is not the store's."""
        ...

    def newest(self) -> Published | None:
        """The newest version; None where nothing was ever published. Raises `CorruptObjectError` where it is not ours:
        nobody goes on from there.
        """
        ...

    def missing(self, published: Published) -> str | None:
        """The key of an object of the table itself that is gone, and that readers of this version need; None: none is.
        By a listing, and where the format has lists of its objects, by those of the version.
        """
        ...

    def batches(self, steps: Sequence[Step]) -> list[tuple[Step, ...]]:
        """The steps by versions, in order: those that may be shown at once are one."""
        ...

    def misread(self, files: Sequence[TableFile], workers: Executor) -> dict[str, str]:
        """Of these files, by their paths, those that readers of the format would take for something else, and what in
        them. May read the files' footers: so it is asked once for each, before the version that adds it.
        """
        ...

    def commit(self, commit: Commit) -> bool:
        """Put the version if absent. False: another one stands there."""
        ...

    def withdraw(self, version: int, paths: Sequence[str]) -> bool:
        """Put a version that no reader takes for a table, without these files. False: another one stands there."""
        ...

    def settle(self, published: Published, files: Callable[[TopicCut], Sequence[TableFile]]) -> None:
        """What is due behind a complete version, to keep readers quick. `files`: all that there are at a cut."""
        ...
