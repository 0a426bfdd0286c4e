"""Suites held against rows: one result a check, and Great Expectations' own beside them.

*Failed*: the rows broke it. *Errored*: it could not be made, and says nothing of the rows: an unknown column, a query
that fails, a function that raises. Great Expectations reports both as `success=False`; `exception_info` tells them
apart. What decides is critical and did not pass.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from txn_engine.clock import system_clock
from txn_engine.errors import InvalidRequestError
from txn_engine.quality.expectations import exception_in
from txn_engine.quality.quiet import quiet
from txn_engine.quality.spark_queries import permitted_query
from txn_engine.quality.suite_kinds import OF_SUMS, OF_TYPES, columns_of, compared_in
from txn_engine.quality.suite_rows import Rows, batch_of, rows_of
from txn_engine.quality.suites import NamedResult, Severity, Suite, names_of, severity_of, shown_name
from txn_engine.reasons import Reason

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
    from great_expectations.expectations.expectation import Expectation

EXAMPLES_MAX = 20
RESULTS_MAX = 1_000
_PLACE = "txn_engine_check"
_BATCH = "batch_of_the_check"
_VALUE_CHARS_MAX = 200
_COUNTED_BY_OBSERVED = ("unexpected_rows_expectation",)
"""Expectations whose `observed_value` is how many rows broke them; that of any other may be a value of a record."""

Status = Literal["passed", "failed", "errored"]


@dataclass(frozen=True, slots=True)
class SuiteCheck:
    """What one check of a suite came to.

    `name`, `counts` and `why` may stand in logs and errors: they quote no record. `seen`, `said` and `examples` are for
    the report, which is guarded: what was observed, what an exception said, up to 20 of the rows or values.
    """

    name: str
    description: str
    status: Status
    severity: Severity
    wrong: int | None = None
    total: int | None = None
    why: str = ""
    seen: str = ""
    said: str = ""
    examples: tuple[Mapping[str, str], ...] = ()

    @property
    def decides(self) -> bool:
        """Whether it is red: critical, and not passed."""
        return self.severity == "critical" and self.status != "passed"

    @property
    def counts(self) -> str:
        """How many of how many broke it, or why it was not made."""
        if self.status == "errored":
            return f"could not be made: {self.why}"
        if self.wrong is None:
            return "as expected" if self.status == "passed" else "not as expected"
        return (
            f"{self.wrong:,} unexpected"
            if self.total is None
            else f"{self.wrong:,} of {self.total:,} unexpected"
        )


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """A suite and what it was held against (`about`: a topic, say); `validations`: Great Expectations' own results."""

    about: str
    suite: str
    checks: tuple[SuiteCheck, ...]
    rows: int | None = None
    validations: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class SuitesRun:
    """All suites of one run. `success`: no critical check failed or errored. `report`: its page, where asked for."""

    name: str
    run_ms: int
    seconds: float
    results: tuple[SuiteResult, ...]
    report: Path | None = None
    docs_failure: str = ""

    @property
    def success(self) -> bool:
        """Whether nothing red was found."""
        return not self.red

    @property
    def checks(self) -> tuple[tuple[str, SuiteCheck], ...]:
        """Every check, with what its suite was held against."""
        return tuple((result.about, check) for result in self.results for check in result.checks)

    @property
    def red(self) -> tuple[tuple[str, SuiteCheck], ...]:
        """The checks that decide: critical, and failed or errored."""
        return tuple((about, check) for about, check in self.checks if check.decides)

    @property
    def warnings(self) -> tuple[tuple[str, SuiteCheck], ...]:
        """The checks that did not pass, and only tell."""
        return tuple(
            (about, check) for about, check in self.checks if check.status != "passed" and not check.decides
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """A suite, the rows it is to be held against, and their number where it is known."""

    about: str
    suite: Suite
    rows: Any
    count: int | None = None


def run_suites(
    asked: Sequence[Asked],
    *,
    name: str = "checks",
    context: EphemeralDataContext,
    first: int = 0,
) -> SuitesRun:
    """Hold each suite against its rows. Never raises for what the rows hold or a check does: it fails or errs.

    `context` keeps Great Expectations' own results; `first`: how many suites it has seen before. Raises
    `InvalidRequestError` for rows that cannot be taken.
    """
    rows = [rows_of(each.rows) for each in asked]
    started, run_ms = time.perf_counter(), system_clock()
    with quiet():
        results = tuple(
            _held(context, number, each, held, run_ms)
            for number, (each, held) in enumerate(zip(asked, rows, strict=True), first)
        )
    return SuitesRun(name, run_ms, time.perf_counter() - started, results)


def unmade(about: str, suite: Suite, why: str) -> SuiteResult:
    """A suite whose rows could not be had: none of its checks was made."""
    checks: tuple[SuiteCheck, ...]
    if suite.function is not None:
        checks = (SuiteCheck(shown_name(suite.name), "", "errored", severity_of(suite, "critical"), why=why),)
    else:
        checks = tuple(_unmade(suite, place, name, why) for place, name in enumerate(names_of(suite)))
    return SuiteResult(about, suite.name, checks)


def _held(context: EphemeralDataContext, number: int, asked: Asked, rows: Rows, run_ms: int) -> SuiteResult:
    suite = asked.suite
    if suite.function is not None:
        return SuiteResult(asked.about, suite.name, _called(suite, rows), asked.count)
    names = names_of(suite)
    found = {
        place: _unmade(suite, place, names[place], str(error))
        for place, error in (_refused_on_spark(suite, rows) | _refused_on_pandas(suite, rows)).items()
    }
    validations: list[Mapping[str, Any]] = []
    parts = list(_parts(suite, without=found))
    for part, members in enumerate(parts):
        label = f"{_file_name(asked.about)}-{number}-{part}"
        try:
            validation = _validated(context, rows, label, suite, members, run_ms)
            found |= _read(validation, suite, names)
            validations.append(_own_json(validation))
        except Exception as error:  # noqa: BLE001 - whatever it is, these checks were not made: they must not pass
            if len(members) > 1:  # one of them raised, and the others are to be made all the same
                parts += [[place] for place in members]
                continue
            found |= {
                place: _errored(suite, place, names[place], error) for place in members if place not in found
            }
    checks = tuple(
        found.get(place) or _unanswered(suite, place, names[place])
        for place in range(len(suite.expectations))
    )
    return SuiteResult(asked.about, suite.name, checks, asked.count, tuple(validations))


def _refused_on_spark(suite: Suite, rows: Rows) -> dict[int, InvalidRequestError]:
    """What is not to run on Spark, by its place. pandas runs no query, and compares with the values themselves."""
    refused: dict[int, InvalidRequestError] = {}
    for place, expectation in enumerate(suite.expectations if rows.kind == "spark" else ()):
        compared = compared_in(getattr(expectation, "row_condition", None))
        if not all(map(_is_plain, compared)):
            refused[place] = InvalidRequestError(
                "a row_condition with a text that Spark would read as another one",
                actor="checks",
                expected="texts without quotes, backslashes and characters that are not shown",
                reason=Reason.BAD_EXPECTATION,
            )
            continue
        query = getattr(expectation, "unexpected_rows_query", None)
        if isinstance(query, str):
            try:
                permitted_query(
                    rows.frame.sparkSession,
                    query.format(batch=_BATCH),  # as Great Expectations does, with another name for the rows
                    [_BATCH],
                    what="a query",
                    actor="checks",
                )
            except InvalidRequestError as error:
                refused[place] = error
    return refused


def _refused_on_pandas(suite: Suite, rows: Rows) -> dict[int, InvalidRequestError]:
    """What pandas would judge by other values than the rows have, by its place."""
    refused: dict[int, InvalidRequestError] = {}
    for place, expectation in enumerate(suite.expectations if rows.kind == "pandas" else ()):
        kind, columns = expectation.expectation_type, columns_of(expectation)
        if kind not in OF_TYPES and any(map(rows.has_nan, columns)):
            refused[place] = InvalidRequestError(
                "a column with NaN, which pandas takes for null",
                actor="checks",
                expected="a column without NaN, or a DataFrame of Spark",
                reason=Reason.BAD_EXPECTATION,
            )
        elif kind in OF_SUMS and any(map(rows.is_rounded, columns)):
            refused[place] = InvalidRequestError(
                "numbers whose sum has more digits than pandas keeps",
                actor="checks",
                expected="integers that sum up to at most 2^53, decimals to 28 digits; `sql` in a declaration is exact",
                reason=Reason.BAD_EXPECTATION,
            )
    return refused


def _is_plain(value: Any) -> bool:
    """Whether Spark reads the value that Great Expectations writes, by Python's `repr`, into a condition for it."""
    return not isinstance(value, str) or (repr(value) == f"'{value}'" and "${" not in value)


def _parts(suite: Suite, *, without: Collection[int]) -> Iterator[list[int]]:
    """The expectations by how much is to be told of them: rows are told of a query's only where all of it is asked for,
    which is at most 200; of the others that would be every row.
    """
    places = [place for place in range(len(suite.expectations)) if place not in without]
    queries = [place for place in places if _is_query(suite.expectations[place])]
    others = [place for place in places if place not in set(queries)]
    yield from (part for part in (others, queries) if part)


def _file_name(about: str) -> str:
    """As Great Expectations may use it for a folder: nothing that leads out of one."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", about)[:80]


def _is_query(expectation: Expectation) -> bool:
    return expectation.expectation_type in _COUNTED_BY_OBSERVED


def _validated(
    context: EphemeralDataContext, rows: Rows, label: str, suite: Suite, members: Sequence[int], run_ms: int
) -> ExpectationSuiteValidationResult:
    import great_expectations as gx
    from great_expectations.core import RunIdentifier

    own = gx.ExpectationSuite(name=label)
    for place in members:
        expectation = suite.expectations[place]
        meta = {**(expectation.meta or {}), _PLACE: place}
        own.add_expectation(expectation.copy(update={"id": None, "meta": meta}, deep=True))
    is_query = _is_query(suite.expectations[members[0]])
    with batch_of(context, rows, label) as data:
        definition = context.validation_definitions.add(
            gx.ValidationDefinition(name=label, data=data, suite=context.suites.add(own))
        )
        return definition.run(
            batch_parameters={"dataframe": rows.frame},
            result_format={
                "result_format": "COMPLETE" if is_query else "SUMMARY",
                "partial_unexpected_count": EXAMPLES_MAX,
            },
            run_id=RunIdentifier(run_name=label, run_time=dt.datetime.fromtimestamp(run_ms / 1000, dt.UTC)),
        )


def _read(
    validation: ExpectationSuiteValidationResult, suite: Suite, names: Sequence[str]
) -> dict[int, SuiteCheck]:
    found = {}
    for result in validation.results:
        config = result.expectation_config
        if config is not None and config.meta and _PLACE in config.meta:
            place = config.meta[_PLACE]
            found[place] = _check_of(suite, place, names[place], result)
    return found


def _check_of(suite: Suite, place: int, name: str, result: ExpectationValidationResult) -> SuiteCheck:
    expectation = suite.expectations[place]
    said = exception_in(result.exception_info)
    if said is not None:
        return _unmade(suite, place, name, "Great Expectations raised an exception", said)
    if not isinstance(result.success, bool):
        return _unanswered(suite, place, name)
    held: Mapping[str, Any] = result.result or {}
    wrong, total = held.get("unexpected_count"), held.get("element_count")
    if _is_query(expectation):
        wrong = held.get("observed_value")
    observed = held.get("observed_value")
    return SuiteCheck(
        name=name,
        description=expectation.description or "",
        status="passed" if result.success else "failed",
        severity=severity_of(suite, expectation.severity),
        wrong=int(wrong) if isinstance(wrong, int | float) else None,
        total=int(total) if isinstance(total, int | float) else None,
        seen="" if observed is None else _text(observed),
        examples=() if result.success else _examples(expectation, held),
    )


def _examples(expectation: Expectation, held: Mapping[str, Any]) -> tuple[Mapping[str, str], ...]:
    found = held.get("partial_unexpected_list") or (held.get("details") or {}).get("unexpected_rows") or []
    column = getattr(expectation, "column", None)
    name = column if isinstance(column, str) else "value"
    return tuple(_example(each, name) for each in list(found)[:EXAMPLES_MAX])


def _example(found: Any, name: str) -> Mapping[str, str]:
    row = found if isinstance(found, Mapping) else {name: found}
    return {str(column): _text(value) for column, value in row.items()}


def _text(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _VALUE_CHARS_MAX else f"{text[:_VALUE_CHARS_MAX]}..."


def _unmade(suite: Suite, place: int, name: str, why: str, said: str = "") -> SuiteCheck:
    expectation = suite.expectations[place]
    severity = severity_of(suite, expectation.severity)
    return SuiteCheck(name, expectation.description or "", "errored", severity, why=why, said=said)


def _errored(suite: Suite, place: int, name: str, error: Exception) -> SuiteCheck:
    return _unmade(suite, place, name, f"{type(error).__name__} was raised", str(error))


def _unanswered(suite: Suite, place: int, name: str) -> SuiteCheck:
    return _unmade(suite, place, name, "Great Expectations returned no result for it")


def _own_json(validation: ExpectationSuiteValidationResult) -> Mapping[str, Any]:
    try:
        return dict(validation.to_json_dict())  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 - the results are read already; this is what is kept beside them
        return {"not_kept": type(error).__name__}


# --- a function of a user's ---------------------------------------------------------------------------------


def _called(suite: Suite, rows: Rows) -> tuple[SuiteCheck, ...]:
    name = shown_name(suite.name)
    severity = severity_of(suite, "critical")

    def unmade(why: str, said: str = "") -> tuple[SuiteCheck, ...]:
        return (SuiteCheck(name, "", "errored", severity, why=why, said=said),)

    try:
        found: Any = suite.function(rows.frame) if suite.function is not None else None
        if isinstance(found, bool):
            return (SuiteCheck(name, "", "passed" if found else "failed", severity),)
        results = list(islice(found, RESULTS_MAX + 1)) if isinstance(found, Iterable) else []
        if results and len(results) <= RESULTS_MAX and all(map(_is_sound, results)):
            return tuple(_named(suite, result) for result in results)
    except Exception as error:  # noqa: BLE001 - whatever it is, the check was not made: it must not pass
        return unmade(f"{type(error).__name__} was raised", str(error))
    return unmade(
        f"it returned {type(found).__name__}; expected a bool, or a list of 1 to {RESULTS_MAX:,} NamedResult"
    )


def _named(suite: Suite, result: NamedResult) -> SuiteCheck:
    return SuiteCheck(
        name=shown_name(result.name),
        description=result.description,
        status="passed" if result.success else "failed",
        severity=severity_of(suite, result.severity),
        wrong=result.wrong,
        examples=tuple(_example(each, "value") for each in result.examples[:EXAMPLES_MAX]),
    )


def _is_sound(result: Any) -> bool:
    return (
        isinstance(result, NamedResult)
        and _has_type(result.name, str)
        and bool(result.name)
        and _has_type(result.success, bool)
        and result.severity in ("critical", "warning")
        and (result.wrong is None or _has_type(result.wrong, int))
    )


def _has_type(value: object, kind: type) -> bool:
    """Whether a field holds what it says: nothing has checked that."""
    return isinstance(value, kind)
