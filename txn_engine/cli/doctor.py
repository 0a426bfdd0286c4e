"""`txn-engine doctor`: is everything here that is needed, and does the store keep what all rests on."""

from __future__ import annotations

import os
import sys

import click

from txn_engine.cli.command import SETTINGS, Command, Place, common_options
from txn_engine.cli.output import Output


@click.command(
    cls=Command,
    short_help="Check store, credentials, clock, Java and versions.",
    context_settings=SETTINGS,
    examples=(
        "txn-engine doctor --url s3://ledger/prod --endpoint http://127.0.0.1:9000",
        "txn-engine doctor --json",
        "txn-engine doctor --conformance --url gs://ledger/prod",
    ),
)
@click.option(
    "--conformance",
    is_flag=True,
    help="Ask the store for all that the protocol needs of it (races, ranges, listings, deletes, long keys, clock), on "
    "some 1,500 small objects below probes/, which are removed. Nothing else is looked at.",
)
@common_options
def doctor(conformance: bool, place: Place, out: Output) -> None:
    """Check the store, the credentials, the clock, Java and the versions; say what to do about what is not fine.

    The store is asked to prove put-if-absent again, on probe objects that are removed. Nothing else is written, and no
    store is set up. Without --url (or TXN_ENGINE_URL) only this machine is checked. Exit code 1 when the store cannot
    be used, or does not do what --conformance asks for.
    """
    if conformance:
        from txn_engine.cli import conform

        conform.run(place, out)
        return
    from txn_engine.cli.checkup import check_machine, check_store

    checks = []
    if place.url:
        checks += check_store(place)
    checks += check_machine()
    usable = not any(check.failed for check in checks)
    if out.as_json:
        out.document({"usable": usable, "checks": [check.to_dict() for check in checks]})
    else:
        _print([(check.mark, check.name, check.seen, check.remedy) for check in checks])
        if not place.url:
            out.note("no store was named (--url or TXN_ENGINE_URL): only this machine was checked")
    if not usable:
        raise click.exceptions.Exit(1)


def _print(rows: list[tuple[str, str, str, str]]) -> None:
    """A table on a terminal; in a pipe a line each."""
    from txn_engine.names import printable

    width = max(len(name) for _, name, _, _ in rows)
    if not sys.stdout.isatty():
        for mark, name, seen, remedy in rows:
            arrow = f"  -> {remedy}" if remedy else ""
            sys.stdout.write(f"{mark} {name.ljust(width)}  {printable(seen)}{arrow}\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colours = {"✓": "green", "!": "yellow", "✗": "red"}
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for mark, name, seen, remedy in rows:
        told = Text(printable(seen))
        if remedy:
            told.append(f"\n-> {printable(remedy)}", style=colours[mark])
        table.add_row(Text(mark, style=colours[mark]), name, told)
    Console(highlight=False, no_color="NO_COLOR" in os.environ).print(table)
