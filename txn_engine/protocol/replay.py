"""Replay: a log's rows into a partition's state. Deterministic; it never refuses: what is in the log is so."""

from __future__ import annotations

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
        after = _apply_batch(state, batch)
    elif batch.control.is_marker:
        after = _apply_marker(state, batch)
    else:
        after = apply_control(state, batch)
    return replace(after, log_end_offset=batch.last_offset + 1, last_append_time=batch.append_time)


def _apply_batch(state: PartitionState, batch: BatchDescriptor) -> PartitionState:
    if isinstance(batch.row, TransactionRow):
        name = batch.row.transactional_id
        stored = stored_row(state.transactions.get(name), batch.row, batch.base_offset, batch.append_time)
        return replace(state, transactions=state.transactions.set(name, stored))
    if isinstance(batch.row, OffsetCommit):
        offsets = state.group_offsets.with_commit(
            StoredCommit(batch.base_offset, batch.row, batch.append_time),
            batch.producer_id,
            is_transactional=batch.is_transactional,
        )
        state = replace(state, group_offsets=offsets)
    if batch.file is not None:
        log_file = _log_file(batch, batch.file)
        state = replace(state, named=state.named.set(batch.file.data_path, batch.base_offset))
        if batch.is_transactional:
            state = replace(state, undecided=state.undecided.set(batch.base_offset, log_file))
        else:
            state = replace(state, live=state.live.set(batch.base_offset, log_file))
    return state if batch.producer_id == NO_PRODUCER_ID else _with_producer_batch(state, batch)


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


def _with_producer_batch(state: PartitionState, batch: BatchDescriptor) -> PartitionState:
    entry = state.producers.get(batch.producer_id) or ProducerEntry(batch.producer_id, batch.producer_epoch)
    entry = entry.with_batch(
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
    opened = state.open_transactions
    if entry.is_open:
        opened = opened.set(batch.producer_id, entry.open_first_offset)
    return replace(state, producers=state.producers.set(batch.producer_id, entry), open_transactions=opened)


def _apply_marker(state: PartitionState, marker: BatchDescriptor) -> PartitionState:
    producer_id, committed = marker.producer_id, marker.control is Control.COMMIT
    before = state.producers.get(producer_id) or ProducerEntry(producer_id, marker.producer_epoch)
    entry = before.with_marker(
        marker.producer_epoch, marker.coordinator_epoch, marker.max_timestamp, marker.append_time
    )
    after = replace(
        state,
        producers=state.producers.set(producer_id, entry),
        group_offsets=state.group_offsets.with_marker(producer_id, committed=committed),
    )
    if not before.is_open:
        return after
    opened = state.open_transactions.delete(producer_id)
    after = replace(_decide_files(after, marker, committed), open_transactions=opened)
    if committed:
        return after
    stable = min(opened.values(), default=marker.base_offset + 1)
    aborted = AbortedRange(producer_id, before.open_first_offset, marker.base_offset, stable)
    return replace(after, aborted=after.aborted.set(marker.base_offset, aborted))


def _decide_files(state: PartitionState, marker: BatchDescriptor, committed: bool) -> PartitionState:
    decided = {base: file for base, file in state.undecided.items() if file.producer_id == marker.producer_id}
    undecided = state.undecided
    for base in decided:
        undecided = undecided.delete(base)
    if committed:
        return replace(state, undecided=undecided, live=state.live.update(decided))
    dead = {file.file.data_path: DeadFile(file, "aborted", marker.append_time) for file in decided.values()}
    return replace(state, undecided=undecided, dead=state.dead.update(dead))
