"""`format("txn_engine")`: topics in Spark's own reading and writing, batch and streaming, classic and Connect."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, ClassVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason
from txn_engine.spark.errors import reasons_in_text
from txn_engine.spark.opening import is_connect
from txn_engine.spark.source.columns import RANGES, source_schema
from txn_engine.spark.source.opening import open_engine
from txn_engine.spark.source.options import ACTOR, read_options, schema_options, sink_options
from txn_engine.spark.source.planning import Planner
from txn_engine.spark.source.reading import BatchReader, StreamReader
from txn_engine.spark.source.sink import BatchWriter, StreamWriter

NAME = "txn_engine"


class TxnEngineSource(DataSource):
    """Spark's entry: what `spark.read`, `readStream`, `write` and `writeStream` ask for their parts.

    working_directory: where relative locations of the session begin, as a URL; None where `register` did not say.
    """

    working_directory: ClassVar[str | None] = None

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        """What `format(...)` is given."""
        return NAME

    @reasons_in_text()
    def schema(self) -> StructType:
        """The columns of a read."""
        options = schema_options(self.options)
        if options.ranges_only:
            return RANGES
        with open_engine(options.store) as engine:
            return source_schema(Planner(engine, options).topics(), options)

    @reasons_in_text()
    def reader(self, schema: StructType) -> BatchReader:
        """A batch read."""
        return BatchReader(read_options(self.options, streaming=False), schema)

    @reasons_in_text()
    def streamReader(self, schema: StructType) -> StreamReader:
        """A stream."""
        return StreamReader(read_options(self.options, streaming=True), schema)

    @reasons_in_text()
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """A batch write."""
        if overwrite:
            raise InvalidRequestError(
                "overwriting",
                actor=ACTOR,
                expected='mode "append": a log keeps what was written',
                reason=Reason.APPEND_ONLY,
            )
        return BatchWriter(sink_options(self.options, streaming=False), schema)

    @reasons_in_text()
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """A streaming sink. Spark asks for overwriting in the output mode "complete"."""
        if overwrite:
            raise InvalidRequestError(
                'outputMode("complete")',
                actor=ACTOR,
                expected='outputMode("append"): "complete" replaces the whole result with each micro-batch, and a '
                "topic is a log, which keeps every record that was written",
                action="for the latest row of each key write to a topic that has a key and cleanup.policy=compact: use "
                "stream_topic, and let `each` return the rows that a micro-batch changes",
                reason=Reason.APPEND_ONLY,
            )
        return StreamWriter(sink_options(self.options, streaming=True), schema, self.working_directory)


def register(spark: SparkSession) -> None:
    """Make `format("txn_engine")` known to a session. Where the package is installed Spark finds it by itself.

    The session's default file system and its working directory are handed over, by which the location of a checkpoint
    without a scheme is resolved: Spark's Python processes do not know them. A session of Spark Connect does not tell.
    """
    directory = _working_directory(spark)

    class Registered(TxnEngineSource):
        working_directory = directory

    spark.dataSource.register(Registered)


def _working_directory(spark: Any) -> str | None:
    """That of the session's default file system; None where only Spark's server knows it, or Hadoop cannot open it."""
    if is_connect(spark):
        return None
    settings = spark._jsparkSession.sessionState().newHadoopConf()
    try:
        files = spark._jvm.org.apache.hadoop.fs.FileSystem.get(settings)
        return str(files.getWorkingDirectory().toString())
    except Py4JJavaError:
        return None
