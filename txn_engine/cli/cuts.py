"""`txn-engine cuts`: one vector of offsets over all topics and groups, to read everything together as it was then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from txn_engine.cli.command import SETTINGS, FiniteRange, Group, Place, common_options, execute_options
from txn_engine.cli.damage import as_fields, fail_for
from txn_engine.cli.output import PREVIEWED, Output, columns, number_of
from txn_engine.value_text import time_text

if TYPE_CHECKING:
    from txn_engine.engine import Engine
    from txn_engine.log.cut_format import Cut

_LIST = columns("CUT>", "CREATED", "EXPIRES", "TOPICS", "PARTITIONS>")
_OFFSETS = columns("TOPIC", "PARTITION>", "OFFSET>")
_CHANGES = columns("TOPIC", "PARTITION>", "START-OFFSET>", "END-OFFSET>", "RECORDS>")
_MOVES = columns("GROUP", "TOPIC", "PARTITION>", "BEFORE>", "AFTER>")
_DAY_MS = 86_400_000


@click.group(cls=Group, short_help="Read all topics and groups together, as they were.")
def cuts() -> None:
    """Make, list, compare and delete cuts.

    A cut is an offset in each partition such that every committed transaction lies wholly below it or wholly at or
    above it, in all its partitions and groups. What is needed to read as of a cut is kept until it is deleted:
    compaction, retention and clean-up go on beside it.
    """


@cuts.command(
    context_settings=SETTINGS,
    short_help="Make a cut of all topics, or of some.",
    examples=(
        "txn-engine cuts create --keep-days 7 --url file:///srv/ledger",
        "txn-engine cuts create --topic payments --topic balances",
    ),
)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only these topics (repeatable).")
@click.option(
    "--keep-days",
    type=FiniteRange(min=0, min_open=True, max=36_500),
    metavar="DAYS",
    help="Let clean-up delete it after so long; without this it stays until `cuts delete`.",
)
@common_options
def create(topics: Sequence[str], keep_days: float | None, place: Place, out: Output) -> None:
    """Make a cut and print its number. Producers go on meanwhile."""
    keep_ms = None if keep_days is None else max(1, int(keep_days * _DAY_MS))
    with place.open() as engine:
        made = engine.cut(topics or None, keep_ms=keep_ms)
    out.done()
    out.line(
        f"created cut {made.number} of {number_of(len(made.topics), 'topic')}, "
        f"{number_of(len(made.offsets), 'partition')}",
        **_fields(made),
    )


@cuts.command("list", context_settings=SETTINGS, examples=("txn-engine cuts list",))
@common_options
def list_cuts(place: Place, out: Output) -> None:
    """List the cuts that there are, the oldest first.

    A snapshot that a cut reads and that is missing is named, and the command fails. `cuts describe` looks for data
    files too.
    """
    with place.open() as engine:
        found = engine.cuts()
        wrong = [*found.unreadable, *engine.missing_of_cuts(found, with_files=False)]
    rows = [_listed(cut, as_json=out.as_json) for cut in found]
    out.table("cuts", _LIST, rows, **as_fields(wrong))
    fail_for(wrong, out)


@cuts.command(context_settings=SETTINGS, examples=("txn-engine cuts describe 12",))
@click.argument("number", type=int)
@common_options
def describe(number: int, place: Place, out: Output) -> None:
    """Show the offset of cut NUMBER in each partition: records below it are inside.

    A snapshot or a data file that the cut reads and that is missing is named, and the command fails.
    """
    with place.open() as engine:
        cut = engine.find_cut(number)
        wrong = engine.missing_of_cuts([cut])
    rows = [
        {"topic": at.topic, "partition": at.partition, "offset": offset} for at, offset in cut.offsets.items()
    ]
    out.table("offsets", _OFFSETS, rows, **_fields(cut), **as_fields(wrong))
    fail_for(wrong, out)


@cuts.command(
    context_settings=SETTINGS,
    short_help="Show what became visible between two cuts.",
    examples=("txn-engine cuts diff 12 13",),
)
@click.argument("earlier", type=int)
@click.argument("later", type=int)
@common_options
def diff(earlier: int, later: int, place: Place, out: Output) -> None:
    """Show what cut LATER has that cut EARLIER has not: records by partition, and where groups have moved.

    RECORDS are those that are read there as of LATER; a dash where the topic was deleted since. Positions are as of
    each cut; a dash where a group had none.
    """
    with place.open() as engine:
        changes = engine.cut_changes(earlier, later)
    partitions = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "start_offset": each.start_offset,
            "end_offset": each.end_offset,
            "records": _known(each.records),
        }
        for each in changes.partitions
    ]
    moves = [
        {
            "group": each.group_id,
            "topic": each.topic,
            "partition": each.partition,
            "before": _known(each.before),
            "after": _known(each.after),
        }
        for each in changes.positions
    ]
    if out.as_json:
        out.document({"partitions": partitions, "groups": moves, "gone_topics": list(changes.gone)})
        return
    out.table("partitions", _CHANGES, partitions)
    if moves:
        out.blank()
        out.table("groups", _MOVES, moves)
    if changes.gone:
        out.note(f"topics that were deleted, or made again, in between: {', '.join(changes.gone)}")


@cuts.command(
    context_settings=SETTINGS,
    short_help="Show a cut; with --execute, delete it.",
    examples=("txn-engine cuts delete 12", "txn-engine cuts delete 12 --execute"),
)
@click.argument("number", type=int)
@execute_options
@common_options
def delete(number: int, execute: bool, place: Place, out: Output) -> None:
    """Show cut NUMBER; with --execute, delete it, also if it is damaged.

    What only this cut needs is deleted by `maintain clean`, 24 hours later.
    """
    with place.open() as engine:
        if execute:
            engine.delete_cut(number)
        else:
            shown = _shown(engine, number)
    if execute:
        out.done()
        out.line(f"deleted cut {number}", number=number, executed=True)
        return
    out.line(f"would delete cut {number}: {shown}", number=number, executed=False)
    out.note(PREVIEWED)


def _shown(engine: Engine, number: int) -> str:
    """What the cut is, in a few words. One that is damaged can be deleted too."""
    from txn_engine.errors import CorruptObjectError, UnsupportedFormatError

    try:
        cut = engine.find_cut(number)
    except (CorruptObjectError, UnsupportedFormatError) as error:
        return f"it is damaged ({error.seen})"
    expiry = "never expires" if cut.expires_ms < 0 else f"expires {time_text(cut.expires_ms)}"
    return f"{number_of(len(cut.topics), 'topic')}, created {time_text(cut.created_ms)}, {expiry}"


def _known(value: int) -> int | None:
    return None if value < 0 else value


def _fields(cut: Cut) -> dict[str, Any]:
    return {
        "number": cut.number,
        "created_ms": cut.created_ms,
        "expires_ms": _known(cut.expires_ms),
        "every_topic": cut.every_topic,
        "topics": [each.topic for each in cut.topics],
    }


def _listed(cut: Cut, *, as_json: bool) -> dict[str, Any]:
    if as_json:
        return {**_fields(cut), "cut": cut.number, "partitions": len(cut.offsets)}
    names = "all" if cut.every_topic else ", ".join(each.topic for each in cut.topics)
    return {
        "cut": cut.number,
        "created": time_text(cut.created_ms),
        "expires": "never" if cut.expires_ms < 0 else time_text(cut.expires_ms),
        "topics": names,
        "partitions": len(cut.offsets),
    }
