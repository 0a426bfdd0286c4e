"""The report of a run: the figures, and a difference as two columns."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

from tests.differential.comparison import Comparison
from tests.differential.reviewed import REVIEWED

MOST_CUT = 0.02
_COLUMN = 44


class Tally:
    """The figures of a run."""

    def __init__(self) -> None:
        self.programs: Counter[str] = Counter()
        self.steps = 0
        self.cut = 0
        self.calls: Counter[str] = Counter()
        self.agreeing_errors: Counter[str] = Counter()
        self.reviewed: Counter[str] = Counter()
        self.differing: list[Comparison] = []
        self._lock = threading.Lock()

    def add(self, comparison: Comparison) -> None:
        """Count one program."""
        with self._lock:
            self.programs[comparison.program.kind] += 1
            self.steps += len(comparison.lines)
            self.cut += comparison.cut
            self.calls.update(type(line.step).__name__ for line in comparison.lines)
            for line in comparison.lines:
                if line.ours == line.kafka and line.ours.code:
                    self.agreeing_errors[str(line.ours)] += 1
                elif line.reviewed and line.ours != line.kafka:
                    self.reviewed[line.reviewed.id] += 1
            if not comparison.agrees:
                self.differing.append(comparison)

    @property
    def unused(self) -> list[str]:
        """Reviewed differences that no program met, without those that depend on chance."""
        return [each.id for each in REVIEWED if each.id not in self.reviewed and not each.by_chance]

    @property
    def share_cut(self) -> float:
        """The share of the steps that were not taken because an actor had to begin again."""
        return self.cut / max(self.steps + self.cut, 1)

    @property
    def is_cut_too_much(self) -> bool:
        """Whether reviewed differences cut off too much of the programs."""
        return self.share_cut > MOST_CUT

    def figures(self) -> dict[str, object]:
        """The figures for the record of the run."""
        return {
            "programs compared": self.programs.total(),
            "programs by kind": dict(sorted(self.programs.items())),
            "calls compared": self.steps,
            "calls by kind": dict(sorted(self.calls.items())),
            "steps cut behind a reviewed difference": self.cut,
            "errors that agree": self.agreeing_errors.total(),
            "differences that are reviewed": dict(self.reviewed.most_common()),
            "programs that differ otherwise": len(self.differing),
        }

    def lines(self) -> Iterator[str]:
        """The figures as text."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.programs.items()))
        yield f"programs: {self.programs.total()} ({kinds}); calls compared: {self.steps}"
        yield f"calls by kind: {_counted(self.calls)}"
        yield f"steps cut behind a reviewed difference: {self.cut} ({self.share_cut:.2%})"
        yield f"errors that agree: {_counted(self.agreeing_errors)}"
        yield f"differences that are reviewed: {_counted(self.reviewed)}"
        yield f"differences that are not: {len(self.differing)}"


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counter.most_common()) or "none"


def trace(comparison: Comparison) -> str:
    """A program as both sides took it, with the step, our outcome and Kafka's."""
    lines = [
        f"seed {comparison.program.seed} ({comparison.program.kind}), preset {comparison.program.preset}"
    ]
    for number, line in enumerate(comparison.lines):
        mark = " " if line.ours == line.kafka else "~" if line.reviewed else "!"
        lines.append(f"{mark}{number:3} {line.step}")
        if line.ours == line.kafka and len(str(line.ours)) < 2 * _COLUMN:
            lines.append(f"       both  {line.ours}")
        elif line.ours == line.kafka:
            lines.append("       both  the same")
        else:
            lines += [f"       ours  {line.ours}", f"      kafka  {line.kafka}"]
    return "\n".join(lines)
