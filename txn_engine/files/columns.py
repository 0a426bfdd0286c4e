"""A column of texts in its type, and the rows whose text does not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.errors import InvalidRecordError
from txn_engine.exact import every_bad, first_bad
from txn_engine.files.batches import Faults
from txn_engine.files.conversion import Conversion
from txn_engine.files.kinds import misfit_reason
from txn_engine.files.layout import Judged, shown
from txn_engine.reasons import Reason

Misfit = Callable[[object, int], InvalidRecordError]
"""Of a value and its line."""


def converted(
    layout: Judged,
    conversion: Conversion,
    field: pa.Field[Any],
    texts: pa.Array[Any],
    lines: Sequence[int],
    faults: Faults,
) -> pa.Array[Any]:
    """The texts in the column's type. Rows that do not fit are added to the faults, and null in what is returned."""
    if not field.nullable and texts.null_count:
        for index in np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False)).tolist():
            faults.add(index, null_refused(layout, field, lines[index]))
            if not faults.every:
                return nulls_of(field, len(texts))
    try:
        return conversion.array(texts, field.type)
    except (TypeError, NotImplementedError) as error:
        raise layout.refused(
            f"column {field.name!r} of type {field.type}",
            reason=Reason.UNSUPPORTED_TYPE,
            expected="parquet for values of this type",
        ) from error
    except ValueError:
        pass  # looked for below: an error of pyarrow quotes the text, and would be told beside ours
    misfit = misfits_of(layout, conversion, field)
    if not faults.every:
        index = first_bad(texts, lambda part: conversion.array(part, field.type))
        faults.add(index, misfit(texts[index].as_py(), lines[index]))
        return nulls_of(field, len(texts))
    bad, found = _every_bad(conversion, field.type, texts)
    for index, text in zip(bad, texts.take(pa.array(bad, pa.int64())).to_pylist(), strict=True):
        faults.add(index, misfit(text, lines[index]))
    return found


def _every_bad(conversion: Conversion, kind: pa.DataType, texts: Any) -> tuple[list[int], pa.Array[Any]]:
    """Where the texts do not fit the type, and the others in it. Days repeat in a file: each is judged once."""
    if not pa.types.is_date(kind):
        return _every_bad_of(conversion, kind, texts)
    encoded = texts.dictionary_encode()
    bad, found = _every_bad_of(conversion, kind, encoded.dictionary)
    is_bad = pc.is_in(encoded.indices, value_set=pa.array(bad, encoded.indices.type), skip_nulls=True)
    return np.flatnonzero(is_bad).tolist(), found.take(encoded.indices)


def _every_bad_of(conversion: Conversion, kind: pa.DataType, texts: Any) -> tuple[list[int], pa.Array[Any]]:
    """The same, of texts as they are.

    What is bad at a glance is told first, by its characters and then by its form, for most often that is all. Suspects
    and others are then converted apart, for that goes by halves, and is quick where nothing, or everything, is bad.
    """
    sure = np.zeros(len(texts), bool)
    bad: list[int] = []
    for tell in (conversion.foreign, conversion.surely_bad):
        more = tell(texts, kind) & ~sure
        if more.any():
            sure |= more
            bad = np.flatnonzero(sure).tolist()
            with suppress(ValueError):
                return bad, conversion.array(without(texts, bad), kind)
    suspects = conversion.suspects(texts, kind)
    for places in (np.flatnonzero(suspects & ~sure), np.flatnonzero(~suspects & ~sure)):
        if len(places):
            part = texts.take(pa.array(places))
            bad += places[every_bad(part, lambda some: conversion.array(some, kind))].tolist()
    return bad, conversion.array(without(texts, bad), kind)


def without(values: Any, places: Sequence[int]) -> Any:
    """The values, null in these places."""
    kept = np.arange(len(values))
    hidden = np.zeros(len(values), bool)
    hidden[list(places)] = True
    return values.take(pa.array(kept, mask=hidden))


def nulls_of(field: pa.Field[Any], rows: int) -> pa.Array[Any]:
    """A column that stands for one that is not used."""
    found: pa.Array[Any] = pa.nulls(rows, field.type)
    return found


def misfits_of(layout: Judged, conversion: Conversion, field: pa.Field[Any]) -> Misfit:
    """What makes the errors for values that do not fit their column, alike but for the value and its line."""
    seen, expected = f"{layout.name_in_file(field.name)} does not fit", conversion.expected(field.type)
    reason = misfit_reason(field.type)
    return lambda value, line: layout.refused(
        seen, reason=reason, value=shown(value), expected=expected, line=line
    )


def null_refused(
    layout: Judged, field: pa.Field[Any], line: int, *, unit: str | None = None
) -> InvalidRecordError:
    """Nothing, in a column that takes no null."""
    return layout.refused(
        f"{layout.name_in_file(field.name)} is empty",
        reason=Reason.NULL_IN_NOT_NULL,
        expected=f"{field.type}: the column takes no null",
        line=line,
        unit=unit,
    )
