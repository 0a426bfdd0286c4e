"""`python -m tests.spark.s3a_connections`: one session, two servers with a bucket of one name; JSON of what was seen.

The environment names the servers: FIRST and SECOND, each `endpoint access_key secret_key`, and BUCKET.
"""

from __future__ import annotations

import contextlib
import io
import json
import os

import txn_engine
from tests.spark.conftest import SCHEMA, load
from txn_engine.spark import read_topic, spark_session


def main() -> None:
    """Write two ledgers and read both in turn. The first is read once more after the second."""
    url = f"s3://{os.environ['BUCKET']}/ledger"
    connections = [connection(name) for name in ("FIRST", "SECOND")]
    for keys, rows in zip(connections, (100, 7), strict=True):
        with txn_engine.connect(url, **keys) as engine:
            engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
            load(engine, 0, rows)
    spark = spark_session(url)
    first, second = (read_topic(spark, url, "payments", **keys).df for keys in connections)
    counts = [first.count(), second.count(), first.count(), first.union(second).count()]
    again = read_topic(spark, url, "payments", **connections[1]).df.count()
    # The files of the first by somebody who has its list and no right to read it.
    thief = first._jdf.inputFiles()[0]
    try:
        stolen = str(spark.read.option("fs.s3a.impl.disable.cache", "true").parquet(thief).count())
    except Exception as error:  # noqa: BLE001 -- whatever Spark says
        stolen = type(error).__name__
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        first.explain("extended")
        second.explain("formatted")
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    kept = str(hadoop.getPropsWithPrefix("")) + str(spark.sparkContext.getConf().getAll())
    secrets = [keys["secret_key"] for keys in connections]
    print(
        json.dumps(
            {
                "counts": counts,
                "again": again,
                "stolen": stolen,
                "in_the_plan": any(secret in said.getvalue() for secret in secrets),
                "in_the_session": any(secret in kept for secret in secrets),
            }
        )
    )
    spark.stop()


def connection(name: str) -> dict[str, str]:
    endpoint, access_key, secret_key = os.environ[name].split(" ")
    return {"endpoint": endpoint, "access_key": access_key, "secret_key": secret_key, "region": "us-east-1"}


if __name__ == "__main__":
    main()
