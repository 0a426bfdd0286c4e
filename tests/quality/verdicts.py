"""The results of a declaration's checks, without Great Expectations and without a report.

This costs half as much as a whole proof. `test_suite.py` and `test_at_cut.py` prove that a whole proof gives
the same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from txn_engine import Cut, Engine
from txn_engine.quality import Declaration
from txn_engine.quality.counting import count
from txn_engine.quality.evidence import EvidenceMissingError
from txn_engine.quality.gather import gather
from txn_engine.quality.history import not_applicable
from txn_engine.quality.in_process import InProcess
from txn_engine.quality.records import Reductions
from txn_engine.quality.standpoint import AtCut, fresh_cut


@dataclass(frozen=True, slots=True)
class Verdict:
    """The checks that did not pass: those that found a fault, those that lack evidence, and those that do not
    apply."""

    failed: frozenset[str]
    errored: Mapping[str, str]
    not_applicable: frozenset[str]

    @property
    def not_passed(self) -> dict[str, str]:
        """The status of each check that did not pass."""
        return {
            **dict.fromkeys(self.failed, "failed"),
            **dict.fromkeys(self.errored, "errored"),
            **dict.fromkeys(self.not_applicable, "not_applicable"),
        }

    @property
    def success(self) -> bool:
        """Whether nothing is wrong and no result is unknown."""
        return not self.failed and not self.errored


def verdict_of(
    engine: Engine, check: Declaration, *, input_file: Path | None = None, cut: Cut | None = None
) -> Verdict:
    """Gather the evidence, of now or of a cut, and count what each check judges."""
    with InProcess(engine.store) as reducer:
        evidence = gather(
            engine,
            check,
            input_file=input_file,
            reducer=reducer,
            progress=lambda _: None,
            at=fresh_cut(engine, check) if cut is None else AtCut(engine, cut, check),
        )
        counted = count(evidence, Reductions(evidence, reducer))
        left_out = frozenset(not_applicable(evidence, counted))
    made = {name: found for name, found in counted.items() if name not in left_out}
    return Verdict(
        frozenset(
            name
            for name, found in made.items()
            if not isinstance(found, EvidenceMissingError) and found.wrong
        ),
        {name: str(found) for name, found in made.items() if isinstance(found, EvidenceMissingError)},
        left_out,
    )
