"""Pins: what a topic's tables need, before a state of them is published that names it (docs/FORMAT.md, "Pins").

A pin is put before anything is published, and the cut is looked for again once it stands. Whoever deletes reads a
partition's state, then the cuts, then the pins: so what a table names is held by its cut, or its pin is found.

A pin is for one version of one table. Put-if-absent lets one publisher have the version; so a pin for a version that is
taken is either that publisher's or nobody's, and one that is made anew has a name of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from storage import JSON_BYTES_MAX, InvalidKeyError
from txn_engine.clock import Clock
from txn_engine.errors import CorruptObjectError
from txn_engine.ids import IdSource
from txn_engine.log.objects import Objects, checked_number, checked_text, decode_json, encode_json
from txn_engine.log.own_process import OwnLock
from txn_engine.log.store_time import Moment
from txn_engine.log.topic_cut import TopicCut, decoded_topic_cut, encoded_topic_cut
from txn_engine.protocol.file_names import is_data_path
from txn_engine.protocol.log_time import bounded_time
from txn_engine.types import TABLE_FORMATS

FILES_MAX: Final = 10_000
"""Of single files in a pin."""
_INT64_MAX: Final = 2**63 - 1
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_NAME = re.compile(r"(delta|iceberg)/([0-9]{20})-([0-9]{20})\.json")


@dataclass(frozen=True, slots=True, order=True)
class PinName:
    """The table's format, its version, the number of the cut."""

    format: str
    version: int
    cut: int


@dataclass(frozen=True, slots=True)
class Pin:
    """What a version of a table needs: the snapshots of `at`, what they list, and single files beside, by their paths
    below the incarnation's folder.
    """

    name: PinName
    created_ms: int
    at: TopicCut
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pinned:
    """What pins need of one partition: snapshots, by their ends, and single files, by their paths in its folder."""

    snapshots: frozenset[int]
    files: frozenset[str]


def pins_prefix(topic: str, incarnation: int) -> str:
    """The folder of an incarnation's pins."""
    return f"topics/{topic}/{incarnation}/published/"


def pin_key(topic: str, incarnation: int, name: PinName) -> str:
    """The object's key."""
    return f"{pins_prefix(topic, incarnation)}{name.format}/{name.version:020d}-{name.cut:020d}.json"


def parse_pin_key(key: str, prefix: str) -> PinName:
    """What a pin's key says; `InvalidKeyError` for any other key."""
    found = _NAME.fullmatch(key.removeprefix(prefix))
    if not key.startswith(prefix) or found is None or max(int(found[2]), int(found[3])) > _INT64_MAX:
        raise InvalidKeyError(f"{key[:200]!r} does not name a pin", actor="keys", place=prefix)
    return PinName(found[1], int(found[2]), int(found[3]))


class PinStore:
    """The pins of a store's topics. Threads may share it."""

    def __init__(self, objects: Objects, clock: Clock, new_id: IdSource) -> None:
        self._objects = objects
        self._clock = clock
        self._new_id = new_id
        self._lock = OwnLock()
        self._known: dict[str, Pin] = {}  # by key; what is there never changes

    def put(self, topic: str, incarnation: int, name: PinName, at: TopicCut, files: Iterable[str]) -> Pin:
        """Let the pin stand. Where one of this name does, that one counts, with the files that it names."""
        key = pin_key(topic, incarnation, name)
        fields: dict[str, Any] = {
            "topic": topic,
            "incarnation": incarnation,
            "table_format": name.format,
            "version": name.version,
            "created_ms": self._clock(),
            **encoded_topic_cut(at),
            "files": sorted(files),
            "write_id": self._new_id(),
        }
        held = self._objects.create(key, encode_json(fields, "pin"), max_bytes=JSON_BYTES_MAX).winner
        return _decoded(held, key, topic, incarnation, name)

    def of(self, topic: str, incarnation: int) -> list[Pin]:
        """All pins of a topic, by format and version. Raises the error of one that is damaged: what it needs nobody
        knows.
        """
        names = [name for each in TABLE_FORMATS for name in self.names(topic, incarnation, each)]
        pins = (self.find(topic, incarnation, name) for name in names)
        return [pin for pin in pins if pin is not None]

    def names(self, topic: str, incarnation: int, table_format: str) -> list[PinName]:
        """The pins of one table, by version."""
        prefix = pins_prefix(topic, incarnation)
        folder = f"{prefix}{table_format}/"
        return sorted(name for _, name in self._objects.ours(folder, lambda key: parse_pin_key(key, prefix)))

    def needed(self, topic: str, incarnation: int, partition: int) -> Pinned:
        """What must stay of a partition. To be asked after its state was read, by which something is deleted, and after
        the cuts were.
        """
        pins = self.of(topic, incarnation)
        folder = f"{partition}/"
        ends = (pin.at.partitions[partition].snapshot for pin in pins if partition < len(pin.at.partitions))
        files = (path.removeprefix(folder) for pin in pins for path in pin.files if path.startswith(folder))
        return Pinned(frozenset(ends), frozenset(files))

    def tend(
        self, topic: str, incarnation: int, keep_ms: int, moment: Moment, *, dry_run: bool
    ) -> list[PinName]:
        """Remove the pins of versions that were superseded so long ago, by the store's clock. Returns their names.

        A pin for version N says that N-1 was there when it was made. So behind two pins for higher versions there is a
        table of a version that the first of these holds: it has moved on since the second one at the latest.
        """
        put_ms = self._stored_ms(topic, incarnation) if moment.dates_objects else {}
        gone = []
        for each in TABLE_FORMATS:
            pins = [pin for pin in self.of(topic, incarnation) if pin.name.format == each]
            versions = sorted({pin.name.version for pin in pins})
            for version, _, behind in zip(versions, versions[1:], versions[2:], strict=False):
                later = (pin for pin in pins if pin.name.version >= behind)
                since = min(put_ms.get(pin.name, pin.created_ms) for pin in later)
                if moment.now_ms - since >= keep_ms:
                    gone += [pin.name for pin in pins if pin.name.version == version]
        if not dry_run:
            self.remove(topic, incarnation, gone)
        return gone

    def _stored_ms(self, topic: str, incarnation: int) -> dict[PinName, int]:
        """When each pin of a topic was put, by the store's clock."""
        prefix = pins_prefix(topic, incarnation)
        pins = self._objects.ours(prefix, lambda key: parse_pin_key(key, prefix))
        return {name: info.modified_ms for info, name in pins}

    def let_go(self, topic: str, incarnation: int, table_format: str, version: int) -> int:
        """Remove the pins for this version and all below it, damaged ones too: no table of these is read any more.
        Returns how many.
        """
        gone = [name for name in self.names(topic, incarnation, table_format) if name.version <= version]
        self.remove(topic, incarnation, gone)
        return len(gone)

    def remove(self, topic: str, incarnation: int, names: Iterable[PinName]) -> None:
        """Let these go."""
        for name in names:
            key = pin_key(topic, incarnation, name)
            self._objects.remove(key)
            with self._lock.here():
                self._known.pop(key, None)

    def find(self, topic: str, incarnation: int, name: PinName) -> Pin | None:
        """The pin of this name; None for one that has gone since it was listed."""
        key = pin_key(topic, incarnation, name)
        with self._lock.here():
            known = self._known.get(key)
        if known is None:
            data = self._objects.find(key, max_bytes=JSON_BYTES_MAX)
            if data is None:
                return None
            known = _decoded(data, key, topic, incarnation, name)
            with self._lock.here():
                self._known[key] = known
        return known


def _decoded(data: bytes, key: str, topic: str, incarnation: int, name: PinName) -> Pin:
    needed = ("topic", "incarnation", "table_format", "version", "cut", "created_ms", "files")
    held = decode_json(data, key=key, kind="pin", needed=needed)
    at = decoded_topic_cut(held, key, "pin")
    seen = (held["topic"], held["incarnation"], held["table_format"], held["version"], at.number)
    if seen != (topic, incarnation, name.format, name.version, name.cut):
        raise CorruptObjectError(f"a pin of {seen!r:.120}", place=key, expected="one of what its key says")
    files = held["files"]
    if not isinstance(files, list) or len(files) > FILES_MAX:
        raise CorruptObjectError(
            f"files {files!r:.80}", place=key, expected=f"a list of at most {FILES_MAX} paths"
        )
    created_ms = bounded_time(checked_number(held, "created_ms", 0, _INT64_MAX, key=key))
    return Pin(name, created_ms, at, tuple(_checked_paths(held, key)))


def _checked_paths(held: dict[str, Any], key: str) -> Iterator[str]:
    for path in held["files"]:
        checked_text({"files": path}, "files", key=key)
        folder, _, data_path = path.partition("/")
        if _NUMBER.fullmatch(folder) is None or not is_data_path(data_path):
            raise CorruptObjectError(f"file {path!r:.200}", place=key, expected="a partition's data file")
        yield path
