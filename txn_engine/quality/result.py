"""What a run of the suite says: one result a check, and the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One named check. An errored check could not be made and is never a success.

    `examples` are up to 20 rows that broke it; `detail` is one line: the first of them, or why the check errored.
    """

    name: str
    description: str
    success: bool
    observed: str
    expected: str
    errored: bool
    detail: str = ""
    section: str = ""
    meaning: str = ""
    action: str = ""
    examples: tuple[Mapping[str, str], ...] = ()

    @property
    def status(self) -> str:
        """`passed`, `failed` (the data is wrong) or `errored` (the check could not be made)."""
        if self.errored:
            return "errored"
        return "passed" if self.success else "failed"


@dataclass(frozen=True, slots=True)
class QualityResult:
    """All checks of one run; a success only when every one was made and passed.

    `report` is a page that opens without a network; `json` holds Great Expectations' own results beside ours.
    """

    success: bool
    checks: tuple[CheckResult, ...]
    report: Path
    json: Path
    statistics: Mapping[str, int | float | str] = field(default_factory=dict)

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that found the data wrong."""
        return tuple(check for check in self.checks if check.status == "failed")

    @property
    def errored(self) -> tuple[CheckResult, ...]:
        """The checks that could not be made."""
        return tuple(check for check in self.checks if check.status == "errored")
