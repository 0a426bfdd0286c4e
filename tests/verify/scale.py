"""How much memory and time an audit of a large log takes.

    python -m tests.verify.scale                                  10 million records in batches of 100,000
    python -m tests.verify.scale --records 10_000_000 --batch 100 the same in 100,000 small entries
    python -m tests.verify.scale --workers 0 1 8                  several audits of the same log
    python -m tests.verify.scale --write                          the logs of docs/VERIFY.md, and its table

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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from storage import open_store
from storage.envelope import LARGE, SMALL, encode_parquet, stored_checksum
from tests.numbers import Run
from tests.verify.raw_ledger import PAYMENTS, Ledger, Row
from txn_engine.verify import verify_store

PAGE = Path(__file__).parents[2] / "docs" / "VERIFY.md"
BEGIN, END = "<!-- made by python -m tests.verify.scale --write -->\n", "<!-- measured to here -->\n"
COLUMNS = ("log", "objects", "processor seconds", "peak memory of the process", "code")
LOGS = ((0, 1), (10_000_000, 100_000), (1_000_000, 100))
"""Of the page: records, and how many of them to a batch."""

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


def measure(total: int, batch: int, workers: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Build a log, and audit it in a process of its own for each number of workers."""
    with tempfile.TemporaryDirectory(prefix="txn-engine-scale-") as folder:
        started = time.perf_counter()
        size = build(Path(folder), total, batch)
        built = round(time.perf_counter() - started, 1)
        print(json.dumps({"entries": total // batch, "mb": size >> 20, "built_in_seconds": built}))
        for number in workers:
            told = subprocess.run(
                [sys.executable, "-m", "tests.verify.scale", "--audit", folder, "--workers", str(number)],
                check=True,
                env={**os.environ, "PYTHONPATH": os.getcwd()},
                stdout=subprocess.PIPE,
                text=True,
            )
            print(told.stdout, end="", flush=True)
            yield json.loads(told.stdout)


# --- the page ---------------------------------------------------------------------------------------------


def words(total: int, batch: int) -> str:
    """What a log is called in the table."""
    return f"{total:,} records in {total // batch:,} batches" if total else "no records"


def render(rows: Sequence[Sequence[str]]) -> str:
    """The table with these rows."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def table_of_page() -> str:
    """What stands between the marks."""
    return PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]


def write_page() -> None:
    """Measure the logs of the page, and write its table."""
    code = Run("damage", []).code
    rows = []
    for total, batch in LOGS:
        (seen,) = measure(total, batch, [8])
        figures = (f"{seen['objects']:,}", f"{seen['cpu_seconds']:.1f}", f"{seen['peak_rss_mb']} MB", code)
        rows.append((words(total, batch), *figures))
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text.replace(table_of_page(), render(rows)), encoding="utf-8")


def main() -> None:
    """Build, audit, print a line of JSON for each audit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--batch", type=int, default=100_000, help="records in a batch")
    parser.add_argument("--workers", type=int, nargs="+", default=[8])
    parser.add_argument("--write", action="store_true", help="the logs of docs/VERIFY.md, into its table")
    parser.add_argument("--audit", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.audit is not None:
        print(json.dumps(audit(given.audit, given.workers[0])))
    elif given.write:
        write_page()
    else:
        for _ in measure(given.records, given.batch, given.workers):
            pass


if __name__ == "__main__":
    main()
