"""What a look at a place of backups has found."""

from __future__ import annotations

from dataclasses import dataclass, field

from txn_engine.backup.manifest import FIRST, Manifest, Removal
from txn_engine.errors import TxnEngineError


@dataclass(slots=True)
class Held:
    """What is in a place. end: the next number. removal: the last one. damaged: by number, what may be a backup or a
    removal. stray: by number, objects that no program of ours has put. gaps: numbers
    that a listing leaves out. has_removed: there is one removed above the last
    removal, or among those that it kept.
    """

    end: int
    stray: dict[int, TxnEngineError] = field(default_factory=dict)
    gaps: list[range] = field(default_factory=list)
    removal: Removal | None = None
    backups: dict[int, Manifest] = field(default_factory=dict)
    damaged: dict[int, TxnEngineError] = field(default_factory=dict)
    has_removed: bool = False

    @property
    def newest(self) -> Manifest | None:
        """The newest backup, where no damaged object is newer: that may be a removal, which left no backup."""
        number = max(self.backups, default=-1)
        return None if max(self.damaged, default=-1) > number else self.backups.get(number)

    @property
    def of_earlier_cuts(self) -> int:
        """What stands below this number is of an earlier cut than a sound backup. So it is not the newest, damaged or
        not.
        """
        return max([0, *(each.cut_after for each in self.backups.values() if each.cut_after is not None)])

    @property
    def last_removal(self) -> int:
        """The number of the last removal, as sound objects tell; `FIRST` where there was none."""
        told = [each.generation for each in self.backups.values() if each.generation is not None]
        return max([FIRST, *told, *([self.removal.number] if self.removal else [])])

    @property
    def generation(self) -> int:
        """The folder of what is put from now on: no removal so far deletes from there."""
        return max([self.last_removal, *([] if self.newest else self.damaged)])

    @property
    def unreadable(self) -> list[TxnEngineError]:
        """One error for each number whose object cannot be read, ascending."""
        return [error for _, error in sorted((self.damaged | self.stray).items())]
