"""Where a cut goes through one topic, by itself: what a pin holds, and what a table says of the state that it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.log.cut_format import Cut, LogCut
from txn_engine.log.objects import check_fields, checked_number
from txn_engine.log.store_config import MAX_PARTITIONS
from txn_engine.reasons import Reason

_INT64_MAX: Final = 2**63 - 1
_LISTS: Final = ("offsets", "snapshots", "slots", "log_starts")


@dataclass(frozen=True, slots=True)
class TopicCut:
    """One topic in cut `number`, one `LogCut` a partition.

    log_starts: where each partition begins as of it; empty where nobody has looked.
    """

    number: int
    partitions: tuple[LogCut, ...]
    log_starts: tuple[int, ...] = ()

    @property
    def snapshots(self) -> tuple[int, ...]:
        """The end of each partition's snapshot that says which files there are."""
        return tuple(log.snapshot for log in self.partitions)


def topic_cut(cut: Cut, topic: str, incarnation: int) -> TopicCut:
    """Of a cut that is of this topic. Raises `InvalidRequestError` where it is not."""
    found = cut.find(topic, incarnation)
    if found is None:
        is_older = any(each.topic == topic for each in cut.topics)
        raise InvalidRequestError(
            f"topic {topic!r} {'was deleted and made again since' if is_older else 'is not in'} cut {cut.number}",
            expected="a topic that was there when the cut was made",
            reason=Reason.TOPIC_MADE_AGAIN if is_older else Reason.TOPIC_NOT_IN_CUT,
        )
    return TopicCut(cut.number, found.partitions)


def encoded_topic_cut(at: TopicCut) -> dict[str, Any]:
    """As JSON has it."""
    return {
        "cut": at.number,
        "offsets": [log.offset for log in at.partitions],
        "snapshots": [log.snapshot for log in at.partitions],
        "slots": [log.slot for log in at.partitions],
        "log_starts": list(at.log_starts),
    }


def decoded_topic_cut(held: Any, key: str, kind: str) -> TopicCut:
    """What `encoded_topic_cut` gave. `CorruptObjectError` for anything else."""
    if not isinstance(held, Mapping):
        raise CorruptObjectError(f"{held!r:.80}", place=key, expected=f"where a cut goes, in a {kind}")
    check_fields(held, ("cut", *_LISTS), key=key, kind=kind)
    number = checked_number(held, "cut", 0, _INT64_MAX, key=key)
    offsets, snapshots, slots, starts = (_offsets(held, name, key) for name in _LISTS)
    if not len(offsets) == len(snapshots) == len(slots) <= MAX_PARTITIONS or len(starts) not in (
        0,
        len(offsets),
    ):
        raise CorruptObjectError(
            f"{len(offsets)} offsets, {len(snapshots)} snapshots, {len(slots)} slots, {len(starts)} log starts",
            place=key,
            expected="one of each a partition",
        )
    return TopicCut(number, tuple(map(LogCut, offsets, snapshots, slots)), tuple(starts))


def _offsets(held: Mapping[str, Any], name: str, key: str) -> list[int]:
    found = held[name]
    if not isinstance(found, list) or not all(
        type(each) is int and 0 <= each <= _INT64_MAX for each in found
    ):
        raise CorruptObjectError(f"{name} {found!r:.80}", place=key, expected="a list of offsets")
    return found
