"""Erasing one topic's records: searched, named by their offsets, taken out, published anew, deleted.

search every file by the predicate       nothing is written
put the erasure if absent                offsets; from here on whoever comes finishes it, without the predicate
tell each partition's log                what stands for which file
publish the topic's tables               so that none shows a file that goes; one that cannot be is withdrawn
delete the files                         whatever cuts and pins hold
search again                             uploads without an entry, by the predicate alone; what came later
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from txn_engine.erasing.matching import Matcher
from txn_engine.erasing.report import ErasureReport, StillHeld
from txn_engine.erasing.searching import Found, Searcher
from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.log.cuts import CutStore
from txn_engine.log.erasures import (
    RANGES_MAX,
    Erasure,
    Erasures,
    PartitionErasure,
    erasure_key,
    ranges_of,
)
from txn_engine.log.logs import Logs
from txn_engine.log.pins import PinName, PinStore
from txn_engine.log.topics import Topic
from txn_engine.maintain.erasing import ErasedFrom, PartitionEraser, delete_erased
from txn_engine.maintain.target import Target
from txn_engine.protocol.file_names import parse_data_path
from txn_engine.protocol.proposals import FloorProposal
from txn_engine.reasons import Reason
from txn_engine.tables import Tables
from txn_engine.unreadable import DAMAGE, one_place

Progress = Callable[[str, int, int], None]
"""Called with what is done, how many partitions of it, and of how many."""
_TRIES: Final = 10
_UNTIL_OPEN: Final = "the transactions end that were open there: erase again then"
_UNTIL_FINISHED: Final = "it is finished: erase with --execute, or `txn-engine maintain clean`"
_UNTIL_UPLOAD: Final = "an entry names it, or clean-up takes it, at the latest after `orphan_days`"


@dataclass(frozen=True, slots=True)
class Finished:
    """An erasure that was begun and has come to its end. withdrawn: by format the tables that could not show what is
    left, and why.
    """

    topic: str
    incarnation: int
    number: int
    files: int
    deleted: int
    deleted_bytes: int
    records: int
    tables: dict[str, int]
    withdrawn: dict[str, str]


class _Named(NamedTuple):
    """The cuts and the pins that list a file with any of the records."""

    cuts: tuple[int, ...]
    pins: tuple[PinName, ...]


class TopicEraser:
    """Erases records of one topic."""

    def __init__(
        self,
        logs: Logs,
        topic: Topic,
        erasures: Erasures,
        cuts: CutStore,
        pins: PinStore,
        tables: Tables,
        progress: Progress,
    ) -> None:
        self._logs = logs
        self._topic = topic
        self._erasures = erasures
        self._cuts = cuts
        self._pins = pins
        self._tables = tables
        self._progress = progress

    def look(self, matcher: Matcher) -> ErasureReport:
        """What an erasure would be about. Nothing is written."""
        founds = self._search(matcher)
        named = self._named(founds)
        report = self._told(founds, named, executed=False)
        return replace(
            report,
            withdrawn=self._would_be_withdrawn(named.pins),
            still_held=(*report.still_held, *self._begun()),
        )

    def _begun(self) -> list[StillHeld]:
        """Erasures that are not finished: readers see none of their records any more, and files may still hold them."""
        topic = self._topic
        return [
            StillHeld(f"{topic.name}, files of erasure {number}, which was begun", -1, _UNTIL_FINISHED)
            for number, is_done in self._erasures.numbers(topic.name, topic.incarnation).items()
            if not is_done
        ]

    def erase(self, matcher: Matcher, *, everything: bool = False) -> ErasureReport:
        """Erase the records that the predicate chooses, of those below each partition's last stable offset.

        What others have begun is finished first. Raises `InvalidRequestError` where it would take every record,
        unless that is asked for: then nothing is written. `InvalidTimestampError` where this machine's clock is wrong:
        by the times that it writes files go, and by its time deleted cuts need nothing any more.
        """
        self._logs.tools.store_time.now()
        if not everything:
            refuse_constant(matcher)
        before = self.finish_begun()
        founds = self._search(matcher)
        records, every = sum(each.records for each in founds), sum(each.all_records for each in founds)
        if records == every > 0 and not everything:
            raise _takes_all(f"a condition that all {every:,} records meet")
        named = self._named(founds)
        report = self._told(founds, named, executed=True)
        done = [self.run(each) for each in self._begin(founds)]
        uploads = [
            self._delete_unnamed(target, matcher, found)
            for target, found in zip(self._targets(), founds, strict=True)
        ]
        return replace(
            report,
            erasures=tuple(each.number for each in done),
            finished_before=tuple(each.number for each in before),
            files=sum(each.files for each in done),
            deleted=sum(each.deleted for each in done) + sum(count for count, _ in uploads),
            deleted_bytes=sum(each.deleted_bytes for each in done) + sum(size for _, size in uploads),
            tables={name: version for each in done for name, version in each.tables.items()},
            withdrawn={name: why for each in (*before, *done) for name, why in each.withdrawn.items()},
            still_held=tuple(self._held(founds)),
        )

    def finish_begun(self) -> list[Finished]:
        """Finish the erasures of the topic that somebody has begun. Nobody needs to know how they came about."""
        begun = self._erasures.numbers(self._topic.name, self._topic.incarnation)
        return [
            self.run(self._erasures.get(self._topic.name, self._topic.incarnation, number))
            for number, is_done in begun.items()
            if not is_done
        ]

    # --- searching --------------------------------------------------------------------------------------------

    def _targets(self) -> list[Target]:
        topic, logs = self._topic, self._logs
        return [
            Target(
                topic.name,
                number,
                logs.get(topic.name, topic.incarnation, number),
                logs.tools,
                self._cuts,
                self._pins,
                topic,
                logs.topics,
            )
            for number in range(topic.partitions)
        ]

    def _search(self, matcher: Matcher) -> list[Found]:
        """One partition after the other: the predicate's DuckDB is one."""
        found = []
        for target in self._targets():
            with one_place(target.topic, target.partition):
                found.append(Searcher(target, self._topic, matcher).search())
            self._progress("searching", len(found), self._topic.partitions)
        return found

    def _told(self, founds: Sequence[Found], named: _Named, *, executed: bool) -> ErasureReport:
        return ErasureReport(
            self._topic.name,
            self._topic.incarnation,
            executed,
            tuple(each.told() for each in founds),
            cuts=named.cuts,
            pins=tuple(f"{pin.format} version {pin.version}" for pin in named.pins),
            still_held=tuple(self._held(founds)),
        )

    def _held(self, founds: Iterable[Found]) -> list[StillHeld]:
        """What an erasure now does not reach."""
        held = []
        for each in founds:
            place = f"{self._topic.name}-{each.partition}"
            if each.later:
                held.append(StillHeld(f"{place} from offset {each.searched_to} on", each.later, _UNTIL_OPEN))
            held += [
                StillHeld(f"{place} {name.data_path}, which no entry names", -1, _UNTIL_UPLOAD)
                for name in each.unnamed
            ]
            held += [
                StillHeld(f"{place} {path}, which cannot be read", -1, _UNTIL_UPLOAD) for path in each.unread
            ]
        return held

    def _named(self, founds: Sequence[Found]) -> _Named:
        """The cuts and the pins that list a file with any of the records: reading as of them will change."""
        paths = [[*each.live_files, *each.dead_files] for each in founds]
        if not any(paths):
            return _Named((), ())
        topic, incarnation = self._topic.name, self._topic.incarnation
        cuts = {
            cut.number: [log.snapshot for log in at.partitions]
            for cut in self._cuts.all()
            if (at := cut.find(topic, incarnation)) is not None
        }
        pins = {pin.name: pin.at.snapshots for pin in self._pins.of(topic, incarnation)}
        listing = [
            target.snapshots_listing(
                {ends[number] for ends in (*cuts.values(), *pins.values()) if number < len(ends)},
                [parse_data_path(path) for path in paths[number]],
            )
            for number, target in enumerate(self._targets()[: len(paths)])
        ]

        def lists(ends: Sequence[int]) -> bool:
            return any(end in those for end, those in zip(ends, listing, strict=False))

        return _Named(
            tuple(number for number, ends in cuts.items() if lists(ends)),
            tuple(name for name, ends in pins.items() if lists(ends)),
        )

    # --- doing it ---------------------------------------------------------------------------------------------

    def _begin(self, founds: Sequence[Found]) -> list[Erasure]:
        """Put what is to go on the store, as many erasures as it takes."""
        begun: list[Erasure] = []
        held: list[PartitionErasure] = []
        ranges = 0
        for found in founds:
            for part in _parts(found):
                count = len(ranges_of(part.offsets)) // 2
                if held and ranges + count > RANGES_MAX:
                    begun.append(self._put(held))
                    held, ranges = [], 0
                held.append(part)
                ranges += count
        return [*begun, self._put(held)] if held else begun

    def _put(self, parts: Sequence[PartitionErasure]) -> Erasure:
        return self._erasures.begin(self._topic.name, self._topic.incarnation, parts)

    def run(self, erasure: Erasure) -> Finished:
        """Bring an erasure that was begun to its end, whoever began it; again where that was cut off anywhere. Raises
        `CorruptObjectError` for one of partitions that the topic has not.
        """
        done = ErasedFrom()
        targets = self._targets()
        for part in erasure.partitions:
            if part.partition >= len(targets):
                raise CorruptObjectError(
                    f"an erasure in partition {part.partition}",
                    place=erasure_key(erasure.topic, erasure.incarnation, erasure.number),
                    expected=f"one of the topic's {len(targets)}",
                )
        for count, part in enumerate(erasure.partitions, start=1):
            target = targets[part.partition]
            with one_place(target.topic, target.partition):
                eraser = PartitionEraser(target, self._topic, erasure.number, part.offsets)
                eraser.run()
            done.add(eraser.done)
            self._progress("erasing", count, len(erasure.partitions))
        tables, withdrawn = self._publish(erasure.number)
        for part in erasure.partitions:
            with one_place(self._topic.name, part.partition):
                delete_erased(targets[part.partition], done)
        finished = Finished(
            erasure.topic,
            erasure.incarnation,
            erasure.number,
            done.live + done.dead,
            done.deleted,
            done.deleted_bytes,
            erasure.records,
            tables,
            withdrawn,
        )
        self._erasures.finish(
            erasure,
            {
                "files": finished.files,
                "deleted": finished.deleted,
                "deleted_bytes": finished.deleted_bytes,
                "tables": tables,
            },
        )
        return finished

    def _publish(self, number: int) -> tuple[dict[str, int], dict[str, str]]:
        """Let the tables that the topic has show what is left: which version of each does; and withdraw those that
        cannot, since their format does not say the topic's columns any more: which, and why.

        Raises `InvalidRequestError` where one cannot be published for another reason: then the files stay.
        """
        name = self._topic.name
        try:
            refused = self._tables.unsayable(name)
            formats = [each for each in self._published() if each not in refused]
            if formats:
                self._tables.publish(name, formats)
            withdrawn = {each: why for each, why in refused.items() if self._tables.shows_erased(name, each)}
            if withdrawn:
                self._tables.unpublish(name, list(withdrawn))
            now = self._published()  # without them where the topic was deleted or unpublished just now
            return {each: now[each] for each in formats if each in now}, withdrawn
        except (InvalidRequestError, *DAMAGE) as error:
            raise InvalidRequestError(
                f"no reader of the topic sees the records any more, but their files stay, which a table shows: {error}",
                actor=f"erasure {number} of topic {name!r}",
                action=f"mend it, or run `txn-engine tables unpublish {name} --execute`; then erase again",
                reason=Reason.FILES_HELD_BY_TABLE,
            ) from error

    def _would_be_withdrawn(self, listing: Sequence[PinName]) -> dict[str, str]:
        """The tables whose newest versions are among these, and that could not be published anew; and why. None where a
        table is not as its publisher left it: the erasure says so, and withdraws nothing.
        """
        topic = self._topic
        try:
            unsayable = self._tables.unsayable(topic.name) if listing else {}
        except DAMAGE:
            return {}
        newest = {name: self._pins.names(topic.name, topic.incarnation, name)[-1:] for name in unsayable}
        return {name: why for name, why in unsayable.items() if set(newest[name]) & set(listing)}

    def _published(self) -> dict[str, int]:
        """The formats of the tables that the topic has, and the newest version of each."""
        return {each.format: each.version for each in self._tables.status(self._topic.name) if each.cut >= 0}

    def _delete_unnamed(self, target: Target, matcher: Matcher, found: Found) -> tuple[int, int]:
        """Delete uploads that hold some of the records and that no entry names; how many, and their bytes.

        A floor above them comes first: who still meant to name one is refused, and uploads anew.
        """
        searcher = Searcher(target, self._topic, matcher)
        searcher.look_again(found)
        if not found.unnamed:
            return 0, 0
        self._raise_floor(target, max(name.log_end for name in found.unnamed) + 1)
        state = target.read_back()
        count = size = 0
        for name in found.unnamed:
            key = f"{target.keys.prefix}/{name.data_path}"
            if name.log_end < state.floor and name.data_path not in state.named:
                size += target.objects.size_of(key)
                target.objects.remove(key)
                count += 1
        searcher.look_again(found)
        return count, size

    def _raise_floor(self, target: Target, floor: int) -> None:
        """Above the log's end there is no floor: one at the end comes first, and takes an offset itself. In an empty
        log there is none at all.
        """
        for _ in range(_TRIES):
            state = target.read_back()
            wanted = min(floor, state.log_end_offset)
            if wanted <= state.floor:
                return
            with suppress(InvalidRequestError):  # somebody else has raised it further
                target.log.append_one(FloorProposal(wanted))


def _parts(found: Found) -> list[PartitionErasure]:
    """A partition's offsets, in parts that an erasure's object has room for."""
    if not len(found.offsets):
        return []
    breaks = np.flatnonzero(np.diff(found.offsets) > 1) + 1
    at = [0, *breaks[RANGES_MAX - 1 :: RANGES_MAX], len(found.offsets)]
    return [
        PartitionErasure(found.partition, found.searched_to, found.offsets[first:behind])
        for first, behind in pairwise(at)
    ]


def refuse_constant(matcher: Matcher) -> None:
    """Raise `InvalidRequestError` for a condition that says the same of every record."""
    if matcher.is_constant:
        raise _takes_all("a condition that looks at no column")


def _takes_all(seen: str) -> InvalidRequestError:
    return InvalidRequestError(
        seen,
        actor="erase",
        expected="one that some records do not meet",
        action="say that everything is to go: --everything; or delete the topic",
        reason=Reason.CONDITION_TAKES_ALL,
    )
