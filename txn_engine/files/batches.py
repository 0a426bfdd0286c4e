"""Rows of a file to batches, and what becomes of those that cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from txn_engine.errors import InvalidRecordError
from txn_engine.files.layout import Judged
from txn_engine.files.text import Text
from txn_engine.reasons import Reason
from txn_engine.row_checks import Passes, RowCheck, failing

Record = TypeVar("Record")


class Faults:
    """Rows of a batch that cannot be used, by their index in it, each with what is wrong in its first column.

    every: whether all of them are wanted, or the first one is enough.
    """

    def __init__(self, every: bool) -> None:
        self.every = every
        self.found: dict[int, InvalidRecordError] = {}

    def add(self, index: int, error: InvalidRecordError) -> None:
        """One more; a row that is known to be bad stays with what was said first."""
        self.found.setdefault(index, error)


Column = Callable[["pa.Field[Any]", Faults], "pa.Array[Any]"]


def in_batches(
    text: Text,
    rows: Iterator[tuple[int, Record]],
    make: Callable[[Sequence[Record], Sequence[int]], pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The rows in batches; where a row cannot be read, a fault in one before it is told first."""
    held: list[Record] = []
    lines: list[int] = []
    full_rows = text.full_rows
    try:
        for line, row in rows:
            lines.append(line)
            held.append(row)
            if len(held) >= full_rows or text.is_batch_full:
                yield make(held, lines)
                held, lines = [], []
                text.next_batch()
    except InvalidRecordError:
        if held:
            make(held, lines)
        raise
    if held:
        yield make(held, lines)
    text.tell_progress()


def until(rows: Iterator[tuple[int, Record]], text: Text, chars: int) -> Iterator[tuple[int, Record]]:
    """The rows, up to the one with which so much of the text is read."""
    for row in rows:
        yield row
        if text.chars >= chars:
            return


def batch_of(
    layout: Judged,
    lines: Sequence[int],
    column: Column,
    columns_of: Callable[[Sequence[int]], Sequence[str]],
    *,
    checks: Sequence[tuple[RowCheck, Passes]] = (),
    unit: str | None = None,
) -> pa.RecordBatch:
    """A batch, column by column, without the rows that cannot be used.

    Where nobody takes those, what is wrong on the first line is raised. `column` gives a whole column, with nulls in
    the rows that it adds to the faults; `columns_of` some rows as JSON. `checks`: what each row has to pass that fits.
    Last comes whether it is too large. `unit`: what a line is called, where it is none.
    """
    faults = Faults(every=layout.bad_rows is not None)
    arrays = [column(field, faults) for field in layout.schema]
    batch, places = _without_faults(layout, arrays, faults)
    if checks and (layout.bad_rows is not None or not faults.found):
        _check(layout, checks, batch, [lines[place] for place in places], places, faults, unit)
        batch, places = _without_faults(layout, arrays, faults)
    if layout.sizes is not None and (layout.bad_rows is not None or not faults.found):
        large = layout.sizes.too_large(batch)
        for row in large:
            line = lines[places[row]]
            seen = "a record that is too large"
            expected, reason = layout.sizes.expected, Reason.ROW_TOO_LARGE
            faults.add(
                places[row], layout.refused(seen, reason=reason, expected=expected, line=line, unit=unit)
            )
        batch = _without_faults(layout, arrays, faults)[0] if large else batch
    if faults.found and layout.bad_rows is None:
        raise faults.found[min(faults.found)]
    order = sorted(faults.found)
    for index, columns in zip(order, columns_of(order) if order else (), strict=True):
        layout.reject(lines[index], faults.found[index], columns=columns)
    return batch


def _without_faults(
    layout: Judged, arrays: Sequence[pa.Array[Any]], faults: Faults
) -> tuple[pa.RecordBatch, Sequence[int]]:
    """The rows that can be used, and where each stood."""
    places = np.arange(len(arrays[0]))
    if faults.found:
        good = np.ones(len(places), bool)
        good[list(faults.found)] = False
        places = places[good]
        arrays = [array.filter(pa.array(good)) for array in arrays]
    return pa.RecordBatch.from_arrays(list(arrays), schema=layout.schema), places.tolist()


def _check(
    layout: Judged,
    checks: Sequence[tuple[RowCheck, Passes]],
    batch: pa.RecordBatch,
    lines: Sequence[int],
    places: Sequence[int],
    faults: Faults,
    unit: str | None,
) -> None:
    """Add the rows that fail a check to the faults; one that fails several has the first."""
    for check, passes in checks:
        for row in failing(passes, batch):
            faults.add(
                places[row],
                layout.refused(
                    f"check {check.name} failed",
                    reason=Reason.CHECK_FAILED,
                    expected=check.expected,
                    line=lines[row],
                    unit=unit,
                ),
            )
