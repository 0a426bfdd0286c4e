"""Delta tables as other engines' readers see them, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

Rows = Counter[tuple[Any, ...]]
Options = Mapping[str, str] | None


def rows_of(table: pa.Table, columns: list[str]) -> Rows:
    """How often each row is there, in any order."""
    return Counter(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


def with_deltalake(uri: str, version: int | None, columns: list[str], options: Options = None) -> Rows:
    table = DeltaTable(uri, version=version, storage_options=None if options is None else dict(options))
    return rows_of(table.to_pyarrow_table(columns=columns), columns)


def with_deltalake_filtered(
    uri: str, version: int | None, columns: list[str], options: Options = None
) -> Rows:
    """Through Arrow, which leaves out files by their statistics: two filters on the first column, for all rows."""
    table = DeltaTable(uri, version=version, storage_options=None if options is None else dict(options))
    one, other = (
        table.to_pyarrow_table(columns=columns, filters=[(columns[0], test, 1)]) for test in ("<=", ">")
    )
    return rows_of(one, columns) + rows_of(other, columns)


def with_polars_filtered(uri: str, version: int | None, columns: list[str], options: Options = None) -> Rows:
    frame = pl.scan_delta(uri, version=version, storage_options=None if options is None else dict(options))
    one, other = (
        frame.filter(test).select(columns).collect().to_arrow()
        for test in (pl.col(columns[0]) <= 1, pl.col(columns[0]) > 1)
    )
    return rows_of(one, columns) + rows_of(other, columns)


def with_polars(uri: str, version: int | None, columns: list[str], options: Options = None) -> Rows:
    frame = pl.scan_delta(uri, version=version, storage_options=None if options is None else dict(options))
    return rows_of(frame.select(columns).collect().to_arrow(), columns)


READERS: Mapping[str, Callable[[str, int | None, list[str], Options], Rows]] = {
    "deltalake": with_deltalake,
    "deltalake with filters": with_deltalake_filtered,
    "polars": with_polars,
    "polars with filters": with_polars_filtered,
}
