"""How much memory and time an audit of a large log takes.

    python -m tests.verify.scale                                  10 million records in batches of 100,000
    python -m tests.verify.scale --records 10_000_000 --batch 100 the same in 100,000 small entries
    python -m tests.verify.scale --records 50_000_000 --batch 100 a million objects (7 GB, half an hour)
    python -m tests.verify.scale --write                          the logs of docs/VERIFY.md, and its table

The log is written by docs/FORMAT.md, with no engine, into a folder that is removed at the end. Each audit runs in a
process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
import psutil
import pyarrow as pa
import xxhash

from storage import open_store
from storage.envelope import LARGE, SMALL, encode_parquet, stored_checksum
from tests.numbers import Run
from tests.verify.raw_ledger import PAYMENTS, Ledger, Row
from txn_engine.verify import verify_store

PAGE = Path(__file__).parents[2] / "docs" / "VERIFY.md"
BEGIN, END = "<!-- made by python -m tests.verify.scale --write -->\n", "<!-- measured to here -->\n"
COLUMNS = (
    "log",
    "objects",
    "whole, s",
    "all bytes read and hashed, s",
    "1 % later, s",
    "memory of all processes",
    "code",
)
PROCESSES = (os.cpu_count() or 1) + 1  # as the command line has it
LOGS = ((0, 1), (10_000_000, 100_000), (1_000_000, 100))
"""Of the page: records, and how many of them to a batch."""

_PRODUCERS = 16
_LARGE_FROM = 1_000


class Folder:
    """A store that writes objects straight into files, because they need not survive a power cut."""

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
    """Payments whose notes cannot be compressed."""
    numbers = np.random.default_rng(7).integers(0, 1 << 62, count)
    notes = pa.array([f"{number:040x}" for number in numbers.tolist()], pa.large_string())
    amounts = pa.array(numbers % 10_000_000).cast(pa.decimal128(21, 2)).cast(PAYMENTS.field("amount").type)
    deltas = pa.array(np.arange(count, dtype=np.int64))
    stamps = pa.array(np.full(count, stamp, np.int64)).cast(pa.timestamp("ms", tz="UTC"))
    return pa.table(
        [pa.array(numbers), amounts, notes, deltas, stamps], [*PAYMENTS.names, "_offset_delta", "_timestamp"]
    )


def batches(ledger: Ledger, total: int, batch: int) -> Iterator[Row]:
    """Plain batches of several idempotent producers in turn, each with its data file."""
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


def set_aside(root: Path, aside: Path) -> int:
    """Move the last hundredth of the log's entries away, so that an audit is made without them. Returns how
    many."""
    log = root / "topics" / "payments" / "0" / "0" / "log"
    last = sorted(log.iterdir())[-(len(os.listdir(log)) // 100) :] if log.is_dir() else []
    aside.mkdir()
    for path in last:
        path.rename(aside / path.name)
    return len(last)


def bring_back(root: Path, aside: Path) -> None:
    """Move the entries back, as if they had been written since."""
    for path in aside.iterdir():
        path.rename(root / "topics" / "payments" / "0" / "0" / "log" / path.name)


def audit(root: Path, workers: int, processes: int, state: Path | None) -> dict[str, object]:
    """Audit the store in this process and the processes that it starts. Returns what it took."""
    started = time.perf_counter()
    with MemoryOfAll() as memory:
        store = open_store(root.as_uri(), create=False)
        report = verify_store(store, workers=workers, processes=processes, kept_in=state)
    return {
        "ok": report.ok,
        "read": report.stats.objects,
        "unchanged": report.stats.unchanged,
        "records": report.stats.records,
        "workers": workers,
        "processes": processes,
        "seconds": round(time.perf_counter() - started, 1),
        "peak_mb": memory.peak_mb,
    }


def read_bare(root: Path) -> dict[str, object]:
    """Read and hash every byte of the store, one file after the other: no audit can take less."""
    started, objects = time.perf_counter(), 0
    for folder, _, names in os.walk(root):
        for name in names:
            xxhash.xxh3_128_digest(Path(folder, name).read_bytes())
            objects += 1
    return {"objects": objects, "bare_seconds": round(time.perf_counter() - started, 1)}


class MemoryOfAll:
    """The most memory that this process and its children had at one time, measured each tenth of a second.

    Memory that they share counts for each of them.
    """

    def __init__(self) -> None:
        self.peak_mb = 0
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()

    def _look(self) -> None:
        me = psutil.Process()
        is_over = False
        while not is_over:
            is_over = self._over.wait(0.1)  # and looks once more: an audit may take less than that
            held = 0
            for each in (me, *me.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    held += each.memory_info().rss
            self.peak_mb = max(self.peak_mb, held >> 20)


def measure(total: int, batch: int, workers: int, processes: int) -> dict[str, Any]:
    """Build a log, audit it, read it bare, and audit it again after a hundredth was added, each in a process
    of its own."""
    with tempfile.TemporaryDirectory(prefix="txn-engine-scale-") as name:
        root, aside, state = (Path(name, each) for each in ("store", "aside", "state"))
        started = time.perf_counter()
        size = build(root, total, batch)
        built = round(time.perf_counter() - started, 1)
        added = set_aside(root, aside)
        tell({"entries": total // batch, "mb": size >> 20, "built_in_seconds": built, "added_later": added})
        asked = ["--workers", str(workers), "--processes", str(processes), "--state", str(state)]
        most = tell(alone("--audit", str(root), *asked))
        bare = tell(alone("--bare", str(root)))
        bring_back(root, aside)
        later = tell(alone("--audit", str(root), *asked))
        whole = most["seconds"]
        tell({"of_bare": round(whole / max(bare["bare_seconds"], 0.1), 1)})
        return {**most, **bare, "later_seconds": later["seconds"]}


def tell(seen: dict[str, Any]) -> dict[str, Any]:
    """Print a line of JSON."""
    print(json.dumps(seen), flush=True)
    return seen


def alone(*asked: str) -> dict[str, Any]:
    """What this program prints when it runs in a process of its own."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.verify.scale", *asked],
        check=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        stdout=subprocess.PIPE,
        text=True,
    )
    answer: dict[str, Any] = json.loads(told.stdout)
    return answer


# --- the page ---------------------------------------------------------------------------------------------


def words(total: int, batch: int) -> str:
    """The name of a log in the table."""
    return f"{total:,} records in {total // batch:,} batches" if total else "no records"


def render(rows: Sequence[Sequence[str]]) -> str:
    """The table with these rows."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def table_of_page() -> str:
    """The text between the marks of the page."""
    return PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]


def write_page() -> None:
    """Measure the logs of the page, and write its table."""
    code = Run("damage", []).code
    rows = []
    for total, batch in LOGS:
        seen = measure(total, batch, 8, PROCESSES)
        figures = (
            f"{seen['objects']:,}",
            f"{seen['seconds']:.1f}",
            f"{seen['bare_seconds']:.1f}",
            f"{seen['later_seconds']:.1f}",
            f"{seen['peak_mb']:,} MB",
            code,
        )
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
    parser.add_argument("--workers", type=int, default=8, help="threads that read")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="processes that decode")
    parser.add_argument("--write", action="store_true", help="the logs of docs/VERIFY.md, into its table")
    parser.add_argument("--audit", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--state", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.audit is not None:
        tell(audit(given.audit, given.workers, given.processes, given.state))
    elif given.bare is not None:
        tell(read_bare(given.bare))
    elif given.write:
        write_page()
    else:
        measure(given.records, given.batch, given.workers, given.processes)


if __name__ == "__main__":
    main()
