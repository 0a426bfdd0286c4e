"""Rows reduced by Spark, for a proof of what one process does not hold: the same queries, the same verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from storage.scratch import ScratchFolder
from storage.store import ObjectStore
from txn_engine.errors import InvalidRequestError
from txn_engine.quality.declaration import ACTOR
from txn_engine.quality.evidence import EvidenceMissingError
from txn_engine.quality.file_pass import FileFacts, facts_of_file
from txn_engine.quality.relations import SPARK
from txn_engine.quality.rows import FileRows, Rows
from txn_engine.quality.spark_queries import permitted_query
from txn_engine.schemas.layout import Schemas
from txn_engine.spark.errors import SPARK_FAILURES, failure_of_tasks, reason, reasons_in_text
from txn_engine.spark.opening import check_classic, read_options, store_for_executors
from txn_engine.spark.reading import part_rows
from txn_engine.spark.session import check_spark_url
from txn_engine.spark_query_log import unlogged_queries
from txn_engine.sql.file_parts import OFFSET, PARTITION, FilePart

_SETTINGS: Final = {
    "spark.sql.ansi.enabled": "true",  # a sum that does not fit is an error
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",  # as DuckDB and the standard have it: one query means one thing
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.groupByOrdinal": "true",
    "spark.sql.orderByOrdinal": "true",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",  # no text names a setting or a variable of the environment
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",  # PyArrow writes the calendar that Spark has by now
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
}
_PART_BYTES: Final = 128 << 20
_TASKS_A_SLOT: Final = 4


class SparkReducer:
    """A reducer on a classic session: views over a topic's files read natively, queries on all its executors.

    Views and settings are in a session of their own. A query that somebody gave sees its view and no other table or
    file, and calls only functions that compute (`quality/spark_queries.py`). What is kept is cached, on disk where it
    does not fit, until `close`. On a cluster this package has to be installed where the executors run.
    """

    name = "Spark"
    dialect = SPARK

    def __init__(self, spark: SparkSession, store: ObjectStore) -> None:
        """Raises `SparkSessionError` for a session of Spark Connect, and for a store in memory."""
        check_classic(spark, ACTOR)
        check_spark_url(store.url)
        self._spark = spark.newSession()
        for name, value in _SETTINGS.items():
            self._spark.conf.set(name, value)
        self._store = store
        self._kept: dict[str, list[DataFrame]] = {}
        self._views: set[str] = set()
        self._scratch = ScratchFolder("check")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything, the folder too; the session that was given goes on."""
        for name in [*self._kept]:
            self.drop(name)
        for name in self._views:
            self._spark.catalog.dropTempView(name)
        self._scratch.close()

    @property
    def folder(self) -> Path:
        """Where Parquet files may be put that views are to be made of."""
        return self._scratch.path

    def look_at(
        self, schemas: Schemas, parts: Sequence[FilePart], progress: Callable[[int, int], None]
    ) -> tuple[FileFacts, ...]:
        """A look at every record of these files, by tasks; `progress` is told of their end."""
        context = self._spark.sparkContext
        size = sum(part.size for part in parts)
        tasks = max(min(len(parts), max(_TASKS_A_SLOT * context.defaultParallelism, size // _PART_BYTES)), 1)
        look = _Look(store_for_executors(self._store), schemas)
        try:
            found = context.parallelize(parts, tasks).mapPartitions(look).collect()
        except SPARK_FAILURES as error:
            raise failure_of_tasks(error, actor=f"{ACTOR} by Spark", action="check again") from error
        if parts:
            progress(len(parts), len(parts))
        return tuple(found)

    def allow(self, rows: Iterable[Rows]) -> None:
        """Nothing: `spark_queries` reads a query that somebody gave before Spark runs it."""

    def add(self, view: str, rows: Rows) -> None:
        """A view of these rows: the topic's columns, `_partition` and `_offset`."""
        with _missing():
            self._view(view, self._frame_of(rows))

    def add_parquet(self, view: str, path: Path) -> None:
        """A view of a Parquet file in `folder`: where the executors do not see it, of its rows."""
        with _missing():
            is_here = (self._spark.sparkContext.master or "").startswith("local")
            read = self._spark.read
            self._view(
                view,
                read.parquet(path.as_uri()) if is_here else self._spark.createDataFrame(pq.read_table(path)),
            )

    def keep(self, name: str, query: str) -> None:
        """The query's rows, under that name."""
        with _missing():
            kept = self._spark.sql(query).persist()
            kept.count()
        self._kept.setdefault(name, []).append(kept)
        self._view(name, kept)

    def keep_view(self, name: str, query: str) -> None:
        """The query, under that name."""
        with _missing():
            self._view(name, self._spark.sql(query))

    def drop(self, name: str) -> None:
        """Let go of what was kept."""
        for frame in self._kept.pop(name, ()):
            frame.unpersist()
        self._spark.catalog.dropTempView(name)

    def query(self, query: str) -> pa.Table:
        """What a query gives: for few rows."""
        with _missing():
            return self._spark.sql(query).toArrow()

    def frame(self, query: str, _rows: int) -> DataFrame:
        """The rows of a query, however many, which Great Expectations judges on Spark."""
        with _missing():
            return self._spark.sql(query)

    def columns(self, name: str) -> pa.Schema:
        """The columns of a view, or of what was kept."""
        return self.query(f"SELECT * FROM {name} LIMIT 0").schema

    def types(self, name: str) -> dict[str, str]:
        """The type of each column of what was kept, as the engine itself calls it."""
        return {field.name: field.dataType.simpleString() for field in self._spark.table(name).schema}

    def keep_users(self, name: str, query: str, views: dict[str, str], *, backwards: bool) -> None:
        """As `keep`, for a query that somebody gave: `views` are the names that it knows these views by.

        `backwards`: its input comes the other way round.
        """
        permitted = permitted_query(self._spark, query, views, what="an SQL reduction", actor=ACTOR)
        for known, view in views.items():
            rows, order = self._spark.table(view), [PARTITION, OFFSET]
            self._view(known, rows.orderBy(*order, ascending=not backwards))
        self.keep(name, permitted)

    def _view(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(name)
        self._views.add(name)

    def _frame_of(self, rows: Rows) -> DataFrame:
        if isinstance(rows, FileRows):
            options = read_options(self._spark, self._store)
            try:
                return part_rows(self._spark, rows, self._store.uri, options)
            except InvalidRequestError as error:  # a type that Spark has none for
                raise EvidenceMissingError(str(error)) from error
        return self._spark.createDataFrame(rows)


@dataclass(frozen=True, slots=True)
class _Look:
    """A task's look at files; it pickles."""

    store: ObjectStore
    schemas: Schemas

    def __call__(self, parts: Iterable[FilePart]) -> Iterator[FileFacts]:
        """What is in each."""
        try:
            with reasons_in_text():
                for part in parts:
                    yield facts_of_file(self.store, self.schemas, part)
        finally:
            self.store.close()


@contextmanager
def _missing() -> Iterator[None]:
    """What Spark cannot do is evidence that is missing. Its text may quote a value: for whoever may read the data."""
    try:
        with unlogged_queries():
            yield
    except SPARK_FAILURES as error:
        named = getattr(error, "getCondition", lambda: None)() or type(error).__name__
        raise EvidenceMissingError(f"Spark: {named}", reason(error)) from error
    except (pa.ArrowException, TypeError) as error:
        raise EvidenceMissingError(f"Spark: {type(error).__name__}", str(error)) from error
