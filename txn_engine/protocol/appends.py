"""The append, judged: what a partition leader and the coordinators check, on the state that the log's end leaves.

`plan_entry` judges each proposal on the state that the ones before it would leave, leaves the illegal ones out, and
returns the entry that may be written there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from txn_engine.errors import InvalidRecordError, InvalidRequestError, TxnEngineError
from txn_engine.protocol.batches import NO_PRODUCER_ID, BatchDescriptor, Control
from txn_engine.protocol.control_rules import judge_control
from txn_engine.protocol.file_names import DataFileName, check_not_below_floor, parse_data_path
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.producers import MAX_EPOCH, check_data, check_marker, check_operator_abort
from txn_engine.protocol.proposals import (
    Appended,
    DataProposal,
    Duplicate,
    MarkerProposal,
    OffsetCommitProposal,
    Proposal,
    Refused,
    TransactionProposal,
    Verdict,
)
from txn_engine.protocol.replay import apply
from txn_engine.protocol.sequences import MAX_SEQUENCE
from txn_engine.reasons import Reason


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """An entry that may be written at `base_offset`, a verdict for each proposal, and the state that it leaves."""

    base_offset: int
    batches: tuple[BatchDescriptor, ...]
    verdicts: tuple[Verdict, ...]
    state: PartitionState


FirstWriteCheck = Callable[[PartitionState, Proposal], None]


def allow_first_write(state: PartitionState, proposal: Proposal) -> None:
    """The partition alone takes any transaction's first write; a producer's call asks the coordinator instead."""


def plan_entry(
    state: PartitionState,
    proposals: Sequence[Proposal],
    now_ms: int,
    check_first_write: FirstWriteCheck = allow_first_write,
) -> EntryPlan:
    """The entry that may be written at the end of `state`, out of these proposals in this order.

    Each is judged alone: an illegal one is left out and does not block the rest. `check_first_write` is asked about a
    batch that would open a transaction here (the stalled first write; PROTOCOL.md, section 4).
    """
    append_time = max(now_ms, state.last_append_time)
    batches: list[BatchDescriptor] = []
    verdicts: list[Verdict] = []
    after = state
    for proposal in proposals:
        try:
            judged = _judge(after, proposal, append_time, check_first_write)
        except TxnEngineError as error:
            verdicts.append(Refused(error))
            continue
        if isinstance(judged, BatchDescriptor):
            batches.append(judged)
            verdicts.append(Appended(judged.base_offset, judged.last_offset))
            after = apply(after, judged)
        else:
            verdicts.append(judged)
    return EntryPlan(state.log_end_offset, tuple(batches), tuple(verdicts), after)


def _judge(
    state: PartitionState, proposal: Proposal, append_time: int, check_first_write: FirstWriteCheck
) -> BatchDescriptor | Duplicate:
    if isinstance(proposal, DataProposal):
        return _judge_data(state, proposal, append_time, check_first_write)
    if isinstance(proposal, MarkerProposal):
        return _judge_marker(state, proposal, append_time)
    if isinstance(proposal, OffsetCommitProposal):
        return _judge_offset_commit(state, proposal, append_time, check_first_write)
    if isinstance(proposal, TransactionProposal):
        return _judge_transaction(state, proposal, append_time)
    return judge_control(state, proposal, append_time)


def _judge_data(
    state: PartitionState, proposal: DataProposal, append_time: int, check_first_write: FirstWriteCheck
) -> BatchDescriptor | Duplicate:
    check_batch_shape(proposal)
    entry = state.producers.get(proposal.producer_id)
    if entry is not None:
        again = entry.find_duplicate(proposal.producer_epoch, proposal.base_sequence, proposal.record_count)
        if again is not None:
            return Duplicate(again.base_offset, again.last_offset)
    _check_file_name(state, proposal)
    if proposal.producer_id != NO_PRODUCER_ID:
        check_data(
            entry,
            producer_id=proposal.producer_id,
            producer_epoch=proposal.producer_epoch,
            base_sequence=proposal.base_sequence,
            is_transactional=proposal.is_transactional,
            is_coordinator=False,
        )
        if proposal.is_transactional and (entry is None or not entry.is_open):
            check_first_write(state, proposal)
    base = state.log_end_offset
    return BatchDescriptor(
        base_offset=base,
        last_offset=base + proposal.record_count - 1,
        append_time=append_time,
        producer_id=proposal.producer_id,
        producer_epoch=proposal.producer_epoch,
        base_sequence=proposal.base_sequence,
        is_transactional=proposal.is_transactional,
        first_timestamp=proposal.first_timestamp,
        max_timestamp=proposal.max_timestamp,
        record_count=proposal.record_count,
        file=proposal.file,
    )


def check_batch_shape(proposal: DataProposal) -> None:
    """Raise where a batch is impossible in any state."""
    if proposal.record_count < 1:
        raise InvalidRecordError("a batch without records", expected="at least one record")
    with_producer = proposal.producer_id >= 0
    if with_producer != (proposal.producer_epoch >= 0) or with_producer != (proposal.base_sequence >= 0):
        raise InvalidRequestError(
            f"producer id {proposal.producer_id}, epoch {proposal.producer_epoch}, sequence {proposal.base_sequence}",
            expected="all three, or none of them (-1)",
        )
    if proposal.producer_epoch > MAX_EPOCH or proposal.base_sequence > MAX_SEQUENCE:
        raise InvalidRequestError(
            f"epoch {proposal.producer_epoch}, sequence {proposal.base_sequence}",
            expected=f"at most {MAX_EPOCH} and {MAX_SEQUENCE}",
        )
    if proposal.is_transactional and not with_producer:
        raise InvalidRequestError("a transactional batch without a producer id", expected="a producer id")


def _check_file_name(state: PartitionState, proposal: DataProposal) -> None:
    """One file, one fate: a try under a new epoch cannot name the file of the aborted one."""
    name = parse_data_path(proposal.file.data_path)
    check_file_is_its_own(name, proposal)
    check_file_is_unnamed(state, proposal)
    if name.log_end > state.log_end_offset:
        raise InvalidRequestError(
            f"data file {proposal.file.data_path}",
            expected=f"a log end of at most {state.log_end_offset} in its name",
        )
    check_not_below_floor(name, state.floor)


def check_file_is_its_own(name: DataFileName, proposal: DataProposal) -> None:
    """Raise where another producer, or another epoch of this one, has uploaded the file."""
    if (name.producer_id, name.producer_epoch) != (proposal.producer_id, proposal.producer_epoch):
        raise InvalidRequestError(
            f"data file {proposal.file.data_path}",
            actor=f"producer {proposal.producer_id} epoch {proposal.producer_epoch}",
            expected="a file uploaded by this producer at this epoch",
        )


def check_file_is_unnamed(state: PartitionState, proposal: DataProposal) -> None:
    """Raise where the log names the file already."""
    if proposal.file.data_path in state.named:
        raise InvalidRequestError(
            f"data file {proposal.file.data_path} a second time",
            expected=f"one batch a file; this one's is at offset {state.named[proposal.file.data_path]}",
            reason=Reason.FILE_NAMED_BEFORE,
        )


def _judge_marker(
    state: PartitionState, marker: MarkerProposal, append_time: int
) -> BatchDescriptor | Duplicate:
    entry = state.producers.get(marker.producer_id)
    identity: dict[str, Any] = {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "coordinator_epoch": marker.coordinator_epoch,
    }
    if marker.operator_start_offset is not None:
        check_operator_abort(entry, **identity, start_offset=marker.operator_start_offset)
    elif not check_marker(entry, **identity):
        return Duplicate(-1, -1)
    return BatchDescriptor(
        base_offset=state.log_end_offset,
        last_offset=state.log_end_offset,
        append_time=append_time,
        is_transactional=True,
        control=Control.COMMIT if marker.committed else Control.ABORT,
        first_timestamp=append_time,
        max_timestamp=append_time,
        **identity,
    )


def _judge_offset_commit(
    state: PartitionState,
    proposal: OffsetCommitProposal,
    append_time: int,
    check_first_write: FirstWriteCheck,
) -> BatchDescriptor | Duplicate:
    transactional = proposal.producer_id != NO_PRODUCER_ID
    entry = state.producers.get(proposal.producer_id)
    if transactional:
        check_data(
            entry,
            producer_id=proposal.producer_id,
            producer_epoch=proposal.producer_epoch,
            base_sequence=-1,
            is_transactional=True,
            is_coordinator=True,
        )
    again = state.group_offsets.find_duplicate(proposal.commit, proposal.producer_id)
    if again is not None:
        return Duplicate(again.offset, again.offset)
    state.group_offsets.check(proposal.commit, proposal.producer_id)
    if transactional and (entry is None or not entry.is_open):
        check_first_write(state, proposal)
    return BatchDescriptor(
        base_offset=state.log_end_offset,
        last_offset=state.log_end_offset,
        append_time=append_time,
        producer_id=proposal.producer_id,
        producer_epoch=proposal.producer_epoch,
        is_transactional=transactional,
        first_timestamp=proposal.commit.commit_ms,
        max_timestamp=proposal.commit.commit_ms,
        row=proposal.commit,
    )


def _judge_transaction(
    state: PartitionState, proposal: TransactionProposal, append_time: int
) -> BatchDescriptor | Duplicate:
    current = state.transactions.get(proposal.transactional_id)
    row = proposal.decide(current)
    if row is None:
        stands_at = current.offset if current else -1
        return Duplicate(stands_at, stands_at)
    return BatchDescriptor(
        base_offset=state.log_end_offset,
        last_offset=state.log_end_offset,
        append_time=append_time,
        first_timestamp=row.update_ms,
        max_timestamp=row.update_ms,
        row=row,
    )
