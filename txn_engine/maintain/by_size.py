"""Who compacts a partition: this process as far as it goes, and others where the partition is larger than that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from txn_engine.errors import OneProcessLimitError, SpillFullError, TxnEngineError
from txn_engine.log.topics import Topic
from txn_engine.maintain.in_process import InProcess
from txn_engine.maintain.policy import MaintenancePolicy
from txn_engine.maintain.target import Target
from txn_engine.maintain.workers import By, Merged, Rule, Selection, Workers
from txn_engine.protocol.partition import LogFile
from txn_engine.types import EngineChoice

Given = Callable[[], Workers]
"""Begins Spark, or says why there is none: raises one of the engine's errors, or `ModuleNotFoundError`."""


def workers_for(engine: EngineChoice, policy: MaintenancePolicy, spark: Given) -> Workers:
    """Workers of that choice. `spark` is called once at the most, when it is first needed."""
    if engine == "local":
        return InProcess(policy)
    return BySize(policy, spark, always=engine == "spark")


class BySize:
    """Workers that choose anew for each partition, and for the merges of each: by its records and bytes.

    Where Spark is needed and cannot be had, that partition is left as it is, with `OneProcessLimitError`.
    """

    def __init__(self, policy: MaintenancePolicy, spark: Given, *, always: bool = False) -> None:
        self._policy = policy
        self._local = InProcess(policy)
        self._given = spark
        self._always = always
        self._spark: Workers | TxnEngineError | ModuleNotFoundError | None = None

    @contextmanager
    def every(self, target: Target, topic: Topic, files: Sequence[LogFile]) -> Iterator[Selection]:
        """All their records; who merges them is chosen by what is to be merged."""
        with ExitStack() as stack:
            yield _Every(self, target, topic, files, stack)

    @contextmanager
    def latest(self, target: Target, topic: Topic, files: Sequence[LogFile]) -> Iterator[Selection]:
        """Of each key its last record: of Spark also where the local disk has no room for the keys."""
        by = self.by(files)
        with ExitStack() as stack:
            found: Selection
            if by.engine == "local":
                try:
                    found = stack.enter_context(self._local.latest(target, topic, files))
                except SpillFullError as error:
                    by = By("spark", f"{size_of(files)}: {error.seen}; expected {error.expected}")
            if by.engine == "spark":
                found = stack.enter_context(self._of_spark(target, by).latest(target, topic, files))
            yield _Told(found, by)

    def by(self, files: Sequence[LogFile]) -> By:
        """Who works on so much, and why."""
        if self._always:
            return By("spark", "Spark was asked for")
        records, size = sum(file.record_count for file in files), sum(file.file.data_bytes for file in files)
        most, most_bytes = self._policy.spark_above_records, self._policy.spark_above_bytes
        limits = f"{most:,} records and {_bytes(most_bytes)} for one process"
        if records > most or size > most_bytes:
            return By("spark", f"{size_of(files)}: more than {limits}")
        return By("local", f"{size_of(files)}: within {limits}")

    def _of_spark(self, target: Target, by: By) -> Workers:
        if self._spark is None:
            try:
                self._spark = self._given()
            except (TxnEngineError, ModuleNotFoundError) as error:
                self._spark = error
        if isinstance(self._spark, Exception):
            actor = f"compaction of {target.topic}-{target.partition}"
            raise OneProcessLimitError.without_spark(by.why, self._spark, actor=actor) from self._spark
        return self._spark

    def of(self, target: Target, by: By) -> Workers:
        """The workers chosen. Raises `OneProcessLimitError` where they are Spark's, and there is none."""
        return self._local if by.engine == "local" else self._of_spark(target, by)


class _Told:
    """A selection, and why its workers were chosen."""

    def __init__(self, selection: Selection, by: By) -> None:
        self._selection = selection
        self.by = by

    @property
    def counts(self) -> Sequence[int]:
        """How many there are of each file."""
        return self._selection.counts

    def merge(self, runs: Sequence[tuple[int, int]], rule: Rule) -> Iterator[Merged]:
        """By those who found them."""
        return self._selection.merge(runs, rule)


class _Every:
    """All records of files; who merges some of them is chosen once these are known. stack: ends with the selection."""

    def __init__(
        self, sizes: BySize, target: Target, topic: Topic, files: Sequence[LogFile], stack: ExitStack
    ) -> None:
        self._sizes = sizes
        self._stack = stack
        self._target = target
        self._topic = topic
        self._files = files
        self.by = By()

    @property
    def counts(self) -> Sequence[int]:
        """How many there are of each file."""
        return [file.record_count for file in self._files]

    def merge(self, runs: Sequence[tuple[int, int]], rule: Rule) -> Iterator[Merged]:
        """By whoever these runs are for."""
        self.by = self._sizes.by([file for start, end in runs for file in self._files[start:end]])
        workers = self._sizes.of(self._target, self.by)
        found = self._stack.enter_context(workers.every(self._target, self._topic, self._files))
        return found.merge(runs, rule)


def size_of(files: Sequence[LogFile]) -> str:
    """How much they are, in words."""
    records, size = sum(file.record_count for file in files), sum(file.file.data_bytes for file in files)
    return f"{records:,} records in {_bytes(size)}"


def _bytes(count: int) -> str:
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if count >= 10**power:
            return f"{count / 10**power:,.1f} {unit}"
    return f"{count} bytes"
