"""Step 4: the topics as tables for every other engine, at one cut."""

from __future__ import annotations

from dataclasses import dataclass, field

from txn_engine.demo.balances import BALANCES
from txn_engine.demo.payments import PAYMENTS
from txn_engine.demo.screen import Screen
from txn_engine.engine import Engine

TOPICS = (PAYMENTS, BALANCES)


@dataclass(slots=True)
class TablesReport:
    """Where each topic's Delta table is, at which cut, and how many payments that shows."""

    cut: int = -1
    payments: int = 0
    roots: dict[str, str] = field(default_factory=dict)


class Tables:
    """Publishes what the story has left."""

    def __init__(self, engine: Engine, screen: Screen) -> None:
        self._engine = engine
        self._screen = screen
        self.report = TablesReport()

    def run(self) -> None:
        """Both topics at one cut: so they can be joined."""
        cut = self._engine.cut(TOPICS)
        for topic in TOPICS:
            self.report.roots[topic] = self._engine.tables.publish(topic, "delta", cut=cut)["delta"]
        self.report.cut = cut.number
        self.report.payments = sum(each.record_count for each in self._engine.scan(PAYMENTS, cut=cut).files())
        self._screen.say(
            f"Delta tables of {' and '.join(TOPICS)} at cut {cut.number}, over the files that are there:"
            f" {self.report.payments:,} payments"
        )
