"""Forgetting producers that have been idle for the store's limit (`ProducerStateManager.removeExpiredProducers`)."""

from __future__ import annotations

from txn_engine.log.ages import LogAges
from txn_engine.log.store_time import Moment
from txn_engine.maintain.reports import Expired
from txn_engine.maintain.target import Target
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.proposals import ExpireProposal

_IDS_A_ROW = 10_000


def expire_producers(target: Target, moment: Moment, idle_ms: int, *, dry_run: bool) -> Expired | None:
    """Forget the producers without a row for `idle_ms`, by the log's time and the store's; None where there is none.

    One with a transaction open stays, however old (judged again at the append). A producer whose clock is behind is
    not idle because of that: a batch of it that is sent again would be taken for a new one.
    """
    state, idle_since_ms = target.read_back(), moment.now_ms - idle_ms
    idle = idle_producers(state, idle_since_ms)
    if idle:
        end = LogAges(target.log, state, moment).stored_end_at(idle_since_ms + 1)
        idle = tuple(producer_id for producer_id in idle if _last_offset(state, producer_id) < end)
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
    """Whom the partition may forget by the log's time, by id."""
    return tuple(
        producer_id
        for producer_id, entry in sorted(state.producers.items())
        if not entry.is_open and entry.append_time <= idle_since_ms
    )


def _last_offset(state: PartitionState, producer_id: int) -> int:
    """Where the last batch of a producer ends that it may send again; -1 where there is none."""
    batches = state.producers[producer_id].batches
    return batches[-1].last_offset if batches else -1
