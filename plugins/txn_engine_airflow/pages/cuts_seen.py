"""The newest cuts, and what is inside those that somebody looks at. Requests ask, the background thread reads.

A cut never changes: each is read once, and so is what lies inside it, a few partitions in a look.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from txn_engine import Cut, Engine
from txn_engine.log.as_of import AsOfCut
from txn_engine.log.cuts import CutNumber
from txn_engine.log.reading import FileSlice, choose_files
from txn_engine.unreadable import DAMAGE
from txn_engine_airflow.pages.troubles import for_viewers

CUTS_MAX = 100
PARTITIONS_A_LOOK = 64
"""So many states are read in one look, however many cuts somebody has open: all else waits meanwhile."""
KEPT_MAX = 32


@dataclass(frozen=True, slots=True)
class SeenCut:
    """A number, and of its cut the sum of the offsets of each topic, by name and incarnation."""

    number: CutNumber
    ends: Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class SeenCuts:
    """The newest cuts, newest first. `older`: at most so many more. `trouble`: why they are not known."""

    newest: tuple[SeenCut, ...] = ()
    older: int = 0
    trouble: str = ""

    def find(self, number: int) -> CutNumber | None:
        """What became of that number, if it is among them."""
        return next((each.number for each in self.newest if each.number.number == number), None)


@dataclass(frozen=True, slots=True)
class Inside:
    """What read_committed readers get of a partition as of a cut: so many records. `is_exact` False: at most so many,
    for the cut goes through a compacted file, whose offsets nobody has counted. `error`: why nobody can tell.
    """

    log_start: int
    records: int
    is_exact: bool
    code: str = ""
    error: str = ""


@dataclass(slots=True)
class _Reading:
    cut: Cut
    asked_ms: int
    found: dict[tuple[str, int], Inside] = field(default_factory=dict)


def look_at_cuts(engine: Engine, before: SeenCuts) -> SeenCuts:
    """The newest cuts now. Raises only where the store does not answer."""
    known = {each.number.number: each for each in before.newest}
    try:
        found = list(islice(engine.newest_cuts(), CUTS_MAX + 1))
    except DAMAGE as error:
        return SeenCuts(trouble=for_viewers(error))
    older = found.pop().number + 1 if len(found) > CUTS_MAX else 0
    return SeenCuts(tuple(_seen(each, known.get(each.number)) for each in found), older)


def _seen(number: CutNumber, before: SeenCut | None) -> SeenCut:
    return before if before is not None and before.number == number else SeenCut(number, _ends(number.cut))


def _ends(cut: Cut | None) -> Mapping[tuple[str, int], int]:
    topics = () if cut is None else cut.topics
    return {(each.topic, each.incarnation): sum(log.offset for log in each.partitions) for each in topics}


class CutReadings:
    """What is inside the cuts that somebody has asked for."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._lock = threading.Lock()
        self._readings: dict[int, _Reading] = {}

    def ask(self, cut: Cut) -> Mapping[tuple[str, int], Inside]:
        """By topic and partition, as far as it was read by now."""
        with self._lock:
            reading = self._readings.get(cut.number)
            if reading is None:
                reading = self._readings[cut.number] = _Reading(cut, 0)
            reading.asked_ms = self._monotonic_ms()
            return dict(reading.found)

    def follow(self, engine: Engine) -> None:
        """Read on, for whoever asked last; forget all but the last cuts that were asked for."""
        with self._lock:
            latest = sorted(self._readings.values(), key=lambda each: -each.asked_ms)
            self._readings = {each.cut.number: each for each in latest[:KEPT_MAX]}
        left = PARTITIONS_A_LOOK
        for reading in latest[:KEPT_MAX]:
            places = (
                (topic.topic, topic.incarnation, number)
                for topic in reading.cut.topics
                for number in range(len(topic.partitions))
                if (topic.topic, number) not in reading.found
            )
            wanted = list(islice(places, left))
            if not wanted:
                continue
            left -= len(wanted)
            as_of = AsOfCut(engine.logs.tools, reading.cut)
            found = list(engine.logs.workers.map(lambda at, by=as_of: _inside(by, *at), wanted))
            with self._lock:
                reading.found |= {
                    (topic, at): each for (topic, _, at), each in zip(wanted, found, strict=True)
                }

    def forget(self) -> None:
        """Drop everything: the engine is another one now."""
        with self._lock:
            self._readings.clear()


def _inside(as_of: AsOfCut, topic: str, incarnation: int, partition: int) -> Inside:
    log = as_of.cut.log(topic, incarnation, partition)
    end = 0 if log is None else log.offset
    try:
        state = as_of.state(topic, incarnation, partition)
    except DAMAGE as error:
        return Inside(-1, -1, False, error.code, for_viewers(error))
    start = state.log_start_offset
    parts = choose_files(state, partition, start, end, "read_committed")
    exact = all(part.is_whole or not part.log_file.has_gaps for part in parts)
    return Inside(start, sum(map(_most, parts)), exact)


def _most(part: FileSlice) -> int:
    return min(part.log_file.record_count, part.end_offset - part.start_offset)
