"""Records that no data file of a topic may hold, told before they are handed to a producer, by where they stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from storage.row_groups import ROW_BYTES_MAX, ROW_NULLS_MAX
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
_NULLS_FROM_BYTES: Final = ROW_NULLS_MAX // 8
"""Fewer bytes hold no nulls in a list that would be too many."""


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
        """Whether all of them together are, as far as that can be seen at once."""
        room = self.topic.max_message_bytes - _COLUMN_BYTES * (records.num_columns + 1)
        has_lists = any(field.type.num_fields for field in records.schema)
        size = records.nbytes
        return _LARGER * size <= min(room, ROW_BYTES_MAX) and not (has_lists and size >= _NULLS_FROM_BYTES)

    def _file_bytes(self, record: pa.RecordBatch) -> int:
        """Of a file that holds one record; more than any topic takes where no reader takes the record."""
        schemas = self.topic.schemas
        try:
            table = conform(pa.Table.from_batches([record]), schemas, topic=self.topic.name)
        except RecordTooLargeError:
            return ROW_BYTES_MAX * _LARGER + 1
        return len(encode_data_file(table, schemas.layout, _NAME, 0)[0])
