"""`txn-engine groups`: consumer groups, where they are, moving and forgetting them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from txn_engine.cli.command import SETTINGS, Group, Place, common_options, execute_options
from txn_engine.cli.damage import as_fields, fail_for
from txn_engine.cli.group_targets import Duration, Moment, at_time, shifted
from txn_engine.cli.output import PREVIEWED, Column, Output, Row, columns
from txn_engine.cli.transactions import one_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from txn_engine.admin import ResetTarget
    from txn_engine.engine import Engine
    from txn_engine.types import ForgottenOffset, GroupDescription, GroupOffset, TopicPartition

DESCRIBE = columns(
    "GROUP",
    "TOPIC",
    "PARTITION>",
    "CURRENT-OFFSET>",
    "LAST-STABLE-OFFSET>",
    "LAG>",
    "HELD-BACK>",
    "PENDING-OFFSET>",
    "PENDING-PRODUCER-ID>",
    "BEYOND-END>",
    "SKIPPED>",
)
RESET = columns("GROUP", "TOPIC", "PARTITION>", "CURRENT-OFFSET>", "NEW-OFFSET>")
FORGOTTEN = columns("GROUP", "TOPIC", "PARTITION>", "CURRENT-OFFSET>")
_MINUTE_MS = 60_000


@click.group(cls=Group)
def groups() -> None:
    """List, describe, reset and delete consumer groups."""


@groups.command("list", context_settings=SETTINGS, examples=("txn-engine groups list",))
@common_options
def list_groups(place: Place, out: Output) -> None:
    """List the groups that have offsets, committed or pending."""
    with place.open() as engine:
        found = engine.admin.list_groups()
    rows = [{"group": name} for name in found]
    out.table("groups", columns("GROUP"), rows, **as_fields(found.unreadable))
    fail_for(found.unreadable, out)


@groups.command(context_settings=SETTINGS, examples=("txn-engine groups describe balances",))
@click.argument("group", required=False)
@click.option("--group", "named", metavar="GROUP", help="The group, as kafka-consumer-groups.sh takes it.")
@common_options
def describe(group: str | None, named: str | None, place: Place, out: Output) -> None:
    """Show where GROUP is in each partition.

    LAG counts offsets up to the last stable one, which is as far as read_committed readers get. HELD-BACK counts those
    behind it, up to the end of the log: they wait for an open transaction (`topics describe` names it). A pending
    offset belongs to a transaction that is not decided yet. Offsets in a topic that was deleted have none of these.
    BEYOND-END counts the offsets from the end of the log to the group's, if that is further: the log lost its last
    entries, or somebody committed what nobody had read. SKIPPED counts the offsets that were deleted before the group
    read them, until `groups reset-offsets` moves it.
    """
    name = one_name(group, named, "GROUP")
    with place.open() as engine:
        found = engine.admin.describe_group(name)
    rows = [
        {
            "group": name,
            "topic": at.topic,
            "partition": at.partition,
            "current_offset": _known(at.committed_offset),
            "last_stable_offset": _known(at.last_stable_offset),
            "lag": _known(at.lag),
            "held_back": _known(at.held_back_offsets),
            "pending_offset": _known(at.pending_offset),
            "pending_producer_id": _known(at.pending_producer_id),
            "beyond_end": _known(at.beyond_offsets),
            "skipped": at.skipped_offsets,
        }
        for at in found.partitions
    ]
    out.table("offsets", DESCRIBE, rows, **as_fields(found.unreadable))
    _tell_missed(found.partitions, out)
    _tell_beyond(found.partitions, name, out)
    _tell_gone(found, out)
    fail_for(found.unreadable, out)


def _known(value: int) -> int | None:
    return None if value < 0 else value


@groups.command(
    "reset-offsets",
    context_settings=SETTINGS,
    short_help="Show a move of a group; with --execute, make it.",
    examples=(
        "txn-engine groups reset-offsets balances --topic payments --to-earliest",
        "txn-engine groups reset-offsets balances --topic payments:0,2 --to-offset 1000 --execute",
        "txn-engine groups reset-offsets balances --all-topics --to-cut 12 --execute",
        "txn-engine groups reset-offsets balances --topic payments --to-datetime 2026-01-31T00:00:00 --execute",
    ),
)
@click.argument("group", required=False)
@click.option("--group", "named", metavar="GROUP", help="The group, as kafka-consumer-groups.sh takes it.")
@click.option(
    "--topic",
    "scopes",
    multiple=True,
    metavar="TOPIC[:N,...]",
    help="A topic, or some partitions of it. Repeatable.",
)
@click.option(
    "--all-topics",
    is_flag=True,
    help="All partitions that the group has offsets for and that are still there.",
)
@click.option("--to-earliest", is_flag=True, help="To the first record that is still there.")
@click.option(
    "--to-latest",
    is_flag=True,
    help="To the last stable offset; records of transactions still open stay ahead.",
)
@click.option("--to-offset", type=int, metavar="OFFSET", help="To this offset, in each partition named.")
@click.option("--to-cut", type=int, metavar="N", help="Behind what is inside cut N (`cuts list`).")
@click.option(
    "--to-datetime",
    type=Moment(),
    metavar="YYYY-MM-DDTHH:mm:SS.sss",
    help="Move to the first record that is at least this new, or to the end. In UTC unless it names a zone.",
)
@click.option(
    "--by-duration",
    type=Duration(),
    metavar="PnDTnHnMnS",
    help="Like --to-datetime, with a duration before now.",
)
@click.option(
    "--shift-by",
    type=int,
    metavar="N",
    help="Move by N offsets, back if N is negative, but not past the ends of the log.",
)
@execute_options
@common_options
def reset_offsets(
    group: str | None,
    named: str | None,
    scopes: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_cut: int | None,
    to_datetime: int | None,
    by_duration: int | None,
    shift_by: int | None,
    execute: bool,
    place: Place,
    out: Output,
) -> None:
    """Show where GROUP would be moved to; with --execute, move it.

    A reader of the group that is under way meanwhile is refused at its next commit. Refused while a transaction has
    offsets of the group pending.
    """
    name = one_name(group, named, "GROUP")
    numbers = (to_offset, to_cut, to_datetime, by_duration, shift_by)
    if [to_earliest, to_latest, *(each is not None for each in numbers)].count(True) != 1:
        raise click.UsageError(
            "give one of --to-earliest, --to-latest, --to-offset, --to-cut, --to-datetime, --by-duration and --shift-by"
        )
    if bool(scopes) == all_topics:
        raise click.UsageError("give either --topic or --all-topics")
    parsed = [_scope(text) for text in scopes]
    with place.open() as engine:
        partitions = _named(engine, parsed) if parsed else _all_partitions(engine, name, out)
        end: ResetTarget = "latest" if to_latest else "earliest"
        at = end if to_offset is None else to_offset
        offsets: Mapping[TopicPartition, ResetTarget] = dict.fromkeys(partitions, at)
        if to_cut is not None:
            offsets = engine.offsets_behind_cut(to_cut, partitions)
        if by_duration is not None:
            to_datetime = engine.clock() - by_duration
        if to_datetime is not None:
            offsets = at_time(engine, partitions, to_datetime)
        if shift_by is not None:
            offsets = shifted(engine, name, partitions, shift_by)
        moves = engine.admin.reset_offsets(name, offsets, execute=execute)
    if execute:
        out.done()
    rows = [
        {
            "group": name,
            "topic": tp.topic,
            "partition": tp.partition,
            "current_offset": _known(old),
            "new_offset": new,
        }
        for tp, (old, new) in moves.items()
    ]
    _tell(RESET, rows, out, execute=execute)


def _tell(table: Sequence[Column], rows: Sequence[Row], out: Output, *, execute: bool) -> None:
    out.table("offsets", table, rows, executed=execute)
    if not execute:
        out.note(PREVIEWED)


def _scope(text: str) -> tuple[str, list[int] | None]:
    """`payments` or `payments:0,2`."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    try:
        return topic, [int(number) for number in numbers.split(",")]
    except ValueError as error:
        raise click.BadParameter(f"{text!r}; expected TOPIC or TOPIC:0,1,2", param_hint="--topic") from error


def _named(engine: Engine, scopes: list[tuple[str, list[int] | None]]) -> list[TopicPartition]:
    from txn_engine.types import TopicPartition

    found = []
    for topic, numbers in scopes:
        count = engine.admin.describe_topic(topic).partitions
        found += [TopicPartition(topic, number) for number in (range(count) if numbers is None else numbers)]
    return list(dict.fromkeys(found))


def _all_partitions(engine: Engine, group: str, out: Output) -> list[TopicPartition]:
    """Those that the group has offsets for, in topics that are still there."""
    from txn_engine.errors import InvalidRequestError
    from txn_engine.types import TopicPartition

    known = engine.admin.describe_group(group)
    gone = _gone(known)
    there = [TopicPartition(at.topic, at.partition) for at in known.partitions if at not in gone]
    if not there:
        raise InvalidRequestError(
            "all its offsets are in topics that were deleted",
            actor=f"group {group!r}",
            action="name a --topic that there is",
        )
    _tell_gone(known, out)
    return there


def _tell_missed(known: Iterable[GroupOffset], out: Output) -> None:
    missed = [f"{at.topic}-{at.partition} {at.gone_offsets}" for at in known if at.gone_offsets > 0]
    if missed:
        out.note(f"offsets of the LAG that were deleted before the group read them: {', '.join(missed)}")


def _tell_beyond(known: Iterable[GroupOffset], group: str, out: Output) -> None:
    beyond = [f"{at.topic}-{at.partition}" for at in known if at.beyond_offsets > 0]
    if beyond:
        out.note(
            f"{', '.join(beyond)}: the group is beyond the end of the log, where nobody has read;"
            f" `txn-engine verify` says whether the log lost entries, `txn-engine groups reset-offsets {group}`"
            " moves the group"
        )


def _gone(known: GroupDescription) -> list[GroupOffset]:
    """The offsets in topics that were deleted; of a partition that cannot be read nobody knows."""
    damaged = {(each.topic, each.partition) for each in known.unreadable}
    return [
        at for at in known.partitions if at.last_stable_offset < 0 and (at.topic, at.partition) not in damaged
    ]


def _tell_gone(known: GroupDescription, out: Output) -> None:
    gone = [f"{at.topic}-{at.partition}" for at in _gone(known)]
    if gone:
        out.note(
            f"{', '.join(gone)}: offsets in a topic that was deleted; they move nobody, and go with the group"
            " or by `groups expire-offsets`"
        )


@groups.command(
    context_settings=SETTINGS,
    short_help="Show what groups would lose; with --execute, delete them.",
    examples=("txn-engine groups delete balances", "txn-engine groups delete balances audit --execute"),
)
@click.argument("names", metavar="GROUP...", nargs=-1)
@click.option(
    "--group",
    "named",
    multiple=True,
    metavar="GROUP",
    help="A group, as kafka-consumer-groups.sh takes it. Repeatable.",
)
@execute_options
@common_options
def delete(names: tuple[str, ...], named: tuple[str, ...], execute: bool, place: Place, out: Output) -> None:
    """Show the offsets that each GROUP would lose; with --execute, forget them all.

    A reader of the group that is under way is refused at its next commit; a new one begins anew. Nothing is deleted
    where one of the groups is unknown, or where a transaction has offsets of one pending.
    """
    wanted = list(dict.fromkeys(names + named))
    if not wanted:
        raise click.UsageError("missing GROUP")
    with place.open() as engine:
        shown = [at for name in wanted for at in engine.admin.delete_group(name, dry_run=True)]
        if not execute:
            _tell_forgotten(shown, out, execute=False)
            return
        deleted: list[ForgottenOffset] = []
        try:
            for name in wanted:
                deleted += engine.admin.delete_group(name)
            out.done()
        finally:  # where one was used again in between, what happened to those before it is told all the same
            _tell_forgotten(deleted, out, execute=True)


@groups.command(
    "expire-offsets",
    context_settings=SETTINGS,
    short_help="Show old offsets; with --execute, forget them.",
    examples=(
        "txn-engine groups expire-offsets --retention-minutes 10080",
        "txn-engine groups expire-offsets --execute      # as the store's offsets.retention.minutes says",
    ),
)
@click.option(
    "--retention-minutes",
    type=click.IntRange(min=0),
    metavar="MINUTES",
    help="Keep what was committed more recently than that; without it: than the store's offsets.retention.minutes.",
)
@execute_options
@common_options
def expire_offsets(retention_minutes: int | None, execute: bool, place: Place, out: Output) -> None:
    """Show the offsets of all groups that were committed long ago; with --execute, forget them.

    The store's offsets.retention.minutes is -1 (never) unless somebody has set it: a group that reads once a month
    would lose its place. What a transaction has pending is left alone. A group goes with its last offset.
    """
    retention_ms = None if retention_minutes is None else retention_minutes * _MINUTE_MS
    with place.open() as engine:
        if retention_ms is None and engine.limits.offsets_retention_ms is None:
            raise click.UsageError(
                "give --retention-minutes: the store's offsets.retention.minutes is -1, for ever"
            )
        found = engine.admin.expire_group_offsets(retention_ms=retention_ms, dry_run=not execute)
    if execute:
        out.done()
    _tell_forgotten(found, out, execute=execute)
    fail_for(found.unreadable, out)


def _tell_forgotten(found: Iterable[ForgottenOffset], out: Output, *, execute: bool) -> None:
    rows = [
        {"group": at.group_id, "topic": at.topic, "partition": at.partition, "current_offset": at.offset}
        for at in found
    ]
    _tell(FORGOTTEN, rows, out, execute=execute)
