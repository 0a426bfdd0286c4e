"""Snapshots as Parquet (docs/FORMAT.md): a partition's state to bytes and back. The same state gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

import pyarrow as pa
from immutables import Map

from storage import decode_parquet, encode_parquet
from txn_engine.errors import CorruptObjectError
from txn_engine.log.entry_format import (
    OFFSET_COMMIT_FIELDS,
    TRANSACTION_FIELDS,
    offset_commit_from_dict,
    offset_commit_to_dict,
    transaction_from_dict,
    transaction_to_dict,
)
from txn_engine.log.objects import check_fields, store_errors
from txn_engine.protocol.batches import FileRef
from txn_engine.protocol.cleaning import Cleaning
from txn_engine.protocol.offset_commits import GroupOffsets, OffsetKey, StoredCommit
from txn_engine.protocol.partition import AbortedRange, DeadFile, LogFile, PartitionState
from txn_engine.protocol.producers import BatchMetadata, ProducerEntry
from txn_engine.protocol.transaction_rows import StoredRow

_I16, _I32, _I64, _STR = pa.int16(), pa.int32(), pa.int64(), pa.string()

_PARTITION = [
    "log_end_offset",
    "last_append_time",
    "log_start_offset",
    "entries_start",
    "floor",
    "last_stable_offset",
]
_CLEANING = [field.name for field in fields(Cleaning)]
_BATCH: list[tuple[str, pa.DataType]] = [
    ("base_sequence", _I32),
    ("last_sequence", _I32),
    ("base_offset", _I64),
    ("last_offset", _I64),
    ("timestamp", _I64),
]
_PRODUCER: list[tuple[str, pa.DataType]] = [
    ("producer_id", _I64),
    ("producer_epoch", _I16),
    ("coordinator_epoch", _I64),
    ("last_timestamp", _I64),
    ("append_time", _I64),
    ("open_first_offset", _I64),
    ("batches", pa.list_(pa.struct(_BATCH))),
]
_FILE: list[tuple[str, pa.DataType]] = [
    ("status", _STR),
    ("died_ms", _I64),
    ("producer_id", _I64),
    ("producer_epoch", _I16),
    ("base_offset", _I64),
    ("last_offset", _I64),
    ("record_count", _I32),
    ("first_timestamp", _I64),
    ("max_timestamp", _I64),
    ("data_path", _STR),
    ("data_bytes", _I64),
    ("checksum", _STR),
]
_ABORTED: list[tuple[str, pa.DataType]] = [
    (name, _I64) for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset")
]

_STORED_ROW = [(name, _I64) for name in ("row_offset", "append_time", "start_append_time")]
_STORED_COMMIT = [(name, _I64) for name in ("row_offset", "append_time", "pending_producer_id")]

SNAPSHOT_SCHEMA = pa.schema(
    [
        pa.field("section", _STR, nullable=False),
        pa.field("partition", pa.struct([(name, _I64) for name in (*_PARTITION, *_CLEANING)])),
        pa.field("producer", pa.struct(_PRODUCER)),
        pa.field("file", pa.struct(_FILE)),
        pa.field("aborted", pa.struct(_ABORTED)),
        pa.field("transaction", pa.struct([*_STORED_ROW, *TRANSACTION_FIELDS])),
        pa.field("offset_commit", pa.struct([*_STORED_COMMIT, *OFFSET_COMMIT_FIELDS])),
    ]
)


def _columns(schema: pa.Schema) -> list[str]:
    """Every column, and every field of those that are structs."""
    structs = [field for field in schema if pa.types.is_struct(field.type)]
    return [*schema.names, *(f"{field.name}.{part.name}" for field in structs for part in field.type)]


_COLUMNS = _columns(SNAPSHOT_SCHEMA)


def encode_snapshot(state: PartitionState) -> bytes:
    """The snapshot of a state that was built from entries read back."""
    rows = [{"section": section, section: values} for section, values in _sections(state)]
    return encode_parquet(pa.Table.from_pylist(rows, schema=SNAPSHOT_SCHEMA), kind="snapshot")


def _sections(state: PartitionState) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "partition", {name: getattr(state, name) for name in _PARTITION} | asdict(state.cleaning)
    for _, producer in sorted(state.producers.items()):
        yield "producer", asdict(producer)
    for row in sorted(_file_rows(state), key=lambda row: (row["base_offset"], row["data_path"])):
        yield "file", row
    for _, aborted in sorted(state.aborted.items()):
        yield "aborted", asdict(aborted)
    for _, stored in sorted(state.transactions.items()):
        times = {"append_time": stored.append_time, "start_append_time": stored.start_append_time}
        yield "transaction", {"row_offset": stored.offset, **times, **transaction_to_dict(stored.row)}
    commits = [(key, -1, commit) for key, commit in state.group_offsets.committed.items()]
    for producer_id, pending in state.group_offsets.pending.items():
        commits += [(key, producer_id, commit) for key, commit in pending.items()]
    for _, producer_id, commit in sorted(commits, key=lambda item: item[:2]):
        values = {
            "row_offset": commit.offset,
            "append_time": commit.append_time,
            "pending_producer_id": producer_id,
        }
        yield "offset_commit", {**values, **offset_commit_to_dict(commit.commit)}


def _file_rows(state: PartitionState) -> Iterator[dict[str, Any]]:
    for status, files in (("live", state.live), ("undecided", state.undecided)):
        for log_file in files.values():
            yield _file_row(log_file, status, -1)
    for dead in state.dead.values():
        yield _file_row(dead.log_file, dead.status, dead.died_ms)


def _file_row(log_file: LogFile, status: str, died_ms: int) -> dict[str, Any]:
    values = asdict(log_file)
    values |= values.pop("file")
    return {"status": status, "died_ms": died_ms, **values}


def decode_snapshot(data: bytes, *, key: str) -> PartitionState:
    """The state of a snapshot; `CorruptObjectError` where it is damaged."""
    with store_errors():
        table, _ = decode_parquet(data, key=key, kind="snapshot")
    check_fields(_columns(table.schema), _COLUMNS, key=key, kind="snapshot")
    sections: dict[str, list[dict[str, Any]]] = {name: [] for name in SNAPSHOT_SCHEMA.names[1:]}
    for row in table.to_pylist():
        sections[row["section"]].append(row[row["section"]])
    header = sections["partition"][0]
    producers = [_producer(values) for values in sections["producer"]]
    state = PartitionState(
        **{name: header[name] for name in _PARTITION if name != "last_stable_offset"},
        cleaning=Cleaning(**{name: header[name] for name in _CLEANING}),
        producers=Map({entry.producer_id: entry for entry in producers}),
        open_transactions=Map(
            {entry.producer_id: entry.open_first_offset for entry in producers if entry.is_open}
        ),
        aborted=Map({values["last_offset"]: AbortedRange(**values) for values in sections["aborted"]}),
        transactions=Map(
            {
                v["transactional_id"]: StoredRow(
                    v["row_offset"], transaction_from_dict(v), v["append_time"], v["start_append_time"]
                )
                for v in sections["transaction"]
            }
        ),
        group_offsets=_group_offsets(sections["offset_commit"]),
        **_files(sections["file"]),
    )
    if state.last_stable_offset != header["last_stable_offset"]:
        raise CorruptObjectError(
            f"last stable offset {header['last_stable_offset']}",
            place=key,
            expected=str(state.last_stable_offset),
        )
    return state


def _producer(values: Mapping[str, Any]) -> ProducerEntry:
    batches = tuple(BatchMetadata(**batch) for batch in values["batches"])
    return ProducerEntry(**{**values, "batches": batches})


def _files(rows: list[dict[str, Any]]) -> dict[str, Any]:
    live: dict[int, LogFile] = {}
    undecided: dict[int, LogFile] = {}
    dead: dict[str, DeadFile] = {}
    named: dict[str, int] = {}
    for values in rows:
        status, died_ms = values.pop("status"), values.pop("died_ms")
        file = FileRef(values.pop("data_path"), values.pop("data_bytes"), values.pop("checksum"))
        log_file = LogFile(**values, file=file)
        named[file.data_path] = log_file.base_offset
        if status == "live":
            live[log_file.base_offset] = log_file
        elif status == "undecided":
            undecided[log_file.base_offset] = log_file
        else:
            dead[file.data_path] = DeadFile(log_file, status, died_ms)
    return {"live": Map(live), "undecided": Map(undecided), "dead": Map(dead), "named": Map(named)}


def _group_offsets(rows: list[dict[str, Any]]) -> GroupOffsets:
    committed: dict[OffsetKey, StoredCommit] = {}
    pending: dict[int, dict[OffsetKey, StoredCommit]] = {}
    for values in rows:
        stored = StoredCommit(values["row_offset"], offset_commit_from_dict(values), values["append_time"])
        producer_id = values["pending_producer_id"]
        target = committed if producer_id == -1 else pending.setdefault(producer_id, {})
        target[stored.commit.key] = stored
    return GroupOffsets(Map(committed), Map({pid: Map(commits) for pid, commits in pending.items()}))
