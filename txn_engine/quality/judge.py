"""Great Expectations judges what was counted: one expectation a named check, that nothing was found.

*Failed* means that the data broke the expectation; *errored* that the expectation could not be evaluated, or that its
evidence could not be had. Great Expectations reports both as `success=False`; `exception_info` tells them apart. It is
not asked about a check that does *not apply*.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txn_engine.quality.evidence import EvidenceMissingError
from txn_engine.quality.expectations import exception_in
from txn_engine.quality.result import CheckResult, Counted, Example
from txn_engine.quality.suite import NamedCheck
from txn_engine.quality.suite_asked import as_checks

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext

    from txn_engine.quality.suite_run import SuiteResult

SUITE = "exactly-once"
_PLACES = ("topic", "partition", "offset", "line", "transactional_id")
_NOTHING_SAID = "Great Expectations returned no result for this check"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One result for each named check, in their order, and what Great Expectations itself returned."""

    checks: tuple[CheckResult, ...]
    validations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    docs_failure: str = ""

    def with_suites(self, results: Sequence[SuiteResult]) -> Judgement:
        """With what the users' suites came to."""
        own = {
            f"{result.about}: {result.suite} ({number})": validation
            for result in results
            for number, validation in enumerate(result.validations, 1)
        }
        return replace(self, checks=self.checks + as_checks(results), validations={**self.validations, **own})


def judge(
    context: EphemeralDataContext,
    counted: Mapping[str, Counted | EvidenceMissingError],
    checks: Sequence[NamedCheck],
    *,
    not_applicable: Mapping[str, str],
    run_name: str,
    run_time: dt.datetime,
) -> Judgement:
    """Evaluate every check but those that do not apply, which are given by name with the reason.

    Never raises for what the data holds; `context` keeps Great Expectations' own results.
    """
    results: dict[str, CheckResult] = {}
    made: dict[str, Counted] = {}
    for check in checks:
        found = counted[check.name]
        if check.name in not_applicable:
            results[check.name] = _left_out(check, not_applicable[check.name])
        elif isinstance(found, EvidenceMissingError):
            results[check.name] = _missing(check, found)
        else:
            made[check.name] = found
    judged = [check for check in checks if check.name in made]
    validations: dict[str, Mapping[str, Any]] = {}
    if judged:
        try:
            validation = validated(context, made, judged, run_name, run_time)
        except Exception as error:  # noqa: BLE001 - whatever it is, these checks were not made: they must not pass
            results |= {check.name: _raised(check, type(error).__name__, str(error)) for check in judged}
        else:
            validations[SUITE] = dict(validation.to_json_dict())  # type: ignore[no-untyped-call]
            results |= _read_results(validation, made, judged)
    return Judgement(tuple(results[check.name] for check in checks), validations)


def validated(
    context: EphemeralDataContext,
    counted: Mapping[str, Counted],
    checks: Sequence[NamedCheck],
    run_name: str,
    run_time: dt.datetime,
) -> ExpectationSuiteValidationResult:
    """What Great Expectations says of the numbers: each check holds if its number is 0."""
    import great_expectations as gx
    from great_expectations.core import RunIdentifier
    from great_expectations.expectations.core.expect_column_max_to_be_between import (
        ExpectColumnMaxToBeBetween,
    )

    expectations = []
    for check in checks:
        notes = [f"**{check.name}**", f"A failure means: {check.meaning}", f"What to do: {check.action}"]
        expectations.append(
            ExpectColumnMaxToBeBetween(
                column=check.name,
                min_value=0,
                max_value=0,
                description=check.title,
                meta={"name": check.name, "notes": {"format": "markdown", "content": notes}},
            )
        )
    suite = gx.ExpectationSuite(name=SUITE, expectations=expectations)
    asset = context.data_sources.add_pandas("evidence").add_dataframe_asset(SUITE)
    definition = context.validation_definitions.add(
        gx.ValidationDefinition(
            name=SUITE,
            data=asset.add_batch_definition_whole_dataframe("whole"),
            suite=context.suites.add(suite),
        )
    )
    frame = pa.table({check.name: [counted[check.name].wrong] for check in checks}).to_pandas()
    return definition.run(
        batch_parameters={"dataframe": frame},
        result_format={"result_format": "SUMMARY"},
        run_id=RunIdentifier(run_name=run_name, run_time=run_time),
    )


def _read_results(
    validation: ExpectationSuiteValidationResult, counted: Mapping[str, Counted], checks: Sequence[NamedCheck]
) -> dict[str, CheckResult]:
    by_name: dict[str, ExpectationValidationResult] = {}
    for result in validation.results:
        config = result.expectation_config
        if config is not None and config.meta:
            by_name[config.meta["name"]] = result
    return {
        check.name: _read(check, counted[check.name], by_name[check.name])
        if check.name in by_name
        else _errored(check, _NOTHING_SAID)
        for check in checks
    }


def _read(check: NamedCheck, counted: Counted, result: ExpectationValidationResult) -> CheckResult:
    exception = exception_in(result.exception_info)
    if exception is not None:
        return _raised(check, "an exception", exception)
    seen = (result.result or {}).get("observed_value")
    if seen is None or int(seen) != counted.wrong or bool(result.success) != (counted.wrong == 0):
        return _errored(check, _NOTHING_SAID)
    return CheckResult(
        name=check.name,
        description=check.title,
        status="passed" if result.success else "failed",
        observed=_observed(check, counted),
        expected="0",
        total=counted.total,
        wrong=counted.wrong,
        detail=_place(counted.examples[0]) if counted.wrong and counted.examples else "",
        section=check.section,
        meaning=check.meaning,
        action=check.action,
        examples=counted.examples if counted.wrong else (),
        anomalies=_anomalies(check, counted),
        account=counted.account,
    )


def _anomalies(check: NamedCheck, counted: Counted) -> tuple[str, ...]:
    if not counted.wrong:
        return ()
    return check.anomalies if counted.anomalies is None else counted.anomalies


def _place(example: Example) -> str:
    """Where the first of them is, in words that may stand in a log or an alert: no id, account or value of a record."""
    return ", ".join(f"{name} {example[name]}" for name in _PLACES if name in example)


def _raised(check: NamedCheck, kind: str, said: str) -> CheckResult:
    """An expectation that could not be evaluated. What was said may quote the data: only the report shows it."""
    return replace(_errored(check, f"Great Expectations raised {kind}"), examples=({"said": said},))


def _missing(check: NamedCheck, missing: EvidenceMissingError) -> CheckResult:
    found = _errored(check, str(missing))
    return replace(found, examples=({"said": missing.said},)) if missing.said else found


def _errored(check: NamedCheck, why: str) -> CheckResult:
    return CheckResult(
        name=check.name,
        description=check.title,
        status="errored",
        observed="not known",
        expected="0",
        detail=why,
        section=check.section,
        meaning="The check could not be made: nothing is known about this, good or bad.",
        action="Mend what the message names, then check again.",
    )


def _left_out(check: NamedCheck, why: str) -> CheckResult:
    return CheckResult(
        name=check.name,
        description=check.title,
        status="not_applicable",
        observed="not compared",
        expected="0",
        detail=why,
        section=check.section,
        meaning=f"It compares whole histories, and part of one is gone for good: {why}.",
        action="Nothing is wrong. To have it made, check before records go: keep them for longer than the time between "
        "two checks of the whole, or give the input file and an output that keeps everything.",
    )


def _observed(check: NamedCheck, counted: Counted) -> str:
    if not check.noun:  # the audit: nobody knows how many rules might have been broken
        return f"{counted.wrong:,} {'rule' if counted.wrong == 1 else 'rules'} broken"
    found = f"{counted.wrong:,} of {counted.total:,} {check.noun} {check.fault}"
    return found if counted.account is None else f"{found}: {counted.account}"
