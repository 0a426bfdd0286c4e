"""Which of many records are the latest of their keys, in one pass over the keys (in place of Kafka's `OffsetMap`)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txn_engine.maintain.key_hash import BUCKETS, buckets_of
from txn_engine.maintain.spill import Spill

_KEY, _POSITION = "key", "position"
_HELD_PART = 8
"""Of the memory: while as much is spread over the buckets, or grouped, it is there several times."""
_HELD_MAX = 1 << 30
"""One array of strings has no more than twice as many bytes."""


class LatestKeys:
    """Takes the keys of records in the order of their offsets, and then tells of each whether it is its key's last.

    Keys are compared as they are, not by their hashes: no two are ever taken for one. It takes `memory_bytes`, as long
    as a 256th of all different keys takes no more than an eighth of that, and a bit for each record. What is more than
    an eighth goes to the local disk by the bucket of its hash, `spill_bytes` at most, and comes back a bucket at a
    time. Raises `SpillFullError` where the disk has no room.
    """

    def __init__(
        self, key_type: pa.DataType, records: int, *, memory_bytes: int, spill_bytes: int, what: str
    ) -> None:
        self._schema = pa.schema([(_KEY, key_type), (_POSITION, pa.int64())])
        self._records = records
        self._held: list[pa.Table] = []
        self._held_bytes = self._taken = 0
        self._held_max = min(max(memory_bytes // _HELD_PART, 1), _HELD_MAX)
        self._spill_bytes = spill_bytes
        self._what = what
        self._spill: Spill | None = None
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    @property
    def spilled_bytes(self) -> int:
        """How much went to the disk."""
        return 0 if self._spill is None else self._spill.written_bytes

    def add(self, keys: pa.ChunkedArray[Any]) -> None:
        """The keys of the next records."""
        for chunk in filter(len, keys.chunks):
            positions = pa.array(np.arange(self._taken, self._taken + len(chunk), dtype=np.int64))
            table = pa.Table.from_arrays([chunk, positions], schema=self._schema)
            if self._held_bytes + table.nbytes > self._held_max:
                self._put_aside()  # what is held together never has more bytes than one array may
            self._taken += len(chunk)
            self._held.append(table)
            self._held_bytes += table.nbytes

    def latest(self) -> NDArray[np.uint8]:
        """A bit for each record, in their order, the first one the highest of its byte: whether no later record of
        those that were added has its key.
        """
        bits = np.zeros((self._records + 7) // 8, np.uint8)
        if self._spill is None:
            _mark(bits, self._last_of(self._held))
            return bits
        self._put_aside()
        for bucket in range(BUCKETS):
            _mark(bits, self._last_of(pa.Table.from_batches([batch]) for batch in self._spill.read(bucket)))
        return bits

    def _last_of(self, parts: Iterable[pa.Table]) -> NDArray[np.int64]:
        """The last position of each key. Different keys are held, and parts of no more than the room for them."""
        last, new, new_bytes = self._schema.empty_table(), list[pa.Table](), 0
        for part in parts:
            new.append(part)
            new_bytes += part.nbytes
            if new_bytes > self._held_max:
                last, new, new_bytes = _folded([last, *new]), [], 0
        positions: NDArray[np.int64] = _folded([last, *new]).column(_POSITION).to_numpy()
        return positions

    def _put_aside(self) -> None:
        """What is held goes to the disk, by bucket."""
        if not self._held:
            return
        held = pa.concat_tables(self._held).combine_chunks()
        self._held, self._held_bytes = [], 0
        if self._spill is None:
            spill = Spill(self._schema, self._spill_bytes, what=self._what)
            self._spill = self._closing.enter_context(spill)
            spill.check_room(held.nbytes * self._records // held.num_rows)
        buckets = buckets_of(held.column(_KEY).combine_chunks())
        held = held.take(np.argsort(buckets, kind="stable")).combine_chunks()
        (batch,) = held.to_batches()
        start = 0
        for bucket, count in enumerate(np.bincount(buckets, minlength=BUCKETS).tolist()):
            if count:
                self._spill.add(bucket, batch.slice(start, count))
            start += count


def _folded(parts: list[pa.Table]) -> pa.Table:
    together = pa.concat_tables(parts)
    folded = together.group_by(_KEY, use_threads=False).aggregate([(_POSITION, "max")])
    return folded.rename_columns({f"{_POSITION}_max": _POSITION}).select([_KEY, _POSITION])


def _mark(bits: NDArray[np.uint8], positions: NDArray[np.int64]) -> None:
    np.bitwise_or.at(bits, positions >> 3, (128 >> (positions & 7)).astype(np.uint8))
