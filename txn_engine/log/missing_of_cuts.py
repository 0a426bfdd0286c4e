"""What kept cuts read and is not there: snapshots, and data files that may be nobody else's any more. By listings; of
what a snapshot lists, that one snapshot is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.log.as_of import AsOfCut
from txn_engine.log.cut_format import Cut
from txn_engine.log.cuts import CutStore
from txn_engine.log.logs import Logs
from txn_engine.log.missing_files import missing_error, wrong_files
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.unreadable import DAMAGE, Unreadable, one_place

SNAPSHOTS_READ_MAX: Final = 2_000
"""So many snapshots are read in one look, those of the newest cuts first. The others are listed."""

_Ends = Mapping[int, Cut]
"""By the end of each snapshot, the cut that reads it up to the highest offset."""


class CutsAudit:
    """Looks for what kept cuts read. Threads may share it. `with_files`: for the data files that snapshots list too."""

    def __init__(self, logs: Logs, store: CutStore, *, with_files: bool) -> None:
        self._logs = logs
        self._store = store
        self._with_files = with_files

    def missing(self, cuts: Iterable[Cut]) -> list[Unreadable]:
        """One error for each partition of which something is missing that one of these cuts reads."""
        ends: defaultdict[TransactionPartition, dict[int, Cut]] = defaultdict(dict)
        read: dict[TransactionPartition, set[int]] = defaultdict(set)
        count = 0
        for cut in sorted(cuts, key=lambda each: -each.number):
            for at, offset, snapshot in _logs_of(cut):
                known = ends[at].get(snapshot)
                if known is None and count < SNAPSHOTS_READ_MAX and at.topic != CONSUMER_OFFSETS_TOPIC:
                    count += 1
                    read[at].add(snapshot)
                if known is None or offset > _offset(known, at):
                    ends[at][snapshot] = cut
        asked = [(at, found, read[at] if self._with_files else set()) for at, found in ends.items()]
        found = self._logs.workers.map(lambda each: self._look(*each), asked)
        return [each for each in found if each is not None]

    def _look(self, at: TransactionPartition, ends: _Ends, read: set[int]) -> Unreadable | None:
        try:
            with one_place(at.topic, at.partition):
                wrong = self._wrong(at, ends, read)
                if wrong is None or not self._is_current(at):
                    return None
                error, cut = wrong
                try:
                    self._store.find(cut.number)
                except InvalidRequestError:  # deleted meanwhile: clean-up may have been here
                    return None
                return Unreadable(at.topic, at.partition, error)
        except DAMAGE as error:
            return Unreadable(at.topic, at.partition, error)

    def _is_current(self, at: TransactionPartition) -> bool:
        is_internal = at.topic == CONSUMER_OFFSETS_TOPIC
        return is_internal or self._logs.topics.is_current(at.topic, at.incarnation)

    def _wrong(
        self, at: TransactionPartition, ends: _Ends, read: set[int]
    ) -> tuple[CorruptObjectError, Cut] | None:
        """The first thing that is wrong, and the newest cut that reads it."""
        log, objects = self._logs.of(at), self._logs.tools.objects
        listed = {end for _, end in objects.ours(log.keys.snapshots_prefix, log.keys.parse_snapshot)}
        for end in sorted(ends.keys() - listed):
            if not objects.exists(log.keys.snapshot(end)):
                return _no_snapshot(log.keys.snapshot(end), ends[end]), ends[end]
        sizes: dict[str, int] = {}
        needed_by: dict[str, Cut] = {}
        for end in sorted(read):
            cut = ends[end]
            state = AsOfCut(self._logs.tools, cut).state(at.topic, at.incarnation, at.partition)
            for file in state.live.values():
                if file.base_offset < _offset(cut, at):
                    key = f"{log.keys.prefix}/{file.file.data_path}"
                    sizes[key], needed_by[key] = file.file.data_bytes, cut
        wrong = wrong_files(objects, f"{log.keys.prefix}/data/", sizes) if sizes else {}
        for key, size in wrong.items():
            expected = f"the data file of {sizes[key]:,} bytes that cut {needed_by[key].number} reads"
            return missing_error(key, size, expected, others=len(wrong) - 1), needed_by[key]
        return None


def _logs_of(cut: Cut) -> Iterable[tuple[TransactionPartition, int, int]]:
    for topic in cut.topics:
        for number, log in enumerate(topic.partitions):
            if log.snapshot > 0:
                yield TransactionPartition(topic.topic, topic.incarnation, number), log.offset, log.snapshot
    for number, log in enumerate(cut.groups):
        if log.snapshot > 0:
            yield TransactionPartition(CONSUMER_OFFSETS_TOPIC, 0, number), log.offset, log.snapshot


def _offset(cut: Cut, at: TransactionPartition) -> int:
    log = cut.log(at.topic, at.incarnation, at.partition)
    return -1 if log is None else log.offset


def _no_snapshot(key: str, cut: Cut) -> CorruptObjectError:
    return CorruptObjectError(
        "no such object",
        place=key,
        expected=f"the snapshot that cut {cut.number} reads",
        action=f"restore it from a copy, or run `txn-engine cuts delete {cut.number} --execute` and make another cut",
    )
