"""Where partitions, groups and transactions stand, and what the audit found."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from txn_engine.quality import anomalies
from txn_engine.quality.evidence import (
    FINAL_STATES,
    NOT_KNOWN,
    Evidence,
    PartitionEvidence,
    need,
    replayed,
    rows_of,
)
from txn_engine.quality.result import EXAMPLES_MAX, Counted, Example
from txn_engine.types import RESET_METADATA, GroupOffset


def lso_at_log_end(evidence: Evidence) -> Counted:
    """Partitions whose last stable offset, by the auditor's replay, is not the log end."""
    return _counted(
        {
            "topic": state.topic,
            "partition": str(state.partition),
            "last_stable_offset": str(stable),
            "high_watermark": str(state.high_watermark),
        }
        if (stable := replayed(evidence, state.topic, state.partition).last_stable_offset)
        != state.high_watermark
        else None
        for state in _partitions(evidence)
    )


def no_open_transaction(evidence: Evidence) -> Counted:
    """Partitions with an open transaction, by the engine or by the auditor's replay, whichever knows of more."""
    return _counted(
        {"topic": state.topic, "partition": str(state.partition), "open_transactions": str(count)}
        if (
            count := max(
                state.open_transactions, replayed(evidence, state.topic, state.partition).open_transactions
            )
        )
        else None
        for state in _partitions(evidence)
    )


@dataclass(frozen=True, slots=True)
class _Stand:
    """A partition as the group stands on it; -1 for what is not known.

    `position`: the offset committed, or the last stable one where no record is between the two. `lag`: what the engine
    reports; `measured_lag`: the last stable offset of the auditor's replay less the committed one. `pending`: whose
    commit is pending, by the engine or by the replay.
    """

    partition: int
    position: int
    last_stable_offset: int
    lag: int
    measured_lag: int
    pending: int


def group_at_lso(evidence: Evidence) -> Counted:
    """Partitions that the group has not read to the last stable offset."""
    return _counted(
        {
            "partition": str(at.partition),
            "committed_offset": str(at.position),
            "last_stable_offset": str(at.last_stable_offset),
        }
        if at.position != at.last_stable_offset
        else None
        for at in _stands(evidence)
    )


def group_lag_agrees(evidence: Evidence) -> Counted:
    """Partitions whose lag the engine reports otherwise than a replay of the raw entries gives it."""
    return _counted(
        {"partition": str(at.partition), "lag": str(at.lag), "measured_lag": str(at.measured_lag)}
        if at.lag != at.measured_lag
        else None
        for at in _stands(evidence)
    )


def nothing_pending(evidence: Evidence) -> Counted:
    """Partitions with a pending commit of the group."""
    return _counted(
        {"partition": str(at.partition), "pending_producer_id": str(at.pending)}
        if at.pending != NOT_KNOWN
        else None
        for at in _stands(evidence)
    )


def transactions_final(evidence: Evidence) -> Counted:
    """Transactional ids whose transaction concerns these topics and has not ended, by the engine or the replay."""
    need(evidence, "transactions", "audit")
    states = {each.transactional_id: each.state for each in evidence.transactions if each.concerns}
    for each in evidence.replayed_transactions:
        if each.concerns and states.get(each.transactional_id, FINAL_STATES[0]) in FINAL_STATES:
            states[each.transactional_id] = each.state
    return _counted(
        {"transactional_id": name, "state": state} if state not in FINAL_STATES else None
        for name, state in states.items()
    )


def positions_never_fall(evidence: Evidence) -> Counted:
    """Commits of the group's for an offset below the one before, since somebody last moved or deleted it on purpose."""
    need(evidence, "audit")
    last: dict[int, int] = {}
    falls: dict[int, list[Example]] = {}
    commits = [commit for commit in evidence.group_history.commits if commit.took_effect]
    for commit in commits:
        partition = commit.partition
        if commit.offset < 0 or commit.metadata == RESET_METADATA:
            falls.pop(partition, None)
        elif commit.offset < last.get(partition, 0):
            falls.setdefault(partition, []).append(
                {
                    "partition": str(partition),
                    "committed_offset": str(commit.offset),
                    "before": str(last[partition]),
                    "row": str(commit.row),
                }
            )
        last[partition] = max(commit.offset, 0)
    found = [example for _, examples in sorted(falls.items()) for example in examples]
    return Counted(len(commits), len(found), tuple(found[:EXAMPLES_MAX]))


def output_with_offsets(evidence: Evidence) -> Counted:
    """Records of the outputs whose transaction committed no offset of the group.

    Of files that compaction wrote nobody can tell; where the group's log is sealed, neither of a producer's epochs
    before the first that it has.
    """
    need(evidence, "audit")
    history = evidence.group_history
    first: dict[int, int] = {}
    for writer, its_epoch in history.writers:
        first[writer] = min(its_epoch, first.get(writer, its_epoch))
    total = wrong = 0
    examples: list[Example] = []
    for topic in evidence.check.output_topics:
        for file in rows_of(evidence, topic).inside:
            producer_id, epoch = file.producer_id, file.producer_epoch
            if producer_id is None or epoch is None:
                continue
            if not history.is_whole and epoch < first.get(producer_id, epoch + 1):
                continue
            total += file.records
            if (producer_id, epoch) not in history.writers:
                wrong += file.records
                examples.append(
                    {
                        "topic": topic,
                        "partition": str(file.partition),
                        "offset": str(file.first_offset),
                        "producer": f"{producer_id}, epoch {epoch}",
                    }
                )
    return Counted(total, wrong, tuple(examples[:EXAMPLES_MAX]))


def transactions_whole(evidence: Evidence) -> Counted:
    """How often the replay found a transaction that shows otherwise, or elsewhere, than it was decided."""
    return _broken(evidence, anomalies.TORN_CODES)


def producers_in_order(evidence: Evidence) -> Counted:
    """How often the replay found a producer's batches not to follow one another."""
    return _broken(evidence, anomalies.ORDER_CODES)


def audit_clean(evidence: Evidence) -> Counted:
    """How many rules of the protocol the replay of the whole store found broken."""
    found = _broken(evidence, None)
    broken = found.wrong
    return replace(found, wrong=broken + (evidence.findings_not_listed if broken else 0), examples=())


def _broken(evidence: Evidence, codes: Collection[str] | None) -> Counted:
    need(evidence, "audit")
    found = [each for each in evidence.findings if each.is_error and (codes is None or each.code in codes)]
    return Counted(
        0,
        len(found),
        tuple({"finding": each.code, "object": each.object} for each in found[:EXAMPLES_MAX]),
        anomalies.of_codes(each.code for each in found),
    )


def _stands(evidence: Evidence) -> Iterator[_Stand]:
    """Each partition of the checked topic. One on which nothing was ever written and nothing committed counts as read
    to its end, and so does one with no record behind the group's position: maintenance appends rows of its own.
    """
    need(evidence, "offsets", "group")
    committed = {
        offset.partition: offset
        for offset in evidence.group
        if offset.topic == evidence.check.topic
        and offset.last_stable_offset != NOT_KNOWN  # -1: of a deleted topic
    }
    for state in evidence.partitions:
        if state.topic != evidence.check.topic:
            continue
        offset = committed.get(state.partition)
        position = offset.committed_offset if offset else NOT_KNOWN
        if position == NOT_KNOWN and state.high_watermark == state.log_start_offset:
            position = state.last_stable_offset
        stable = replayed(evidence, state.topic, state.partition).last_stable_offset
        told = position
        if evidence.replayed_positions is not None:
            told = evidence.replayed_positions.get(state.partition, position if offset is None else NOT_KNOWN)
        measured = _lag(stable, told)
        yield _Stand(
            state.partition,
            position if _is_record_between(evidence, state, position) else state.last_stable_offset,
            state.last_stable_offset,
            _lag(stable, position) if offset is None or offset.lag == NOT_KNOWN else offset.lag,
            measured,
            _pending(evidence, state.partition, offset),
        )


def _lag(stable: int, position: int) -> int:
    return max(stable - position, 0) if position != NOT_KNOWN else NOT_KNOWN


def _partitions(evidence: Evidence) -> tuple[PartitionEvidence, ...]:
    need(evidence, "offsets")
    return evidence.partitions


def _is_record_between(evidence: Evidence, state: PartitionEvidence, position: int) -> bool:
    """Whether readers see a record behind the position; also where that is not known, and for a position at fault."""
    rows = evidence.rows.get(state.topic)
    if rows is None or not 0 <= position <= state.last_stable_offset:
        return True
    if rows.ends.get(state.partition, 0) < state.last_stable_offset:  # more was written since
        return True
    return any(file.records and file.last_offset >= position for file in rows.of(state.partition))


def _pending(evidence: Evidence, partition: int, offset: GroupOffset | None) -> int:
    if offset is not None and offset.pending_producer_id != NOT_KNOWN:
        return offset.pending_producer_id
    return evidence.replayed_pending.get(partition, NOT_KNOWN)


def _counted(found: Iterable[Example | None]) -> Counted:
    """Of things of which None is right."""
    things = list(found)
    wrong = [each for each in things if each is not None]
    return Counted(len(things), len(wrong), tuple(wrong[:EXAMPLES_MAX]))
