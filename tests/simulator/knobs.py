"""The settings of one run besides its seed."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulator.chance import Chance
from tests.simulator.kernel import DAY, HOUR


@dataclass(frozen=True, slots=True)
class Knobs:
    """The shape of a run. `of(seed)` draws one, and shrinking changes it field by field."""

    intensity: float = 1.0
    skewed_clocks: bool = True
    clock_tick_ms: int = (
        1  # how coarse the clocks are: two writers may see the same time, and write the same bytes
    )
    partitions: int = 2
    coordinator_partitions: int = 2
    group_partitions: int = 1
    transactions: int = 24
    id_expiration_ms: int = 604_800_000
    producer_id_expiration_ms: int = 86_400_000
    max_lives: int = 6
    every_kind: bool = False
    local_store: bool = False
    longest_pause: int = 6 * HOUR
    snapshot_after: int = 1_000
    only_sites: frozenset[str] | None = None
    without_clients: frozenset[str] = frozenset()

    @classmethod
    def of(cls, seed: int) -> Knobs:
        """The shape that belongs to a seed."""
        chance = Chance(seed)
        return cls(
            intensity=(0.0, 0.3, 1.0, 1.0, 2.5)[chance.between(0, 4, "knob", "intensity")],
            skewed_clocks=chance.at("knob", "skew") < 0.5,
            clock_tick_ms=(1, 1, 30_000)[chance.between(0, 2, "knob", "tick")],
            partitions=chance.between(1, 3, "knob", "partitions"),
            coordinator_partitions=chance.between(1, 3, "knob", "coordinator"),
            transactions=chance.between(12, 36, "knob", "transactions"),
            every_kind=chance.at("knob", "every kind") < 0.2,
            local_store=chance.at("knob", "local store") < 0.2,
            snapshot_after=(1_000, 12, 3)[chance.between(0, 2, "knob", "snapshot after")],
            longest_pause=(6 * HOUR, 6 * HOUR, 21 * DAY)[chance.between(0, 2, "knob", "pause")],
        )
