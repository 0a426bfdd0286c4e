"""A user's suite as a file (Great Expectations' own JSON, or YAML of the same shape) or as a plain dict of that shape.

Great Expectations leaves out, with a word in a log, each expectation of a suite that it does not know, and compares
with floats whatever numbers stand in the file. Here both are refused: a check that was meant is made as it was meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txn_engine.errors import InvalidRequestError
from txn_engine.quality.documents import DocumentError, read_document
from txn_engine.quality.expectations import import_great_expectations
from txn_engine.reasons import Reason

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation

FILE_BYTES_MAX = 1 << 20
EXPECTATIONS_MAX = 1_000
_ACTOR = "suite file"
_SUITE_FIELDS = frozenset({"name", "expectations", "meta", "notes", "id", "suite_parameters"})
_EXPECTATION_FIELDS = frozenset(
    {"type", "kwargs", "meta", "notes", "description", "severity", "id", "rendered_content"}
    | {"expectation_context", "success_on_last_run"}
)
_BLOCKING = ("critical", "warning")


@dataclass(frozen=True, slots=True)
class SuiteFile:
    """What a file holds: the suite's name, the severity that its `meta` gives the whole of it, its expectations."""

    name: str
    severity: str | None
    expectations: tuple[Expectation, ...]


def read_suite_file(path: Path) -> SuiteFile:
    """The suite in the file. Raises `InvalidRequestError`, one line with file and expectation, for what is none."""
    held = _parsed(path)
    if not isinstance(held, dict) or not isinstance(held.get("expectations"), list):
        raise _refused(
            path,
            "no suite",
            'an object with "name" and a list "expectations", as Great Expectations saves it',
            Reason.NOT_A_SUITE,
        )
    name = held.get("name")
    if not isinstance(name, str) or not name:
        raise _refused(path, "a suite without a name", '"name", a text', Reason.MISSING_FIELD)
    return _suite_in(held, name, path)


def is_plain_suite(given: object) -> bool:
    """Whether this is a suite as a plain dict: it has a list of "expectations", as the file of a suite has."""
    return isinstance(given, Mapping) and isinstance(given.get("expectations"), list | tuple)


def suite_of_plain(held: Mapping[str, Any], name: str) -> SuiteFile:
    """The suite that a plain dict holds, for which `is_plain_suite` is true; `name` where the dict gives none.

    Raises `InvalidRequestError`, one line with the suite's name and the expectation, as for a file.
    """
    own = held.get("name", name)
    if not isinstance(own, str) or not own:
        raise _refused(f"suite {name!r}", f"a name {own!r}", "a text", Reason.BAD_FIELD)
    return _suite_in(held, own, f"suite {own!r}")


def _suite_in(held: Mapping[str, Any], name: str, place: Path | str) -> SuiteFile:
    if unknown := sorted(map(str, set(held) - _SUITE_FIELDS)):
        raise _refused(
            place, f"field {unknown[0]!r}", f"only {', '.join(sorted(_SUITE_FIELDS))}", Reason.UNKNOWN_FIELD
        )
    if held.get("suite_parameters"):
        raise _refused(
            place, "suite parameters", "the values themselves in the expectations", Reason.SUITE_PARAMETERS
        )
    meta = held.get("meta") or {}
    severity = meta.get("severity") if isinstance(meta, dict) else None
    if severity is not None and severity not in _BLOCKING:
        raise _refused(place, f"severity {severity!r} of the suite", "critical or warning", Reason.BAD_FIELD)
    if len(held["expectations"]) > EXPECTATIONS_MAX:
        raise _refused(
            place,
            f"{len(held['expectations']):,} expectations",
            f"at most {EXPECTATIONS_MAX:,}",
            Reason.TOO_MANY_EXPECTATIONS,
        )
    import_great_expectations()
    return SuiteFile(name, severity, tuple(_expectations(held["expectations"], place)))


def _parsed(path: Path) -> Any:
    is_yaml = path.suffix.lower() in (".yaml", ".yml")
    try:
        return read_document(path, bytes_max=FILE_BYTES_MAX, is_yaml=is_yaml)
    except DocumentError as error:
        seen, expected = error.seen, "a suite as Great Expectations saves it"
        if error.reason is Reason.FILE_UNREADABLE:
            expected = "a file that can be read"
        elif error.reason is Reason.BAD_DOCUMENT:
            seen = "neither JSON nor YAML (in a file .yaml or .yml)"
        raise _refused(path, seen, expected, error.reason) from None


def _expectations(given: Sequence[Any], suite: Path | str) -> Iterator[Expectation]:
    for number, each in enumerate(given, 1):
        place = f"{suite}, expectation {number}"
        if not isinstance(each, dict) or not isinstance(each.get("type"), str):
            raise _refused(
                place, "no expectation", 'an object with "type" and "kwargs"', Reason.BAD_EXPECTATION
            )
        if unknown := sorted(map(str, set(each) - _EXPECTATION_FIELDS)):
            raise _refused(
                place,
                f"field {unknown[0]!r}",
                f"only {', '.join(sorted(_EXPECTATION_FIELDS))}",
                Reason.UNKNOWN_FIELD,
            )
        kwargs = each.get("kwargs") or {}
        if not isinstance(kwargs, dict):
            raise _refused(place, f"kwargs of type {type(kwargs).__name__}", "an object", Reason.BAD_FIELD)
        yield _built(each, kwargs, place)


def _built(each: Mapping[str, Any], kwargs: Mapping[str, Any], place: str) -> Expectation:
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    try:
        expectation = ExpectationConfiguration(
            type=each["type"],
            kwargs=dict(kwargs),
            meta=each.get("meta"),
            notes=each.get("notes"),
            description=each.get("description"),
            severity=each.get("severity") or "critical",  # type: ignore[arg-type]  # it takes the text as well
        ).to_domain_obj()
    except GreatExpectationsError as error:
        raise _refused(
            place,
            f"{each['type']!r}: {_first_line(error)}",
            "an expectation of this Great Expectations",
            Reason.BAD_EXPECTATION,
        ) from None
    except (ValueError, TypeError) as error:  # pydantic's: unknown, missing or unfit arguments
        raise _refused(
            place,
            f"{each['type']!r}: {_argument_of(error)}",
            "the arguments that it takes",
            Reason.BAD_EXPECTATION,
        ) from None
    check_exact(kwargs, expectation, place)
    return expectation


def check_exact(given: Mapping[str, Any], expectation: Expectation, place: str) -> None:
    """Raise `InvalidRequestError` where a number is kept as another one: Great Expectations compares with floats."""
    for name, value in given.items():
        kept = getattr(expectation, name, value)
        is_number = isinstance(kept, int | float) and not isinstance(kept, bool)
        is_given = isinstance(value, int | float | str | Decimal) and not isinstance(value, bool)
        if is_number and is_given and Decimal(str(kept)) != Decimal(str(value)):
            raise _refused(
                place,
                f"{name} {value} is {kept!r} to Great Expectations",
                "a number that a float holds exactly; else SQL (unexpected_rows_expectation) or a function",
                Reason.INEXACT_NUMBER,
            )


def _argument_of(error: Exception) -> str:
    """The first argument that does not fit, and why."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return _first_line(error)
    first = errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line), type(error).__name__)[:300]


def _refused(place: Path | str, seen: str, expected: str, reason: Reason) -> InvalidRequestError:
    return InvalidRequestError(seen, actor=_ACTOR, place=str(place), expected=expected, reason=reason)
