"""Forgetting producers that have been idle for the store's limit (`ProducerStateManager.removeExpiredProducers`)."""

from __future__ import annotations

from txn_engine.maintain.reports import Expired
from txn_engine.maintain.target import Target
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.proposals import ExpireProposal

_IDS_A_ROW = 10_000


def expire_producers(target: Target, idle_since_ms: int, *, dry_run: bool) -> Expired | None:
    """Forget the producers without a row after `idle_since_ms`, by the log's time; None where there is none.

    One with a transaction open stays, however old (judged again at the append).
    """
    idle = idle_producers(target.read_back(), idle_since_ms)
    if not idle:
        return None
    if dry_run:
        return Expired(target.topic, target.partition, idle)
    for start in range(0, len(idle), _IDS_A_ROW):
        target.log.append_one(ExpireProposal(idle[start : start + _IDS_A_ROW], idle_since_ms))
    known = target.log.view().producers
    forgotten = tuple(producer_id for producer_id in idle if producer_id not in known)
    return Expired(target.topic, target.partition, forgotten) if forgotten else None


def idle_producers(state: PartitionState, idle_since_ms: int) -> tuple[int, ...]:
    """Whom the partition may forget, by id."""
    return tuple(
        producer_id
        for producer_id, entry in sorted(state.producers.items())
        if not entry.is_open and entry.append_time <= idle_since_ms
    )
