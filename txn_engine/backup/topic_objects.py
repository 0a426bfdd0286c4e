"""The objects that say what a store's topics are, as of a cut: which of them a backup needs."""

from __future__ import annotations

from collections.abc import Iterator

from storage import JSON_BYTES_MAX, stored_checksum
from txn_engine.backup.manifest import ObjectRef
from txn_engine.errors import CorruptObjectError
from txn_engine.log.cut_format import Cut, CutTopic
from txn_engine.log.logs import Logs
from txn_engine.log.objects import checked_number, decode_json
from txn_engine.log.store_config import MAX_PARTITIONS
from txn_engine.log.topic_changes import change_key
from txn_engine.log.topics import growth_key, is_topic_name, topic_key


def topic_objects(logs: Logs, cut: Cut) -> list[ObjectRef]:
    """Of each topic in the cut: every incarnation up to the one in it, and how that one had grown and was changed. Of
    one that is not in it: every incarnation up to its last tombstone, so that its numbers go on from there.
    """
    inside = {topic.topic: topic for topic in cut.topics}
    names = {name for name in logs.tools.objects.folders("topics") if is_topic_name(name)}
    found = logs.workers.map(
        lambda name: list(_of_topic(logs, name, inside.get(name))), sorted(names | inside.keys())
    )
    return [each for refs in found for each in refs]


def _of_topic(logs: Logs, name: str, inside: CutTopic | None) -> Iterator[ObjectRef]:
    last = _last_tombstone(logs, name) if inside is None else inside.incarnation
    for incarnation in range(last + 1):
        yield _ref(logs, topic_key(name, incarnation))
    if inside is not None:
        yield from _growths(logs, inside)
        for number in range(inside.changes):
            yield _ref(logs, change_key(name, inside.incarnation, number))


def _last_tombstone(logs: Logs, name: str) -> int:
    """-1 where there is none."""
    number, last = 0, -1
    while logs.tools.objects.exists(topic_key(name, number)):
        if logs.topics.incarnation(name, number) is None:
            last = number
        number += 1
    return last


def _growths(logs: Logs, inside: CutTopic) -> Iterator[ObjectRef]:
    """Those up to as many partitions as the cut has."""
    created = logs.topics.incarnation(inside.topic, inside.incarnation)
    due, number = len(inside.partitions), 0
    partitions = 0 if created is None else created.partitions
    while partitions < due:
        key = growth_key(inside.topic, inside.incarnation, number)
        held = decode_json(_read(logs, key), key=key, kind="partitions", needed=("partitions",))
        partitions = checked_number(held, "partitions", partitions + 1, MAX_PARTITIONS, key=key)
        number += 1
        yield _ref(logs, key)
    if partitions != due:
        raise CorruptObjectError(
            f"{partitions} partitions",
            place=topic_key(inside.topic, inside.incarnation),
            expected=f"{due}, as the cut has them",
        )


def _ref(logs: Logs, key: str) -> ObjectRef:
    data = _read(logs, key)
    return ObjectRef(key, len(data), stored_checksum(data))


def _read(logs: Logs, key: str) -> bytes:
    data = logs.tools.objects.find(key, max_bytes=JSON_BYTES_MAX)
    if data is None:
        raise CorruptObjectError("no such object", place=key, expected="an object that says what a topic is")
    return data
