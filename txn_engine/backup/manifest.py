"""A backup's manifest (docs/FORMAT.md, "Backups"): what there is of one number, to JSON and back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from txn_engine.errors import CorruptObjectError
from txn_engine.log.entry_format import OFFSETS_LOG, TRANSACTION_LOG, USER_LOG, LogKind
from txn_engine.log.objects import check_fields, checked_number, checked_text
from txn_engine.log.store_config import (
    CONSUMER_OFFSETS_TOPIC,
    MAX_PARTITIONS,
    TRANSACTION_STATE_TOPIC,
    StoreLimits,
    decoded_limits,
)
from txn_engine.log.topics import is_topic_name, partition_prefix
from txn_engine.protocol.log_time import bounded_time

KIND: Final = "backup"
STATE_BYTES_MAX: Final = 1 << 30
_INT64_MAX: Final = 2**63 - 1
_CHECKSUM = re.compile(r"[0-9a-f]{32}")
_TOPIC_OBJECT = re.compile(
    r"topics/([A-Za-z0-9._-]{1,249})/(0|[1-9][0-9]{0,8})(?:\.json|/(?:partitions|changes)/[0-9]{20}\.json)"
)
_KINDS: Final = {TRANSACTION_STATE_TOPIC: TRANSACTION_LOG, CONSUMER_OFFSETS_TOPIC: OFFSETS_LOG}


@dataclass(frozen=True, slots=True)
class StateRef:
    """The state of a log as of the cut: the checksum of the object that holds it, and its bytes. No checksum: nothing
    of the log is inside.
    """

    checksum: str = ""
    bytes: int = 0

    @property
    def key(self) -> str:
        """Where the object is, in the place."""
        return f"states/{self.checksum}.parquet"


@dataclass(frozen=True, slots=True)
class LogRef:
    """A log in a backup: which, the offset that the cut goes through, and its state."""

    topic: str
    incarnation: int
    partition: int
    offset: int
    state: StateRef

    @property
    def prefix(self) -> str:
        """Its folder, in the store and in the place."""
        return partition_prefix(self.topic, self.incarnation, self.partition)

    @property
    def kind(self) -> LogKind:
        """Of which kind its entries are."""
        return _KINDS.get(self.topic, USER_LOG)

    @property
    def is_internal(self) -> bool:
        """Whether it is one of the engine's own, whose rows stand in its entries."""
        return self.topic in _KINDS


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """An object that stands under the same key in the store and in the place, byte for byte."""

    key: str
    bytes: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Counts:
    """How many data files a backup has, and how many of them, and of their bytes, were new then."""

    files: int
    file_bytes: int
    new_files: int
    new_bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A backup: of which store, as of which cut, and all that is needed to restore it. It never changes.

    made_cut: the cut was made for this backup, and goes once another one has come to its end.
    next_block: the producer ids from this block on the store had not given out by then.
    """

    number: int
    store_id: str
    created_ms: int
    cut: int
    cut_ms: int
    made_cut: bool
    limits: StoreLimits
    next_block: int
    logs: tuple[LogRef, ...]
    objects: tuple[ObjectRef, ...]
    counts: Counts

    @property
    def topics(self) -> list[str]:
        """The topics in it."""
        return sorted({log.topic for log in self.logs if not log.is_internal})

    def internal_partitions(self, topic: str) -> int:
        """How many partitions the internal topic has."""
        return sum(log.topic == topic for log in self.logs)


def encoded_manifest(manifest: Manifest) -> dict[str, Any]:
    """The fields of the object."""
    by_topic: dict[tuple[str, int], list[LogRef]] = {}
    for log in manifest.logs:
        by_topic.setdefault((log.topic, log.incarnation), []).append(log)
    return {
        "number": manifest.number,
        "store_id": manifest.store_id,
        "created_ms": manifest.created_ms,
        "cut": manifest.cut,
        "cut_ms": manifest.cut_ms,
        "made_cut": manifest.made_cut,
        "limits": asdict(manifest.limits),
        "next_block": manifest.next_block,
        "logs": [
            {
                "topic": topic,
                "incarnation": incarnation,
                "offsets": [log.offset for log in logs],
                "states": [log.state.checksum for log in logs],
                "bytes": [log.state.bytes for log in logs],
            }
            for (topic, incarnation), logs in by_topic.items()
        ],
        "objects": [asdict(each) for each in manifest.objects],
        "counts": asdict(manifest.counts),
    }


def decoded_manifest(held: Mapping[str, Any], key: str, number: int, store_id: str) -> Manifest:
    """The backup that the object describes. `CorruptObjectError` for what no writer leaves here."""
    names = [each.name for each in fields(Manifest)]
    check_fields(held, names, key=key, kind=KIND)
    checked_number(held, "number", number, number, key=key)
    if checked_text(held, "store_id", key=key) != store_id:
        raise CorruptObjectError(
            f"a backup of store {held['store_id']}", place=key, expected=f"one of store {store_id}"
        )
    counts = held["counts"]
    count_names = [each.name for each in fields(Counts)]
    check_fields(counts, count_names, key=key, kind=KIND)
    logs = tuple(log for topic in _list(held, "logs", key) for log in _logs(topic, key))
    for internal in _KINDS:
        if not any(log.topic == internal for log in logs):
            raise CorruptObjectError(f"no log of {internal}", place=key, expected="every log of the store")
    return Manifest(
        number,
        store_id,
        bounded_time(checked_number(held, "created_ms", 0, _INT64_MAX, key=key)),
        checked_number(held, "cut", 0, _INT64_MAX, key=key),
        bounded_time(checked_number(held, "cut_ms", 0, _INT64_MAX, key=key)),
        held["made_cut"] is True,
        decoded_limits(held["limits"], key, KIND),
        checked_number(held, "next_block", 0, _INT64_MAX // 1_000 - 1, key=key),
        logs,
        tuple(_object(each, key) for each in _list(held, "objects", key)),
        Counts(**{name: checked_number(counts, name, 0, _INT64_MAX, key=key) for name in count_names}),
    )


def _list(held: Mapping[str, Any], name: str, key: str) -> list[Any]:
    if not isinstance(held[name], list):
        raise CorruptObjectError(f"{name} {held[name]!r:.80}", place=key, expected="a list")
    return list(held[name])


def _logs(held: Any, key: str) -> Iterator[LogRef]:
    check_fields(held, ("topic", "incarnation", "offsets", "states", "bytes"), key=key, kind=KIND)
    topic = held["topic"]
    if not isinstance(topic, str) or not (topic in _KINDS or is_topic_name(topic)):
        raise CorruptObjectError(f"topic {topic!r:.80}", place=key, expected="the name of a topic")
    incarnation = checked_number(held, "incarnation", 0, 0 if topic in _KINDS else 999_999_999, key=key)
    offsets, states, sizes = (_list(held, name, key) for name in ("offsets", "states", "bytes"))
    if not len(offsets) == len(states) == len(sizes) <= MAX_PARTITIONS:
        raise CorruptObjectError(
            f"{len(offsets)} offsets, {len(states)} states, {len(sizes)} sizes of topic {topic}",
            place=key,
            expected="one of each a partition",
        )
    for partition, (offset, checksum, size) in enumerate(zip(offsets, states, sizes, strict=True)):
        one = {"offset": offset, "bytes": size, "state": checksum}
        state = StateRef(
            _checksum(one, "state", key) if checksum else "",
            checked_number(one, "bytes", 0, STATE_BYTES_MAX, key=key),
        )
        yield LogRef(
            topic, incarnation, partition, checked_number(one, "offset", 0, _INT64_MAX, key=key), state
        )


def _object(held: Any, key: str) -> ObjectRef:
    check_fields(held, ("key", "bytes", "checksum"), key=key, kind=KIND)
    name = held["key"]
    match = _TOPIC_OBJECT.fullmatch(name) if isinstance(name, str) else None
    if match is None or not is_topic_name(match[1]):
        raise CorruptObjectError(f"key {name!r:.80}", place=key, expected="the key of a topic's object")
    return ObjectRef(
        name, checked_number(held, "bytes", 1, STATE_BYTES_MAX, key=key), _checksum(held, "checksum", key)
    )


def _checksum(held: Mapping[str, Any], name: str, key: str) -> str:
    value = held[name]
    if not isinstance(value, str) or _CHECKSUM.fullmatch(value) is None:
        raise CorruptObjectError(f"{name} {value!r:.80}", place=key, expected="32 hex digits")
    return value
