"""How rows go from Spark to Python: in batches that cost little, for the time of a write."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
QUICK_TRANSFER: Final = {
    # As long as bytes are limited, Spark adds up the sizes of all columns before each row: half of the transfer's time.
    _BYTES: str(2**31 - 1),
    # So few fit a processor's cache, and memory where a record has 100 kB.
    _RECORDS: "2000",
}
"""Settings of a session for batches that cost little."""
_LOCK: Final = threading.Lock()
_RUNNING: Final[dict[int, int]] = {}
_SET: Final[dict[int, list[str]]] = {}


@contextmanager
def quick_transfer(spark: SparkSession) -> Iterator[None]:
    """Batches of 2,000 records however large they are, unless the session sets one of the limits itself: for records of
    a megabyte, say, which need fewer.

    Writes of one session may overlap: the last one to end leaves it as it was.
    """
    session = id(spark)
    with _LOCK:
        if not _RUNNING.get(session):
            own = spark.conf.getAll
            _SET[session] = [] if QUICK_TRANSFER.keys() & own.keys() else list(QUICK_TRANSFER)
            for name in _SET[session]:
                spark.conf.set(name, QUICK_TRANSFER[name])
        _RUNNING[session] = _RUNNING.get(session, 0) + 1
    try:
        yield
    finally:
        with _LOCK:
            _RUNNING[session] -= 1
            if not _RUNNING[session]:
                del _RUNNING[session]
                for name in _SET.pop(session):
                    spark.conf.unset(name)


def handing_over_one_by_one(spark: SparkSession) -> SparkSession:
    """A copy of the session whose tasks get a row at a time: for rows that are as large as files."""
    copy = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
    copy.conf.set(_RECORDS, "1")
    return copy
