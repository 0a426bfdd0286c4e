"""A signal during DuckDB's work raises what its handler raises, whichever call started the work."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from storage import MemoryStore
from txn_engine.quality.in_process import InProcess
from txn_engine.sql.interruptible import interruptibly
from txn_engine.sql.locked import LockedDuckDB

LONG = "SELECT sum(i * i % 7) FROM range(3_000_000_000) t(i)"
DELAY_S = 0.2


class StoppedError(BaseException):
    """The error that the handler raises."""


@contextmanager
def stopped_in_a_moment() -> Iterator[None]:
    """A signal comes while the block runs, and ends the block."""

    def stop(*_: object) -> None:
        raise StoppedError

    before = signal.signal(signal.SIGINT, stop)
    timer = threading.Timer(DELAY_S, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(StoppedError):
            yield
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


@pytest.mark.shard("engines")  # where the query is over too early, the signal ends the whole test process
def test_on_the_main_thread_duckdb_itself_makes_another_error_of_it() -> None:
    """On the main thread, DuckDB turns a signal into an error of its own. If it no longer does,
    `interruptibly` is not needed."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(DELAY_S, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(RuntimeError, match="interrupted"):
            duckdb.connect().execute(LONG).fetchall()
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


def test_a_query_is_ended() -> None:
    with closing(duckdb.connect()) as connection, stopped_in_a_moment():
        interruptibly(lambda: connection.execute(LONG).fetchall(), connection.interrupt)


def test_while_duckdb_is_set_up_the_folder_goes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = duckdb.connect

    def slow(**config: Any) -> duckdb.DuckDBPyConnection:
        connection = real(**config)
        connection.execute("SELECT sum(i * i % 7) FROM range(100_000_000) t(i)")
        while not reached.wait(0.01):
            connection.execute("SELECT sum(i * i % 7) FROM range(10_000_000) t(i)")
        return connection

    reached = threading.Event()
    threading.Timer(2 * DELAY_S, reached.set).start()
    monkeypatch.setattr(duckdb, "connect", slow)
    with stopped_in_a_moment():
        LockedDuckDB(MemoryStore("slow"), memory="100MB", spill=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_check_of_quality_is_ended(tmp_path: Path) -> None:
    with InProcess(MemoryStore("checked"), spill=tmp_path) as reducer, stopped_in_a_moment():
        reducer.query(LONG)
    assert list(tmp_path.iterdir()) == []
