"""The files of a table, and what becomes of them in one partition between two cuts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from txn_engine.errors import ConcurrentTransactionsError
from txn_engine.log.cut_format import LogCut
from txn_engine.protocol.partition import LogFile, PartitionState

NOWHERE: Final = LogCut(0, 0, 0)
"""Where a cut goes through a partition that it does not have."""
ALIVE: Final = -1


class RewriteKind(StrEnum):
    """What a rewrite did to the records of the files that it replaced.

    MERGE: they are all there, at their offsets. COMPACTION: some may be left out, since their keys have later ones.
    RETENTION: they are gone.
    """

    MERGE = "merge"
    COMPACTION = "compaction"
    RETENTION = "retention"


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file in its partition. `died_ms`: when it was replaced, by the log's time, or `ALIVE`."""

    partition: int
    log_file: LogFile
    died_ms: int = ALIVE

    @property
    def path(self) -> str:
        """Below the folder of the topic's incarnation, which is the tables' root."""
        return table_path(self.partition, self.log_file.file.data_path)


def table_path(partition: int, data_path: str) -> str:
    """The path of a data file below the tables' root."""
    return f"{partition}/{data_path}"


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Files of the earlier cut that are not in the later one, and what took their place.

    passing: files committed since the earlier cut, with new records, that were replaced together with these; they are
    visible at neither cut. hides: there may have been others, which the log has forgotten.
    """

    kind: RewriteKind
    removed: tuple[str, ...]
    added: tuple[TableFile, ...]
    passing: tuple[TableFile, ...] = ()
    hides: bool = False


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """One partition between two cuts. `appended`: files with new records alone, as they stand at the later one."""

    appended: tuple[TableFile, ...] = ()
    rewritten: tuple[Rewritten, ...] = ()


def whole_below(files: Iterable[TableFile], at: LogCut, number: int) -> list[TableFile]:
    """Those below the offset of cut `number`, in offset order. Raises `ConcurrentTransactionsError` where one reaches
    across it: a merge that came while the cut was lowered. Tables have files as a whole.
    """
    below = sorted((each for each in files if each.log_file.base_offset < at.offset), key=_base)
    for each in below:
        if each.log_file.last_offset >= at.offset:
            raise ConcurrentTransactionsError(
                f"cut {number} goes through the middle of a merged file",
                place=each.path,
                expected=f"no file across offset {at.offset}: a table has files as a whole",
                action="run `txn-engine coordinator markers`, then publish at another cut",
            )
    return below


def _base(file: TableFile) -> int:
    return file.log_file.base_offset


def visible_files(partition: int, state: PartitionState, at: LogCut, number: int) -> list[TableFile]:
    """What is visible of a partition at a cut, by the state that it keeps."""
    return whole_below((TableFile(partition, file) for file in state.live.values()), at, number)
