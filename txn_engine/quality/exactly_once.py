"""The whole run: gather the evidence, judge it, write the report."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import functools
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txn_engine.errors import InvalidRequestError, OutcomeUnknownError
from txn_engine.extras import need
from txn_engine.quality.declaration import Declaration
from txn_engine.quality.report_files import (
    DOCS_NAME,
    JSON_NAME,
    REPORT_NAME,
    made_folder,
    path_of,
    write_whole,
)
from txn_engine.reasons import Reason

if TYPE_CHECKING:
    from txn_engine.engine import Engine
    from txn_engine.log.cut_format import Cut
    from txn_engine.quality.evidence import Evidence
    from txn_engine.quality.judge import Judgement
    from txn_engine.quality.proof import Proof
    from txn_engine.quality.records import Reductions
    from txn_engine.quality.reducer import Reducer
    from txn_engine.quality.result import CheckResult, QualityResult
    from txn_engine.quality.standpoint import Standpoint
    from txn_engine.quality.suite_asked import Loaded
    from txn_engine.types import TopicPartition

Progress = Callable[[str], None]
Keep = Callable[[Sequence["CheckResult"], str], "Proof"]
"""Puts the proof of these checks, of a run of that name, on the store."""


def check_exactly_once(
    engine: Engine,
    declaration: Declaration,
    *,
    input_file: str | os.PathLike[str] | None = None,
    report_folder: str | os.PathLike[str],
    run_name: str | None = None,
    reducer: Reducer | None = None,
    record: bool = False,
    whole: bool = False,
    cut: Cut | int | None = None,
    progress: Progress | None = None,
) -> QualityResult:
    """Prove, from what the store holds, that a topic and its consumers' outputs came out exactly once.

    With `input_file` the records are compared with the file row by row; without it, only with themselves.
    `reducer` goes through the rows: in this process by default, within 1.5 GB of memory and the rest on disk.

    `record`: keep the proof on the store, as a link of the topic's chain, and take what an earlier one has looked at
    as proved; `whole`: look at everything again, and hold it against the chain. With an input file everything is looked
    at. Without `record` nothing is written to the store.

    All checks are about one cut of these topics, so that loads and consumers may go on meanwhile: what is outside of it
    counts on neither side. `cut`: one that is kept, as it was then; as long as it is kept the verdict and the digests
    stay the same, whatever is written, compacted or cleaned meanwhile. Without it the run makes one of its own, which
    nothing keeps, and which report and JSON name by its offsets; what was under way at that cut and has not ended by
    the end of the run makes a check fail. The audit is of the store as it is now. Where damage lets no cut be made,
    topics are read as they are.

    What the data holds never raises: it makes checks fail. A part that cannot be read makes its checks *errored*; where
    retention or compaction by key has taken records away those that compare whole histories are *not applicable* (that
    no row of the file is missing: only while no more are than records may be gone).
    Raises, before anything is written, for a wrong call: an unknown topic or cut, a column that is not there, what does
    not compare exactly, an input file that is not whole. `report_folder` is made; an earlier report there is replaced.
    """
    need("quality", actor=_ACTOR)
    from txn_engine.quality.in_process import InProcess
    from txn_engine.quality.proving import NumberTakenError
    from txn_engine.quality.standpoint import AtCut, fresh_cut
    from txn_engine.quality.suite_asked import load_suites

    started = time.perf_counter()
    tell = progress or _silent
    if not isinstance(declaration, Declaration):
        raise InvalidRequestError(
            f"a declaration of type {type(declaration).__name__}", actor=_ACTOR, expected="a Declaration"
        )
    folder = path_of(report_folder, "report_folder", actor=_ACTOR)
    file = None if input_file is None else path_of(input_file, "input_file", actor=_ACTOR)
    suites = load_suites(declaration)
    at = fresh_cut(engine, declaration) if cut is None else AtCut(engine, engine.find_cut(cut), declaration)
    for _ in range(_TRIES):
        with contextlib.ExitStack() as held:
            reduces = reducer or held.enter_context(InProcess(engine.store))
            evidence, keep = _gathered(
                engine, declaration, file, reduces, tell, at, record=record, whole=whole
            )
            try:
                return report_evidence(
                    evidence,
                    reduces,
                    report_folder=folder,
                    run_name=run_name,
                    suites=suites,
                    keep=keep,
                    progress=tell,
                    started=started,
                )
            except NumberTakenError as taken:
                tell(f"proof {taken.number} was another run's: going on from there")
                at.look_again()
    raise OutcomeUnknownError(
        f"the next proof of {declaration.topic}, {_TRIES} times",
        actor=_ACTOR,
        expected="a number that no other prover takes meanwhile",
        reason=Reason.NUMBER_TAKEN,
        action="check again when no other run is under way",
    )


def _gathered(
    engine: Engine,
    declaration: Declaration,
    input_file: Path | None,
    reducer: Reducer,
    tell: Progress,
    at: Standpoint,
    *,
    record: bool,
    whole: bool,
) -> tuple[Evidence, Keep | None]:
    """The evidence, and what keeps its proof; the part that is new where an earlier proof may be gone on from."""
    from txn_engine.quality.gather import gather
    from txn_engine.quality.proving import Prover

    if not record:
        return gather(
            engine, declaration, input_file=input_file, reducer=reducer, progress=tell, since={}, at=at
        ), None
    prover = Prover(engine, declaration, at, whole=whole or input_file is not None)
    tell(_told(prover.link.base, prover.since))
    evidence = gather(
        engine,
        declaration,
        input_file=input_file,
        reducer=reducer,
        progress=tell,
        at=at,
        since=prover.since,
        again=prover.again,
    )
    if prover.is_behind(evidence):
        why = f"group {declaration.group_id} has moved back behind what was proved"
        if at.cut is not None and at.cut.is_kept:
            why = f"cut {at.cut.cut} lies before what was proved"
        prover.begin_anew(why)
        tell(f"looking at everything: {why}")
        evidence = gather(
            engine, declaration, input_file=None, reducer=reducer, progress=tell, since={}, at=at
        )
    evidence = prover.held_against_the_chain(evidence, reducer)
    return evidence, functools.partial(prover.keep, evidence, engine=reducer.name)


_TRIES = 5
_ACTOR = "exactly-once check"


def _told(base: Proof | None, since: Mapping[TopicPartition, int]) -> str:
    if base is None or not since:
        return "looking at everything"
    return f"going on from proof {base.number}"


def report_evidence(
    evidence: Evidence,
    reducer: Reducer,
    *,
    report_folder: Path,
    run_name: str | None = None,
    suites: Sequence[Loaded] = (),
    keep: Keep | None = None,
    progress: Progress | None = None,
    started: float | None = None,
) -> QualityResult:
    """Judge evidence that is at hand and write its report; `started` is when the run began (`time.perf_counter`).

    `suites` are the declaration's. `keep(checks, run_name)` makes a proof of it, which the report names.
    """
    from txn_engine.quality.counting import count
    from txn_engine.quality.data_docs import build_data_docs
    from txn_engine.quality.expectations import import_great_expectations, new_context
    from txn_engine.quality.history import not_applicable
    from txn_engine.quality.judge import judge
    from txn_engine.quality.records import Reductions
    from txn_engine.quality.suite import named_checks
    from txn_engine.quality.suite_asked import hold_suites

    begun = time.perf_counter() if started is None else started
    tell = progress or _silent
    run_time = dt.datetime.fromtimestamp(evidence.gathered_ms / 1000, dt.UTC)
    run_name = run_name or f"{evidence.check.topic} {run_time:%Y-%m-%d %H:%M:%S}"
    checks = named_checks(
        evidence.check,
        has_input=evidence.input is not None,
        has_chain=evidence.chain is not None,
        at_cut=evidence.is_of_kept_cut,
    )
    tell(f"counting what {len(checks)} checks judge, {reducer.name}")
    reductions = Reductions(evidence, reducer)
    with ThreadPoolExecutor(max_workers=1) as beside:  # its import takes seconds of one core
        imported = beside.submit(import_great_expectations)
        counted = count(evidence, reductions)
        imported.result()
    folder = made_folder(report_folder, actor=_ACTOR)
    tell(f"judging {len(checks)} checks with Great Expectations")
    context = new_context()
    judgement = judge(
        context,
        counted,
        checks,
        not_applicable=not_applicable(evidence, counted),
        run_name=_file_name(run_name),
        run_time=run_time,
    )
    if suites:
        tell(f"holding {len(suites)} of your suites against their rows")
        judgement = judgement.with_suites(hold_suites(suites, evidence, reductions, context))
    proof = keep(judgement.checks, run_name) if keep else None
    tell("writing the report")
    judgement = dataclasses.replace(judgement, docs_failure=build_data_docs(context, folder / DOCS_NAME))
    return _write_report(
        evidence, reductions, judgement, proof, folder, run_name, time.perf_counter() - begun
    )


def _write_report(
    evidence: Evidence,
    reductions: Reductions,
    judgement: Judgement,
    proof: Proof | None,
    folder: Path,
    run_name: str,
    seconds: float,
) -> QualityResult:
    from txn_engine.quality.report import make_page, render
    from txn_engine.quality.result import QualityResult
    from txn_engine.quality.suite import skipped_checks

    page = make_page(
        evidence,
        judgement.checks,
        reductions,
        run_name=run_name,
        proof=proof,
        seconds=seconds,
        skipped=skipped_checks(
            evidence.check,
            has_input=evidence.input is not None,
            not_in_file=evidence.columns_not_in_file,
            cut=evidence.as_of.cut if evidence.as_of is not None and evidence.as_of.is_kept else None,
        ),
        evidence_json=JSON_NAME,
        data_docs="" if judgement.docs_failure else f"{DOCS_NAME}/{REPORT_NAME}",
    )
    result = QualityResult(
        success=page.success,
        checks=judgement.checks,
        report=folder / REPORT_NAME,
        json=folder / JSON_NAME,
        statistics=_statistics(evidence, judgement.checks, seconds),
        run_name=run_name,
        proof=proof,
        cut=evidence.as_of.cut if evidence.as_of is not None and evidence.as_of.is_kept else None,
        cut_offsets={} if evidence.as_of is None else evidence.as_of.offsets,
    )
    told = json.dumps(_as_json(result, run_name, evidence, judgement), indent=1, default=str)
    write_whole(result.json, told, actor=_ACTOR)
    write_whole(
        result.report, render(page), actor=_ACTOR
    )  # last: where the page is, everything it links to is
    return result


def _statistics(
    evidence: Evidence, checks: Sequence[CheckResult], seconds: float
) -> Mapping[str, int | float | str]:
    """The numbers of the run by name; -1 for what could not be had."""
    from txn_engine.quality.report import hidden_records, visible_records

    counts = Counter(check.status for check in checks)
    topic = evidence.check.topic
    committed, aborted = visible_records(evidence, topic), hidden_records(evidence, topic, "aborted")
    return {
        "checks": len(checks),
        "passed": counts["passed"],
        "failed": counts["failed"],
        "errored": counts["errored"],
        "not_applicable": counts["not_applicable"],
        "warnings": counts["warning"],
        "input_rows": -1 if evidence.input is None else evidence.input.count,
        "committed_records": -1 if committed is None else committed,
        "aborted_records": -1 if aborted is None else aborted,
        "dead_letters": sum(check.account.dead_letters for check in checks if check.account is not None),
        "findings": len(evidence.findings),
        "seconds": round(seconds, 3),
    }


def _as_json(
    result: QualityResult, run_name: str, evidence: Evidence, judgement: Judgement
) -> dict[str, Any]:
    return {
        "run_name": run_name,
        "cut": result.cut_named,
        "gathered_ms": evidence.gathered_ms,  # the time of the report, on its page and in Great Expectations' results
        "success": result.success,
        "statistics": dict(result.statistics),
        "proof": None if result.proof is None else _proof_as_json(result.proof),
        "checks": [asdict(check) for check in result.checks],
        "great_expectations": dict(judgement.validations),
        "data_docs_failure": judgement.docs_failure,
    }


def _proof_as_json(proof: Proof) -> dict[str, Any]:
    return {"number": proof.number, "first": proof.first, "since": proof.since, "scope": proof.scope}


def _file_name(run_name: str) -> str:
    """The run's name as Great Expectations may use it for a folder: nothing that leads out of one."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", run_name).strip("-")[:80] or "run"


def _silent(_: str) -> None:
    """For those who want no progress."""
