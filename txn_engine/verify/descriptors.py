"""The rows of an entry as the auditor reads them (docs/FORMAT.md, "Entries")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import pyarrow as pa

from txn_engine.verify.columns import Types, values, wrong_column
from txn_engine.verify.findings import Place
from txn_engine.verify.limits import EARLIEST_MS, LATEST_MS, bounded_time
from txn_engine.verify.store_keys import DATA_FILE, MAX_OFFSET

CONTROLS: Final = frozenset(
    {"none", "commit", "abort", "rewrite", "trim", "expire", "floor", "clean", "erase"}
)
SEQUENCES: Final = 2**31

_PARTITIONS = pa.list_(
    pa.struct([("topic", pa.string()), ("incarnation", pa.int32()), ("partition", pa.int32())])
)

DESCRIPTOR: Final[Types] = {
    "base_offset": pa.int64(),
    "last_offset": pa.int64(),
    "producer_id": pa.int64(),
    "producer_epoch": pa.int16(),
    "base_sequence": pa.int32(),
    "is_transactional": pa.bool_(),
    "control": pa.string(),
    "coordinator_epoch": pa.int64(),
    "first_timestamp": pa.int64(),
    "max_timestamp": pa.int64(),
    "record_count": pa.int32(),
    "data_path": pa.string(),
    "data_bytes": pa.int64(),
    "checksum": pa.string(),
    "append_time": pa.int64(),
    "control_value": pa.string(),
}
_LAST_OFFSET: Final = list(DESCRIPTOR).index("last_offset")

TRANSACTION_FIELDS: Final[Types] = {
    "transactional_id": pa.string(),
    "state": pa.string(),
    "producer_id": pa.int64(),
    "producer_epoch": pa.int16(),
    "last_producer_epoch": pa.int16(),
    "previous_producer_id": pa.int64(),
    "next_producer_id": pa.int64(),
    "transaction_timeout_ms": pa.int32(),
    "start_ms": pa.int64(),
    "update_ms": pa.int64(),
    "partitions": _PARTITIONS,
    "run_id": pa.string(),
    "committed_run_ids": pa.list_(pa.string()),
    "run_ids_complete": pa.bool_(),
    "decision_offset": pa.int64(),
}

OFFSET_COMMIT_FIELDS: Final[Types] = {
    "group_id": pa.string(),
    "topic": pa.string(),
    "incarnation": pa.int32(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "leader_epoch": pa.int32(),
    "metadata": pa.string(),
    "commit_ms": pa.int64(),
    "member_id": pa.string(),
    "fetched_row": pa.int64(),
    "fetched_end": pa.int64(),
}


class TransactionRow(NamedTuple):
    """A row of `__transaction_state`."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    last_producer_epoch: int
    previous_producer_id: int
    next_producer_id: int
    transaction_timeout_ms: int
    start_ms: int
    update_ms: int
    partitions: tuple[tuple[str, int, int], ...]
    run_id: str | None
    committed_run_ids: tuple[str, ...]
    run_ids_complete: bool
    decision_offset: int


class OffsetKey(NamedTuple):
    """What a group's offset is kept for."""

    group_id: str
    topic: str
    incarnation: int
    partition: int


class OffsetCommit(NamedTuple):
    """A row of `__consumer_offsets`."""

    group_id: str
    topic: str
    incarnation: int
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    member_id: str
    fetched_row: int
    fetched_end: int

    @property
    def key(self) -> OffsetKey:
        """Group and partition."""
        return OffsetKey(self.group_id, self.topic, self.incarnation, self.partition)


class Batch(NamedTuple):
    """One row of an entry: a batch of records, a marker, or another control row."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    control: str
    coordinator_epoch: int
    first_timestamp: int
    max_timestamp: int
    record_count: int
    data_path: str
    data_bytes: int
    checksum: str
    append_time: int
    control_value: str
    row: TransactionRow | OffsetCommit | None = None

    @property
    def is_marker(self) -> bool:
        """Whether it ends a transaction here."""
        return self.control in ("commit", "abort")

    @property
    def offsets(self) -> tuple[int, int]:
        """First and last offset, inclusive."""
        return (self.base_offset, self.last_offset)

    @property
    def last_sequence(self) -> int:
        """The last record's sequence, wrapping after 2^31-1 to 0; -1 without sequences."""
        return self.sequence_of(self.record_count - 1)

    def sequence_of(self, delta: int) -> int:
        """The sequence of the record `delta` offsets after the first; -1 without sequences."""
        return -1 if self.base_sequence < 0 else (self.base_sequence + delta) % SEQUENCES


class MalformedError(Exception):
    """An object that is whole, but does not say what the format asks for."""


@dataclass(frozen=True, slots=True)
class RowColumn:
    """The further column of an internal topic's entries."""

    name: str
    kind: pa.DataType
    build: type[TransactionRow | OffsetCommit]


TRANSACTION_COLUMN = RowColumn("transaction", pa.struct(list(TRANSACTION_FIELDS.items())), TransactionRow)
OFFSET_COMMIT_COLUMN = RowColumn("offset_commit", pa.struct(list(OFFSET_COMMIT_FIELDS.items())), OffsetCommit)
ROW_COLUMNS: Final = {"__transaction_state": TRANSACTION_COLUMN, "__consumer_offsets": OFFSET_COMMIT_COLUMN}

_NULLABLE = frozenset({"run_id"})
_SEEN: dict[
    str, pa.Schema
] = {}  # of the last right entry, by internal topic: most look alike, and looking takes time


def check_columns(schema: pa.Schema, place: Place) -> None:
    """MalformedError unless an entry's columns are the format's: asked before any of them is read."""
    further = ROW_COLUMNS.get(place.topic)
    wanted = DESCRIPTOR if further is None else {**DESCRIPTOR, further.name: further.kind}
    seen = _SEEN.get(place.topic if further else "")
    if schema is not seen and (seen is None or not schema.equals(seen)):
        problem = wrong_column(schema, wanted)
        if problem is not None:
            raise MalformedError(problem)
        _SEEN[place.topic if further else ""] = schema


def bounded(batch: Batch) -> Batch:
    """The row with its times as they count: one that no calendar holds is the calendar's end."""
    times = (batch.append_time, batch.first_timestamp, batch.max_timestamp)
    row: Any = batch.row
    own = {name: getattr(row, name) for name in ("start_ms", "update_ms", "commit_ms") if hasattr(row, name)}
    if all(EARLIEST_MS <= time_ms <= LATEST_MS for time_ms in (*times, *own.values())):
        return batch
    counted = row and row._replace(**{name: bounded_time(time_ms) for name, time_ms in own.items()})
    append_time, first, last = map(bounded_time, times)
    return batch._replace(append_time=append_time, first_timestamp=first, max_timestamp=last, row=counted)


def decode_batches(table: pa.Table, place: Place) -> list[Batch]:
    """The rows of one entry whose columns are the format's; MalformedError where nulls or offsets are not."""
    further = ROW_COLUMNS.get(place.topic)
    columns = [table.column(name).to_pylist() for name in DESCRIPTOR]
    for name, column in zip(DESCRIPTOR, columns, strict=True):
        if None in column:
            raise MalformedError(f"null in column {name!r}")
    if further is None:
        return plain_batches(columns)
    _check_ends(columns)
    rows = [decode_row(value, further) for value in values(table.column(further.name), further.kind)]
    return [Batch._make(row) for row in zip(*columns, rows, strict=True)]


def plain_batches(columns: Sequence[Sequence[Any]]) -> list[Batch]:
    """The rows of an entry without a further column, nulls in none of its columns."""
    _check_ends(columns)
    return [Batch._make((*row, None)) for row in zip(*columns, strict=True)]


def _check_ends(columns: Sequence[Sequence[Any]]) -> None:
    if MAX_OFFSET in columns[_LAST_OFFSET]:
        raise MalformedError(f"a row at offset {MAX_OFFSET}: no log can end behind it")


def decode_row(value: tuple[Any, ...] | None, further: RowColumn) -> TransactionRow | OffsetCommit | None:
    """One value of an internal topic's further column; MalformedError for a null inside it."""
    if value is None:
        return None
    row = further.build._make(value)
    for name, field in zip(row._fields, row, strict=True):
        if name not in _NULLABLE and _holds_null(field):
            raise MalformedError(f"null in {further.name}.{name}")
    return row


def _holds_null(value: Any) -> bool:
    return value is None or (isinstance(value, tuple) and any(map(_holds_null, value)))


class DataFileName(NamedTuple):
    """What a data file's name says: the log end seen when its upload began, and whose it is."""

    log_end: int
    producer_id: int
    producer_epoch: int
    write_id: str


@lru_cache(maxsize=16)  # one row's path is asked about by several rules
def parse_data_path(path: str) -> DataFileName | None:
    """What the name of a data file says; None for a path of another form."""
    folder, _, name = path.partition("/")
    match = DATA_FILE.fullmatch(name) if folder == "data" else None
    if match is None or int(match[1]) > MAX_OFFSET:
        return None
    log_end, producer_id, producer_epoch, write_id = match.groups()
    return DataFileName(int(log_end), int(producer_id), int(producer_epoch), write_id)


def data_path(log_end: int, producer_id: int, producer_epoch: int, write_id: str) -> str:
    """The path of the data file with that name."""
    return f"data/{log_end:020d}-p{producer_id}-e{producer_epoch}-{write_id}.parquet"
