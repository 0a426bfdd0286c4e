"""What stands under a backup's number (docs/FORMAT.md, "Backups"), to JSON and back: a manifest, that others were
removed, or that this one was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import groupby
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
from txn_engine.types import TopicPartition

KIND: Final = "backup"
STATE_BYTES_MAX: Final = 1 << 30
_INT64_MAX: Final = 2**63 - 1
_CHECKSUM = re.compile(r"[0-9a-f]{32}")
_TOPIC_OBJECT = re.compile(
    r"topics/([A-Za-z0-9._-]{1,249})/(0|[1-9][0-9]{0,8})(?:\.json|/(?:partitions|changes)/[0-9]{20}\.json)"
)
FIRST: Final = -1
"""The generation of what was put into a place before backups were removed from it for the first time."""
GENERATIONS: Final = "generations"
_KINDS: Final = {TRANSACTION_STATE_TOPIC: TRANSACTION_LOG, CONSUMER_OFFSETS_TOPIC: OFFSETS_LOG}


def in_generation(generation: int, key: str) -> str:
    """Where the object of this key is in the place that was put in this generation."""
    return key if generation == FIRST else f"{GENERATIONS}/{generation:020d}/{key}"


@dataclass(frozen=True, slots=True)
class StateRef:
    """The state of a log as of the cut: the checksum of the object that holds it, and its bytes. No checksum: nothing
    of the log is inside.
    """

    checksum: str = ""
    bytes: int = 0
    generation: int = field(default=FIRST, compare=False)

    @property
    def key(self) -> str:
        """Where the object is, in the place."""
        return in_generation(self.generation, f"states/{self.checksum}.parquet")


@dataclass(frozen=True, slots=True)
class LogRef:
    """A log in a backup: which, the offset that the cut goes through, and its state.

    copies: of which generation the state's data files are, by offset: (generation, how many files). None at all: of the
    first.
    """

    topic: str
    incarnation: int
    partition: int
    offset: int
    state: StateRef
    copies: tuple[tuple[int, int], ...] = field(default=(), compare=False)

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
    """An object of the store that the place has byte for byte, under the same key in its generation's folder."""

    key: str
    bytes: int
    checksum: str
    generation: int = field(default=FIRST, compare=False)

    @property
    def place_key(self) -> str:
        """Where it is, in the place."""
        return in_generation(self.generation, self.key)


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

    cut_after: the number that the place had come to when the cut was made for this backup, so that those below it are
    of earlier cuts. None: the cut was there before, and stays.
    next_block: the producer ids from this block on the store had not given out by then.
    generation: the number of the last removal before it, -1: there was none; None: its program knew of none.
    claim: the write id of the claim to the cut, which only this store has, and copies that were made of it since; "":
    its program did not know it.
    """

    number: int
    store_id: str
    created_ms: int
    cut: int
    cut_ms: int
    cut_after: int | None
    limits: StoreLimits
    next_block: int
    logs: tuple[LogRef, ...]
    objects: tuple[ObjectRef, ...]
    counts: Counts
    generation: int | None = FIRST
    claim: str = ""

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Where it ends in each partition: records below are inside."""
        logs = (log for log in self.logs if not log.is_internal)
        return {TopicPartition(log.topic, log.partition): log.offset for log in logs}

    def recency(self) -> tuple[int, int]:
        """What orders backups: the later the cut the newer, whenever the backup was made."""
        return self.cut, self.number

    @property
    def made_cut(self) -> bool:
        """Whether the cut was made for this backup: it goes once another one has come to its end."""
        return self.cut_after is not None

    @property
    def topics(self) -> list[str]:
        """The topics in it."""
        return sorted({log.topic for log in self.logs if not log.is_internal})

    def internal_partitions(self, topic: str) -> int:
        """How many partitions the internal topic has."""
        return sum(log.topic == topic for log in self.logs)


@dataclass(frozen=True, slots=True)
class Removal:
    """Of the backups with a lower number these alone are left."""

    number: int
    created_ms: int
    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """A backup was here; its number stays taken."""

    number: int


def copies_of(generations: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """The generations of a log's files, in order, as a manifest has them."""
    runs = tuple((generation, sum(1 for _ in same)) for generation, same in groupby(generations))
    return () if [generation for generation, _ in runs] in ([], [FIRST]) else runs


def encoded_removal(removal: Removal) -> dict[str, Any]:
    """The fields of the object."""
    return {"number": removal.number, "created_ms": removal.created_ms, "kept": list(removal.kept)}


def encoded_removed(removed: Removed) -> dict[str, Any]:
    """The fields of the object."""
    return {"number": removed.number, "removed": True}


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
        "cut_after": manifest.cut_after,
        "limits": asdict(manifest.limits),
        "next_block": manifest.next_block,
        "logs": [
            {
                "topic": topic,
                "incarnation": incarnation,
                "offsets": [log.offset for log in logs],
                "states": [log.state.checksum for log in logs],
                "bytes": [log.state.bytes for log in logs],
                **_generations(logs),
            }
            for (topic, incarnation), logs in by_topic.items()
        ],
        "objects": [_encoded_object(each) for each in manifest.objects],
        "counts": asdict(manifest.counts),
        "generation": manifest.generation,
        "claim": manifest.claim,
    }


def _generations(logs: Sequence[LogRef]) -> dict[str, Any]:
    """Nothing in a place from which nothing was removed."""
    fields: dict[str, Any] = {}
    if any(log.state.generation != FIRST for log in logs):
        fields["state_generations"] = [log.state.generation for log in logs]
    if any(log.copies for log in logs):
        fields["copies"] = [list(map(list, log.copies)) for log in logs]
    return fields


def _encoded_object(each: ObjectRef) -> dict[str, Any]:
    held = asdict(each)
    if each.generation == FIRST:
        del held["generation"]
    return held


def decoded_record(
    held: Mapping[str, Any], key: str, number: int, store_id: str
) -> Manifest | Removal | Removed:
    """What stands under the number. `CorruptObjectError` for what no writer leaves there."""
    check_fields(held, ("number",), key=key, kind=KIND)
    checked_number(held, "number", number, number, key=key)
    if "removed" in held:
        return Removed(number)
    if "kept" in held:
        return _removal(held, key, number)
    return _manifest(held, key, number, store_id)


def _removal(held: Mapping[str, Any], key: str, number: int) -> Removal:
    check_fields(held, ("created_ms",), key=key, kind=KIND)
    kept = [
        checked_number({"kept": each}, "kept", 0, number - 1, key=key) for each in _list(held, "kept", key)
    ]
    if kept != sorted(set(kept)):
        raise CorruptObjectError(f"kept {kept!r:.80}", place=key, expected="ascending numbers")
    created_ms = bounded_time(checked_number(held, "created_ms", 0, _INT64_MAX, key=key))
    return Removal(number, created_ms, tuple(kept))


def _manifest(held: Mapping[str, Any], key: str, number: int, store_id: str) -> Manifest:
    names = [each.name for each in fields(Manifest) if each.name not in ("generation", "claim")]
    check_fields(held, names, key=key, kind=KIND)
    if checked_text(held, "store_id", key=key) != store_id:
        raise CorruptObjectError(
            f"a backup of store {held['store_id']}", place=key, expected=f"one of store {store_id}"
        )
    newest = number - 1
    generation = None
    if "generation" in held:
        generation = newest = checked_number(held, "generation", FIRST, number - 1, key=key)
    counts = held["counts"]
    count_names = [each.name for each in fields(Counts)]
    check_fields(counts, count_names, key=key, kind=KIND)
    logs = tuple(log for topic in _list(held, "logs", key) for log in _logs(topic, newest, key))
    for internal in _KINDS:
        if not any(log.topic == internal for log in logs):
            raise CorruptObjectError(f"no log of {internal}", place=key, expected="every log of the store")
    return Manifest(
        number,
        store_id,
        bounded_time(checked_number(held, "created_ms", 0, _INT64_MAX, key=key)),
        checked_number(held, "cut", 0, _INT64_MAX, key=key),
        bounded_time(checked_number(held, "cut_ms", 0, _INT64_MAX, key=key)),
        None if held["cut_after"] is None else checked_number(held, "cut_after", 0, number, key=key),
        decoded_limits(held["limits"], key, KIND),
        checked_number(held, "next_block", 0, _INT64_MAX // 1_000 - 1, key=key),
        logs,
        tuple(_object(each, newest, key) for each in _list(held, "objects", key)),
        Counts(**{name: checked_number(counts, name, 0, _INT64_MAX, key=key) for name in count_names}),
        generation,
        checked_text(held, "claim", key=key) if "claim" in held else "",
    )


def _list(held: Mapping[str, Any], name: str, key: str) -> list[Any]:
    if not isinstance(held[name], list):
        raise CorruptObjectError(f"{name} {held[name]!r:.80}", place=key, expected="a list")
    return list(held[name])


def _logs(held: Any, newest: int, key: str) -> Iterator[LogRef]:
    check_fields(held, ("topic", "incarnation", "offsets", "states", "bytes"), key=key, kind=KIND)
    topic = held["topic"]
    if not isinstance(topic, str) or not (topic in _KINDS or is_topic_name(topic)):
        raise CorruptObjectError(f"topic {topic!r:.80}", place=key, expected="the name of a topic")
    incarnation = checked_number(held, "incarnation", 0, 0 if topic in _KINDS else 999_999_999, key=key)
    offsets, states, sizes = (_list(held, name, key) for name in ("offsets", "states", "bytes"))
    first = [FIRST] * len(offsets)
    generations = _list(held, "state_generations", key) if "state_generations" in held else first
    copies = _list(held, "copies", key) if "copies" in held else [[] for _ in offsets]
    lists = (offsets, states, sizes, generations, copies)
    if len(set(map(len, lists))) != 1 or len(offsets) > MAX_PARTITIONS:
        raise CorruptObjectError(
            f"lists of {', '.join(str(len(each)) for each in lists)} of topic {topic}",
            place=key,
            expected="offsets, states, bytes, state_generations and copies of one each a partition",
        )
    for partition, (offset, checksum, size, generation, runs) in enumerate(zip(*lists, strict=True)):
        one = {"offset": offset, "bytes": size, "state": checksum, "state_generations": generation}
        state = StateRef(
            _checksum(one, "state", key) if checksum else "",
            checked_number(one, "bytes", 0, STATE_BYTES_MAX, key=key),
            checked_number(one, "state_generations", FIRST, newest, key=key),
        )
        yield LogRef(
            topic,
            incarnation,
            partition,
            checked_number(one, "offset", 0, _INT64_MAX, key=key),
            state,
            tuple(_run(each, newest, key) for each in _list({"copies": runs}, "copies", key)),
        )


def _run(held: Any, newest: int, key: str) -> tuple[int, int]:
    if not isinstance(held, list) or len(held) != 2:
        raise CorruptObjectError(f"copies {held!r:.80}", place=key, expected="a generation and a count")
    run = {"generation": held[0], "copies": held[1]}
    return (
        checked_number(run, "generation", FIRST, newest, key=key),
        checked_number(run, "copies", 1, _INT64_MAX, key=key),
    )


def _object(held: Any, newest: int, key: str) -> ObjectRef:
    check_fields(held, ("key", "bytes", "checksum"), key=key, kind=KIND)
    name = held["key"]
    match = _TOPIC_OBJECT.fullmatch(name) if isinstance(name, str) else None
    if match is None or not is_topic_name(match[1]):
        raise CorruptObjectError(f"key {name!r:.80}", place=key, expected="the key of a topic's object")
    generation = {"generation": FIRST, **held}
    return ObjectRef(
        name,
        checked_number(held, "bytes", 1, STATE_BYTES_MAX, key=key),
        _checksum(held, "checksum", key),
        checked_number(generation, "generation", FIRST, newest, key=key),
    )


def _checksum(held: Mapping[str, Any], name: str, key: str) -> str:
    value = held[name]
    if not isinstance(value, str) or _CHECKSUM.fullmatch(value) is None:
        raise CorruptObjectError(f"{name} {value!r:.80}", place=key, expected="32 hex digits")
    return value
