"""The coordinator's sweeps as tasks: each does what can be done, says so, and then fails if something is left."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from txn_engine_airflow import metrics
from txn_engine_airflow.errors import RetriedTaskError, TaskError, TaskReason
from txn_engine_airflow.hook import open_engine_of_run

if TYPE_CHECKING:
    from txn_engine.types import SweepReport
    from txn_engine.unreadable import Unreadable

log = logging.getLogger(__name__)

_NAMED_MAX = 20


class SweepResult(TypedDict):
    """What a sweep did, small enough for an XCom: `transactional_ids` are the first 20 of `transactions`."""

    transactions: int
    transactional_ids: list[str]
    partitions_marked: int
    objects_written: int


class PendingWork(TypedDict):
    """A coordinator partition with decided transactions to complete; `up_to` is the last decision's offset."""

    partition: int
    transactions: int
    up_to: int


def abort_timed_out_transactions(conn_id: str, *, dry_run: bool = False) -> SweepResult:
    """Fence and abort what has been open for longer than its timeout; tell how much is open after that."""
    with open_engine_of_run(conn_id) as engine:
        from txn_engine.clock import monotonic_ms
        from txn_engine.protocol.transactions import has_timed_out

        if dry_run:
            now_ms, rows = engine.clock(), engine.coordinator.rows()
            due = [stored for stored in rows if has_timed_out(stored, now_ms)]
            return _would("be aborted", [stored.row.transactional_id for stored in due], rows.unreadable)
        began_ms = monotonic_ms()
        report = engine.coordinator.abort_timed_out_transactions()
        metrics.tell_sweep(monotonic_ms() - began_ms)
        metrics.tell_open_transactions(engine.coordinator.rows(), engine.clock())
        return _result("timed-out transactions aborted", report)


def expire_transactional_ids(conn_id: str, *, dry_run: bool = False) -> SweepResult:
    """Forget the transactional ids that have been idle for the store's expiration time."""
    with open_engine_of_run(conn_id) as engine:
        from txn_engine.protocol.transactions import has_expired

        if dry_run:
            now_ms, after_ms = engine.clock(), engine.limits.transactional_id_expiration_ms
            rows = engine.coordinator.rows()
            due = [stored for stored in rows if has_expired(stored, now_ms, after_ms)]
            return _would("expire", [stored.row.transactional_id for stored in due], rows.unreadable)
        return _result("idle transactional ids expired", engine.coordinator.expire_transactional_ids())


def find_pending_markers(conn_id: str, *, tasks_max: int, dry_run: bool = False) -> list[list[PendingWork]]:
    """The coordinator partitions with something to finish, dealt out to at most `tasks_max` tasks; a dry run: none."""
    decisions: dict[int, list[int]] = defaultdict(list)
    names: list[str] = []
    with open_engine_of_run(conn_id) as engine:
        rows = engine.coordinator.rows()
        for stored in rows:
            if stored.row.state.is_prepared:
                partition = engine.admin.coordinator_partition(stored.row.transactional_id)
                decisions[partition].append(stored.offset)
                names.append(f"{stored.row.transactional_id} ({stored.row.state})")
    work = [
        PendingWork(partition=p, transactions=len(at), up_to=max(at)) for p, at in sorted(decisions.items())
    ]
    # What cannot be read may hold something to finish: the tasks behind this one fail for it, after all else is done.
    work += [PendingWork(partition=each.partition, transactions=0, up_to=-1) for each in rows.unreadable]
    for each in rows.unreadable:
        log.error("cannot be read: %s", each)
    metrics.tell_marker_backlog(len(names))
    log.info(
        "decided transactions that wait for markers: %d, in coordinator partitions: %d (%s)",
        len(names),
        len(work),
        _some(names) or "none",
    )
    return [] if dry_run else [work[first::tasks_max] for first in range(min(tasks_max, len(work)))]


def write_pending_markers(work: Sequence[PendingWork], conn_id: str) -> SweepResult:
    """Finish every decided transaction of these coordinator partitions, also those decided since they were listed."""
    with open_engine_of_run(conn_id) as engine:
        report = engine.coordinator.write_pending_markers(partitions=[part["partition"] for part in work])
    return _result("decided transactions completed", report)


def check_markers_written(found: Sequence[Sequence[PendingWork]], conn_id: str) -> dict[str, int]:
    """Look whether the transactions that were found pending are complete; fail with the names of those that are not."""
    up_to = {part["partition"]: part["up_to"] for chunk in found for part in chunk}
    transactions = sum(part["transactions"] for chunk in found for part in chunk)
    left: list[str] = []
    damaged: list[str] = []
    if up_to:
        with open_engine_of_run(conn_id) as engine:
            rows = engine.coordinator.rows(sorted(up_to))
            damaged += map(str, rows.unreadable)
            for stored in rows:
                partition = engine.admin.coordinator_partition(stored.row.transactional_id)
                if stored.row.state.is_prepared and stored.offset <= up_to[partition]:
                    left.append(f"{stored.row.transactional_id} ({stored.row.state})")
    if left:
        raise RetriedTaskError(
            f"{len(left)} of {transactions} decided transactions are still pending: {_some(left)}; their readers wait. "
            "The log of write_markers says why; the next run tries again",
            reason=TaskReason.STILL_PENDING,
        )
    if damaged:
        raise TaskError(
            f"{transactions} decided transactions are complete, but {len(damaged)} coordinator partitions cannot be "
            f"read, so what is decided there stays pending: {_some(damaged)}",
            reason=TaskReason.DAMAGED,
        )
    return {"transactions": transactions, "coordinator_partitions": len(up_to), "left": 0}


def _result(what: str, report: SweepReport) -> SweepResult:
    names = report.transactional_ids
    log.info(
        "%s: %d (%s); partitions marked: %d, objects written: %d",
        what,
        len(names),
        _some(names) or "none",
        report.partitions_marked,
        report.objects_written,
    )
    for failure in report.failures:
        log.error("left undone: %s", failure)
    if report.failures:
        raise RetriedTaskError(
            f"{what}: {len(names)}, but {len(report.failures)} could not be finished: {report.failures[0]}"
            + (
                ""
                if len(report.failures) == 1
                else f" (and {len(report.failures) - 1} more, each in the log)"
            ),
            reason=TaskReason.SOME_UNFINISHED,
        )
    return SweepResult(
        transactions=len(names),
        transactional_ids=list(names[:_NAMED_MAX]),
        partitions_marked=report.partitions_marked,
        objects_written=report.objects_written,
    )


def _would(what: str, names: Sequence[str], unreadable: Sequence[Unreadable]) -> SweepResult:
    log.info("a dry run: %d would %s (%s); nothing was written", len(names), what, _some(names) or "none")
    if unreadable:
        raise TaskError(
            f"not all could be read ({len(unreadable)} damaged): {_some([*map(str, unreadable)])}",
            reason=TaskReason.DAMAGED,
        )
    return SweepResult(
        transactions=len(names),
        transactional_ids=list(names[:_NAMED_MAX]),
        partitions_marked=0,
        objects_written=0,
    )


def _some(names: Sequence[str]) -> str:
    from txn_engine.names import printable

    shown = ", ".join(map(printable, names[:_NAMED_MAX]))
    return shown if len(names) <= _NAMED_MAX else f"{shown} and {len(names) - _NAMED_MAX} more"
