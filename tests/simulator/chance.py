"""Chance from the seed, of two kinds: drawn in turn, and drawn by name.

What is drawn by name (a fault at the 7th store operation of one process) does not depend on other draws, so
removing one fault or one client does not change the others. That is why a failing run can be shrunk.
"""

from __future__ import annotations

import random

import xxhash


class Chance:
    """All random numbers of one run."""

    def __init__(self, seed: int) -> None:
        self._hash_seed = seed & (2**64 - 1)
        self._turn = random.Random(seed ^ 0x5EED)
        self.tie = self._turn.random

    def at(self, *name: object) -> float:
        """A number in [0, 1) that belongs to this name."""
        return float(self._named(name) >> 11) / (1 << 53)

    def between(self, low: int, high: int, *name: object) -> int:
        """An integer from `low` to `high`, both inclusive, that belongs to this name."""
        return low + int(self.at(*name) * (high - low + 1))

    def spread(self, low: int, high: int, *name: object) -> int:
        """Like `between`, with each order of magnitude equally likely."""
        return round(low * (high / low) ** self.at(*name))

    def hex_id(self, *name: object) -> str:
        """32 hex digits that belong to this name."""
        return xxhash.xxh3_128_hexdigest(_text(name), self._hash_seed)

    def random(self, *name: object) -> random.Random:
        """A generator that belongs to this name."""
        return random.Random(self._named(name))

    def _named(self, name: tuple[object, ...]) -> int:
        return xxhash.xxh3_64_intdigest(_text(name), self._hash_seed)


def _text(name: tuple[object, ...]) -> bytes:
    return "/".join(map(str, name)).encode()
