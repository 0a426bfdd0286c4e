"""The bare limit: what a program needs that knows nothing of the engine, for the same information.

It takes the objects that the engine put for one append, or one transaction, as they are on the store: their columns,
their values, their footer's metadata. Each of them it encodes anew by a `pq.ParquetWriter`, in the same compression,
and puts under a key of its own, in the fewest rounds that keep the order. So it follows every change of the format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage import LARGE, UNCOMPRESSED, ObjectStore, open_parquet
from txn_engine.bench.marks import EntryKinds
from txn_engine.bench.watched import Call

_THREADS = 8


@dataclass(frozen=True, slots=True)
class BareObject:
    """An object's table, its footer's metadata, and how it is encoded."""

    table: pa.Table
    metadata: dict[str, str]
    settings: dict[str, Any]

    @classmethod
    def of(cls, data: bytes) -> BareObject:
        """That of a Parquet object of the engine's."""
        opened = open_parquet(data, key="an object of the bench's")
        file, columns = opened.file, opened.footer.row_groups[0].chunks
        settings: dict[str, Any] = {
            "compression": "none",
            "use_dictionary": False,
            "write_statistics": any(column.lowest is not None for column in columns),
            "store_schema": False,
        }
        if columns[0].codec != UNCOMPRESSED:
            settings |= {
                "compression": LARGE.compression,
                "compression_level": LARGE.compression_level,
                "write_page_checksum": LARGE.page_checksum,
            }
        metadata = {name.decode(): value.decode() for name, value in (file.metadata.metadata or {}).items()}
        return cls(file.read(), metadata, settings)

    def encode(self) -> bytes:
        """Its bytes, made anew."""
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, self.table.schema, **self.settings) as writer:
            writer.add_key_value_metadata(self.metadata)
            writer.write_table(self.table)
        return bytes(memoryview(sink.getvalue()))


def bare_objects(store: ObjectStore, calls: Iterable[Call]) -> list[BareObject]:
    """What these calls put, in their order."""
    return [BareObject.of(store.get(call.key)) for call in calls if call.stored]


@dataclass(frozen=True, slots=True)
class BareTransaction:
    """A transaction's objects: row (with all its partitions), data files, entries, decision, markers, Complete row."""

    row: BareObject
    files: list[BareObject]
    entries: list[BareObject]
    decision: BareObject
    markers: list[BareObject]
    completion: BareObject

    @classmethod
    def of(cls, store: ObjectStore, calls: Sequence[Call], kinds: EntryKinds) -> BareTransaction:
        """That of the one transaction that these calls are of; of its Ongoing rows the last."""

        def where(is_wanted: Callable[[str, frozenset[str]], bool]) -> list[BareObject]:
            chosen = [call for call in calls if is_wanted(call.key, kinds.kinds.get(call.key, frozenset()))]
            return bare_objects(store, chosen)

        (decision,) = where(lambda _, found: "PrepareCommit" in found)
        (completion,) = where(lambda _, found: "CompleteCommit" in found)
        return cls(
            where(lambda _, found: "Ongoing" in found)[-1],
            where(lambda key, _: "/data/" in key),
            where(lambda key, found: "/log/" in key and not found),
            decision,
            where(lambda _, found: "marker" in found),
            completion,
        )

    @property
    def objects(self) -> int:
        """How many they are."""
        return 3 + len(self.files) + len(self.entries) + len(self.markers)


@dataclass(slots=True)
class BareWriter:
    """Puts objects under keys of its own; a Complete row while the caller goes on."""

    store: ObjectStore
    prefix: str
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_THREADS))
    numbers: count[int] = field(default_factory=count)
    completion: Future[None] | None = None

    def put(self, thing: BareObject) -> None:
        """Encode and put one object under a fresh key."""
        key = f"{self.prefix}/{next(self.numbers):020d}.parquet"
        if not self.store.put_if_absent(key, thing.encode()):
            raise RuntimeError(f"bench: key {key} was taken")

    def one_by_one(self, things: Sequence[BareObject]) -> None:
        """As an append does: a data file, then its entry."""
        for thing in things:
            self.put(thing)

    def transact(self, transaction: BareTransaction) -> None:
        """To visible in four rounds; the fifth goes on behind the return, and the next one's row waits for it."""
        files = self._start(transaction.files)
        self.rest()
        self.put(transaction.row)
        _wait(files)
        _wait(self._start(transaction.entries))
        self.put(transaction.decision)
        _wait(self._start(transaction.markers))
        self.completion = self.pool.submit(self.put, transaction.completion)

    def rest(self) -> None:
        """Wait for the Complete row that is under way."""
        if self.completion is not None:
            self.completion.result()
            self.completion = None

    def _start(self, things: Sequence[BareObject]) -> list[Future[None]]:
        return [self.pool.submit(self.put, thing) for thing in things]


def _wait(puts: Iterable[Future[None]]) -> None:
    for put in puts:
        put.result()
