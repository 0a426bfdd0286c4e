"""`python -m tests.quality.scale ROWS`: how long a whole check takes, and how much memory all its processes.

Payments and their balances by account, in transactions of a million, on the local disk; then `txn-engine quality run`
over both with a declaration, in a process of its own. With `--engine spark` on two cores of this machine, and beside it
what Spark takes to read every column of both topics' files in the same kind of session.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from txn_engine import Engine, connect
from txn_engine.bench.payments import SCHEMA, payments

ROOT = Path(__file__).parents[2]
BALANCES = pa.schema(
    [("account_id", pa.int64()), ("turnover", pa.decimal128(28, 2)), ("payments", pa.int64())]
)
DECLARATION = """
topic: payments
record_id: trans_id
outputs:
  - topic: balances
    by: account_id
    sum: {turnover: {of: amount, direction: type, plus: [PRIJEM]}}
    count: payments
"""
_CHUNK = 1_000_000
MASTER = "spark.master=local[2]"


def generate(engine: Engine, rows: int, accounts: int) -> None:
    """Write both topics, with four partitions each: payments of this many accounts, and the balances after
    each million of them."""
    for name, schema in (("payments", SCHEMA), ("balances", BALANCES)):
        engine.admin.create_topic(name, partitions=4, schema=schema, key="account_id")
    with engine.producer(transactional_id="load") as load, engine.producer(transactional_id="job") as job:
        load.init_transactions()
        job.init_transactions()
        for first in range(0, rows, _CHUNK):
            table = _payments(first, min(_CHUNK, rows - first), accounts)
            with load.transaction():
                load.produce("payments", table)
            with job.transaction():
                job.produce("balances", balances_of(table))
            print(
                f"\r{first + table.num_rows:,} of {rows:,} rows written", end="", file=sys.stderr, flush=True
            )
    print(file=sys.stderr)


def _payments(first: int, count: int, accounts: int) -> pa.Table:
    table = payments(count, first)
    ids = np.arange(first, first + count, dtype=np.int64)
    at = table.schema.get_field_index("account_id")
    return table.set_column(at, "account_id", pa.array((ids * 2654435761) % accounts))


def balances_of(table: pa.Table) -> pa.Table:
    """Each account's turnover and number of payments."""
    amount = table["amount"].cast(pa.decimal128(28, 2))
    signed = pc.if_else(pc.equal(table["type"], "PRIJEM"), amount, pc.negate(amount))
    grouped = pa.table({"account_id": table["account_id"], "turnover": signed}).group_by("account_id")
    sums = grouped.aggregate([("turnover", "sum"), ("turnover", "count")])
    return pa.table(
        [sums["account_id"], sums["turnover_sum"].cast(pa.decimal128(28, 2)), sums["turnover_count"]],
        schema=BALANCES,
    )


def measured(command: list[str]) -> tuple[float, int, str]:
    """The seconds, the most memory that all processes of the command held at once (bytes, looked at every 50
    ms), and its output."""
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    most, ended = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.05):
            most = max(most, sum(_held(process.pid)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, _ = process.communicate()
    ended.set()
    watcher.join()
    seconds = time.perf_counter() - started
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}: {out}")
    return seconds, max(most, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024), out


def _held(pid: int) -> Iterator[int]:
    try:
        top = psutil.Process(pid)
        for each in [top, *top.children(recursive=True)]:
            yield each.memory_info().rss
    except psutil.Error:
        return


def bare_scan(store: Path) -> float:
    """The seconds that Spark takes to read every value of both topics' files, without its own start."""
    from txn_engine.spark import read_topic, spark_session

    spark = spark_session(store.as_uri(), master="local[2]")
    with connect(store.as_uri()) as engine:
        started = time.perf_counter()
        for topic in ("payments", "balances"):
            read_topic(spark, engine, topic).df.write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - started
    spark.stop()
    return seconds


def main() -> None:
    """Generate the topics, check them, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int)
    parser.add_argument("--accounts", type=int, default=1_000_000)
    parser.add_argument("--memory-mb", type=int, default=1_500)
    parser.add_argument("--engine", choices=["local", "spark"], default="local")
    parser.add_argument("--store", type=Path, help="keep the store there, or use the one that is there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="txn-engine-scale-") as scratch:
        store = given.store or Path(scratch, "ledger")
        if not (store / "store.json").exists():
            with connect(store.as_uri()) as engine:
                generate(engine, given.rows, given.accounts)
        declaration = Path(scratch, "declaration.yaml")
        declaration.write_text(DECLARATION)
        command = [sys.executable, "-m", "txn_engine", "quality", "run", "payments", "--json"]
        command += [
            "--url",
            store.as_uri(),
            "--declaration",
            str(declaration),
            "--report",
            f"{scratch}/report",
        ]
        command += ["--memory-mb", str(given.memory_mb), "--no-record", "--engine", given.engine]
        if given.engine == "spark":
            command += ["--spark-conf", MASTER, "--spark-conf", f"spark.driver.memory={given.memory_mb}m"]
        seconds, memory, out = measured(command)
        bare = bare_scan(store) if given.engine == "spark" else None
    found = json.loads(out)
    print(
        f"{found['statistics']['committed_records']:,} payments with their balances: {seconds:.1f} s, "
        f"{memory / 1e6:,.0f} MB, {found['statistics']['passed']} of {found['statistics']['checks']} checks passed, "
        f"{found['engine']}"
    )
    if bare is not None:
        print(
            f"bare scan of every column by Spark: {bare:.1f} s; the proof takes {seconds / bare:.1f} times as long"
        )


if __name__ == "__main__":
    main()
