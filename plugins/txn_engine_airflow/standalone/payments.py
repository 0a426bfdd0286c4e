"""Payments that never end, so that there is something to see: `python -m txn_engine_airflow.standalone.payments`.

Each day of the sample is one transaction, the day's number its run id. Some leave their markers to the DAG, and now and
then a producer dies with its transaction open: the sweep ends that one, and the day is loaded again later. A day that a
transactional id has committed is not loaded twice, so the process may be killed and started at any time.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.demo.balances import BALANCES
from txn_engine.demo.payments import (
    KEY,
    PARTITIONS,
    PAYMENTS,
    PAYMENTS_SCHEMA,
    Day,
    read_payments,
    split_into_days,
)
from txn_engine.demo.sample import write_sample
from txn_engine.engine import Engine
from txn_engine.errors import TopicExistsError
from txn_engine.producer import Producer
from txn_engine.spark.balances import BALANCES_SCHEMA
from txn_engine.types import MarkerMode
from txn_engine_airflow.connection import connection_of_environment
from txn_engine_airflow.hook import connect_to

BRANCHES: Sequence[tuple[str, MarkerMode]] = (
    ("branch-prague", "inline"),
    ("branch-brno", "inline"),
    ("branch-ostrava", "deferred"),
)
UNLUCKY = "branch-plzen"
_UNLUCKY_EVERY, _TIMEOUT_MS = 12, 20_000
_AGAIN_AFTER = 10
"""A lost day is loaded again so many days later: by then the sweep has ended the transaction that it was lost in."""
_ID_STEP = 10_000_000
"""Above every trans_id of the sample: the days come round again with other ids."""
_REMEMBERED = 90
"""A transactional id remembers its last 100 committed run ids."""


def run_id(number: int) -> str:
    """The run id of a day, by its number from the first on."""
    return f"day {number:06d}"


def branch_of(number: int) -> tuple[str, MarkerMode]:
    """Who loads that day; the same at every start."""
    if number % _UNLUCKY_EVERY == _UNLUCKY_EVERY - 1:
        return UNLUCKY, "inline"
    return BRANCHES[number % len(BRANCHES)]


@dataclass(slots=True)
class Payments:
    """The trickle: which day is next, and which are to be loaded again."""

    engine: Engine
    table: pa.Table
    days: Sequence[Day]
    next_number: int = 0
    lost: deque[tuple[int, int]] = field(default_factory=deque)
    producers: dict[str, Producer] = field(default_factory=dict)

    def resume(self) -> None:
        """Learn from the log where an earlier process stopped, and what it left."""
        names = [*BRANCHES, (UNLUCKY, "inline")]
        self.producers = {name: self._new_producer(name, markers) for name, markers in names}
        last = [producer.last_committed_run_id for producer in self.producers.values()]
        self.next_number = max((int(known.split()[1]) + 1 for known in last if known), default=0)
        for number in range(max(0, self.next_number - _REMEMBERED), self.next_number):
            if self.producers[branch_of(number)[0]].has_committed(run_id(number)) is False:
                self.lost.append((number, self.next_number))

    def step(self) -> None:
        """Load one day, or lose it."""
        if self.lost and self.lost[0][1] <= self.next_number:
            number, _ = self.lost.popleft()
            self._load(number)
            return
        number, self.next_number = self.next_number, self.next_number + 1
        if branch_of(number)[0] == UNLUCKY:
            self._lose(number)
        else:
            self._load(number)

    def close(self) -> None:
        """Close the producers; what is open stays open until the sweep."""
        for producer in self.producers.values():
            producer.close()

    def rows(self, number: int) -> pa.Table:
        """The payments of a day; from the second time round on with ids of their own."""
        round_, index = divmod(number, len(self.days))
        day = self.days[index]
        rows = self.table.slice(day.first_row, day.rows)
        ids = pc.add(rows["trans_id"], pa.scalar(round_ * _ID_STEP, pa.int64()))
        return rows.set_column(rows.schema.get_field_index("trans_id"), rows.schema.field("trans_id"), ids)

    def _load(self, number: int) -> None:
        name, markers = branch_of(number)
        producer = self.producers.get(name) or self._new_producer(name, markers)
        self.producers[name] = producer
        if producer.has_committed(run_id(number)):
            return
        with producer.transaction(run_id=run_id(number)):
            producer.produce(PAYMENTS, self.rows(number))
        print(f"{name} {run_id(number)}: committed, markers {markers}", flush=True)

    def _lose(self, number: int) -> None:
        """Write the day and be gone, as a killed producer is. Its successor comes with the day's second try."""
        producer = self.producers.pop(UNLUCKY, None) or self._new_producer(UNLUCKY, "inline")
        if producer.has_committed(run_id(number)):
            self.producers[UNLUCKY] = producer
            return
        producer.begin_transaction(run_id=run_id(number))
        producer.produce(PAYMENTS, self.rows(number))
        producer.flush()
        self.lost.append((number, self.next_number + _AGAIN_AFTER))
        print(f"{UNLUCKY} {run_id(number)}: left open", flush=True)

    def _new_producer(self, name: str, markers: MarkerMode) -> Producer:
        producer = self.engine.producer(
            transactional_id=name, markers=markers, transaction_timeout_ms=_TIMEOUT_MS
        )
        producer.init_transactions()
        return producer


def make_topics(engine: Engine) -> None:
    """The two topics, unless they are there."""
    for topic, schema in ((PAYMENTS, PAYMENTS_SCHEMA), (BALANCES, BALANCES_SCHEMA)):
        if topic in engine.admin.list_topics():
            continue
        try:
            engine.admin.create_topic(topic, partitions=PARTITIONS, schema=schema, key=KEY)
        except TopicExistsError:
            continue  # made by another process since


def main() -> int:
    """Load the first days at once, then one at each pause, until SIGTERM."""
    parser = argparse.ArgumentParser(prog="payments")
    parser.add_argument(
        "--sample", type=Path, required=True, help="the sample's file; made where it is missing"
    )
    parser.add_argument(
        "--at-once", type=int, default=30, help="days without a pause, at the very first start"
    )
    parser.add_argument("--pause-s", type=float, default=10.0, help="seconds from one day to the next")
    given = parser.parse_args()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    store = connection_of_environment()
    if store is None:
        parser.error("the environment names no store")
    if not given.sample.exists():
        write_sample(given.sample)
    table = read_payments(given.sample, days_min=1)
    with connect_to(store) as engine:
        make_topics(engine)
        payments = Payments(engine, table, split_into_days(table))
        payments.resume()
        while not ended.is_set():
            payments.step()
            if payments.next_number >= given.at_once:
                ended.wait(given.pause_s)
        payments.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
