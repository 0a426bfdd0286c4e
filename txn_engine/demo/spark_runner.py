"""The demo's Spark: `python -m txn_engine.demo.spark_runner` runs the query into `balances` as it is told to."""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from txn_engine.demo.balances import BALANCES, GROUP
from txn_engine.demo.payments import CREDIT, KEY, PARTITIONS, PAYMENTS, PAYMENTS_SCHEMA
from txn_engine.demo.pipe import Order, Pipe, serve
from txn_engine.engine import connect
from txn_engine.errors import OffsetsMovedError
from txn_engine.spark.balances import BALANCES_SCHEMA, balances
from txn_engine.spark.job import Output, Transform, run_consume_job
from txn_engine.spark.session import SHORT_JOB, spark_session
from txn_engine.spark.streaming import Each, StreamBatch, stream_topic

_OVERLAP_S = 300


class Runner:
    """One Spark session that takes orders: `run` the query, once, or `overlap` with a job of the same group."""

    def __init__(self, spark: SparkSession, url: str, checkpoint: str, pipe: Pipe) -> None:
        self._spark = spark
        self._url = url
        self._checkpoint = checkpoint
        self._wire = pipe

    def run(self, order: Order) -> None:
        """Run the query to its end; with `asks`, say `about to commit` in each micro-batch and wait for leave."""
        asks = self._ask_before_commit if order["asks"] else None
        self._say_done(self.query(order["transactional_id"], most=order["most"], before_commit=asks))

    def overlap(self, order: Order) -> None:
        """The query, and a job of its group at once: both read from the same position, the query commits, then the job
        tries.

        Says `read` for each, `done` for the query and `refused` for the job, with the error's code.
        """
        query_has_read, job_has_read = threading.Event(), threading.Event()

        def each(payments: DataFrame, batch: StreamBatch) -> DataFrame:
            self._wire.say("read", transactional_id=order["transactional_id"], read=batch.record_count)
            query_has_read.set()
            job_has_read.wait(_OVERLAP_S)
            return balances(payments)

        with ThreadPoolExecutor(1, thread_name_prefix="query") as thread:
            running = thread.submit(self.query, order["transactional_id"], most=order["most"], each=each)
            running.add_done_callback(lambda _: query_has_read.set())
            query_has_read.wait(_OVERLAP_S)
            if running.done():
                running.result()

            def transform(payments: DataFrame) -> DataFrame:
                self._wire.say("read", transactional_id=order["overlapping_id"])
                job_has_read.set()
                self._say_done(running.result())
                return balances(payments)

            try:
                self._job(order["overlapping_id"], transform)
            except OffsetsMovedError as error:
                self._wire.say("refused", code=error.code, text=str(error))
            else:
                self._wire.say("failed", text=f"{order['overlapping_id']} was not refused")
            finally:
                job_has_read.set()

    def _say_done(self, batches: list[StreamBatch]) -> None:
        end = batches[-1].offsets.end if batches else {}
        self._wire.say(
            "done",
            batches=len(batches),
            read=sum(batch.record_count for batch in batches),
            offsets=[f"{place.partition}:{offset}" for place, offset in sorted(end.items())],
        )

    def _ask_before_commit(self, batch: StreamBatch) -> None:
        self._wire.say("about to commit", batch=batch.batch_id, read=batch.record_count)
        self._wire.next_order()

    def query(
        self,
        transactional_id: str,
        *,
        most: int,
        each: Each = lambda payments, _: balances(payments),
        before_commit: Callable[[StreamBatch], None] | None = None,
    ) -> list[StreamBatch]:
        """All that is there now, on the query's checkpoint; the micro-batches that it had to do."""
        done: list[StreamBatch] = []

        def noted(payments: DataFrame, batch: StreamBatch) -> Output:
            done.append(batch)
            return each(payments, batch)

        stream_topic(
            self._spark,
            self._url,
            PAYMENTS,
            each=noted,
            checkpoint=self._checkpoint,
            transactional_id=transactional_id,
            group_id=GROUP,
            output_topic=BALANCES,
            max_offsets_per_trigger=most,
            before_commit=None if before_commit is None else lambda: before_commit(done[-1]),
            trigger={"availableNow": True},
        ).awaitTermination()
        return done

    def _job(self, transactional_id: str, transform: Transform) -> None:
        run_consume_job(
            self._spark,
            self._url,
            topic=PAYMENTS,
            group_id=GROUP,
            output_topic=BALANCES,
            transactional_id=transactional_id,
            transform=transform,
        )


def _warm_up(spark: SparkSession, pipe: Pipe) -> None:
    """Run the query over one payment of a store of its own: a JVM's first stream takes seconds, and others load now."""
    with tempfile.TemporaryDirectory(prefix="txn-engine-demo-") as folder:
        url = Path(folder, "ledger").as_uri()
        row = {"trans_id": 1, "account_id": 1, "type": CREDIT, "amount": Decimal(1)}
        with connect(url) as engine, engine.producer() as producer:
            engine.admin.create_topic(PAYMENTS, partitions=PARTITIONS, schema=PAYMENTS_SCHEMA, key=KEY)
            engine.admin.create_topic(BALANCES, partitions=PARTITIONS, schema=BALANCES_SCHEMA, key=KEY)
            producer.produce(PAYMENTS, pa.Table.from_pylist([row], schema=PAYMENTS_SCHEMA)).result()
        Runner(spark, url, str(Path(folder, "checkpoint")), pipe).query("warm-up", most=1)


def work(pipe: Pipe, *, url: str, checkpoint: str) -> None:
    """Say `ready` when a session has run a query, and run queries as told."""
    spark = spark_session(url, app_name="txn-engine demo", extra=SHORT_JOB)
    _warm_up(spark, pipe)
    pipe.say("ready", version=spark.version)
    runner = Runner(spark, url, checkpoint, pipe)
    while (order := pipe.next_order()) is not None:
        {"run": runner.run, "overlap": runner.overlap}[order["do"]](order)
    spark.stop()


def main() -> int:
    """Run queries as told; the exit code says how it ended."""
    parser = argparse.ArgumentParser(prog="spark_runner")
    parser.add_argument("--url", required=True)
    parser.add_argument("--checkpoint", required=True)
    given = parser.parse_args()
    return serve(partial(work, url=given.url, checkpoint=given.checkpoint))


if __name__ == "__main__":
    sys.exit(main())
