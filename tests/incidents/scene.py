"""The scene of the incidents: a store that may stop answering, the service on it, and another user of the
same store."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pyarrow as pa

from storage import MemoryStore, StoreUnreachableError
from tests.support.faults import Fault, FaultyStore, Operation, no_pause, raising
from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.testing import ManualClock

SCHEMA = pa.schema([("order_id", pa.int64())])
_STORES = count()


class Scene:
    """The service (`service`, through a store that may fail) and all other users (`others`, who always reach
    it)."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        inner = MemoryStore(f"incident-{next(_STORES)}")
        self.store = FaultyStore(inner, error=raising(StoreUnreachableError))
        self.others = Engine(inner, clock=self.clock)
        self.others.admin.create_topic("orders", partitions=2, schema=SCHEMA, key="order_id")
        self.service = Engine(self.store, clock=self.clock, pause=no_pause)

    def outage(self, *, answer_lost: str | None = None) -> None:
        """Stop the store. With `answer_lost` the first create of a key with this text still takes effect."""
        state = {"landed": answer_lost is None}

        def decide(operation: Operation, key: str, _: int) -> Fault | None:
            if not state["landed"]:
                if operation == "put_if_absent" and answer_lost is not None and answer_lost in key:
                    state["landed"] = True
                    return "after"
                return None
            return "before"

        self.store.decide = decide

    def over(self) -> None:
        """Start the store again."""
        self.store.decide = None

    def orders(self, engine: Engine | None = None) -> list[int]:
        """The orders that a committed reader sees, in order."""
        table = (engine or self.others).scan("orders").to_table(["order_id"])
        return sorted(table.column("order_id").to_pylist())

    def sound(self) -> bool:
        """Check that nobody waits for anything, and that the audit finds nothing."""
        for offsets in self.others.admin.list_offsets("orders").values():
            assert offsets.last_stable_offset == offsets.high_watermark
        report = self.others.admin.verify()
        assert report.ok, [str(finding) for finding in report.findings]
        return True

    def close(self) -> None:
        self.over()
        self.service.close()
        self.others.close()


def orders(*ids: int) -> pa.Table:
    """One order for each id."""
    return pa.table({"order_id": pa.array(ids, pa.int64())}, schema=SCHEMA)


def error_of(call: Callable[[], object]) -> TxnEngineError:
    """The error that the call ends in."""
    try:
        call()
    except TxnEngineError as error:
        return error
    raise AssertionError("no error")
