"""Delta's checkpoints: the whole state at a version as one Parquet object, so that readers begin there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from storage import LARGE, encode_parquet
from txn_engine.log.objects import store_errors
from txn_engine.log.topic_cut import TopicCut
from txn_engine.log.topics import Topic
from txn_engine.tables.delta.commits import (
    TableName,
    add_action,
    metadata_action,
    protocol_action,
    txn_actions,
)
from txn_engine.tables.delta.schema import delta_schema
from txn_engine.tables.files import TableFile

_TEXTS: Final = pa.list_(pa.string())
_MAP: Final = pa.map_(pa.string(), pa.string())
_SCHEMA: Final = pa.schema(
    [
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", _TEXTS),
                    ("writerFeatures", _TEXTS),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", _TEXTS),
                    ("configuration", _MAP),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "txn",
            pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
        ),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _MAP),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                ]
            ),
        ),
        (
            "remove",
            pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())]),
        ),
    ]
)
_PROFILE: Final = replace(LARGE, write_statistics=False)


def encoded_checkpoint(
    name: TableName, topic: Topic, at: TopicCut, files: Sequence[TableFile], now_ms: int
) -> bytes:
    """The state that shows these files, the same but for the time whoever writes it.

    Nothing is remembered of files that were removed: that is for Delta's VACUUM, which is refused.
    """
    schema = delta_schema(topic)
    metadata = metadata_action(name, schema, topic.created_ms)
    metadata = {**metadata, "configuration": list(metadata["configuration"].items()), "description": None}
    metadata["format"] = {**metadata["format"], "options": []}
    rows: list[dict[str, Any]] = [{"protocol": protocol_action(schema)}, {"metaData": metadata}]
    rows += [{"txn": txn} for txn in txn_actions(name, at, None, now_ms)]
    rows += [{"add": {**add_action(file, data_change=False), "partitionValues": []}} for file in files]
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in _SCHEMA]
    with store_errors():
        return encode_parquet(
            pa.Table.from_arrays(columns, schema=_SCHEMA), kind="delta_checkpoint", profile=_PROFILE
        )


def encoded_hint(version: int, rows: int) -> bytes:
    """What readers ask first."""
    return json.dumps({"version": version, "size": rows}).encode()


def decoded_hint(data: bytes | None) -> int:
    """The version that the hint names; 0 for anything that is none. It is never believed."""
    try:
        version = json.loads(data or b"")["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return 0
    return version if type(version) is int and 0 <= version < 2**63 - 1 else 0
