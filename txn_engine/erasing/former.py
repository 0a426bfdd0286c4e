"""What a topic has left from before it was deleted, or deleted and made again: searched too, and removed whole.

No reader of the topic gets there any more, and clean-up removes it a day after the deletion. So no file is written
anew: an incarnation that holds any of the records goes, with all that it has left. One that cannot be searched goes
too: it is damaged, or half removed, or has not the columns that the condition looks at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from txn_engine.erasing.matching import Matcher
from txn_engine.erasing.report import SOME, FormerFound, StillHeld
from txn_engine.erasing.searching import Searcher
from txn_engine.errors import InvalidRequestError, SchemaChangedError
from txn_engine.log.cuts import CutStore
from txn_engine.log.logs import Logs
from txn_engine.log.pins import PinStore
from txn_engine.log.topics import Topic
from txn_engine.maintain.deleted_topics import DeadIncarnation, dead_incarnations, partitions_of, remove
from txn_engine.maintain.erasing import erased_files
from txn_engine.maintain.target import Target
from txn_engine.reasons import Reason
from txn_engine.schemas.layout import OFFSET, PARTITION, TIMESTAMP
from txn_engine.unreadable import DAMAGE, one_place

MatcherOf = Callable[[Topic], Matcher]
"""The condition on the records of a topic with these columns."""
CANNOT_TELL: Final = (InvalidRequestError, SchemaChangedError, *DAMAGE)
_ROUNDS: Final = 3


class FormerEraser:
    """Erases records of a topic's deleted incarnations."""

    def __init__(self, logs: Logs, name: str, cuts: CutStore, pins: PinStore) -> None:
        self._logs = logs
        self._objects = logs.tools.objects
        self._name = name
        self._cuts = cuts
        self._pins = pins

    def look(self, matcher_of: MatcherOf) -> list[FormerFound]:
        """The incarnations that have left something, and what each holds of the records. Nothing is written."""
        return [self._look(dead, matcher_of) for dead in dead_incarnations(self._objects, self._name)]

    def erase(self, matcher_of: MatcherOf) -> tuple[list[FormerFound], list[StillHeld]]:
        """Remove those that hold any of the records; what became of each, and what writers put there meanwhile."""
        done, held = [], []
        for dead in dead_incarnations(self._objects, self._name):
            found = self._look(dead, matcher_of)
            if found.records:
                objects, size, is_left = self._remove(dead)
                found = replace(found, removed=objects, removed_bytes=size)
                if is_left:
                    held.append(_still_written(dead))
            done.append(found)
        return done, held

    def _remove(self, dead: DeadIncarnation) -> tuple[int, int, bool]:
        """How many objects, and bytes, are gone; whether some are there again: who began before writes still."""
        objects = size = 0
        for _ in range(_ROUNDS):
            removed = remove(self._objects, dead, dry_run=False)
            if removed is None:
                return objects, size, False
            objects, size = objects + removed.objects, size + removed.bytes
        return objects, size, remove(self._objects, dead, dry_run=True) is not None

    def _look(self, dead: DeadIncarnation, matcher_of: MatcherOf) -> FormerFound:
        records = self._records(dead, matcher_of)
        cuts = [cut.number for cut in self._cuts.all() if cut.find(dead.topic, dead.incarnation) is not None]
        return FormerFound(dead.incarnation, dead.deleted_ms, records, tuple(cuts) if records else ())

    def _records(self, dead: DeadIncarnation, matcher_of: MatcherOf) -> int:
        """How many of the records it holds; -1: some, or nobody can tell."""
        try:
            with one_place(dead.topic):
                topic, matcher = searchable(self._logs, dead.topic, dead.incarnation, matcher_of)
                targets = [self._target(topic, number) for number in partitions_of(self._objects, dead)]
                if any(any(erased_files(target)) for target in targets):
                    return SOME  # of an erasure that was under way when the topic was deleted
                founds = [Searcher(target, topic, matcher).search() for target in targets]
        except CANNOT_TELL:
            return SOME
        if any(found.unnamed or found.unread for found in founds):
            return SOME
        return sum(len(found.offsets) + found.later for found in founds)

    def _target(self, topic: Topic, partition: int) -> Target:
        logs = self._logs
        log = logs.get(topic.name, topic.incarnation, partition)
        return Target(topic.name, partition, log, logs.tools, self._cuts, self._pins, topic, logs.topics)


def searchable(logs: Logs, name: str, incarnation: int, matcher_of: MatcherOf) -> tuple[Topic, Matcher]:
    """An incarnation that was deleted, as it was, and the condition on its columns. Raises `InvalidRequestError` where
    it has not the columns that the condition looks at; `CorruptObjectError` where nobody knows what it was.
    """
    created = logs.topics.incarnation(name, incarnation)
    if created is None:
        raise InvalidRequestError(f"incarnation {incarnation} of topic {name!r}, which is a tombstone")
    topic = logs.topics.as_left(created)
    matcher = matcher_of(topic)
    own = (PARTITION, OFFSET, TIMESTAMP)
    missing = [each for each in matcher.columns if each not in own and each not in topic.schema.names]
    if missing:
        raise InvalidRequestError(
            f"no column {missing[0]!r} in incarnation {incarnation} of topic {name!r}",
            actor="erase",
            reason=Reason.UNKNOWN_COLUMN,
        )
    return topic, matcher


def _still_written(dead: DeadIncarnation) -> StillHeld:
    return StillHeld(
        f"topic {dead.topic}, which was deleted (incarnation {dead.incarnation}): what a writer put there just now",
        SOME,
        "it has ended, and `txn-engine erase` runs again, or `txn-engine maintain clean` a day after the deletion",
    )
