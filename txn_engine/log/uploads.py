"""Putting a batch's records on the store, before the entry that names them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from txn_engine.errors import (
    CorruptObjectError,
    InvalidRequestError,
    InvalidTimestampError,
    RecordTooLargeError,
)
from txn_engine.ids import IdSource
from txn_engine.log.data_files import DataFileEncoder, EncodedFile, encode_data_file
from txn_engine.log.objects import Objects
from txn_engine.log.topics import Topic
from txn_engine.protocol.file_names import DataFileName
from txn_engine.protocol.log_time import EARLIEST_MS, LATEST_MS
from txn_engine.reasons import Reason
from txn_engine.schemas.layout import Layout

MAX_BATCH_ROWS = 1_000_000


def upload_records(
    objects: Objects,
    new_id: IdSource,
    prefix: str,
    records: pa.Table,
    layout: Layout,
    *,
    log_end: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    most_bytes: int | None = None,
) -> EncodedFile:
    """Write the data file of a batch, whose records conform to the layout, under a name nobody else has.

    Invisible until an entry names it. Raises `RecordTooLargeError`, with nothing written, for a file of more than
    `most_bytes`.
    """
    name = DataFileName(log_end, producer_id, producer_epoch, new_id())
    data, encoded = encode_data_file(records, layout, name, timestamp_ms)
    if most_bytes is not None and len(data) > most_bytes:
        raise too_large(prefix, encoded.record_count, len(data), most_bytes)
    put_data_file(objects, prefix, data, encoded)
    return encoded


def encode_parts(
    parts: Sequence[tuple[pa.Table, int]], layout: Layout, name: DataFileName
) -> tuple[bytes, EncodedFile]:
    """The bytes of the file of a batch, whose records conform to the layout and come in parts with a timestamp each."""
    if len(parts) == 1:
        return encode_data_file(parts[0][0], layout, name, parts[0][1])
    encoder = DataFileEncoder(layout, name, parts[0][1])
    for records, timestamp_ms in parts:
        encoder.write(records, timestamp_ms)
    return encoder.finish()


def put_data_file(objects: Objects, prefix: str, data: bytes, encoded: EncodedFile) -> None:
    """Put an encoded data file under its name, which nobody else has."""
    key = f"{prefix}/{encoded.file.data_path}"
    if not objects.create(key, data, max_bytes=len(data)).won:
        raise CorruptObjectError("another object", place=key, expected="a fresh name for every data file")


def checked_time(given: object, earliest_ms: int, actor: str) -> int:
    """A time for records, in ms. `InvalidRequestError` for what is none, or is none of the calendar from there on:
    readers would take it for the calendar's end.
    """
    time_ms = int(given) if isinstance(given, (int, np.integer)) and not isinstance(given, bool) else None
    if time_ms is not None and earliest_ms <= time_ms <= LATEST_MS:
        return time_ms
    raise InvalidRequestError(
        f"timestamp {given!r:.80}",
        actor=actor,
        expected=f"milliseconds since the epoch, {earliest_ms} to {LATEST_MS} (the year 9999)",
        reason=Reason.BAD_TIMESTAMP,
    )


def check_times(topic: Topic, first_ms: int, last_ms: int, now_ms: int, actor: str) -> None:
    """Raise `InvalidTimestampError` where times that a producer gives are further from its clock than the topic allows
    (`LogValidator.validateTimestamp`).
    """
    earliest_ms = now_ms - topic.message_timestamp_before_max_ms
    latest_ms = now_ms + topic.message_timestamp_after_max_ms
    wrong = first_ms if first_ms < earliest_ms else last_ms if last_ms > latest_ms else None
    if wrong is not None:
        raise InvalidTimestampError(
            f"timestamp {wrong}, when this machine's clock says {now_ms}",
            actor=actor,
            place=topic.name,
            expected=f"{max(earliest_ms, EARLIEST_MS)} to {min(latest_ms, LATEST_MS)}: message.timestamp.before.max.ms"
            " and message.timestamp.after.max.ms of the topic",
            action="correct the timestamps, or the clock of this machine; nothing was written",
            reason=Reason.TIMESTAMP_OUT_OF_RANGE,
        )


def too_large(place: str, records: int, size: int, most: int) -> RecordTooLargeError:
    """What a file of so many bytes is refused with."""
    what, reason = "a record", Reason.ROW_TOO_LARGE
    if records != 1:
        what, reason = f"{records} records", Reason.BATCH_TOO_LARGE
    return RecordTooLargeError(
        f"{what} in a data file of {size} bytes",
        place=place,
        expected=f"at most {most}: the topic's max.message.bytes, or the producer's max.request.size",
        reason=reason,
    )


def slices(records: pa.Table, max_rows: int = MAX_BATCH_ROWS) -> Iterator[pa.Table]:
    """The records in parts that fit one data file."""
    for start in range(0, records.num_rows, max_rows):
        yield records.slice(start, max_rows)
