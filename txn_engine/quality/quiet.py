"""Nothing of a check in a log: what Great Expectations and Spark say of a failure may quote a record."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from txn_engine.spark_query_log import unlogged_queries

_GX = "great_expectations"
_lock = threading.Lock()
_quiet_runs = 0
_propagated = True


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back what both would log; of Spark this thread's part alone. Errors are raised as ever."""
    with ExitStack() as held:
        held.enter_context(_quiet_great_expectations())
        held.enter_context(unlogged_queries())
        yield


@contextmanager
def _quiet_great_expectations() -> Iterator[None]:
    global _quiet_runs, _propagated  # noqa: PLW0603 -- loggers are the process's: the last run that ends gives them back
    logger = logging.getLogger(_GX)
    nothing = logging.NullHandler()
    with _lock:
        if not _quiet_runs:
            _propagated = logger.propagate
        _quiet_runs += 1
        logger.propagate = False
        logger.addHandler(nothing)
    try:
        yield
    finally:
        with _lock:
            logger.removeHandler(nothing)
            _quiet_runs -= 1
            if not _quiet_runs:
                logger.propagate = _propagated
