"""A partition's state, and what may be appended to it (`ProducerStateManager`, `UnifiedLog`).

`apply` is replay: deterministic, and it never refuses. `plan_entry` is the leader's check: it judges each
proposal on the state that the ones before it would leave, leaves the illegal ones out, and returns the entry
that may be written at the log's end. The same state after the same log, whoever computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from immutables import Map

from txn_engine.errors import InvalidRecordError, InvalidRequestError, TxnEngineError, UnsupportedFormatError
from txn_engine.protocol.batches import NO_PRODUCER_ID, BatchDescriptor, Control, FileRef
from txn_engine.protocol.file_names import parse_data_path
from txn_engine.protocol.offset_commits import GroupOffsets, OffsetCommit
from txn_engine.protocol.producers import (
    MAX_EPOCH,
    BatchMetadata,
    ProducerEntry,
    check_data,
    check_marker,
    check_operator_abort,
)
from txn_engine.protocol.sequences import MAX_SEQUENCE, last_sequence
from txn_engine.protocol.transaction_rows import StoredRow, TransactionRow


@dataclass(frozen=True, slots=True)
class LogFile:
    """A data file in the log: one batch's records."""

    producer_id: int
    producer_epoch: int
    base_offset: int
    last_offset: int
    record_count: int
    first_timestamp: int
    max_timestamp: int
    file: FileRef


@dataclass(frozen=True, slots=True)
class DeadFile:
    """A file whose transaction was aborted, or whose records a rewrite took over, and when."""

    log_file: LogFile
    status: str
    died_ms: int


@dataclass(frozen=True, slots=True)
class AbortedRange:
    """An entry of the aborted-transaction index; `last_offset` is the marker's (`AbortedTxn`)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """All that replaying a log up to `log_end_offset` tells. `named`: the batch that each data file belongs to."""

    log_end_offset: int = 0
    last_append_time: int = 0
    log_start_offset: int = 0
    entries_start: int = 0
    floor: int = 0
    producers: Map[int, ProducerEntry] = Map()
    open_transactions: Map[int, int] = Map()
    live: Map[int, LogFile] = Map()
    undecided: Map[int, LogFile] = Map()
    dead: Map[int, DeadFile] = Map()
    aborted: Map[int, AbortedRange] = Map()
    named: Map[str, int] = Map()
    transactions: Map[str, StoredRow] = Map()
    group_offsets: GroupOffsets = GroupOffsets()

    @property
    def high_watermark(self) -> int:
        """The log end: the store replicates."""
        return self.log_end_offset

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest open transaction, not below the log's start; None with none open."""
        if not self.open_transactions:
            return None
        return max(min(self.open_transactions.values()), self.log_start_offset)

    @property
    def last_stable_offset(self) -> int:
        """Where a read_committed reader has to stop."""
        first = self.first_unstable_offset
        return self.log_end_offset if first is None else first


# --- replay -----------------------------------------------------------------------------------------------


def apply(state: PartitionState, batch: BatchDescriptor) -> PartitionState:
    """The state after one descriptor of the log."""
    if batch.control.is_marker:
        after = _apply_marker(state, batch)
    elif batch.control is Control.NONE:
        after = _apply_batch(state, batch)
    else:
        raise UnsupportedFormatError(
            f"control kind {batch.control.value!r} at offset {batch.base_offset}",
            expected="one that this version of the engine knows",
        )
    return replace(after, log_end_offset=batch.last_offset + 1, last_append_time=batch.append_time)


def _apply_batch(state: PartitionState, batch: BatchDescriptor) -> PartitionState:
    if isinstance(batch.row, TransactionRow):
        stored = StoredRow(batch.base_offset, batch.row)
        return replace(state, transactions=state.transactions.set(batch.row.transactional_id, stored))
    if isinstance(batch.row, OffsetCommit):
        offsets = state.group_offsets.with_commit(
            batch.row, batch.base_offset, batch.producer_id, is_transactional=batch.is_transactional
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
        is_transactional=batch.is_transactional,
    )
    opened = state.open_transactions
    if entry.is_open:
        opened = opened.set(batch.producer_id, entry.open_first_offset)
    return replace(state, producers=state.producers.set(batch.producer_id, entry), open_transactions=opened)


def _apply_marker(state: PartitionState, marker: BatchDescriptor) -> PartitionState:
    producer_id, committed = marker.producer_id, marker.control is Control.COMMIT
    before = state.producers.get(producer_id) or ProducerEntry(producer_id, marker.producer_epoch)
    entry = before.with_marker(marker.producer_epoch, marker.coordinator_epoch, marker.max_timestamp)
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
    dead = {base: DeadFile(file, "aborted", marker.append_time) for base, file in decided.items()}
    return replace(state, undecided=undecided, dead=state.dead.update(dead))


# --- what may be appended ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DataProposal:
    """A batch of records in a data file."""

    record_count: int
    first_timestamp: int
    max_timestamp: int
    file: FileRef
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False


@dataclass(frozen=True, slots=True)
class MarkerProposal:
    """The end of a producer's transaction here. `operator_start_offset`: an operator's abort of the one open
    from there.
    """

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    operator_start_offset: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetCommitProposal:
    """A group's offset, plainly (producer id -1) or in a transaction."""

    commit: OffsetCommit
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1


@dataclass(frozen=True, slots=True)
class TransactionProposal:
    """A coordinator's row. `decide` gets the id's latest row and returns the next one, None for nothing to
    write, or raises.
    """

    transactional_id: str
    decide: Callable[[StoredRow | None], TransactionRow | None]


Proposal = DataProposal | MarkerProposal | OffsetCommitProposal | TransactionProposal


@dataclass(frozen=True, slots=True)
class Appended:
    """Written at these offsets."""

    base_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Nothing to write: it stands at these offsets already (-1 where the log does not say which)."""

    base_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Illegal in this state."""

    error: TxnEngineError


Verdict = Appended | Duplicate | Refused


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
    batch that would open a transaction here (the stalled first write; protocol, section 4).
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
    return _judge_transaction(state, proposal, append_time)


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
    if (name.producer_id, name.producer_epoch) != (proposal.producer_id, proposal.producer_epoch):
        raise InvalidRequestError(
            f"data file {proposal.file.data_path}",
            actor=f"producer {proposal.producer_id} epoch {proposal.producer_epoch}",
            expected="a file uploaded by this producer at this epoch",
        )
    if proposal.file.data_path in state.named:
        raise InvalidRequestError(
            f"data file {proposal.file.data_path} a second time",
            expected=f"one batch a file; this one's is at offset {state.named[proposal.file.data_path]}",
        )
    if name.log_end > state.log_end_offset:
        raise InvalidRequestError(
            f"data file {proposal.file.data_path}",
            expected=f"a log end of at most {state.log_end_offset} in its name",
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
