"""`python -m tests.support.class_archive`: make the archive of Spark's classes that the tests' JVMs start with.

It takes half a minute on a quiet machine, and pays for itself after four sessions. Make it again after a change of Java
or of Spark: until then each JVM ignores it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

import txn_engine
from tests.spark.conftest import SCHEMA, load
from tests.support import jvm
from txn_engine.engine import Engine
from txn_engine.spark import read_topic, register, run_consume_job, spark_session, stream_topic
from txn_engine.spark.balances import BALANCES_SCHEMA, balances

WAIT_S = 900
"""The JVM writes the archive when it exits."""


def main() -> None:
    """Use Spark as the tests do, and let its JVM write what it has loaded."""
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
    """A read, a job, a stream of each kind, and SQL."""
    for topic in ("payments", "copies", "others"):
        engine.admin.create_topic(topic, partitions=2, schema=SCHEMA, key="account_id")
    engine.admin.create_topic("balances", partitions=2, schema=BALANCES_SCHEMA, key="account_id")
    load(engine, 0, 100)
    read_topic(spark, engine, "payments").df.where("account_id > 2").orderBy("_offset").toArrow()
    job = {"topic": "payments", "group_id": "g", "output_topic": "balances", "transactional_id": "job"}
    run_consume_job(spark, engine, transform=balances, **job)
    stream_topic(
        spark,
        engine,
        "payments",
        each=lambda rows, _: rows.select(*SCHEMA.names),
        checkpoint=f"{folder}/topic",
        transactional_id="copier",
        output_topic="copies",
        trigger={"availableNow": True},
    ).awaitTermination()
    register(spark)
    source = {"url": engine.url, "subscribe": "payments", "startingOffsets": "earliest"}
    rows = spark.readStream.format("txn_engine").options(**source).load().select(*SCHEMA.names)
    sink = {"url": engine.url, "topic": "others", "checkpointLocation": f"{folder}/format"}
    writer = rows.writeStream.format("txn_engine").options(**sink)
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
