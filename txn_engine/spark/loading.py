"""`load_files`: csv, jsonl and Parquet files into a topic by Spark, once for each run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from storage.scratch import ScratchFolder
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.files import (
    FORMATS,
    BinaryText,
    Compression,
    DecimalMark,
    FileFormat,
    Missing,
    ThousandsMark,
    Unknown,
    format_of,
    read_records,
)
from txn_engine.found_files import FoundFile, check_opens
from txn_engine.loading.dead_letters import reading_of
from txn_engine.loading.load import was_committed
from txn_engine.loading.manifest import text_of_path
from txn_engine.log.row_sizes import RowSizes
from txn_engine.log.topics import Topic
from txn_engine.producer.runs import (
    ForgottenRuns,
    check_forgotten_runs,
    check_run_id,
    check_run_is_there,
    run_into,
)
from txn_engine.reasons import Reason
from txn_engine.schemas.defaults import fills
from txn_engine.spark.dead_letters import Taker, dead_letters_to
from txn_engine.spark.errors import SPARK_FAILURES, reason
from txn_engine.spark.listing import listed_files
from txn_engine.spark.opening import UrlOrEngine, check_classic, opened, read_options
from txn_engine.spark.transfer import handing_over_one_by_one
from txn_engine.spark.voting import Checks, vote_of
from txn_engine.spark.writing import DEFAULT_TIMEOUT_MS, FileRows, WriteResult, write_with
from txn_engine.types import MarkerMode

_ACTOR = "load_files"


def load_files(
    spark: SparkSession,
    url_or_engine: UrlOrEngine,
    topic: str,
    paths: str | Sequence[str],
    *,
    run_id: str,
    transactional_id: str | None = None,
    forgotten_runs: ForgottenRuns = "refuse",
    format: FileFormat | None = None,  # noqa: A002 -- what everybody calls it
    compression: Compression | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    quote: str = '"',
    header: bool | Sequence[str] = True,
    null_values: Sequence[str] = ("",),
    skip_footer: int = 0,
    columns: Mapping[str, str] | None = None,
    missing_columns: Missing = "refuse",
    unknown_columns: Unknown = "refuse",
    date_format: str | None = None,
    decimal: DecimalMark = ".",
    thousands: ThousandsMark | None = None,
    binary: BinaryText = "text",
    transaction_timeout_ms: int = DEFAULT_TIMEOUT_MS,
    markers: MarkerMode = "inline",
    checks: Checks | None = None,
    report_folder: str | os.PathLike[str] | None = None,
    dead_letter_topic: str | None = None,
    max_dead_letters: int | str | None = None,
    **connect_kwargs: Any,
) -> WriteResult:
    """Load the files that `paths` name, in one transaction of the run: run again after it committed, it loads nothing.

    `paths` are what Spark can list: files, folders, patterns (`s3a://bucket/day/*.csv`), no file twice; the store's
    own bucket with the engine's credentials, other places with the session's. Each executor reads whole files with
    `txn_engine.files.read_records`, whose arguments the others are. So every value is taken exactly, or the file is
    refused by its name, line and column, and the load with it. No cast of Spark's touches a value. A file is one
    task's; where it is not on a local disk it may have 2 GiB, and is copied to the executor's disk for the time of its
    reading.

    With a `dead_letter_topic` rows that cannot be used go there, in the same transaction, so that records and dead
    letters are all rows of the files; above `max_dead_letters` (a count, or a share as "1%") the load fails and nothing
    of it is visible.

    `checks` and `report_folder` are `write_topic`'s, held against what the files have become.

    The transactional id is `load-files/<topic>` unless one is given. The log knows the last 100 runs of an
    id; from then on a run that is none of them is refused, for it may have been loaded, unless `forgotten_runs` is
    "load".

    Raises:
        InvalidRequestError: no file, one of no known format, a dead-letter topic of other columns, or a run that the
            log may have forgotten; before anything is written.
        SparkJobError: a file does not fit the topic; nothing of the load is visible.
        InvalidRecordError: too many rows do not, or no file has any rows.
    """
    check_classic(spark, _ACTOR)
    check_run_id(run_id, actor=_ACTOR)
    check_forgotten_runs(forgotten_runs)
    with opened(url_or_engine, **connect_kwargs) as engine:
        info = engine.logs.topics.look_up(topic)
        letters = dead_letters_to(engine, dead_letter_topic, max_dead_letters, actor=_ACTOR, run_id=run_id)
        if letters is not None:
            letters.check_none_of((topic,))
        vote = vote_of(checks, report_folder, engine=engine, outputs=(topic,), actor=_ACTOR, letters=letters)
        name = f"load-files/{topic}" if transactional_id is None else transactional_id
        run = run_into(run_id, info)
        if was_committed(engine, name, run, forgotten_runs):
            check_run_is_there(engine.logs, name, run, info)
            return WriteResult(topic, 0, (), already_committed=True)
        reading = {
            "format": format,
            "compression": compression,
            "encoding": encoding,
            "delimiter": delimiter,
            "quote": quote,
            "header": header,
            "null_values": null_values,
            "skip_footer": skip_footer,
            "columns": dict(columns or {}),
            "missing_columns": missing_columns,
            "unknown_columns": unknown_columns,
            "date_format": date_format,
            "decimal": decimal,
            "thousands": thousands,
            "binary": binary,
            "row_checks": () if vote is None else vote.row_checks_of(topic),
        }
        rows = files_of(spark, engine, info, paths, reading)
        with engine.producer(
            transactional_id=name, transaction_timeout_ms=transaction_timeout_ms, markers=markers
        ) as producer:
            producer.init_transactions()
            return write_with(
                engine,
                producer,
                {topic: rows},
                offsets=None,
                run_id=run,
                forgotten_runs=forgotten_runs,
                vote=vote,
                letters=letters,
            )[topic]


def files_of(
    spark: SparkSession, engine: Engine, topic: Topic, paths: str | Sequence[str], reading: Mapping[str, Any]
) -> FileRows:
    """The files, for `write_with`. Raises as `load_files` does, before anything is read of them. Those of this machine
    are opened.
    """
    wanted = [paths] if isinstance(paths, str) else list(paths)
    if not wanted:
        raise InvalidRequestError("no paths", actor=_ACTOR, expected="one or more")
    options = read_options(spark, engine.store)
    names = listed_files(spark, wanted, options, any_suffix=reading.get("format") is not None)
    if reading.get("format") is None:
        for name in names:
            if format_of(PurePosixPath(name).name) is None:
                raise InvalidRequestError(
                    "a file of no known format",
                    actor=_ACTOR,
                    place=name,
                    expected=", ".join(sorted(FORMATS)),
                    action="name the format: csv, jsonl or parquet",
                    reason=Reason.UNKNOWN_FORMAT,
                )
    for name in {format_of(PurePosixPath(name).name): name for name in names}.values():
        read_records(Path(name), topic.schema, fill=fills(topic.schemas), **reading)  # nothing is opened yet
    named = frozenset(name for name, file in names.items() if file.is_named)
    folders = {name: file.folder for name, file in names.items() if file.folder is not None}
    reader = FileReader(topic, reading, named, folders)
    check_opens(reader.path_of(name) for name in names if is_local(name))
    files = _opened(handing_over_one_by_one(spark), list(names), options)
    listed = files.select("path") if all(map(is_local, names)) else files.select("path", "content")
    return FileRows(_spread(listed, len(names)), reader)


def _opened(spark: SparkSession, names: list[str], options: Mapping[str, str]) -> DataFrame:
    """Path and content of each, in the engine's own bucket with the engine's credentials, else with the session's."""
    reader = spark.read.format("binaryFile").options(**options)
    # The names are names by now, whatever brackets they have; and no folder's name makes a column.
    reader = reader.option("__globPaths__", "false").option("recursiveFileLookup", "true")
    reader = reader.option("ignoreMissingFiles", "false").option("ignoreCorruptFiles", "false")
    try:
        files = reader.load(names)
        taken = len(files.inputFiles())
    except SPARK_FAILURES as error:
        raise InvalidRequestError(
            reason(error), actor=_ACTOR, expected="files that Spark can list"
        ) from error
    if taken != len(names):
        raise InvalidRequestError(
            f"Spark took {taken} of {len(names)} files", actor=_ACTOR, expected="all of them"
        )
    return files


def _spread(files: DataFrame, count: int) -> DataFrame:
    """A few files a task: Spark puts small ones together by their bytes, and text becomes many more."""
    slots = files.sparkSession.sparkContext.defaultParallelism
    return files.repartitionByRange(min(count, 4 * slots), "path").sortWithinPartitions("path")


@dataclass(frozen=True, slots=True)
class FileReader:
    """A task's files to rows of the topic; it pickles. named: files that have to have some. folders: the folders that
    files of this machine have to be inside.
    """

    topic: Topic
    reading: Mapping[str, Any] = field(default_factory=dict)
    named: frozenset[str] = frozenset()
    folders: Mapping[str, str] = field(default_factory=dict)

    def __call__(
        self, batches: Iterator[pa.RecordBatch], taker: Taker | None = None
    ) -> Iterator[pa.RecordBatch]:
        """`batches`: of a file's name, and of its content where it is no file of this machine's."""
        for batch in batches:
            uris, *contents = batch.columns
            for number, uri in enumerate(map(str, uris.to_pylist())):
                try:
                    if contents:
                        yield from self._copied(uri, contents[0][number], taker)
                    else:
                        path = self.path_of(uri)
                        yield from self._read(path, str(path), taker)
                except InvalidRecordError as error:
                    if error.reason is not Reason.NO_RECORDS or uri in self.named:
                        raise  # others may have rows: the driver sees whether any has

    def path_of(self, uri: str) -> Path:
        """The path of a file of this machine, inside its folder if it was found in one."""
        folder = self.folders.get(uri)
        path = Path(_path_of(uri))
        return path if folder is None else FoundFile.of(path, os.path.realpath(folder))

    def _copied(self, uri: str, content: Any, taker: Taker | None) -> Iterator[pa.RecordBatch]:
        with ScratchFolder("load") as scratch:
            *folders, name = uri.split("/")
            path = Path(scratch.path, *(folder for folder in folders if "=" in folder), name)
            path.parent.mkdir(parents=True, exist_ok=True)  # a folder's name may have a column's value
            path.write_bytes(content.as_buffer())
            try:
                yield from self._read(path, uri, taker)
            except (InvalidRecordError, InvalidRequestError) as error:
                error.place = (error.place or "").replace(str(path), uri)
                raise

    def _read(self, path: Path, name: str, taker: Taker | None) -> Iterator[pa.RecordBatch]:
        """`name`: what letters call the file."""
        rejected = None
        if taker is not None:
            known = self.reading.get("format") or format_of(path.name) or ""
            rejected = taker(text_of_path(name), reading_of(known, self.reading, self.topic))
        yield from read_records(
            path,
            self.topic.schema,
            fill=fills(self.topic.schemas),
            sizes=RowSizes(self.topic),
            rejected=rejected,
            **self.reading,
        )


def is_local(name: str) -> bool:
    """Whether the name of a file means a file of this machine."""
    return name.startswith(("file:", "/"))


def _path_of(name: str) -> str:
    """A local file's path, of Hadoop's name for it."""
    return "/" + name.removeprefix("file:").lstrip("/")
