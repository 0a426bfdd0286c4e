"""The data files that a task has open: rows come in parts, files of a good size go out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa

from txn_engine.log.data_files import DataFileEncoder, EncodedFile, encode_data_file
from txn_engine.log.uploads import too_large
from txn_engine.protocol.file_names import DataFileName
from txn_engine.schemas.layout import Layout

FILE_BYTES = 128 << 20
"""How large a data file becomes, where there are rows enough."""
FILE_ROWS = 50_000_000
"""How many rows it takes at most, about: those of one value take hardly a byte."""
ROW_GROUP_BYTES = 32 << 20
"""A row group ends once its rows take this many bytes."""
PENDING_BYTES = 128 << 20
"""How many bytes of rows wait for their row group, over all open files."""
ENCODED_BYTES = 256 << 20
"""How many encoded bytes the open files may take together."""
_OWN_BYTES = 16
"""What the engine's own columns take of a row, before they are encoded."""
_STREAMED_FROM = 16 << 20
"""Of files that may be this large the footer is little; smaller ones are encoded whole, so that they can be split."""

Put = Callable[[int, bytes, EncodedFile], None]


@dataclass(slots=True)
class _OpenFile:
    """Rows of one partition that are not on the store yet: those of `encoder`, then `pending` ones."""

    pending: list[pa.Table] = field(default_factory=list)
    encoder: DataFileEncoder | None = None

    @property
    def bytes(self) -> int:
        """Of the row groups that are written."""
        return 0 if self.encoder is None else self.encoder.written_bytes

    @property
    def is_full(self) -> bool:
        """Whether it is to be ended."""
        return self.encoder is not None and (
            self.encoder.written_bytes >= FILE_BYTES or self.encoder.record_count >= FILE_ROWS
        )


class OpenFiles:
    """A file for each partition that rows came for, in bounded memory.

    A partition's rows go into its files in the order in which they came. Row groups are written for all partitions at
    once, when 128 MiB of rows are held (32 MiB of a single partition); of what is encoded 256 MiB are held. A file that
    is full is put in a thread while the next rows are encoded. What `write` and `finish` give are files that are on the
    store, those of a partition in their order. No file is larger than `most_bytes`: rows that would be are split, and
    of one that is alone `RecordTooLargeError` is raised.
    """

    def __init__(
        self,
        partitions: int,
        layout: Layout,
        new_name: Callable[[int], DataFileName],
        timestamp_ms: int,
        put: Put,
        *,
        most_bytes: int,
        topic: str,
    ) -> None:
        self._most_bytes = most_bytes
        self._topic = topic
        self._layout = layout
        self._new_name = new_name
        self._timestamp_ms = timestamp_ms
        self._put = put
        self._held_most = min(PENDING_BYTES, ROW_GROUP_BYTES * partitions)
        self._held = 0
        self._files: dict[int, _OpenFile] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="txn-put")
        self._under_way: tuple[int, EncodedFile, Future[None]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def write(self, part: Iterable[tuple[int, pa.Table]], size: int) -> Iterator[tuple[int, EncodedFile]]:
        """Take rows by partition, which hold `size` bytes together: slices of one table, which lives as long as any."""
        for partition, records in part:
            self._files.setdefault(partition, _OpenFile()).pending.append(records)
        self._held += size
        if self._held < self._held_most:
            return
        for partition in list(self._files):
            yield from self._encode(partition)
        self._held = 0
        for partition in [number for number, file in self._files.items() if file.is_full]:
            yield from self._close(partition)
        while sum(file.bytes for file in self._files.values()) > ENCODED_BYTES:
            yield from self._close(max(self._files, key=lambda number: self._files[number].bytes))

    def finish(self) -> Iterator[tuple[int, EncodedFile]]:
        """Put all that is left."""
        for partition in sorted(self._files):
            yield from self._close(partition)
        yield from self._landed()

    def _encode(self, partition: int) -> Iterator[tuple[int, EncodedFile]]:
        """A partition's pending rows as a row group, or as files of their own where they may be too many for one."""
        file = self._files[partition]
        if not file.pending:
            return
        records = pa.concat_tables(file.pending)
        size, most = records.nbytes + _OWN_BYTES * records.num_rows, self._most_bytes * 3 // 4
        if file.encoder is not None and file.bytes + size > most:
            yield from self._send(partition, *file.encoder.finish())
            file.encoder = None
        file.pending = []
        if size > most or self._most_bytes < _STREAMED_FROM:
            yield from self._send_whole(partition, records)
            return
        if file.encoder is None:
            file.encoder = DataFileEncoder(self._layout, self._new_name(partition), self._timestamp_ms)
        file.encoder.write(records)

    def _close(self, partition: int) -> Iterator[tuple[int, EncodedFile]]:
        """End a file."""
        file = self._files[partition]
        if file.encoder is not None:
            yield from self._encode(partition)
        del self._files[partition]
        if file.encoder is not None:
            yield from self._send(partition, *file.encoder.finish())
        elif file.pending:
            yield from self._send_whole(partition, pa.concat_tables(file.pending))

    def _send_whole(self, partition: int, records: pa.Table) -> Iterator[tuple[int, EncodedFile]]:
        """Rows as one file, or as several where that would be too large: what comes first goes first."""
        waiting = [records]
        while waiting:
            part = waiting.pop()
            data, encoded = encode_data_file(
                part, self._layout, self._new_name(partition), self._timestamp_ms
            )
            if len(data) <= self._most_bytes:
                yield from self._send(partition, data, encoded)
            elif part.num_rows == 1:
                raise too_large(f"{self._topic}-{partition}", 1, len(data), self._most_bytes)
            else:
                count = min(-(-len(data) // max(self._most_bytes, 1)) + 1, part.num_rows)
                step = -(-part.num_rows // count)
                waiting += [part.slice(at, step) for at in range(0, part.num_rows, step)][::-1]

    def _send(self, partition: int, data: bytes, encoded: EncodedFile) -> Iterator[tuple[int, EncodedFile]]:
        """Have a file put, once the one before it is there: that one is given."""
        yield from self._landed()
        self._under_way = (partition, encoded, self._pool.submit(self._put, partition, data, encoded))

    def _landed(self) -> Iterator[tuple[int, EncodedFile]]:
        """The file that is under way, once it is on the store."""
        if self._under_way is None:
            return
        partition, encoded, future = self._under_way
        self._under_way = None
        future.result()
        yield partition, encoded
