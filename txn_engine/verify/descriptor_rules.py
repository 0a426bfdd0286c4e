"""What must hold of a row by itself (docs/FORMAT.md, "Entries" and "Data files")."""

from __future__ import annotations

import re

from txn_engine.verify.audited_partition import AuditedPartition, control_value
from txn_engine.verify.descriptors import ROW_COLUMNS, Batch, parse_data_path
from txn_engine.verify.judged_entry import JudgedEntry

_CHECKSUM = re.compile(r"[0-9a-f]{32}")
_NAMED_TWICE_EXPECTED = "one file to belong to one batch"


class DescriptorRule:
    """Each row's numbers agree with one another, and its data file's name with the row."""

    def judge(self, state: AuditedPartition, batch: Batch, entry: JudgedEntry) -> None:
        """Note the first thing in the row that cannot be."""
        internal = entry.place.topic in ROW_COLUMNS
        if batch.control != "none":
            problem = _control_problem(batch)
        elif internal:
            problem = _inline_problem(batch, entry.place.topic)
        else:
            problem = _records_problem(batch)
        problem = problem or _producer_problem(batch)
        if problem is not None:
            seen, expected = problem
            entry.note("descriptor-malformed", batch, seen, expected)
        if batch.data_path and batch.control == "none":
            _judge_file(state, batch, entry)


def _control_problem(batch: Batch) -> tuple[str, str] | None:
    if batch.base_offset != batch.last_offset or batch.record_count != 1:
        return f"a {batch.control} row of {batch.record_count} records", "one record at one offset"
    if batch.data_path or batch.row is not None:
        return f"a {batch.control} row with records", "none"
    if not batch.is_marker:
        if control_value(batch) is None:
            return f"a {batch.control} row with the value {batch.control_value[:80]!r}", "the format's JSON"
        return None
    if batch.producer_id < 0 or batch.producer_epoch < 0:
        return f"a marker for producer {batch.producer_id} epoch {batch.producer_epoch}", "a producer"
    if batch.first_timestamp != batch.append_time or batch.max_timestamp != batch.append_time:
        return f"a marker of time {batch.first_timestamp}", f"its append time {batch.append_time}"
    if batch.base_sequence != -1 or batch.control_value:
        return (
            f"a marker with sequence {batch.base_sequence} and value {batch.control_value[:80]!r}",
            "none of them",
        )
    return None


def _inline_problem(batch: Batch, topic: str) -> tuple[str, str] | None:
    if batch.row is None:
        return f"no {ROW_COLUMNS[topic].name} in the row", "one in every row but control rows"
    if batch.base_offset != batch.last_offset or batch.record_count != 1:
        return f"{batch.record_count} records in the row", "one record at one offset"
    if batch.data_path:
        return f"data file {batch.data_path!r}", "none: rows of internal topics stand in the entry"
    if topic == "__transaction_state" and batch.producer_id != -1:
        return f"producer {batch.producer_id}", "-1 in the coordinator's log"
    return None


def _records_problem(batch: Batch) -> tuple[str, str] | None:
    span = batch.last_offset - batch.base_offset + 1
    if span != batch.record_count or span < 1:
        return f"{batch.record_count} records at {span} offsets", "an offset for each record"
    if batch.first_timestamp > batch.max_timestamp:
        return (
            f"first timestamp {batch.first_timestamp} after {batch.max_timestamp}",
            "first_timestamp the lower",
        )
    if not batch.data_path:
        return "no data file", "the file that holds the records"
    if batch.data_bytes <= 0 or _CHECKSUM.fullmatch(batch.checksum) is None:
        return (
            f"a data file of {batch.data_bytes} bytes, checksum {batch.checksum[:40]!r}",
            "its size and checksum",
        )
    return None


def _producer_problem(batch: Batch) -> tuple[str, str] | None:
    if batch.producer_id < -1 or batch.producer_epoch < -1 or batch.base_sequence < -1:
        return f"numbers {batch.producer_id}, {batch.producer_epoch}, {batch.base_sequence}", "-1 for none"
    with_producer = batch.producer_id >= 0
    if with_producer != (batch.producer_epoch >= 0) or (batch.base_sequence >= 0 and not with_producer):
        seen = f"producer {batch.producer_id}, epoch {batch.producer_epoch}, sequence {batch.base_sequence}"
        return seen, "a producer with an epoch, or none of them"
    if batch.control == "none" and batch.is_transactional and not with_producer:
        return "a transactional batch without a producer", "a producer id"
    if batch.control == "none" and batch.coordinator_epoch != -1:
        return (
            f"coordinator epoch {batch.coordinator_epoch} in a batch of records",
            "-1: only markers carry one",
        )
    return None


def _judge_file(state: AuditedPartition, batch: Batch, entry: JudgedEntry) -> None:
    """The name says whose file it is; an append under another epoch cannot take it over (PROTOCOL.md, section 1)."""
    name = parse_data_path(batch.data_path)
    if name is None:
        entry.note(
            "data-file-misnamed",
            batch,
            f"data file {batch.data_path!r}",
            "data/<log end>-p<producer id>-e<epoch>-<write id>.parquet",
        )
        return
    if (name.producer_id, name.producer_epoch) != (batch.producer_id, batch.producer_epoch):
        entry.note(
            "data-file-misnamed",
            batch,
            f"{batch.data_path}, a file of producer {name.producer_id} epoch {name.producer_epoch}",
            f"a file of producer {batch.producer_id} epoch {batch.producer_epoch}",
        )
    if name.log_end > batch.base_offset:
        entry.note(
            "data-file-misnamed",
            batch,
            f"{batch.data_path}, uploaded when the log ended at {name.log_end}",
            f"a log end of at most {batch.base_offset}",
        )
    if name.log_end < state.floor and entry.sound:
        entry.note(
            "data-file-below-floor",
            batch,
            f"{batch.data_path}, uploaded when the log ended at {name.log_end}",
            f"a log end of at least the floor {state.floor}: the clean-up may delete this file",
        )
    before = state.files.get(batch.data_path)
    if before is not None:
        entry.note(
            "data-file-named-twice",
            batch,
            f"{batch.data_path}, which offsets {before.base_offset} to {before.last_offset} name too",
            _NAMED_TWICE_EXPECTED,
        )
