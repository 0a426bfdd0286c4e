"""`txn-engine maintain`: compaction, retention and clean-up, by hand what the DAG `txn_maintain` does on a schedule."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from txn_engine.cli.command import (
    SETTINGS,
    FiniteRange,
    Function,
    Group,
    Place,
    check_partition_has_topic,
    common_options,
)
from txn_engine.cli.damage import name_each
from txn_engine.cli.failures import CommandFailed
from txn_engine.cli.output import Column, Output, Row, columns
from txn_engine.cli.spark_session import spark_of_command, spark_settings

if TYPE_CHECKING:
    from txn_engine.engine import Engine
    from txn_engine.errors import TxnEngineError
    from txn_engine.maintain import (
        Cleaned,
        Compacted,
        Expired,
        MaintenanceReport,
        PartitionFailure,
        Removed,
        Sealed,
    )
    from txn_engine.maintain.maintenance import Progress
    from txn_engine.maintain.workers import Workers
    from txn_engine.types import EngineChoice

_COMPACTED = columns(
    "Topic",
    "Partition>",
    "Files>",
    "Bytes>",
    "Outputs>",
    "OutputBytes>",
    "Records>",
    "Dropped>",
    "Overtaken>",
    "Engine",
)
_TRIMMED = columns(
    "Topic",
    "Partition>",
    "LogStartBefore>",
    "LogStartOffset>",
    "EntriesStartBefore>",
    "EntriesStart>",
    "Files>",
    "Records>",
    "Bytes>",
)
_CLEANED = columns(
    "Topic", "Partition>", "Producers>", "Seals>", "Snapshots>", "DeadFiles>", "Orphans>", "Bytes>", "Floor>"
)


_BY = {"local": "this process", "spark": "Spark"}


@click.group(cls=Group, short_help="Merge small files, drop what is old, clean up.")
def maintain() -> None:
    """Keep a ledger small and quick: what the DAG txn_maintain does on a schedule.

    Each may run at any time, beside writers, readers and another run of itself, and may be stopped anywhere: the next
    run goes on. What is deleted was dead for 24 hours, or never was in the log; entries are sealed, never deleted.

    Ages are counted by the store's clock. A machine whose own clock is more than five minutes off it is refused. A dry
    run does not ask for the store's time, because that means to put an object: it goes by this machine's clock.
    """


def maintain_options(function: Function) -> Function:
    """Add --topic, --partition and --dry-run, checked, and what every command has."""

    @click.option(
        "--topic", metavar="TOPIC", help="Only this topic; all, and the internal ones, when none is named."
    )
    @click.option("--partition", type=int, metavar="N", help="Only this partition of the topic.")
    @click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing.")
    @common_options
    @functools.wraps(function)
    def checked(*args: Any, topic: str | None, partition: int | None, **kwargs: Any) -> Any:
        check_partition_has_topic(topic, partition)
        return function(*args, topic=topic, partition=partition, **kwargs)

    return checked  # type: ignore[return-value]


@maintain.command(
    context_settings=SETTINGS,
    short_help="Merge small files into larger ones; compact by key.",
    examples=(
        "txn-engine maintain compact --dry-run",
        "txn-engine maintain compact --topic payments --engine spark --spark-conf spark.master=local[8]",
    ),
)
@click.option(
    "--target-mib",
    type=FiniteRange(min=0, min_open=True),
    default=64.0,
    metavar="MIB",
    help="Merge up to about this size. One such file is held in memory.",
)
@click.option(
    "--min-files",
    type=click.IntRange(min=2),
    default=8,
    metavar="N",
    help="Leave fewer small neighbours alone.",
)
@click.option(
    "--dirty-ratio",
    type=FiniteRange(min=0, max=1),
    metavar="R",
    help="Compact a partition by key once this part of its bytes is new; 0: always. Without it: as the topic's "
    "min.cleanable.dirty.ratio says.",
)
@click.option(
    "--engine",
    "chosen",
    type=click.Choice(["auto", "local", "spark"]),
    default="auto",
    help="Who reads keys and makes files: this process, Spark, or Spark for a partition above --spark-above.",
)
@click.option(
    "--spark-above",
    type=click.IntRange(min=0),
    default=1_000_000_000,
    metavar="RECORDS",
    help="With --engine auto: this process takes so many records of a partition, and 128 GB of files.",
)
@click.option(
    "--spark-conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of Spark's, such as spark.master. Repeatable.",
)
@maintain_options
def compact(
    topic: str | None,
    partition: int | None,
    target_mib: float,
    min_files: int,
    dirty_ratio: float | None,
    chosen: EngineChoice,
    spark_above: int,
    spark_conf: Sequence[str],
    dry_run: bool,
    place: Place,
    out: Output,
) -> None:
    """Merge small committed files with their neighbours. Readers see the same records at the same offsets.

    In a topic with cleanup.policy=compact records go that a later committed one of their key supersedes, and tombstones
    that have had their time (delete.retention.ms).
    """
    from txn_engine.extras import need
    from txn_engine.maintain import MaintenancePolicy
    from txn_engine.maintain.by_size import workers_for

    policy = MaintenancePolicy(
        target_file_bytes=max(int(target_mib * (1 << 20)), 1),
        min_files=min_files,
        min_dirty_ratio=dirty_ratio,
        spark_above_records=spark_above,
    )
    settings = spark_settings(spark_conf)
    if chosen == "spark":
        need("spark", actor="maintain compact")
    with place.open() as engine, ExitStack() as stack, _progress(out, "compacting") as progress:

        def spark() -> Workers:
            from txn_engine.spark.compaction import SparkWorkers

            place.to_environment()
            session = spark_of_command(engine.url, "txn-engine maintain compact", settings)
            return SparkWorkers(stack.enter_context(session))

        report = engine.maintenance.compact(
            topic,
            partition,
            policy=policy,
            dry_run=dry_run,
            progress=progress,
            workers=workers_for(chosen, policy, spark),
        )
    _tell_who(report.partitions, out)
    tell("compacted", _COMPACTED, map(asdict, report.partitions), [report], out)


@maintain.command(
    context_settings=SETTINGS,
    short_help="Drop records and entries that are old enough.",
    examples=("txn-engine maintain retention --dry-run", "txn-engine maintain retention --topic payments"),
)
@click.option(
    "--entries-days",
    type=FiniteRange(min=0),
    default=7.0,
    metavar="DAYS",
    help="Keep entries for this long after a snapshot holds them; `clean` finds no older orphans than that.",
)
@maintain_options
def retention(
    topic: str | None, partition: int | None, entries_days: float, dry_run: bool, place: Place, out: Output
) -> None:
    """Move where partitions begin: records by the topic's retention, entries by the snapshots that hold them.

    What is left behind is deleted and sealed by `clean`, files after 24 hours.
    """
    from txn_engine.maintain.policy import DAY_MS, DEFAULT_POLICY

    age_ms = int(entries_days * DAY_MS)
    policy = replace(
        DEFAULT_POLICY, entries_age_ms=age_ms, orphan_age_ms=min(age_ms, DEFAULT_POLICY.orphan_age_ms)
    )
    with place.open() as engine, _progress(out, "trimming") as progress:
        report = engine.maintenance.retain(
            topic, partition, policy=policy, dry_run=dry_run, progress=progress
        )
    tell("trimmed", _TRIMMED, map(asdict, report.partitions), [report], out)


@maintain.command(
    context_settings=SETTINGS,
    short_help="Forget idle producers, seal, delete what nobody needs.",
    examples=(
        "txn-engine maintain clean --dry-run",
        "txn-engine maintain clean --topic payments --partition 0",
    ),
)
@click.option(
    "--orphan-days",
    type=FiniteRange(min=0),
    default=7.0,
    metavar="DAYS",
    help="Delete a file without an entry once its upload began this long ago; its writer is refused from then on.",
)
@maintain_options
def clean(
    topic: str | None, partition: int | None, orphan_days: float, dry_run: bool, place: Place, out: Output
) -> None:
    """Forget producers idle for the store's limit, seal entries that were trimmed, delete what nobody needs.

    Deleted are files dead for 24 hours, snapshots with two newer verified ones, files that no entry ever named, and
    what is left of topics that were deleted 24 hours ago. An erasure that was cut off is finished first.
    """
    from txn_engine.maintain.policy import DAY_MS, DEFAULT_POLICY

    age_ms = int(orphan_days * DAY_MS)
    policy = replace(
        DEFAULT_POLICY, orphan_age_ms=age_ms, entries_age_ms=max(age_ms, DEFAULT_POLICY.entries_age_ms)
    )
    with place.open() as engine:
        jobs = engine.maintenance
        unfinished: TxnEngineError | None = None
        if not dry_run and partition is None and topic not in engine.config.internal_partitions:
            unfinished = _finish_erasures(engine, topic, out)
        with _progress(out, "forgetting producers") as progress:
            expired = jobs.expire_producers(topic, partition, dry_run=dry_run, progress=progress)
        with _progress(out, "sealing") as progress:
            sealed = jobs.seal(topic, partition, dry_run=dry_run, progress=progress)
        with _progress(out, "cleaning") as progress:
            cleaned = jobs.clean(topic, partition, policy=policy, dry_run=dry_run, progress=progress)
        reports: list[MaintenanceReport[Any]] = [expired, sealed, cleaned]
        removed: tuple[Removed, ...] = ()
        if partition is None:
            reports.append(jobs.remove_deleted_topics(topic, dry_run=dry_run))
            removed = reports[-1].partitions
    rows = _by_partition(expired.partitions, sealed.partitions, cleaned.partitions)
    tell("cleaned", _CLEANED, rows, reports, out, removed)
    if unfinished is not None:
        raise unfinished


def _finish_erasures(engine: Engine, topic: str | None, out: Output) -> TxnEngineError | None:
    """What others have begun; the first error of a topic where it is not done."""
    finished = engine.finish_erasures(topic)
    for done in finished:
        out.note(f"finished erasure {done.number} of {done.topic}: {done.deleted} files deleted")
        for table, why in done.withdrawn.items():
            out.note(f"the {table} table of {done.topic} cannot show what is left ({why}): it was withdrawn")
    return next((each.error for each in finished.unreadable), None)


def _by_partition(
    expired: Iterable[Expired], sealed: Iterable[Sealed], cleaned: Iterable[Cleaned]
) -> list[Row]:
    """One row a partition where any of the three did something."""
    rows: dict[tuple[str, int], dict[str, object]] = {}

    def note(done: Expired | Sealed | Cleaned, **counts: int) -> None:
        place = {"topic": done.topic, "partition": done.partition}
        row = rows.setdefault(
            (done.topic, done.partition), dict.fromkeys((c.name for c in _CLEANED), 0) | place
        )
        row |= counts

    for each in expired:
        note(each, producers=len(each.producer_ids))
    for seals in sealed:
        note(seals, seals=seals.seals)
    for gone in cleaned:
        note(
            gone, snapshots=gone.snapshots, dead_files=gone.dead_files, orphans=gone.orphans, bytes=gone.bytes,
            floor=gone.floor,
        )  # fmt: skip
    return [rows[place] for place in sorted(rows)]


@contextmanager
def _progress(out: Output, what: str) -> Iterator[Progress]:
    with out.progress(what) as advance:
        yield lambda place, done, total: advance(description=f"{what} {place}", completed=done, total=total)


def tell(
    name: str,
    table: tuple[Column, ...],
    rows: Iterable[Row],
    reports: list[MaintenanceReport[Any]],
    out: Output,
    removed: tuple[Removed, ...] = (),
) -> None:
    """Print what was done, by partition, and which deleted topics went; it failed where any partition did."""
    failures: list[PartitionFailure] = [failure for report in reports for failure in report.failures]
    shown, dry_run = list(rows), reports[0].dry_run
    if not dry_run and not failures:
        out.done()
    out.table(
        name,
        table,
        shown,
        dry_run=dry_run,
        failures=[asdict(failure) for failure in failures],
        deleted_topics=[asdict(gone) for gone in removed],
    )
    for gone in removed:
        what = f"{gone.objects} objects, {gone.bytes} bytes"
        out.note(f"deleted topic {gone.topic}, incarnation {gone.incarnation}: {what}")
    if not shown and not failures and not removed:
        out.note("nothing was due")
    elif dry_run:
        out.note("a dry run: nothing was written")
    if failures:
        first = failures[0]
        more = name_each(out, (f"{_place(each)}: {each.message}" for each in failures))
        raise CommandFailed(
            "MAINTENANCE_INCOMPLETE",
            f"not everything could be done: {_place(first)}: {first.message}{more}",
            as_json=out.as_json,
        )


def _tell_who(partitions: Sequence[Compacted], out: Output) -> None:
    """Where Spark was needed, and why; of those that this process did the first."""
    local = [done for done in partitions if done.engine == "local" and done.why]
    for done in [*(done for done in partitions if done.engine != "local"), *local[:1]]:
        more = f" and {len(local) - 1} more" if done.engine == "local" and len(local) > 1 else ""
        out.note(f"{done.topic}-{done.partition}{more} by {_BY[done.engine]}: {done.why}")


def _place(failure: PartitionFailure) -> str:
    return failure.topic if failure.partition < 0 else f"{failure.topic}-{failure.partition}"
