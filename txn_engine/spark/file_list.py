"""A DataFrame over a list of Parquet files, without asking the store about any of them.

Spark looks up every path that it is given, one after the other: in a bucket two requests a file before anything is
read. But it takes the word of a manifest, the one that its own streaming file sink leaves beside what it wrote
(`_spark_metadata/0`: a line of JSON a file), for which files there are and how large. The log knows both.
The rest is a plain `spark.read.schema(...).parquet(...)`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from txn_engine.reasons import Reason
from txn_engine.spark.errors import SPARK_FAILURES, SparkSessionError, reason
from txn_engine.spark.hadoop import spark_scheme
from txn_engine.types import ScanFile

_READ_OPTIONS = {
    "recursiveFileLookup": "true",  # the files lie anywhere, and no part of a path is taken for a column
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",  # PyArrow writes the calendar that Spark has by now
}
_READ_BY_FILES = "spark.sql.sources.useV1SourceList"
_BLOCK_BYTES = 128 * 1024 * 1024


def read_files(
    spark: SparkSession,
    files: Sequence[ScanFile],
    stamps: Sequence[int],
    schema: StructType,
    options: Mapping[str, str],
) -> DataFrame:
    """The rows of these files, read by Spark's own Parquet reader; `options` say how it gets at them.

    `stamps`: what Spark is to take for each file's modification time, in milliseconds. A file that is missing fails
    the read when it comes to that file.
    """
    _check_session(spark)
    with tempfile.TemporaryDirectory(prefix="txn-engine-files-") as folder:
        manifest = Path(folder, "_spark_metadata", "0")
        manifest.parent.mkdir()
        manifest.write_text("\n".join(["v1", *map(_line, files, stamps)]))
        # The manifest is read here and now, and never again.
        reader = spark.read.schema(schema).options(**_READ_OPTIONS, **options)
        try:
            frame = reader.parquet(Path(folder).as_uri())
        except SPARK_FAILURES as error:
            raise _not_taken(f"the list of {len(files)} files was refused: {reason(error)}") from error
    taken = len(frame._jdf.inputFiles())
    if taken != len(files):
        raise _not_taken(f"Spark took {taken} of {len(files)} files")
    return frame


def _check_session(spark: SparkSession) -> None:
    """Raise where the session reads Parquet another way than by files that it lists: there it tells nothing of them."""
    by_files = str(spark.conf.get(_READ_BY_FILES)).lower().split(",")
    if "parquet" not in map(str.strip, by_files):
        raise SparkSessionError(
            f"{_READ_BY_FILES} without parquet",
            actor="read_topic",
            expected="Spark's default for it",
            action="unset it in this session, or use spark_session()",
            reason=Reason.SESSION_SETTING,
        )


def _not_taken(seen: str) -> SparkSessionError:
    return SparkSessionError(
        seen,
        actor="read_topic",
        expected="a session that takes the list as it is",
        action="unset what this session has set under spark.sql.streaming.fileSink, or use spark_session()",
        reason=Reason.SESSION_SETTING,
    )


def file_url(uri: str) -> str:
    """The URL under which Spark finds a file of a scan: `file:///...` or its connector's, escaped."""
    folder, _, name = uri.rpartition("/")
    return f"{_folder_url(folder)}/{quote(name)}"


@lru_cache(maxsize=1_024)
def _folder_url(uri: str) -> str:
    """The files of a topic lie in a folder a partition, and a hundred thousand paths take seconds to parse."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return Path(uri).as_uri()
    return f"{spark_scheme(scheme)}://{quote(rest)}"


def pinned(frame: DataFrame) -> DataFrame:
    """The same rows, under the plan that Spark's optimizer makes of the frame as it is now.

    A query that asks for no more than data columns would otherwise be given all of `_metadata`, row numbers and paths
    too, because the frame mentions one field of it: the optimizer leaves the others out where that field is used alone.
    """
    plan = frame._jdf.queryExecution().optimizedPlan()
    session = frame.sparkSession
    rows = session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)  # type: ignore[union-attr]
    return type(frame)(rows, session)


def _line(file: ScanFile, stamp: int) -> str:
    """A line of JSON: a URL has nothing that JSON would escape."""
    return (
        f'{{"path":"{file_url(file.uri)}","size":{file.bytes},"isDir":false,"modificationTime":{stamp},'
        f'"blockReplication":1,"blockSize":{_BLOCK_BYTES},"action":"add"}}'
    )
