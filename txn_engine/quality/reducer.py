"""Who reduces rows to what is judged: in this process, or Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from txn_engine.quality.file_pass import FileFacts
from txn_engine.quality.relations import Dialect
from txn_engine.quality.rows import Rows
from txn_engine.schemas.layout import Schemas
from txn_engine.sql.file_parts import FilePart


class Reducer(Protocol):
    """Views over rows, and queries on them, in the SQL of `dialect`.

    What a query cannot do is an `EvidenceMissingError`, and so is a file that cannot be read.
    """

    name: str
    """In words, for reports."""
    dialect: Dialect

    def look_at(
        self, schemas: Schemas, parts: Sequence[FilePart], progress: Callable[[int, int], None]
    ) -> tuple[FileFacts, ...]:
        """A look at every record of these parts of files, in the order given, by the columns that are asked for;
        `progress` is told how many are done.

        Raises what reading a file raises, and the engine's errors.
        """

    def allow(self, rows: Iterable[Rows]) -> None:
        """Name the rows that views may be made of, before the first view: no query needs to reach other files."""

    def add(self, view: str, rows: Rows) -> None:
        """A view of these rows: the topic's columns, `_partition` and `_offset`."""

    def add_parquet(self, view: str, path: Path) -> None:
        """A view of a Parquet file in `folder`."""

    def keep(self, name: str, query: str) -> None:
        """The query's rows, under that name."""

    def keep_view(self, name: str, query: str) -> None:
        """The query, under that name."""

    def keep_users(self, name: str, query: str, views: dict[str, str], *, backwards: bool) -> None:
        """As `keep`, for a query that somebody gave: `views` are the names that it knows these views by.

        `backwards`: its input comes the other way round. Raises `InvalidRequestError` unless it is one SELECT.
        """

    def drop(self, name: str) -> None:
        """Let go of what was kept."""

    def query(self, query: str) -> pa.Table:
        """What a query gives: for few rows."""

    def frame(self, query: str, rows: int) -> Any:
        """The rows of a query, so many, as Great Expectations takes them (`suite_rows.rows_of`).

        Raises `EvidenceMissingError` where they are too many, and says who takes more.
        """

    def columns(self, name: str) -> pa.Schema:
        """The columns of a view, or of what was kept."""

    def types(self, name: str) -> Mapping[str, str]:
        """The type of each column of what was kept, as the engine itself calls it."""

    @property
    def folder(self) -> Path:
        """Where Parquet files may be put that views are to be made of."""
