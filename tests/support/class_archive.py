"""`python -m tests.support.class_archive` makes the archive of Spark's classes that the tests' JVMs start
with.

It takes half a minute on a quiet machine, and pays for itself after four sessions. Make it again after a
change of Java or of Spark, because until then each JVM ignores it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

import txn_engine
from tests.spark.conftest import SCHEMA, load
from tests.spark.copying_streams import copy_by_format, copy_by_stream_topic
from tests.support import jvm
from txn_engine.engine import Engine
from txn_engine.spark import read_topic, run_consume_job, spark_session
from txn_engine.spark.balances import BALANCES_SCHEMA, balances

WAIT_S = 900
"""The JVM writes the archive when it exits."""


def main() -> None:
    """Use Spark as the tests do, and let its JVM write the classes that it has loaded."""
    archive = jvm.archive()
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        made = Path(folder, "made.jsa")
        os.environ["SPARK_SUBMIT_OPTS"] = f"{jvm.BRIEF} -XX:ArchiveClassesAtExit={made}"
        spark = spark_session("file:///", log_path=Path(folder, "spark.log"))
        with txn_engine.connect(f"file://{folder}/ledger") as engine:
            use(spark, engine, folder)
        spark.stop()
        process = SparkContext._gateway.proc
        SparkContext._gateway.shutdown()
        process.stdin.close()
        process.wait(timeout=WAIT_S)
        made.replace(archive)
    print(f"{archive}: {archive.stat().st_size >> 20} MiB")


def use(spark: SparkSession, engine: Engine, folder: str) -> None:
    """Run a read, a job, a stream of each kind, and SQL."""
    for topic in ("payments", "copies", "others"):
        engine.admin.create_topic(topic, partitions=2, schema=SCHEMA, key="account_id")
    engine.admin.create_topic("balances", partitions=2, schema=BALANCES_SCHEMA, key="account_id")
    load(engine, 0, 100)
    read_topic(spark, engine, "payments").df.where("account_id > 2").orderBy("_offset").toArrow()
    job = {"topic": "payments", "group_id": "g", "output_topic": "balances", "transactional_id": "job"}
    run_consume_job(spark, engine, transform=balances, **job)
    copy_by_stream_topic(spark, engine, folder)
    copy_by_format(spark, engine.url, folder)


if __name__ == "__main__":
    main()
