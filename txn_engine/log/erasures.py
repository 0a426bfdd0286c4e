"""Erasures of a topic's records: which, by their offsets, and what became of them (docs/FORMAT.md, "Erasure").

An erasure is numbered, and put if absent: from then on whoever comes may finish it. It says offsets and counts, never a
value, nor how the records were chosen.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from storage import JSON_BYTES_MAX, InvalidKeyError
from txn_engine.clock import Clock
from txn_engine.errors import CorruptObjectError
from txn_engine.ids import IdSource
from txn_engine.log.objects import Objects, checked_number, decode_json, encode_json
from txn_engine.log.store_config import MAX_PARTITIONS
from txn_engine.protocol.log_time import bounded_time

Offsets = NDArray[np.int64]
"""Ascending, each once."""
RANGES_MAX: Final = 80_000
"""Of one erasure: its object has less than 4 MiB then. More records are more erasures."""
_INT64_MAX: Final = 2**63 - 1
_NAME = re.compile(r"([0-9]{20})(-done)?\.json")


@dataclass(frozen=True, slots=True)
class PartitionErasure:
    """What is erased of one partition: the records at these offsets. `to`: up to there its records were looked at."""

    partition: int
    to: int
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Erasure:
    """One erasure of a topic."""

    topic: str
    incarnation: int
    number: int
    created_ms: int
    partitions: tuple[PartitionErasure, ...]

    @property
    def records(self) -> int:
        """How many offsets it names."""
        return sum(len(each.offsets) for each in self.partitions)


def erasures_prefix(topic: str, incarnation: int) -> str:
    """The folder of an incarnation's erasures."""
    return f"topics/{topic}/{incarnation}/erasures/"


def erasure_key(topic: str, incarnation: int, number: int, *, done: bool = False) -> str:
    """The object's key: the erasure's, or that of what says that it has come to its end."""
    return f"{erasures_prefix(topic, incarnation)}{number:020d}{'-done' if done else ''}.json"


def parse_erasure_key(key: str, prefix: str) -> tuple[int, bool]:
    """The number, and whether it is the object that says that all is done; `InvalidKeyError` for any other key."""
    found = _NAME.fullmatch(key.removeprefix(prefix))
    if not key.startswith(prefix) or found is None or int(found[1]) > _INT64_MAX:
        raise InvalidKeyError(f"{key[:200]!r} names no erasure", actor="keys", place=prefix)
    return int(found[1]), found[2] is not None


def was_erased_from(objects: Objects, topic: str, incarnation: int) -> bool:
    """Whether an erasure of this topic was ever begun: else no file of it stands for another."""
    return objects.exists(erasure_key(topic, incarnation, 0))


def ended_erasures(objects: Objects, topic: str, incarnation: int) -> int | None:
    """How many erasures of this topic there have been; None while one has not come to its end."""
    found = _found(objects, topic, incarnation)
    ended = sum(is_done for _, is_done in found)
    return ended if len(found) == 2 * ended else None


def _found(objects: Objects, topic: str, incarnation: int) -> list[tuple[int, bool]]:
    prefix = erasures_prefix(topic, incarnation)
    return [each for _, each in objects.ours(prefix, lambda key: parse_erasure_key(key, prefix))]


class Erasures:
    """The erasures of a store's topics. Threads may share it."""

    def __init__(self, objects: Objects, clock: Clock, new_id: IdSource) -> None:
        self._objects = objects
        self._clock = clock
        self._new_id = new_id

    def numbers(self, topic: str, incarnation: int) -> dict[int, bool]:
        """The numbers that were begun, ascending, and whether each has come to its end."""
        found = _found(self._objects, topic, incarnation)
        ended = {number for number, is_done in found if is_done}
        return {number: number in ended for number, is_done in sorted(found) if not is_done}

    def begin(self, topic: str, incarnation: int, partitions: Sequence[PartitionErasure]) -> Erasure:
        """Let the erasure stand, under a number of its own."""
        taken = {number for number, _ in _found(self._objects, topic, incarnation)}
        number = -1
        while True:
            number = next(free for free in itertools.count(number + 1) if free not in taken)
            created_ms = self._clock()
            fields = {
                "topic": topic,
                "incarnation": incarnation,
                "number": number,
                "created_ms": created_ms,
                "partitions": [
                    {"partition": each.partition, "to": each.to, "offsets": ranges_of(each.offsets)}
                    for each in partitions
                ],
                "write_id": self._new_id(),
            }
            data = encode_json(fields, "erasure")
            if self._objects.create(
                erasure_key(topic, incarnation, number), data, max_bytes=JSON_BYTES_MAX
            ).won:
                self._objects.confirm()
                return Erasure(topic, incarnation, number, created_ms, tuple(partitions))

    def get(self, topic: str, incarnation: int, number: int) -> Erasure:
        """The erasure of this number, which was begun. `CorruptObjectError` where it is gone or damaged."""
        key = erasure_key(topic, incarnation, number)
        data = self._objects.find(key, max_bytes=JSON_BYTES_MAX)
        if data is None:
            raise CorruptObjectError("no such object", place=key, expected="the erasure that was begun")
        needed = ("topic", "incarnation", "number", "created_ms", "partitions")
        held = decode_json(data, key=key, kind="erasure", needed=needed)
        seen = (held["topic"], held["incarnation"], held["number"])
        if seen != (topic, incarnation, number):
            raise CorruptObjectError(
                f"erasure {seen!r:.120}", place=key, expected="the one that its key says"
            )
        created_ms = bounded_time(checked_number(held, "created_ms", 0, _INT64_MAX, key=key))
        return Erasure(topic, incarnation, number, created_ms, _partitions(held["partitions"], key))

    def finish(self, erasure: Erasure, report: Mapping[str, Any]) -> None:
        """Say that it has come to its end. Whoever says so first is believed; the others saw the same."""
        fields = {
            "topic": erasure.topic,
            "incarnation": erasure.incarnation,
            "number": erasure.number,
            "finished_ms": self._clock(),
            "report": dict(report),
            "write_id": self._new_id(),
        }
        key = erasure_key(erasure.topic, erasure.incarnation, erasure.number, done=True)
        self._objects.create(key, encode_json(fields, "erasure_done"), max_bytes=JSON_BYTES_MAX)
        self._objects.confirm()


def ranges_of(offsets: Offsets) -> list[int]:
    """First and last of each range of offsets that follow one another."""
    if not len(offsets):
        return []
    breaks = np.flatnonzero(np.diff(offsets) > 1)
    firsts = offsets[np.concatenate(([0], breaks + 1))]
    lasts = offsets[np.concatenate((breaks, [len(offsets) - 1]))]
    return [int(each) for pair in zip(firsts, lasts, strict=True) for each in pair]


def _partitions(held: object, key: str) -> tuple[PartitionErasure, ...]:
    try:
        if not isinstance(held, list):
            raise TypeError("no list of partitions")
        found = tuple(
            PartitionErasure(_number(each["partition"], MAX_PARTITIONS), _number(each["to"]), _offsets(each))
            for each in held
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptObjectError(
            f"partitions that cannot be read: {error}"[:200], place=key, expected="ranges of offsets"
        ) from error
    return found


def _offsets(each: Mapping[str, Any]) -> Offsets:
    ranges = [_number(value, each["to"] - 1) for value in each["offsets"]]
    pairs = list(zip(ranges[::2], ranges[1::2], strict=True))
    count, behind = 0, -1
    for first, last in pairs:
        if not behind < first <= last:
            raise ValueError(f"the range {first} to {last} behind {behind}")
        count, behind = count + last - first + 1, last
    if count > _RECORDS_MAX:
        raise ValueError(f"{count} offsets")
    parts = [np.arange(first, last + 1, dtype=np.int64) for first, last in pairs]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


_RECORDS_MAX: Final = 1 << 27
"""Of one partition in one erasure: a gigabyte of offsets."""


def _number(value: object, most: int = _INT64_MAX) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r:.40} is no offset or partition")
    return value
