"""The workloads by name.

Each is a module with `TOPICS` and `set_up(world)`; where it needs them also `shape(knobs)`, `heal(world)` (what an
operator does before the run is judged) and `check(world, final)` (rules of its own).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType

from tests.simulator.workloads import (
    bank,
    deadlines,
    fork,
    hanging,
    idempotent,
    late_end_txn,
    lists,
    pipeline,
    reload,
    remade,
    requests,
    resets,
    sweeps,
    two_owners,
    upkeep,
)

_MODULES = (
    bank,
    deadlines,
    fork,
    hanging,
    idempotent,
    late_end_txn,
    lists,
    pipeline,
    reload,
    remade,
    requests,
    resets,
    sweeps,
    two_owners,
    upkeep,
)
WORKLOADS: Mapping[str, ModuleType] = MappingProxyType(
    {module.__name__.rpartition(".")[2]: module for module in _MODULES}
)
