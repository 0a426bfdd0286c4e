"""Retention: where a partition begins, for its records and for its entries. One `trim` moves both."""

from __future__ import annotations

from dataclasses import dataclass

from txn_engine.errors import InvalidRequestError
from txn_engine.log.ages import LogAges
from txn_engine.log.entry_log import EntryLog
from txn_engine.log.store_time import Moment
from txn_engine.log.topics import Topic
from txn_engine.maintain.overtaken import OvertakenError
from txn_engine.maintain.policy import MaintenancePolicy
from txn_engine.maintain.reports import Trimmed
from txn_engine.maintain.target import Target
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.protocol.proposals import Appended, TrimProposal, VerifiedSnapshot


@dataclass(frozen=True, slots=True)
class _Plan:
    state: PartitionState
    trim: TrimProposal

    @property
    def expired(self) -> list[LogFile]:
        return expired_files(self.state, self.trim.log_start_offset)

    @property
    def moves(self) -> bool:
        now = (self.state.log_start_offset, self.state.entries_start)
        return (self.trim.log_start_offset, self.trim.entries_start) != now


def retain(target: Target, policy: MaintenancePolicy, moment: Moment, *, dry_run: bool) -> Trimmed | None:
    """Move the partition's beginnings as far as its age allows; None where nothing is old enough.

    `OvertakenError`: another run was quicker.
    """
    plan = _plan(target, policy, moment)
    if not plan.moves:
        return None
    try:
        if not dry_run and not isinstance(target.log.append_one(plan.trim), Appended):
            return None  # another run has written this very trim
    except InvalidRequestError as error:
        raise OvertakenError(str(error)) from error  # another run has moved one of the two further on
    return _report(target, plan)


def log_start_by(log: EntryLog, state: PartitionState, topic: Topic, moment: Moment) -> int:
    """Where the records begin once what the topic's `retention.ms` and `retention.bytes` do not keep is gone."""
    log_start = state.log_start_offset
    if topic.trims_after_ms is not None:
        log_start = log_start_after(LogAges(log, state, moment), state, topic.trims_after_ms)
    if topic.trims_above_bytes is not None:
        log_start = max(log_start, log_start_within(state, topic.trims_above_bytes))
    return log_start


def log_start_after(ages: LogAges, state: PartitionState, keep_ms: int) -> int:
    """Where the records begin once all files before it are older than `keep_ms`: by the newest record of each, and by
    when the log had them. A record's time that lies ahead of the store's clock is wrong, and says nothing.

    A file's boundary or behind an aborted transaction, at most the last stable offset; the log's start as it is where
    there is nothing to leave behind.
    """
    moment = ages.moment
    cutoff_ms = moment.now_ms - keep_ms
    young = [
        file.base_offset
        for file in state.live.values()
        if file.max_timestamp >= cutoff_ms
        and not (moment.dates_objects and file.max_timestamp > moment.now_ms)
    ]
    bound = min([state.last_stable_offset, *young])
    if _log_start_at(state, bound) == state.log_start_offset:
        return state.log_start_offset
    end = ages.end_at(cutoff_ms)
    younger = (file.base_offset for file in state.live.values() if file.last_offset >= end)
    return _log_start_at(state, min([bound, *younger]))


def log_start_within(state: PartitionState, most_bytes: int) -> int:
    """Where the records begin once the oldest files are gone without which the others still have so many bytes (Kafka's
    `retention.bytes`). As `log_start_after`.
    """
    files = sorted(state.live.values(), key=lambda file: file.base_offset)
    size, bound = sum(file.file.data_bytes for file in files), 0
    for file in files:
        size -= file.file.data_bytes
        if size < most_bytes:
            break
        bound = file.last_offset + 1
    return _log_start_at(state, min(state.last_stable_offset, bound))


def _log_start_at(state: PartitionState, bound: int) -> int:
    """A file's boundary at or below `bound`; behind what was aborted before it.

    The log's start as it is where that leaves nothing behind.
    """
    # A marker inside a merged file is no boundary, but that file is old too then, and ends behind it.
    left_behind = [file.last_offset for file in expired_files(state, bound)]
    left_behind += [last for last in state.aborted if last < bound]
    return max([state.log_start_offset, *(last + 1 for last in left_behind)])


def expired_files(state: PartitionState, log_start_offset: int) -> list[LogFile]:
    """The live files that a log start at this offset leaves behind."""
    return [file for file in state.live.values() if file.last_offset < log_start_offset]


def _plan(target: Target, policy: MaintenancePolicy, moment: Moment) -> _Plan:
    state = target.read_back()
    log_start = state.log_start_offset
    if target.records is not None:
        log_start = log_start_by(target.log, state, target.records, moment)
    verified = _verified_snapshots(target, state, policy, moment)
    entries_start = max([state.entries_start, *(snapshot.last_entry_base for snapshot in verified[:1])])
    return _Plan(state, TrimProposal(log_start, entries_start, verified))


def _verified_snapshots(
    target: Target, state: PartitionState, policy: MaintenancePolicy, moment: Moment
) -> tuple[VerifiedSnapshot, ...]:
    """The newest snapshot of that age and the one behind it, verified; none where moving there gains too little."""
    snapshots = target.snapshots
    found = snapshots.two_at(moment, policy.entries_age_ms)
    if not found or found[0].end - state.entries_start <= policy.trim_step:
        return ()
    return snapshots.verify(found, state.entries_start)


def _report(target: Target, plan: _Plan) -> Trimmed:
    return Trimmed(
        topic=target.topic,
        partition=target.partition,
        log_start_before=plan.state.log_start_offset,
        log_start_offset=plan.trim.log_start_offset,
        entries_start_before=plan.state.entries_start,
        entries_start=plan.trim.entries_start,
        files=len(plan.expired),
        records=sum(file.record_count for file in plan.expired),
        bytes=sum(file.file.data_bytes for file in plan.expired),
    )
