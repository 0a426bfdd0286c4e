"""The processes that read users' Parquet files, each within a limit of memory (`parquet_child`).

A process reads one file after another, so a folder of a thousand files starts one. It ends with this process, or when
it did not answer as it should have.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self, cast

import pyarrow as pa

from txn_engine.errors import InvalidRequestError
from txn_engine.files.layout import ACTOR
from txn_engine.files.parquet_child import FRAME
from txn_engine.found_files import FoundFile, opened
from txn_engine.reasons import Reason

MEMORY_VARIABLE: Final = "TXN_ENGINE_PARQUET_MEMORY_MB"
MEMORY_MB: Final = 1_024
"""What reading a Parquet file may take."""
_ROWS_IN_MEMORY: Final = 16
_IDLE_MAX: Final = 2
_PROGRAM: Final = str(Path(__file__).with_name("parquet_child.py"))
_KEPT_VARIABLES: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
"""Of the environment: a reader needs no key, token or password."""
_SPARING: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "1048576",  # what is let go of goes back to the system
}

Answer = Mapping[str, Any]


class ReaderDiedError(Exception):
    """The process that read the file has ended."""


class ParquetProcess:
    """A process that reads. One thread at a time uses it."""

    def __init__(self, memory_mb: int) -> None:
        self.memory_mb = memory_mb
        measured = {
            name: value for name, value in os.environ.items() if name.startswith(("COVERAGE_", "MEASURED_"))
        }
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-P", _PROGRAM, str(memory_mb * 1_000_000)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it may quote the file
            bufsize=0,
            start_new_session=True,  # a Ctrl-C is for this process, which then ends that one
            env=kept | measured | _SPARING | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            self._answer()
        except ReaderDiedError:
            self.close()
            raise InvalidRequestError(
                f"the process that reads Parquet files does not start: {sys.executable} -P {_PROGRAM}",
                actor=ACTOR,
                expected=f"a process that starts within {memory_mb:,} MB of memory",
                action=f"raise {MEMORY_VARIABLE}, or run the command with {memory_mb * 1_000_000} to see why",
                reason=Reason.BAD_ARGUMENT,
            ) from None
        except BaseException:
            self.close()
            raise

    def ask(self, question: Mapping[str, Any]) -> Iterator[pa.Schema | pa.RecordBatch | Answer]:
        """The answers: schemas and batches, and last what ends them. Raises `ReaderDiedError`."""
        pipe = cast("Any", self._process.stdin)
        try:
            pipe.write(json.dumps(question).encode() + b"\n")
        except BrokenPipeError:
            raise ReaderDiedError from None
        while True:
            found = self._answer()
            yield found
            if isinstance(found, dict):
                return

    def _answer(self) -> pa.Schema | pa.RecordBatch | Answer:
        kind, length = FRAME.unpack(self._exactly(FRAME.size))
        if length > self.memory_mb * 1_000_000:
            raise ReaderDiedError
        content = self._exactly(length)
        if kind == b"J":
            return cast("Answer", json.loads(content))
        if kind == b"S":
            return pa.ipc.read_schema(pa.py_buffer(content))
        with pa.ipc.open_stream(pa.py_buffer(content)) as stream:
            return stream.read_next_batch()

    def _exactly(self, length: int) -> bytearray:
        held = bytearray(length)
        view = memoryview(held)
        pipe = cast("Any", self._process.stdout)
        while view:
            count = pipe.readinto(view)
            if not count:
                raise ReaderDiedError
            view = view[count:]
        return held

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            cast("Any", pipe).close()


_idle: list[ParquetProcess] = []
os.register_at_fork(after_in_child=_idle.clear)  # they are the parent's


@atexit.register
def close_idle() -> None:
    """End the processes that wait for a file."""
    while _idle:
        _idle.pop().close()


def idle() -> tuple[ParquetProcess, ...]:
    """The processes that wait for a file."""
    return tuple(_idle)


class OpenedParquet:
    """A Parquet file that another process has opened: its columns, and its rows once.

    `answer` is what the process last said. Where it refuses the file, `answer` has an `error`, and the caller decides
    what to raise. Raises `ReaderDiedError` if the process ends.
    """

    schema: pa.Schema
    answer: Answer

    def __init__(self, path: Path) -> None:
        memory_mb = _memory_mb()
        with _identified(path) as question:
            self._reader = self._process(memory_mb)
            self._is_between_answers = False
            try:
                for found in self._reader.ask(question):
                    if isinstance(found, pa.Schema):
                        self.schema = found
                    else:
                        self.answer = cast("Answer", found)
                self._is_between_answers = True
            except BaseException:
                self._reader.close()
                raise

    @staticmethod
    def _process(memory_mb: int) -> ParquetProcess:
        with suppress(IndexError):
            found = _idle.pop()
            if found.memory_mb == memory_mb:
                return found
            found.close()
        return ParquetProcess(memory_mb)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Give the process back, or end it in the middle of an answer."""
        if self._is_between_answers and len(_idle) < _IDLE_MAX:
            _idle.append(self._reader)
        else:
            self._reader.close()

    @property
    def memory_mb(self) -> int:
        """What reading may take."""
        return self._reader.memory_mb

    @property
    def row_bytes(self) -> int:
        """What a row may hold: this process takes about ten times of that for the largest."""
        return self.memory_mb * 1_000_000 // _ROWS_IN_MEMORY

    def batches(self, **asked: Any) -> Iterator[pa.RecordBatch]:
        """The rows; what ended them is in `answer` then."""
        self._is_between_answers = False
        for found in self._reader.ask(asked):
            if isinstance(found, pa.RecordBatch):
                yield found
            else:
                self.answer = cast("Answer", found)
        self._is_between_answers = True


@contextmanager
def _identified(path: Path) -> Iterator[Mapping[str, Any]]:
    """What asks to open the file. One that was found is held open meanwhile, so that no other file gets its number, and
    the process opens that one or none.
    """
    if not isinstance(path, FoundFile):
        yield {"open": str(path)}
        return
    with opened(path) as held:
        state = os.fstat(held.fileno())
        yield {"open": str(path), "identity": [state.st_dev, state.st_ino]}


def _memory_mb() -> int:
    text = os.environ.get(MEMORY_VARIABLE, "") or str(MEMORY_MB)
    if not text.isdecimal() or not 0 < int(text) < 1 << 40:
        raise InvalidRequestError(
            f"{MEMORY_VARIABLE}={text!r:.40}",
            actor=ACTOR,
            expected="a whole number of megabytes above 0",
            reason=Reason.BAD_ARGUMENT,
        )
    return int(text)
