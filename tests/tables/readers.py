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


def with_polars(uri: str, version: int | None, columns: list[str], options: Options = None) -> Rows:
    frame = pl.scan_delta(uri, version=version, storage_options=None if options is None else dict(options))
    return rows_of(frame.select(columns).collect().to_arrow(), columns)


READERS: Mapping[str, Callable[[str, int | None, list[str], Options], Rows]] = {
    "deltalake": with_deltalake,
    "polars": with_polars,
}
