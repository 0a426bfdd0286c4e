"""How fast the overview is: p50 and p99 over HTTP from Airflow's own server, beside the thread that keeps looking.

    python -m tests.pages.bench [--transactions 1000] [--partitions 50] [--requests 1000]

Each transaction is open and has written to every partition. Exits with 1 where the p99 is not below the limit.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tests.numbers import Run
from tests.support.airflow_home import HOME, make_database
from tests.support.waiting import wait_for
from txn_engine import Engine, TopicPartition, connect
from txn_engine.ids import new_write_id
from txn_engine.log.uploads import upload_records
from txn_engine.protocol.proposals import DataProposal
from txn_engine.schemas.layout import original
from txn_engine.testing import write_transaction_state

LIMIT_MS = 300
PATHS = {
    "overview": "/txn-engine/api/overview",
    "transactions": "/txn-engine/api/transactions",
    "partition": "/txn-engine/api/partition?topic=payments&partition=7",
    "transaction": "/txn-engine/api/transaction?id=load-00007",
    "Airflow's own version, to compare": "/api/v2/version",
}
SCHEMA = pa.schema([("x", pa.int64())])
URL = "memory://pages-bench"


def build(engine: Engine, transactions: int, partitions: int) -> None:
    """Every transaction is open with a batch in every partition. One entry of each partition has them all."""
    engine.admin.create_topic("payments", partitions=partitions, schema=SCHEMA)
    members = [TopicPartition("payments", number) for number in range(partitions)]
    for number in range(transactions):
        write_transaction_state(
            engine, f"load-{number:05}", state="Ongoing", producer_id=number, producer_epoch=0,
            transaction_timeout_ms=900_000, partitions=members,
        )  # fmt: skip
    table = pa.table({"x": [1]}, schema=SCHEMA)
    now_ms = engine.clock()
    for number in range(partitions):
        log = engine.logs.get("payments", 0, number)
        proposals = []
        for producer_id in range(transactions):
            identity = {"producer_id": producer_id, "producer_epoch": 0}
            encoded = upload_records(
                engine.logs.tools.objects,
                new_write_id,
                log.keys.prefix,
                table,
                original(SCHEMA),
                log_end=0,
                timestamp_ms=now_ms,
                **identity,
            )
            proposals.append(
                DataProposal(
                    1, now_ms, now_ms, encoded.file, **identity, base_sequence=0, is_transactional=True
                )
            )
        log.append(proposals)


@contextlib.contextmanager
def server() -> Iterator[tuple[int, str]]:
    """Run Airflow's api-server with the pages in this process. Yields its port and a session's token."""
    os.environ["TXN_ENGINE_URL"] = URL
    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
    os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "ERROR"  # a line for each request would drown the numbers
    os.environ["AIRFLOW__API_AUTH__JWT_SECRET"] = "not-a-secret-but-long-enough-" * 3
    os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"] = str(HOME / "passwords.json")
    make_database()
    import uvicorn
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    app = create_app(apps="core")
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="vera", role="VIEWER", teams=[]))
    running = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        wait_for(lambda: running.started, what="the start of the server")
        yield running.servers[0].sockets[0].getsockname()[1], token
    finally:
        running.should_exit = True
        thread.join()


def ask(connection: http.client.HTTPConnection, token: str, path: str, *, tries: int = 1) -> int:
    """The bytes of the answer. With more than one try, the request is repeated until the first look at the
    store is over."""
    for _ in range(tries):
        connection.request("GET", path, headers={"Cookie": f"_token={token}"})
        answer = connection.getresponse()
        size = len(answer.read())
        if answer.status == 200:
            return size
        time.sleep(1)
    raise SystemExit(f"{path} answered {answer.status}")


def measure(port: int, token: str, path: str, requests: int) -> list[float]:
    """The milliseconds of each request, made one after the other on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    ask(connection, token, path, tries=100)
    took = []
    for _ in range(requests):
        began = time.perf_counter()
        size = ask(connection, token, path)
        took.append((time.perf_counter() - began) * 1_000)
    print(f"  {path}: {size:,} bytes")
    return took


def told(name: str, took: list[float]) -> dict[str, float]:
    """Print the median, the 99th percentile and the maximum, and return them in milliseconds."""
    found = {
        "p50 ms": round(statistics.median(took), 1),
        "p99 ms": round(statistics.quantiles(took, n=100)[98], 1),
        "most ms": round(max(took), 1),
    }
    print(f"  {name}: " + ", ".join(f"{title} {value}" for title, value in found.items()))
    return found


def main() -> int:
    """Build a store, serve it, measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("transactions", 1_000), ("partitions", 50), ("requests", 1_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args: Any = parser.parse_args()
    run = Run("pages", sys.argv[1:])
    with connect(URL) as engine:
        build(engine, args.transactions, args.partitions)
        print(
            f"{args.transactions:,} open transactions, each in {args.partitions} partitions; "
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        )
        figures = {}
        with server() as (port, token):
            for name, path in PATHS.items():
                figures[name] = told(name, measure(port, token, path, args.requests))
    run.record(figures)
    overview = figures["overview"]["p99 ms"]
    print(f"overview p99 {overview} ms, limit {LIMIT_MS} ms")
    return 0 if overview < LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
