"""How much memory and time an audit of a large log takes.

    python -m tests.verify.scale                                  10 million records in batches of 100,000
    python -m tests.verify.scale --records 10_000_000 --batch 100 the same in 100,000 small entries
    python -m tests.verify.scale --workers 0 1 8                  several audits of the same log

The log is written by docs/FORMAT.md, with no engine, into a folder that is removed at the end. Each audit runs in a
process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from storage import open_store
from storage.envelope import LARGE, SMALL, encode_parquet, stored_checksum
from tests.verify.raw_ledger import PAYMENTS, Ledger, Row
from txn_engine.verify import verify_store

_PRODUCERS = 16
_LARGE_FROM = 1_000


class Folder:
    """Objects straight into files: what is written here need not survive a power cut."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: set[Path] = set()

    def put(self, key: str, data: bytes) -> None:
        path = self._root / key
        if path.parent not in self._made:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(path.parent)
        path.write_bytes(data)


def records(count: int, stamp: int) -> pa.Table:
    """Payments whose notes do not compress away."""
    numbers = np.random.default_rng(7).integers(0, 1 << 62, count)
    notes = pa.array([f"{number:040x}" for number in numbers.tolist()], pa.large_string())
    amounts = pa.array(numbers % 10_000_000).cast(pa.decimal128(21, 2)).cast(PAYMENTS.field("amount").type)
    deltas = pa.array(np.arange(count, dtype=np.int64))
    stamps = pa.array(np.full(count, stamp, np.int64)).cast(pa.timestamp("ms", tz="UTC"))
    return pa.table(
        [pa.array(numbers), amounts, notes, deltas, stamps], [*PAYMENTS.names, "_offset_delta", "_timestamp"]
    )


def batches(ledger: Ledger, total: int, batch: int) -> Iterator[Row]:
    """Plain batches of idempotent producers in turn, each with its data file."""
    stamp = ledger.now_ms
    table = records(batch, stamp)
    profile = LARGE if batch >= _LARGE_FROM else SMALL
    for number in range(total // batch):
        producer_id, write_id = number % _PRODUCERS, ledger.write_id()
        path = f"data/{number * batch:020d}-p{producer_id}-e0-{write_id}.parquet"
        data = encode_parquet(table, kind="data", metadata={"write_id": write_id}, profile=profile)
        ledger.store.put(f"topics/payments/0/0/{path}", data)
        yield {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "base_sequence": number // _PRODUCERS * batch % 2**31,
            "record_count": batch,
            "first_timestamp": stamp,
            "data_path": path,
            "data_bytes": len(data),
            "checksum": stored_checksum(data),
        }


def build(root: Path, total: int, batch: int) -> int:
    """Write the log; return how many bytes it takes."""
    ledger = Ledger(store=Folder(root))  # type: ignore[arg-type]
    ledger.create()
    ledger.topic("payments", 1)
    for row in batches(ledger, total, batch):
        ledger.entry("payments", 0, row)
    return sum(path.stat().st_size for path in root.rglob("*.*"))


def audit(root: Path, workers: int) -> dict[str, object]:
    """Audit it in this process; what it took."""
    started = time.perf_counter()
    report = verify_store(open_store(root.as_uri(), create=False), workers=workers)
    return {
        "ok": report.ok,
        "objects": report.stats.objects,
        "records": report.stats.records,
        "workers": workers,
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time(), 1),
        "peak_rss_mb": peak_rss_mb(),
    }


def peak_rss_mb() -> int:
    """The most memory that this program has had. Linux counts in `ru_maxrss` what its parent had, too, at the fork."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20  # macOS: bytes
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) >> 10


def main() -> None:
    """Build, audit, print a line of JSON for each audit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--batch", type=int, default=100_000, help="records in a batch")
    parser.add_argument("--workers", type=int, nargs="+", default=[8])
    parser.add_argument("--audit", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.audit is not None:
        print(json.dumps(audit(given.audit, given.workers[0])))
        return
    with tempfile.TemporaryDirectory(prefix="txn-engine-scale-") as folder:
        started = time.perf_counter()
        size = build(Path(folder), given.records, given.batch)
        built = round(time.perf_counter() - started, 1)
        print(
            json.dumps({"entries": given.records // given.batch, "mb": size >> 20, "built_in_seconds": built})
        )
        for workers in given.workers:
            command = [
                sys.executable,
                "-m",
                "tests.verify.scale",
                "--audit",
                folder,
                "--workers",
                str(workers),
            ]
            subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.getcwd()})


if __name__ == "__main__":
    main()
