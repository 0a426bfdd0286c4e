"""`txn-engine bench`: the numbers, each against its bare limit."""

from __future__ import annotations

import click

from txn_engine.cli.command import SETTINGS, Command, Place, common_options
from txn_engine.cli.output import Output


@click.command(
    cls=Command,
    short_help="The numbers, each against its bare limit.",
    context_settings=SETTINGS,
    examples=(
        "txn-engine bench",
        "txn-engine bench --quick --json",
        "txn-engine bench --url s3://ledger/bench --endpoint http://127.0.0.1:9000",
    ),
)
@click.option("--quick", is_flag=True, help="Fewer rounds and records: a first look, with more noise.")
@common_options
def bench(quick: bool, place: Place, out: Output) -> None:
    """Measure appends, transactions, large batches and scans, each against the bare limit in the same run.

    Without --url (or TXN_ENGINE_URL) it works on the local disk, in a folder of its own that is removed at the end.
    """
    from txn_engine.bench import run_bench

    place.to_environment()
    code = run_bench(url=place.url, json_output=out.as_json, console=out.console(), quick=quick)
    raise click.exceptions.Exit(code)
