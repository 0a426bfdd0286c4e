"""Compaction in this process: keys within a budget of memory and the local disk, one run of files at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from txn_engine.log.topics import Topic
from txn_engine.maintain.chosen import Chosen
from txn_engine.maintain.latest_keys import LatestKeys
from txn_engine.maintain.merged_files import RunMerger
from txn_engine.maintain.merging import FileMerger
from txn_engine.maintain.policy import MaintenancePolicy
from txn_engine.maintain.target import Target
from txn_engine.maintain.workers import By, Merged, Rule
from txn_engine.protocol.partition import LogFile


class InProcess:
    """The workers of who asks for no others."""

    def __init__(self, policy: MaintenancePolicy) -> None:
        self._policy = policy

    @contextmanager
    def every(self, target: Target, topic: Topic, files: Sequence[LogFile]) -> Iterator[Selected]:
        """All the records of these files."""
        yield Selected(_merger(target, topic), Chosen(files, None))

    @contextmanager
    def latest(self, target: Target, topic: Topic, files: Sequence[LogFile]) -> Iterator[Selected]:
        """Of each key its last record. Raises `SpillFullError` where the local disk has no room for the keys."""
        merger = _merger(target, topic)
        key = topic.key or ""
        keys = LatestKeys(
            topic.held.schema.field(key).type,
            sum(file.record_count for file in files),
            memory_bytes=self._policy.key_memory_bytes,
            spill_bytes=self._policy.spill_bytes,
            what=f"compaction of {target.topic}-{target.partition}",
        )
        with keys:
            for _, tables in merger.files.read(files, [key]):
                for table in tables:
                    keys.add(table.column(key))
            bits = keys.latest()
        yield Selected(merger, Chosen(files, bits))


class Selected:
    """Records of files, merged here."""

    by = By()

    def __init__(self, merger: RunMerger, chosen: Chosen) -> None:
        self._merger = merger
        self._chosen = chosen

    @property
    def counts(self) -> Sequence[int]:
        """How many there are of each file."""
        return self._chosen.counts

    def merge(self, runs: Sequence[tuple[int, int]], rule: Rule) -> Iterator[Merged]:
        """One run after the other, as they are asked for."""
        for start, end in runs:
            yield self._merger.merge(self._chosen.run(start, end), self._chosen.mask(start, end), rule)


def _merger(target: Target, topic: Topic) -> RunMerger:
    files = FileMerger(target.objects, target.tools.executor, topic, target.partition)
    return RunMerger(files, topic, target.partition, target.tools.new_id)
