"""A cut as an object (docs/FORMAT.md, "Cuts"): keys, and a cut to JSON and back."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from storage import InvalidKeyError
from txn_engine.errors import CorruptObjectError
from txn_engine.log.objects import check_fields, checked_number, checked_text
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, MAX_PARTITIONS
from txn_engine.log.topics import is_topic_name
from txn_engine.protocol.log_time import bounded_time
from txn_engine.types import TopicPartition

NEVER: Final = -1
"""`expires_ms` of a cut that is kept until somebody deletes it."""
UNKEPT: Final = -1
"""`number` of a cut that stands nowhere."""
CUTS_PREFIX: Final = "cuts/"
_INT64_MAX: Final = 2**63 - 1
_KEY = re.compile(r"cuts/([0-9]{20})/(claim|cut|deleted)\.json")
_FIELDS: Final = (
    "number",
    "store_id",
    "is_void",
    "created_ms",
    "expires_ms",
    "every_topic",
    "topics",
    "groups",
    "coordinator_ends",
)


class Part(StrEnum):
    """The objects of one number: the claim to it, the cut or that there will be none, that it was deleted."""

    CLAIM = "claim"
    CUT = "cut"
    DELETED = "deleted"

    @property
    def kind(self) -> str:
        """The object's `kind`."""
        return "cut" if self is Part.CUT else f"cut_{self.value}"


def cut_key(number: int, part: Part) -> str:
    """The object's key."""
    return f"{CUTS_PREFIX}{number:020d}/{part.value}.json"


def parse_cut_key(key: str) -> tuple[int, Part]:
    """Number and part; `InvalidKeyError` for any other key."""
    found = _KEY.fullmatch(key)
    if found is None or int(found[1]) > _INT64_MAX:
        raise InvalidKeyError(f"{key[:200]!r} does not name a part of a cut", actor="keys", place=CUTS_PREFIX)
    return int(found[1]), Part(found[2])


@dataclass(frozen=True, slots=True)
class LogCut:
    """Where a cut goes through one log.

    offset: the records below it are inside. snapshot: which snapshot of the log tells what they are. slot: a slot that
    begins there or before, from which the next cut reads on. committed: of a log of group offsets, the producer ids
    whose commits are pending in that snapshot and were committed, in the order of their markers.
    """

    offset: int
    snapshot: int
    slot: int
    committed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CutTopic:
    """A topic in a cut: which incarnation, one `LogCut` a partition, and how often its owner had changed it."""

    topic: str
    incarnation: int
    partitions: tuple[LogCut, ...]
    changes: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """A vector of offsets over topics and groups in which no committed transaction is half inside. It never changes.

    every_topic: it is of all topics that there were; else of those that it names. groups: one `LogCut` for each
    partition of `__consumer_offsets`. coordinator_ends: where the coordinator's logs ended once everything inside was
    decided. expires_ms: when clean-up deletes it (`NEVER`). settings: how often the store's had been changed.
    """

    number: int
    store_id: str
    created_ms: int
    expires_ms: int
    every_topic: bool
    topics: tuple[CutTopic, ...]
    groups: tuple[LogCut, ...]
    coordinator_ends: tuple[int, ...]
    settings: int = 0

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The vector, for the topics."""
        return {
            TopicPartition(topic.topic, number): log.offset
            for topic in self.topics
            for number, log in enumerate(topic.partitions)
        }

    def find(self, topic: str, incarnation: int) -> CutTopic | None:
        """That incarnation of the topic, if it was cut."""
        found = (each for each in self.topics if (each.topic, each.incarnation) == (topic, incarnation))
        return next(found, None)

    def log(self, topic: str, incarnation: int, partition: int) -> LogCut | None:
        """Where it goes through that partition, also of `__consumer_offsets`; None where it does not.

        A partition that was added since is above it, as a whole.
        """
        found = self.find(topic, incarnation)
        logs = found.partitions if found is not None else ()
        if topic == CONSUMER_OFFSETS_TOPIC:
            logs = self.groups
        return logs[partition] if partition < len(logs) else None


def encoded_cut(cut: Cut | None, number: int, store_id: str) -> dict[str, Any]:
    """The fields of the object; of one that is void for None."""
    cut = cut or Cut(number, store_id, 0, NEVER, False, (), (), ())
    return {
        "number": number,
        "store_id": store_id,
        "is_void": not cut.groups,
        "created_ms": cut.created_ms,
        "expires_ms": cut.expires_ms,
        "every_topic": cut.every_topic,
        "topics": [
            {
                "topic": each.topic,
                "incarnation": each.incarnation,
                "changes": each.changes,
                **_columns(each.partitions),
            }
            for each in cut.topics
        ],
        "groups": {
            **_columns(cut.groups),
            "committed": {str(at): list(log.committed) for at, log in enumerate(cut.groups) if log.committed},
        },
        "coordinator_ends": list(cut.coordinator_ends),
        "settings": cut.settings,
    }


def _columns(logs: tuple[LogCut, ...]) -> dict[str, list[int]]:
    return {
        "offsets": [log.offset for log in logs],
        "snapshots": [log.snapshot for log in logs],
        "slots": [log.slot for log in logs],
    }


def decoded_cut(held: Mapping[str, Any], key: str, number: int, store_ids: Collection[str]) -> Cut | None:
    """The cut that the object holds, None for a void one. `CorruptObjectError` for what no writer leaves here."""
    check_fields(held, _FIELDS, key=key, kind=Part.CUT.kind)
    checked_number(held, "number", number, number, key=key)
    store_id = checked_text(held, "store_id", key=key)
    if store_id not in store_ids:
        raise CorruptObjectError(
            f"a cut of store {store_id}",
            place=key,
            expected=f"one of this store, {' or '.join(sorted(store_ids))}",
            action="move it away: its offsets say nothing here",
        )
    if _flag(held, "is_void", key):
        return None
    topics, groups = held["topics"], held["groups"]
    if not isinstance(topics, list) or not isinstance(groups, dict):
        raise CorruptObjectError(
            "topics or groups of another type", place=key, expected="the fields of a cut"
        )
    return Cut(
        number,
        store_id,
        bounded_time(checked_number(held, "created_ms", 0, _INT64_MAX, key=key)),
        checked_number(held, "expires_ms", NEVER, _INT64_MAX, key=key),
        _flag(held, "every_topic", key),
        tuple(_topic(each, key) for each in topics),
        _group_logs(groups, key),
        _numbers(held, "coordinator_ends", key),
        _changes(held, "settings", key),
    )


def _changes(held: Mapping[str, Any], name: str, key: str) -> int:
    """How often something had been changed; a cut that does not say is of before there were changes."""
    return checked_number(held, name, 0, _INT64_MAX, key=key) if name in held else 0


def _flag(held: Mapping[str, Any], name: str, key: str) -> bool:
    if type(held[name]) is not bool:
        raise CorruptObjectError(f"{name} {held[name]!r:.80}", place=key, expected="true or false")
    return bool(held[name])


def _topic(held: Any, key: str) -> CutTopic:
    check_fields(held, ("topic", "incarnation", "offsets", "snapshots", "slots"), key=key, kind=Part.CUT.kind)
    name = held["topic"]
    if not isinstance(name, str) or not is_topic_name(name):
        raise CorruptObjectError(f"topic {name!r:.80}", place=key, expected="the name of a topic")
    incarnation = checked_number(held, "incarnation", 0, _INT64_MAX, key=key)
    return CutTopic(name, incarnation, _logs(held, key), _changes(held, "changes", key))


def _group_logs(held: Mapping[str, Any], key: str) -> tuple[LogCut, ...]:
    check_fields(held, ("offsets", "snapshots", "slots", "committed"), key=key, kind=Part.CUT.kind)
    committed = held["committed"]
    logs = _logs(held, key)
    if not logs or not isinstance(committed, dict) or not committed.keys() <= set(map(str, range(len(logs)))):
        raise CorruptObjectError("groups of another form", place=key, expected="the fields of a cut")
    named = {int(at): _numbers(committed, at, key) for at in committed}
    return tuple(LogCut(log.offset, log.snapshot, log.slot, named.get(at, ())) for at, log in enumerate(logs))


def _logs(held: Mapping[str, Any], key: str) -> tuple[LogCut, ...]:
    offsets, snapshots, slots = (_numbers(held, name, key) for name in ("offsets", "snapshots", "slots"))
    if not len(offsets) == len(snapshots) == len(slots) <= MAX_PARTITIONS:
        raise CorruptObjectError(
            f"{len(offsets)} offsets, {len(snapshots)} snapshots, {len(slots)} slots",
            place=key,
            expected="one of each a partition",
        )
    if any(slot > offset for slot, offset in zip(slots, offsets, strict=True)):
        raise CorruptObjectError("a slot behind its offset", place=key, expected="one at or before it")
    return tuple(map(LogCut, offsets, snapshots, slots))


def _numbers(held: Mapping[str, Any], name: str, key: str) -> tuple[int, ...]:
    found = held[name]
    if not isinstance(found, list) or not all(
        type(each) is int and 0 <= each <= _INT64_MAX for each in found
    ):
        raise CorruptObjectError(f"{name} {found!r:.80}", place=key, expected="a list of offsets or ids")
    return tuple(found)
