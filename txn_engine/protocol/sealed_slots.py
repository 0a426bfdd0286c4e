"""A put that found a seal in its slot: what the state reloaded afterwards can still say of it (PROTOCOL.md, section 2).

The slot may have held this very entry, or another's: the seal does not tell. Only a row that the state identifies is
known to be there or not; anything else is unknown, and is never sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from txn_engine.errors import OutcomeUnknownError
from txn_engine.protocol.appends import EntryPlan
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.proposals import (
    Appended,
    DataProposal,
    OffsetCommitProposal,
    Proposal,
    Verdict,
)
from txn_engine.protocol.sequences import MAX_SEQUENCE, NO_SEQUENCE
from txn_engine.reasons import Reason


class _Fate(Enum):
    WRITTEN = "it stands in the log"
    ABSENT = "it does not"
    UNKNOWN = "the state cannot tell"
    ASKED_AGAIN = "whichever it is: judged again on this state, it is answered rightly"


def settle_sealed(
    state: PartitionState, plan: EntryPlan, proposals: Sequence[Proposal]
) -> tuple[Verdict, ...] | None:
    """The verdicts of an entry that was in the sealed slot; None where it was not, and all is to be judged again.

    An entry is written as a whole, so that one row that is known decides for all. Raises `OutcomeUnknownError` where
    none is.
    """
    fates = {
        _fate(state, proposal, verdict)
        for proposal, verdict in zip(proposals, plan.verdicts, strict=True)
        if isinstance(verdict, Appended)
    }
    if _Fate.WRITTEN in fates:
        return plan.verdicts
    if _Fate.ABSENT in fates:
        return None
    if _Fate.UNKNOWN in fates:
        raise OutcomeUnknownError(
            f"a seal in the slot at offset {plan.base_offset}",
            actor="append",
            expected="an entry: the log no longer tells whether this one was there",
            action="do not send it again; look at the log before running the work again",
            reason=Reason.SLOT_SEALED,
        )
    return None


def _fate(state: PartitionState, proposal: Proposal, planned: Appended) -> _Fate:
    if isinstance(proposal, DataProposal):
        return _fate_of_batch(state, proposal, planned)
    if isinstance(proposal, OffsetCommitProposal):
        return _fate_of_commit(state, proposal, planned)
    return (
        _Fate.ASKED_AGAIN
    )  # markers, the coordinator's rows and controls find in the state what they would change


def _fate_of_batch(state: PartitionState, batch: DataProposal, planned: Appended) -> _Fate:
    entry = state.producers.get(batch.producer_id)
    if entry is None or entry.producer_epoch > batch.producer_epoch:
        return _Fate.UNKNOWN
    if entry.producer_epoch < batch.producer_epoch or entry.last_sequence == NO_SEQUENCE:
        return _Fate.ABSENT
    found = entry.find_duplicate(batch.producer_epoch, batch.base_sequence, batch.record_count)
    if found is not None:
        return _Fate.WRITTEN if found.base_offset == planned.base_offset else _Fate.ABSENT
    return _Fate.ABSENT if _is_below(entry.last_sequence, batch.base_sequence) else _Fate.UNKNOWN


def _is_below(last_sequence: int, base_sequence: int) -> bool:
    """Whether a batch at `base_sequence` would still be to come; sequences wrap."""
    ahead = (base_sequence - last_sequence) % (MAX_SEQUENCE + 1)
    return 0 < ahead <= MAX_SEQUENCE // 2


def _fate_of_commit(state: PartitionState, proposal: OffsetCommitProposal, planned: Appended) -> _Fate:
    entry = state.producers.get(proposal.producer_id)
    if entry is None or entry.producer_epoch > proposal.producer_epoch:
        return _Fate.UNKNOWN
    pending = state.group_offsets.find_duplicate(proposal.commit, proposal.producer_id)
    if pending is None:
        return _Fate.ABSENT
    return _Fate.WRITTEN if pending.offset == planned.base_offset else _Fate.ABSENT
