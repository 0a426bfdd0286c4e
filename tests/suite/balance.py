"""The balance decides which worker of pytest-xdist runs which tests. The longest work comes first, and what
is slow to start runs in few workers.

A unit of work is a run of neighbouring tests of one module that took about `UNIT_S` seconds together. Tests
that are marked `together(NAME)` are one unit, because they share something that is slow to set up. A worker
that has started a JVM for Spark, or imported Airflow, goes on with such units while there are any. The others
take them only when nothing else is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.suite import durations
from tests.suite.durations import Durations, module_of
from tests.support.servers import minio_binary

UNIT_S = 20.0
TOGETHER = "together:"
SLOW_TO_START = ("spark", "airflow")
"""In this order: a session of Spark takes longest to start."""


def units_of(collection: Sequence[str], known: Durations) -> dict[str, str]:
    """The name of each test's unit: its module's path and a number."""
    units: dict[str, str] = {}
    filled: dict[str, tuple[int, float]] = {}
    for test in collection:
        module, seconds = module_of(test), known.of(test)
        if group := next((need for need in known.needs_of([test]) if need.startswith(TOGETHER)), None):
            units[test] = group
            continue
        number, sum_s = filled.get(module, (0, 0.0))
        if sum_s and sum_s + seconds > UNIT_S:
            number, sum_s = number + 1, 0.0
        filled[module] = number, sum_s + seconds
        units[test] = f"{module}#{number}"
    return units


class BalancedScheduling(LoadScopeScheduling):
    """Units of neighbouring tests, the longest first."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._known = durations.read()
        self._units: dict[str, str] = {}
        self._started: dict[WorkerController, set[str]] = {}

    def schedule(self) -> None:
        """Cut the collection into units before it is handed out."""
        if not self._units and self.collection_is_completed:
            self._units = units_of(next(iter(self.registered_collections.values())), self._known)
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._units.get(nodeid, module_of(nodeid))

    def _assign_work_unit(self, node: WorkerController) -> None:
        started = self._started.setdefault(node, set())
        unit = self._next_for(node, started)
        started |= self._known.needs_of(self.workqueue[unit]) & {*SLOW_TO_START}
        self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)

    def _next_for(self, node: WorkerController, started: set[str]) -> str:
        """The longest unit that needs what the worker has started.

        A worker that has started nothing takes one that needs what no other worker has started. Otherwise it
        takes one that needs nothing slow, or else any.
        """
        elsewhere = {need for other, needs in self._started.items() if other is not node for need in needs}
        needs = {
            unit: self._known.needs_of(tests) & {*SLOW_TO_START} for unit, tests in self.workqueue.items()
        }
        choices = [
            [unit for unit in needs if need in needs[unit]] for need in SLOW_TO_START if need in started
        ]
        if not started:
            choices += [
                [unit for unit in needs if need in needs[unit]]
                for need in SLOW_TO_START
                if need not in elsewhere
            ]
        choices += [[unit for unit in needs if not needs[unit]], list(needs)]
        if minio_binary() is None:  # it is being built beside the tests
            choices = [[unit for unit in units if not self._needs_minio(unit)] for units in choices] + choices
        found = next(units for units in choices if units)
        return max(found, key=lambda unit: sum(map(self._known.of, self.workqueue[unit])))

    def _needs_minio(self, unit: str) -> bool:
        return "minio" in self._known.needs_of(self.workqueue[unit])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> BalancedScheduling:
    """Replace the schedulers of `--dist`."""
    return BalancedScheduling(config, log)
