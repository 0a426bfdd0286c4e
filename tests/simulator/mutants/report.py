"""docs/MUTANTS.md: what found each bug, after how many seeds, and whether that needed a fault.

The page is made of its rows: a hunt of some bugs replaces their rows and leaves the others, and the head
counts them all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from zlib import crc32

from tests.simulator.mutants.hunting import CALM_RUNS, Hunt
from tests.simulator.mutants.marks import MARKED, marked_sections
from tests.simulator.mutants.mutation import ROOT, Mutant

PAGE = ROOT / "docs" / "MUTANTS.md"
NOT_FOUND = "**not found**"
NEEDED = "nothing"
_WORDS = ("bug", "▲", "what the code does then", "tier")
IN_MAKE_TEST = (
    "no-duplicate-look-up",
    "undecided-files-are-live",
)
"""The mutants that every run of `make test` finds again: one at a seam, one in text."""
SHARES = {"simulator": 4, "protocol": 3, "damage": 1}
"""The shards that find the other mutants, and how many eighths of them each."""
_COLUMNS = (
    *_WORDS,
    "found by",
    "seeds",
    "faults",
    "without faults",
    "code",
    "finding",
)

_HEAD = """\
# Mutants

What is the simulator's silence worth? Each row is a deliberate bug of a line or two in the shipping code, hunted with
seed after seed until a run has a finding. Where the code has a function, method or constant for what the bug breaks,
that is replaced; else lines of the source are changed as it is imported (`tests/simulator/mutants/mutation.py`).
`python -m tests.simulator.mutants.check` says within two seconds which bugs no longer fit the code. A mark (▲) says
that the bug takes away a rule that [PROTOCOL.md](PROTOCOL.md) marks, with the section and our name of the rule: one
that a model checker or a review broke a version without. `make test` fails where a marked rule has no bug
(`tests/simulator/test_mutants.py`).

- *tier* says which tests find the bug again: "`make test`", or the shard. They begin with the run in *found by*, and
  try other seeds if the code has changed since.
- *found by* is the workload and the seed, *seeds* how many runs with faults that took, under the bug's workloads in
  turn; `python -m tests.simulator.mutants --recorded --name NAME` shows it again.
- *faults* are the kinds that this very run injected ([what each does](SIMULATOR.md#what-can-go-wrong)). Which of them
  mattered, `python -m tests.simulator shrink` can tell.
- *without faults* says whether one was needed: the first of {calm} runs without any fault, death or wrong clock
  that has a finding too, or "{needed}" where none has. What a workload does by itself stays: owners that overlap,
  clients that sleep, forks, requests sent twice.
- *code* is the commit that the row was counted at, `+` with changes on top; *finding* begins the run's first one.

Written by `make mutants ARGS=--write` (with `--name NAME`: that row; with `--missing`: those that have none).
{found} of {all} found, by {runs:,} runs; {needed_count} of them by no run without faults.
{marked} take a marked rule away, of which there are {rules}.

"""


def write_page(
    mutants: Sequence[Mutant], hunts: Mapping[str, Hunt], *, code: str, page: Path = PAGE
) -> list[str]:
    """Write the rows of these hunts, in the catalogue's order and words. Returns the names that have no row
    yet."""
    counted = {name: row[len(_WORDS) :] for name, row in read_rows(page).items()}
    counted |= {name: _counted(hunt, code) for name, hunt in hunts.items()}
    rows = [(*words(mutant), *counted[mutant.name]) for mutant in mutants if mutant.name in counted]
    page.write_text(render(rows), encoding="utf-8")
    return [mutant.name for mutant in mutants if mutant.name not in counted]


def render(rows: Sequence[Sequence[str]]) -> str:
    """The page with these rows."""
    head = _HEAD.format(
        calm=CALM_RUNS,
        marked=sum(row[1] != "-" for row in rows),
        rules=len(MARKED),
        needed=NEEDED,
        found=sum(row[4] != NOT_FOUND for row in rows),
        all=len(rows),
        runs=sum(int(row[5]) for row in rows),
        needed_count=sum(row[7] == NEEDED for row in rows),
    )
    table = [_COLUMNS, ("---",) * len(_COLUMNS), *rows]
    return head + "".join(f"| {' | '.join(row)} |\n" for row in table)


def read_rows(page: Path = PAGE) -> dict[str, tuple[str, ...]]:
    """The rows on the page, by the bug's name."""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [tuple(line.removeprefix("| ").removesuffix(" |").split(" | ")) for line in lines]
    return {row[0]: row for row in cells if len(row) == len(_COLUMNS) and row != _COLUMNS and row[0] != "---"}


def words(mutant: Mutant) -> tuple[str, ...]:
    """The beginning of its row, from the catalogue."""
    marked = f"§{marked_sections()[mutant.marked]} {mutant.marked}" if mutant.marked else "-"
    shard = shard_of(mutant.name)
    return (mutant.name, marked, mutant.breaks, "`make test`" if shard is None else f"shard `{shard}`")


def shard_of(name: str) -> str | None:
    """The shard that finds a mutant again, or None for `make test`. It goes by the name, so another mutant moves none."""
    if name in IN_MAKE_TEST:
        return None
    eighths = [shard for shard, share in SHARES.items() for _ in range(share)]
    return eighths[crc32(name.encode()) % len(eighths)]


def recorded_run(row: Sequence[str]) -> tuple[str, int]:
    """The workload and the seed that found a mutant, from its row."""
    workload, _, seed = row[len(_WORDS)].partition(" ")
    return workload, int(seed)


def _counted(hunt: Hunt, code: str) -> tuple[str, ...]:
    if not hunt.found:
        return (NOT_FOUND, str(hunt.runs), "-", "-", code, "-")
    faults = ", ".join(sorted(hunt.faults)) or "-"
    return (
        f"{hunt.workload} {hunt.seed}",
        str(hunt.runs),
        faults,
        hunt.calm or NEEDED,
        code,
        shortened(hunt.finding),
    )


def shortened(finding: str) -> str:
    """The beginning of a finding, short enough for a cell of a table."""
    lines = finding.strip().splitlines()
    if len(lines) > 1:  # who failed, and the end of the traceback
        finding = f"{lines[0].partition('failed:')[0]}failed: {lines[-1]}"
    text = re.sub(r"\s+", " ", finding).replace("|", "/").replace("`", "'")
    return text if len(text) <= 110 else f"{text[:107]}..."


def dump(hunts: Sequence[Hunt]) -> str:
    """The hunts as JSON."""
    return json.dumps([asdict(hunt) for hunt in hunts], indent=1)
