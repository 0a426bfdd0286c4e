"""Which checks do not apply: those that compare a whole history where part of it is gone for good, and rightly so.

Retention trims a log from its start, compaction by key leaves superseded records out: what is left says nothing about
sums. Of the rows that the input file has, no more may be missing than there are offsets whose records may have gone.
"""

from __future__ import annotations

from collections.abc import Mapping

from txn_engine.quality.declaration import LatestByKey, is_of_input
from txn_engine.quality.evidence import Evidence, EvidenceMissingError, rows_of
from txn_engine.quality.result import Counted
from txn_engine.quality.suite import INPUT_ACCOUNTED, accounted_checks, output_checks

PARTITIONS_NAMED_MAX = 20


def not_applicable(
    evidence: Evidence, counted: Mapping[str, Counted | EvidenceMissingError]
) -> Mapping[str, str]:
    """The names of the checks that do not apply, each with the reason in one line. `counted`: of this evidence.

    Outputs are compared with the input file where one is given, and then only the output has to be whole. The latest by
    key is what compaction leaves, and so is not excused by it. Where the offsets could not be read nothing is known of
    retention: those checks cannot be made then.
    """
    check = evidence.check
    reasons: dict[str, str] = {}
    if evidence.input is not None:
        reasons["no_input_row_missing"] = _missing(evidence, counted["no_input_row_missing"])
    if evidence.input is not None and check.dead_letter_topic is not None:
        letters_gone = _gone(evidence, check.dead_letter_topic)
        for name in ("no_input_row_missing", "no_record_beyond_input"):
            reasons[name] = letters_gone or reasons.get(name, "")
        whole = _gone(evidence, check.topic)
        reasons[INPUT_ACCOUNTED] = "; ".join(filter(None, (whole, letters_gone)))
    for name, output in accounted_checks(check):
        topics = [check.topic, output.topic, str(output.dead_letter_topic)]
        reasons[name] = "; ".join(reason for topic in topics if (reason := _gone(evidence, topic)))
    for name, output in output_checks(check):
        from_file = evidence.input is not None and is_of_input(check, output)
        topics = [output.topic] if from_file else [check.topic, output.topic]
        if output.dead_letter_topic is not None:
            topics.append(output.dead_letter_topic)
        by_key = isinstance(output.relation, LatestByKey)
        reasons[name] = "; ".join(
            reason for topic in topics if (reason := _gone(evidence, topic, by_key=by_key))
        )
    return {name: reason for name, reason in reasons.items() if reason}


def _missing(evidence: Evidence, rows: Counted | EvidenceMissingError) -> str:
    """Why rows of the file may rightly be missing; empty where none is, or more are than may have gone."""
    topic = evidence.check.topic
    why = _gone(evidence, topic)
    if not why or isinstance(rows, EvidenceMissingError):
        return ""
    most = _most_gone(evidence, topic)
    if not 0 < rows.wrong <= most:
        return ""
    return f"rows of the file not found: {rows.wrong:,}, records that may be gone: at most {most:,}; {why}"


def _most_gone(evidence: Evidence, topic: str) -> int:
    """No more records than this are gone: one for each offset below a log's start, and, where compaction by key has
    been, for each one up to where readers go that no reading returned.
    """
    rows = rows_of(evidence, topic)
    most = 0
    for state in evidence.partitions:
        if state.topic != topic:
            continue
        start = state.log_start_offset
        most += start
        if state.is_compacted:
            end = max(rows.ends.get(state.partition, state.last_stable_offset), start)
            hidden = [file for file in rows.hidden or () if file.partition == state.partition]
            most += max(end - start - sum(file.records for file in (*rows.of(state.partition), *hidden)), 0)
    return most


def _gone(evidence: Evidence, topic: str, *, by_key: bool = False) -> str:
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
    if not by_key and any(state.is_compacted for state in states):
        parts.append(f"compaction has been at {topic}, which keeps of each key its latest record")
    return "; ".join(parts)
