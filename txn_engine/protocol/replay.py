"""Replay: a log's rows into a partition's state. Deterministic; it never refuses: what is in the log is so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from txn_engine.protocol.batches import NO_PRODUCER_ID, BatchDescriptor, Control, FileRef
from txn_engine.protocol.controls import apply_control
from txn_engine.protocol.offset_commits import OffsetCommit, StoredCommit
from txn_engine.protocol.partition import AbortedRange, DeadFile, LogFile, PartitionState
from txn_engine.protocol.producers import BatchMetadata, ProducerEntry
from txn_engine.protocol.sequences import last_sequence
from txn_engine.protocol.transaction_rows import TransactionRow, stored_row


def apply(state: PartitionState, batch: BatchDescriptor) -> PartitionState:
    """The state after one descriptor of the log. The same state after the same log, whoever computes it."""
    if batch.control is Control.NONE:
        return _apply_batch(state, batch)
    if batch.control.is_marker:
        return _apply_marker(state, batch)
    after = apply_control(state, batch)
    return replace(after, log_end_offset=batch.last_offset + 1, last_append_time=batch.append_time)


def _apply_batch(state: PartitionState, batch: BatchDescriptor) -> PartitionState:
    base, producer_id = batch.base_offset, batch.producer_id
    if isinstance(batch.row, TransactionRow):
        name = batch.row.transactional_id
        stored = stored_row(state.transactions.get(name), batch.row, base, batch.append_time)
        return replace(
            state,
            log_end_offset=batch.last_offset + 1,
            last_append_time=batch.append_time,
            transactions=state.transactions.set(name, stored),
        )
    offsets = state.group_offsets
    named, undecided, live = state.named, state.undecided, state.live
    producers, opened = state.producers, state.open_transactions
    if isinstance(batch.row, OffsetCommit):
        commit = StoredCommit(base, batch.row, batch.append_time)
        offsets = offsets.with_commit(commit, producer_id, is_transactional=batch.is_transactional)
    if batch.file is not None:
        named = named.set(batch.file.data_path, base)
        if batch.is_transactional:
            undecided = undecided.set(base, _log_file(batch, batch.file))
        else:
            live = live.set(base, _log_file(batch, batch.file))
    if producer_id != NO_PRODUCER_ID:
        entry = _with_batch(producers.get(producer_id), batch)
        producers = producers.set(producer_id, entry)
        if entry.is_open:
            opened = opened.set(producer_id, entry.open_first_offset)
    # One copy of the state for all of it.
    return replace(
        state,
        log_end_offset=batch.last_offset + 1,
        last_append_time=batch.append_time,
        producers=producers,
        open_transactions=opened,
        live=live,
        undecided=undecided,
        named=named,
        group_offsets=offsets,
    )


def _log_file(batch: BatchDescriptor, file: FileRef) -> LogFile:
    return LogFile(
        batch.producer_id,
        batch.producer_epoch,
        batch.base_offset,
        batch.last_offset,
        batch.record_count,
        batch.first_timestamp,
        batch.max_timestamp,
        file,
    )


def _with_batch(before: ProducerEntry | None, batch: BatchDescriptor) -> ProducerEntry:
    entry = before or ProducerEntry(batch.producer_id, batch.producer_epoch)
    return entry.with_batch(
        BatchMetadata(
            batch.base_sequence,
            last_sequence(batch.base_sequence, batch.record_count),
            batch.base_offset,
            batch.last_offset,
            batch.max_timestamp,
        ),
        batch.producer_epoch,
        append_time=batch.append_time,
        is_transactional=batch.is_transactional,
    )


def _apply_marker(state: PartitionState, marker: BatchDescriptor) -> PartitionState:
    producer_id, committed = marker.producer_id, marker.control is Control.COMMIT
    before = state.producers.get(producer_id) or ProducerEntry(producer_id, marker.producer_epoch)
    entry = before.with_marker(
        marker.producer_epoch, marker.coordinator_epoch, marker.max_timestamp, marker.append_time
    )
    opened, undecided, live = state.open_transactions, state.undecided, state.live
    dead, aborted = state.dead, state.aborted
    if before.is_open:
        opened = opened.delete(producer_id)
        decided = files_of(producer_id, undecided)
        for base in decided:
            undecided = undecided.delete(base)
        if committed:
            live = live.update(decided)
        else:
            dead = dead.update(_aborted(decided.values(), marker))
            stable = min(opened.values(), default=marker.base_offset + 1)
            range_ = AbortedRange(producer_id, before.open_first_offset, marker.base_offset, stable)
            aborted = aborted.set(marker.base_offset, range_)
    return replace(
        state,
        log_end_offset=marker.last_offset + 1,
        last_append_time=marker.append_time,
        producers=state.producers.set(producer_id, entry),
        open_transactions=opened,
        live=live,
        undecided=undecided,
        dead=dead,
        aborted=aborted,
        group_offsets=state.group_offsets.with_marker(producer_id, committed=committed),
    )


def files_of(producer_id: int, undecided: Mapping[int, LogFile]) -> dict[int, LogFile]:
    """The undecided files that a marker of this producer decides, by base offset."""
    return {base: file for base, file in undecided.items() if file.producer_id == producer_id}


def _aborted(files: Iterable[LogFile], marker: BatchDescriptor) -> dict[str, DeadFile]:
    return {file.file.data_path: DeadFile(file, "aborted", marker.append_time) for file in files}
