"""The kinds of damage that are tried, each with the codes that it must lead to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from tests.suite.tiers import in_shard
from tests.verify.story import Story

Damage = Callable[[Story], str]  # does it, and returns the key that must be named
Kind = tuple[str, Damage, set[str]]
KINDS: list[Kind] = []


def damage(*codes: str) -> Callable[[Damage], Damage]:
    """Register a kind of damage with the codes that it must lead to, and no others."""

    def register(function: Damage) -> Damage:
        KINDS.append((function.__name__, function, set(codes)))
        return function

    return register


def every_kind() -> list[Any]:
    """Parameters (damage, codes), one for each kind: an audit takes a tenth of a second."""
    return [pytest.param(do, codes, id=name) for name, do, codes in KINDS]


def one_per_code(kinds: Sequence[Kind]) -> list[Any]:
    """Parameters (damage, codes) of which `make test` tries the first kind of each code, and the shard all."""
    return _sampled(kinds, lambda codes: codes)


def one_per_family(kinds: Sequence[Kind] = KINDS) -> list[Any]:
    """Parameters (damage, codes) of which `make test` tries one kind of each family, and the shard all.

    A family is the codes with the same first word: all codes about entries, about snapshots, or about data
    files.
    """
    return _sampled(kinds, lambda codes: {code.partition("-")[0] for code in codes})


def some_families(kinds: Sequence[Kind] = KINDS) -> list[Any]:
    """Like `one_per_family`, for every third family only: for tests of how an audit is made, not of what it
    finds."""
    families = [param for param in one_per_family(kinds) if not param.marks]
    kept = [param.id for param in families[::3]]
    return in_shard("damage", [pytest.param(do, codes, id=name) for name, do, codes in kinds], keep=kept)


def _sampled(kinds: Sequence[Kind], names_of: Callable[[set[str]], Iterable[str]]) -> list[Any]:
    seen: set[str] = set()
    kept = []
    for name, _, codes in kinds:
        new = {*names_of(codes)} - seen
        seen |= new
        if new:
            kept.append(name)
    return in_shard("damage", [pytest.param(do, codes, id=name) for name, do, codes in kinds], keep=kept)
