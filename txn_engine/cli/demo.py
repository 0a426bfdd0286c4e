"""`txn-engine demo`: real payments through the whole platform."""

from __future__ import annotations

from pathlib import Path

import click

from txn_engine.cli.command import SETTINGS, Command, Place, common_options
from txn_engine.cli.output import Output


@click.command(
    cls=Command,
    short_help="The whole pipeline on real payments, in one run.",
    context_settings=SETTINGS,
    examples=(
        "txn-engine demo",
        "txn-engine demo --input trans.csv --url s3://ledger/demo --endpoint http://127.0.0.1:9000",
    ),
)
@click.option(
    "--input",
    "input_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=(
        "Payments of your own, as the Berka bank file trans.csv has them; else 50,000 that the "
        "demo makes itself."
    ),
)
@common_options
def demo(input_file: Path | None, place: Place, out: Output) -> None:
    """Load payments, kill producers, sweep, sum with Spark, and prove that every payment counted exactly once.

    Without --url (or TXN_ENGINE_URL) it works on an embedded store, in a folder that it names. About a minute there.
    """
    from txn_engine.demo import run_demo

    place.to_environment()
    code = run_demo(url=place.url, input_file=input_file, json_output=out.as_json, console=out.console())
    raise click.exceptions.Exit(code)
