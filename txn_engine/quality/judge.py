"""Great Expectations judges the frames: one validation a batch, one result a named check.

*Failed* means that the data broke the expectation; *errored* that the expectation could not be evaluated, or that its
evidence could not be had. Great Expectations reports both as `success=False`; `exception_info` tells them apart. It is
not asked about a check that does *not apply*.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txn_engine.quality.canonical import row_differences
from txn_engine.quality.evidence import EvidenceMissingError
from txn_engine.quality.expectations import new_context
from txn_engine.quality.result import CheckResult
from txn_engine.quality.suite import NamedCheck

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
    from great_expectations.datasource.fluent.pandas_datasource import PandasDatasource

EXAMPLES_MAX = 20
_PLACES = ("topic", "partition", "offset", "line", "transactional_id")
_NOTHING_SAID = "Great Expectations returned no result for this check"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One result for each named check, in their order, and what Great Expectations itself returned for each batch."""

    checks: tuple[CheckResult, ...]
    validations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    docs_failure: str = ""


def judge(
    frames: Mapping[str, pa.Table | EvidenceMissingError],
    checks: Sequence[NamedCheck],
    *,
    not_applicable: Mapping[str, str],
    run_name: str,
    run_time: dt.datetime,
    docs: Callable[[EphemeralDataContext], None] | None = None,
) -> Judgement:
    """Evaluate every check but those that do not apply, which are given by name with the reason.

    Never raises for what the data holds; `docs` is called while the results are at hand.
    """
    context = new_context()
    source = context.data_sources.add_pandas("evidence")
    left_out = [check for check in checks if check.name in not_applicable]
    results = {check.name: _left_out(check, not_applicable[check.name]) for check in left_out}
    made = [check for check in checks if check.name not in not_applicable]
    validations: dict[str, Mapping[str, Any]] = {}
    for batch in dict.fromkeys(check.batch for check in made):
        mine = [check for check in made if check.batch == batch]
        frame = frames[batch]
        if isinstance(frame, EvidenceMissingError):
            results |= {check.name: _errored(check, str(frame)) for check in mine}
            continue
        try:
            validation = _validate(context, source, batch, frame, mine, run_name, run_time)
        except Exception as error:  # noqa: BLE001 - whatever it is, these checks were not made: they must not pass
            results |= {check.name: _raised(check, type(error).__name__, str(error)) for check in mine}
            continue
        validations[batch] = dict(validation.to_json_dict())  # type: ignore[no-untyped-call]
        results |= _read_results(validation, mine)
    docs_failure = ""
    try:
        if docs is not None:
            docs(context)
    except Exception as error:  # noqa: BLE001 - an ornament of the report must not cost us the report
        docs_failure = f"{type(error).__name__}: {error}"
    return Judgement(tuple(results[check.name] for check in checks), validations, docs_failure)


def _validate(
    context: EphemeralDataContext,
    source: PandasDatasource,
    batch: str,
    frame: pa.Table,
    checks: Sequence[NamedCheck],
    run_name: str,
    run_time: dt.datetime,
) -> ExpectationSuiteValidationResult:
    import great_expectations as gx
    import great_expectations.expectations as gxe
    from great_expectations.core import RunIdentifier

    suite = gx.ExpectationSuite(name=batch)
    for check in checks:
        notes = [f"**{check.name}**", f"A failure means: {check.meaning}", f"What to do: {check.action}"]
        suite.add_expectation(
            getattr(gxe, check.expectation)(
                **check.arguments,
                description=check.title,
                meta={"name": check.name, "notes": {"format": "markdown", "content": notes}},
            )
        )
    data = source.add_dataframe_asset(batch).add_batch_definition_whole_dataframe("whole")
    definition = context.validation_definitions.add(
        gx.ValidationDefinition(name=batch, data=data, suite=context.suites.add(suite))
    )
    result_format: dict[str, Any] = {"result_format": "SUMMARY", "partial_unexpected_count": EXAMPLES_MAX}
    if places := list(dict.fromkeys(name for check in checks for name in check.rows)):
        result_format["unexpected_index_column_names"] = places
    return definition.run(
        batch_parameters={"dataframe": frame.to_pandas()},
        result_format=result_format,
        run_id=RunIdentifier(run_name=run_name, run_time=run_time),
    )


def _read_results(
    validation: ExpectationSuiteValidationResult, checks: Sequence[NamedCheck]
) -> dict[str, CheckResult]:
    by_name: dict[str, ExpectationValidationResult] = {}
    for result in validation.results:
        config = result.expectation_config
        if config is not None and config.meta:
            by_name[config.meta["name"]] = result
    return {
        check.name: _read(check, by_name[check.name])
        if check.name in by_name
        else _errored(check, _NOTHING_SAID)
        for check in checks
    }


def _read(check: NamedCheck, result: ExpectationValidationResult) -> CheckResult:
    exception = _exception(result.exception_info)
    counts: Mapping[str, Any] = result.result or {}
    if exception is not None:
        return _raised(check, "an exception", exception)
    if "element_count" not in counts or "unexpected_count" not in counts:
        return _errored(check, _NOTHING_SAID)
    examples = _examples(check, counts)
    return CheckResult(
        name=check.name,
        description=check.title,
        status="passed" if result.success else "failed",
        observed=_observed(check, counts),
        expected="0",
        detail=_place(examples[0]) if examples else "",
        section=check.section,
        meaning=check.meaning,
        action=check.action,
        examples=examples,
    )


def _place(example: Mapping[str, str]) -> str:
    """Where the first of them is, in words that may stand in a log or an alert: no id, account or value of a record."""
    return ", ".join(f"{name} {example[name]}" for name in _PLACES if name in example)


def _raised(check: NamedCheck, kind: str, said: str) -> CheckResult:
    """An expectation that could not be evaluated. What was said may quote the data: only the report shows it."""
    return replace(_errored(check, f"Great Expectations raised {kind}"), examples=({"said": said},))


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


def _exception(info: Mapping[str, Any] | None) -> str | None:
    """The message of whatever Great Expectations met: its `exception_info` is one record, or one for each metric."""
    if not info:
        return None
    records = (
        [info] if "raised_exception" in info else [one for one in info.values() if isinstance(one, Mapping)]
    )
    for record in records:
        if record.get("raised_exception"):
            return str(record.get("exception_message") or "an exception without a message")
    return None


def _observed(check: NamedCheck, counts: Mapping[str, Any]) -> str:
    unexpected, total = int(counts["unexpected_count"]), int(counts["element_count"])
    if not check.noun:  # the audit: one row that holds the number
        seen = counts.get("partial_unexpected_list") or [0]
        return f"{int(seen[0]):,} {'rule' if int(seen[0]) == 1 else 'rules'} broken"
    return f"{unexpected:,} of {total:,} {check.noun} {check.fault}"


def _examples(check: NamedCheck, counts: Mapping[str, Any]) -> tuple[Mapping[str, str], ...]:
    rows = counts.get("partial_unexpected_index_list") or []
    return tuple(_example(check, row) for row in rows[:EXAMPLES_MAX] if isinstance(row, Mapping))


def _example(check: NamedCheck, row: Mapping[str, Any]) -> Mapping[str, str]:
    """One row that broke the expectation: where it is, then what was judged of it."""
    names = dict.fromkeys((*check.rows, *row))
    values = {name: str(row[name]) for name in names if name in row}
    if check.batch == "matched":
        seen, expected = values.pop("committed_row"), values.pop("input_row")
        differences = row_differences(expected, seen)
        values["in the file"] = ", ".join(f"{name} {left or '(nothing)'}" for name, left, _ in differences)
        values["in the topic"] = ", ".join(f"{name} {right or '(nothing)'}" for name, _, right in differences)
    return values
