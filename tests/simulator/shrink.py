"""Turn a failing run into a short one: remove faults and clients as long as the same kind of finding
stays."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from tests.simulator.knobs import Knobs
from tests.simulator.runner import RunResult, run

Say = Callable[[str], None]


def kind_of(finding: str) -> str:
    """The kind of a finding: its first words, and the auditor's code."""
    head, _, rest = finding.partition(":")
    return f"{head}: {rest.split(':')[0].strip()}" if head == "audit" else head


def shrink(
    failing: RunResult, *, seconds_max: float = 180.0, runs_max: int = 1_000, say: Say = lambda _: None
) -> RunResult:
    """The shortest run found, within these limits, that shows a finding of the same kind as the first one."""
    search = _Search(failing, seconds_max, runs_max, say)
    search.fewer_transactions()
    search.fewer_clients()
    search.fewer_sites()
    for change in (
        {"skewed_clocks": False},
        {"partitions": 1},
        {"coordinator_partitions": 1},
        {"max_lives": 1},
    ):
        search.accepts(**change)
    search.fewer_transactions()
    search.fewer_clients()
    search.fewer_sites()
    return search.best


class _Search:
    """The best run so far, and the remaining budget."""

    def __init__(self, failing: RunResult, seconds_max: float, runs_max: int, say: Say) -> None:
        self.best = failing
        self._kind = kind_of(failing.findings[0])
        self._until = time.monotonic() + seconds_max
        self._runs_left = runs_max
        self._say = say

    def accepts(self, **changes: object) -> bool:
        """Whether the run with these knobs changed still fails in the same way. If so, it is the best."""
        knobs = replace(self.best.knobs, **changes)  # type: ignore[arg-type]
        if knobs == self.best.knobs or self.is_over:
            return False
        self._runs_left -= 1
        result = run(self.best.workload, self.best.seed, knobs)
        if not any(kind_of(finding) == self._kind for finding in result.findings):
            return False
        self.best = result
        self._say(f"{len(result.fault_sites)} faults, {result.operations} operations, {_shape(result.knobs)}")
        return True

    @property
    def is_over(self) -> bool:
        """Whether the time or the runs are used up."""
        return self._runs_left <= 0 or time.monotonic() > self._until

    def fewer_transactions(self) -> None:
        """Try half as many transactions again and again, then one less."""
        while (count := self.best.knobs.transactions) > 1:
            if not (self.accepts(transactions=count // 2) or self.accepts(transactions=count - 1)):
                return

    def fewer_clients(self) -> None:
        """Remove one client after the other."""
        for name in self.best.clients:
            self.accepts(without_clients=self.best.knobs.without_clients | {name})

    def fewer_sites(self) -> None:
        """Reduce the sites of injected faults by delta debugging."""
        sites = sorted(self.best.fault_sites)
        if not sites or self.accepts(only_sites=frozenset()):
            return
        self.accepts(only_sites=frozenset(sites))
        parts = 2
        while len(sites) > 1 and not self.is_over:
            size = max(len(sites) // parts, 1)
            chunks = [sites[start : start + size] for start in range(0, len(sites), size)]
            if any(
                self.accepts(only_sites=frozenset(site for site in sites if site not in chunk))
                for chunk in chunks
            ):
                sites = sorted(self.best.fault_sites)
                parts = max(parts - 1, 2)
            elif size == 1:
                return
            else:
                parts = min(parts * 2, len(sites))


def _shape(knobs: Knobs) -> str:
    left_out = f", without {', '.join(sorted(knobs.without_clients))}" if knobs.without_clients else ""
    return f"{knobs.transactions} transactions on {knobs.partitions} partitions{left_out}"
