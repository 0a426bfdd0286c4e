"""`txn-engine verify`: the audit of a store."""

from __future__ import annotations

import sys

import click

from txn_engine.cli.command import SETTINGS, Command, Place, common_options
from txn_engine.cli.output import Output


@click.command(
    cls=Command,
    short_help="Replay everything and check every invariant.",
    context_settings=SETTINGS,
    examples=("txn-engine verify --url file:///srv/ledger", "txn-engine verify --topic payments --json"),
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Only this topic's data (the transaction logs always). Repeatable.",
)
@click.option("--no-data", is_flag=True, help="Do not read the data files, only see that they are there.")
@common_options
def verify(topics: tuple[str, ...], no_data: bool, place: Place, out: Output) -> None:
    """Replay every log from its raw objects and check every invariant. Changes nothing.

    Exit code 1 with at least one error; each finding names the object (relative to the store), what was seen, what was
    expected, and what to do. A warning is work that a sweep will do, and is no error.
    """
    from txn_engine.clock import system_clock
    from txn_engine.log.objects import store_errors
    from txn_engine.verify import verify_store

    store = place.open_store()
    with out.progress("reading") as advance, store_errors():
        report = verify_store(
            store,
            progress=lambda what, done, total: advance(description=what, completed=done, total=total),
            now_ms=system_clock(),
            topics=topics or None,
            check_data=not no_data,
        )
    if out.as_json:
        out.document(report.to_dict())
    else:
        for finding in report.findings:
            sys.stdout.write(f"{finding}\n")
        stats = report.stats
        if stats.findings_not_listed:
            sys.stdout.write(f"... and {stats.findings_not_listed:,} more of the same kinds\n")
        errors = sum(finding.severity == "error" for finding in report.findings)
        warnings = len(report.findings) - errors
        told = _count(errors, "error") + (f", {_count(warnings, 'warning')}" if warnings else "")
        decided = ", ".join(f"{count:,} {state}" for state, count in stats.transactions.items())
        sys.stdout.write(
            f"{told} in {store.url}: {stats.objects:,} objects, {stats.records:,} records, "
            f"{len(stats.partitions):,} partitions, transactions {decided or 'none'}; {stats.seconds:.1f} s\n"
        )
    if not report.ok:
        raise click.exceptions.Exit(1)


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
