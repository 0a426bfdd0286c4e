"""`verify` on Spark: a task audits a partition, the driver what holds across logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from txn_engine.spark.errors import SPARK_FAILURES, failure_of_tasks
from txn_engine.spark.opening import UrlOrEngine, check_classic, opened, store_for_executors

if TYPE_CHECKING:
    from txn_engine.verify import VerifyReport
    from txn_engine.verify.findings import Place
    from txn_engine.verify.partition_audit import Progress
    from txn_engine.verify.partition_task import PartitionTask

_TASKS_A_SLOT = 8
_ACTOR = "verify by Spark"


def audit_store(
    spark: SparkSession,
    url_or_engine: UrlOrEngine,
    *,
    progress: Progress | None = None,
    now_ms: int | None = None,
    topics: Sequence[str] | None = None,
    check_data: bool = True,
    **connect_kwargs: Any,
) -> VerifyReport:
    """As `txn_engine.verify.verify_store`, whose findings and statistics it gives: the logs of groups and topics are
    audited by tasks, a partition each.

    The session must be a classic one (`SparkSessionError`). On a cluster this package has to be installed where the
    executors run. The driver holds what the coordinator's log says and the state of each partition without its files.
    `SparkJobError`: a task failed after Spark's own retries. Nothing is written.
    """
    from txn_engine.verify import verify_store

    check_classic(spark, _ACTOR)
    with opened(url_or_engine, **connect_kwargs) as engine:
        return verify_store(
            engine.store,
            progress=progress,
            now_ms=now_ms,
            topics=topics,
            check_data=check_data,
            elsewhere=SparkTasks(spark),
        )


class SparkTasks:
    """Calls a task for each place on the session's executors."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    def __call__(self, task: PartitionTask, places: Sequence[Place]) -> Sequence[bytes]:
        """The answers, in the order of the places."""
        task = replace(task, store=store_for_executors(task.store))
        slices = min(len(places), _TASKS_A_SLOT * self._context.defaultParallelism)
        try:
            return self._context.parallelize(places, slices).map(task).collect()
        except SPARK_FAILURES as error:
            raise failure_of_tasks(error, actor=_ACTOR, action="verify again") from error
