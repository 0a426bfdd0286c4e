"""The kinds of damage that are tried, each with the codes that must come of it."""

from __future__ import annotations

from collections.abc import Callable

from tests.verify.story import Story

Damage = Callable[[Story], str]  # does it, and returns the key that must be named
KINDS: list[tuple[str, Damage, set[str]]] = []


def damage(*codes: str) -> Callable[[Damage], Damage]:
    """Register a kind of damage with the codes that must come of it, and no others."""

    def register(function: Damage) -> Damage:
        KINDS.append((function.__name__, function, set(codes)))
        return function

    return register
