"""Engines that the triggers of one process share, and the threads that ask them: one engine a store, opened with its
first user, closed with its last; a few threads a connection.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from airflow.sdk.exceptions import AirflowException

from txn_engine_airflow.connection import StoreConnection
from txn_engine_airflow.hook import connect_to, readable_errors

if TYPE_CHECKING:
    from txn_engine import Engine

T = TypeVar("T")

log = logging.getLogger(__name__)


THREADS_MAX = 4
"""Looks at the stores of one connection at a time; the others wait, and no other connection's."""


@dataclass(slots=True)
class _Shared:
    engine: Engine
    users: int


_lock = threading.Lock()
_shared: dict[StoreConnection, _Shared] = {}


@dataclass(slots=True)
class _Threads:
    executor: ThreadPoolExecutor
    users: int


_threads: dict[str, _Threads] = {}  # by connection; of the event loop's thread alone


class Questions:
    """Asks an engine from an event loop, each question in a thread, so that no answer is waited for in the loop."""

    def __init__(self, conn_id: str, threads: ThreadPoolExecutor) -> None:
        self._conn_id = conn_id
        self._threads = threads
        self._lock = threading.Lock()  # one question at a time, and no letting go under one
        self._store: StoreConnection | None = None

    async def ask(self, question: Callable[[Engine], T]) -> T:
        """The answer. Raises `AirflowFailException` where asking again is pointless, else `AirflowException`.

        After an error the connection is read anew for the next question: somebody may have mended it. A caller that is
        cancelled leaves at once; the thread ends with the store's answer, or its time limit.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._answer, question)

    def _answer(self, question: Callable[[Engine], T]) -> T:
        with self._lock:
            try:
                with readable_errors():
                    return question(self._engine())
            except AirflowException:
                self._let_go()
                raise

    def _engine(self) -> Engine:
        """The shared engine, opened at the first question: a store that is away is no reason to give up."""
        if self._store is None:
            store = StoreConnection.load(self._conn_id)
            _take(store)
            self._store = store
        return _shared[self._store].engine

    def _let_go(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            _give_back(store)

    def let_go(self) -> None:
        """Give up the engine, after the answer that is on its way; the last of its users closes it."""
        with self._lock:
            self._let_go()


@asynccontextmanager
async def questions(conn_id: str) -> AsyncIterator[Questions]:
    """Questions to the store of a connection, until the block ends.

    Each connection has threads of its own: a store that hangs holds up those who ask it, and nobody else.
    """
    threads = _threads.setdefault(conn_id, _Threads(ThreadPoolExecutor(THREADS_MAX, f"store-{conn_id}"), 0))
    threads.users += 1
    asked = Questions(conn_id, threads.executor)
    try:
        yield asked
    finally:
        letting_go = asyncio.get_running_loop().run_in_executor(threads.executor, asked.let_go)
        threads.users -= 1
        if not threads.users:
            del _threads[conn_id]
            threads.executor.shutdown(wait=False)
        await asyncio.shield(letting_go)


def _take(store: StoreConnection) -> None:
    with _lock:
        if store in _shared:
            _shared[store].users += 1
            return
    engine = connect_to(store)  # not under the lock: a store that does not answer would hold up the others
    with _lock:
        shared = _shared.get(store)
        if shared is None:
            _shared[store] = _Shared(engine, 1)
            log.info("store %s, by %s", engine.url, store.source)
            return
        shared.users += 1
    engine.close()


def _give_back(store: StoreConnection) -> None:
    with _lock:
        shared = _shared[store]
        shared.users -= 1
        if shared.users:
            return
        del _shared[store]
    shared.engine.close()
