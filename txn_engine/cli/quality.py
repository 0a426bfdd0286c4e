"""`txn-engine quality`: the proof of exactly-once, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from txn_engine.cli.command import SETTINGS, Group, Place, common_options
from txn_engine.cli.output import Output, columns

if TYPE_CHECKING:
    from txn_engine.quality import Declaration, QualityResult

_CHECKS = columns("Check", "Status", "Observed", "Where")
_MEANINGS = columns("Check", "Section", "Title", "Meaning", "Action")


@click.group(cls=Group, short_help="Prove that a topic and its outputs came out exactly once.")
def quality() -> None:
    """Prove from what the store holds that a topic, and what consumers made of it, came out exactly once.

    The proof reads only. It leaves a report that opens in any browser, without a network.
    """


@quality.command(
    context_settings=SETTINGS,
    short_help="Run the checks and write the report.",
    examples=(
        "txn-engine quality run payments --record-id trans_id",
        "txn-engine quality run payments --declaration payments.yaml --report reports/tonight",
        "txn-engine quality run payments --record-id trans_id --input trans.csv --json",
    ),
)
@click.argument("topic")
@click.option(
    "--record-id",
    "record_id",
    multiple=True,
    metavar="COLUMN",
    help="A column that tells one record from another; repeat it where only several do together.",
)
@click.option(
    "--declaration",
    "declaration_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A YAML file that says what ties outputs to the topic; without one the topic is checked alone.",
)
@click.option(
    "--input",
    "input_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The delimited file that the topic was loaded from: compared row by row.",
)
@click.option(
    "--report",
    "report_folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Where the report goes; by default txn-engine-reports/TOPIC here. An earlier one there is replaced.",
)
@click.option(
    "--memory-mb",
    type=click.IntRange(min=900),
    default=1_500,
    show_default=True,
    metavar="MB",
    help="Memory for everything that the checks need; what does not fit goes to a temporary folder.",
)
@common_options
def run(
    topic: str,
    record_id: tuple[str, ...],
    declaration_file: Path | None,
    input_file: Path | None,
    report_folder: Path | None,
    memory_mb: int,
    place: Place,
    out: Output,
) -> None:
    """Check TOPIC, and the outputs that a declaration names, and write the report.

    Without a declaration: no record twice, none aborted or undecided visible, offsets in order, every hidden record
    explained, and a replay of the whole store that breaks no rule. Exit code 1 when a check fails or cannot be made.
    """
    from txn_engine.quality import check_exactly_once
    from txn_engine.quality.in_process import InProcess

    declaration = _declaration(topic, record_id, declaration_file)
    folder = report_folder or Path("txn-engine-reports") / topic
    with (
        place.open() as engine,
        out.progress("checking") as advance,
        InProcess(engine.store, memory_bytes=memory_mb * 1_000_000) as reducer,
    ):
        result = check_exactly_once(
            engine,
            declaration,
            input_file=input_file,
            report_folder=folder,
            reducer=reducer,
            progress=lambda text: advance(description=text),
        )
    _tell(result, reducer.name, out)
    if not result.success:
        raise click.exceptions.Exit(1)


def _declaration(topic: str, record_id: tuple[str, ...], file: Path | None) -> Declaration:
    from txn_engine.quality import Declaration, read_declaration

    if file is None:
        if not record_id:
            raise click.UsageError("give --record-id COLUMN, or --declaration FILE")
        return Declaration(topic, record_id)
    declared = read_declaration(file)
    if declared.topic != topic:
        raise click.UsageError(f"{file} declares topic {declared.topic!r}, not {topic!r}")
    if record_id and record_id != declared.record_id:
        raise click.UsageError(
            f"{file} has the record id {', '.join(declared.record_id)}: leave --record-id out"
        )
    return declared


def _tell(result: QualityResult, engine: str, out: Output) -> None:
    rows = [
        {"check": check.name, "status": check.status, "observed": check.observed, "where": check.detail}
        for check in result.checks
    ]
    out.table(
        "checks",
        _CHECKS,
        rows,
        success=result.success,
        engine=engine,
        report=str(result.report),
        results=str(result.json),
        statistics=dict(result.statistics),
    )
    counted = result.statistics
    verdict = "proven" if result.success else "not proven"
    out.note(
        f"exactly once: {verdict}; {counted['passed']} of {counted['checks']} checks passed, "
        f"{counted['failed']} failed, {counted['errored']} not made, {counted['not_applicable']} not applicable; "
        f"{counted['seconds']:.1f} s, {engine}"
    )
    out.note(f"report: {result.report}")


@quality.command(
    context_settings=SETTINGS,
    short_help="Say what a check means, and what to do when it fails.",
    examples=("txn-engine quality explain", "txn-engine quality explain record_ids_unique --json"),
)
@click.argument("check", required=False)
@common_options
def explain(check: str | None, place: Place, out: Output) -> None:  # noqa: ARG001 - as every command takes it
    """Say what CHECK means and what to do when it fails; without a name, every one. Looks at no store."""
    from txn_engine.quality import declaration as declared
    from txn_engine.quality.suite import named_checks

    sums = declared.Totals(by={"KEY": "KEY"}, sums={"SUM": declared.Amount("AMOUNT")}, count="COUNT")
    output = declared.Output("OUTPUT", sums)
    example = declared.Declaration("TOPIC", ("ID",), (output,), group_id="GROUP")
    checks = named_checks(example, has_input=True)
    chosen = [each for each in checks if check in (None, each.name)]
    if not chosen:
        raise click.UsageError(
            f"there is no check {check!r}: there are {', '.join(each.name for each in checks)}"
        )
    rows = [
        {
            "check": each.name,
            "section": each.section,
            "title": each.title,
            "meaning": each.meaning,
            "action": each.action,
        }
        for each in chosen
    ]
    out.table("checks", _MEANINGS, rows)
