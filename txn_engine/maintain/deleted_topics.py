"""Removing what a deleted topic has left: all of an incarnation that has its tombstone, its tables too.

Nobody reads an incarnation that was deleted. What is appended to it by those who began before is lost with it, and a
marker for it counts as done, so that a slot that is free again there decides nothing. The topic's own objects stay:
incarnations are counted by them. Clean-up leaves it 24 hours, for who reads still; an erasure does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from storage import JSON_BYTES_MAX, LogKeys
from txn_engine.log.objects import Objects, checked_number, decode_json
from txn_engine.log.store_time import Moment
from txn_engine.log.topics import TOPIC_FIELDS, partition_prefix, topic_key
from txn_engine.maintain.reports import Removed
from txn_engine.protocol.controls import GRACE_MS

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_BESIDE = (
    ("erasures", re.compile(r"[0-9]{20}(?:-done)?\.json")),
    ("published", re.compile(r"(?:delta|iceberg)/[0-9]{20}-[0-9]{20}\.json")),
    (
        "iceberg/metadata",
        re.compile(
            r"version-hint\.text|v[1-9][0-9]{0,18}\.metadata\.json|[0-9]{20}-(?:list|manifest)-[0-9a-f]{32}\.avro"
        ),
    ),
    ("_delta_log", re.compile(r"_last_checkpoint|[0-9]{20}\.(?:json|checkpoint\.parquet)")),
    ("partitions", re.compile(r"[0-9]{20}\.json")),
    ("changes", re.compile(r"[0-9]{20}\.json")),
)
"""Beside the partitions' folders. What the topic's columns were goes last: an erasure looks for records by them."""


@dataclass(frozen=True, slots=True)
class DeadIncarnation:
    """An incarnation that was deleted, and has left something. deleted_ms: when, as its tombstone says."""

    topic: str
    incarnation: int
    deleted_ms: int

    @property
    def folder(self) -> str:
        """Where its objects are."""
        return f"topics/{self.topic}/{self.incarnation}"


def dead_incarnations(objects: Objects, topic: str) -> list[DeadIncarnation]:
    """Those of this topic that have left something, by the tombstones read now."""
    left = {int(name) for name in objects.folders(f"topics/{topic}") if _NUMBER.fullmatch(name)}
    found = (_dead(objects, topic, incarnation) for incarnation in sorted(left))
    return [each for each in found if each is not None]


def is_long_dead(objects: Objects, dead: DeadIncarnation, moment: Moment) -> bool:
    """Whether its tombstone has been there for 24 hours, as long as any dead file stays: by the store's clock, where
    that dates its objects.
    """
    deleted_ms = dead.deleted_ms
    if moment.dates_objects:
        deleted_ms = objects.modified_ms(topic_key(dead.topic, dead.incarnation + 1)) or deleted_ms
    return moment.now_ms - deleted_ms >= GRACE_MS


def _dead(objects: Objects, topic: str, incarnation: int) -> DeadIncarnation | None:
    key = topic_key(topic, incarnation + 1)
    data = objects.find(key, max_bytes=JSON_BYTES_MAX)
    if data is None:
        return None
    held = decode_json(data, key=key, kind="topic", needed=TOPIC_FIELDS)
    if (held["topic"], held["incarnation"], held["deleted"]) != (topic, incarnation + 1, True):
        return None
    return DeadIncarnation(topic, incarnation, checked_number(held, "created_ms", 0, 2**63 - 1, key=key))


def partitions_of(objects: Objects, dead: DeadIncarnation) -> list[int]:
    """The partitions of which something is left."""
    return sorted(int(name) for name in objects.folders(dead.folder) if _NUMBER.fullmatch(name))


def remove(objects: Objects, dead: DeadIncarnation, *, dry_run: bool) -> Removed | None:
    """Delete its objects, and only those that the format has there; None where there were none.

    A run that stops anywhere leaves the rest to the next one.
    """
    count = size = 0
    for key, held in _objects_of(objects, dead):
        if not dry_run:
            objects.remove(key)
        count += 1
        size += held
    return Removed(dead.topic, dead.incarnation, count, size) if count else None


def _objects_of(objects: Objects, dead: DeadIncarnation) -> Iterator[tuple[str, int]]:
    for partition in partitions_of(objects, dead):
        yield from _objects_of_log(
            objects, LogKeys(partition_prefix(dead.topic, dead.incarnation, partition))
        )
    for folder, pattern in _BESIDE:
        below = f"{dead.folder}/{folder}/"
        for info in objects.infos(below):
            if pattern.fullmatch(info.key.removeprefix(below)):
                yield info.key, info.size


def _objects_of_log(objects: Objects, keys: LogKeys) -> Iterator[tuple[str, int]]:
    kinds: tuple[tuple[str, Callable[[str], object]], ...] = (
        (keys.log_prefix, keys.parse_entry),
        (keys.data_prefix, keys.parse_data),
        (keys.snapshots_prefix, keys.parse_snapshot),
    )
    for folder, parse in kinds:
        for info, _ in objects.ours(folder, parse):
            yield info.key, info.size
