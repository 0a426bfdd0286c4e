"""Topics of which no object is left, though something else on the store names them.

A topic's objects are never deleted, its tombstones neither, because incarnations are counted by them. So whatever names
an incarnation whose object is not there says that the topic's folder was lost.
"""

from __future__ import annotations

from collections.abc import Mapping

from txn_engine.errors import CorruptObjectError
from txn_engine.log.objects import Objects
from txn_engine.log.topics import topic_key
from txn_engine.reasons import Reason
from txn_engine.unreadable import WHOLE_TOPIC, Unreadable

Incarnation = tuple[str, int]
"""A topic's name, and which of the topics of that name."""


def lost_topics(objects: Objects, named: Mapping[Incarnation, str]) -> list[Unreadable]:
    """Those of which the store has no object. named: by incarnation what names it."""
    missing = [at for at in sorted(named) if not objects.exists(topic_key(*at))]
    return [
        Unreadable(topic, WHOLE_TOPIC, _lost(topic, number, named[topic, number]))
        for topic, number in missing
    ]


def incarnation_of(lost: Unreadable) -> int:
    """Which incarnation of its topic was lost."""
    return int(str(lost.error.place).rpartition("/")[2].removesuffix(".json"))


def _lost(topic: str, incarnation: int, witness: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"topic {topic!r} was lost: it is named by {witness}",
        place=topic_key(topic, incarnation),
        expected="the topic's object, or a later one of that name",
        action="restore its folder from a copy, or the store from a backup. If it is to be gone,"
        f" `txn-engine topics delete {topic} --execute` records that; then the name is free",
        reason=Reason.TOPIC_LOST,
    )
