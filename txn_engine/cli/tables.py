"""`txn-engine tables`: topics as tables that other engines open, over the very files of the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from txn_engine.cli.command import SETTINGS, Group, Place, common_options, execute_options
from txn_engine.cli.damage import as_fields, fail_for
from txn_engine.cli.maintain import tell
from txn_engine.cli.output import PREVIEWED, Output, columns
from txn_engine.types import TABLE_FORMATS
from txn_engine.value_text import time_text

if TYPE_CHECKING:
    from txn_engine.tables import TableStatus
    from txn_engine.tables.tables import TablePublished

_STATUS = columns("TOPIC", "FORMAT", "VERSION>", "CUT>", "PUBLISHED", "BEHIND>", "PINS>", "URI")
_PUBLISHED = columns("TOPIC", "FORMAT", "VERSION-BEFORE>", "VERSION>", "CUT-BEFORE>", "CUT>")


@click.group(cls=Group, short_help="Publish topics as tables that other engines read.")
def tables() -> None:
    """Publish topics as Delta and Iceberg tables, without a copy.

    Each version of a table shows the topic at a cut: whole transactions, none that was aborted, and no record twice.
    DuckDB, Polars, Spark and others open it by its URI; writing through them is refused.
    """


def _formats(function: Any) -> Any:
    return click.option(
        "--format",
        "formats",
        multiple=True,
        type=click.Choice(TABLE_FORMATS),
        help="Only this format (repeatable).",
    )(function)


@tables.command(
    context_settings=SETTINGS,
    short_help="Let tables show a new cut.",
    examples=(
        "txn-engine tables publish payments --url file:///srv/ledger",
        "txn-engine tables publish payments --format delta --cut 12",
        "txn-engine tables publish       # the topics with tables.publish, at one cut",
    ),
)
@click.argument("topic", required=False)
@_formats
@click.option(
    "--cut", type=int, metavar="N", help="At cut N (`cuts list`); a new one is made when none is named."
)
@click.option(
    "--dry-run", is_flag=True, help="Without TOPIC: show which tables are behind, and write nothing."
)
@common_options
def publish(
    topic: str | None, formats: Sequence[str], cut: int | None, dry_run: bool, place: Place, out: Output
) -> None:
    """Publish TOPIC, or all topics whose setting tables.publish names a format.

    What is published already stays: the same cut twice is nothing, and an older cut is refused. Two at once agree.
    """
    if topic is None and formats:
        raise click.UsageError("--format needs TOPIC: others are published in the formats of tables.publish")
    if topic is not None and dry_run:
        raise click.UsageError("--dry-run and TOPIC: `tables status TOPIC` says how far it is behind")
    with place.open() as engine:
        if topic is None:
            report = engine.tables.publish_due(cut=cut, dry_run=dry_run)
            tell("tables", _PUBLISHED, map(_moved, report.partitions), [report], out)
            return
        chosen = {"formats": tuple(formats)} if formats else {}
        before = {(each.format, each.version) for each in engine.tables.status(topic) if each.is_complete}
        uris = engine.tables.publish(topic, **chosen, cut=cut)
        found = [each for each in engine.tables.status(topic) if each.format in uris]
    out.done()
    is_new = [(each.format, each.version) not in before for each in found]
    if out.as_json:
        shown = [{**each.to_dict(), "changed": new} for each, new in zip(found, is_new, strict=True)]
        out.document({"topic": topic, "tables": shown})
        return
    for each, new in zip(found, is_new, strict=True):
        told = f"{topic} as {each.format}, version {each.version}, at cut {each.cut}: {each.uri}"
        out.line(f"published {told}" if new else f"nothing to publish, nothing has changed since {told}")


@tables.command(
    context_settings=SETTINGS,
    short_help="Show which tables there are, and what they show.",
    examples=("txn-engine tables status", "txn-engine tables status payments --json"),
)
@click.argument("topic", required=False)
@common_options
def status(topic: str | None, place: Place, out: Output) -> None:
    """Show the tables of TOPIC, or of all topics.

    BEHIND counts stable offsets that the newest version does not show yet, PINS the versions whose files are kept. CUT
    is a dash for a table that was unpublished. The exit code is 1 if something is missing that the newest version of a
    table reads, or if a table names files of another store, from which this one was copied or moved.
    """
    with place.open() as engine:
        found = engine.tables.status(topic)
    rows = [_row(each, as_json=out.as_json) for each in found]
    out.table("tables", _STATUS, rows, **as_fields(found.unreadable))
    elsewhere = [each for each in found if each.elsewhere]
    for each in elsewhere:
        out.note(
            f"{each.topic} as {each.format} names its files below {each.elsewhere}: if the store was moved or copied,"
            f" readers read the files of the original; `txn-engine tables unpublish {each.topic}"
            f" --format {each.format} --execute`, then publish it again"
        )
    fail_for(found.unreadable, out)
    if elsewhere:
        raise click.exceptions.Exit(1)


@tables.command(
    context_settings=SETTINGS,
    short_help="Show a topic's tables; with --execute, unpublish them.",
    examples=(
        "txn-engine tables unpublish payments",
        "txn-engine tables unpublish payments --format delta --execute",
    ),
)
@click.argument("topic")
@_formats
@execute_options
@common_options
def unpublish(topic: str, formats: Sequence[str], execute: bool, place: Place, out: Output) -> None:
    """Show which tables of TOPIC would go; with --execute, unpublish them: their readers are refused from then on.

    Clean-up deletes the files that only the tables needed, and the topic stays as it is. If the topic is published
    again, the same table continues. Maintenance publishes a topic again if its setting tables.publish names a format.
    """
    with place.open() as engine:
        chosen = {"formats": tuple(formats)} if formats else {}
        gone = engine.tables.unpublish(topic, **chosen, dry_run=not execute)
    if execute:
        out.done()
    verb = "unpublished" if execute else "would unpublish"
    told = f"{verb} {topic}: {', '.join(gone)}" if gone else f"{topic} was not published"
    out.line(told, topic=topic, formats=gone, executed=execute)
    if gone and not execute:
        out.note(PREVIEWED)


def _moved(each: TablePublished) -> dict[str, Any]:
    numbers = ("version_before", "version", "cut_before", "cut")
    return {**asdict(each), **{name: _known(getattr(each, name)) for name in numbers}}


def _row(each: TableStatus, *, as_json: bool) -> dict[str, Any]:
    fields = each.to_dict()
    published = each.published_ms if as_json else time_text(each.published_ms)
    return {**fields, "cut": _known(each.cut), "published": published}


def _known(value: int) -> int | None:
    return None if value < 0 else value
