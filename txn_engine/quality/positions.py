"""Where partitions, groups and transactions stand, and what the audit found."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.quality.evidence import NOT_KNOWN, Evidence, PartitionState, need
from txn_engine.types import GroupOffset


def partitions(evidence: Evidence) -> pa.Table:
    """Each partition of every topic: its offsets and how many transactions are open on it."""
    need(evidence, "offsets")
    states = evidence.partitions
    return pa.table(
        {
            "topic": pa.array([state.topic for state in states], pa.string()),
            "partition": pa.array([state.partition for state in states], pa.int32()),
            "log_start_offset": pa.array([state.log_start_offset for state in states], pa.int64()),
            "last_stable_offset": pa.array([state.last_stable_offset for state in states], pa.int64()),
            "high_watermark": pa.array([state.high_watermark for state in states], pa.int64()),
            "open_transactions": pa.array([state.open_transactions for state in states], pa.int64()),
        }
    )


def group(evidence: Evidence) -> pa.Table:
    """Each partition of the checked topic as the group stands on it.

    A partition on which nothing was ever written and nothing committed counts as read to its end, and so does one with
    no record behind the group's position: maintenance appends rows of its own. `lag` is what the engine reports,
    `measured_lag` the last stable offset less the committed one.
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
        measured = max(state.last_stable_offset - position, 0) if position != NOT_KNOWN else NOT_KNOWN
        to_come = _is_record_between(evidence, state, position)
        rows.append(
            {
                "partition": state.partition,
                "committed_offset": position if to_come else state.last_stable_offset,
                "last_stable_offset": state.last_stable_offset,
                "lag": _reported_lag(offset, measured),
                "measured_lag": measured,
                "pending_producer_id": offset.pending_producer_id if offset else NOT_KNOWN,
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


def _is_record_between(evidence: Evidence, state: PartitionState, position: int) -> bool:
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


def transactions(evidence: Evidence) -> pa.Table:
    """Each transactional id whose transaction concerns the checked topics, and its state."""
    need(evidence, "transactions")
    states = [state for state in evidence.transactions if state.concerns]
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
