"""Blocks of an operation without a pause, of two sides in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Side:
    """What is done over and over, and what waits for what it leaves running."""

    work: Callable[[], None]
    rest: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Block:
    """Of each operation of a block, in seconds; `processor`: of this process, all threads, the rest too."""

    seconds: float
    processor: float


def blocks_in_turn(
    ours: Side, other: Side, *, blocks: int, size: int, progress: Callable[[int, int], None]
) -> tuple[list[Block], list[Block]]:
    """So many blocks of each, behind one to warm up; which of them goes first alternates."""
    mine: list[Block] = []
    others: list[Block] = []
    for number in range(blocks + 1):
        progress(number, blocks + 1)
        pair = [(ours, mine), (other, others)]
        for side, into in pair if number % 2 else reversed(pair):
            block = _block(side, size)
            if number:
                into.append(block)
    return mine, others


def _block(side: Side, size: int) -> Block:
    side.rest()
    began, worked = time.perf_counter(), time.process_time()
    for _ in range(size):
        side.work()
    taken = time.perf_counter() - began
    side.rest()
    return Block(taken / size, (time.process_time() - worked) / size)
