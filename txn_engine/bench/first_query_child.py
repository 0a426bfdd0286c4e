"""What an engine of somebody else takes for its first query, in a process of its own and by that engine's Python: it
has nothing of ours (`first_queries.py` starts it).

The argument is JSON: `engine`, `form` (`delta`, `iceberg`, or `bare` for the files themselves), `uri` (of the table),
`files` (a file that lists them, one a line), `jars`. The last line of the answer is JSON: `seconds` from before the
table is opened until the result is there, and the result.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from glob import glob
from importlib import import_module
from pathlib import Path
from typing import Any

ACCOUNTS = 2_000
_EXTENSIONS = ("parquet", "icu", "avro", "delta", "iceberg")
_SPARK = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
}
_OF_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

Query = Callable[[], tuple[int, str]]
"""Opens the table, counts the records of some accounts and adds them up."""


def duckdb_query(asked: dict[str, Any], files: list[str]) -> Query:
    """By a connection that has the extensions, which come in wheels, and has read nothing yet."""
    duckdb: Any = import_module("duckdb")
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in _EXTENSIONS:
        module = import_module(f"duckdb_extension_{name}")
        (path,) = glob(f"{Path(str(module.__file__)).parent}/extensions/*/*.duckdb_extension")
        connection.execute(f"LOAD '{path}'")

    def query() -> tuple[int, str]:
        names = ", ".join(f"'{file}'" for file in files)
        table = (
            f"read_parquet([{names}])"
            if asked["form"] == "bare"
            else f"{asked['form']}_scan('{asked['uri']}')"
        )
        count, total = connection.execute(
            f"SELECT count(*), sum(amount) FROM {table} WHERE account_id < {ACCOUNTS}"
        ).fetchone()
        return count, str(total)

    return query


def polars_query(asked: dict[str, Any], files: list[str]) -> Query:
    """Lazily, as its documentation has it."""
    polars: Any = import_module("polars")
    if asked["form"] != "bare":
        import_module("deltalake" if asked["form"] == "delta" else "pyiceberg.table")

    def query() -> tuple[int, str]:
        scans = {"bare": polars.scan_parquet, "delta": polars.scan_delta, "iceberg": polars.scan_iceberg}
        frame = scans[asked["form"]](files if asked["form"] == "bare" else asked["uri"])
        some = frame.filter(polars.col("account_id") < ACCOUNTS)
        count, total = some.select(polars.len(), polars.sum("amount")).collect().row(0)
        return count, str(total)

    return query


def spark_query(asked: dict[str, Any], files: list[str]) -> Query:
    """In a session that has done nothing yet."""
    sql: Any = import_module("pyspark.sql")
    functions: Any = import_module("pyspark.sql.functions")
    builder = sql.SparkSession.builder.master("local[2]").appName("first-query")
    settings = {**_SPARK, "spark.jars": asked["jars"], **(_OF_DELTA if asked["engine"] == "delta" else {})}
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")

    def query() -> tuple[int, str]:
        read = session.read
        frame = (
            read.parquet(*files) if asked["form"] == "bare" else read.format(asked["form"]).load(asked["uri"])
        )
        some = frame.where(functions.col("account_id") < ACCOUNTS)
        (row,) = some.agg(functions.count("*"), functions.sum("amount")).collect()
        return row[0], str(row[1])

    return query


_QUERIES = {"duckdb": duckdb_query, "polars": polars_query, "delta": spark_query, "iceberg": spark_query}


def main(words: list[str]) -> int:
    """Ask once, and say how long it took."""
    asked = json.loads(words[0])
    files = Path(asked["files"]).read_text(encoding="utf-8").splitlines()
    query = _QUERIES[asked["engine"]](asked, files)
    began = time.perf_counter()
    count, total = query()
    seconds = time.perf_counter() - began
    sys.stdout.write(json.dumps({"seconds": seconds, "count": count, "sum": total}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
