"""Rows of a text file to batches, and which of several faults is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from txn_engine.errors import InvalidRecordError
from txn_engine.files.layout import Layout
from txn_engine.files.text import Text

Record = TypeVar("Record")


class FaultError(Exception):
    """A value on a line that does not fit its column. Another column may have one on a line before it."""

    def __init__(self, line: int, error: InvalidRecordError) -> None:
        super().__init__(line)
        self.line = line
        self.error = error


def in_batches(
    text: Text,
    rows: Iterator[tuple[int, Record]],
    make: Callable[[Sequence[Record], Sequence[int]], pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The rows in batches; where a row cannot be read, a fault in one before it is told first."""
    held: list[Record] = []
    lines: list[int] = []
    try:
        for line, row in rows:
            lines.append(line)
            held.append(row)
            if text.batch_is_full(len(held)):
                yield make(held, lines)
                held, lines = [], []
    except InvalidRecordError:
        if held:
            make(held, lines)
        raise
    if held:
        yield make(held, lines)
    text.tell_progress()


def batch_of(layout: Layout, column: Callable[[pa.Field[Any]], pa.Array[Any]]) -> pa.RecordBatch:
    """A batch, column by column; of several faults the one on the first line is raised."""
    arrays: list[pa.Array[Any]] = []
    faults: list[FaultError] = []
    for field in layout.schema:
        try:
            arrays.append(column(field))
        except FaultError as fault:
            faults.append(fault)
    if faults:
        raise min(faults, key=lambda fault: fault.line).error
    return pa.RecordBatch.from_arrays(arrays, schema=layout.schema)
