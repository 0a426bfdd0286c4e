"""`python -m tests.spark.cloud_round_trip URL ENDPOINT LOG`: a ledger in a store that Spark has no connector for; says
as JSON what was seen.

In a process of its own: Spark's Python workers have the environment, and its credentials, of when the JVM began.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import txn_engine
from storage.s3 import S3Config, S3Store
from tests.spark.conftest import SCHEMA, load, payments
from txn_engine.spark import read_topic, register, spark_session, write_topic
from txn_engine.spark.errors import SparkSessionError
from txn_engine.spark.hadoop import bucket_options
from txn_engine.spark.session import SHORT_JOB

AMAZON = S3Config("bucket", access_key="AKIA", secret_key="s3cr3t")
"""A bucket whose connector has jars, which a session for another store does not bring."""


def main(url: str, endpoint: str, log: str) -> None:
    """Read with the data source, write with `write_topic` and with the sink. Native reads of two stores are
    refused."""
    with txn_engine.connect(url) as engine:
        for topic in ("payments", "copies", "again"):
            engine.admin.create_topic(topic, partitions=2, schema=SCHEMA, key="account_id")
        load(engine, 0, 50)
        load(engine, 100, 10, commit=False)
        spark = spark_session(url, extra=SHORT_JOB, log_path=log)
        register(spark)
        read = spark.read.format("txn_engine").option("url", url).option("endpoint", endpoint)
        rows = read.option("subscribe", "payments").load().select(*SCHEMA.names)
        read_rows = rows.count()
        written = write_topic(rows, url, "copies", transactional_id="copy", run_id="1")
        sink = rows.write.format("txn_engine").mode("append")
        sink.option("url", url).option("topic", "again").option("transactionalId", "again").save()
        expected = payments(0, 50).sort_by("trans_id")
        agree = {
            topic: engine.scan(topic).to_table(SCHEMA.names).sort_by("trans_id").equals(expected)
            for topic in ("copies", "again")
        }
        refused = {
            "az": refusal(lambda: read_topic(spark, engine, "payments")),
            "s3": refusal(lambda: bucket_options(spark, S3Store(AMAZON))),
        }
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()
        kept = hadoop.get("fs.s3a.bucket.bucket.secret.key")
        seen = {
            "read": read_rows,
            "written": written.records,
            "agree": agree,
            "refused": refused,
            "kept": kept,
        }
        print(json.dumps(seen))
        spark.stop()


def refusal(read: Callable[[], object]) -> str | None:
    """The reason for which this session cannot read a store by itself."""
    try:
        read()
    except SparkSessionError as error:
        return error.reason
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
