"""What a run of the suite says: one result a check, and the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from txn_engine.quality.proof import Proof
    from txn_engine.types import TopicPartition

Example = Mapping[str, str]
"""One thing that was found wrong: where it is, then its values, which only the guarded report shows."""

EXAMPLES_MAX = 20

Status = Literal["passed", "failed", "errored", "not_applicable", "warning"]
"""`failed`: the data is wrong. `errored`: the check could not be made. `not_applicable`: what it compares is gone for
good by the topics' own rules, and that is no fault.
"""


@dataclass(frozen=True, slots=True)
class Account:
    """Input = output + dead letters, in numbers."""

    rows: int
    records: int
    dead_letters: int

    def __str__(self) -> str:
        return f"{self.rows:,} in, {self.records:,} out, {self.dead_letters:,} dead letters"


@dataclass(frozen=True, slots=True)
class Counted:
    """What a check came to, before it is judged: of `total` things that were looked at, `wrong` are."""

    total: int
    wrong: int
    examples: tuple[Example, ...] = ()
    anomalies: tuple[str, ...] | None = (
        None  # where that is told by what was found, and not by the check alone
    )
    account: Account | None = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One named check.

    Of `total` things that were looked at `wrong` are. `examples` are up to 20 rows that broke it, with their values:
    for the report, which is guarded. `detail` is one line for logs and alerts, which quotes no record and no file:
    where the first of them is, or why the check could not be made or does not apply. `anomalies`: by their names
    (`txn_engine.quality.anomalies`), those that it may be a sign of; of a check that failed. `account`: the three
    numbers of input = output + dead letters.
    """

    name: str
    description: str
    status: Status
    observed: str
    expected: str
    total: int = 0
    wrong: int = 0
    detail: str = ""
    section: str = ""
    meaning: str = ""
    action: str = ""
    examples: tuple[Mapping[str, str], ...] = ()
    anomalies: tuple[str, ...] = ()
    account: Account | None = None


@dataclass(frozen=True, slots=True)
class QualityResult:
    """All checks of one run; a success only when every one that applies was made and passed.

    `report` is a page that opens without a network; `json` holds Great Expectations' own results beside ours. `proof`
    is what was kept on the store; None where nothing was. `cut`: as of which; None for a cut that the run made for
    itself, of which `cut_offsets` are the offsets.
    """

    success: bool
    checks: tuple[CheckResult, ...]
    report: Path
    json: Path
    statistics: Mapping[str, int | float | str] = field(default_factory=dict)
    run_name: str = ""
    proof: Proof | None = None
    cut: int | None = None
    cut_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def cut_named(self) -> int | dict[str, int] | None:
        """The cut as JSON names it: by its number, or by its offsets where the run made it for itself. None where
        damage let none be made.
        """
        if self.cut is not None:
            return self.cut
        return {str(place): offset for place, offset in self.cut_offsets.items()} or None

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that found the data wrong."""
        return self._with("failed")

    @property
    def errored(self) -> tuple[CheckResult, ...]:
        """The checks that could not be made."""
        return self._with("errored")

    @property
    def not_applicable(self) -> tuple[CheckResult, ...]:
        """The checks whose records are gone, by retention or compaction by key."""
        return self._with("not_applicable")

    @property
    def anomalies(self) -> tuple[str, ...]:
        """The names of the anomalies that failed checks are signs of."""
        return tuple(dict.fromkeys(name for check in self.failed for name in check.anomalies))

    def _with(self, status: Status) -> tuple[CheckResult, ...]:
        return tuple(check for check in self.checks if check.status == status)
