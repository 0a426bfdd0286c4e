"""`python -m tests.spark.stalled_outputs URL STEP`: writes two topics, and stops before a step, to be killed there.

The steps: `upload` of the second output, `entry` in it, `commit`, `marker` in the second output.
"""

from __future__ import annotations

import os
import sys
import threading

from storage import ObjectStore, open_store
from tests.spark.conftest import two_outputs
from tests.support.faults import Fault, FaultyStore, Operation
from txn_engine.engine import Engine
from txn_engine.producer import Producer
from txn_engine.spark import read_topic, spark_session, write_topics, writing
from txn_engine.spark.opening import store_for_executors

_FIRST = threading.Lock()


def stop_at(step: str) -> None:
    """Print the step, and never return. Only the first call prints it, because the puts of two partitions may
    run at the same time."""
    if _FIRST.acquire(blocking=False):
        print(step, flush=True)
    threading.Event().wait()


class Steps:
    """The progress of the write, seen from its store and its uploads."""

    def __init__(self, stop: str) -> None:
        self._stop = stop
        self._uploads = 0
        self._entries: set[str] = set()

    def before_call(self, operation: Operation, key: str, _: int) -> Fault | None:
        """Decide for a `FaultyStore`: nothing fails, but a put may never return."""
        if operation == "put_if_absent" and key.startswith("topics/accounts/") and "/log/" in key:
            is_marker = key.rpartition("/")[0] in self._entries
            self._entries.add(key.rpartition("/")[0])
            if self._stop == ("marker" if is_marker else "entry"):
                stop_at(self._stop)
        return None

    def executors_store(self, store: ObjectStore) -> ObjectStore:
        """A replacement for `store_for_executors`, which is called once for each output."""
        self._uploads += 1
        if (self._stop, self._uploads) == ("upload", 2):
            stop_at(self._stop)
        assert isinstance(store, FaultyStore)
        return store_for_executors(store.inner)


def main(url: str, step: str) -> None:
    """Write up to the step."""
    steps = Steps(step)
    writing.store_for_executors = steps.executors_store  # type: ignore[attr-defined]
    if step == "commit":
        Producer.commit_transaction = lambda self, **_: stop_at(step)  # type: ignore[method-assign]
    spark = spark_session(url, log_path=os.devnull)
    engine = Engine(FaultyStore(open_store(url), decide=steps.before_call))
    read = read_topic(spark, engine, "payments", group_id="balances")
    write_topics(two_outputs(read.df), engine, transactional_id="job", offsets=read.offsets, run_id="monday")


if __name__ == "__main__":
    main(*sys.argv[1:])
