"""A topic of many small files, compacted, and read before, during and after.

python -m tests.maintain.many_files [--files 10000] [--by-key] [--url file:///tmp/ledger]     prints what it took
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TypeVar

import pyarrow as pa

import txn_engine
from tests.numbers import Run
from txn_engine import Engine
from txn_engine.maintain import MaintenancePolicy

TOPIC = "small-files"
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.string())])
RECORDS_A_FILE = 10
_PAUSE_S = 0.1
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Report:
    """Files, records and seconds; `same_during` and `same_after`: whether readers got what they got before."""

    files_before: int
    files_after: int
    records_before: int
    records_after: int
    write_s: float
    scan_before_s: float
    compact_s: float
    scan_after_s: float
    reads_during: int
    same_during: bool
    same_after: bool


def measure(url: str, *, files: int, keys: int, by_key: bool) -> Report:
    """Write this many files of ten records, and compact them while another engine keeps reading."""
    with txn_engine.connect(url) as engine:
        policy = "compact" if by_key else "delete"
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, key="key", cleanup_policy=policy)
        write_s, _ = _timed(lambda: _write(engine, files, keys))
        scan_before_s, before = _timed(lambda: engine.scan(TOPIC).to_table())
        wanted = _answer(before, by_key)
        files_before = len(engine.scan(TOPIC).files())
        reader = _Reader(url, by_key)
        reader.start()
        eager = MaintenancePolicy(min_dirty_ratio=0.0, target_file_bytes=256 << 20)
        compact_s, _ = _timed(lambda: _compact(engine, eager))
        answers = reader.end()
        scan_after_s, after = _timed(lambda: engine.scan(TOPIC).to_table())
        return Report(
            files_before=files_before,
            files_after=len(engine.scan(TOPIC).files()),
            records_before=before.num_rows,
            records_after=after.num_rows,
            write_s=write_s,
            scan_before_s=scan_before_s,
            compact_s=compact_s,
            scan_after_s=scan_after_s,
            reads_during=len(answers),
            same_during=bool(answers) and all(answer == wanted for answer in answers),
            same_after=_answer(after, by_key) == wanted,
        )


def _compact(engine: Engine, policy: MaintenancePolicy) -> None:
    while engine.maintenance.compact(TOPIC, policy=policy).partitions:
        pass


def _write(engine: Engine, files: int, keys: int) -> None:
    log = engine.partition(TOPIC, 0)
    for number in range(files):
        first = number * RECORDS_A_FILE
        chosen = [(first + n) % keys for n in range(RECORDS_A_FILE)]
        values = [f"value {number} of {key}" for key in chosen]
        log.append(pa.table({"key": chosen, "value": values}, schema=SCHEMA))


def _answer(table: pa.Table, by_key: bool) -> object:
    """What a reader makes of the table: all records with their offsets, or the latest record of each key."""
    columns = (table.column(name).to_pylist() for name in ("key", "value", "_offset"))
    rows = list(zip(*columns, strict=True))
    return {key: (value, offset) for key, value, offset in rows} if by_key else rows


class _Reader(threading.Thread):
    """Reads everything over and over, each time with a fresh engine."""

    def __init__(self, url: str, by_key: bool) -> None:
        super().__init__()
        self._url = url
        self._by_key = by_key
        self._ending = threading.Event()
        self._answers: list[object] = []

    def run(self) -> None:
        """Read until `end` is called, and at least once."""
        while not self._answers or not self._ending.is_set():
            with txn_engine.connect(self._url) as engine:
                self._answers.append(_answer(engine.scan(TOPIC).to_table(), self._by_key))
            self._ending.wait(_PAUSE_S)

    def end(self) -> list[object]:
        """Stop reading. Returns the answers of all reads."""
        self._ending.set()
        self.join()
        return self._answers


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    result = work()
    return round(time.perf_counter() - began, 3), result


def main() -> None:
    """Print the report, a line a figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--by-key", action="store_true")
    parser.add_argument("--url")
    chosen = parser.parse_args()
    run = Run("small-files", sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        url = chosen.url or f"file://{folder}/store"
        report = measure(url, files=chosen.files, keys=chosen.keys, by_key=chosen.by_key)
    for name, value in asdict(report).items():
        print(f"{name:16} {value}")
    run.record(asdict(report), of="by key" if chosen.by_key else "merged")


if __name__ == "__main__":
    main()
