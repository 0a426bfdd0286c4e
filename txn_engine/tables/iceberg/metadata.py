"""Iceberg's table metadata, one object a version: what a version shows, and the checksum by which ours are known."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

import xxhash

from txn_engine.errors import CorruptObjectError
from txn_engine.log.topic_cut import TopicCut, decoded_topic_cut, encoded_topic_cut
from txn_engine.log.topics import Topic
from txn_engine.protocol.log_time import bounded_time
from txn_engine.reasons import Reason
from txn_engine.tables.iceberg.schema import iceberg_schemas, name_mapping, partition_spec, reader_properties
from txn_engine.tables.views import Published

VERSIONS_KEPT: Final = 100
KEPT_MS: Final = 7 * 86_400_000
"""A version stays readable until so many are newer, or the next one is so old."""
WITHDRAWN_FORMAT: Final = 1000
"""A version of Iceberg's format that no reader has."""
_READ_ONLY: Final = "txn_engine.this_table_is_written_by_its_log_alone"
_GUARDS: Final = {
    "gc.enabled": "false",
    "write.location-provider.impl": _READ_ONLY,
    "write.py-location-provider.impl": _READ_ONLY,
    "write.data.path": f"{_READ_ONLY}://",
    "write.metadata.path": f"{_READ_ONLY}://",
}
"""Nobody expires snapshots or removes orphans; a class that nobody has is asked where new files go, and where that is
not asked there is no such place. Tables of a path refuse all commits of one whose metadata is elsewhere.
"""
_PREFIX: Final = "txn-engine."
_ZEROS: Final = b"0" * 32
_MARK: Final = re.compile(rb'"txn-engine\.checksum":"([0-9a-f]{32})"')
_INT64_MAX: Final = 2**63 - 1
_FOREIGN: Final = (
    "somebody wrote into the table's folder: find out who may; remove this version and those behind it, then publish "
    "again; the topic itself is untouched"
)


@dataclass(frozen=True, slots=True)
class TableName:
    """Whose table it is, and where."""

    store_id: str
    store_ids: frozenset[str]
    first_id: str
    topic: str
    incarnation: int
    location: str

    @property
    def table_uuid(self) -> str:
        """The same for whoever writes the first version."""
        return str(uuid5(NAMESPACE_URL, f"txn-engine:{self.first_id}/{self.topic}/{self.incarnation}"))


@dataclass(frozen=True, slots=True)
class TableState:
    """What a version says. fields: as JSON has it.

    at: None where no reader takes it, since the table was unpublished.
    """

    version: int
    at: TopicCut | None
    created_ms: int
    last_sequence: int
    fields: Mapping[str, Any]

    @property
    def published(self) -> Published:
        """As publishing sees it: a version shows the whole of a cut."""
        return Published(self.version, self.at, self.created_ms, int(self.fields["current-schema-id"]))

    @property
    def location(self) -> str:
        """The root that it names its files by."""
        return str(self.fields["location"])

    @property
    def snapshots(self) -> list[dict[str, Any]]:
        """Those that can be read, the oldest first; the last one is the table's."""
        return list(self.fields["snapshots"])


def first_state(name: TableName, topic: Topic) -> dict[str, Any]:
    """What is the same in all versions of a table, and nothing yet in it."""
    schemas, spec = iceberg_schemas(topic), partition_spec()
    return {
        "format-version": 2,
        "table-uuid": name.table_uuid,
        "location": name.location,
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": max(field["id"] for schema in schemas for field in schema["fields"]),
        "schemas": schemas,
        "current-schema-id": topic.version,
        "partition-specs": [spec],
        "default-spec-id": 0,
        "last-partition-id": max(field["field-id"] for field in spec["fields"]),
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {
            **_GUARDS,
            **reader_properties(topic),
            "schema.name-mapping.default": name_mapping(topic),
        },
        "current-snapshot-id": None,
        "snapshots": [],
        "refs": {},
        "snapshot-log": [],
        "metadata-log": [],
        "statistics": [],
        "partition-statistics": [],
    }


def next_state(
    base: TableState | None,
    first: Mapping[str, Any],
    at: TopicCut,
    new: Sequence[Mapping[str, Any]],
    now_ms: int,
    metadata_uri: str,
) -> dict[str, Any]:
    """The fields of the version after `base`, which shows `at` by these new snapshots.

    metadata_uri: of the version before. Snapshots and versions that nobody need be able to read any more are left out.
    """
    time_ms = max(now_ms, 0 if base is None else base.created_ms)
    version = 0 if base is None else base.version + 1
    log: list[dict[str, Any]] = []
    snapshots: list[dict[str, Any]] = []
    if base is not None:
        log = [*base.fields["metadata-log"], {"timestamp-ms": base.created_ms, "metadata-file": metadata_uri}]
        log = _kept(log, time_ms)
        snapshots = _since(base.snapshots, version - len(log))
    tagged = {} if base is None else base.fields["refs"]
    snapshots += [
        {**each, "timestamp-ms": time_ms, "summary": {**each["summary"], "txn-engine.version": str(version)}}
        for each in new
    ]
    return {
        **first,
        "last-sequence-number": snapshots[-1]["sequence-number"] if new else _last_sequence(base),
        "last-updated-ms": time_ms,
        "current-snapshot-id": snapshots[-1]["snapshot-id"] if snapshots else None,
        "snapshots": snapshots,
        "refs": _refs(tagged, snapshots, at.number),
        "snapshot-log": [
            {"timestamp-ms": each["timestamp-ms"], "snapshot-id": each["snapshot-id"]} for each in snapshots
        ],
        "metadata-log": log,
    }


def withdrawn_state(base: TableState, now_ms: int) -> dict[str, Any]:
    """The fields of a version that no reader takes; who publishes again goes on from there."""
    return {
        **base.fields,
        "format-version": WITHDRAWN_FORMAT,
        "last-updated-ms": max(now_ms, base.created_ms),
        "current-snapshot-id": None,
        "snapshots": [],
        "refs": {},
        "snapshot-log": [],
        "metadata-log": [],
    }


def _last_sequence(base: TableState | None) -> int:
    return 0 if base is None else base.last_sequence


def _kept(log: list[dict[str, Any]], now_ms: int) -> list[dict[str, Any]]:
    """The versions before this one that stay; each is superseded when the next one is made."""
    ends = [*(each["timestamp-ms"] for each in log[1:]), now_ms]
    young = [each for each, end in zip(log, ends, strict=True) if now_ms - end < KEPT_MS]
    return young[-VERSIONS_KEPT:]


def _since(snapshots: list[dict[str, Any]], version: int) -> list[dict[str, Any]]:
    """Those that this version, or a later one, shows: the one that it shows may be older than it is."""
    older = [each for each in snapshots if int(each["summary"]["txn-engine.version"]) <= version]
    return snapshots[max(len(older) - 1, 0) :]


def _refs(before: Mapping[str, Any], snapshots: Sequence[Mapping[str, Any]], cut: int) -> dict[str, Any]:
    """The table itself, and a tag for each cut that can be read."""
    if not snapshots:
        return {}
    there = {each["snapshot-id"] for each in snapshots}
    last = snapshots[-1]["snapshot-id"]
    tags = [
        (name, ref) for name, ref in before.items() if ref["type"] == "tag" and ref["snapshot-id"] in there
    ]
    return {
        "main": {"snapshot-id": last, "type": "branch"},
        **dict(tags[-VERSIONS_KEPT:]),
        f"cut-{cut}": {"snapshot-id": last, "type": "tag"},
    }


# --- bytes ------------------------------------------------------------------------------------------------------


def encoded_metadata(
    fields: Mapping[str, Any], name: TableName, version: int, at: TopicCut | None, write_id: str
) -> bytes:
    """A version's object."""
    own = {
        "format": "2",
        "kind": "iceberg_metadata",
        "store-id": name.store_id,
        "topic": name.topic,
        "incarnation": str(name.incarnation),
        "version": str(version),
        "at": json.dumps(None if at is None else encoded_topic_cut(at), separators=(",", ":")),
        "write-id": write_id,
        "checksum": _ZEROS.decode(),
    }
    theirs = {key: value for key, value in fields["properties"].items() if not key.startswith(_PREFIX)}
    properties = {**theirs, **{f"{_PREFIX}{key}": value for key, value in own.items()}}
    data = json.dumps({**fields, "properties": properties}, separators=(",", ":")).encode()
    (found,) = _MARK.finditer(data)
    return data[: found.start(1)] + _checksum(data, found.start(1)).encode() + data[found.end(1) :]


def encoded_seal(version: int) -> bytes:
    """What stands at the key of a version that nobody reads any more, so that it is never put again."""
    return json.dumps({"txn-engine.kind": "iceberg_seal", "txn-engine.version": version}).encode()


def is_seal(data: bytes, version: int) -> bool:
    """Whether it is the seal of that version."""
    return data == encoded_seal(version)


def decoded_metadata(data: bytes, key: str, name: TableName, version: int) -> TableState:
    """What the version says. `CorruptObjectError` for one that is not of this table as we write it: then somebody else
    has written here.
    """
    fields = _fields(data)
    if fields is None:
        raise CorruptObjectError(
            "metadata that txn-engine did not write, or not so",
            place=key,
            expected=f"a version of the table of {name.topic!r} with its checksum",
            action=_FOREIGN,
            reason=Reason.NOT_WRITTEN_BY_US,
        )
    try:
        own = {each: fields["properties"][f"{_PREFIX}{each}"] for each in _OWN}
        seen = (own["store-id"], own["topic"], own["incarnation"], own["version"])
        at = json.loads(own["at"])
        created_ms, sequence = fields["last-updated-ms"], fields["last-sequence-number"]
        _check_snapshots(fields)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptObjectError(
            f"metadata without what it must say: {error!r:.120}",
            place=key,
            expected="an Iceberg table's metadata as txn-engine writes it",
            action=_FOREIGN,
        ) from None
    if own["store-id"] not in name.store_ids or seen[1:] != (name.topic, str(name.incarnation), str(version)):
        raise CorruptObjectError(
            f"metadata of {seen!r:.200}",
            place=key,
            expected=f"version {version} of {name.topic!r}, incarnation {name.incarnation}, of this store",
            reason=Reason.OF_ANOTHER_TABLE,
        )
    if not _is_number(created_ms) or not _is_number(sequence):
        raise CorruptObjectError(
            f"last-updated-ms {created_ms!r:.80}, last-sequence-number {sequence!r:.80}",
            place=key,
            expected="numbers",
        )
    shown = None if at is None else decoded_topic_cut(at, key, "iceberg_metadata")
    return TableState(version, shown, bounded_time(created_ms), sequence, fields)


_OWN: Final = ("store-id", "topic", "incarnation", "version", "at")


def _check_snapshots(fields: Mapping[str, Any]) -> None:
    """Raise one of what `decoded_metadata` takes for damage, unless what is read of them later is there."""
    if not isinstance(fields["location"], str):
        raise TypeError("location")
    if not _is_number(fields["current-schema-id"]):
        raise TypeError("current-schema-id")
    for snapshot in fields["snapshots"]:
        numbers = snapshot["snapshot-id"], snapshot["sequence-number"], snapshot["timestamp-ms"]
        if not all(map(_is_number, numbers)) or not isinstance(snapshot["manifest-list"], str):
            raise TypeError("snapshots")
        int(snapshot["summary"]["txn-engine.version"])
    for each in fields["metadata-log"]:
        if not _is_number(each["timestamp-ms"]) or not isinstance(each["metadata-file"], str):
            raise TypeError("metadata-log")
    for ref in fields["refs"].values():
        ref["type"], ref["snapshot-id"]


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _INT64_MAX


def _fields(data: bytes) -> dict[str, Any] | None:
    """The fields, if the checksum is theirs."""
    marks = list(_MARK.finditer(data))
    if len(marks) != 1 or _checksum(data, marks[0].start(1)).encode() != marks[0][1]:
        return None
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _checksum(data: bytes, place: int) -> str:
    digest = xxhash.xxh3_128(data[:place])
    digest.update(_ZEROS)
    digest.update(data[place + len(_ZEROS) :])
    return digest.hexdigest()
