"""A user's own checks, in whichever form they are given: a suite of Great Expectations, its file, a dict, a list, or a
function.

A *suite* says what must hold of rows: those of a topic, of an output, of a range of offsets, or of files that nobody
has named yet. `critical` (the default) decides, `warning` only tells.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from txn_engine.errors import InvalidRequestError
from txn_engine.extras import need
from txn_engine.names import printable
from txn_engine.quality.expectations import import_great_expectations
from txn_engine.quality.suite_file import SuiteFile, is_plain_suite, read_suite_file, suite_of_plain
from txn_engine.quality.suite_kinds import check_kind
from txn_engine.reasons import Reason

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation

Severity = Literal["critical", "warning"]
NAME_CHARS_MAX = 200
_ACTOR = "checks"
_UNNAMED = "checks"


@dataclass(frozen=True, slots=True)
class NamedResult:
    """What a function of a user's says of one check.

    `name` goes into logs, so it may quote no record. `wrong`: how many rows or things broke it, where that was counted.
    `examples`: rows for the report, which is guarded; at most 20 are kept.
    """

    name: str
    success: bool
    severity: Severity = "critical"
    wrong: int | None = None
    description: str = ""
    examples: tuple[Mapping[str, Any], ...] = ()


CheckFunction = Callable[[Any], "bool | Sequence[NamedResult]"]
"""Of the rows: a DataFrame of Spark or pandas, as the rows were given."""


@dataclass(frozen=True, slots=True)
class Suite:
    """Checks that belong together: expectations, or a function. `severity`: `warning` makes all of it a warning."""

    name: str
    expectations: tuple[Expectation, ...] = ()
    function: CheckFunction | None = None
    severity: Severity | None = None


def load_suite(given: Any, *, severity: Severity | None = None) -> Suite:
    """The suite: of Great Expectations' own, a path of its JSON (or YAML of that shape), a plain dict of the same shape
    or a list of its expectations (so that whoever writes it down need not import Great Expectations), a list of
    expectations, a function of a DataFrame that returns a bool or a list of `NamedResult`, or one that was loaded
    before.

    `severity="warning"`: whatever its expectations say, nothing of it decides.

    Raises `InvalidRequestError` in one line for anything else, for a suite that checks nothing, and
    `MissingPackageError` where Great Expectations is not installed.
    """
    if severity not in (None, "critical", "warning"):
        raise InvalidRequestError(
            f"severity {severity!r}", actor=_ACTOR, expected="critical or warning", reason=Reason.BAD_ARGUMENT
        )
    need("quality", actor=_ACTOR)
    suite = _suite_of(given)
    if suite.function is None and not suite.expectations:
        raise InvalidRequestError(
            f"suite {suite.name!r} without expectations",
            actor=_ACTOR,
            expected="one or more",
            reason=Reason.NO_EXPECTATIONS,
            action="Great Expectations leaves out those whose type it does not know; its log names them",
        )
    for expectation in suite.expectations:
        _check_sound(expectation, suite.name)
    return suite if severity is None else replace(suite, severity=severity)


def _suite_of(given: Any) -> Suite:
    if isinstance(given, Suite):
        return given
    if isinstance(given, str | os.PathLike):
        return _suite_read(read_suite_file(Path(os.fspath(cast("str", given)))))
    if is_plain_suite(given):
        return _suite_read(suite_of_plain(given, _UNNAMED))
    if isinstance(given, list | tuple) and given and all(isinstance(each, Mapping) for each in given):
        return _suite_read(suite_of_plain({"expectations": given}, _UNNAMED))
    import_great_expectations()
    import great_expectations as gx
    from great_expectations.expectations.expectation import Expectation

    if isinstance(given, gx.ExpectationSuite):
        if given.suite_parameters:
            raise InvalidRequestError(
                f"suite {given.name!r} with suite parameters",
                actor=_ACTOR,
                expected="the values themselves",
                reason=Reason.SUITE_PARAMETERS,
            )
        severity = (given.meta or {}).get("severity")
        if severity not in (None, "critical", "warning"):
            raise InvalidRequestError(
                f"suite {given.name!r}: severity {severity!r}",
                actor=_ACTOR,
                expected="critical or warning",
                reason=Reason.BAD_FIELD,
            )
        return Suite(given.name, tuple(map(_own, given.expectations)), severity=severity)
    if isinstance(given, list | tuple) and all(isinstance(each, Expectation) for each in given):
        return Suite(_UNNAMED, tuple(map(_own, given)))
    if callable(given) and not isinstance(given, type):
        return Suite(getattr(given, "__name__", "function"), function=given)
    raise InvalidRequestError(
        f"checks of type {type(given).__name__}",
        actor=_ACTOR,
        expected='an ExpectationSuite, the path of one, a dict with "expectations", a list of expectations, or a '
        "function of a DataFrame",
        reason=Reason.NOT_A_SUITE,
    )


def _suite_read(file: SuiteFile) -> Suite:
    return Suite(file.name, file.expectations, severity=cast("Severity | None", file.severity))


def _own(expectation: Expectation) -> Expectation:
    """A copy that belongs to no suite."""
    return expectation.copy(update={"id": None}, deep=True)


def _check_sound(expectation: Expectation, suite: str) -> None:
    """Raise for what would look at other rows than those it is given, or waits for values that nobody gives."""
    check_kind(expectation, suite)
    for name, value in expectation.dict().items():
        if isinstance(value, Mapping) and "$PARAMETER" in value:
            raise InvalidRequestError(
                f"suite {suite!r}: {name} is a parameter",
                actor=_ACTOR,
                expected="the value itself",
                reason=Reason.SUITE_PARAMETERS,
            )


def names_of(suite: Suite) -> tuple[str, ...]:
    """A name for each expectation, no two the same: what logs and errors call it."""
    seen: dict[str, int] = {}
    names = []
    for expectation in suite.expectations:
        name = _name_of(expectation)
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return tuple(names)


def _name_of(expectation: Expectation) -> str:
    given = (expectation.meta or {}).get("name")
    if isinstance(given, str) and given:
        return shown_name(given)
    columns = [getattr(expectation, field, None) for field in ("column", "column_A", "column_B")]
    columns += [getattr(expectation, "column_list", None)]
    flat = [name for each in columns if each for name in ([each] if isinstance(each, str) else each)]
    return shown_name(f"{expectation.expectation_type}({', '.join(map(str, flat))})")


def shown_name(name: str) -> str:
    """A name as a log may have it: one line, no control characters, not long."""
    return printable(" ".join(name.split()))[:NAME_CHARS_MAX]


def severity_of(suite: Suite, given: object) -> Severity:
    """What a check's own severity comes to in its suite; whatever is not critical only tells."""
    is_critical = getattr(given, "value", given) == "critical" and suite.severity != "warning"
    return "critical" if is_critical else "warning"
