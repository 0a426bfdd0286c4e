"""Where partitions, groups and transactions stand, and what the audit found."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.quality.evidence import FINAL_STATES, NOT_KNOWN, Evidence, PartitionEvidence, need, replayed
from txn_engine.types import GroupOffset


def partitions(evidence: Evidence) -> pa.Table:
    """Each partition of every topic: its offsets and how many transactions are open on it, by the engine or by the
    auditor's replay, whichever knows of more.

    `replayed_stable_offset`: the last stable offset that the replay gives.
    """
    need(evidence, "offsets")
    states = evidence.partitions
    replays = [replayed(evidence, state.topic, state.partition) for state in states]
    return pa.table(
        {
            "topic": pa.array([state.topic for state in states], pa.string()),
            "partition": pa.array([state.partition for state in states], pa.int32()),
            "log_start_offset": pa.array([state.log_start_offset for state in states], pa.int64()),
            "last_stable_offset": pa.array([state.last_stable_offset for state in states], pa.int64()),
            "replayed_stable_offset": pa.array([found.last_stable_offset for found in replays], pa.int64()),
            "high_watermark": pa.array([state.high_watermark for state in states], pa.int64()),
            "open_transactions": pa.array(
                [
                    max(state.open_transactions, found.open_transactions)
                    for state, found in zip(states, replays, strict=True)
                ],
                pa.int64(),
            ),
        }
    )


def group(evidence: Evidence) -> pa.Table:
    """Each partition of the checked topic as the group stands on it.

    A partition on which nothing was ever written and nothing committed counts as read to its end, and so does one with
    no record behind the group's position: maintenance appends rows of its own. `lag` is what the engine reports,
    `measured_lag` the last stable offset of the auditor's replay less the committed one. `pending_producer_id`: whose
    commit is pending, by the engine or by the replay.
    """
    need(evidence, "offsets", "group")
    committed = {
        offset.partition: offset
        for offset in evidence.group
        if offset.topic == evidence.check.topic
        and offset.last_stable_offset != NOT_KNOWN  # -1: of a deleted topic
    }
    rows: list[Mapping[str, int]] = []
    for state in evidence.partitions:
        if state.topic != evidence.check.topic:
            continue
        offset = committed.get(state.partition)
        position = offset.committed_offset if offset else NOT_KNOWN
        if position == NOT_KNOWN and state.high_watermark == state.log_start_offset:
            position = state.last_stable_offset
        stable = replayed(evidence, state.topic, state.partition).last_stable_offset
        measured = max(stable - position, 0) if position != NOT_KNOWN else NOT_KNOWN
        to_come = _is_record_between(evidence, state, position)
        rows.append(
            {
                "partition": state.partition,
                "committed_offset": position if to_come else state.last_stable_offset,
                "last_stable_offset": state.last_stable_offset,
                "lag": _reported_lag(offset, measured),
                "measured_lag": measured,
                "pending_producer_id": _pending(evidence, state.partition, offset),
            }
        )
    names = (
        "partition",
        "committed_offset",
        "last_stable_offset",
        "lag",
        "measured_lag",
        "pending_producer_id",
    )
    return pa.table({name: pa.array([row[name] for row in rows], pa.int64()) for name in names})


def _is_record_between(evidence: Evidence, state: PartitionEvidence, position: int) -> bool:
    """Whether readers see a record behind the position; also where that is not known, and for a position at fault."""
    rows = evidence.rows.get(state.topic)
    if rows is None or not 0 <= position <= state.last_stable_offset:
        return True
    if rows.ends.get(state.partition, 0) < state.last_stable_offset:  # more was written since
        return True
    left = (pc.field("_partition") == state.partition) & (pc.field("_offset") >= position)
    return rows.committed.filter(left).num_rows > 0


def _reported_lag(offset: GroupOffset | None, measured: int) -> int:
    """The engine's own figure; where it says nothing there is nothing to compare."""
    return measured if offset is None or offset.lag == NOT_KNOWN else offset.lag


def _pending(evidence: Evidence, partition: int, offset: GroupOffset | None) -> int:
    if offset is not None and offset.pending_producer_id != NOT_KNOWN:
        return offset.pending_producer_id
    return evidence.replayed_pending.get(partition, NOT_KNOWN)


def transactions(evidence: Evidence) -> pa.Table:
    """Each transactional id whose transaction concerns the checked topics, and its state: the engine's, and by the
    auditor's replay where that has not ended.
    """
    need(evidence, "transactions", "audit")
    concerned = [state for state in evidence.transactions if state.concerns]
    open_by_engine = {state.transactional_id for state in concerned if state.state not in FINAL_STATES}
    open_by_replay = {
        state.transactional_id: state
        for state in evidence.replayed_transactions
        if state.concerns and state.transactional_id not in open_by_engine
    }
    states = [state for state in concerned if state.transactional_id not in open_by_replay]
    states += open_by_replay.values()
    return pa.table(
        {
            "transactional_id": pa.array([state.transactional_id for state in states], pa.string()),
            "state": pa.array([state.state for state in states], pa.string()),
        }
    )


def audit(evidence: Evidence) -> pa.Table:
    """One row: how many rules of the protocol the replay of the whole store found broken, and how many warnings."""
    need(evidence, "audit")
    broken = sum(finding.is_error for finding in evidence.findings)
    more = evidence.findings_not_listed if broken else 0
    return pa.table(
        {
            "findings": pa.array([broken + more], pa.int64()),
            "warnings": pa.array([len(evidence.findings) - broken], pa.int64()),
        }
    )
