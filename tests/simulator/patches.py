"""The only seam that arguments cannot reach: locks, futures' waits and the process id become the
simulation's.

While `simulated()` holds, `threading` means the primitives of `kernel` in the modules below (and in
`concurrent.futures._base`, from which `Future` takes its locks), and `os.getpid()` returns the simulated
process. What the code does with them is unchanged. The decoding of the same bytes is remembered, because it
is a pure function, and twenty engines that replay one log would spend most of a run in it.
"""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import _base
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

from storage import open_parquet
from tests.simulator.kernel import Condition, Event, Lock, RLock, current_task
from txn_engine.backup import restoring
from txn_engine.log.entry_format import decode_entry
from txn_engine.log.snapshot_format import decode_snapshot

_PACKAGES = ("backup", "coordinator", "consumer", "log", "maintain", "producer", "protocol")


class _Threading(ModuleType):
    """`threading` with the simulated primitives. Everything else is the real one's."""

    Lock, RLock, Condition, Event = Lock, RLock, Condition, Event

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


class _Os(ModuleType):
    """`os` whose `getpid` returns the simulated process."""

    @staticmethod
    def getpid() -> int:
        task = current_task()
        return os.getpid() if task is None else task.process.pid

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def engine_modules() -> list[ModuleType]:
    """The engine's modules that a simulation runs. They are imported now if they were not."""
    for name in _PACKAGES:
        try:
            package = importlib.import_module(f"txn_engine.{name}")
        except ModuleNotFoundError:
            continue
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    wanted = tuple(f"txn_engine.{name}" for name in _PACKAGES)
    return [
        module
        for name, module in sorted(sys.modules.items())
        if (module is not None and name.startswith(wanted)) or name == "txn_engine.engine"
    ]


_REMEMBERED_MAX = 20_000


def _remembering(decode: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[Any, Any] = {}

    def remembered(first: Any, *more: Any, **named: Any) -> Any:
        name = (
            first if isinstance(first, bytes) else id(first),
            *more,
            *(tuple(value) if isinstance(value, list) else value for value in named.values()),
        )
        found = known.get(name)
        if found is None:
            found = decode(first, *more, **named)
            if len(known) >= _REMEMBERED_MAX:
                known.clear()
            known[name] = found
        return found

    return remembered


@contextmanager
def simulated() -> Iterator[None]:
    """Make this (real) process a simulation while the block runs. It logs nothing."""
    fake_threading, fake_os = _Threading("threading"), _Os("os")
    changes: list[tuple[Any, str, Any]] = [(_base, "threading", fake_threading)]
    for module in engine_modules():
        if getattr(module, "threading", None) is threading:
            changes.append((module, "threading", fake_threading))
        if getattr(module, "os", None) is os:
            changes.append((module, "os", fake_os))
    remembering = {decode: _remembering(decode) for decode in (decode_entry, decode_snapshot, open_parquet)}
    for module in engine_modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, FunctionType) and value in remembering:
                changes.append((module, name, remembering[value]))
    changes.append((restoring, "prove", lambda _: {"simulated": True}))  # that trial takes threads of its own
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        for owner, name, new in changes:
            setattr(owner, name, new)
        yield
    finally:
        logging.disable(disabled)
        for owner, name, old in before:
            setattr(owner, name, old)
