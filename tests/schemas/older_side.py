"""What an older program does with a store, each task in a process of its own: `python older_side.py WHAT
URL`.

It runs the code of `PYTHONPATH`, so it uses only what that code has. It prints what it saw as one line of
JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import txn_engine
from txn_engine import Engine, TxnEngineError

_PATIENCE_S = 20


def tried(work: Callable[[], Any]) -> Any:
    """The result of the work, or its error."""
    try:
        return work()
    except TxnEngineError as error:
        return f"{error.code}: {error}"


def read(engine: Engine, topic: str) -> Any:
    """The accounts that a scan returns, or the error."""
    return tried(lambda: sorted(engine.scan(topic).to_table()["account"].to_pylist()))


def consume(engine: Engine, topic: str) -> Any:
    """Like `read`, with a consumer."""

    def work() -> list[int]:
        found: list[int] = []
        with engine.consumer() as consumer:
            consumer.subscribe([topic])
            while (table := consumer.poll()) is not None:
                found += table["account"].to_pylist()
        return sorted(found)

    return tried(work)


def write(engine: Engine, topic: str, account: int) -> Any:
    """Write one record in the columns that the topic was created with."""
    columns = {"account": pa.array([account], pa.int64()), "amount": pa.nulls(1, pa.decimal128(10, 2))}
    table = pa.table({**columns, "size": pa.array([account], pa.int32())})

    def work() -> str:
        with engine.producer() as producer:
            producer.produce(topic, table, partition=0).result()
        return "written"

    return tried(work)


def everything(engine: Engine) -> dict[str, Any]:
    """Read, write and maintain each topic, and audit the store."""
    found: dict[str, Any] = {}
    for topic in ("payments", "untouched"):
        found[topic] = {
            "read": read(engine, topic),
            "consumed": consume(engine, topic),
            "written": write(engine, topic, 99),
            "compacted": tried(lambda topic=topic: _failures(engine.maintenance.compact(topic))),
        }
    found["retention_ms"] = tried(lambda: engine.admin.describe_topic("payments").retention_ms)
    report = engine.admin.verify()
    found["audit"] = {"ok": report.ok, "findings": sorted({each.code for each in report.findings})}
    return found


def _failures(report: Any) -> Any:
    return [str(each) for each in report.failures] or "done"


def await_refusal(engine: Engine) -> dict[str, Any]:
    """Open the topic, wait until it was changed, and find out how long this process can still write to it."""
    write(engine, "payments", 100)
    print("ready", flush=True)
    sys.stdin.readline()
    begun, written = time.monotonic(), 0
    while time.monotonic() - begun < _PATIENCE_S:
        said = write(engine, "payments", 101 + written)
        if said != "written":
            return {"said": said, "seconds": round(time.monotonic() - begun, 1), "written": written}
        written += 1
        time.sleep(0.2)
    return {"said": "nothing", "seconds": _PATIENCE_S, "written": written}


def main(what: str, url: str) -> None:
    with txn_engine.connect(url) as engine:
        found = {"everything": everything, "await_refusal": await_refusal}[what](engine)
    print(json.dumps({"code": txn_engine.__file__, **found}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
