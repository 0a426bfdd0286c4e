"""`txn-engine coordinator`: the jobs that the DAGs run, one at a time and by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from txn_engine.cli.command import SETTINGS, Group, Place, check_partition_has_topic, common_options
from txn_engine.cli.damage import as_fields, fail_for, name_each
from txn_engine.cli.failures import CommandFailed
from txn_engine.cli.output import Output, columns

if TYPE_CHECKING:
    from txn_engine.types import SweepReport


@click.group(cls=Group, short_help="The jobs that the DAGs run, by hand.")
def coordinator() -> None:
    """Run the coordinator's jobs by hand: what Airflow's DAGs do on a schedule.

    Each may run at any time, also beside another run of itself: a second one finds nothing left to do.
    """


@coordinator.command(
    context_settings=SETTINGS,
    short_help="Abort every transaction that has timed out.",
    examples=("txn-engine coordinator sweep",),
)
@common_options
def sweep(place: Place, out: Output) -> None:
    """Abort every transaction that has been open for longer than its timeout.

    Its producer is fenced, its abort markers are written, and read_committed readers get past it.
    """
    with place.open() as engine:
        report = engine.coordinator.abort_timed_out_transactions()
    _tell(report, "aborted", "transaction", out)


@coordinator.command(
    context_settings=SETTINGS,
    short_help="Write the markers of every decided transaction.",
    examples=("txn-engine coordinator markers",),
)
@common_options
def markers(place: Place, out: Output) -> None:
    """Write the markers of every transaction that is decided but not complete, however young."""
    with place.open() as engine:
        report = engine.coordinator.write_pending_markers()
    _tell(report, "completed", "transaction", out)


@coordinator.command(
    context_settings=SETTINGS,
    short_help="Expire transactional ids that have been idle for long.",
    examples=("txn-engine coordinator expire",),
)
@common_options
def expire(place: Place, out: Output) -> None:
    """Expire transactional ids that have been idle for the store's limit (7 days). Their run ids stay known."""
    with place.open() as engine:
        report = engine.coordinator.expire_transactional_ids()
    _tell(report, "expired", "transactional id", out)


@coordinator.command(
    context_settings=SETTINGS,
    short_help="Write snapshots where logs have grown.",
    examples=(
        "txn-engine coordinator snapshot",
        "txn-engine coordinator snapshot --topic payments --partition 0",
    ),
)
@click.option(
    "--topic", metavar="TOPIC", help="Only this topic; all, and the internal ones, when none is named."
)
@click.option("--partition", type=int, metavar="N", help="Only this partition of the topic.")
@common_options
def snapshot(topic: str | None, partition: int | None, place: Place, out: Output) -> None:
    """Write snapshots where logs have grown, so that opening them stays quick."""
    check_partition_has_topic(topic, partition)
    with place.open() as engine:
        written = engine.admin.snapshot(topic, partition)
    if not written.unreadable:
        out.done()
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "offset": offset}
        for tp, offset in sorted(written.items())
    ]
    fields = as_fields(written.unreadable)
    out.table("snapshots", columns("Topic", "Partition>", "Offset>"), rows, **fields)
    fail_for(written.unreadable, out)
    if not rows:
        out.note("no log has grown since its last snapshot")


def _tell(report: SweepReport, done: str, what: str, out: Output) -> None:
    """Print what a sweep did; it failed where any of it could not be finished."""
    if not report.failures:
        out.done()
    count = len(report.transactional_ids)
    names = f": {', '.join(report.transactional_ids)}" if count else ""
    marked = report.partitions_marked
    markers = f"; {marked} partition{'' if marked == 1 else 's'} marked" if marked else ""
    out.line(
        f"{done} {count} {what}{'' if count == 1 else 's'}{names}{markers}",
        transactional_ids=list(report.transactional_ids),
        partitions_marked=report.partitions_marked,
        objects_written=report.objects_written,
        failures=list(report.failures),
    )
    if report.failures:
        more = name_each(out, report.failures)
        raise CommandFailed(
            "SWEEP_INCOMPLETE",
            f"not everything could be finished, run it again: {report.failures[0]}{more}",
            as_json=out.as_json,
        )
