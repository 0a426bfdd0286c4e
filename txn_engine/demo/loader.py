"""One producer process of the demo: `python -m txn_engine.demo.loader`.

It loads days as it is told to over its pipe, each day in one transaction whose run id is the day.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from txn_engine.demo.pipe import Order, Pipe, serve
from txn_engine.engine import Engine, connect
from txn_engine.errors import ProducerFencedError
from txn_engine.producer import Producer
from txn_engine.producer.partitioner import split_by_key
from txn_engine.types import AppendResult, MarkerMode, RecordMetadata

FENCED = 4
"""The exit code of a producer that was told that it has a successor."""


class Loader:
    """A transactional producer that takes orders.

    `load` says `committed` with where the rows went, or `aborted` where the order's `ending` is that. With the ending
    `wait` it says `written` when all rows are in the log, and waits for `commit`. It says `known` where an earlier
    producer of its transactional id has committed the day, and loads nothing. When it is fenced it says `fenced` and
    ends with exit code 4.
    """

    def __init__(
        self, engine: Engine, topic: str, payments: pa.Table, transactional_id: str, timeout_ms: int
    ) -> None:
        self._engine = engine
        self._topic = topic
        self._payments = payments
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._markers: MarkerMode = "inline"
        self._producer = self._initialised()

    def _initialised(self) -> Producer:
        producer = self._engine.producer(
            transactional_id=self._id, transaction_timeout_ms=self._timeout_ms, markers=self._markers
        )
        producer.init_transactions()
        return producer

    def serve(self, pipe: Pipe) -> None:
        """Take orders until there are no more. An order it cannot keep ends it."""
        pipe.say("ready", **self._identity())
        while (order := pipe.next_order()) is not None:
            try:
                self._load(order, pipe)
            except ProducerFencedError as error:
                pipe.say("fenced", day=order["day"], code=error.code, text=str(error), **self._identity())
                raise SystemExit(FENCED) from error
        self._producer.close()

    def _load(self, order: Order, pipe: Pipe) -> None:
        day = str(order["day"])
        self._use_markers(order["markers"])
        producer, rows = self._producer, self._payments.slice(order["first_row"], order["rows"])
        if producer.has_committed(day):
            pipe.say("known", day=day)
            return
        producer.begin_transaction(run_id=day)
        identity = self._identity()
        placed = producer.produce(self._topic, rows)
        facts: dict[str, Any] = {"day": day, "rows": rows.num_rows, **identity}
        if order["twice"] or order["ending"] != "commit":
            producer.flush()
        if order["twice"]:
            facts["again"] = self._send_again(rows, placed.result()[0])._asdict()
        if order["ending"] == "wait":
            pipe.say("written", **facts, placed=_places(placed.result()))
            pipe.next_order()
        if order["ending"] == "abort":
            producer.abort_transaction()
            pipe.say("aborted", **facts, placed=_places(placed.result()))
            return
        producer.commit_transaction()
        pipe.say("committed", **facts, placed=_places(placed.result()))

    def _use_markers(self, markers: MarkerMode) -> None:
        if markers != self._markers:
            self._producer.close()
            self._markers = markers
            self._producer = self._initialised()

    def _send_again(self, rows: pa.Table, first: RecordMetadata) -> AppendResult:
        """Send the batch that went to `first` once more, as a client does whose answer was lost."""
        topic = self._engine.admin.describe_topic(self._topic)
        batch = dict(split_by_key(rows, topic.key, topic.partitions, 0))[first.partition]
        return self._engine.partition(self._topic, first.partition).append(
            batch.slice(0, first.last_offset - first.base_offset + 1),
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )

    def _identity(self) -> dict[str, int]:
        return {"producer_id": self._producer.producer_id, "producer_epoch": self._producer.producer_epoch}


def _places(placed: Sequence[RecordMetadata]) -> list[list[int]]:
    """(partition, first offset, last offset) of each batch."""
    return [[at.partition, at.base_offset, at.last_offset] for at in placed]


def main() -> int:
    """Load as told; the exit code says how it ended."""
    parser = argparse.ArgumentParser(prog="loader")
    parser.add_argument("--url", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--payments", type=Path, required=True, help="an Arrow file of the input's rows")
    parser.add_argument("--transactional-id", required=True)
    parser.add_argument("--timeout-ms", type=int, required=True)
    given = parser.parse_args()

    def work(pipe: Pipe) -> None:
        with pa.memory_map(str(given.payments)) as source, connect(given.url) as engine:
            payments = pa.ipc.open_file(source).read_all()
            Loader(engine, given.topic, payments, given.transactional_id, given.timeout_ms).serve(pipe)

    return serve(work)


if __name__ == "__main__":
    sys.exit(main())
