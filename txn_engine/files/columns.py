"""A column of texts in its type, or the error that names the first one that does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.exact import first_bad
from txn_engine.files.batches import FaultError
from txn_engine.files.conversion import Conversion
from txn_engine.files.layout import Layout, shown


def converted(
    layout: Layout, conversion: Conversion, field: pa.Field[Any], texts: pa.Array[Any], lines: Sequence[int]
) -> pa.Array[Any]:
    """The texts in the column's type; raises `FaultError` for the first that does not fit."""
    if not field.nullable and texts.null_count:
        index = pc.index(pc.is_null(texts), value=True).as_py()
        raise null_refused(layout, field, lines[index])
    try:
        return conversion.array(texts, field.type)
    except (TypeError, NotImplementedError) as error:
        raise layout.refused(
            f"column {field.name!r} of type {field.type}", expected="parquet for values of this type"
        ) from error
    except ValueError:
        pass  # raised again below: an error of pyarrow quotes the text, and would be told beside ours
    index = first_bad(texts, lambda part: conversion.array(part, field.type))
    raise bad_value(layout, conversion, field, texts[index].as_py(), lines[index])


def bad_value(
    layout: Layout, conversion: Conversion, field: pa.Field[Any], value: object, line: int
) -> FaultError:
    """A value that does not fit its column."""
    refusal = layout.refused(
        f"{layout.name_in_file(field.name)} does not fit",
        value=shown(value),
        expected=conversion.expected(field.type),
        line=line,
    )
    return FaultError(line, refusal)


def null_refused(layout: Layout, field: pa.Field[Any], line: int, *, unit: str = "line") -> FaultError:
    """Nothing, in a column that takes no null."""
    refusal = layout.refused(
        f"{layout.name_in_file(field.name)} is empty",
        expected=f"{field.type}: the column takes no null",
        line=line,
        unit=unit,
    )
    return FaultError(line, refusal)
