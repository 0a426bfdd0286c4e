"""The demo's Spark: `python -m txn_engine.demo.spark_runner` runs the job into `balances` as it is told to."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame, SparkSession

from txn_engine.demo.balances import BALANCES, GROUP
from txn_engine.demo.payments import PAYMENTS
from txn_engine.demo.pipe import Order, Pipe, serve
from txn_engine.errors import OffsetsMovedError
from txn_engine.spark.balances import balances
from txn_engine.spark.job import ConsumeResult, Transform, run_consume_job
from txn_engine.spark.session import SHORT_JOB, spark_session

_OVERLAP_S = 300


class Runner:
    """One Spark session that takes orders: `run` the job, once, or two runs that `overlap`."""

    def __init__(self, spark: SparkSession, url: str, pipe: Pipe) -> None:
        self._spark = spark
        self._url = url
        self._wire = pipe

    def run(self, order: Order) -> None:
        """Run the job to its end; or, `until` its commit, say `about to commit` and wait there."""
        name = order["transactional_id"]
        if order["until"] == "commit":
            self._job(name, before_commit=self._wait_before_commit)
        else:
            self._say_committed(self._job(name))

    def overlap(self, order: Order) -> None:
        """Two runs of the group at once: both read from the same position, the first commits, then the other tries.

        Says `read` for each, `committed` for the first and `refused` for the other, with the error's code.
        """
        first, other = order["transactional_id"], order["overlapping_id"]
        first_has_read, other_has_read = threading.Event(), threading.Event()

        def first_transform(payments: DataFrame) -> DataFrame:
            self._wire.say("read", transactional_id=first)
            first_has_read.set()
            other_has_read.wait(_OVERLAP_S)
            return balances(payments)

        with ThreadPoolExecutor(1, thread_name_prefix="first") as thread:
            running = thread.submit(self._job, first, transform=first_transform)
            running.add_done_callback(lambda _: first_has_read.set())
            first_has_read.wait(_OVERLAP_S)
            if running.done():
                running.result()

            def other_transform(payments: DataFrame) -> DataFrame:
                self._wire.say("read", transactional_id=other)
                other_has_read.set()
                self._say_committed(running.result())
                return balances(payments)

            try:
                self._job(other, transform=other_transform)
            except OffsetsMovedError as error:
                self._wire.say("refused", code=error.code, text=str(error))
            else:
                self._wire.say("failed", text=f"{other} was not refused")
            finally:
                other_has_read.set()

    def _say_committed(self, result: ConsumeResult) -> None:
        end = [f"{place.partition}:{offset}" for place, offset in sorted(result.read_offsets.end.items())]
        self._wire.say(
            "committed",
            skipped=result.skipped,
            read=result.records_in,
            written=result.records_out,
            offsets=end,
        )

    def _wait_before_commit(self) -> None:
        self._wire.say("about to commit")
        self._wire.next_order()

    def _job(
        self,
        transactional_id: str,
        *,
        transform: Transform = balances,
        before_commit: Callable[[], None] | None = None,
    ) -> ConsumeResult:
        return run_consume_job(
            self._spark,
            self._url,
            topic=PAYMENTS,
            group_id=GROUP,
            output_topic=BALANCES,
            transactional_id=transactional_id,
            transform=transform,
            before_commit=before_commit,
        )


def main() -> int:
    """Run jobs as told; the exit code says how it ended."""
    parser = argparse.ArgumentParser(prog="spark_runner")
    parser.add_argument("--url", required=True)
    url = parser.parse_args().url

    def work(pipe: Pipe) -> None:
        spark = spark_session(url, app_name="txn-engine demo", extra=SHORT_JOB)
        spark.range(1_000).selectExpr("id % 7 AS key", "id").groupBy("key").count().collect()
        pipe.say("ready", version=spark.version)
        runner = Runner(spark, url, pipe)
        while (order := pipe.next_order()) is not None:
            {"run": runner.run, "overlap": runner.overlap}[order["do"]](order)
        spark.stop()

    return serve(work)


if __name__ == "__main__":
    sys.exit(main())
