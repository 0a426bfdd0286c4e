"""The encoding of equal rows under the same write id is remembered, because a process is run from its start
thousands of times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tests.simulator.patches import simulated
from txn_engine.log import entry_log, uploads
from txn_engine.log.data_files import EncodedFile
from txn_engine.log.entry_format import LogKind
from txn_engine.protocol.batches import BatchDescriptor
from txn_engine.protocol.file_names import DataFileName
from txn_engine.schemas.layout import Layout


@contextmanager
def searching() -> Iterator[None]:
    """Make this process a simulation whose encoders (pure functions of their arguments) remember their
    results."""
    encode_entry, encode_data_file = entry_log.encode_entry, uploads.encode_data_file
    entries: dict[Any, bytes] = {}
    files: dict[Any, tuple[bytes, EncodedFile]] = {}

    def entry(kind: LogKind, batches: Sequence[BatchDescriptor], write_id: str) -> bytes:
        name = (kind.name, tuple(batches), write_id)
        if name not in entries:
            entries[name] = encode_entry(kind, batches, write_id)
        return entries[name]

    def data_file(
        records: pa.Table, layout: Layout, name: DataFileName, timestamp_ms: int
    ) -> tuple[bytes, EncodedFile]:
        rows = tuple(map(tuple, (column.to_pylist() for column in records.columns)))
        known = (rows, layout.version, name, timestamp_ms)
        if known not in files:
            files[known] = encode_data_file(records, layout, name, timestamp_ms)
        return files[known]

    with simulated():
        entry_log.encode_entry, uploads.encode_data_file = entry, data_file
        try:
            yield
        finally:
            entry_log.encode_entry, uploads.encode_data_file = encode_entry, encode_data_file
