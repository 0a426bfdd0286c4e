"""Wrong arguments of every kind, for calls that have to look at all of them before they change anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from txn_engine import Engine
from txn_engine.errors import TxnEngineError

ODD: tuple[Any, ...] = (None, 5, 1.5, True, b"x", ["a"], {"a": 1}, ..., "", "\udcff", "a\nb")
"""Arguments of each kind; what a parameter takes is left out by `but`."""


def changes_nothing(engine: Engine, call: Callable[[], object]) -> None:
    """The call is refused in one line, and every object on the store is as it was."""
    before = {info.key: info.size for info in engine.store.list("")}
    with pytest.raises(TxnEngineError) as refused:
        call()
    assert {info.key: info.size for info in engine.store.list("")} == before
    assert "\n" not in str(refused.value)


def odd(*but: object) -> list[Any]:
    """The odd arguments, without those that are of the types that are taken, or are taken as they stand."""
    types = tuple(each for each in but if isinstance(each, type))
    values = [each for each in but if not isinstance(each, type)]
    return [each for each in ODD if type(each) not in types and each not in values]


def cases(**taken: tuple[object, ...]) -> list[Any]:
    """Each parameter with each odd argument."""
    return [
        pytest.param(name, value, id=f"{name}-{type(value).__name__}-{number}")
        for name, but in taken.items()
        for number, value in enumerate(odd(*but))
    ]
