"""`txn-engine new-store-id`: a copy of a store becomes a store of its own."""

from __future__ import annotations

import click

from txn_engine.cli.command import SETTINGS, Command, Place, common_options, execute_options
from txn_engine.cli.output import PREVIEWED, Output


@click.command(
    cls=Command,
    context_settings=SETTINGS,
    short_help="Make a copy of a store's files a store of its own.",
    examples=(
        "txn-engine new-store-id --url file:///srv/ledger-copy",
        "txn-engine new-store-id --url s3://ledger-copy --execute",
    ),
)
@click.option(
    "--watch",
    type=click.IntRange(0, 3_600),
    default=6,
    show_default=True,
    metavar="SECONDS",
    help="Watch the logs this long, and refuse if one grows.",
)
@execute_options
@common_options
def new_store_id(watch: int, execute: bool, place: Place, out: Output) -> None:
    """Give the copy of a store that --url names an id of its own; the original stays as it is.

    Run this after `cp -a` or a copy of the bucket, before anybody uses the copy. Two stores with one id are taken for
    one: by backups, and by databases and checkpoints that remember positions. The command may be run again. Whoever has
    the copy open is refused from then on, and connects again.
    """
    with place.open() as engine:
        done = engine.take_new_id(execute=execute, watch_ms=watch * 1_000)
    if execute:
        out.done()
    of = f"store {done.former_id} at {done.url}"
    told = f"{of} is now store {done.store_id}" if execute else f"{of} would get a new id"
    out.line(
        told,
        url=done.url,
        former_id=done.former_id,
        store_id=done.store_id or None,
        executed=done.executed,
    )
    if not execute:
        out.note(PREVIEWED)
