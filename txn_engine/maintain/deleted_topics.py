"""Removing what a deleted topic has left: all of an incarnation that has its tombstone, its tables too.

Nobody reads an incarnation that was deleted. What is appended to it by those who began before is lost with it, and a
marker for it counts as done, so that a slot that is free again there decides nothing. The topic's own objects stay:
incarnations are counted by them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from storage import JSON_BYTES_MAX, LogKeys
from txn_engine.log.objects import Objects, checked_number, decode_json
from txn_engine.log.topics import TOPIC_FIELDS, partition_prefix, topic_key
from txn_engine.maintain.reports import Removed
from txn_engine.protocol.controls import GRACE_MS

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_BESIDE = (
    ("partitions", re.compile(r"[0-9]{20}\.json")),
    ("changes", re.compile(r"[0-9]{20}\.json")),
    ("erasures", re.compile(r"[0-9]{20}(?:-done)?\.json")),
    ("published", re.compile(r"(?:delta|iceberg)/[0-9]{20}-[0-9]{20}\.json")),
    (
        "iceberg/metadata",
        re.compile(
            r"version-hint\.text|v[1-9][0-9]{0,18}\.metadata\.json|[0-9]{20}-(?:list|manifest)-[0-9a-f]{32}\.avro"
        ),
    ),
    ("_delta_log", re.compile(r"_last_checkpoint|[0-9]{20}\.(?:json|checkpoint\.parquet)")),
)
"""Beside the partitions' folders."""


@dataclass(frozen=True, slots=True)
class DeadIncarnation:
    """An incarnation whose tombstone has been there for 24 hours, as long as any dead file stays."""

    topic: str
    incarnation: int

    @property
    def folder(self) -> str:
        """Where its objects are."""
        return f"topics/{self.topic}/{self.incarnation}"


def dead_incarnations(objects: Objects, topic: str, now_ms: int) -> list[DeadIncarnation]:
    """Those of this topic that may go and have left something, by the tombstones read now."""
    left = {int(name) for name in objects.folders(f"topics/{topic}") if _NUMBER.fullmatch(name)}
    return [
        DeadIncarnation(topic, incarnation)
        for incarnation in sorted(left)
        if _is_long_dead(objects, topic, incarnation, now_ms)
    ]


def _is_long_dead(objects: Objects, topic: str, incarnation: int, now_ms: int) -> bool:
    key = topic_key(topic, incarnation + 1)
    data = objects.find(key, max_bytes=JSON_BYTES_MAX)
    if data is None:
        return False
    held = decode_json(data, key=key, kind="topic", needed=TOPIC_FIELDS)
    is_its_own = (held["topic"], held["incarnation"], held["deleted"]) == (topic, incarnation + 1, True)
    return is_its_own and now_ms - checked_number(held, "created_ms", 0, 2**63 - 1, key=key) >= GRACE_MS


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
    for name in objects.folders(dead.folder):
        if _NUMBER.fullmatch(name):
            yield from _objects_of_log(
                objects, LogKeys(partition_prefix(dead.topic, dead.incarnation, int(name)))
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
