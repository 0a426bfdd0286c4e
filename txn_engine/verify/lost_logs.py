"""Logs that are empty and were not always: what else in the store says how far each of them went."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from txn_engine.verify.descriptors import parse_data_path
from txn_engine.verify.findings import FindingLog, Place, Witness
from txn_engine.verify.objects import ObjectReader

_FIRST: Final = f"{0:020d}"


class LostLogs:
    """Collects witnesses of logs, and names the empty logs that one speaks against."""

    def __init__(self, reader: ObjectReader, findings: FindingLog) -> None:
        self._reader = reader
        self._findings = findings
        self._furthest: dict[Place, Witness] = {}

    def see(self, witnesses: Iterable[tuple[Place, Witness]]) -> None:
        """Keep the one that saw most of each log."""
        for place, witness in witnesses:
            if witness.offset > 0:
                self._furthest[place] = max(witness, self._furthest.get(place, witness))

    def named(self, topic: str) -> set[Place]:
        """The partitions of a topic that something speaks of, whether they are there or not."""
        return {place for place in self._furthest if place.topic == topic}

    def judge(self, log_ends: Mapping[Place, int | None]) -> Iterator[Place]:
        """Name the logs that end at 0 and went further, and give their places."""
        for place in sorted(place for place, end in log_ends.items() if end == 0):
            self._see_data_files(place)
            if self.note_if_lost(place):
                yield place

    def note_if_lost(self, place: Place) -> bool:
        """Name this log, which was found empty, if it went further. The first slot is asked for once more: what was
        witnessed may have come after the log was read.
        """
        witness = self._furthest.get(place)
        if witness is None or self._reader.read(f"{place.prefix}/log/{_FIRST}.parquet", lambda _: True):
            return False
        self._findings.add(
            "log-lost",
            f"{place.prefix}/",
            f"the log of {place} is empty, but {witness.name} says that it went to offset {witness.offset:,} at least",
            expected="the entries, or a snapshot, up to there",
            place=place,
        )
        return True

    def _see_data_files(self, place: Place) -> None:
        folder = f"{place.prefix}/data/"
        for info in self._reader.listing(folder, start_after=f"{folder}{1:020d}"):
            name = parse_data_path(f"data/{info.key.removeprefix(folder)}")
            if name is not None:
                witness = Witness(name.log_end, f"the name of data file {info.key.removeprefix(folder)}")
                self.see([(place, witness)])
