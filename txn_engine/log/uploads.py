"""Putting a batch's records on the store, before the entry that names them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from txn_engine.errors import CorruptObjectError
from txn_engine.ids import IdSource
from txn_engine.log.data_files import EncodedFile, encode_data_file
from txn_engine.log.objects import Objects
from txn_engine.protocol.file_names import DataFileName

MAX_BATCH_ROWS = 1_000_000


def upload_records(
    objects: Objects,
    new_id: IdSource,
    prefix: str,
    records: pa.Table,
    *,
    log_end: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
) -> EncodedFile:
    """Write the data file of a batch, under a name nobody else has. Invisible until an entry names it."""
    name = DataFileName(log_end, producer_id, producer_epoch, new_id())
    data, encoded = encode_data_file(records, name, timestamp_ms)
    put_data_file(objects, prefix, data, encoded)
    return encoded


def put_data_file(objects: Objects, prefix: str, data: bytes, encoded: EncodedFile) -> None:
    """Put an encoded data file under its name, which nobody else has."""
    key = f"{prefix}/{encoded.file.data_path}"
    if not objects.create(key, data, max_bytes=len(data)).won:
        raise CorruptObjectError("another object", place=key, expected="a fresh name for every data file")


def slices(records: pa.Table, max_rows: int = MAX_BATCH_ROWS) -> Iterator[pa.Table]:
    """The records in parts that fit one data file."""
    for start in range(0, records.num_rows, max_rows):
        yield records.slice(start, max_rows)
