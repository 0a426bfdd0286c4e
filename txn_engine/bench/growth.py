"""`txn-engine bench --growth`: how cost grows with appends, live files, writers and transactional ids."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from txn_engine.bench.children import run_children
from txn_engine.bench.measure import timed
from txn_engine.bench.payments import SCHEMA, payments
from txn_engine.engine import Engine, connect

Say = Callable[[str], None]
_ROWS = 100
_FILES_A_FLUSH = 500
_ID_THREADS = 8


@dataclass(frozen=True, slots=True)
class GrowthSizes:
    """How far each curve goes, in how many steps that double; writers, and for how long each group writes."""

    appends: int
    files: int
    ids: int
    steps: int
    writer_s: float
    on_one: tuple[int, ...]
    on_sixteen: tuple[int, ...]


QUICK = GrowthSizes(4_000, 8_000, 1_600, 4, 4.0, (1, 4, 8, 16), (1, 4, 16))
FULL = GrowthSizes(100_000, 200_000, 100_000, 6, 20.0, (1, 4, 8, 16), (1, 4, 16))


@dataclass(frozen=True, slots=True)
class Appends:
    """Appends of 100 rows up to the `number`th, from the point before on."""

    number: int
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Files:
    """A fresh process's plan of a read over so many live files, by the log alone and by a snapshot."""

    files: int
    open_s: float
    open_by_snapshot_s: float
    memory_mb: float
    memory_by_snapshot_mb: float
    snapshot_mb: float


@dataclass(frozen=True, slots=True)
class Writers:
    """Processes that append at once. `lost`: puts that another one's entry was in the way of, of all to the log;
    `refused`: appends that were given up; `slowest`: the appends of the slowest, over those of the quickest.
    """

    writers: int
    partitions: int
    appends_a_second: float
    p50_ms: float
    p99_ms: float
    slowest: float
    lost: float
    refused: int


@dataclass(frozen=True, slots=True)
class Ids:
    """So many transactional ids: a known one initialised, all swept and listed by fresh processes, and listed again.
    `by_snapshot`: with snapshots of the coordinator's logs.
    """

    ids: int
    by_snapshot: bool
    init_s: float
    sweep_s: float
    list_s: float
    again_s: float


def growth_report(url: str, prefix: str, sizes: GrowthSizes, say: Say) -> dict[str, Any]:
    """All four curves on one store; what `--json` prints."""
    with connect(url) as engine:
        return {
            "bench": "growth",
            "store": engine.url,
            "sizes": asdict(sizes),
            "appends": [asdict(point) for point in _appends(engine, f"{prefix}-appends", sizes, say)],
            "writers": [asdict(point) for point in _writers(engine, f"{prefix}-writers", sizes, say)],
            "files": [asdict(point) for point in _files(engine, f"{prefix}-files", sizes, say)],
            "ids": [asdict(point) for point in _ids(engine, f"{prefix}-id", sizes, say)],
        }


def _steps(most: int, steps: int) -> list[int]:
    """Up to the most, each twice the one before."""
    return [most >> (steps - 1 - step) for step in range(steps)]


def _p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[max(0, -(-99 * len(seconds) // 100) - 1)]


def _appends(engine: Engine, topic: str, sizes: GrowthSizes, say: Say) -> Iterator[Appends]:
    """One process, one partition, one after the other."""
    engine.admin.create_topic(topic, partitions=1, schema=SCHEMA, key="account_id")
    log, records, done = engine.partition(topic, 0), payments(_ROWS), 0
    log.append(records)
    for number in _steps(sizes.appends, 2 * sizes.steps):
        if number == done:
            continue
        say(f"appends {done:,} to {number:,}")
        seconds = [timed(lambda: log.append(records)) for _ in range(number - done)]
        done = number
        yield Appends(number, statistics.median(seconds) * 1e3, _p99(seconds) * 1e3)


def _writers(engine: Engine, prefix: str, sizes: GrowthSizes, say: Say) -> Iterator[Writers]:
    """Each group on a topic of its own."""
    groups = [(1, count) for count in sizes.on_one] + [(16, count) for count in sizes.on_sixteen]
    for partitions, count in groups:
        say(f"writers: {count} on {partitions} partition{'s' * (partitions > 1)}")
        topic = f"{prefix}-{count}-on-{partitions}"
        engine.admin.create_topic(topic, partitions=partitions, schema=SCHEMA, key="account_id")
        task = {"task": "write", "url": engine.url, "topic": topic, "partitions": partitions}
        answers = run_children([task | {"number": n, "seconds": sizes.writer_s} for n in range(count)])
        seconds = [each for answer in answers for each in answer["append_s"]] or [sizes.writer_s]
        made = [len(answer["append_s"]) for answer in answers]
        yield Writers(
            count,
            partitions,
            sum(len(answer["append_s"]) / answer["seconds"] for answer in answers),
            statistics.median(seconds) * 1e3,
            _p99(seconds) * 1e3,
            min(made) / max(*made, 1),
            sum(answer["lost"] for answer in answers) / max(sum(answer["puts"] for answer in answers), 1),
            sum(answer["refused"] for answer in answers),
        )


def _files(engine: Engine, topic: str, sizes: GrowthSizes, say: Say) -> Iterator[Files]:
    """Files of ten rows, many to an entry; each step without a snapshot first, and then with one."""
    engine.admin.create_topic(topic, partitions=1, schema=SCHEMA, key="account_id")
    records, done, snapshots = payments(10), 0, f"topics/{topic}/0/0/snapshots"
    task = {"task": "open", "url": engine.url, "topic": topic}
    for number in _steps(sizes.files, sizes.steps):
        say(f"live files {done:,} to {number:,}")
        with engine.producer() as producer:
            while done < number:
                for _ in range(min(_FILES_A_FLUSH, number - done)):
                    producer.produce(topic, records, partition=0)
                    done += 1
                producer.flush()
        _delete_below(engine, snapshots)
        (by_log,) = run_children([task])
        engine.admin.snapshot(topic)
        size = [info.size for info in engine.store.list(snapshots)][-1]
        (by_snapshot,) = run_children([task])
        yield Files(
            by_snapshot["files"],
            by_log["open_s"],
            by_snapshot["open_s"],
            by_log["memory_bytes"] / 1e6,
            by_snapshot["memory_bytes"] / 1e6,
            size / 1e6,
        )


def _ids(engine: Engine, prefix: str, sizes: GrowthSizes, say: Say) -> Iterator[Ids]:
    """Ids at rest, each initialised once; each step without snapshots first, and then with them."""
    done, folder = 0, "topics/__transaction_state/0"
    task = {"task": "ids", "url": engine.url, "id": f"{prefix}-0"}

    def init(number: int) -> None:
        with engine.producer(transactional_id=f"{prefix}-{number}") as producer:
            producer.init_transactions()

    for number in _steps(sizes.ids, sizes.steps):
        say(f"transactional ids {done:,} to {number:,}")
        with ThreadPoolExecutor(_ID_THREADS) as threads:
            for _ in threads.map(init, range(done, number)):
                pass
        done = number
        for partition in engine.store.list_folders(folder):
            _delete_below(engine, f"{folder}/{partition}/snapshots")
        (answer,) = run_children([task])
        yield Ids(by_snapshot=False, **answer)
        engine.admin.snapshot("__transaction_state")
        (answer,) = run_children([task])
        yield Ids(by_snapshot=True, **answer)


def _delete_below(engine: Engine, prefix: str) -> None:
    """Remove snapshots of logs of the bench's own, whose entries are all there."""
    for info in list(engine.store.list(prefix)):
        engine.store.delete(info.key)
