"""`txn-engine erase`: a person's records, gone for good from everything that a topic has."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from txn_engine.cli.backup import backups_endpoint, open_backups
from txn_engine.cli.command import SETTINGS, Command, Place, common_options, execute_options
from txn_engine.cli.failures import CommandFailed
from txn_engine.cli.output import PREVIEWED, Output, columns, number_of
from txn_engine.value_text import time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from txn_engine.erasing import ErasureReport, FormerFound

_FOUND = columns(
    "PARTITION>", "SEARCHED-TO>", "RECORDS>", "ALL-RECORDS>", "LIVE-FILES>", "DEAD-FILES>", "UNNAMED-FILES>"
)
_NAMED_MAX = 20


@click.command(
    cls=Command,
    context_settings=SETTINGS,
    short_help="Show which records would go; with --execute, erase them for good.",
    examples=(
        'txn-engine erase --topic payments --where "account_id = 42"',
        'txn-engine erase --topic payments --where "account_id = 42" --backup s3://ledger-backups --execute',
        "txn-engine erase --topic payments --where - --execute < condition.sql",
    ),
)
@click.argument("topic_name", metavar="[TOPIC]", required=False)
@click.option("--topic", metavar="TOPIC", help="The topic.")
@click.option(
    "--where",
    required=True,
    metavar="CONDITION",
    help="Which records: a condition in SQL on the topic's columns. -: read it from stdin, where nobody sees it in a "
    "list of processes.",
)
@click.option("--everything", is_flag=True, help="Also where no record of the topic would be left.")
@click.option(
    "--backup",
    "backup_url",
    metavar="URL",
    help="Where this store's backups are: those that hold any of the records are named.",
)
@backups_endpoint
@execute_options
@common_options
def erase(
    topic_name: str | None,
    topic: str | None,
    where: str,
    execute: bool,
    everything: bool,
    backup_url: str | None,
    backup_endpoint: str | None,
    place: Place,
    out: Output,
) -> None:
    """Show how many records of TOPIC a condition chooses; with --execute, erase them from all the topic's files: also
    from those that were merged, were aborted, or are kept for cuts.

    The condition and what it looks at are written nowhere:
    the store keeps offsets and files. Cuts and older versions of tables are without the records from then on. What was
    cut off goes on when the command runs again, or at the next clean-up. What the topic has left from before it was
    deleted goes whole where it holds any. Exit code 1 where something holds some still, such as the old versions that a
    bucket with versioning keeps of what is deleted.
    """
    name = topic or topic_name
    if name is None or (topic is not None and topic_name is not None):
        raise click.UsageError("name the topic, once: --topic TOPIC")
    condition = sys.stdin.buffer.read().decode(errors="surrogateescape") if where == "-" else where
    with place.open() as engine, out.progress("searching") as advance:
        report = engine.erase(
            name,
            condition,
            execute=execute,
            everything=everything,
            backups=None
            if backup_url is None
            else open_backups(backup_url, backup_endpoint, place, create=False),
            progress=lambda what, done, total: advance(description=what, completed=done, total=total),
        )
    if report.executed:
        out.done()
    rows = [
        {name: getattr(each, name) for name in (column.name for column in _FOUND)}
        for each in report.partitions
    ]
    out.table("partitions", _FOUND, rows, **{k: v for k, v in report.to_dict().items() if k != "partitions"})
    _tell(report, out)
    if report.executed and report.still_held:
        raise CommandFailed(
            "ERASURE_INCOMPLETE",
            _incomplete(report),
            as_json=out.as_json,
        )


def _incomplete(report: ErasureReport) -> str:
    first, count = report.still_held[0], len(report.still_held)
    more = f"; so may {number_of(count - 1, 'more place')}" if count > 1 else ""
    return f"some of the records are still held: {first.place}, until {first.until}{more}"


def _tell(report: ErasureReport, out: Output) -> None:
    for number in report.finished_before:
        out.note(f"finished erasure {number}, which was begun before")
    chosen = f"{report.records:,} of the {number_of(report.all_records, 'record')} of topic {report.topic}"
    if report.executed:
        numbers = ", ".join(map(str, report.erasures)) or "none was needed"
        out.note(
            f"erased {chosen} (erasure: {numbers}): {number_of(report.files, 'file')} rewritten or let go, "
            f"{report.deleted:,} deleted, {number_of(report.deleted_bytes, 'byte')}"
        )
    else:
        out.note(f"{chosen} would be erased")
    for what, named in (("cuts", report.cuts), ("pins of", report.pins)):
        if named:
            verb = "are without them now" if report.executed else "would be without them"
            out.note(f"{what} {_some(named)} {verb}")
    for table, version in report.tables.items():
        out.note(
            f"the {table} table is without them from version {version} on; files of earlier ones are gone"
        )
    for former in report.former:
        _tell_former(former, report, out)
    if report.leftovers.gone:
        verb = "are gone" if report.executed else "would go"
        out.note(f"{report.leftovers.gone:,} temporary files and folders of programs that were killed {verb}")
    if report.executed and report.leftovers.folders:  # before, they say nothing about these records
        out.note(
            f"on this machine {_some(report.leftovers.folders)} may hold some: "
            "they go with the program that has them, or by hand"
        )
    for table, why in report.withdrawn.items():
        verb = "was withdrawn" if report.executed else "would be withdrawn"
        out.note(
            f"the {table} table cannot show what is left ({why}): it {verb}, and no reader takes it then. "
            "Publish another format, or copy the topic into another one, and publish that: txn-engine topics copy"
        )
    for held in report.still_held:
        count = "some" if held.records < 0 else f"{held.records:,}"
        out.note(f"still held: {held.place}: {count} of the records, until {held.until}")
    if not report.executed:
        out.note(PREVIEWED)


def _tell_former(former: FormerFound, report: ErasureReport, out: Output) -> None:
    """What the topic has left of before it was deleted."""
    seen = f"incarnation {former.incarnation} of the topic, deleted {time_text(former.deleted_ms)}"
    if not former.records:
        out.note(f"{seen}: holds none of the records")
        return
    count = "some, or cannot be searched" if former.records < 0 else f"{former.records:,} of the records"
    done = f"it is gone whole, {former.removed:,} objects" if report.executed else "it would go whole"
    cuts = f"; cuts {_some(former.cuts)} are without it" if former.cuts else ""
    out.note(f"{seen}: holds {count}; {done}{cuts}")


def _some(named: Sequence[object]) -> str:
    more = f" and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else ""
    return ", ".join(map(str, named[:_NAMED_MAX])) + more
