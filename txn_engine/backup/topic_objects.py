"""The objects that say what a store's topics are, as of a cut: which of them a backup needs."""

from __future__ import annotations

from collections.abc import Iterator

from storage import JSON_BYTES_MAX, stored_checksum
from txn_engine.backup.manifest import ObjectRef
from txn_engine.errors import CorruptObjectError
from txn_engine.log.cut_format import Cut, CutTopic
from txn_engine.log.growths import decoded_growth, growth_key
from txn_engine.log.logs import Logs
from txn_engine.log.schema_format import said_version
from txn_engine.log.topic_changes import change_key, decoded_change
from txn_engine.log.topics import is_topic_name, topic_key


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
        for number in range(_changes(logs, inside)):
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
    """Those up to as many partitions as the cut has, and what keeps older programs out where it was changed."""
    created = logs.topics.incarnation(inside.topic, inside.incarnation)
    due, number = len(inside.partitions), 0
    partitions = 0 if created is None else created.partitions
    while partitions < due:
        key = growth_key(inside.topic, inside.incarnation, number)
        partitions, _ = decoded_growth(_read(logs, key), key, partitions)
        number += 1
        yield _ref(logs, key)
    while _is_gate(logs, key := growth_key(inside.topic, inside.incarnation, number), due):
        number += 1
        yield _ref(logs, key)
    if partitions != due:
        raise CorruptObjectError(
            f"{partitions} partitions",
            place=topic_key(inside.topic, inside.incarnation),
            expected=f"{due}, as the cut has them",
        )


def _changes(logs: Logs, inside: CutTopic) -> int:
    """How many changes there are as of the cut; or up to a later one of the columns: a file in the cut may have been
    written since it.
    """
    number, count = max(inside.changes - 1, 0), inside.changes
    known = 0
    while True:
        key = change_key(inside.topic, inside.incarnation, number)
        data = logs.tools.objects.find(key, max_bytes=JSON_BYTES_MAX)
        if data is None:
            return count
        change = decoded_change(data, key, inside.topic, inside.incarnation, number)
        version = said_version(change.schema, key)
        number += 1
        if version != known:
            known, count = version, max(number, inside.changes)


def _is_gate(logs: Logs, key: str, partitions: int) -> bool:
    data = logs.tools.objects.find(key, max_bytes=JSON_BYTES_MAX)
    return data is not None and decoded_growth(data, key, partitions).is_gate


def _ref(logs: Logs, key: str) -> ObjectRef:
    data = _read(logs, key)
    return ObjectRef(key, len(data), stored_checksum(data))


def _read(logs: Logs, key: str) -> bytes:
    data = logs.tools.objects.find(key, max_bytes=JSON_BYTES_MAX)
    if data is None:
        raise CorruptObjectError("no such object", place=key, expected="an object that says what a topic is")
    return data
