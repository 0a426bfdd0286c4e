"""Loading csv: with bad rows beside without, reading beside PyArrow's readers, and the memory of a large load."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from txn_engine.bench.measure import Measured, paired, ratio_of
from txn_engine.bench.payments import SCHEMA, payments
from txn_engine.bench.progress import Progress
from txn_engine.engine import Engine
from txn_engine.files import read_records
from txn_engine.loading import DEAD_LETTERS, load_files
from txn_engine.value_text import json_records

_AIM: Final = 0.8
_AIM_MIB: Final = 512
_EVERY: Final = 100
_BLOCK_ROWS: Final = 200_000


@dataclass(frozen=True, slots=True)
class LoadSizes:
    """Rows of the two files, how often they are loaded, and rows of the one whose memory is looked at."""

    rows: int
    rounds: int
    large_rows: int


QUICK, USUAL = LoadSizes(100_000, 3, 500_000), LoadSizes(1_000_000, 5, 10_000_000)


def load_numbers(engine: Engine, prefix: str, *, sizes: LoadSizes, progress: Progress) -> Iterator[Measured]:
    """Each load is a run of its own, into one topic."""
    topic, dead = f"{prefix}-loads", f"{prefix}-dead"
    engine.admin.create_topic(topic, partitions=4, schema=SCHEMA, key="account_id")
    engine.admin.create_topic(dead, partitions=1, schema=DEAD_LETTERS)
    runs = count()

    def load(path: Path) -> None:
        done = next(runs)
        progress("loads", done, 2 * (sizes.rounds + 1))
        load_files(engine, topic, path, run_id=str(done), dead_letter_topic=dead)

    with tempfile.TemporaryDirectory(prefix="txn-engine-bench-", dir=".") as folder:
        good, bad = Path(folder, "good.csv"), Path(folder, "bad.csv")
        write_csv(good, sizes.rows, bad_every=0)
        write_csv(bad, sizes.rows, bad_every=_EVERY)
        mine, theirs = paired(lambda: load(bad), lambda: load(good), sizes.rounds, warm_up=1)
        yield _beside("load, 1 row in 100 bad", mine, theirs, sizes, "the same without bad rows", _AIM)
        mine, theirs = paired(lambda: _read(good), lambda: _read_bare(good), sizes.rounds, warm_up=1)
        yield _beside("read csv", mine, theirs, sizes, "pyarrow.csv, which checks less", 0.0)
        bad.unlink()
        lines = Path(folder, "good.jsonl")
        write_json_lines(lines, sizes.rows)
        mine, theirs = paired(lambda: _read(lines), lambda: _read_bare_json(lines), sizes.rounds, warm_up=1)
        yield _beside("read jsonl", mine, theirs, sizes, "pyarrow.json, which checks less", 0.0)
        lines.unlink()
        progress("a large load", 0, 1)
        write_csv(good, sizes.large_rows, bad_every=_EVERY)
        yield _memory(engine, topic, dead, good, sizes)


def write_csv(path: Path, rows: int, *, bad_every: int) -> None:
    """So many payments; where it is not 0, every so many-th is bad: no number, no day, or fields too few, in turn."""
    with path.open("w", encoding="utf-8") as stream:
        stream.write(",".join(SCHEMA.names) + "\n")
        for first in range(0, rows, _BLOCK_ROWS):
            table = payments(min(_BLOCK_ROWS, rows - first), first)
            texts: list[list[Any]] = [column.cast(pa.string()).to_pylist() for column in table.columns]
            lines = list(map(",".join, zip(*texts, strict=True)))
            for place in range(0, len(lines) if bad_every else 0, bad_every or 1):
                fields = lines[place].split(",")
                lines[place] = (
                    ",".join([*fields[:4], "x"]),
                    ",".join([*fields[:2], "1999-02-30", *fields[3:]]),
                    ",".join(fields[:4]),
                )[place // bad_every % 3]
            stream.write("\n".join(lines) + "\n")


def write_json_lines(path: Path, rows: int) -> None:
    """So many payments, each a line of JSON."""
    with path.open("w", encoding="utf-8") as stream:
        for first in range(0, rows, _BLOCK_ROWS):
            table = payments(min(_BLOCK_ROWS, rows - first), first)
            stream.write("\n".join(json_records(table, "text")) + "\n")


def _read(path: Path) -> None:
    for _ in read_records(path, SCHEMA):
        pass


def _read_bare(path: Path) -> None:
    types = {field.name: field.type for field in SCHEMA}
    pa_csv.read_csv(path, convert_options=pa_csv.ConvertOptions(column_types=types))


def _read_bare_json(path: Path) -> None:
    kinds = [(field.name, pa.string() if pa.types.is_date(field.type) else field.type) for field in SCHEMA]
    pa_json.read_json(path, parse_options=pa_json.ParseOptions(explicit_schema=pa.schema(kinds)))


def _beside(
    name: str, mine: list[float], theirs: list[float], sizes: LoadSizes, beside: str, aim: float
) -> Measured:
    """In rows a second, so that a ratio below 1 is slower."""
    ratio = 1 / ratio_of(mine, theirs)
    ours, bare = (sizes.rows / statistics.median(seconds) / 1e6 for seconds in (mine, theirs))
    told = f">= {aim}" if aim else "none"
    note = f"{sizes.rows:,} rows of {len(SCHEMA.names)} columns; bare: {beside}"
    return Measured(name, "M rows/s", ours, bare, ratio, told, ratio >= aim, len(mine), note)


def _memory(engine: Engine, topic: str, dead: str, path: Path, sizes: LoadSizes) -> Measured:
    """The most that a process of its own held."""
    child = [sys.executable, "-m", "txn_engine.bench.load_child", engine.url, topic, dead, str(path)]
    done = subprocess.run(child, check=True, capture_output=True, text=True)
    mib = int(done.stdout) / 2**20
    note = f"{sizes.large_rows:,} rows, {path.stat().st_size / 1e6:,.0f} MB, 1 in 100 bad; the aim is the bare limit"
    met = mib <= _AIM_MIB
    return Measured(
        "memory of a load", "MiB", mib, _AIM_MIB, mib / _AIM_MIB, f"<= {_AIM_MIB} MiB", met, 1, note
    )
