"""Who reads objects ahead of an audit: threads, and, for many small ones, other processes.

Decoding is Python's work, so threads share one processor. A process gets the store and the decoder as pickles, and
gives back what was decoded; nothing of it is judged there.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, Final, Protocol, TypeVar, cast, runtime_checkable

from storage.store import FolderStore, ObjectInfo, ObjectStore
from txn_engine.verify.raw_object import Decode, Fetched, RawObject, fetch

PROCESSES_FROM: Final = (
    1.0  # seconds of work for the threads before the first process: starting one takes as long
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class PortableDecode(Protocol[T_co]):
    """A decoder that can be sent to another process."""

    def __call__(self, raw: RawObject) -> T_co:
        """What the object holds."""
        ...

    def part(self, keys: Collection[str]) -> PortableDecode[T_co]:
        """The decoder with no more than these objects need."""
        ...


class _Spawning(SpawnContext):
    """Starts processes that know nothing of this one, and keeps them in mind."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[SpawnProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802 -- its name there
        """A process, not started yet."""
        process = SpawnProcess(*args, **kwargs)
        self.made.append(process)
        return process


class ReadingWorkers:
    """Reads objects, some at a time.

    threads: how many read; 0: the caller itself. processes: how many more, for decoders that can be sent; a process
    that is killed costs time only: the threads go on.
    """

    def __init__(self, store: ObjectStore, threads: int, processes: int) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="verify") if threads else None
        self._threads_each = threads
        self._wanted = processes if threads and processes > 1 else 0
        self._processes: ProcessPoolExecutor | None = None
        self._context = _Spawning()
        self._worked = 0.0  # seconds; what two threads add at once may count once

    @property
    def is_serial(self) -> bool:
        """Whether nothing is read ahead."""
        return self._threads is None

    @property
    def is_parallel(self) -> bool:
        """Whether processes read by now."""
        return bool(self._wanted) and self._worked >= PROCESSES_FROM

    def close(self) -> None:
        """Wait for what is being read, and start nothing more."""
        for pool in (self._threads, self._processes):
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, infos: Sequence[ObjectInfo], decode: Decode[T]) -> Callable[[], list[Fetched[T]]]:
        """Have these read; returned is what waits for them."""
        asked = [(info.key, info.size) for info in infos]
        if self.is_parallel and isinstance(decode, PortableDecode):
            sent = decode.part([info.key for info in infos])
            try:
                future = self._started().submit(_read_there, asked, sent)
            except (BrokenProcessPool, OSError):  # the second: it was killed while it was being started
                self._give_up()
                return self._submit_here(asked, decode)
            return lambda: self._finished(cast("Future[list[Fetched[T]]]", future), asked, decode)
        return self._submit_here(asked, decode)

    def _submit_here(self, asked: list[tuple[str, int]], decode: Decode[T]) -> Callable[[], list[Fetched[T]]]:
        if self._threads is None:
            return lambda: _read(self._store, asked, decode)
        return self._threads.submit(self._read_here, asked, decode).result

    def _read_here(self, asked: list[tuple[str, int]], decode: Decode[T]) -> list[Fetched[T]]:
        began = time.thread_time()
        found = _read(self._store, asked, decode)
        self._worked += time.thread_time() - began
        return found

    def _started(self) -> ProcessPoolExecutor:
        if self._processes is None:
            self._processes = ProcessPoolExecutor(
                self._wanted,
                mp_context=self._context,
                initializer=_begin,
                initargs=(self._store, self._threads_each),
            )
        return self._processes

    def _finished(
        self, future: Future[list[Fetched[T]]], asked: list[tuple[str, int]], decode: Decode[T]
    ) -> list[Fetched[T]]:
        try:
            return future.result()
        except BrokenProcessPool:
            self._give_up()
            return _read(self._store, asked, decode)

    def _give_up(self) -> None:
        """Read on without processes. One that outlives a killed one waits for ever, and its pool for it."""
        self._wanted = 0
        for process in self._context.made:
            if process.is_alive():
                process.kill()


def _read(store: ObjectStore, asked: list[tuple[str, int]], decode: Decode[T]) -> list[Fetched[T]]:
    return [fetch(store, key, size, decode) for key, size in asked]


# --- in a process that reads ------------------------------------------------------------------------------


@dataclass(slots=True)
class _There:
    """What a process that reads has been given."""

    store: ObjectStore | None = None
    pool: ThreadPoolExecutor | None = None


_there = _There()


def _begin(store: ObjectStore, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all: the audit ends its processes
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.disable()  # what is decoded has no cycles, and to look for some takes a tenth of the time
    _there.store = store
    _there.pool = None if isinstance(store, FolderStore) else ThreadPoolExecutor(threads)


def _end_with_parent() -> None:
    """A killed audit closes no pool, and a process waiting for its next task would wait for ever."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _read_there(asked: list[tuple[str, int]], decode: PortableDecode[Any]) -> list[Fetched[Any]]:
    store = cast("ObjectStore", _there.store)
    if _there.pool is None:
        return _read(store, asked, decode)
    return list(_there.pool.map(lambda each: fetch(store, each[0], each[1], decode), asked))
