"""The bare limit: the same Parquet encodes and the same puts, with nothing of the protocol around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq

from storage import LARGE, SMALL, ObjectStore, ParquetProfile
from txn_engine.log.data_files import OFFSET_DELTA, TIMESTAMP, TIMESTAMP_TYPE
from txn_engine.log.entry_format import TRANSACTION_LOG, USER_LOG, LogKind, entry_table
from txn_engine.protocol.batches import BatchDescriptor, Control, FileRef
from txn_engine.protocol.transaction_rows import TransactionPartition, TransactionRow, TransactionState

_THREADS = 8


def encode(table: pa.Table, profile: ParquetProfile) -> bytes:
    """Parquet with the settings that the engine writes with, and nothing else."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression=profile.compression,
        compression_level=profile.compression_level,
        use_dictionary=False,
        write_statistics=bool(profile.write_statistics),
        write_page_checksum=profile.page_checksum,
        row_group_size=profile.row_group_rows_max,
        store_schema=False,
    )
    return bytes(memoryview(sink.getvalue()))


def with_record_columns(records: pa.Table) -> pa.Table:
    """The records with the two columns that a data file has beside the topic's own."""
    deltas = pa.array(range(records.num_rows), pa.int64())
    stamps = pa.repeat(pa.scalar(0, TIMESTAMP_TYPE), records.num_rows)
    return records.append_column(OFFSET_DELTA, deltas).append_column(TIMESTAMP, stamps)


@dataclass(slots=True)
class BareWriter:
    """Puts the objects that an append or a transaction needs, in as many rounds, under keys of its own."""

    store: ObjectStore
    prefix: str
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_THREADS))
    numbers: count[int] = field(default_factory=count)

    def put(self, table: pa.Table, profile: ParquetProfile = SMALL) -> None:
        """Encode and put one object under a fresh key."""
        key = f"{self.prefix}/{next(self.numbers):020d}.parquet"
        if not self.store.put_if_absent(key, encode(table, profile)):
            raise RuntimeError(f"bench: key {key} was taken")

    def append(self, records: pa.Table, *, large: bool = False) -> None:
        """A data file, then an entry."""
        self.put(records, LARGE if large else SMALL)
        self.put(ENTRY)

    def transaction(self, parts: Sequence[pa.Table]) -> None:
        """A transaction's five rounds: row and data files, entries, decision, markers, completion."""
        self._round([lambda: self.put(ROW), *[_putting(self, part) for part in parts]])
        self._round([lambda: self.put(ENTRY)] * len(parts))
        self.put(ROW)
        self._round([lambda: self.put(MARKER)] * len(parts))
        self.put(ROW)

    def _round(self, puts: Sequence[Callable[[], None]]) -> None:
        for done in [self.pool.submit(put) for put in puts]:
            done.result()


def _putting(writer: BareWriter, part: pa.Table) -> Callable[[], None]:
    return lambda: writer.put(part)


def _entry(kind: LogKind, batch: BatchDescriptor) -> pa.Table:
    return entry_table(kind, [batch])


_PATH = f"data/{0:020d}-p1000-e1-{'0' * 32}.parquet"
ENTRY = _entry(
    USER_LOG, BatchDescriptor(0, 99, 0, 1000, 1, 0, True, record_count=100, file=FileRef(_PATH, 1, "0" * 32))
)
MARKER = _entry(USER_LOG, BatchDescriptor(0, 0, 0, 1000, 1, is_transactional=True, control=Control.COMMIT))
ROW = _entry(
    TRANSACTION_LOG,
    BatchDescriptor(
        0,
        0,
        0,
        row=TransactionRow(
            "bench",
            TransactionState.ONGOING,
            1000,
            1,
            partitions=tuple(TransactionPartition("bench", 0, n) for n in range(4)),
        ),
    ),
)
