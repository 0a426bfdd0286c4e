"""`python -m tests.spark.stalled_checks URL`: a run whose checks never end, to be killed while they run."""

from __future__ import annotations

import os
import sys
import threading

from pyspark.sql import DataFrame

from txn_engine.spark import run_consume_job, spark_session
from txn_engine.spark.balances import balances


def stay(rows: DataFrame) -> bool:
    """Print what the check sees, and never return."""
    print(f"checking {rows.count()}", flush=True)
    threading.Event().wait()
    return True


if __name__ == "__main__":
    url = sys.argv[1]
    run_consume_job(
        spark_session(url, log_path=os.devnull),
        url,
        topic="payments",
        group_id="balances",
        output_topic="balances",
        transactional_id="balances",
        transform=balances,
        run_id="monday",
        checks=stay,
    )
