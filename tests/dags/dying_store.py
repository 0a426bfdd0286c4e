"""A store whose process dies, or waits, at a given write, as an engine sees it that a task has opened."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from storage import ObjectStore, StorageError
from tests.support.faults import Fault, FaultyStore, Operation

WRITES = ("put_if_absent", "put", "delete")


class ProcessDiedError(BaseException):
    """Raised by every call from the write on at which the process died."""


class Death:
    """Write number `at` (from 0, counted over all engines) kills the engine that makes it, before or after it
    took effect."""

    def __init__(self, at: int, when: Fault) -> None:
        self._at, self._when = at, when
        self.happened = False
        self._writes = 0
        self._lock = threading.Lock()

    def of_an_engine(self) -> Callable[[Operation, str, int], Fault | None]:
        """The decision function of one engine's FaultyStore. Once the engine is dead, none of its calls gets
        through."""
        is_dead = False

        def decide(operation: Operation, _key: str, _number: int) -> Fault | None:
            nonlocal is_dead
            with self._lock:
                if is_dead:
                    return "before"
                if self.happened or operation not in WRITES:
                    return None
                self._writes += 1
                self.happened = is_dead = self._writes > self._at
                return self._when if is_dead else None

        return decide


def dies_once(monkeypatch: pytest.MonkeyPatch, death: Death) -> None:
    """Let the engines that are opened from here on meet this death, once."""
    _open_all(monkeypatch, lambda store: FaultyStore(store, decide=death.of_an_engine(), error=_died))


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


def _died(operation: Operation, key: str) -> StorageError:
    return ProcessDiedError(f"the process died: {operation} {key}")  # type: ignore[return-value]
