"""What compaction by key takes, beside reading and writing the same files bare.

python -m tests.maintain.scale 100000000 10000000     so many records of so many keys, in files of a million

The records are written to one partition on the local disk. Then, each in a process of its own, one after the other:
`txn-engine maintain compact` (with whatever else is given: `--engine spark`), and PyArrow over the very same files:
all of them read, and written again with the same columns and compression, either all records or as many as stay.
Printed are seconds, the most memory that all processes of the compaction held at once, and the ratios.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage import LARGE
from tests.numbers import Run
from tests.quality.scale import measured
from txn_engine import connect

TOPIC = "table"
SCHEMA = pa.schema([("key", pa.int64()), ("amount", pa.int64()), ("note", pa.string())])
_CHUNK = 1_000_000


@dataclass(frozen=True, slots=True)
class Report:
    """Seconds and bytes. `bare_*` are PyArrow's for the same files, and `ratio_*` compares compaction with
    it."""

    engine: str
    records: int
    kept: int
    compact_s: float
    compact_memory_mb: int
    bare_all_s: float
    bare_kept_s: float
    ratio_all: float
    ratio_kept: float


def generate(url: str, records: int, keys: int) -> None:
    """A topic of one partition that is compacted by key, with this many records."""
    with connect(url) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, key="key", cleanup_policy="compact")
        log = engine.partition(TOPIC, 0)
        for first in range(0, records, _CHUNK):
            log.append(_records(first, min(_CHUNK, records - first), keys))
            _tell(f"{min(first + _CHUNK, records):,} of {records:,} records written")


def _records(first: int, count: int, keys: int) -> pa.Table:
    drawn = np.random.default_rng(first)  # keys in no order: of each some records in many files
    notes = [f"payment {number % 9_973} of {number % 101}" for number in range(first, first + count)]
    amounts = drawn.integers(0, 1_000_000, count)
    columns = [pa.array(drawn.integers(0, keys, count)), pa.array(amounts), pa.array(notes)]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def bare(paths: list[Path], scratch: Path, keep_one_in: int) -> None:
    """Read each file, all columns, and write every n-th of its rows to another, as the engine would encode it."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        for number, path in enumerate(paths):
            table = pq.read_table(path, memory_map=True)
            if keep_one_in > 1:
                table = table.slice(0, max(table.num_rows // keep_one_in, 1))
            pq.write_table(
                table,
                Path(folder, f"{number}.parquet"),
                compression=LARGE.compression,
                compression_level=LARGE.compression_level,
                use_dictionary=False,
                write_statistics=bool(LARGE.write_statistics),
                write_page_checksum=LARGE.page_checksum,
                store_schema=False,
            )


def measure(store: Path, scratch: Path, arguments: list[str]) -> Report:
    """Compact the store's topic, and let PyArrow read and write the same input files."""
    with connect(store.as_uri()) as engine:
        files = engine.scan(TOPIC).files()
    listed = Path(scratch, "files")
    listed.write_text("\n".join(file.uri.removeprefix("file://") for file in files))
    command = [sys.executable, "-m", "txn_engine", "maintain", "compact", "--url", store.as_uri()]
    command += ["--topic", TOPIC, "--dirty-ratio", "0", "--json", *arguments]
    compact_s, compact_memory, out = measured(command)
    (done,) = json.loads(out)["compacted"]
    records = sum(file.record_count for file in files)
    every = max(records // done["records"], 1)
    module = [sys.executable, "-m", "tests.maintain.scale", "--bare", str(listed), "--one-in"]
    bare_all_s, _, _ = measured([*module, "1"])
    bare_kept_s, _, _ = measured([*module, str(every)])
    return Report(
        engine=done.get("engine", "local"),
        records=records,
        kept=done["records"],
        compact_s=round(compact_s, 1),
        compact_memory_mb=round(compact_memory / 1e6),
        bare_all_s=round(bare_all_s, 1),
        bare_kept_s=round(bare_kept_s, 1),
        ratio_all=round(compact_s / bare_all_s, 2),
        ratio_kept=round(compact_s / bare_kept_s, 2),
    )


def _tell(text: str) -> None:
    print(f"\r{text}", end="", file=sys.stderr, flush=True)


def main() -> None:
    """Generate, compact, and print one figure a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("records", type=int, nargs="?", default=10_000_000)
    parser.add_argument("keys", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--scratch", type=Path, help="the store is made in there, and removed")
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--one-in", type=int, default=1, help=argparse.SUPPRESS)
    given, arguments = parser.parse_known_args()
    if given.bare is not None:
        bare([Path(line) for line in given.bare.read_text().splitlines()], given.bare.parent, given.one_in)
        return
    run = Run("compaction", sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="txn-engine-scale-", dir=given.scratch) as folder:
        store = Path(folder, "ledger")
        generate(store.as_uri(), given.records, given.keys)
        print(file=sys.stderr)
        report = measure(store, Path(folder), arguments)
    for name, value in asdict(report).items():
        print(f"{name:20} {value:,}" if isinstance(value, int | float) else f"{name:20} {value}")
    run.record(asdict(report), of=report.engine)


if __name__ == "__main__":
    main()
