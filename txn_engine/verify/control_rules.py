"""Rewrite, clean, trim, expire, floor and erase rows: what they may do (PROTOCOL.md, sections 1 and 6)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from txn_engine.verify.audited_partition import (
    AuditedPartition,
    control_value,
    exchanged,
    output_file,
)
from txn_engine.verify.descriptors import Batch, parse_data_path
from txn_engine.verify.file_table import DataFile
from txn_engine.verify.judged_entry import JudgedEntry
from txn_engine.verify.layout import Layout


class ControlRule:
    """A control row only moves what was settled: nothing undecided, nothing backwards.

    `layout` tells which topics are compacted by key.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def judge(self, state: AuditedPartition, batch: Batch, entry: JudgedEntry) -> None:
        """Note what the row must not have done in this state."""
        if not entry.sound or batch.control == "none" or batch.is_marker:
            return
        value = control_value(batch)
        if value is None:
            return
        if batch.control in ("rewrite", "clean"):
            self._judge_by_key(state, value, batch, entry)
        if batch.control == "rewrite":
            _judge_rewrite(state, value, batch, entry)
        elif batch.control == "clean":
            _judge_clean(state, value, batch, entry)
        elif batch.control == "erase":
            _judge_erase(state, exchanged(value), batch, entry)
            _judge_alive(state, value, batch, entry)
        elif batch.control == "trim":
            _judge_trim(state, value, batch, entry)
        elif batch.control == "expire":
            for producer_id in value["producer_ids"]:
                if producer_id in state.open:
                    seen = f"producer {producer_id} forgotten with a transaction open since {state.open[producer_id]}"
                    entry.note("expire-illegal", batch, seen, "its marker first")
        else:
            _judge_floor(state, value["floor"], batch, entry)

    def _judge_by_key(
        self, state: AuditedPartition, value: Mapping[str, Any], batch: Batch, entry: JudgedEntry
    ) -> None:
        """Records are left out of compacted topics only, and tombstones only when they have had their time."""
        topic = self._layout.topics.get(entry.place.topic)
        is_told = topic is None or topic.schema is not None
        if (batch.control == "rewrite" and value["tombstones_to"] < 0) or not is_told:
            return
        code = f"{batch.control}-illegal"
        if topic is None or topic.keys is None:
            entry.note(code, batch, f"a {batch.control} by key", "none: the topic is not compacted")
            return
        retention_ms = value.get("delete_retention_ms", topic.keys.delete_retention_ms)
        had = {topic.keys.delete_retention_ms, *topic.keys.later}
        if type(retention_ms) is not int or retention_ms not in had:
            entry.note(code, batch, f"delete_retention_ms {retention_ms!r:.40}", "one that the topic has had")
            return
        limit = state.tombstones_to
        if batch.append_time - state.horizon_ms >= retention_ms:
            limit = max(limit, state.horizon_to)
        if value["tombstones_to"] > limit:
            expected = f"at most {limit}: the others have not stood alone for {retention_ms} ms"
            entry.note(code, batch, f"tombstones left out below offset {value['tombstones_to']}", expected)


def _judge_rewrite(
    state: AuditedPartition, value: Mapping[str, Any], batch: Batch, entry: JudgedEntry
) -> None:
    inputs: list[DataFile] = []
    for path in value["inputs"]:
        file = state.files.get(path)
        if file is None or file.status != "live":
            seen = f"input {path}, {'never named' if file is None else file.status}"
            entry.note("rewrite-illegal", batch, seen, "live files only")
        elif file.last_offset >= state.last_stable_offset:
            expected = f"files below the last stable offset {state.last_stable_offset}"
            entry.note("rewrite-illegal", batch, f"input {path} up to offset {file.last_offset}", expected)
        else:
            inputs.append(file)
    outputs = [file for output in value["outputs"] if (file := output_file(output)) is not None]
    for file in outputs:
        _judge_output(state, file, batch, entry)
    if len(inputs) == len(value["inputs"]) and value["tombstones_to"] < 0:
        _judge_exchange(state, inputs, outputs, batch, entry)
    elif len(inputs) == len(value["inputs"]):
        _judge_kept(state, inputs, outputs, batch, entry)


def _judge_output(state: AuditedPartition, file: DataFile, batch: Batch, entry: JudgedEntry) -> None:
    name = parse_data_path(file.data_path)
    if name is None or not (
        name.producer_id == file.producer_id == name.producer_epoch == file.producer_epoch == -1
    ):
        seen = f"output {file.data_path} of producer {file.producer_id} epoch {file.producer_epoch}"
        entry.note(
            "data-file-misnamed", batch, seen, "data/<log end>-p-1-e-1-<write id>.parquet, of no producer"
        )
        return
    if file.data_path in state.files:
        entry.note("data-file-named-twice", batch, f"output {file.data_path}, named before", "a new file")
    if name.log_end > batch.base_offset:
        seen = f"output {file.data_path}, uploaded when the log ended at {name.log_end}"
        entry.note("data-file-misnamed", batch, seen, f"a log end of at most {batch.base_offset}")
    if name.log_end < state.floor:
        seen = f"output {file.data_path}, uploaded when the log ended at {name.log_end}"
        expected = f"a log end of at least the floor {state.floor}: the clean-up may delete this file"
        entry.note("data-file-below-floor", batch, seen, expected)


def _judge_exchange(
    state: AuditedPartition,
    inputs: Sequence[DataFile],
    outputs: Sequence[DataFile],
    batch: Batch,
    entry: JudgedEntry,
) -> None:
    """Each output takes the place of inputs that follow one another: their offsets, records and times, all of them."""
    left = sorted({file.data_path: file for file in inputs}.values(), key=lambda file: file.base_offset)
    if not inputs or not outputs or len(left) != len(inputs):
        seen = f"{len(inputs)} inputs, {len(left)} different ones, and {len(outputs)} outputs"
        entry.note("rewrite-illegal", batch, seen, "at least one of each, each once")
        return
    taken = {file.data_path for file in inputs}
    for output in sorted(outputs, key=lambda file: file.base_offset):
        held = [file for file in left if file.last_offset <= output.last_offset]
        left = left[len(held) :]
        if not held or _extent(held) != _extent([output]):
            expected = _names(held) if held else "what some of the inputs hold"
            entry.note("rewrite-illegal", batch, f"an output of {_names([output])}", expected)
        _judge_between(state, output, taken, batch, entry)
    if left:
        entry.note("rewrite-illegal", batch, f"no output for {_names(left)}", "an output for every input")


def _judge_kept(
    state: AuditedPartition,
    inputs: Sequence[DataFile],
    outputs: Sequence[DataFile],
    batch: Batch,
    entry: JudgedEntry,
) -> None:
    """By key: at most one output, of no more than the inputs hold, at no other offsets and times."""
    held = sorted({file.data_path: file for file in inputs}.values(), key=lambda file: file.base_offset)
    if len(held) != len(inputs) or not inputs or len(outputs) > 1:
        seen = f"{len(inputs)} inputs, {len(held)} different ones, and {len(outputs)} outputs by key"
        entry.note("rewrite-illegal", batch, seen, "inputs each once, and one output at the most")
        return
    for output in outputs:
        base, last, records, oldest, newest = _extent(held)
        most = min(records, output.last_offset - output.base_offset + 1)
        within = base <= output.base_offset <= output.last_offset <= last
        in_time = oldest <= output.first_timestamp <= output.max_timestamp <= newest
        if not (within and in_time and 1 <= output.record_count <= most):
            entry.note(
                "rewrite-illegal", batch, f"an output of {_names([output])}", f"some of {_names(held)}"
            )
        _judge_between(state, output, {file.data_path for file in inputs}, batch, entry)


def _judge_between(
    state: AuditedPartition, output: DataFile, taken: set[str], batch: Batch, entry: JudgedEntry
) -> None:
    """A file's records are read together: no other live file may begin among them."""
    between = state.files.between(output.base_offset, output.last_offset)
    other = next((file for file in between if file.data_path not in taken), None)
    if other is not None:
        seen = f"{other.data_path} at offset {other.base_offset}, which is live and no input"
        expected = f"every live file from {output.base_offset} to {output.last_offset} among the inputs"
        entry.note("rewrite-illegal", batch, seen, expected)


def _judge_clean(state: AuditedPartition, value: Mapping[str, Any], batch: Batch, entry: JudgedEntry) -> None:
    cleaned_to, tombstones_to = value["cleaned_to"], value["tombstones_to"]
    if cleaned_to < state.cleaned_to or tombstones_to < state.tombstones_to:
        expected = f"at least {state.cleaned_to} and {state.tombstones_to}: neither moves back"
        entry.note("clean-illegal", batch, f"clean to {cleaned_to}, tombstones to {tombstones_to}", expected)
    if cleaned_to > state.last_stable_offset:
        expected = f"at most the last stable offset {state.last_stable_offset}"
        entry.note("clean-illegal", batch, f"clean to offset {cleaned_to}", expected)


def _judge_erase(
    state: AuditedPartition, files: Mapping[str, DataFile | None], batch: Batch, entry: JudgedEntry
) -> None:
    """Each file is decided, and not erased before; what stands for it holds some of its records. Which are missing the
    row does not say: what is left is held against what was there, as far as offsets tell.
    """
    for path, left in files.items():
        file, name = state.files.get(path), parse_data_path(path)
        seen = None
        if path in state.erased or (file is not None and file.status == "erased"):
            seen = "erased before"
        elif file is None:
            is_forgotten = name is not None and name.log_end < state.floor
            seen = None if is_forgotten else "never named"
        elif file.status == "undecided" or (
            file.status == "live" and file.last_offset >= state.last_stable_offset
        ):
            seen = f"{file.status}, up to offset {file.last_offset}"
        if seen is not None:
            expected = f"decided files below the last stable offset {state.last_stable_offset}, each once"
            entry.note("erase-illegal", batch, f"{path}, {seen}", expected)
        if left is None:
            continue
        _judge_output(state, left, batch, entry)
        if file is not None:
            _judge_left(file, left, batch, entry)


def _judge_alive(state: AuditedPartition, value: Mapping[str, Any], batch: Batch, entry: JudgedEntry) -> None:
    """What the row says of each file: whether it was live."""
    for each in value["files"]:
        file = state.files.get(each["input"])
        is_live = file is not None and file.status == "live"
        if each["live"] is not is_live:
            seen = f"{each['input']}, which is {'live' if is_live else 'not live'}, as the other"
            entry.note("erase-illegal", batch, seen, "what it was")


def _judge_left(file: DataFile, left: DataFile, batch: Batch, entry: JudgedEntry) -> None:
    base, last, records, oldest, newest = _extent([file])
    most = min(records, left.last_offset - left.base_offset + 1)
    within = base <= left.base_offset <= left.last_offset <= last
    in_time = oldest <= left.first_timestamp <= left.max_timestamp <= newest
    if file.status == "aborted" or not (within and in_time and 1 <= left.record_count <= most):
        seen = f"{_names([left])} in the place of a file that was {file.status}"
        expected = "nothing" if file.status == "aborted" else f"some of {_names([file])}"
        entry.note("erase-illegal", batch, seen, expected)


def _extent(files: Sequence[DataFile]) -> tuple[int, ...]:
    return (
        files[0].base_offset,
        files[-1].last_offset,
        sum(file.record_count for file in files),
        min(file.first_timestamp for file in files),
        max(file.max_timestamp for file in files),
    )


def _names(files: Sequence[DataFile]) -> str:
    first, last, records, oldest, newest = _extent(files)
    return f"{records} records at offsets {first} to {last}, of times {oldest} to {newest}"


def _judge_trim(state: AuditedPartition, value: Mapping[str, Any], batch: Batch, entry: JudgedEntry) -> None:
    start, entries_start = value["log_start_offset"], value["entries_start"]
    if start < state.log_start_offset or entries_start < state.entries_start:
        expected = f"at least {state.log_start_offset} and {state.entries_start}: neither moves back"
        entry.note("trim-illegal", batch, f"log start {start}, entries start {entries_start}", expected)
    at = bisect_left(entry.slots, entries_start)
    if entries_start > 0 and (at == len(entry.slots) or entry.slots[at] != entries_start):
        entry.note("trim-illegal", batch, f"entries start {entries_start}", "the base offset of an entry")
    elif entries_start > 0 and entries_start >= batch.base_offset:
        expected = f"the base of an entry inside a snapshot, before this row at {batch.base_offset}"
        entry.note("trim-illegal", batch, f"entries start {entries_start}", expected)
    if start > state.last_stable_offset:
        expected = f"at most the last stable offset {state.last_stable_offset}"
        entry.note("trim-illegal", batch, f"log start {start}", expected)
    for cut in state.files.across(start):
        expected = f"a file's boundary: {cut.data_path} covers {cut.base_offset} to {cut.last_offset}"
        entry.note("trim-illegal", batch, f"log start {start}", expected)


def _judge_floor(state: AuditedPartition, floor: int, batch: Batch, entry: JudgedEntry) -> None:
    if floor < state.floor:
        entry.note("floor-illegal", batch, f"floor {floor}", f"at least {state.floor}: it never falls")
    if floor > batch.base_offset:
        entry.note("floor-illegal", batch, f"floor {floor}", f"at most its own offset {batch.base_offset}")
