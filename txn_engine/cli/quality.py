"""`txn-engine quality`: the proof of exactly-once, by hand."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from txn_engine.cli.command import SETTINGS, Group, Place, common_options
from txn_engine.cli.output import Output, columns
from txn_engine.cli.spark_session import spark_of_command, spark_settings

if TYPE_CHECKING:
    from txn_engine.engine import Engine
    from txn_engine.quality import Declaration, QualityResult
    from txn_engine.quality.proof import Proof, ProofShelf
    from txn_engine.quality.reducer import Reducer
    from txn_engine.types import EngineChoice

_CHECKS = columns("Check", "Status", "Observed", "Where")
_PROOFS = columns("Proof>", "Created", "Verdict", "Scope", "Records>", "Checks", "Run")
_OUTCOMES = columns("Check", "Status", "Wrong>", "Total>")
_RANGES = columns("Topic", "Partition>", "Start>", "End>", "Records>", "Digest", "SchemaVersion>")
_MEANINGS = columns("Check", "Section", "Title", "Meaning", "Anomalies", "Action")


@click.group(cls=Group, short_help="Prove that a topic and its outputs came out exactly once.")
def quality() -> None:
    """Prove from what the store holds that a topic, and what consumers made of it, came out exactly once.

    It leaves a report that opens in any browser, without a network, and a proof on the store that the next run goes on
    from.
    """


@quality.command(
    context_settings=SETTINGS,
    short_help="Run the checks and write the report.",
    examples=(
        "txn-engine quality run payments --record-id trans_id",
        "txn-engine quality run payments --declaration payments.yaml --report reports/tonight",
        "txn-engine quality run payments --record-id trans_id --input trans.csv --json",
        "txn-engine quality run payments --record-id trans_id --suite amounts.json",
        "txn-engine quality run payments --declaration payments.yaml --cut 12",
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
    "--suite",
    "suite_files",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A suite of Great Expectations, held against TOPIC's committed rows beside our checks; may be repeated. A "
    "declaration says more: outputs, offsets, severity.",
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
@click.option(
    "--engine",
    "chosen",
    type=click.Choice(["auto", "local", "spark"]),
    default="auto",
    help="Who reduces the records to what is judged: this process, Spark, or Spark above --spark-above.",
)
@click.option(
    "--spark-above",
    type=click.IntRange(min=0),
    default=1_000_000_000,
    metavar="RECORDS",
    help="With --engine auto: this process takes so many records, of all topics together.",
)
@click.option(
    "--spark-conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of Spark's, such as spark.master. Repeatable.",
)
@click.option(
    "--whole",
    is_flag=True,
    help="Look at every record again, and hold it against earlier proofs; else only at what is new since the last one.",
)
@click.option(
    "--cut",
    type=click.IntRange(min=0),
    metavar="N",
    help="Judge what is inside cut N, as it was then; the verdict stays the same as long as the cut is kept.",
)
@click.option(
    "--no-record", is_flag=True, help="Write nothing to the store: look at everything, keep no proof."
)
@common_options
def run(
    topic: str,
    record_id: tuple[str, ...],
    declaration_file: Path | None,
    input_file: Path | None,
    suite_files: tuple[Path, ...],
    report_folder: Path | None,
    memory_mb: int,
    chosen: EngineChoice,
    spark_above: int,
    spark_conf: tuple[str, ...],
    whole: bool,
    cut: int | None,
    no_record: bool,
    place: Place,
    out: Output,
) -> None:
    """Check TOPIC, and the outputs that a declaration names, and write the report.

    Without a declaration: no record twice, none aborted or undecided visible, offsets in order, every hidden record
    explained, and a replay of the raw logs that breaks no rule. Exit code 1 when a check fails or cannot be made.

    The proof is kept on the store; the next one of the same declaration looks only at what is new, and carries on.
    """
    from txn_engine.extras import need

    need("quality", *(["spark"] if chosen == "spark" else []), actor="quality run")
    from txn_engine.quality import SuiteOn, check_exactly_once

    settings = spark_settings(spark_conf)
    declaration = _declaration(topic, record_id, declaration_file)
    suites = tuple(SuiteOn(file) for file in suite_files)
    declaration = replace(declaration, suites=declaration.suites + suites)
    folder = report_folder or Path("txn-engine-reports") / topic
    with out.progress("starting", unit="steps") as advance, place.open() as engine, ExitStack() as stack:
        from txn_engine.quality.choosing import chosen_reducer

        reducer = stack.enter_context(
            chosen_reducer(
                chosen,
                engine,
                declaration,
                spark=lambda: _spark_reducer(place, engine, settings),
                spark_above=spark_above,
                memory_bytes=memory_mb * 1_000_000,
                tell=lambda text: advance(description=text),
            )
        )
        result = check_exactly_once(
            engine,
            declaration,
            input_file=input_file,
            report_folder=folder,
            reducer=reducer,
            record=not no_record,
            whole=whole,
            cut=cut,
            progress=lambda text: advance(description=text),
        )
    _tell(result, reducer.name, out)
    if not result.success:
        raise click.exceptions.Exit(1)


@contextmanager
def _spark_reducer(place: Place, engine: Engine, settings: Mapping[str, str]) -> Iterator[Reducer]:
    from txn_engine.spark.reducing import SparkReducer

    place.to_environment()
    with (
        spark_of_command(engine.url, "txn-engine quality run", settings) as session,
        SparkReducer(session, engine.store) as reducer,
    ):
        yield reducer


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
        {
            "check": check.name,
            "status": check.status,
            "observed": check.observed,
            "where": check.detail,
            "anomalies": list(check.anomalies),
        }
        for check in result.checks
    ]
    out.table(
        "checks",
        _CHECKS,
        rows,
        success=result.success,
        anomalies=list(result.anomalies),
        engine=engine,
        report=str(result.report),
        results=str(result.json),
        statistics=dict(result.statistics),
        proof=None if result.proof is None else _proof_row(result.proof),
        cut=result.cut_named,
    )
    counted = result.statistics
    verdict = "proven" if result.success else "not proven"
    verdict += "" if result.cut is None else f" as of cut {result.cut}"
    out.note(
        f"exactly once: {verdict}; {counted['passed']} of {counted['checks']} checks passed, "
        f"{counted['failed']} failed, {counted['errored']} not made, {counted['not_applicable']} not applicable"
        f"{_warned(counted['warnings'])}; "
        f"{counted['seconds']:.1f} s, {engine}"
    )
    if result.anomalies:
        out.note(f"signs of: {', '.join(result.anomalies)}")
    if result.proof is not None:
        out.note(f"kept as proof {result.proof.number}: {result.proof.scope}")
    out.note(f"report: {result.report}")


def _warned(count: object) -> str:
    return f", {count} warned" if count else ""


def _when(time_ms: int) -> str:
    return dt.datetime.fromtimestamp(time_ms / 1_000, dt.UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _proof_row(proof: Proof) -> dict[str, object]:
    passed = sum(check.status == "passed" for check in proof.checks)
    return {
        "proof": proof.number,
        "created": _when(proof.created_ms),
        "verdict": "proven" if proof.success else "not proven",
        "scope": proof.scope,
        "records": sum(each.digest.rows for each in proof.ranges),
        "checks": f"{passed} of {len(proof.checks)}",
        "run": proof.run_name,
        "first": proof.first,
        "since": proof.since,
        "cut": None if proof.cut < 0 else proof.cut,
        "engine": proof.engine,
    }


@quality.command(
    context_settings=SETTINGS,
    short_help="List the proofs of a topic.",
    examples=("txn-engine quality history payments",),
)
@click.argument("topic")
@common_options
def history(topic: str, place: Place, out: Output) -> None:
    """List the proofs of TOPIC that the store keeps, the earliest first.

    Exit code 1 where one is missing, damaged, or does not follow the one before it.
    """
    from txn_engine.errors import TxnEngineError

    rows: list[dict[str, object]] = []
    faults: list[str] = []
    with place.open() as engine:
        shelf = _shelf(engine, topic)
        numbers = shelf.numbers()
        before = ""
        for expected, number in zip([*numbers[:1], *(each + 1 for each in numbers)], numbers, strict=False):
            if number != expected:
                faults.append(f"proof {expected} is missing")
                before = ""
            try:
                proof, found = shelf.read(number)
            except TxnEngineError as error:
                faults.append(str(error))
                before = ""
                continue
            if before and proof.parent != before:
                faults.append(f"proof {number} does not follow proof {number - 1} as it is now")
            before = found
            rows.append(_proof_row(proof))
    out.table("proofs", _PROOFS, rows, faults=faults)
    for fault in faults:
        out.note(fault)
    if faults:
        raise click.exceptions.Exit(1)


@quality.command(
    context_settings=SETTINGS,
    short_help="Show one proof: its checks, and what it went over.",
    examples=("txn-engine quality show payments 3",),
)
@click.argument("topic")
@click.argument("number", type=click.IntRange(min=0))
@common_options
def show(topic: str, number: int, place: Place, out: Output) -> None:
    """Show proof NUMBER of TOPIC: checks, and by partition the offsets proved so far, their records' digest, and the
    version of the topic's columns that it goes by.
    """
    with place.open() as engine:
        proof, _ = _shelf(engine, topic).read(number)
    checks = [
        {"check": each.name, "status": each.status, "wrong": each.wrong, "total": each.total}
        for each in proof.checks
    ]
    ranges = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "start": each.start_offset,
            "end": each.end_offset,
            "records": each.digest.rows,
            "digest": each.digest.hex,
            "schema_version": each.schema_version,
        }
        for each in proof.ranges
    ]
    if out.as_json:
        positions = {str(partition): offset for partition, offset in proof.positions.items()}
        out.document({**_proof_row(proof), "results": checks, "ranges": ranges, "positions": positions})
        return
    out.table("proof", _PROOFS, [_proof_row(proof)])
    out.blank()
    out.table("checks", _OUTCOMES, checks)
    out.blank()
    out.table("ranges", _RANGES, ranges)


def _shelf(engine: Engine, topic: str) -> ProofShelf:
    from txn_engine.quality.proof import ProofShelf

    return ProofShelf(engine.logs.tools.objects, topic, engine.admin.describe_topic(topic).incarnation)


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
    copy = declared.Output("COPY", declared.SameRows({"ID": "ID"}), dead_letter_topic="DEAD_LETTERS")
    outputs = declared.Output("OUTPUT", sums), copy
    example = declared.Declaration(
        "TOPIC", ("ID",), outputs, group_id="GROUP", dead_letter_topic="DEAD_LETTERS"
    )
    checks = named_checks(example, has_input=True, has_chain=True)
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
            "anomalies": ", ".join(each.anomalies),
            "action": each.action,
        }
        for each in chosen
    ]
    out.table("checks", _MEANINGS, rows)
