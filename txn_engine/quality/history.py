"""Which checks do not apply: those that compare a whole history where part of it is gone for good, and rightly so.

Retention trims a log from its start, compaction by key leaves superseded records out: what is left says nothing about
sums. Of the rows that the input file has, no more may be missing than there are offsets whose records may have gone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from txn_engine.quality.evidence import Evidence, EvidenceMissingError, rows_of
from txn_engine.quality.visibility import by_partition

PARTITIONS_NAMED_MAX = 20


def not_applicable(
    evidence: Evidence, frames: Mapping[str, pa.Table | EvidenceMissingError]
) -> Mapping[str, str]:
    """The names of the checks that do not apply, each with the reason in one line. `frames`: of this evidence.

    Sums are compared with those of the input file where one is given, and then only the output has to be whole. Where
    the offsets could not be read nothing is known of retention: those checks cannot be made then.
    """
    check = evidence.check
    reasons: dict[str, str] = {}
    if evidence.input is not None:
        reasons["no_input_row_missing"] = _missing(evidence, frames["input"])
    if check.output_topic is not None:
        summed = [check.output_topic] if evidence.input is not None else [check.topic, check.output_topic]
        why = "; ".join(reason for topic in summed if (reason := _gone(evidence, topic)))
        reasons["turnover_per_account"] = why
        if check.output_count is not None:
            reasons["payments_per_account"] = why
    return {name: reason for name, reason in reasons.items() if reason}


def _missing(evidence: Evidence, rows: pa.Table | EvidenceMissingError) -> str:
    """Why rows of the file may rightly be missing; empty where none is, or more are than may have gone."""
    topic = evidence.check.topic
    why = _gone(evidence, topic)
    if not why or isinstance(rows, EvidenceMissingError):
        return ""
    missing = int((rows["committed_rows"].to_numpy() == 0).sum())
    most = _most_gone(evidence, topic)
    if not 0 < missing <= most:
        return ""
    return f"rows of the file not found: {missing:,}, records that may be gone: at most {most:,}; {why}"


def _most_gone(evidence: Evidence, topic: str) -> int:
    """No more records than this are gone: one for each offset below a log's start, and, where compaction by key has
    been, for each one up to where readers go that no reading returned.
    """
    rows = rows_of(evidence, topic)
    returned = by_partition(rows.committed if rows.logged is None else rows.logged)
    most = 0
    for state in evidence.partitions:
        if state.topic != topic:
            continue
        start = state.log_start_offset
        most += start
        if state.is_compacted:
            end = max(rows.ends.get(state.partition, state.last_stable_offset), start)
            offsets = returned.get(state.partition, np.array([], np.int64))
            most += end - start - len(np.unique(offsets[(offsets >= start) & (offsets < end)]))
    return most


def _gone(evidence: Evidence, topic: str) -> str:
    """What of the topic may be gone and why; empty where it is whole."""
    parts = []
    states = [state for state in evidence.partitions if state.topic == topic]
    starts = [
        f"partition {state.partition} begins at offset {state.log_start_offset:,}"
        for state in states
        if state.log_start_offset > 0
    ]
    if starts:
        named = ", ".join(starts[:PARTITIONS_NAMED_MAX])
        more = len(starts) - PARTITIONS_NAMED_MAX
        others = f" and {more:,} more do not begin at 0" if more > 0 else ""
        parts.append(f"retention, or a delete, has removed records of {topic}: {named}{others}")
    if any(state.is_compacted for state in states):
        parts.append(f"compaction has been at {topic}, which keeps of each key its latest record")
    return "; ".join(parts)
