"""Backups and restores, beside a program that copies the same files and knows nothing of what is in them."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa

from storage import LocalStore, ObjectStore, open_store
from txn_engine.backup import restore
from txn_engine.bench.measure import Measured, paired
from txn_engine.bench.progress import Progress
from txn_engine.engine import Engine
from txn_engine.errors import TxnEngineError

_FIELDS: list[tuple[str, pa.DataType]] = [("id", pa.int64()), ("value", pa.binary())]
_SCHEMA = pa.schema(_FIELDS)
_VALUE_BYTES = 1_000
_PARTITIONS = 4
_AIM = 0.8
_THREADS_NEAR, _THREADS_FAR = 16, 32  # as many as the engine has


@dataclass(frozen=True, slots=True)
class BackupSizes:
    """Data files, how large each is, and how often they are copied."""

    large_files: int
    large_rows: int
    small_files: int
    small_rows: int
    rounds: int


QUICK, USUAL = BackupSizes(8, 8_000, 200, 20, 3), BackupSizes(32, 16_000, 1_000, 20, 5)


@dataclass(frozen=True, slots=True)
class _File:
    key: str
    bytes: int


class Places:
    """Fresh places below one: each run has its own, and on the local disk goes when it is over."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._numbers = count()

    def fresh(self) -> ObjectStore:
        """A place that nothing was ever put into."""
        return open_store(f"{self._url}-{next(self._numbers)}")

    def drop(self, store: ObjectStore) -> None:
        """Remove what is there, where that is a folder."""
        if isinstance(store, LocalStore):
            shutil.rmtree(Path(store.uri("x")).parent)


def backup_numbers(
    engine: Engine, prefix: str, places: Places, *, sizes: BackupSizes, progress: Progress
) -> Iterator[Measured]:
    """A backup of everything in the store, into a place that is empty: of few large files, then of many small ones
    beside them. Of the large ones a restore too.
    """
    large = _load(engine, f"{prefix}-large", sizes.large_files, sizes.large_rows, progress)
    yield _backup("backup, large files", engine, places, large, sizes.rounds, progress)
    yield _restore(engine, places, large, sizes.rounds, progress)
    small = _load(engine, f"{prefix}-small", sizes.small_files, sizes.small_rows, progress)
    yield _backup("backup, small files too", engine, places, [*large, *small], sizes.rounds, progress)


def _load(engine: Engine, topic: str, files: int, rows: int, progress: Progress) -> list[_File]:
    engine.admin.create_topic(topic, partitions=_PARTITIONS, schema=_SCHEMA)
    chance = np.random.default_rng(files)
    with engine.producer(transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(files):
            progress(f"files of {rows:,} rows", number, files)
            values = pa.py_buffer(chance.bytes(rows * _VALUE_BYTES))
            ends = np.arange(rows + 1, dtype=np.int32) * _VALUE_BYTES
            column = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends.data), values])
            table = pa.table([pa.array(range(rows), pa.int64()), column], schema=_SCHEMA)
            with producer.transaction():
                producer.produce(topic, table, partition=number % _PARTITIONS)
    start = engine.store.uri("")
    return [_File(file.uri.removeprefix(start), file.bytes) for file in engine.scan(topic).files()]


def _backup(
    name: str, engine: Engine, places: Places, files: Sequence[_File], rounds: int, progress: Progress
) -> Measured:
    def ours(place: ObjectStore) -> None:
        made = engine.backup(place)
        if made.counts.new_files != len(files):
            raise TxnEngineError(f"{made.counts.new_files} files", actor="bench", expected=f"{len(files)}")

    return _beside_bare(name, engine.store, places, files, rounds, progress, ours)


def _restore(
    engine: Engine, places: Places, files: Sequence[_File], rounds: int, progress: Progress
) -> Measured:
    backups = places.fresh()
    engine.backup(backups)

    def ours(target: ObjectStore) -> None:
        restore(backups, target)

    measured = _beside_bare("restore, large files", backups, places, files, rounds, progress, ours)
    places.drop(backups)
    return measured


def _beside_bare(
    name: str,
    source: ObjectStore,
    places: Places,
    files: Sequence[_File],
    rounds: int,
    progress: Progress,
    ours: Callable[[ObjectStore], None],
) -> Measured:
    done = count(1)

    def into_a_fresh_place(copy: Callable[[ObjectStore], None]) -> Callable[[], None]:
        def run() -> None:
            target = places.fresh()
            copy(target)
            progress(name, next(done), 2 * (rounds + 1))
            filled.append(target)

        return run

    filled: list[ObjectStore] = []
    alone = into_a_fresh_place(lambda target: _copy(source, target, files))
    mine, theirs = paired(into_a_fresh_place(ours), alone, rounds, warm_up=1)
    for target in filled:
        places.drop(target)
    size = sum(file.bytes for file in files)
    ratio = statistics.median(b / a for a, b in zip(mine, theirs, strict=True))
    fast, bare_fast = (size / statistics.median(seconds) / 1e6 for seconds in (mine, theirs))
    note = f"{len(files):,} data files, {size / 1e6:,.0f} MB; bare: get and put-if-absent of each, as many at once"
    return Measured(name, "MB/s", fast, bare_fast, ratio, f"at least {_AIM}", ratio >= _AIM, len(mine), note)


def _copy(source: ObjectStore, target: ObjectStore, files: Sequence[_File]) -> None:
    """What a program does that knows the keys alone."""

    def one(file: _File) -> None:
        if not target.put_if_absent(file.key, source.get(file.key)):
            raise TxnEngineError("a key that is taken", actor="bench", place=target.uri(file.key))

    threads = _THREADS_NEAR if isinstance(source, LocalStore) else _THREADS_FAR
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, files))
