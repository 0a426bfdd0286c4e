"""`python -m tests.spark.s3a_round_trip URL LOG`: read and write a ledger in a bucket; says as JSON what was seen."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import txn_engine
from tests.spark.conftest import PLACE, SCHEMA, balances_of, load, payments, sums
from txn_engine.spark import read_topic, run_consume_job, spark_session
from txn_engine.spark.balances import BALANCES_SCHEMA, balances


def command_lines() -> str:
    """The command lines of all processes that can be seen."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(process.read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


def main(url: str, log: str) -> None:
    """Read once, run a job, and run a job that finds nothing."""
    with txn_engine.connect(url) as engine:
        engine.admin.create_topic("payments", partitions=3, schema=SCHEMA, key="account_id")
        engine.admin.create_topic("balances", partitions=2, schema=BALANCES_SCHEMA, key="account_id")
        load(engine, 0, 100)
        load(engine, 1_000, 10, commit=False)
        load(engine, 100, 50)
        spark = spark_session(url, log_path=log)
        rows = read_topic(spark, url, "payments").df.toArrow().sort_by(PLACE)
        scanned = engine.scan("payments").to_table()
        job = {"topic": "payments", "group_id": "g", "output_topic": "balances", "transactional_id": "job"}
        first = run_consume_job(spark, url, transform=balances, **job)
        second = run_consume_job(spark, url, transform=balances, **job)
        assert os.environ["AWS_SECRET_ACCESS_KEY"] not in command_lines()
        assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str(spark.sparkContext.getConf().getAll())
        print(
            json.dumps(
                {
                    "rows_agree": rows.cast(scanned.schema).to_pylist() == scanned.sort_by(PLACE).to_pylist(),
                    "sums_agree": balances_of(engine) == sums(payments(0, 150)),
                    "records_out": first.records_out,
                    "skipped": second.skipped,
                    "findings": [str(finding) for finding in engine.admin.verify().findings],
                }
            )
        )
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
