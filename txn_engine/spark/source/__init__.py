"""`format("txn_engine")`: topics in Spark's own reading and writing, batch and streaming, classic and Connect."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason
from txn_engine.spark.errors import reasons_in_text
from txn_engine.spark.source.columns import RANGES, source_schema
from txn_engine.spark.source.opening import open_engine
from txn_engine.spark.source.options import ACTOR, read_options, schema_options, sink_options
from txn_engine.spark.source.planning import Planner
from txn_engine.spark.source.reading import BatchReader, StreamReader
from txn_engine.spark.source.sink import BatchWriter, StreamWriter

NAME = "txn_engine"


class TxnEngineSource(DataSource):
    """Spark's entry: what `spark.read`, `readStream`, `write` and `writeStream` ask for their parts."""

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
        _refuse_overwriting(overwrite)
        return BatchWriter(sink_options(self.options, streaming=False), schema)

    @reasons_in_text()
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """A streaming sink."""
        _refuse_overwriting(overwrite)
        return StreamWriter(sink_options(self.options, streaming=True), schema)


def register(spark: SparkSession) -> None:
    """Make `format("txn_engine")` known to a session. Where the package is installed Spark finds it by itself."""
    spark.dataSource.register(TxnEngineSource)


def _refuse_overwriting(overwrite: bool) -> None:
    if overwrite:
        raise InvalidRequestError(
            "overwriting",
            actor=ACTOR,
            expected='mode "append": a log keeps what was written',
            reason=Reason.APPEND_ONLY,
        )
