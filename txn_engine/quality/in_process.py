"""Rows reduced in this process: DuckDB over the store's files, within a budget of memory, the rest on disk."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import duckdb
import pyarrow as pa

from storage.store import ObjectStore
from txn_engine.errors import InvalidRequestError
from txn_engine.quality.declaration import ACTOR
from txn_engine.quality.evidence import EvidenceMissingError
from txn_engine.quality.file_pass import FileFacts, look_at
from txn_engine.quality.relations import DUCKDB
from txn_engine.quality.rows import OFFSET, OFFSET_DELTA, PARTITION, FilePart, FileRows, Rows
from txn_engine.quality.store_files import PROTOCOL, StoreFiles
from txn_engine.quality.suite_rows import ROWS_MAX

MEMORY_BYTES: Final = 1_500_000_000
"""For everything that a check needs, this process's libraries among it."""
_OTHERS_BYTES: Final = 700_000_000
"""Of that: what Python, PyArrow and Great Expectations take, and what the audit has in memory."""
_LEAST_BYTES: Final = 200_000_000
_FILE, _BASE, _PART, _NAME = "_txn_file", "_txn_base", "_txn_partition", "_txn_name"


class InProcess:
    """A reducer: views over rows, and queries on them.

    Queries see nothing but the views: no file, no network, no extension. What does not fit the memory goes to a folder
    of its own below `spill`, which `close` removes.
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
        self._files = StoreFiles(store)
        self._folder = Path(tempfile.mkdtemp(prefix="txn-engine-check-", dir=spill))
        config: dict[str, Any] = {
            "memory_limit": f"{max(memory_bytes - _OTHERS_BYTES, _LEAST_BYTES)}B",
            "temp_directory": str(self._folder / "spill"),
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        if threads:
            config["threads"] = threads
        self._connection = duckdb.connect(config=config)
        self._connection.register_filesystem(self._files)
        self._connection.execute(
            f"SET allowed_directories = ['{PROTOCOL}://', {_literal(str(self._folder) + '/')}]"
        )
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")
        self._views = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything, the folder too."""
        self._connection.unregister_filesystem(PROTOCOL)
        self._connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def folder(self) -> Path:
        """Where Parquet files may be put that views are to be made of."""
        return self._folder

    def look_at(
        self, schema: pa.Schema, parts: Sequence[FilePart], progress: Callable[[int, int], None]
    ) -> tuple[FileFacts, ...]:
        """A look at every record of these files, by this process's threads."""
        return look_at(self._store, schema, parts, progress=progress)

    def add(self, view: str, rows: Rows) -> None:
        """A view of these rows: the topic's columns, `_partition` and `_offset`."""
        if isinstance(rows, pa.Table):
            self._connection.register(f"{view}_table", rows)
            self._run(f"CREATE OR REPLACE TEMP VIEW {view} AS SELECT * FROM {view}_table")
            return
        self._run(f"CREATE OR REPLACE TEMP VIEW {view} AS {self._of_files(view, rows)}")

    def add_parquet(self, view: str, path: Path) -> None:
        """A view of a Parquet file in `folder`."""
        self._run(f"CREATE OR REPLACE TEMP VIEW {view} AS SELECT * FROM read_parquet({_literal(str(path))})")

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
            found: pa.Table = self._connection.sql(query).to_arrow_table()
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

    def keep_users(self, name: str, query: str, views: dict[str, str], *, backwards: bool) -> None:
        """As `keep`, for a query that somebody gave: `views` are the names that it knows these views by.

        `backwards`: its input comes the other way round.
        """
        statements = self._parsed(query)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise InvalidRequestError(
                "an SQL reduction", actor=ACTOR, expected="one SELECT, and nothing else"
            )
        order = (
            f" ORDER BY {PARTITION} DESC, {OFFSET} DESC" if backwards else f" ORDER BY {PARTITION}, {OFFSET}"
        )
        for known, view in views.items():
            self._run(f"CREATE OR REPLACE TEMP VIEW {known} AS SELECT * FROM {view}{order}")
        text = query.strip().rstrip(";")
        self.keep(name, f"SELECT * FROM ({text}\n) AS reduction")

    def _parsed(self, query: str) -> Sequence[Any]:
        try:
            return self._connection.extract_statements(query)
        except duckdb.Error as error:
            raise InvalidRequestError(
                f"an SQL reduction: {str(error).splitlines()[0]}", actor=ACTOR, expected="one SELECT"
            ) from error

    def _run(self, query: str) -> None:
        with _missing():
            self._connection.execute(query)

    def _of_files(self, view: str, rows: FileRows) -> str:
        names = rows.schema.names
        columns = ", ".join(DUCKDB.column(name) for name in names)
        parts = rows.parts
        if not parts:
            self._connection.register(f"{view}_none", rows.schema.empty_table())
            return f"SELECT *, 0::INTEGER AS {PARTITION}, 0::BIGINT AS {OFFSET} FROM {view}_none WHERE false"
        self._files.add({part.key: part.size for part in parts})
        table = pa.table(
            {
                _NAME: pa.array([f"{PROTOCOL}://{part.key}" for part in parts], pa.string()),
                _PART: pa.array([part.partition for part in parts], pa.int32()),
                _BASE: pa.array([part.base_offset for part in parts], pa.int64()),
            }
        )
        self._connection.register(f"{view}_list", table)
        self._run(f"CREATE OR REPLACE TEMP TABLE {view}_files AS SELECT * FROM {view}_list")
        whole = [part for part in parts if part.is_whole]
        queries = []
        if whole:
            queries.append(
                f"SELECT {columns}, {_PART} AS {PARTITION}, {_BASE} + {OFFSET_DELTA} AS {OFFSET} "
                f"FROM {_read(whole)} JOIN {view}_files ON {_FILE} = {_NAME}"
            )
        queries += [_of_part(part, columns) for part in parts if not part.is_whole]
        return " UNION ALL ".join(queries)


@contextmanager
def _missing() -> Iterator[None]:
    """What DuckDB cannot do is evidence that is missing. Its text may quote a value: for whoever may read the data."""
    try:
        yield
    except duckdb.Error as error:
        raise EvidenceMissingError(f"DuckDB: {type(error).__name__}", str(error)) from error


def _of_part(part: FilePart, columns: str) -> str:
    delta = f"{OFFSET_DELTA} >= {part.start - part.base_offset} AND {OFFSET_DELTA} < {part.end - part.base_offset}"
    return (
        f"SELECT {columns}, {part.partition}::INTEGER AS {PARTITION}, "
        f"{part.base_offset}::BIGINT + {OFFSET_DELTA} AS {OFFSET} FROM {_read([part])} WHERE {delta}"
    )


def _read(parts: Sequence[FilePart]) -> str:
    names = ", ".join(_literal(f"{PROTOCOL}://{part.key}") for part in parts)
    return f"read_parquet([{names}], filename = '{_FILE}')"


def _literal(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"
