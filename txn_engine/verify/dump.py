"""A log's entries one by one from its raw objects, damaged or not: what `txn-engine dump-log` shows.

Nothing is replayed, so a damaged object costs only what it holds itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeAlias

import pyarrow as pa

from storage.errors import InvalidKeyError
from storage.store import ObjectStore
from txn_engine.errors import CorruptObjectError, UnknownTopicOrPartitionError
from txn_engine.verify.columns import Types, wrong_column
from txn_engine.verify.descriptors import Batch
from txn_engine.verify.findings import FindingLog, Place
from txn_engine.verify.layout import LayoutAudit
from txn_engine.verify.log_walk import Seal, SlotDecoder
from txn_engine.verify.objects import Listing, ObjectReader
from txn_engine.verify.raw_object import UNREADABLE, Damaged, ParquetObject
from txn_engine.verify.report import Tally
from txn_engine.verify.restored_root import store_within
from txn_engine.verify.run import WORKERS
from txn_engine.verify.store_keys import KeySurvey, offset_in_name

_OWN_COLUMNS: Final[Types] = {"_offset_delta": pa.int64(), "_timestamp": pa.timestamp("ms", tz="UTC")}


@dataclass(frozen=True, slots=True)
class DumpedEntry:
    """A whole entry: `size` bytes at `key`."""

    key: str
    base_offset: int
    size: int
    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class DumpedSeal:
    """A sealed slot: what it held stands in a snapshot only."""

    key: str
    base_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class DumpedDamage:
    """A slot that cannot be read, is not there, or does not follow the one before."""

    key: str
    base_offset: int
    size: int
    problem: str


Dumped: TypeAlias = DumpedEntry | DumpedSeal | DumpedDamage


class LogDump:
    """Reads one partition's log, to be used in a `with`.

    topic, partition: what to read; an unknown one is `UnknownTopicOrPartitionError`. incarnation: an older one of a
    topic that was deleted and made again; by default the one that counts. Changes nothing. Memory: some entries
    ahead, and 16 bytes for each slot of the log. The store's own errors are raised as they come.
    """

    def __init__(
        self, store: ObjectStore, topic: str, partition: int, *, incarnation: int | None = None
    ) -> None:
        self._reader = ObjectReader(store_within(store), Tally(), WORKERS)
        self.place = Place(topic, _incarnation(self._reader, topic, partition, incarnation), partition)
        self._folder = f"{self.place.prefix}/log/"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.__exit__(kind, error, trace)

    def slots(self, start: int = 0, end: int | None = None) -> Iterator[Dumped]:
        """The slots that hold offsets from `start` up to, without it, `end`; what lies between two is damage."""
        chosen = self._chosen(start, end)
        due: int | None = None  # the base offset to come, where it is known
        for info, found in self._reader.read_in_order(chosen, SlotDecoder(self.place)):
            base = offset_in_name(info.key) or 0
            if due is not None and base != due:
                key = f"{self._folder}{due:020d}.parquet" if base > due else info.key
                problem = f"nothing from offset {due} to the entry at {base}"
                if base < due:
                    problem = f"the entry at {base} is inside the one before, which ends at {due - 1}"
                yield DumpedDamage(key, min(base, due), 0, problem)
            due = None
            if isinstance(found, Seal):
                yield DumpedSeal(info.key, base, info.size)
            elif found is None:
                yield DumpedDamage(info.key, base, 0, "listed, and gone since")
            elif isinstance(found, Damaged):
                yield DumpedDamage(info.key, base, found.size, found.reason)
            elif not found or found[0].base_offset != base:
                seen = f"rows from offset {found[0].base_offset}" if found else "no rows"
                yield DumpedDamage(info.key, base, info.size, f"{seen}, in the slot of offset {base}")
            else:
                yield DumpedEntry(info.key, base, info.size, tuple(found))
                due = found[-1].last_offset + 1

    def file_problem(self, batch: Batch) -> str | None:
        """What is wrong with a batch's data file: gone, damaged, or another one; None where it is right."""
        found = self._file(batch)
        return found if isinstance(found, str) else None

    def records(self, batch: Batch) -> Iterator[pa.RecordBatch]:
        """The records of a batch, some thousand at a time, each with its delta and timestamp.

        CorruptObjectError for what `file_problem` tells, for columns that a data file cannot have, and for pages that
        cannot be read.
        """
        place = f"{self.place.prefix}/{batch.data_path}"
        found = self._file(batch)
        if isinstance(found, str):
            raise CorruptObjectError(found, place=place)
        problem = wrong_column(found.schema, _OWN_COLUMNS)
        if problem is not None:
            raise CorruptObjectError(problem, place=place)
        try:
            yield from found.batches()
        except UNREADABLE as error:
            raise CorruptObjectError(f"records that cannot be read: {error}", place=place) from error

    def _file(self, batch: Batch) -> ParquetObject | str:
        key = f"{self.place.prefix}/{batch.data_path}"
        try:
            found = self._reader.read(key, lambda raw: raw.parquet(), size=batch.data_bytes)
        except InvalidKeyError as error:
            return f"no data file: {error.seen}"
        if isinstance(found, Damaged):
            return f"data file damaged: {found.reason}"
        if found is None:
            return "no data file"
        if found.checksum != batch.checksum:
            return f"another data file: checksum {found.checksum}, not {batch.checksum}"
        return found

    def _chosen(self, start: int, end: int | None) -> Listing:
        """The slots that may hold offsets from `start` up to, without it, `end`."""
        listed = Listing(self._folder)
        for info in self._reader.listing(self._folder):
            base = offset_in_name(info.key)
            if base is not None:
                listed.add(base, info.size)
        return listed.holding(start, end)


def _incarnation(reader: ObjectReader, topic: str, partition: int, wanted: int | None) -> int:
    """The incarnation to read; where the topic's objects are damaged, the highest that has a folder."""
    if wanted is not None:
        if str(partition) in reader.folders(f"topics/{topic}/{wanted}"):
            return wanted
        raise UnknownTopicOrPartitionError(
            f"no log of {topic}-{partition} in incarnation {wanted}", expected="one that is on the store"
        )
    found = LayoutAudit(reader, FindingLog(), KeySurvey()).find(topic)
    if found is None:
        raise UnknownTopicOrPartitionError(
            f"topic {topic!r}", expected="a topic of this store", action="`txn-engine topics list` shows them"
        )
    if not 0 <= partition < found.partitions:
        raise UnknownTopicOrPartitionError(
            f"partition {partition} of topic {topic!r}", expected=f"0 to {found.partitions - 1}"
        )
    return found.incarnation
