"""The users' suites of a declaration, held against the rows that the proof looks at, as checks of the same report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from txn_engine.errors import InvalidRequestError
from txn_engine.quality.declaration import Declaration, SuiteOn
from txn_engine.quality.evidence import Evidence, EvidenceMissingError, rows_of
from txn_engine.quality.records import Reductions
from txn_engine.quality.result import CheckResult, Example
from txn_engine.quality.suite import SUITES
from txn_engine.quality.suite_run import Asked, SuiteCheck, SuiteResult, run_suites, unmade
from txn_engine.quality.suites import Suite, load_suite
from txn_engine.sql.file_parts import OFFSET, PARTITION

if TYPE_CHECKING:
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext

Loaded = tuple[SuiteOn, Suite]


def load_suites(declaration: Declaration) -> tuple[Loaded, ...]:
    """Each suite with the rows it is for. Raises `InvalidRequestError` in one line for what is none."""
    return tuple((each, load_suite(each.checks, severity=each.severity)) for each in declaration.suites)


def hold_suites(
    loaded: Iterable[Loaded], evidence: Evidence, reductions: Reductions, context: EphemeralDataContext
) -> tuple[SuiteResult, ...]:
    """What each came to, one after another: the rows of one are in memory at a time.

    Rows that cannot be had, or are too many for who judges them, make its checks errored.
    """
    results: list[SuiteResult] = []
    for number, (scope, suite) in enumerate(loaded):
        about = _about(scope, evidence)
        try:
            rows, count = reductions.frame(
                scope.topic or evidence.check.topic, _where(scope, evidence), new_only=scope.new_only
            )
            asked = Asked(about, suite, rows, count)
            results += run_suites([asked], name=about, context=context, first=number).results
        except (EvidenceMissingError, InvalidRequestError) as error:
            results.append(unmade(about, suite, str(error)))
    return tuple(results)


def as_checks(results: Sequence[SuiteResult]) -> tuple[CheckResult, ...]:
    """The suites' checks among those of the report. One that only warns, and did not pass, is a *warning*."""
    return tuple(_as_check(result, check) for result in results for check in result.checks)


def _as_check(result: SuiteResult, check: SuiteCheck) -> CheckResult:
    is_warning = check.status != "passed" and not check.decides
    return CheckResult(
        name=f"{result.about}: {result.suite}: {check.name}",
        description=check.description or f"{check.name}, of suite {result.suite}, holds of {result.about}",
        status="warning" if is_warning else check.status,
        observed=check.counts,
        expected="as the suite says",
        total=check.total or result.rows or 0,
        wrong=check.wrong or 0,
        detail=check.why,
        section=SUITES,
        meaning="The rows are not what this suite expects."
        if check.status == "failed"
        else "The check could not be made: nothing is known about this, good or bad.",
        action="Look at the examples; mend the rows by a load of their own, or the suite where it asks for too much.",
        examples=() if check.status == "passed" else _examples(check),
    )


def _examples(check: SuiteCheck) -> tuple[Example, ...]:
    if check.examples:
        return check.examples
    said = {"observed": check.seen, "said": check.said}
    return tuple({name: text} for name, text in said.items() if text)


def _about(scope: SuiteOn, evidence: Evidence) -> str:
    topic = scope.topic or evidence.check.topic
    parts = [
        f"{partition} from {start} to {end}" for partition, (start, end) in sorted(scope.offsets.items())
    ]
    if parts:
        return f"{topic}, offsets of {'; '.join(parts)}"
    if scope.producer is not None:
        return f"{topic}, producer {scope.producer[0]} of epoch {scope.producer[1]}"
    return f"{topic}, what is new" if scope.new_only else topic


def _where(scope: SuiteOn, evidence: Evidence) -> str:
    """The rows meant, as a condition on the topic's view; empty for all of them."""
    if scope.offsets:
        return _spans((partition, start, end) for partition, (start, end) in sorted(scope.offsets.items()))
    if scope.producer is None:
        return ""
    files = rows_of(evidence, scope.topic or evidence.check.topic).files
    own = [
        (file.partition, file.first_offset, file.last_offset + 1)
        for file in files
        if (file.producer_id, file.producer_epoch) == scope.producer and file.records
    ]
    if not own:
        raise EvidenceMissingError(
            f"no committed records of producer {scope.producer[0]}, epoch {scope.producer[1]}, in a file of its own"
        )
    return _spans(own)


def _spans(spans: Iterable[tuple[int, int, int]]) -> str:
    return " OR ".join(
        f"({PARTITION} = {int(partition)} AND {OFFSET} >= {int(start)} AND {OFFSET} < {int(end)})"
        for partition, start, end in spans
    )
