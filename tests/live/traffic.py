"""Producers outside of Airflow that write to a store while it runs. They count the expected outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

import pyarrow as pa

from txn_engine import Engine
from txn_engine.clock import system_clock
from txn_engine.demo.payments import KEY, MONEY, PAYMENTS, PAYMENTS_SCHEMA
from txn_engine.producer import Producer
from txn_engine.spark.balances import BALANCES_SCHEMA

DEAD_AFTER_MS = 3_000
_NOBODY = 999_999


@dataclass
class Traffic:
    """Producers and their committed payments. Payments of a transaction that is left open do not count."""

    engine: Engine
    open_store: Callable[..., Engine]
    committed: int = 0
    left_open: list[str] = field(default_factory=list)
    deferred: list[str] = field(default_factory=list)
    _next_id: int = 1
    _abandoned: list[Producer] = field(default_factory=list)

    def make_topics(self) -> None:
        for topic, schema in ((PAYMENTS, PAYMENTS_SCHEMA), ("balances", BALANCES_SCHEMA)):
            self.engine.admin.create_topic(topic, partitions=4, schema=schema, key=KEY)

    def pay(self, transactional_id: str, count: int = 50) -> None:
        """Commit a transaction."""
        with self.engine.producer(transactional_id=transactional_id) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.produce(PAYMENTS, self._payments(count))
        self.committed += count

    def pay_deferred(self, transactional_id: str, count: int = 50) -> None:
        """Decide a transaction whose markers another process has to write."""
        with self.engine.producer(transactional_id=transactional_id, markers="deferred") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.produce(PAYMENTS, self._payments(count))
        self.committed += count
        self.deferred.append(transactional_id)

    def leave_open(self, transactional_id: str, count: int = 50, timeout_ms: int = DEAD_AFTER_MS) -> None:
        """A producer that wrote and then died."""
        producer = self.engine.producer(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(PAYMENTS, self._payments(count))
        producer.flush()
        self._abandoned.append(producer)
        self.left_open.append(transactional_id)

    def make_hanging_topic(self, topic: str) -> None:
        """Make a topic for `leave_hanging`."""
        self.engine.admin.create_topic(topic, partitions=1, schema=PAYMENTS_SCHEMA, key=KEY)

    def leave_hanging(self, topic: str) -> None:
        """Leave data, two hours old and in its own topic, that no coordinator row knows. Only a tool can end it."""
        if topic not in self.engine.admin.list_topics():
            self.make_hanging_topic(topic)
        two_hours_ago_ms = system_clock() - 7_200_000
        with self.open_store(clock=lambda: two_hours_ago_ms) as past:
            past.partition(topic, 0).append(
                self._payments(5),
                producer_id=_NOBODY,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )

    def states(self) -> dict[str, str]:
        """The state of each transactional id."""
        return {listing.transactional_id: listing.state for listing in self.engine.admin.list_transactions()}

    def unfinished(self) -> dict[str, str]:
        """The transactions that are open or wait for markers, with their states."""
        final = ("CompleteCommit", "CompleteAbort", "Empty")
        return {name: state for name, state in self.states().items() if state not in final}

    def summed_up(self) -> int:
        """The payments that the consumer's output counts."""
        return sum(self.engine.scan("balances").to_table(columns=["payments"])["payments"].to_pylist())

    def _payments(self, count: int) -> pa.Table:
        ids = range(self._next_id, self._next_id + count)
        self._next_id += count
        rows = [
            {
                "trans_id": number,
                "account_id": number % 17,
                "date": date(1995, 1, 1),
                "type": "PRIJEM",
                "operation": "VKLAD",
                "amount": Decimal("12.50"),
                "balance": Decimal("12.50"),
                "k_symbol": "",
                "bank": "",
                "account": "",
            }
            for number in ids
        ]
        assert PAYMENTS_SCHEMA.field("amount").type == MONEY
        return pa.Table.from_pylist(rows, PAYMENTS_SCHEMA)
