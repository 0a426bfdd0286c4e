"""docs/MUTANTS.md: which bug was found by what, and after how many seeds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.simulator.mutants.hunting import Hunt
from tests.simulator.mutants.mutation import ROOT, Mutant

PAGE = ROOT / "docs" / "MUTANTS.md"

_HEAD = """\
# Mutants

What is the simulator's silence worth? Each row is a deliberate bug of a line or two, put into the shipping code as it is imported, and hunted with seed after seed until a run has a finding. A mark (▲)
with a section says that the bug takes away a rule that the design marks: one that a model checker or a review broke a version without. *Seeds* counts the runs that it took, under
the workloads in turn, from seed {first} on; the budget is {budget}. The last column begins the first finding of that run; `python -m tests.simulator.mutants --name NAME` shows it again.

Written by `make mutants ARGS=--write`: {found} of {all} found, by {runs:,} runs.

| bug | ▲ | what the code does then | found by | seeds | finding |
|---|---|---|---|---|---|
"""


def write_page(
    mutants: Sequence[Mutant], hunts: Mapping[str, Hunt], *, first: int, budget: int, page: Path = PAGE
) -> None:
    """Write the table, in the catalogue's order."""
    rows = [_row(mutant, hunts[mutant.name]) for mutant in mutants]
    head = _HEAD.format(
        first=first,
        budget=budget,
        found=sum(hunt.found for hunt in hunts.values()),
        all=len(mutants),
        runs=sum(hunt.runs for hunt in hunts.values()),
    )
    page.write_text(head + "".join(f"{row}\n" for row in rows), encoding="utf-8")


def _row(mutant: Mutant, hunt: Hunt) -> str:
    marked = f"§{mutant.marked}" if mutant.marked else ""
    if not hunt.found:
        return f"| {mutant.name} | {marked} | {mutant.breaks} | **not found** | {hunt.runs} | |"
    return (
        f"| {mutant.name} | {marked} | {mutant.breaks} | {hunt.workload} {hunt.seed} | {hunt.runs} |"
        f" {_short(hunt.finding)} |"
    )


def _short(finding: str) -> str:
    lines = finding.strip().splitlines()
    if len(lines) > 1:  # who failed, and the end of the traceback
        finding = f"{lines[0].partition('failed:')[0]}failed: {lines[-1]}"
    text = re.sub(r"\s+", " ", finding).replace("|", "/").replace("`", "'")
    return text if len(text) <= 110 else f"{text[:107]}..."


def dump(hunts: Sequence[Hunt]) -> str:
    """For machines."""
    fields = ("mutant", "workload", "seed", "runs", "seconds", "finding")
    return json.dumps([{name: getattr(hunt, name) for name in fields} for hunt in hunts], indent=1)
