"""Snapshots as Parquet (docs/FORMAT.md): a partition's state to bytes and back. The same state gives the same bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, fields
from itertools import groupby, islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from immutables import Map

from storage import UNCOMPRESSED, UNREADABLE, ParquetLimits, encode_parquet, open_parquet
from txn_engine.errors import CorruptObjectError
from txn_engine.log.entry_format import (
    OFFSET_COMMIT_FIELDS,
    TRANSACTION_FIELDS,
    offset_commit_from_dict,
    offset_commit_to_dict,
    transaction_from_dict,
    transaction_to_dict,
)
from txn_engine.log.objects import store_errors
from txn_engine.log.row_checks import (
    MAX_OFFSET,
    log_file_problem,
    offset_commit_problem,
    transaction_problem,
)
from txn_engine.protocol.batches import FileRef
from txn_engine.protocol.cleaning import Cleaning
from txn_engine.protocol.file_names import is_data_path
from txn_engine.protocol.log_time import bounded_time
from txn_engine.protocol.offset_commits import GroupOffsets, OffsetKey, StoredCommit
from txn_engine.protocol.partition import AbortedRange, DeadFile, LogFile, PartitionState
from txn_engine.protocol.producers import BATCHES_TO_RETAIN, BatchMetadata, ProducerEntry
from txn_engine.protocol.transaction_rows import StoredRow

SNAPSHOT_LIMITS = ParquetLimits(
    object_bytes=1 << 30,
    footer_bytes=256 << 10,
    rows=(1 << 31) - 1,
    row_group_rows=1 << 20,
    row_group_bytes=1 << 30,
    row_group_memory=1 << 30,
    values=(1 << 31) - 1,
    values_per_byte=1,
    values_free=0,
    codecs=frozenset({UNCOMPRESSED}),
)
"""Of snapshots (docs/FORMAT.md, "Limits"): nothing in one is larger in memory than some times its stored bytes."""
_ROWS_AT_ONCE = 8_192
_DEAD = ("aborted", "replaced", "erased")

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
_LOG_FILE = [field.name for field in fields(LogFile) if field.name != "file"]
_FILE_REF = [field.name for field in fields(FileRef)]
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

_NOTHING_LEFT = LogFile(-1, -1, -1, -1, 0, -1, -1, FileRef("", 0, ""))
"""As the file that stands for one of which all records were erased."""

SNAPSHOT_SCHEMA = pa.schema(
    [
        pa.field("section", _STR, nullable=False),
        pa.field("partition", pa.struct([(name, _I64) for name in (*_PARTITION, *_CLEANING)])),
        pa.field("producer", pa.struct(_PRODUCER)),
        pa.field("file", pa.struct(_FILE)),
        pa.field("aborted", pa.struct(_ABORTED)),
        pa.field("transaction", pa.struct([*_STORED_ROW, *TRANSACTION_FIELDS])),
        pa.field("offset_commit", pa.struct([*_STORED_COMMIT, *OFFSET_COMMIT_FIELDS])),
        pa.field("erased", pa.struct([("input", _STR), *_FILE[2:]])),
    ]
)
"""Of all sections. A snapshot has the columns of those that it has rows of: most have three, and a column more takes as
long to write as a hundred rows.
"""


def _schema_of(names: Collection[str]) -> pa.Schema:
    """Of a snapshot with these columns, in the format's order."""
    return pa.schema([field for field in SNAPSHOT_SCHEMA if field.name in names])


def encode_snapshot(state: PartitionState) -> bytes:
    """The snapshot of a state that was built from entries read back; `InvalidRequestError` above 1 GiB."""
    rows = ({"section": section, section: values} for section, values in _sections(state))
    parts = []
    while some := list(islice(rows, _ROWS_AT_ONCE)):  # rows as dicts take ten times the memory
        parts.append(pa.Table.from_pylist(some, schema=_schema_of({name for row in some for name in row})))
    table = pa.concat_tables(parts, promote_options="default")  # sections are in the columns' order
    with store_errors():
        return encode_parquet(table, kind="snapshot", limits=SNAPSHOT_LIMITS)


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
    for path, stands in sorted(state.erased.items()):
        yield "erased", {"input": path, **_log_file_fields(stands or _NOTHING_LEFT)}


def _file_rows(state: PartitionState) -> Iterator[dict[str, Any]]:
    for status, files in (("live", state.live), ("undecided", state.undecided)):
        for log_file in files.values():
            yield _file_row(log_file, status, -1)
    for dead in state.dead.values():
        yield _file_row(dead.log_file, dead.status, dead.died_ms)


def _file_row(log_file: LogFile, status: str, died_ms: int) -> dict[str, Any]:
    return {"status": status, "died_ms": died_ms, **_log_file_fields(log_file)}


def _log_file_fields(log_file: LogFile) -> dict[str, Any]:
    values = {name: getattr(log_file, name) for name in _LOG_FILE}  # `asdict` takes five times as long
    return values | {name: getattr(log_file.file, name) for name in _FILE_REF}


def decode_snapshot(data: bytes, *, key: str) -> PartitionState:
    """The state of a snapshot; `CorruptObjectError` where it is damaged, or says what no log can have led to.

    Memory: in proportion to the object's size, whatever it claims.
    """
    with store_errors():
        file = open_parquet(data, key=key, kind="snapshot", limits=SNAPSHOT_LIMITS).file
    if not file.schema_arrow.equals(_schema_of(file.schema_arrow.names)):
        raise CorruptObjectError("columns of other names or types", place=key, expected="a snapshot's")
    try:
        state, stable = _state(_rows_by_section(file))
        problem = _problem(state)
    except (*UNREADABLE, AttributeError) as error:
        raise CorruptObjectError(
            f"rows that cannot be read: {error}", place=key, expected="a snapshot's"
        ) from error
    if problem is not None:
        raise CorruptObjectError(problem, place=key, expected="rows as the format has them")
    if state.last_stable_offset != stable:
        raise CorruptObjectError(
            f"last stable offset {stable}", place=key, expected=str(state.last_stable_offset)
        )
    return state


def _rows_by_section(file: pq.ParquetFile) -> dict[str, list[dict[str, Any]]]:
    """Each row's one struct, by the name of its section; some thousand rows are read at a time."""
    sections: dict[str, list[dict[str, Any]]] = {name: [] for name in SNAPSHOT_SCHEMA.names[1:]}
    for batch in file.iter_batches(_ROWS_AT_ONCE, use_threads=False):
        start = 0
        for name, run in groupby(batch.column("section").to_pylist()):
            if name not in sections:
                raise ValueError(f"a row of section {name!r:.80}")
            count = sum(1 for _ in run)
            column: Any = batch.column(name)
            sections[name] += _values(name, column.slice(start, count))
            start += count
    return sections


def _values(section: str, rows: pa.StructArray) -> list[dict[str, Any]]:
    """The rows of a section, column by column: whole rows would have every other section in them."""
    names = [field.name for field in rows.type]
    columns = rows.flatten()
    if any(column.null_count for name, column in zip(names, columns, strict=True) if name != "run_id"):
        raise ValueError(f"null in a row of section {section!r}")
    values = zip(*(column.to_pylist() for column in columns), strict=True)
    return [dict(zip(names, row, strict=True)) for row in values]


def _state(sections: dict[str, list[dict[str, Any]]]) -> tuple[PartitionState, int]:
    """The state, and the last stable offset that stands beside it."""
    (header,) = sections["partition"]
    header["last_append_time"] = bounded_time(header["last_append_time"])
    header["horizon_ms"] = bounded_time(header["horizon_ms"])
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
                    v["row_offset"],
                    transaction_from_dict(v),
                    bounded_time(v["append_time"]),
                    bounded_time(v["start_append_time"]),
                )
                for v in sections["transaction"]
            }
        ),
        group_offsets=_group_offsets(sections["offset_commit"]),
        **_files(sections["file"]),
        erased=Map(map(_erased, sections["erased"])),
    )
    return state, header["last_stable_offset"]


def _problem(state: PartitionState) -> str | None:
    """What no log can have led to; None where there is nothing of it."""
    end = state.log_end_offset
    starts = (state.log_start_offset, state.entries_start, state.floor, state.cleaning.cleaned_to)
    if not 0 <= end <= MAX_OFFSET + 1 or min(starts) < 0 or max(starts) > end:
        return f"starts {starts} of a log that ends at {end}"
    return next((problem for problem in _problems(state, end) if problem is not None), None)


def _problems(state: PartitionState, end: int) -> Iterator[str | None]:
    for entry in state.producers.values():
        yield _producer_problem(entry, end)
    for file in (*state.live.values(), *state.undecided.values()):
        yield log_file_problem(file, end)
    for dead in state.dead.values():
        yield log_file_problem(dead.log_file, end)
        yield None if dead.status in _DEAD else f"a file of status {dead.status!r:.80}"
    for path, stands in state.erased.items():
        yield None if is_data_path(path) else f"records erased from {path!r:.80}"
        yield None if stands is None else log_file_problem(stands, end)
    for stored in state.transactions.values():
        yield transaction_problem(stored.row)
        yield None if 0 <= stored.offset < end else f"a row at offset {stored.offset}"
    pending = (commit for commits in state.group_offsets.pending.values() for commit in commits.values())
    for commit in (*state.group_offsets.committed.values(), *pending):
        yield offset_commit_problem(commit.commit)
        yield None if 0 <= commit.offset < end else f"a commit at offset {commit.offset}"


def _producer_problem(entry: ProducerEntry, end: int) -> str | None:
    if min(entry.producer_id, entry.producer_epoch) < 0 or not -1 <= entry.open_first_offset < end:
        return f"producer {entry.producer_id} at epoch {entry.producer_epoch}"
    if len(entry.batches) > BATCHES_TO_RETAIN or any(kept.last_offset >= end for kept in entry.batches):
        return f"{len(entry.batches)} batches of producer {entry.producer_id}"
    return None


def _producer(values: Mapping[str, Any]) -> ProducerEntry:
    batches = tuple(
        BatchMetadata(**{**batch, "timestamp": bounded_time(batch["timestamp"])})
        for batch in values["batches"]
    )
    times = {name: bounded_time(values[name]) for name in ("last_timestamp", "append_time")}
    return ProducerEntry(**{**values, **times, "batches": batches})


def _erased(values: dict[str, Any]) -> tuple[str, LogFile | None]:
    path = values.pop("input")
    log_file = _log_file(values)
    return path, None if log_file == _NOTHING_LEFT else log_file


def _log_file(values: dict[str, Any]) -> LogFile:
    file = FileRef(values.pop("data_path"), values.pop("data_bytes"), values.pop("checksum"))
    for name in ("first_timestamp", "max_timestamp"):
        values[name] = bounded_time(values[name])
    return LogFile(**values, file=file)


def _files(rows: list[dict[str, Any]]) -> dict[str, Any]:
    live: dict[int, LogFile] = {}
    undecided: dict[int, LogFile] = {}
    dead: dict[str, DeadFile] = {}
    named: dict[str, int] = {}
    for values in rows:
        status, died_ms = values.pop("status"), bounded_time(values.pop("died_ms"))
        log_file = _log_file(values)
        file = log_file.file
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
        stored = StoredCommit(
            values["row_offset"], offset_commit_from_dict(values), bounded_time(values["append_time"])
        )
        producer_id = values["pending_producer_id"]
        target = committed if producer_id == -1 else pending.setdefault(producer_id, {})
        target[stored.commit.key] = stored
    return GroupOffsets(Map(committed), Map({pid: Map(commits) for pid, commits in pending.items()}))
