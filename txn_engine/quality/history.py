"""Which checks do not apply: those that compare a whole history where part of it is gone for good, and rightly so.

Retention trims a log from its start, compaction by key leaves superseded records out: what is left says nothing about
sums, or about rows that the input file has.
"""

from __future__ import annotations

from collections.abc import Mapping

from txn_engine.quality.evidence import Evidence

PARTITIONS_NAMED_MAX = 20


def not_applicable(evidence: Evidence) -> Mapping[str, str]:
    """The names of the checks that do not apply, each with the reason in one line.

    Sums are compared with those of the input file where one is given, and then only the output has to be whole. Where
    the offsets could not be read nothing is known of retention: those checks cannot be made then.
    """
    check = evidence.check
    reasons: dict[str, str] = {}
    if evidence.input is not None:
        reasons["no_input_row_missing"] = _gone(evidence, check.topic)
    if check.output_topic is not None:
        summed = [check.output_topic] if evidence.input is not None else [check.topic, check.output_topic]
        why = "; ".join(reason for topic in summed if (reason := _gone(evidence, topic)))
        reasons["turnover_per_account"] = why
        if check.output_count is not None:
            reasons["payments_per_account"] = why
    return {name: reason for name, reason in reasons.items() if reason}


def _gone(evidence: Evidence, topic: str) -> str:
    """What of the topic is gone and why; empty where it is whole."""
    parts = []
    starts = [
        f"partition {state.partition} begins at offset {state.log_start_offset:,}"
        for state in evidence.partitions
        if state.topic == topic and state.log_start_offset > 0
    ]
    if starts:
        named = ", ".join(starts[:PARTITIONS_NAMED_MAX])
        more = len(starts) - PARTITIONS_NAMED_MAX
        others = f" and {more:,} more do not begin at 0" if more > 0 else ""
        parts.append(f"retention, or a delete, has removed records of {topic}: {named}{others}")
    if topic in evidence.compacted:
        parts.append(f"{topic} keeps of each key its latest record (cleanup.policy compact)")
    return "; ".join(parts)
