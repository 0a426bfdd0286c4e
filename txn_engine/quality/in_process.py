"""Rows reduced in this process: DuckDB over the store's files, within a budget of memory, the rest on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import duckdb
import pyarrow as pa

from storage.scratch import ScratchFolder
from storage.store import ObjectStore
from txn_engine.errors import InvalidRequestError
from txn_engine.quality.declaration import ACTOR
from txn_engine.quality.evidence import EvidenceMissingError
from txn_engine.quality.file_pass import FileFacts, look_at
from txn_engine.quality.relations import DUCKDB
from txn_engine.quality.rows import FileRows, Rows
from txn_engine.quality.suite_rows import ROWS_MAX
from txn_engine.reasons import Reason
from txn_engine.schemas.layout import Schemas
from txn_engine.sql.file_parts import OFFSET, PARTITION, FilePart
from txn_engine.sql.interruptible import interruptibly
from txn_engine.sql.locked import LockedDuckDB
from txn_engine.sql.permitted import folded
from txn_engine.sql.relations import literal
from txn_engine.sql.statement import read_statement

MEMORY_BYTES: Final = 1_500_000_000
"""For everything that a check needs, this process's libraries among it."""
_OTHERS_BYTES: Final = 700_000_000
"""Of that: what Python, PyArrow and Great Expectations take, and what the audit has in memory."""
_LEAST_BYTES: Final = 200_000_000

T = TypeVar("T")


class InProcess:
    """A reducer: views over rows, and queries on them.

    Queries see nothing but the views: no network, no extension, and no file but those that `allow` named. What does not
    fit into the memory goes to a folder below `spill`, which `close` removes.
    """

    name = "in process (DuckDB)"
    dialect = DUCKDB

    def __init__(
        self,
        store: ObjectStore,
        *,
        memory_bytes: int = MEMORY_BYTES,
        spill: Path | None = None,
        threads: int = 0,
    ) -> None:
        self._store = store
        self._memory = f"{max(memory_bytes - _OTHERS_BYTES, _LEAST_BYTES)}B"
        self._threads = threads
        self._scratch = ScratchFolder("proof", parent=spill)
        self._opened = ExitStack()
        try:
            self.allow(())
        except BaseException:
            self._scratch.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything, the folder too."""
        self._opened.close()
        self._scratch.close()

    @property
    def folder(self) -> Path:
        """Where Parquet files may be put that views are to be made of."""
        return self._scratch.path

    def allow(self, rows: Iterable[Rows]) -> None:
        """Open a DuckDB for views of these rows, in place of an earlier one."""
        self._opened.close()
        duck = LockedDuckDB(
            self._store,
            [part for each in rows if isinstance(each, FileRows) for part in each.parts],
            memory=self._memory,
            threads=self._threads,
            spill=self.folder,
            readable=self.folder,
            settings={"preserve_insertion_order": False},
        )
        self._duckdb = self._opened.enter_context(duck)
        self._connection = duck.connection

    def look_at(
        self, schemas: Schemas, parts: Sequence[FilePart], progress: Callable[[int, int], None]
    ) -> tuple[FileFacts, ...]:
        """A look at every record of these files, by this process's threads."""
        return look_at(self._store, schemas, parts, progress=progress)

    def add(self, view: str, rows: Rows) -> None:
        """A view of these rows: the topic's columns, `_partition` and `_offset`."""
        if isinstance(rows, pa.Table):
            self._connection.register(f"{view}_table", rows)
            self._run(f"CREATE OR REPLACE TEMP VIEW {view} AS SELECT * FROM {view}_table")
            return
        self._run(f"CREATE OR REPLACE TEMP VIEW {view} AS {self._of_files(rows)}")

    def add_parquet(self, view: str, path: Path) -> None:
        """A view of a Parquet file in `folder`."""
        self._run(f"CREATE OR REPLACE TEMP VIEW {view} AS SELECT * FROM read_parquet({literal(str(path))})")

    def keep(self, name: str, query: str) -> None:
        """The query's rows, under that name."""
        self._run(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")

    def keep_view(self, name: str, query: str) -> None:
        """The query, under that name."""
        self._run(f"CREATE OR REPLACE TEMP VIEW {name} AS {query}")

    def drop(self, name: str) -> None:
        """Let go of what was kept."""
        self._run(f"DROP TABLE IF EXISTS {name}")

    def query(self, query: str) -> pa.Table:
        """What a query gives: for few rows."""
        with _missing():
            found: pa.Table = self._stoppable(lambda: self._connection.sql(query).to_arrow_table())
        return found

    def frame(self, query: str, rows: int) -> pa.Table:
        """The rows of a query, which pandas judges."""
        if rows > ROWS_MAX:
            raise EvidenceMissingError(
                f"{rows:,} rows; pandas judges at most {ROWS_MAX:,}: let the suite look at what is new, or at a "
                "range of offsets, or give the proof Spark"
            )
        return self.query(query)

    def columns(self, name: str) -> pa.Schema:
        """The columns of a view, or of what was kept."""
        return self.query(f"SELECT * FROM {name} LIMIT 0").schema

    def types(self, name: str) -> dict[str, str]:
        """The type of each column of what was kept, as the engine itself calls it."""
        kept = self._connection.table(name)
        return {column: str(kind) for column, kind in zip(kept.columns, kept.types, strict=True)}

    def keep_users(self, name: str, query: str, views: dict[str, str], *, backwards: bool) -> None:
        """As `keep`, for a query that somebody gave: `views` are the names that it knows these views by.

        `backwards`: its input comes the other way round.
        """
        actor = f"{ACTOR}: an SQL reduction"
        try:
            statement = self._stoppable(lambda: read_statement(self._connection, query))
        except InvalidRequestError as error:
            error.actor = actor
            raise
        others = [name for name in statement.tables if folded(name) not in views]
        if others:
            raise InvalidRequestError(
                f"the table {others[0]!r}",
                actor=actor,
                expected=f"its view, {' or '.join(views)}",
                reason=Reason.NOT_PERMITTED_IN_SQL,
            )
        order = (
            f" ORDER BY {PARTITION} DESC, {OFFSET} DESC" if backwards else f" ORDER BY {PARTITION}, {OFFSET}"
        )
        for known, view in views.items():
            self._run(f"CREATE OR REPLACE TEMP VIEW {known} AS SELECT * FROM {view}{order}")
        (alone,) = self._connection.extract_statements(
            statement.text
        )  # the statement alone, no comment after it
        self.keep(name, f"SELECT * FROM ({alone.query.rstrip().rstrip(';')}\n) AS reduction")

    def _run(self, query: str) -> None:
        with _missing():
            self._stoppable(lambda: self._connection.execute(query))

    def _stoppable(self, work: Callable[[], T]) -> T:
        return interruptibly(work, self._connection.interrupt)

    def _of_files(self, rows: FileRows) -> str:
        return self._duckdb.select_from(rows.parts, rows.schemas, (PARTITION, OFFSET), topic="")


@contextmanager
def _missing() -> Iterator[None]:
    """What DuckDB cannot do is evidence that is missing. Its text may quote a value: for whoever may read the data."""
    try:
        yield
    except duckdb.Error as error:
        raise EvidenceMissingError(f"DuckDB: {type(error).__name__}", str(error)) from error
