"""Delta's commits: a version's steps to lines of JSON, and what a line says of the state that it shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

import xxhash

from txn_engine.errors import CorruptObjectError
from txn_engine.log.objects import check_fields, checked_number
from txn_engine.log.topic_cut import TopicCut, decoded_topic_cut, encoded_topic_cut
from txn_engine.log.topics import Topic
from txn_engine.protocol.log_time import bounded_time
from txn_engine.reasons import Reason
from txn_engine.tables.changes import Step, StepKind
from txn_engine.tables.delta.schema import delta_schema, reader_features
from txn_engine.tables.files import TableFile
from txn_engine.tables.views import Commit, Published

GUARD: Final = "txnEngineView"
"""A feature that writers need and none has: who would append, delete, optimize or vacuum is refused."""
_NOT_NULL: Final = "invariants"
"""The feature by which a table may have columns that are not nullable: without it Spark does not read one."""
WITHDRAWN: Final = "txnEngineUnpublished"
"""A feature that readers need and none has."""
_INT64_MAX: Final = 2**63 - 1
_ZEROS: Final = b"0" * 32
_MARK: Final = re.compile(rb'"checksum":"([0-9a-f]{32})"')
_KINDS: Final = {
    StepKind.APPEND: True,
    StepKind.REPLACE: False,
    StepKind.OVERWRITE: True,
    StepKind.DELETE: True,
}
"""By step: Delta's `dataChange`, whether who follows the table is to look at it."""


@dataclass(frozen=True, slots=True)
class TableName:
    """Whose table a commit is of."""

    store_id: str
    store_ids: frozenset[str]
    first_id: str
    topic: str
    incarnation: int

    @property
    def folder(self) -> str:
        """The table's root."""
        return f"topics/{self.topic}/{self.incarnation}"

    @property
    def table_id(self) -> str:
        """The same for whoever writes the table's first commit."""
        return str(uuid5(NAMESPACE_URL, f"txn-engine:{self.first_id}/{self.topic}/{self.incarnation}"))

    def app_id(self, partition: int) -> str:
        """By which Delta's `txn` tells where a partition's published offset stands."""
        return f"txn-engine:{self.topic}/{self.incarnation}/{partition}"


# --- actions ------------------------------------------------------------------------------------------------


def protocol_action(schema: str) -> dict[str, Any]:
    """The versions and features that readers and writers need."""
    features = reader_features(schema)
    if not features:
        return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [_NOT_NULL, GUARD]}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": [*features, _NOT_NULL, GUARD],
    }


def metadata_action(name: TableName, schema: str, created_ms: int) -> dict[str, Any]:
    """The table's schema. No partition columns: some readers give nulls for what is not in the files."""
    return {
        "id": name.table_id,
        "name": name.topic,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": [],
        "configuration": {"delta.enableExpiredLogCleanup": "false"},
        "createdTime": created_ms,
    }


def add_action(file: TableFile, *, data_change: bool) -> dict[str, Any]:
    """A file, with the number of its records. The same for whoever adds it.

    Bounds are of all columns or of none: deltalake takes a column that is missing among them for one without values,
    and finds no row of the file by a filter on it.
    """
    logged = file.log_file
    return {
        "path": file.path,
        "partitionValues": {},
        "size": logged.file.data_bytes,
        "modificationTime": max(0, logged.max_timestamp),
        "dataChange": data_change,
        "stats": json.dumps({"numRecords": logged.record_count}, separators=(",", ":")),
    }


def txn_actions(name: TableName, at: TopicCut, before: TopicCut | None, now_ms: int) -> list[dict[str, Any]]:
    """Each partition's published offset, where it has moved."""
    old = () if before is None else before.partitions
    return [
        {"appId": name.app_id(partition), "version": log.offset, "lastUpdated": now_ms}
        for partition, log in enumerate(at.partitions)
        if partition >= len(old) or old[partition].offset != log.offset
    ]


# --- a commit -----------------------------------------------------------------------------------------------


def encoded_commit(name: TableName, topic: Topic, commit: Commit, now_ms: int, write_id: str) -> bytes:
    """The version's lines."""
    info = {
        "version": commit.version,
        "at": encoded_topic_cut(commit.at),
        "earlier": None
        if commit.is_complete or commit.earlier is None
        else encoded_topic_cut(commit.earlier),
        "done": None if commit.is_complete else commit.steps[-1].kind.value,
        "schema_version": commit.schema_version,
    }
    kinds = [step.kind.value for step in commit.steps]
    actions: list[dict[str, Any]] = []
    if commit.is_new_schema:
        schema = delta_schema(topic)
        actions.append({"protocol": protocol_action(schema)})
        actions.append({"metaData": metadata_action(name, schema, topic.created_ms)})
    if commit.is_complete:
        actions += [{"txn": txn} for txn in txn_actions(name, commit.at, commit.earlier, now_ms)]
    for step in commit.steps:
        actions += _file_actions(step, now_ms)
    parameters = {"cut": str(commit.at.number), "steps": ",".join(kinds)}
    is_blind = kinds == [StepKind.APPEND.value] and not commit.is_new_schema
    return _lines(name, "PUBLISH", parameters, is_blind, info, actions, now_ms, write_id)


def encoded_withdrawal(
    name: TableName, version: int, paths: Iterable[str], now_ms: int, write_id: str
) -> bytes:
    """The lines of a version that no reader takes, without these files."""
    features = {"readerFeatures": [WITHDRAWN], "writerFeatures": [WITHDRAWN, GUARD]}
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        *({"remove": _remove(path, now_ms, data_change=True)} for path in paths),
    ]
    info = {"version": version, "at": None, "earlier": None, "done": None, "schema_version": 0}
    return _lines(name, "UNPUBLISH", {}, False, info, actions, now_ms, write_id)


def _file_actions(step: Step, now_ms: int) -> list[dict[str, Any]]:
    data_change = _KINDS[step.kind]
    removed = [{"remove": _remove(path, now_ms, data_change=data_change)} for path in step.removed]
    return removed + [{"add": add_action(file, data_change=data_change)} for file in step.added]


def _remove(path: str, now_ms: int, *, data_change: bool) -> dict[str, Any]:
    return {"path": path, "deletionTimestamp": now_ms, "dataChange": data_change}


def _lines(
    name: TableName,
    operation: str,
    parameters: Mapping[str, str],
    is_blind: bool,
    info: Mapping[str, Any],
    actions: Sequence[Mapping[str, Any]],
    now_ms: int,
    write_id: str,
) -> bytes:
    ours = {
        "format": 2,
        "kind": "delta_commit",
        "store_id": name.store_id,
        "topic": name.topic,
        "incarnation": name.incarnation,
        **info,
        "write_id": write_id,
        "checksum": _ZEROS.decode(),
    }
    head = {
        "timestamp": now_ms,
        "operation": operation,
        "operationParameters": dict(parameters),
        "isBlindAppend": is_blind,
        "engineInfo": "txn-engine",
        "txnEngine": ours,
    }
    lines = [json.dumps(action, separators=(",", ":")) for action in ({"commitInfo": head}, *actions)]
    data = ("\n".join(lines) + "\n").encode()
    found = _mark(data)
    place = found.start(1) if found is not None else -1
    return data[:place] + _checksum(data, place).encode() + data[place + len(_ZEROS) :]


def _mark(data: bytes) -> re.Match[bytes] | None:
    return _MARK.search(data, 0, data.index(b"\n"))


def _checksum(data: bytes, place: int) -> str:
    digest = xxhash.xxh3_128(data[:place])
    digest.update(_ZEROS)
    digest.update(data[place + len(_ZEROS) :])
    return digest.hexdigest()


def decoded_commit(data: bytes, key: str, name: TableName, version: int) -> Published:
    """What the version says of the state that it shows. `CorruptObjectError` for one that is not of this table as we
    write it: then somebody else has written here.
    """
    info = _ours(data)
    if info is None:
        raise CorruptObjectError(
            "a commit that txn-engine did not write, or not so",
            place=key,
            expected=f"a commit of the table of {name.topic!r} with its checksum",
            action="somebody wrote into the table's folder: find out who may; remove this commit and those behind it,"
            " then publish again; the topic itself is untouched",
            reason=Reason.NOT_WRITTEN_BY_US,
        )
    needed = ("store_id", "topic", "incarnation", "version", "at", "earlier", "done")
    check_fields(info, needed, key=key, kind="delta_commit")
    seen = (info["store_id"], info["topic"], info["incarnation"], info["version"])
    if info["store_id"] not in name.store_ids or seen[1:] != (name.topic, name.incarnation, version):
        raise CorruptObjectError(
            f"a commit of {seen!r:.200}",
            place=key,
            expected=f"version {version} of {name.topic!r}, incarnation {name.incarnation}, of this store",
            reason=Reason.OF_ANOTHER_TABLE,
        )
    created_ms = bounded_time(checked_number(info, "timestamp", 0, _INT64_MAX, key=key))
    at = None if info["at"] is None else decoded_topic_cut(info["at"], key, "delta_commit")
    earlier = None if info["earlier"] is None else decoded_topic_cut(info["earlier"], key, "delta_commit")
    held = {"schema_version": info.get("schema_version", 0)}  # not there: of a topic that had not changed
    schema_version = checked_number(held, "schema_version", 0, _INT64_MAX, key=key)
    if info["done"] is None:
        return Published(version, at, created_ms, schema_version)
    if at is None or info["done"] not in set(StepKind):
        raise CorruptObjectError(f"done {info['done']!r:.80}", place=key, expected="one of the steps")
    added, removed = (_paths(data, key, kind) for kind in ("add", "remove"))
    return Published(version, at, created_ms, schema_version, earlier, StepKind(info["done"]), added, removed)


def _ours(data: bytes) -> dict[str, Any] | None:
    """What we say in a commit's first line, and its time; None where it is not ours to the letter."""
    found = _mark(data) if b"\n" in data else None
    if found is None or _checksum(data, found.start(1)) != found[1].decode():
        return None
    try:
        head = json.loads(data[: data.index(b"\n")])["commitInfo"]
        ours = dict(head["txnEngine"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if (ours.get("format"), ours.get("kind")) != (2, "delta_commit"):
        return None
    return {**ours, "timestamp": head.get("timestamp")}


def _paths(data: bytes, key: str, kind: str) -> frozenset[str]:
    """Of the files that a commit adds, or removes."""
    try:
        actions = [json.loads(line) for line in data.splitlines()[1:]]
        return frozenset(str(action[kind]["path"]) for action in actions if kind in action)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptObjectError("lines that are no actions", place=key, expected="Delta's JSON") from error
