"""Records that no data file of a topic may hold, told before they are handed to a producer, by where they stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from storage.row_groups import ROW_BYTES_MAX, ROW_NULLS_MAX, load_of
from txn_engine.errors import RecordTooLargeError
from txn_engine.log.data_files import conform, encode_data_file
from txn_engine.log.topics import Topic
from txn_engine.protocol.file_names import DataFileName

_NAME: Final = DataFileName(0, 0, 0, "0" * 32)
_LARGER: Final = 4
"""So many times what a record's columns hold its pages take at most."""
_COLUMN_BYTES: Final = 1 << 10
"""What a small file has of a column beside its values, about."""
_TIME_BYTES: Final = 32
"""By so much a file of one record may be larger than another of it, for its time."""


@dataclass(frozen=True, slots=True)
class RowSizes:
    """Which records are too large for a topic: a producer splits a batch until one is alone. It pickles."""

    topic: Topic

    @property
    def expected(self) -> str:
        """What they have to be."""
        return (
            f"at most {self.topic.max_message_bytes} bytes as a data file (max.message.bytes of topic"
            f" {self.topic.name!r}), and {ROW_BYTES_MAX} uncompressed"
        )

    def too_large(self, records: pa.RecordBatch) -> list[int]:
        """Those, by their indexes. `records`: of the topic's columns, as `conform` takes them. Where all are small
        hardly anything is done; of others each is written as if it were alone.
        """
        most = self.topic.max_message_bytes - _TIME_BYTES
        return [row for row in self._suspects(records, 0) if self._file_bytes(records.slice(row, 1)) > most]

    def _suspects(self, records: pa.RecordBatch, first: int) -> Iterator[int]:
        """The rows that may be too large."""
        if not records.num_rows or self._are_small(records):
            return
        if records.num_rows == 1:
            yield first
            return
        half = records.num_rows // 2
        yield from self._suspects(records.slice(0, half), first)
        yield from self._suspects(records.slice(half), first + half)

    def _are_small(self, records: pa.RecordBatch) -> bool:
        """Whether all of them together are: as far as that can be seen at once, or as a file that is half as large as
        it may be. A row's own file is smaller than twice one that it is in.
        """
        load, most = load_of(pa.Table.from_batches([records])), self.topic.max_message_bytes
        size = _LARGER * min(
            records.nbytes, load.bytes
        )  # Arrow counts for each part all that its views are of
        if load.nulls > ROW_NULLS_MAX or size > min(most, ROW_BYTES_MAX):
            return False
        if size <= most - _COLUMN_BYTES * (records.num_columns + 1):
            return True
        return records.num_rows > 1 and self._file_bytes(records) <= most // 2

    def _file_bytes(self, records: pa.RecordBatch) -> int:
        """Of a file that holds these; more than any topic takes where no reader takes one of them."""
        schemas = self.topic.schemas
        try:
            table = conform(pa.Table.from_batches([records]), schemas, topic=self.topic.name)
        except RecordTooLargeError:
            return ROW_BYTES_MAX * _LARGER + 1
        return len(encode_data_file(table, schemas.layout, _NAME, 0)[0])
