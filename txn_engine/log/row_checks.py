"""What a row must be by itself (docs/FORMAT.md, "Entries" and "Limits"), whoever wrote it.

A checksum is no signature. What a row says becomes a key, a range of offsets, a number of rows: so it is looked at
before anything goes by it. Each check returns what is wrong with a row, or None.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict

from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, MAX_PARTITIONS, TRANSACTION_STATE_TOPIC
from txn_engine.protocol.batches import BatchDescriptor, FileRef
from txn_engine.protocol.controls import ControlValue, Erase, Expire, Rewrite, decode_control
from txn_engine.protocol.file_names import parse_data_path
from txn_engine.protocol.offset_commits import FETCHED_NOTHING, OffsetCommit
from txn_engine.protocol.partition import LogFile
from txn_engine.protocol.transaction_rows import MAX_RUN_IDS, TransactionRow

MAX_OFFSET = 2**63 - 2
"""Of a row: the slot behind it must have a name, too."""
_CHECKSUM = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def batch_problem(batch: BatchDescriptor, row_type: type[TransactionRow | OffsetCommit] | None) -> str | None:
    """`row_type`: of the rows of an internal topic's log."""
    base, last = batch.base_offset, batch.last_offset
    if not 0 <= base <= last <= MAX_OFFSET or last - base + 1 != batch.record_count:
        return f"{batch.record_count} records at offsets {base} to {last}"
    if batch.append_time < 0:
        return f"append time {batch.append_time}"
    with_producer = batch.producer_id >= 0
    if min(batch.producer_id, batch.producer_epoch) < -1 or with_producer != (batch.producer_epoch >= 0):
        return f"producer {batch.producer_id} at epoch {batch.producer_epoch}"
    if batch.base_sequence < -1 or (batch.base_sequence >= 0 and not with_producer):
        return f"sequence {batch.base_sequence} of producer {batch.producer_id}"
    if batch.coordinator_epoch < -1:
        return f"coordinator epoch {batch.coordinator_epoch}"
    if batch.control.value != "none":
        return _control_problem(batch)
    if batch.control_value:
        return "a control value in a row of records"
    if batch.is_transactional and not with_producer:
        return "a transactional batch without a producer"
    if row_type is not None:
        return _inline_problem(batch, row_type)
    if batch.file is None:
        return "a batch of records without a data file"
    return _named_problem(batch, batch.file)


def _control_problem(batch: BatchDescriptor) -> str | None:
    if batch.record_count != 1 or batch.file is not None or batch.row is not None:
        return f"a {batch.control.value} row of {batch.record_count} records"
    if batch.control.is_marker:
        if batch.producer_id < 0 or batch.control_value:
            return f"a marker for producer {batch.producer_id}"
        return None
    try:
        value = decode_control(batch)
    except CorruptObjectError as error:
        return error.seen
    return _value_problem(value, batch.base_offset)


def _value_problem(value: ControlValue, end: int) -> str | None:
    """Nothing that a control row says lies behind it."""
    if isinstance(value, Rewrite):
        problems = (log_file_problem(output, end) for output in value.outputs)
        return next((problem for problem in problems if problem), None) or _paths_problem(value.inputs)
    if isinstance(value, Erase):
        left = (each.output for each in value.files if each.output is not None)
        problems = (log_file_problem(output, end) for output in left)
        found = next((problem for problem in problems if problem), None)
        return found or _paths_problem([each.input for each in value.files])
    held = {} if isinstance(value, Expire) else asdict(value)
    offsets = tuple(offset for name, offset in held.items() if name != "delete_retention_ms")
    if any(not 0 <= offset <= end for offset in offsets):
        return f"offsets {offsets} in a row at {end}"
    return None


def _paths_problem(paths: Sequence[str]) -> str | None:
    try:
        for path in paths:
            parse_data_path(path)
    except InvalidRequestError as error:
        return error.seen
    return None


def _inline_problem(batch: BatchDescriptor, row_type: type[TransactionRow | OffsetCommit]) -> str | None:
    if batch.record_count != 1 or batch.file is not None or type(batch.row) is not row_type:
        return f"{batch.record_count} records in a row of an internal topic, without its own column or with a file"
    if isinstance(batch.row, TransactionRow):
        return transaction_problem(batch.row)
    return offset_commit_problem(batch.row)


def _named_problem(batch: BatchDescriptor, file: FileRef) -> str | None:
    """A batch's file lies in the partition's own folder, and is named after the batch's writer."""
    problem = _file_problem(file, batch.producer_id, batch.producer_epoch)
    if problem is None and int(file.data_path[5:25]) > batch.base_offset:
        problem = f"data file {file.data_path} in a batch at offset {batch.base_offset}"
    return problem


def _file_problem(file: FileRef, producer_id: int, producer_epoch: int) -> str | None:
    """Of a data file as a row names it."""
    try:
        name = parse_data_path(file.data_path)
    except InvalidRequestError as error:
        return error.seen
    if (name.producer_id, name.producer_epoch) != (producer_id, producer_epoch):
        return f"data file {file.data_path} of producer {producer_id} at epoch {producer_epoch}"
    if file.data_bytes <= 0 or _CHECKSUM.fullmatch(file.checksum) is None:
        return f"a data file of {file.data_bytes} bytes with checksum {file.checksum[:40]!r}"
    return None


def log_file_problem(log_file: LogFile, end: int) -> str | None:
    """Of a file that a rewrite or a snapshot lists; it lies below the offset `end`."""
    base, last, count = log_file.base_offset, log_file.last_offset, log_file.record_count
    if not 0 <= base <= last < end or not 1 <= count <= last - base + 1:
        return f"a file of {count} records at offsets {base} to {last}"
    return _file_problem(log_file.file, log_file.producer_id, log_file.producer_epoch)


def transaction_problem(row: TransactionRow) -> str | None:
    """Of a row of `__transaction_state`."""
    numbers = (
        row.producer_id,
        row.producer_epoch,
        row.last_producer_epoch,
        row.previous_producer_id,
        row.next_producer_id,
        row.transaction_timeout_ms,
        row.decision_offset,
    )
    if min(numbers) < -1:
        return f"the number {min(numbers)} in a row of transactional id {row.transactional_id[:80]!r}"
    if len(row.committed_run_ids) > MAX_RUN_IDS or None in row.committed_run_ids:
        return (
            f"{len(row.committed_run_ids)} run ids in a row of transactional id {row.transactional_id[:80]!r}"
        )
    for part in row.partitions:
        problem = _partition_problem(part.topic, part.incarnation, part.partition)
        if problem is not None:
            return problem
    return None


def offset_commit_problem(commit: OffsetCommit) -> str | None:
    """Of a row of `__consumer_offsets`."""
    key = commit.key
    if (
        min(commit.offset, commit.leader_epoch, commit.fetched_end) < -1
        or commit.fetched_row < FETCHED_NOTHING
        or commit.offset > MAX_OFFSET + 1
    ):
        return f"offset {commit.offset}, fetched row {commit.fetched_row} of group {key.group_id[:80]!r}"
    return _partition_problem(key.topic, key.incarnation, key.partition)


def _partition_problem(topic: str, incarnation: int, partition: int) -> str | None:
    """They become a folder's name, and where a marker is written: never into a log of transactions' own rows."""
    is_name = _NAME.fullmatch(topic) is not None and topic not in (".", "..", TRANSACTION_STATE_TOPIC)
    is_life = incarnation == 0 if topic == CONSUMER_OFFSETS_TOPIC else incarnation >= 0
    if not (is_name and is_life and 0 <= partition < MAX_PARTITIONS):
        return f"partition {partition} of topic {topic[:80]!r}, incarnation {incarnation}"
    return None
