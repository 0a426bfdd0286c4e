"""The jobs that keep a ledger small, as tasks: each says what it did by partition, and fails where one needs an eye."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from txn_engine_airflow.deployment import deployment_spark_conf, permitted_days
from txn_engine_airflow.errors import TaskError, TaskReason
from txn_engine_airflow.hook import open_engine_of_run, readable_errors
from txn_engine_airflow.spark_tasks import task_spark
from txn_engine_airflow.tables import Cell, Table, show

if TYPE_CHECKING:
    from txn_engine import Engine
    from txn_engine.maintain import MaintenancePolicy, MaintenanceReport, PartitionFailure
    from txn_engine.maintain.workers import Workers

log = logging.getLogger(__name__)

Params = Mapping[str, Any]
Announce = Callable[[str, Any], object]
"""Called with "report" and the table, before a failure raises: a red task shows what it did too."""

_DAY_MS = 86_400_000
_PROGRESS_STEP = 100
_OVERTAKEN = "OVERTAKEN"


def check_params(params: Params) -> None:
    """Refuse what no job could work with, once for all of them. Asks the store only about a topic that is named.

    One that was deleted may be named: what is left of it, and of its groups, has jobs of its own.
    """
    topic, partition = params["topic"] or None, params["partition"]
    if params["group_offsets_days"] is not None:
        permitted_days("group_offsets_days", params["group_offsets_days"])
    with readable_errors():
        _policy(params)
    if topic is not None:
        with open_engine_of_run(params["conn_id"]) as engine:
            if topic in engine.config.internal_partitions:
                engine.logs.check_internal(topic, partition or 0)
            elif not _is_deleted(engine, topic):
                engine.partition(topic, partition or 0)
    elif partition is not None:
        raise TaskError(
            f"partition {partition} without a topic; expected both, or a topic alone, or neither",
            reason=TaskReason.BAD_ARGUMENT,
            subject="partition",
        )


def publish_tables(params: Params, announce: Announce) -> Table:
    """Publish the topics whose setting `tables.publish` says so, at one new cut of all topics; nothing in a run for one
    partition.
    """

    def job(engine: Engine) -> MaintenanceReport[Any]:
        from txn_engine.maintain import MaintenanceReport

        if params["partition"] is not None:
            return MaintenanceReport((), dry_run=params["dry_run"])
        return engine.tables.publish_due(
            params["topic"] or None, dry_run=params["dry_run"], progress=_tell_progress
        )

    return _run_on_partitions("tables published", job, params, announce)


def compact(params: Params, announce: Announce) -> Table:
    """Merge small committed files with their neighbours; readers see the same records at the same offsets.

    By this process, or by Spark where `engine` says so, or a partition is larger than `spark_above`: in a session with
    the deployment's settings, which is started when it is first needed.
    """

    def job(engine: Engine) -> MaintenanceReport[Any]:
        from txn_engine.maintain.by_size import workers_for

        policy = _policy(params)
        with ExitStack() as stack:

            def spark() -> Workers:
                from txn_engine.spark.compaction import SparkWorkers

                session = task_spark(engine.url, deployment_spark_conf(), app_name="txn_maintain.compact")
                return SparkWorkers(stack.enter_context(session))

            workers = workers_for(params["engine"], policy, spark)
            return engine.maintenance.compact(**_scope(params), policy=policy, workers=workers)

    return _run_on_partitions("compacted", job, params, announce)


def retain(params: Params, announce: Announce) -> Table:
    """Move where partitions begin: records by their topic's retention, entries by the snapshots that hold them."""

    def job(engine: Engine) -> MaintenanceReport[Any]:
        return engine.maintenance.retain(**_scope(params), policy=_policy(params))

    return _run_on_partitions("trimmed", job, params, announce)


def seal(params: Params, announce: Announce) -> Table:
    """Overwrite entries that only snapshots need with seals."""

    def job(engine: Engine) -> MaintenanceReport[Any]:
        return engine.maintenance.seal(**_scope(params))

    return _run_on_partitions("sealed", job, params, announce)


def expire_producers(params: Params, announce: Announce) -> Table:
    """Forget producers that were idle for the store's limit."""

    def job(engine: Engine) -> MaintenanceReport[Any]:
        return engine.maintenance.expire_producers(**_scope(params))

    return _run_on_partitions("producers forgotten", job, params, announce)


def clean(params: Params, announce: Announce) -> Table:
    """Delete files dead for 24 hours, orphans, and snapshots that two newer verified ones make needless; first finish
    what erasures have begun.
    """

    def job(engine: Engine) -> MaintenanceReport[Any]:
        _finish_erasures(engine, params)
        return engine.maintenance.clean(**_scope(params), policy=_policy(params))

    return _run_on_partitions("cleaned", job, params, announce)


def _finish_erasures(engine: Engine, params: Params) -> None:
    """Not in a run for one partition; one that cannot be finished is told, and stops no clean-up."""
    topic = params["topic"] or None
    if params["dry_run"] or params["partition"] is not None or topic in engine.config.internal_partitions:
        return
    if topic is not None and _is_deleted(engine, topic):
        return
    finished = engine.finish_erasures(topic)
    for done in finished:
        log.info("finished erasure %d of %s: %d files deleted", done.number, done.topic, done.deleted)
        for table, why in done.withdrawn.items():
            log.warning("the %s table of %s cannot show what is left (%s): withdrawn", table, done.topic, why)
    for each in finished.unreadable:
        log.error("an erasure that was begun is not finished: %s", each)


def remove_deleted_topics(params: Params, announce: Announce) -> Table:
    """Delete what is left of topics that were deleted 24 hours ago; nothing in a run for one partition."""

    def job(engine: Engine) -> MaintenanceReport[Any]:
        from txn_engine.maintain import MaintenanceReport

        if params["partition"] is not None:
            return MaintenanceReport((), dry_run=params["dry_run"])
        return engine.maintenance.remove_deleted_topics(params["topic"] or None, dry_run=params["dry_run"])

    return _run("deleted topics removed", job, params, announce)


def expire_group_offsets(params: Params) -> Table:
    """Forget group offsets that were committed longer ago than `group_offsets_days`, or than the store's
    `offsets.retention.minutes`, in the run's scope. Skipped where neither is set.
    """
    given = params["group_offsets_days"]
    days = None if given is None else permitted_days("group_offsets_days", given)
    with open_engine_of_run(params["conn_id"]) as engine:
        if days is None and engine.limits.offsets_retention_ms is None:
            raise AirflowSkipException(
                "group offsets are kept: the run names no group_offsets_days, the store no offsets.retention.minutes"
            )
        forgotten = engine.admin.expire_group_offsets(
            retention_ms=None if days is None else max(int(days * _DAY_MS), 1),
            topic=params["topic"] or None,
            partition=params["partition"],
            dry_run=bool(params["dry_run"]),
        )
    rows: list[list[Cell]] = [[at.group_id, at.topic, at.partition, at.offset] for at in forgotten]
    table = show(f"group offsets forgotten{_dry(params)}", ["group", "topic", "partition", "offset"], rows)
    if forgotten.unreadable:
        raise TaskError(
            f"group offsets forgotten: {len(rows)}, but not those of what cannot be read: "
            f"{'; '.join(map(str, forgotten.unreadable))}",
            reason=TaskReason.DAMAGED,
        )
    return table


def _is_deleted(engine: Engine, topic: str) -> bool:
    """Whether there was a topic of this name, and there is none now; never so of an internal one."""
    from txn_engine.errors import UnknownTopicOrPartitionError

    if topic in engine.config.internal_partitions:
        return False
    topics = engine.logs.topics
    try:
        topics.look_up(topic)
    except UnknownTopicOrPartitionError:
        return not topics.is_current(topic, -1)  # incarnations count from 0: one that never was is at -1
    return False


def _scope(params: Params) -> dict[str, Any]:
    return {
        "topic": params["topic"] or None,
        "partition": params["partition"],
        "dry_run": params["dry_run"],
        "progress": _tell_progress,
    }


def _tell_progress(place: str, done: int, total: int) -> None:
    if done == total or done % _PROGRESS_STEP == 0:
        log.info("%d of %d done, the last %s", done, total, place)


def _policy(params: Params) -> MaintenancePolicy:
    from txn_engine.maintain import MaintenancePolicy

    return MaintenancePolicy(
        orphan_age_ms=int(permitted_days("orphan_days", params["orphan_days"]) * _DAY_MS),
        entries_age_ms=int(permitted_days("entries_days", params["entries_days"]) * _DAY_MS),
        target_file_bytes=max(int(params["target_mib"] * (1 << 20)), 1),
        min_files=params["min_files"],
        min_dirty_ratio=params["dirty_ratio"],
        spark_above_records=params["spark_above"],
    )


def _run_on_partitions(
    title: str, job: Callable[[Engine], MaintenanceReport[Any]], params: Params, announce: Announce
) -> Table:
    """The job in the run's scope; nothing where that is a topic that was deleted."""

    def on_living(engine: Engine) -> MaintenanceReport[Any]:
        from txn_engine.maintain import MaintenanceReport

        topic = params["topic"] or None
        if topic is None or not _is_deleted(engine, topic):
            return job(engine)
        log.info("topic %r was deleted: it has no partitions to work on", topic)
        return MaintenanceReport((), dry_run=params["dry_run"])

    return _run(title, on_living, params, announce)


def _run(
    title: str, job: Callable[[Engine], MaintenanceReport[Any]], params: Params, announce: Announce
) -> Table:
    with open_engine_of_run(params["conn_id"]) as engine:
        report = job(engine)
    records = [_cells(asdict(done)) for done in report.partitions]
    columns = list(records[0]) if records else ["topic", "partition"]
    table = show(f"{title}{_dry(params)}", columns, [list(record.values()) for record in records])
    announce("report", table)
    failures = [failure for failure in report.failures if failure.code != _OVERTAKEN]
    for failure in report.failures:
        tell = log.info if failure.code == _OVERTAKEN else log.error
        tell("%s: %s", _place(failure), failure.message)
    if failures:
        first = failures[0]
        more = f" (and {len(failures) - 1} more, each in the log)" if len(failures) > 1 else ""
        a_retry_helps = any(failure.retry_helps for failure in failures)
        kind = AirflowException if a_retry_helps else AirflowFailException
        raise kind(
            f"{title}: {len(records)}, but {_place(first)} needs somebody's eye: {first.message}{more}"
        )
    return table


def _place(failure: PartitionFailure) -> str:
    return failure.topic if failure.partition < 0 else f"{failure.topic}-{failure.partition}"


def _cells(record: Mapping[str, Any]) -> dict[str, Cell]:
    """A report's record; of a list of ids their number."""
    return {name: len(value) if isinstance(value, tuple) else value for name, value in record.items()}


def _dry(params: Params) -> str:
    return " (a dry run: nothing was written)" if params["dry_run"] else ""
