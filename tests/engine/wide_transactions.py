"""Transactions of more and more partitions: what a partition costs.

python -m tests.engine.wide_transactions [--partitions 250 1000 4000 10000] [--url URL]

Prints CPU time, because that means the same on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa

import txn_engine
from txn_engine import Engine

SCHEMA = pa.schema([("account_id", pa.int64()), ("amount", pa.int64())])


@dataclass(frozen=True, slots=True)
class Report:
    """One transaction: milliseconds of CPU for each partition, in all and by step, and objects for each partition."""

    partitions: int
    ms_a_partition: float
    produce_ms_a_partition: float
    commit_ms_a_partition: float
    cut_ms_a_partition: float
    next_cut_ms_a_partition: float
    coordinator_rows: int


def measure(engine: Engine, partitions: int, *, name: str) -> Report:
    """One record to each partition of a new topic, by a call each; then a cut, and a second one."""
    engine.admin.create_topic(name, partitions=partitions, schema=SCHEMA)
    record = pa.table({"account_id": [1], "amount": [1]}, schema=SCHEMA)
    with engine.producer(transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        began = time.process_time()
        for partition in range(partitions):
            producer.produce(name, record, partition=partition)
        producer.flush()
        produced = time.process_time()
        producer.commit_transaction()
        committed = time.process_time()
    cuts = []
    for _ in range(2):
        before = time.process_time()
        engine.cut()
        cuts.append(time.process_time() - before)
    rows = engine.logs.coordinator(name).view().log_end_offset
    each = 1_000 / partitions
    return Report(
        partitions,
        (committed - began) * each,
        (produced - began) * each,
        (committed - produced) * each,
        cuts[0] * each,
        cuts[1] * each,
        rows,
    )


def reports(url: str, sizes: list[int]) -> Iterator[Report]:
    """One for each size, of the same store."""
    with txn_engine.connect(url) as engine:
        for size in sizes:
            yield measure(engine, size, name=f"wide-{size}-{os.getpid()}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, nargs="+", default=[250, 1_000, 4_000, 10_000])
    parser.add_argument("--url", help="an empty store; by default a temporary folder")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        for report in reports(given.url or f"{folder}/store", given.partitions):
            print("  ".join(f"{name} {value:,.2f}" for name, value in asdict(report).items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
