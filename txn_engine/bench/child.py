"""What a process does that a bench has started (`children.py`): it writes, opens a topic, or looks at ids."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from storage import open_store
from txn_engine.bench.children import Answer, Task
from txn_engine.bench.memory import resident_bytes
from txn_engine.bench.payments import payments
from txn_engine.bench.watched import watching
from txn_engine.engine import Engine, connect
from txn_engine.errors import TxnEngineError


def write(task: Task, wait: Callable[[], None]) -> Answer:
    """Append 100 rows for so many seconds, to each partition in turn; how long each append took, and puts lost."""
    store = watching(open_store(task["url"]))
    records, partitions = payments(100), task["partitions"]
    seconds: list[float] = []
    refused = 0
    with Engine(store) as engine:
        logs = [engine.partition(task["topic"], number) for number in range(partitions)]
        for log in logs:
            _ = log.high_watermark
        wait()
        store.take()
        began = now = time.perf_counter()
        number = task["number"]
        while now - began < task["seconds"]:  # at least once, also where the machine stands still
            try:
                logs[number % partitions].append(records)
            except TxnEngineError:
                refused += 1
            else:
                seconds.append(time.perf_counter() - now)
            number += 1
            now = time.perf_counter()
        taken = now - began
        puts = [call for call in store.take() if call.kind == "put_if_absent" and "/log/" in call.key]
    return {
        "append_s": seconds,
        "seconds": taken,
        "puts": len(puts),
        "lost": sum(not call.stored for call in puts),
        "refused": refused,
    }


def open_topic(task: Task, wait: Callable[[], None]) -> Answer:
    """Plan a read of a topic as a process that knows nothing; seconds, and what it then holds in memory."""
    wait()
    before = resident_bytes()
    began = time.perf_counter()
    with connect(task["url"]) as engine:
        files = engine.scan(task["topic"]).files()
        seconds = time.perf_counter() - began
        return {"open_s": seconds, "memory_bytes": resident_bytes() - before, "files": len(files)}


def look_at_ids(task: Task, wait: Callable[[], None]) -> Answer:
    """Initialise one id, sweep and list them all, each as a process that knows nothing; and list them again."""
    wait()
    url = task["url"]
    began = time.perf_counter()
    with connect(url) as engine, engine.producer(transactional_id=task["id"]) as producer:
        producer.init_transactions()
        init_s = time.perf_counter() - began
    began = time.perf_counter()
    with connect(url) as engine:
        engine.coordinator.abort_timed_out_transactions()
        sweep_s = time.perf_counter() - began
    began = time.perf_counter()
    with connect(url) as engine:
        ids = len(engine.admin.list_transactions())
        list_s = time.perf_counter() - began
        began = time.perf_counter()
        engine.admin.list_transactions()
        again_s = time.perf_counter() - began
    return {"init_s": init_s, "sweep_s": sweep_s, "list_s": list_s, "again_s": again_s, "ids": ids}


TASKS: dict[str, Callable[[Task, Callable[[], None]], Answer]] = {
    "write": write,
    "open": open_topic,
    "ids": look_at_ids,
}


def main() -> None:
    """Do the task that stands in the first line, once the second one comes."""

    def wait() -> None:
        print("ready", flush=True)
        sys.stdin.readline()

    task = json.loads(sys.stdin.readline())
    print(json.dumps(TASKS[task["task"]](task, wait)), flush=True)


if __name__ == "__main__":
    main()
