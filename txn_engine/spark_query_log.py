"""PySpark's own log of queries that failed, which quotes values of records. It is kept out of logs that others read."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

FAILED_QUERIES: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""The loggers by which pyspark writes each failed query to standard error, with its text and the value that it met."""


@contextmanager
def unlogged_queries(*, every_thread: bool = False) -> Iterator[None]:
    """Keep failed queries out of the log for the length of the block; errors are raised as ever.

    Those of this thread, because the session may be another program's too, or those of `every_thread`.
    """
    module = sys.modules.get("pyspark.logger")
    if module is None:
        yield
        return
    mine = threading.get_ident()

    def others(record: logging.LogRecord) -> bool:
        return not every_thread and record.thread != mine

    loggers = [module.PySparkLogger.getLogger(name) for name in FAILED_QUERIES]
    for logger in loggers:
        logger.addFilter(others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(others)
