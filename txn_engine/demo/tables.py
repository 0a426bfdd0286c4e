"""Step 4: the topics as tables for every other engine, at one cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from txn_engine.demo.balances import BALANCES
from txn_engine.demo.payments import PAYMENTS
from txn_engine.demo.screen import Screen
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError

TOPICS = (PAYMENTS, BALANCES)
_OPENED_BY = {
    "delta": "deltalake, polars.scan_delta, DuckDB's delta_scan, Spark's format delta",
    "iceberg": "pyiceberg, polars.scan_iceberg, DuckDB's iceberg_scan, Spark's format iceberg",
}


@dataclass(slots=True)
class TablesReport:
    """Where the tables are, by format and topic, at which cut, and how many payments that shows."""

    cut: int = -1
    payments: int = 0
    roots: dict[str, dict[str, str]] = field(default_factory=lambda: {"delta": {}, "iceberg": {}})

    def opened(self) -> Iterator[tuple[str, str]]:
        """The tables of the payments, each with what opens it."""
        for table_format, roots in self.roots.items():
            if PAYMENTS in roots:
                yield roots[PAYMENTS], _OPENED_BY[table_format]


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
            self._publish(topic, "delta", cut.number)
            try:
                self._publish(topic, "iceberg", cut.number)
            except InvalidRequestError as error:  # of a store at an address that is no URI
                self._screen.say(f"{topic} not as Iceberg: {error}")
        self.report.cut = cut.number
        self.report.payments = sum(each.record_count for each in self._engine.scan(PAYMENTS, cut=cut).files())
        formats = " and ".join(name.capitalize() for name, roots in self.report.roots.items() if roots)
        self._screen.say(
            f"{' and '.join(TOPICS)} as {formats} at cut {cut.number}, over the files that are there:"
            f" {self.report.payments:,} payments"
        )

    def _publish(self, topic: str, table_format: str, cut: int) -> None:
        uris = self._engine.tables.publish(topic, table_format, cut=cut)
        # Iceberg's root is the folder above its metadata: what a reader is given goes on to newer versions.
        self.report.roots[table_format][topic] = uris[table_format].partition("/metadata/")[0]
