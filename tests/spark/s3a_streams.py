"""`python -m tests.spark.s3a_streams URL LOG`: files and streams over a ledger in a bucket; says as JSON what was seen.

With `STORE` in the environment (endpoint, key and secret) the keys are given to `connect()`, and stand nowhere else.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

from minio import Minio
from pyspark.sql import SparkSession

import txn_engine
from storage import open_store
from tests.spark.conftest import SCHEMA, load, payments
from tests.spark.copying_streams import copy_by_format, copy_by_stream_topic
from tests.spark.test_loading import csv_of
from txn_engine.engine import Engine
from txn_engine.spark import load_files, spark_session


def connected(url: str) -> Engine:
    if "STORE" not in os.environ:
        return txn_engine.connect(url)
    endpoint, access_key, secret_key = os.environ["STORE"].split()
    return txn_engine.connect(url, endpoint=endpoint, access_key=access_key, secret_key=secret_key)


def put_file(engine: Engine, name: str) -> str:
    """Put 100 more payments into the bucket as a file. Returns its URL for Spark."""
    config = engine.store.config  # type: ignore[attr-defined]
    access_key, secret_key, _ = config.credentials()
    client = Minio(
        endpoint=config.endpoint.removeprefix("http://"),
        access_key=access_key,
        secret_key=secret_key,
        secure=False,
    )
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(csv_of(payments(150, 100)))
        file.flush()
        client.fput_object(bucket_name=config.bucket, object_name=name, file_path=file.name)
    return f"s3a://{config.bucket}/{name}"


def main(url: str, log: str) -> None:
    with connected(url) as engine, tempfile.TemporaryDirectory() as folder:
        for topic in ("payments", "copies", "others"):
            engine.admin.create_topic(topic, partitions=3, schema=SCHEMA, key="account_id")
        load(engine, 0, 150)
        spark = spark_session(url, log_path=log)
        path = put_file(engine, "days/one day.csv")
        loads = [load_files(spark, engine, "payments", path, run_id="day").records for _ in range(2)]
        for _ in range(2):
            copy_by_stream_topic(spark, engine, folder, max_offsets_per_trigger=100)
        seen = {"loads": loads, "copied": copied(engine, "copies")}
        if "STORE" not in os.environ:
            for _ in range(2):
                copy_by_format(spark, url, folder)
            seen["streamed"] = copied(engine, "others")
            seen["from_a_bucket"] = [from_a_bucket(spark, engine, scheme) for scheme in ("s3a", "s3")]
        seen["findings"] = [str(finding) for finding in engine.admin.verify().findings]
        print(json.dumps(seen))
        spark.stop()


def from_a_bucket(spark: SparkSession, engine: Engine, scheme: str) -> bool:
    """Whether two streams whose checkpoints are in the bucket copy each payment once. After their first run the note
    of the last micro-batch is removed, and they are started again.
    """
    config = engine.store.config  # type: ignore[attr-defined]
    folder = f"{scheme}://{config.bucket}/checkpoints/{scheme}"
    topics = [f"copies-{scheme}", f"others-{scheme}"]
    for topic in topics:
        engine.admin.create_topic(topic, partitions=2, schema=SCHEMA, key="account_id")
    checkpoints = open_store(f"s3://{config.bucket}/checkpoints/{scheme}")
    for run in range(2):
        copy_by_stream_topic(spark, engine, f"{folder}/a", output_topic=topics[0], transactional_id=topics[0])
        copy_by_format(spark, engine.url, f"{folder}/b", topic=topics[1])
        if not run:
            for name in ("a/topic/commits/0", "b/format/commits/0"):
                checkpoints.head(name)
                checkpoints.delete(name)
    return all(copied(engine, topic) for topic in topics)


def copied(engine: Engine, topic: str) -> bool:
    """Whether the topic has each payment once."""
    return sorted(engine.scan(topic).to_table(["trans_id"]).column(0).to_pylist()) == list(range(250))


if __name__ == "__main__":
    main(*sys.argv[1:])
