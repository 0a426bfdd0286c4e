"""`txn-engine verify`: the audit of a store."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from txn_engine.cli.command import SETTINGS, Command, Place, common_options
from txn_engine.cli.output import Output, columns, number_of
from txn_engine.cli.spark_session import spark_of_command, spark_settings
from txn_engine.names import printable

if TYPE_CHECKING:
    from txn_engine.verify import Finding, VerifyReport

_EVERY = "all"
_EXPLAIN = columns("Code", "Severity", "Checks", "Meaning", "Action")


@click.command(
    cls=Command,
    short_help="Replay everything and check every invariant.",
    context_settings=SETTINGS,
    examples=(
        "txn-engine verify --url file:///srv/ledger",
        "txn-engine verify --topic payments --json",
        "txn-engine verify --state /var/lib/ledger-audit",
        "txn-engine verify --explain entry-missing",
    ),
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Only this topic's data (the transaction logs always). Repeatable.",
)
@click.option("--no-data", is_flag=True, help="Do not read the data files, only see that they are there.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Keep in this folder what a sound audit found, and read only what is new or was written again since the last. "
    "Each store has a folder of its own; only you may write to it.",
)
@click.option("--whole", is_flag=True, help="With --state: read everything all the same.")
@click.option(
    "--processes",
    type=click.IntRange(0, 256),
    default=None,
    metavar="N",
    help="Processes that decode what is read, once that has taken a second. "
    "Default: one more than there are processors; 0: none.",
)
@click.option(
    "--engine",
    "chosen",
    type=click.Choice(["local", "spark"]),
    default="local",
    help="Who audits the partitions: this machine, or Spark, a task for each.",
)
@click.option(
    "--spark-conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of Spark's, such as spark.master. Repeatable.",
)
@click.option(
    "--explain",
    metavar="[CODE]",
    is_flag=False,
    flag_value=_EVERY,
    help="Audit nothing: say what a finding means and what to do about it; without a code, every one.",
)
@common_options
def verify(
    topics: tuple[str, ...],
    no_data: bool,
    state: Path | None,
    whole: bool,
    processes: int | None,
    chosen: str,
    spark_conf: tuple[str, ...],
    explain: str | None,
    place: Place,
    out: Output,
) -> None:
    """Replay every log from its raw objects and check every invariant. Changes nothing.

    Exit code 1 with at least one error; each finding names the object (relative to the store), the offsets, the
    producer, since when (the log's time), what was seen, what was expected, and what to do. A warning is work that a
    sweep will do, or an object that is not the store's, and is no error.
    """
    if explain is not None:
        _explain(explain, out)
        return
    if whole and state is None:
        raise click.UsageError("--whole says what to do with what is kept: it needs --state FOLDER")
    if state is not None and (topics or no_data):
        raise click.UsageError(
            "--state keeps what an audit of the whole store found: not with --topic or --no-data"
        )
    settings = spark_settings(spark_conf)
    if chosen == "spark" and (state is not None or processes):
        raise click.UsageError(
            "--engine spark keeps nothing and starts no process here: not with --state, --processes"
        )
    from txn_engine.clock import system_clock
    from txn_engine.log.objects import store_errors
    from txn_engine.verify import verify_store
    from txn_engine.verify.restored_root import store_within

    with store_errors():
        store = store_within(place.open_store())
    with ExitStack() as stack:
        elsewhere = None
        if chosen == "spark":
            from txn_engine.spark.auditing import SparkTasks

            place.to_environment()
            elsewhere = SparkTasks(
                stack.enter_context(spark_of_command(store.url, "txn-engine verify", settings))
            )
        advance = stack.enter_context(out.progress("reading"))
        stack.enter_context(store_errors())
        report = verify_store(
            store,
            progress=lambda what, done, total: advance(description=what, completed=done, total=total),
            now_ms=system_clock(),
            topics=topics or None,
            check_data=not no_data,
            elsewhere=elsewhere,
            processes=(os.cpu_count() or 1) + 1 if processes is None else processes,
            kept_in=state,
            whole=whole,
        )
    if out.as_json:
        looked_at = {"topics": list(topics) or None, "contents_of_data_files": not no_data}
        out.document({**report.to_dict(), "looked_at": looked_at})
    else:
        _tell(report, store.url, _left_out(topics, no_data=no_data))
    if not report.ok:
        raise click.exceptions.Exit(1)


def _explain(wanted: str, out: Output) -> None:
    from txn_engine.verify import CODES

    if wanted not in CODES and wanted != _EVERY:
        raise click.UsageError(f"there is no finding {wanted!r}: there are {', '.join(CODES)}")
    chosen = CODES if wanted == _EVERY else {wanted: CODES[wanted]}
    rows = [{"code": name, **code._asdict()} for name, code in chosen.items()]
    out.table("findings", _EXPLAIN, rows)


def _left_out(topics: Sequence[str], *, no_data: bool) -> str:
    """What was looked at, where that is not the whole store; "" where it is."""
    told = []
    if topics:
        names = ", ".join(printable(each) for each in topics)
        told.append(
            f"only {'topic' if len(topics) == 1 else 'topics'} {names}, the groups and the transactions were looked at"
        )
    if no_data:
        told.append("data files were listed and not read")
    return "; ".join(told)


def _tell(report: VerifyReport, url: str, left_out: str) -> None:
    for finding in report.findings:
        text = _block(finding) if sys.stdout.isatty() else printable(str(finding))
        sys.stdout.write(f"{text}\n")
    stats = report.stats
    if stats.findings_not_listed:
        sys.stdout.write(f"... and {stats.findings_not_listed:,} more of the same kinds\n")
    errors = sum(finding.severity == "error" for finding in report.findings)
    warnings = len(report.findings) - errors
    told = _count(errors, "error") + (f", {_count(warnings, 'warning')}" if warnings else "")
    live = sum(partition.records.get("live", 0) for partition in stats.partitions)
    decided = ", ".join(f"{count:,} {state}" for state, count in stats.transactions.items())
    where = f"what was looked at of {printable(url)} ({left_out})" if left_out else printable(url)
    sys.stdout.write(
        f"{told} in {where}: {number_of(stats.objects, 'object')}, {number_of(live, 'committed record')}, "
        f"{number_of(len(stats.partitions), 'partition')}, transactions {decided or 'none'}; {stats.seconds:.1f} s\n"
    )
    if stats.unchanged:
        sys.stdout.write(f"{stats.unchanged:,} further objects are as the last audit read them\n")
    elif stats.whole_for:
        sys.stdout.write(f"everything was read: {stats.whole_for}\n")


def _block(finding: Finding) -> str:
    """A finding for a person at a terminal: what and where, then a line for each thing to know."""
    colour = "red" if finding.severity == "error" else "yellow"
    head = f"{click.style(f'{finding.severity} {finding.code}', fg=colour, bold=True)}  {printable(finding.object)}"
    lines = {"where": finding.where, "seen": finding.seen, "expected": finding.expected, "do": finding.action}
    told = (f"  {name:<9} {printable(text)}" for name, text in lines.items() if text)
    return "\n".join((head, *told)) + "\n"


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
