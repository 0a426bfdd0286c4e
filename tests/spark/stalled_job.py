"""`python -m tests.spark.stalled_job URL`: a run that stops just before its commit, to be killed there."""

from __future__ import annotations

import os
import sys
import threading

from txn_engine.spark import run_consume_job, spark_session
from txn_engine.spark.balances import balances


def wait_for_the_end() -> None:
    """Print where the run is, and never return."""
    print("about to commit", flush=True)
    threading.Event().wait()


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
        before_commit=wait_for_the_end,
    )
