"""The console script `txn-engine`: every command, and how the process ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from txn_engine.cli import interrupts
from txn_engine.cli.backup import backup, restore
from txn_engine.cli.bench import bench
from txn_engine.cli.command import SETTINGS, Root
from txn_engine.cli.configs import configs
from txn_engine.cli.consume import consume
from txn_engine.cli.coordinator import coordinator
from txn_engine.cli.cuts import cuts
from txn_engine.cli.dead_letters import dead_letters
from txn_engine.cli.demo import demo
from txn_engine.cli.doctor import doctor
from txn_engine.cli.dump_log import dump_log
from txn_engine.cli.erase import erase
from txn_engine.cli.failures import EXIT_BROKEN_PIPE, EXIT_FAILED, EXIT_NOT_TOLD, OutputClosed, tell_error
from txn_engine.cli.groups import groups
from txn_engine.cli.maintain import maintain
from txn_engine.cli.new_store_id import new_store_id
from txn_engine.cli.produce import produce
from txn_engine.cli.quality import quality
from txn_engine.cli.sql import sql
from txn_engine.cli.tables import tables
from txn_engine.cli.topics import topics
from txn_engine.cli.transactions import transactions
from txn_engine.cli.verify import verify
from txn_engine.installed import PROGRAM


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from txn_engine.installed import version

    click.echo(f"{PROGRAM} {version()}")
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

    Every command takes the store as --url, or from TXN_ENGINE_URL: file:///folder or a bucket's.
    `COMMAND --help` shows examples. Exit codes: 0 done, 1 not done, 2 wrong call, 3 done but stdout did not take
    the report, 130 and 143 stopped by Ctrl-C and SIGTERM.
    """


for command in (
    demo,
    doctor,
    topics,
    produce,
    dead_letters,
    consume,
    sql,
    transactions,
    groups,
    configs,
    cuts,
    tables,
    erase,
    backup,
    restore,
    new_store_id,
    coordinator,
    verify,
    quality,
    dump_log,
    maintain,
    bench,
):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    interrupts.install()
    given = list(sys.argv[1:] if arguments is None else arguments)
    _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    code = EXIT_FAILED
    try:
        code = _run(given)
        sys.stdout.flush()
    except interrupts.Interrupted as stopped:
        tell_error("INTERRUPTED", str(stopped), as_json="--json" in given)
        return stopped.exit_code
    except (OutputClosed, BrokenPipeError):
        _drop_buffered()
        return code if code == EXIT_NOT_TOLD else EXIT_BROKEN_PIPE
    except OSError as error:
        _drop_buffered()
        if not code:
            tell_error("IO_ERROR", f"stdout: {error.strerror} [IO_ERROR]", as_json="--json" in given)
        return code or EXIT_FAILED
    return code


def _replace_closed_streams() -> None:
    """Python has None for a stream that was closed at the start. What goes to stdout is not taken then, as by any
    program that writes to a closed one; what would be told on stderr is dropped.
    """
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _drop_buffered() -> None:
    """What stdout still holds has nowhere to go; without this the interpreter complains when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    try:
        cli.main(arguments, prog_name=PROGRAM)
    except SystemExit as ended:
        code = ended.code
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    sys.exit(main())
