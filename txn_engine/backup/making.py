"""Making a backup: a cut, the states of all logs as of it, the data files that they name, and a manifest, last
(docs/FORMAT.md, "Backups").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final

from storage import ObjectStore, overlap, would_overlap
from txn_engine.backup.copying import (
    Copier,
    Progress,
    Side,
    another_object,
    check_arrived,
    data_files,
    in_parts,
    listed,
)
from txn_engine.backup.manifest import Counts, LogRef, Manifest, ObjectRef, StateRef, copies_of
from txn_engine.backup.place import BackupPlace, OvertakenError, manifest_key
from txn_engine.backup.states import StatesAsOf
from txn_engine.backup.topic_objects import topic_objects
from txn_engine.clock import Clock
from txn_engine.coordinator.producer_ids import highest_block
from txn_engine.errors import (
    CorruptObjectError,
    InvalidRequestError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.log.cut_format import Cut, CutTopic, Part, cut_key
from txn_engine.log.logs import Logs
from txn_engine.log.lost_topics import lost_topics
from txn_engine.log.objects import store_errors
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txn_engine.log.topics import Topic
from txn_engine.protocol.partition import PartitionState
from txn_engine.reasons import Reason
from txn_engine.unreadable import DAMAGE

KEEP_MS = 8 * 86_400_000
"""How long the cut of a backup holds what it needs, where no later backup comes to its end before. As long as it is
there the next cut reads on from it.
"""
_DATA_FILE: Final = re.compile(
    r"topics/(?P<topic>[^/]+)/(?P<incarnation>\d{1,9})/(?P<partition>\d{1,9})/(?P<path>data/[^/]+\.parquet)$"
)


@dataclass(frozen=True, slots=True)
class Cuts:
    """How a backup comes to a cut: one of this number, a fresh one that is kept for so long; and away with it.
    claim_id: what only the store that claimed this number has, and its copies.
    """

    find: Callable[[int], Cut]
    make: Callable[[int], Cut]
    delete: Callable[[int], None]
    claim_id: Callable[[int], str]


class BackupMaker:
    """Makes backups of one store."""

    def __init__(self, logs: Logs, cuts: Cuts, clock: Clock) -> None:
        self._logs = logs
        self._cuts = cuts
        self._clock = clock

    def make(self, store: ObjectStore, cut: int | None, progress: Progress) -> Manifest:
        """A backup in the place that `store` is, as of this cut, or of a fresh one. Producers go on.

        Guarantee: once this returns the backup is whole, and every object of it was seen there in its size. Of one
        that was cut off the next run takes over what has come, once it has read it. What an earlier backup has is not
        read again; if a listing does not show it, it is copied again. Where backups are removed meanwhile, or records
        are erased, it starts again at the same cut.
        """
        objects = self._logs.tools.objects
        _check_apart(objects.place, store)
        place = BackupPlace.claim(
            objects.beside(store), self._logs.config.store_id, self._clock(), self._logs.tools.new_id()
        )
        cut_after = place.end() if cut is None else None
        found = self._cuts.make(KEEP_MS) if cut is None else self._given(cut)
        try:
            before, made = self._made(place, found, progress, cut_after)
        except BaseException:
            if cut is None:
                self._let_go(found.number)
            raise
        if before is not None and before.made_cut and before.cut != found.number:
            self._let_go(before.cut)
        return made

    def _made(
        self, place: BackupPlace, cut: Cut, progress: Progress, cut_after: int | None
    ) -> tuple[Manifest | None, Manifest]:
        """The newest before, and the one that was made."""
        missed: set[str] = set()
        while True:
            run = _Run(self._logs, place, cut, self._clock, progress, self._cuts.claim_id(cut.number))
            self._check_history(place, run.before)
            self._check_topics(place, cut, run.before)
            try:
                return run.before, run.run(cut_after)
            except OvertakenError:
                continue
            except DAMAGE as error:  # what it was about to read may have been removed under it
                if not run.is_overtaken() and not self._was_erased(error, missed):
                    raise self._why(error, cut) from error

    def _check_history(self, place: BackupPlace, before: Manifest | None) -> None:
        """Raise `InvalidRequestError` where the newest backup is of a cut that this store has not made: another copy of
        it has, and both go on as one store.
        """
        if before is None or not before.claim:
            return
        mine = self._cuts.claim_id(before.cut)
        if mine != before.claim:
            seen = "none of that number" if not mine else "another one of that number"
            raise InvalidRequestError(
                f"backup {before.number} is of a cut that this store has not made, though it has the same id: here is"
                f" {seen} ({cut_key(before.cut, Part.CLAIM)})",
                actor="backup",
                place=place.objects.uri(manifest_key(before.number)),
                expected="backups of this store alone: of two copies of one store only one may back up here",
                action="give the copy an id of its own (`txn-engine new-store-id`), and back it up elsewhere",
                reason=Reason.CONTRADICTS_EARLIER_BACKUP,
            )

    def _check_topics(self, place: BackupPlace, cut: Cut, before: Manifest | None) -> None:
        """Raise where the newest backup has a topic of which the store has no object, or that was recorded as gone
        after it was lost: without it this backup would become the newest, and pruning would remove the last copy.
        """
        if before is None:
            return
        inside = {(topic.topic, topic.incarnation) for topic in cut.topics}
        missing = {(log.topic, log.incarnation) for log in before.logs if not log.is_internal} - inside
        name = f"backup {before.number} in {place.objects.place.url}"
        for lost in lost_topics(self._logs.tools.objects, dict.fromkeys(missing, name)):
            raise lost.error
        for topic, incarnation in sorted(missing):
            if self._logs.topics.incarnation(topic, incarnation) is None:
                raise InvalidRequestError(
                    f"topic {topic!r} was lost and is recorded as gone, and backup {before.number} has it",
                    actor="backup",
                    place=place.objects.uri(manifest_key(before.number)),
                    expected="another place: here the backup would come before the last copy of that topic",
                    action="back up to another place, and keep this one as long as the topic may be needed",
                    reason=Reason.TOPIC_LOST,
                )

    def _was_erased(self, error: TxnEngineError, missed: set[str]) -> bool:
        """Whether what it misses is a file of which records were erased: who looks again is told of another one. Of one
        that it has missed before it was not: the erasure itself is gone from the store.
        """
        found = _DATA_FILE.search(str(error.place))
        if found is None or found[0] in missed:
            return False
        missed.add(found[0])
        log = self._logs.get(found["topic"], int(found["incarnation"]), int(found["partition"]))
        return found["path"] in log.refresh().erased

    def _why(self, error: TxnEngineError, cut: Cut) -> TxnEngineError:
        """The error; or another one, where what it misses went with a topic that was deleted."""
        for topic in cut.topics:
            folder = re.escape(f"topics/{topic.topic}/{topic.incarnation}/")
            key = re.search(rf"{folder}\S*[^\s/]", str(error.place))  # behind it an endpoint may stand
            if key is None or not isinstance(error, CorruptObjectError):
                continue
            if not self._logs.tools.objects.exists(key[0]) and self._was_deleted(topic):
                return InvalidRequestError(
                    f"cut {cut.number} has topic {topic.topic!r}, incarnation {topic.incarnation}, which was deleted"
                    " since, and its files with it",
                    actor="backup",
                    place=error.place,
                    expected="a cut of topics that are there, or were until 24 hours ago",
                    action="make a backup at a fresh cut, without --cut",
                    reason=Reason.TOPIC_DELETED_SINCE_CUT,
                )
        return error

    def _was_deleted(self, topic: CutTopic) -> bool:
        try:
            return self._logs.topics.look_up(topic.topic).incarnation != topic.incarnation
        except UnknownTopicOrPartitionError:
            return True

    def _given(self, number: int) -> Cut:
        found = self._cuts.find(number)
        if not found.every_topic:
            raise InvalidRequestError(
                f"cut {number}, which is of some topics",
                actor="backup",
                expected="a cut of all topics",
                action="leave --cut out, or make one by `txn-engine cuts create` without --topic",
                reason=Reason.PARTIAL_CUT,
            )
        counts = self._logs.config.internal_partitions
        held = {
            CONSUMER_OFFSETS_TOPIC: len(found.groups),
            TRANSACTION_STATE_TOPIC: len(found.coordinator_ends),
        }
        if held != dict(counts):
            raise CorruptObjectError(
                f"cut {number} of {held} partitions",
                actor="backup",
                expected=f"{dict(counts)}",
                reason=Reason.OTHER_INTERNAL_PARTITIONS,
            )
        return found

    def _let_go(self, number: int) -> None:
        with suppress(TxnEngineError):  # it expires
            self._cuts.delete(number)


@dataclass(frozen=True, slots=True)
class _FilesOf:
    """A log's data files: how many and how large, and those that no earlier backup has."""

    files: int
    bytes: int
    new: list[ObjectRef]
    copies: tuple[tuple[int, int], ...]


class _Run:
    """One backup under way. `before`: the newest in the place."""

    def __init__(
        self, logs: Logs, place: BackupPlace, cut: Cut, clock: Clock, progress: Progress, claim: str
    ) -> None:
        self._claim = claim
        self._logs = logs
        self._place = place
        self._cut = cut
        self._clock = clock
        self._progress = progress
        self._states = StatesAsOf(logs, cut)
        held = place.look(newest=True)
        self.before = held.newest
        self._number, self._generation = held.end, held.generation
        self._known = {_place_of(log): log for log in self.before.logs} if self.before else {}
        self._files = self._bytes = self._new_files = self._new_bytes = self._done = 0

    def run(self, cut_after: int | None) -> Manifest:
        refs = self._keep_states()
        refs = self._copy_files(refs)
        objects = self._copy_topics()
        return self._finish(refs, objects, cut_after)

    def is_overtaken(self) -> bool:
        """Whether backups were removed since this run began."""
        return self._place.look(newest=True).generation != self._generation

    # --- states ---------------------------------------------------------------------------------------------

    def _keep_states(self) -> list[LogRef]:
        """Put the state of every log into the place, a few at a time in memory."""
        refs = []
        for number, state in enumerate(self._states.ids()):
            at = (TRANSACTION_STATE_TOPIC, 0, number)
            refs.append(self._keep(*at, self._cut.coordinator_ends[number], state))
        groups = range(len(self._cut.groups))
        refs += self._logs.workers.map(self._keep_groups, groups)
        for topic in self._cut.topics:
            found = self._topic(topic)
            numbers = range(len(topic.partitions))
            refs += self._logs.workers.map(partial(self._keep_partition, found, topic), numbers)
        return refs

    def _keep_groups(self, number: int) -> LogRef:
        return self._keep(
            CONSUMER_OFFSETS_TOPIC, 0, number, self._cut.groups[number].offset, self._states.groups(number)
        )

    def _keep_partition(self, topic: Topic, inside: CutTopic, number: int) -> LogRef:
        state = self._states.partition(topic, number, self._put_file)
        log = self._keep(topic.name, topic.incarnation, number, inside.partitions[number].offset, state)
        self._progress("states", number + 1, len(inside.partitions))
        return log

    def _keep(
        self, topic: str, incarnation: int, partition: int, offset: int, state: PartitionState
    ) -> LogRef:
        log = LogRef(topic, incarnation, partition, offset, StateRef())
        if state.log_end_offset == 0:
            return log
        known = self._known.get(_place_of(log))
        there = StateRef() if known is None else known.state
        ref = self._place.put_state(state, there, self._generation)
        return LogRef(topic, incarnation, partition, offset, ref)

    def _topic(self, inside: CutTopic) -> Topic:
        found = self._logs.topics.incarnation(inside.topic, inside.incarnation)
        if found is None:
            raise CorruptObjectError(
                f"a tombstone where cut {self._cut.number} has a topic",
                actor="backup",
                place=f"topic {inside.topic}, incarnation {inside.incarnation}",
                expected="the topic",
            )
        return self._logs.topics.as_left(found)

    def _put_file(self, ref: ObjectRef, data: bytes) -> None:
        key = replace(ref, generation=self._generation).place_key
        if not self._place.objects.create(key, data, max_bytes=len(data)).won:
            raise self._place.damaged(key, "another object", "a fresh name for every data file")

    # --- data files -----------------------------------------------------------------------------------------

    def _copy_files(self, refs: Sequence[LogRef]) -> list[LogRef]:
        """What the states in the place name, and no earlier backup has; some logs at once. The logs, with where their
        files are.
        """
        logs = [log for log in refs if not log.is_internal and log.state.checksum]
        target, workers = Side(self._place.objects, is_place=True), self._logs.workers
        copier = Copier(self._source, target, workers, self._advanced)
        copies: dict[tuple[str, int, int], tuple[tuple[int, int], ...]] = {}
        for part in in_parts(logs):
            found = list(workers.map(self._files_of, part))
            for log, each in zip(part, found, strict=True):
                self._count(each)
                copies[_place_of(log)] = each.copies
            wanted = [each.new for each in found]
            there: dict[str, int] = {}
            for sizes in workers.map(partial(listed, target), wanted):
                there |= sizes
            copier.copy(chain.from_iterable(wanted), there)
            list(workers.map(partial(check_arrived, target), wanted))
        return [replace(log, copies=copies.get(_place_of(log), ())) for log in refs]

    @property
    def _source(self) -> Side:
        return Side(self._logs.tools.objects, is_place=False)

    def _count(self, found: _FilesOf) -> None:
        self._files += found.files
        self._bytes += found.bytes
        self._new_files += len(found.new)
        self._new_bytes += sum(each.bytes for each in found.new)

    def _files_of(self, log: LogRef) -> _FilesOf:
        state = self._place.state(log)
        files = data_files(log, state)
        there = self._still_there(log, state)
        placed = [there.get(each, replace(each, generation=self._generation)) for each in files]
        new = [each for each in placed if each not in there]
        size = sum(each.bytes for each in files)
        return _FilesOf(len(files), size, new, copies_of(each.generation for each in placed))

    def _still_there(self, log: LogRef, state: PartitionState) -> dict[ObjectRef, ObjectRef]:
        """The data files of this log that the backup before has, and that a listing shows in their size. state: the
        log's now.
        """
        known = self._known.get(_place_of(log))
        if known is None:
            return {}
        files: list[ObjectRef] = []
        with suppress(*DAMAGE):  # files that nobody can list are copied again
            files = data_files(known, state if known.state == log.state else self._place.state(known))
        self._refuse_other_contents(files, data_files(log, state))
        sizes = listed(Side(self._place.objects, is_place=True), files)
        return {each: each for each in files if sizes.get(each.key) == each.bytes}

    def _refuse_other_contents(self, before: Sequence[ObjectRef], now: Sequence[ObjectRef]) -> None:
        """Raise `CorruptObjectError` where the backup before has another object of the same key: none ever changes."""
        known = {each.key: each for each in before}
        for each in now:
            there = known.get(each.key)
            if there is not None and (there.bytes, there.checksum) != (each.bytes, each.checksum):
                raise another_object(self._logs.tools.objects.uri(each.key), there.checksum)

    def _advanced(self, size: int) -> None:
        self._done += size
        self._progress("data files", self._done, self._new_bytes)

    # --- the rest -------------------------------------------------------------------------------------------

    def _copy_topics(self) -> list[ObjectRef]:
        before, held = self.before.objects if self.before else (), self._place.objects
        sizes = self._logs.workers.map(held.size_of, [each.place_key for each in before])
        known = {each: each for each, size in zip(before, sizes, strict=True) if size == each.bytes}
        objects = [
            known.get(each, replace(each, generation=self._generation))
            for each in topic_objects(self._logs, self._cut)
        ]
        self._refuse_other_contents(before, objects)
        new = [each for each in objects if each not in known]
        target = Side(self._place.objects, is_place=True)
        Copier(self._source, target, self._logs.workers, _no_one).copy(new, {})
        return objects

    def _finish(
        self, refs: Sequence[LogRef], objects: Sequence[ObjectRef], cut_after: int | None
    ) -> Manifest:
        config = self._logs.config
        number = self._number
        self._logs.tools.objects.check_identity_now()  # all that was read and copied until now was this store's
        while True:
            manifest = Manifest(
                number,
                config.store_id,
                self._clock(),
                self._cut.number,
                self._cut.created_ms,
                cut_after,
                self._logs.settings.as_of(self._cut.settings).limits,
                max(highest_block(self._logs.tools.objects) + 1, config.first_block),
                tuple(refs),
                tuple(objects),
                Counts(self._files, self._bytes, self._new_files, self._new_bytes),
                self._generation,
                self._claim,
            )
            if self._place.put_manifest(manifest, self._logs.tools.new_id()):
                return manifest
            number += 1  # another backup has come to its end meanwhile


def _place_of(log: LogRef) -> tuple[str, int, int]:
    return log.topic, log.incarnation, log.partition


def _no_one(_: int) -> None:
    """Told of nothing."""


def check_place(store: ObjectStore, url: str) -> None:
    """Raise where a local place, which may not be there yet, lies in the store, or around it: nothing is made."""
    with store_errors():
        is_apart = not would_overlap(store, url)
    if not is_apart:
        raise _not_apart(store.url, url)


def _check_apart(one: ObjectStore, other: ObjectStore) -> None:
    """Raise where one of the two lies in the other: the objects of either would be strange there."""
    if overlap(one, other):
        raise _not_apart(one.url, other.url)


def _not_apart(store: str, place: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"a backup of {store} in {place}",
        actor="backup",
        expected="a place that is neither inside the store nor around it",
        action="name another place",
        reason=Reason.PLACES_OVERLAP,
    )
