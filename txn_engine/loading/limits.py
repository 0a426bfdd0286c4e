"""How many rows may become dead letters before a run fails."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.reasons import Reason

_TEXT = re.compile(r"([0-9]{1,18})|([0-9]{1,3}(?:\.[0-9]{1,9})?)%")


@dataclass(frozen=True, slots=True)
class DeadLetterLimit:
    """A count, or a share of all rows of the run; without either there is none."""

    count: int | None = None
    share: Fraction | None = None

    @classmethod
    def of(cls, given: int | str | None) -> Self:
        """As people write it: 100, "100", "1%", "0.5%". `InvalidRequestError` for anything else."""
        if given is None:
            return cls()
        found = None if isinstance(given, bool) else _TEXT.fullmatch(str(given).strip())
        share = None if found is None or found[2] is None else Fraction(found[2]) / 100
        if found is None or (share is not None and share > 1):
            raise InvalidRequestError(
                f"max_dead_letters {given!r}",
                actor="load",
                expected="a count, as 100, or a share of up to 100%, as 0.5%",
                reason=Reason.BAD_ARGUMENT,
            )
        return cls(count=None if share is not None else int(found[1]), share=share)

    def is_above(self, dead: int, rows: int) -> bool:
        """Whether so many of all rows are too many."""
        if self.count is not None:
            return dead > self.count
        return self.share is not None and dead > self.share * rows

    def check_count(self, dead: int, first: InvalidRecordError) -> None:
        """Raise `InvalidRecordError` where so many are too many, whatever is still to come."""
        if self.count is not None and dead > self.count:
            raise _too_many(f"more than {self.count:,} rows", f"at most {self.count:,}", first)

    def check_all(self, dead: int, rows: int, first: InvalidRecordError | None) -> None:
        """Raise `InvalidRecordError` where so many of all rows are too many."""
        if first is None:
            return
        self.check_count(dead, first)
        if self.share is not None and self.is_above(dead, rows):
            percent = f"{float(self.share * 100):g}%"
            raise _too_many(f"{dead:,} of {rows:,} rows", f"at most {percent}", first)


def _too_many(rows: str, allowed: str, first: InvalidRecordError) -> InvalidRecordError:
    return InvalidRecordError(
        f"{rows} cannot be used; the first: {first.seen}",
        actor="load",
        place=first.place,
        expected=f"{allowed} (max_dead_letters)",
        action="look at the rows, mend them, or allow more",
        reason=Reason.TOO_MANY_BAD_ROWS,
        value=first.value,
    )
