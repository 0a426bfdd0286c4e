"""`txn-engine dead-letters`: rows that could not be used: how many, which, and loading them once they can be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from txn_engine.cli.command import SETTINGS, Group, Place, common_options
from txn_engine.cli.damage import as_fields, fail_for
from txn_engine.cli.failures import CommandFailed
from txn_engine.cli.output import Output, columns, number_of
from txn_engine.protocol.measures import UNKNOWN
from txn_engine.unreadable import Listing
from txn_engine.value_text import time_text

if TYPE_CHECKING:
    from txn_engine.engine import Engine
    from txn_engine.loading import DeadLetterCount
    from txn_engine.loading.replay import Replayed

_TOPICS = columns("DeadLetterTopic", "Topic", "Waiting>", "Total>", "LastFailed")
_REASONS = columns(
    "Topic", "Waiting>", "Total>", "MaxTries>", "FirstFailed", "LastFailed", "ErrorClass", "Reason"
)
_LETTERS = columns("Partition>", "Offset>", "Topic", "Source", "Tries>", "FailedAt", "Reason", "Row")
_ROW_MAX = 80
"""Characters of a letter's row in the table. JSON and `--repair` have all of it."""
LETTERS_FAILED_AGAIN = "LETTERS_FAILED_AGAIN"


@click.group(
    cls=Group, name="dead-letters", short_help="Look at rows that could not be used, and replay them."
)
def dead_letters() -> None:
    """List, show and replay dead letters.

    A row that `produce --dead-letter-topic` cannot use is a record of that topic, committed with the rows that were
    loaded. It waits until it is replayed.
    """


@dead_letters.command(
    "list",
    context_settings=SETTINGS,
    short_help="Count them, by topic and reason.",
    examples=("txn-engine dead-letters list", "txn-engine dead-letters list payments-dead"),
)
@click.argument("topic", required=False)
@common_options
def list_letters(topic: str | None, place: Place, out: Output) -> None:
    """Count the letters of all dead-letter topics, or those of TOPIC by reason, the newest first."""
    from txn_engine.loading import check_dead_letter_topic, counts, dead_letter_topics

    with place.open() as engine:
        if topic is not None:
            check_dead_letter_topic(engine, topic, topic="")
        names = Listing([topic]) if topic else dead_letter_topics(engine)
        found = {name: counts(engine, name) for name in names}
    unreadable = [*names.unreadable, *(each for reasons in found.values() for each in reasons.unreadable)]
    if topic is not None:
        rows = [_reason_row(each) for each in found[topic]]
        out.table("reasons", _REASONS, rows, dead_letter_topic=topic, **as_fields(unreadable))
    else:
        rows = [row for name, reasons in found.items() for row in _topic_rows(name, reasons)]
        out.table("dead_letter_topics", _TOPICS, rows, **as_fields(unreadable))
    fail_for(unreadable, out)


def _reason_row(reason: DeadLetterCount) -> dict[str, Any]:
    return {
        "topic": reason.topic,
        "source_topic": reason.source_topic,
        "waiting": _sum([reason.waiting]),
        "total": reason.total,
        "came_back": reason.came_back,
        "max_tries": reason.tries_max,
        "first_failed": time_text(reason.first_failed_ms),
        "last_failed": time_text(reason.last_failed_ms),
        "error_class": reason.error_class,
        "reason": reason.reason,
    }


def _topic_rows(name: str, reasons: Listing[DeadLetterCount]) -> Iterator[dict[str, Any]]:
    for target in dict.fromkeys(each.topic for each in reasons):
        mine = [each for each in reasons if each.topic == target]
        yield {
            "dead_letter_topic": name,
            "topic": target,
            "waiting": _sum(each.waiting for each in mine),
            "total": sum(each.total for each in mine),
            "last_failed": time_text(max(each.last_failed_ms for each in mine)),
        }
    if not reasons and not reasons.unreadable:
        yield {"dead_letter_topic": name, "topic": None, "waiting": 0, "total": 0}


def _sum(waiting: Iterable[int]) -> int | None:
    """None where they are not known."""
    found = list(waiting)
    return None if UNKNOWN in found else sum(found)


@dead_letters.command(
    context_settings=SETTINGS,
    short_help="Show those that wait.",
    examples=(
        "txn-engine dead-letters show payments-dead",
        "txn-engine dead-letters show payments-dead --repair > repaired.jsonl      # to be repaired, then replayed",
    ),
)
@click.argument("topic")
@click.option(
    "--max-records",
    type=click.IntRange(1),
    default=100,
    metavar="N",
    help="Show at most N letters. `--repair` shows all.",
)
@click.option(
    "--repair",
    is_flag=True,
    help="Print each as a line of JSON, its columns as the file had them, for `dead-letters replay --repaired`.",
)
@common_options
def show(topic: str, max_records: int, repair: bool, place: Place, out: Output) -> None:
    """Show the letters of TOPIC that wait to be replayed: where each is from, why it could not be used, and its row."""
    from txn_engine.loading import check_dead_letter_topic

    if repair and out.as_json:
        raise click.UsageError("--repair prints lines of JSON as it is")
    with place.open() as engine:
        check_dead_letter_topic(engine, topic, topic="")
        waiting = _waiting(engine, topic)
        if repair:
            from txn_engine.loading.letter_rows import repair_line

            for letter in waiting:
                click.echo(repair_line(letter))
            return
        rows = [
            {
                "partition": letter["_partition"],
                "offset": letter["_offset"],
                "topic": letter["topic"],
                "source": _source(letter),
                "tries": letter["tries"],
                "failed_at": time_text(letter["failed_at"]),
                "reason": letter["reason"],
                "row": _row(letter),
                "columns": letter["columns"],
                "raw": None if letter["raw"] is None else letter["raw"].decode(errors="backslashreplace"),
                "run_id": letter["run_id"],
                "error_class": letter["error_class"],
            }
            for letter, _ in zip(waiting, range(max_records), strict=False)
        ]
    out.table("dead_letters", _LETTERS, rows)


def _waiting(engine: Engine, topic: str) -> Iterator[dict[str, Any]]:
    from txn_engine.loading.dead_letters import letters_in
    from txn_engine.loading.waiting import letters, waiting_from

    for batch in letters(engine, topic, waiting_from(engine, topic)):
        yield from letters_in(batch)


def _row(letter: dict[str, Any]) -> str:
    """The row as the file had it, cut where it is long."""
    raw = (letter["raw"] or b"")[: 4 * _ROW_MAX].decode(errors="backslashreplace").rstrip()
    text = raw if letter["columns"] is None else str(letter["columns"])
    return text if len(text) <= _ROW_MAX else text[: _ROW_MAX - 3] + "..."


def _source(letter: dict[str, Any]) -> str:
    if letter["source_file"] is not None:
        return f"{letter['source_file']}:{letter['source_line']}"
    return f"{letter['source_topic']}-{letter['source_partition']}@{letter['source_offset']}"


@dead_letters.command(
    context_settings=SETTINGS,
    short_help="Load those that fit by now.",
    examples=(
        "txn-engine dead-letters replay payments-dead --dry-run",
        "txn-engine dead-letters replay payments-dead --repaired repaired.jsonl",
    ),
)
@click.argument("topic")
@click.option(
    "--repaired",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Repaired rows: lines of `dead-letters show --repair`. A letter without one is tried as it is.",
)
@click.option(
    "--without-checks", is_flag=True, help="Load rows too that fail a check of `produce --checks` alone."
)
@click.option("--dry-run", is_flag=True, help="Say what would be loaded, and what would fail again.")
@common_options
def replay(
    topic: str, repaired: Path | None, without_checks: bool, dry_run: bool, place: Place, out: Output
) -> None:
    """Load the letters of TOPIC that wait into the topics that they were meant for, and move on, in one transaction.

    Each is read as its file was, and has to pass the same checks. One that fails again comes back as a new letter, with
    one try more, and the exit code is 1. Run again it loads nothing twice: a letter that was replayed does not wait any
    more, whatever became of the answer.
    """
    from txn_engine.loading import read_repaired
    from txn_engine.loading import replay as replay_letters

    mended = None if repaired is None else read_repaired(repaired)
    with place.open() as engine:
        done = replay_letters(engine, topic, repaired=mended, without_checks=without_checks, dry_run=dry_run)
    if not dry_run:
        out.done()
    out.line(
        _told(done, has_repaired=mended is not None, dry_run=dry_run),
        dead_letter_topic=topic,
        letters=done.letters,
        records=done.records,
        failed_again=done.failed_again,
        reason=done.reason or None,
        replayed_before=done.before,
        waiting=done.waiting if done.before else done.failed_again,
        dry_run=dry_run,
    )
    _fail_for(done, out, dry_run=dry_run)


def _told(done: Replayed, *, has_repaired: bool, dry_run: bool) -> str:
    """What a replay did, in one sentence."""
    if done.before and has_repaired:
        return f"nothing to replay: all letters that the file names were replayed before ({done.dead_letter_topic})"
    if done.before:
        return f"nothing to replay: no letter of {done.dead_letter_topic} waits"
    loaded, failed = (
        ("would be loaded", "would fail again") if dry_run else ("loaded in one transaction", "failed again")
    )
    letters = number_of(done.letters, "letter")
    return f"{letters}: {done.records:,} {loaded}, {done.failed_again:,} {failed}"


def _fail_for(done: Replayed, out: Output, *, dry_run: bool) -> None:
    """Fail if letters wait after the replay that was asked for."""
    fresh = f"repair them as `txn-engine dead-letters show {done.dead_letter_topic} --repair` shows them now"
    if done.failed_again:
        failed = "would fail" if dry_run else "failed"
        which = f"{done.failed_again:,} of {number_of(done.letters, 'letter')} {failed} again"
        raise CommandFailed(
            LETTERS_FAILED_AGAIN,
            f"{which}, the first because: {done.reason}; {fresh} [{LETTERS_FAILED_AGAIN}]",
            as_json=out.as_json,
        )
    if done.waiting:
        which = number_of(done.waiting, "letter")
        raise CommandFailed(
            LETTERS_FAILED_AGAIN,
            f"{which} failed again in an earlier replay, which gave them new offsets, so the file does not name them; "
            f"{fresh} [{LETTERS_FAILED_AGAIN}]",
            as_json=out.as_json,
        )
