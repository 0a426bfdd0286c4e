"""A store whose process dies, or waits, at a given write, as an engine sees it that a task has opened."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from storage import ObjectStore
from tests.support.faults import FaultyStore, Operation
from tests.support.kills import WRITES, Death


def dies_once(monkeypatch: pytest.MonkeyPatch, death: Death) -> None:
    """Let the engines that are opened from here on meet this death, once."""
    _open_all(monkeypatch, death.of)


def holds_up_once(monkeypatch: pytest.MonkeyPatch, at: int, meanwhile: Callable[[], None]) -> list[str]:
    """Let write number `at` (from 0, counted over all engines) wait until `meanwhile` is done. The list has
    its key then. The engines that `meanwhile` uses have to be open already."""
    keys: list[str] = []
    lock = threading.Lock()
    writes = 0

    def hold_up(operation: Operation, key: str, _number: int) -> None:
        nonlocal writes
        with lock:
            if keys or operation not in WRITES:
                return
            writes += 1
            if writes <= at:
                return
            keys.append(key)
        meanwhile()

    _open_all(monkeypatch, lambda store: FaultyStore(store, decide=hold_up))
    return keys


def _open_all(monkeypatch: pytest.MonkeyPatch, faulty: Callable[[ObjectStore], ObjectStore]) -> None:
    """Give each engine that opens a store from here on the faulty store instead."""
    import txn_engine.engine as engines

    open_store: Callable[..., ObjectStore] = engines.open_store
    monkeypatch.setattr(engines, "open_store", lambda *args, **kwargs: faulty(open_store(*args, **kwargs)))
