"""The workloads by name.

Each is a module with `TOPICS` and `set_up(world)`. Some also have `shape(knobs)`, `heal(world)` (what an
operator does before the run is judged) and `check(world, final)` (rules of its own).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType, ModuleType

_NAMES = sorted(found.name for found in iter_modules(__path__) if found.name != "common")
WORKLOADS: Mapping[str, ModuleType] = MappingProxyType(
    {name: import_module(f"{__name__}.{name}") for name in _NAMES}
)
