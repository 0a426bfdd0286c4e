"""Snapshots as Parquet (docs/FORMAT.md): a partition's state to bytes and back. The same state gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from operator import itemgetter
from typing import Any

import pyarrow as pa
from immutables import Map

from storage import UNCOMPRESSED, UNREADABLE, ParquetLimits, encode_parquet, open_parquet
from txn_engine.errors import CorruptObjectError
from txn_engine.log.entry_format import (
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
from txn_engine.log.snapshot_rows import HEADER, SECTIONS, SectionRow, rows_by_section, snapshot_tables
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


def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


_DEAD = ("aborted", "replaced", "erased")

_CLEANING, _BATCH = _names(Cleaning), _names(BatchMetadata)
_PRODUCER = tuple(name for name in SECTIONS["producer"] if name != "batches")
_LOG_FILE, _FILE_REF = tuple(name for name in _names(LogFile) if name != "file"), _names(FileRef)

_NOTHING_LEFT = LogFile(-1, -1, -1, -1, 0, -1, -1, FileRef("", 0, ""))
"""As the file that stands for one of which all records were erased."""


def encode_snapshot(state: PartitionState) -> bytes:
    """The snapshot of a state that was built from entries read back; `InvalidRequestError` above 1 GiB."""
    table = pa.concat_tables(snapshot_tables(_rows(state)))
    with store_errors():
        return encode_parquet(table, kind="snapshot", limits=SNAPSHOT_LIMITS)


def _rows(state: PartitionState) -> Iterator[SectionRow]:
    yield "partition", _fields(state, HEADER) | _fields(state.cleaning, _CLEANING)
    for _, producer in sorted(state.producers.items()):
        batches = [_fields(batch, _BATCH) for batch in producer.batches]
        yield "producer", {**_fields(producer, _PRODUCER), "batches": batches}
    for row in sorted(_file_rows(state), key=itemgetter("base_offset", "data_path")):
        yield "file", row
    for _, aborted in sorted(state.aborted.items()):
        yield "aborted", _fields(aborted, SECTIONS["aborted"])
    for _, stored in sorted(state.transactions.items()):
        times = {"append_time": stored.append_time, "start_append_time": stored.start_append_time}
        yield "transaction", {"row_offset": stored.offset, **times, **transaction_to_dict(stored.row)}
    commits = [(key, -1, commit) for key, commit in state.group_offsets.committed.items()]
    for producer_id, pending in state.group_offsets.pending.items():
        commits += [(key, producer_id, commit) for key, commit in pending.items()]
    for _, producer_id, commit in sorted(commits, key=itemgetter(0, 1)):
        values = {
            "row_offset": commit.offset,
            "append_time": commit.append_time,
            "pending_producer_id": producer_id,
        }
        yield "offset_commit", {**values, **offset_commit_to_dict(commit.commit)}
    for path, stands in sorted(state.erased.items()):
        yield "erased", {"input": path, **_log_file_fields(stands or _NOTHING_LEFT)}


def _fields(held: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(held, name) for name in names}  # `asdict` takes five times as long


def _file_rows(state: PartitionState) -> Iterator[dict[str, Any]]:
    for status, files in (("live", state.live), ("undecided", state.undecided)):
        for log_file in files.values():
            yield _file_row(log_file, status, -1)
    for dead in state.dead.values():
        yield _file_row(dead.log_file, dead.status, dead.died_ms)


def _file_row(log_file: LogFile, status: str, died_ms: int) -> dict[str, Any]:
    return {"status": status, "died_ms": died_ms, **_log_file_fields(log_file)}


def _log_file_fields(log_file: LogFile) -> dict[str, Any]:
    return _fields(log_file, _LOG_FILE) | _fields(log_file.file, _FILE_REF)


def decode_snapshot(data: bytes, *, key: str) -> PartitionState:
    """The state of a snapshot; `CorruptObjectError` where it is damaged, or says what no log can have led to.

    Memory: in proportion to the object's size, whatever it claims.
    """
    with store_errors():
        file = open_parquet(data, key=key, kind="snapshot", limits=SNAPSHOT_LIMITS).file
    try:
        state, stable = _state(rows_by_section(file))
        problem = _problem(state)
    except (*UNREADABLE, AttributeError, RecursionError) as error:
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


def _state(sections: dict[str, list[dict[str, Any]]]) -> tuple[PartitionState, int]:
    """The state, and the last stable offset that stands beside it."""
    (header,) = sections["partition"]
    header["last_append_time"] = bounded_time(header["last_append_time"])
    header["horizon_ms"] = bounded_time(header["horizon_ms"])
    producers = [_producer(values) for values in sections["producer"]]
    state = PartitionState(
        **{name: header[name] for name in HEADER if name != "last_stable_offset"},
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


def _producer(values: dict[str, Any]) -> ProducerEntry:
    for held in (values, *values["batches"]):
        for name in ("last_timestamp", "append_time", "timestamp"):
            if name in held:
                held[name] = bounded_time(held[name])
    batches = tuple(BatchMetadata(**batch) for batch in values.pop("batches"))
    return ProducerEntry(**values, batches=batches)


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
