"""Spark in a task: a session of its own, whose words stay out of the task's log, and failures told by their kind."""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txn_engine.quality import SuitesRun

log = logging.getLogger(__name__)

_KIND = re.compile(r"\[[A-Z][A-Z0-9_.]+\]|\b\w+(?:Error|Exception)\b")
"""Spark's name of a condition, or a class of Python's or Java's."""


@contextmanager
def task_spark(url: str, settings: Mapping[str, str], *, app_name: str) -> Iterator[SparkSession]:
    """A session, stopped at the end unless it ran before. What an error of the block says is logged at once: the
    traceback that Airflow logs begins with Java's stack.

    What Spark says of a failure may quote a record, and a task's standard error is its log: so Spark has a file of its
    own, in a folder for the worker's user alone, which stays where the job fails.
    """
    from txn_engine.extras import need

    need("spark", actor=app_name)
    import pyspark.logger  # noqa: F401 -- so that there is a log to keep back
    from pyspark.sql import SparkSession

    from txn_engine.spark import spark_session
    from txn_engine.spark_query_log import unlogged_queries

    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of every connection that it closes
    if SparkSession.getActiveSession() is not None:
        with unlogged_queries(every_thread=True), _sentence_first():
            yield spark_session(url, app_name=app_name, extra=settings)
        return
    folder = Path(tempfile.mkdtemp(prefix="txn-engine-spark-"))
    try:
        spark = spark_session(url, app_name=app_name, extra=settings, log_path=folder / "spark.log")
        try:
            with unlogged_queries(every_thread=True), _sentence_first():
                yield spark
        finally:
            spark.stop()
    except BaseException:
        log.info("what Spark said: %s on this worker; it may quote records", folder / "spark.log")
        raise
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _sentence_first() -> Iterator[None]:
    from txn_engine.errors import TxnEngineError

    try:
        yield
    except TxnEngineError as error:
        log.error("%s", error)
        raise


def vote_told(vote: SuitesRun) -> dict[str, Any]:
    """The vote that a write has passed, in numbers and names; and in the log, a line a check: no value of a record."""
    for about, check in vote.checks:
        log.info("%s %s: %s (%s)", about, check.name, check.counts, check.status)
    if vote.report is not None:
        log.info("report of the checks: %s", vote.report)
    return {
        "report": None if vote.report is None else str(vote.report),
        "checks": len(vote.checks),
        "warnings": [f"{about}: {check.name}" for about, check in vote.warnings],
    }


@contextmanager
def kind_of_failure_alone(*, told: Collection[str] = ()) -> Iterator[None]:
    """Raise what failed in Spark's workers by its kind: its text may quote a record, and goes to logs and alerts.

    told: the kinds whose text quotes none, and is passed on.
    """
    from txn_engine.spark.errors import SparkJobError

    try:
        yield
    except SparkJobError as error:
        if error.seen.partition(":")[0] in told:
            raise
        kind = _KIND.search(error.seen)
        raise SparkJobError(
            f"the job failed in Spark's workers: {kind[0] if kind else 'of a kind without a name'}",
            actor=error.actor,
            action="nothing of this run is visible; run the same in a session of your own to see the record",
            reason=error.reason,
        ) from None
