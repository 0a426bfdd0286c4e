"""The console script `txn-engine`: every command, and how the process ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from txn_engine.cli import interrupts
from txn_engine.cli.bench import bench
from txn_engine.cli.command import SETTINGS, Root
from txn_engine.cli.consume import consume
from txn_engine.cli.coordinator import coordinator
from txn_engine.cli.demo import demo
from txn_engine.cli.doctor import doctor
from txn_engine.cli.dump_log import dump_log
from txn_engine.cli.failures import EXIT_BROKEN_PIPE, OutputClosed, tell_error
from txn_engine.cli.groups import groups
from txn_engine.cli.maintain import maintain
from txn_engine.cli.produce import produce
from txn_engine.cli.topics import topics
from txn_engine.cli.transactions import transactions
from txn_engine.cli.verify import verify

PROGRAM = "txn-engine"


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib import metadata

    try:
        version = metadata.version(PROGRAM)
    except metadata.PackageNotFoundError:
        version = "(from its source, not installed)"
    click.echo(f"{PROGRAM} {version}")
    ctx.exit()


@click.group(cls=Root, context_settings=SETTINGS)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
def cli() -> None:
    """Kafka's exactly-once transactions as Parquet files on an object store, with no broker.

    Every command takes the store as --url, or from TXN_ENGINE_URL: file:///folder or s3://bucket/prefix.
    `COMMAND --help` shows examples. Exit codes: 0 done, 1 not done, 2 wrong call, 130 and 143 stopped by Ctrl-C and
    SIGTERM.
    """


for command in (
    demo,
    doctor,
    topics,
    produce,
    consume,
    transactions,
    groups,
    coordinator,
    verify,
    dump_log,
    maintain,
    bench,
):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    interrupts.install()
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    try:
        code = _run(given)
        sys.stdout.flush()
    except interrupts.Interrupted as stopped:
        tell_error("INTERRUPTED", str(stopped), as_json="--json" in given)
        return stopped.exit_code
    except (OutputClosed, BrokenPipeError):
        # What is still buffered has nowhere to go; without this the interpreter complains when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    return code


def _run(arguments: list[str]) -> int:
    try:
        cli.main(arguments, prog_name=PROGRAM)
    except SystemExit as ended:
        code = ended.code
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    sys.exit(main())
