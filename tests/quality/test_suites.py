"""A user's own suite: what is accepted as one, what is refused in one line, and how its results count."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import great_expectations as gx
import great_expectations.expectations as gxe
import pyarrow as pa
import pytest
import yaml
from great_expectations.expectations.row_conditions import Column, PassThroughCondition

from tests.support.refusals import refused
from tests.support.yaml_bombs import yaml_bomb
from txn_engine.errors import InvalidRequestError
from txn_engine.quality import NamedResult, SuitesRun, check_rows, documents, load_suite, suite_rows
from txn_engine.quality.suite_file import FILE_BYTES_MAX
from txn_engine.quality.suites import names_of
from txn_engine.reasons import Reason

ROWS = pa.table(
    {"id": [1, 2, 3, None], "amount": [10, 20, 30, 40], "<b>text</b>": ["a", "b", "c", "<script>"]}
)
LARGE = 2**53 + 1


def statuses(run: SuitesRun) -> list[tuple[str, str, str]]:
    return [(check.name, check.status, check.severity) for _, check in run.checks]


def saved(folder: Path, *expectations: Any, kind: str = "json", **more: Any) -> Path:
    """A file in which Great Expectations has saved a suite."""
    suite = gx.ExpectationSuite(name="mine", expectations=list(expectations), **more)
    held = suite.to_json_dict()
    path = folder / f"suite.{kind}"
    path.write_text(json.dumps(held) if kind == "json" else yaml.safe_dump(held))
    return path


PLAIN = [
    {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id"}, "severity": "warning"},
    {"type": "expect_column_values_to_be_between", "kwargs": {"column": "amount", "max_value": 30}},
]
FOUND = [
    ("expect_column_values_to_not_be_null(id)", "failed", "warning"),
    ("expect_column_values_to_be_between(amount)", "failed", "critical"),
]


@pytest.mark.parametrize(
    "given", [PLAIN, tuple(PLAIN), {"expectations": PLAIN}, {"name": "mine", "expectations": PLAIN}]
)
def test_a_suite_may_be_a_plain_dict_or_its_list(given: Any) -> None:
    """A suite is also taken as the dict that its file holds, or as that dict's list of expectations."""
    suite = load_suite(given)
    assert suite.name == ("mine" if isinstance(given, dict) and "name" in given else "checks")
    assert statuses(check_rows(ROWS, given)) == FOUND


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"expectations": []}, Reason.NO_EXPECTATIONS),
        ({"expectations": PLAIN, "extra": 1}, Reason.UNKNOWN_FIELD),
        ({"expectations": PLAIN, "name": 7}, Reason.BAD_FIELD),
        ({"expectations": PLAIN, "meta": {"severity": "high"}}, Reason.BAD_FIELD),
        ({"expectations": PLAIN, "suite_parameters": {"a": 1}}, Reason.SUITE_PARAMETERS),
        ([{"type": "expect_nothing", "kwargs": {}}], Reason.BAD_EXPECTATION),
        ([{"kwargs": {"column": "id"}}], Reason.BAD_EXPECTATION),
        ({"type": "expect_column_values_to_not_be_null"}, Reason.NOT_A_SUITE),
    ],
)
def test_a_plain_dict_that_is_not_a_suite_is_refused_as_a_file_is(given: Any, reason: Reason) -> None:
    """A mistake in a dict is refused in one line with the same reason as in a file."""
    with pytest.raises(InvalidRequestError) as refused:
        load_suite(given)
    assert refused.value.reason is reason


A_COLUMN = Column("amount")


@pytest.mark.parametrize(
    "expectation",
    [
        gxe.ExpectTableRowCountToEqualOtherTable(other_table_name="elsewhere"),
        gxe.ExpectQueryResultsToMatchComparison(
            base_query="SELECT 1", comparison_data_source_name="elsewhere", comparison_query="SELECT 1"
        ),
        gxe.ExpectColumnValuesToNotBeNull(
            column="id", row_condition="@pd.io.common.os.getcwd() != ''", condition_parser="pandas"
        ),
        gxe.ExpectColumnValuesToNotBeNull(
            column="id", row_condition="id IN (SELECT 1)", condition_parser="spark"
        ),
        gxe.ExpectColumnValuesToNotBeNull(
            column="id", row_condition=(A_COLUMN > 1) & PassThroughCondition(pass_through_filter="id > 1")
        ),
        gxe.ExpectColumnValuesToNotBeNull(column="id", row_condition=Column("a` + @pd.x + `b") > 1),
    ],
    ids=["another table", "another source", "pandas", "Spark", "inside another", "a backtick"],
)
def test_an_expectation_that_looks_elsewhere_or_runs_code_is_refused(
    expectation: Any, tmp_path: Path
) -> None:
    """An expectation is about the rows that it is given, and its condition is no code, in Python and in a file."""
    for given in ([expectation], saved(tmp_path, expectation.copy(deep=True))):
        with pytest.raises(InvalidRequestError) as refused:
            load_suite(given)
        assert refused.value.reason is Reason.BAD_EXPECTATION


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1",
        "SELECT * FROM {table}",
        "SELECT * FROM {batch} /* {batch:*<9}/ UNION ALL SELECT 1 -- */",
        "SELECT * FROM {batch} -- {batch.__doc__}",
        "SELECT * FROM {batch!r}",
        "SELECT * FROM {batch[0]}",
        "SELECT * FROM {}",
        "SELECT * FROM {batch:{batch}}",
    ],
)
def test_a_query_has_its_rows_in_braces_and_nothing_else(query: str) -> None:
    """Python's formats would make another text of the query than the one that is looked at."""
    with pytest.raises(InvalidRequestError) as refused:
        load_suite([gxe.UnexpectedRowsExpectation(unexpected_rows_query=query)])
    assert refused.value.reason is Reason.QUERY_WITHOUT_BATCH


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "file:///etc/passwd"},
        {"$ref": "http://127.0.0.1:1/x"},
        {"$ref": "other.json#/a"},
        {"properties": {"a": {"items": [{"anyOf": [{"$dynamicRef": "file:///x"}]}]}}},
        {"properties": {"a": {"$id": "file:///etc/", "$ref": "#/passwd"}}},
        {"$defs": {"a": {"id": "http://127.0.0.1:1/", "$ref": "#"}}},
    ],
)
def test_a_json_schema_opens_nothing(schema: dict[str, Any]) -> None:
    """A schema that refers to a file or a URL would have it opened, and may quote it."""
    with pytest.raises(InvalidRequestError) as refused:
        load_suite([gxe.ExpectColumnValuesToMatchJsonSchema(column="id", json_schema=schema)])
    assert refused.value.reason is Reason.BAD_EXPECTATION


def test_a_json_schema_may_refer_to_itself() -> None:
    """Definitions inside a schema are used, and a property may have any name."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.org/payment",
        "$defs": {"amount": {"type": "number", "minimum": 0}},
        "properties": {
            "amount": {"$ref": "#/$defs/amount"},
            "id": {"type": "string"},
            "$ref": {"type": "string"},
        },
    }
    rows = pa.table({"payment": ['{"amount": 1, "id": "a"}', '{"amount": -1, "id": "b"}']})
    run = check_rows(rows, [gxe.ExpectColumnValuesToMatchJsonSchema(column="payment", json_schema=schema)])
    assert [(check.status, check.wrong) for _, check in run.checks] == [("failed", 1)]


def test_an_expectation_that_raises_leaves_the_others_to_be_made() -> None:
    """Great Expectations cannot write down what this one finds in pandas, and raises for the whole suite."""
    quantiles = {"quantiles": [0.5], "value_ranges": [[0, 100]]}
    run = check_rows(
        ROWS,
        [
            gxe.ExpectColumnQuantileValuesToBeBetween(column="amount", quantile_ranges=quantiles),
            gxe.ExpectTableRowCountToEqual(value=4),
        ],
    )
    assert run.checks[1][1].status == "passed"


def test_a_condition_of_columns_is_permitted() -> None:
    """Rows are chosen by comparisons of columns, which Great Expectations has a form for."""
    chosen = [
        gxe.ExpectColumnValuesToNotBeNull(
            column="id", row_condition='col("amount") < 40', condition_parser="great_expectations"
        ),
        gxe.ExpectColumnValuesToNotBeNull(
            column="id", row_condition=(A_COLUMN < 40) & A_COLUMN.is_not_null()
        ),
    ]
    assert [status for _, status, _ in statuses(check_rows(ROWS, chosen))] == ["passed", "passed"]


@pytest.mark.parametrize("kind", ["json", "yaml", "yml"])
def test_a_suite_comes_back_from_its_file_as_it_was(tmp_path: Path, kind: str) -> None:
    """A suite that is read from its file has the same expectations, arguments, severities, descriptions and
    names, and gives the same results."""
    expectations = [
        gxe.ExpectColumnValuesToNotBeNull(column="id", severity="warning", description="ids are there"),
        gxe.ExpectColumnValuesToBeInSet(
            column="amount", value_set=[10, 20, 30], meta={"name": "known amounts"}
        ),
        gxe.ExpectColumnValuesToBeBetween(column="amount", min_value=1, mostly=0.5),
        gxe.ExpectColumnValuesToBeBetween(column="amount", max_value=100),
    ]
    path = saved(tmp_path, *[each.copy(deep=True) for each in expectations], kind=kind)
    there, back = load_suite(expectations), load_suite(path)
    assert back.name == "mine"
    assert [each.configuration.to_json_dict() for each in back.expectations] == [
        each.configuration.to_json_dict() for each in there.expectations
    ]
    assert names_of(back) == (
        "expect_column_values_to_not_be_null(id)",
        "known amounts",
        "expect_column_values_to_be_between(amount)",
        "expect_column_values_to_be_between(amount) #2",
    )
    assert statuses(check_rows(ROWS, str(path))) == statuses(check_rows(ROWS, expectations))


def test_a_suite_of_great_expectations_is_left_as_it_was() -> None:
    """Running a suite object does not change it: after two runs it has the same expectations with the same
    ids."""
    suite = gx.ExpectationSuite(
        name="mine", expectations=[gxe.ExpectColumnValuesToNotBeNull(column="amount")]
    )
    before = suite.to_json_dict()
    assert check_rows(ROWS, suite).success
    assert check_rows(ROWS, suite).success
    assert suite.to_json_dict() == before


EXPECTATION = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id"}}


def suite_of(*expectations: Any, **more: Any) -> dict[str, Any]:
    return {"name": "mine", "expectations": list(expectations), **more}


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        ("{", Reason.BAD_DOCUMENT),
        ("[" * 100_000, Reason.BAD_DOCUMENT),
        (" " * (FILE_BYTES_MAX + 1), Reason.DOCUMENT_TOO_LARGE),
        (b"\xff", Reason.BAD_DOCUMENT),
        ([], Reason.NOT_A_SUITE),
        ({"name": "mine"}, Reason.NOT_A_SUITE),
        ({"expectations": [EXPECTATION]}, Reason.MISSING_FIELD),
        (suite_of(), Reason.NO_EXPECTATIONS),
        (suite_of(EXPECTATION, expectation=[]), Reason.UNKNOWN_FIELD),
        (suite_of(EXPECTATION, suite_parameters={"a": 1}), Reason.SUITE_PARAMETERS),
        (suite_of(EXPECTATION, meta={"severity": "low"}), Reason.BAD_FIELD),
        (suite_of(*[EXPECTATION] * 1_001), Reason.TOO_MANY_EXPECTATIONS),
        (suite_of("all is well"), Reason.BAD_EXPECTATION),
        (
            suite_of(EXPECTATION, {"type": "expect_nothing", "kwargs": {}}),
            Reason.BAD_EXPECTATION,
        ),
        (suite_of({**EXPECTATION, "kwargs": {"columm": "id"}}), Reason.BAD_EXPECTATION),
        (suite_of({**EXPECTATION, "kwargs": {"column": "id", "x": 1}}), Reason.BAD_EXPECTATION),
        (suite_of({**EXPECTATION, "kwargs": ["id"]}), Reason.BAD_FIELD),
        (suite_of({**EXPECTATION, "severity": "fatal"}), Reason.BAD_EXPECTATION),
        (suite_of({**EXPECTATION, "columns": 1}), Reason.UNKNOWN_FIELD),
        (
            suite_of(
                {
                    "type": "expect_column_values_to_be_between",
                    "kwargs": {"column": "id", "max_value": LARGE},
                }
            ),
            Reason.INEXACT_NUMBER,
        ),
        (
            suite_of(
                {
                    "type": "expect_column_values_to_be_between",
                    "kwargs": {"column": "id", "max_value": {"$PARAMETER": "most"}},
                }
            ),
            Reason.SUITE_PARAMETERS,
        ),
        (
            suite_of(
                {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": "SELECT 1"}}
            ),
            Reason.QUERY_WITHOUT_BATCH,
        ),
        ('{"name": "n", "expectations": [], "expectations": []}', Reason.DUPLICATE_NAME),
    ],
)
def test_an_invalid_suite_is_refused_in_one_line(tmp_path: Path, held: Any, reason: Reason) -> None:
    """A suite with a fault is refused as a whole: no expectation is skipped silently."""
    path = tmp_path / "suite.json"
    path.write_bytes(
        held if isinstance(held, bytes) else (held if isinstance(held, str) else json.dumps(held)).encode()
    )
    with pytest.raises(InvalidRequestError) as caught:
        load_suite(path)
    assert caught.value.reason is reason, caught.value
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert len(text) < 700


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (yaml_bomb(" [*{0}, *{0}]", levels=24), Reason.DOCUMENT_TOO_LARGE),
        ("!!python/object/apply:os.getcwd []", Reason.BAD_DOCUMENT),
        ("a: 1\n---\nb: 2\n", Reason.BAD_DOCUMENT),
        ("name: n\nname: m\nexpectations: []\n", Reason.DUPLICATE_NAME),
        (f"name: n\nexpectations: []\nmeta: {{{(1 << 61) - 1}: a}}\n", Reason.BAD_DOCUMENT),
        ("name: n\nexpectations: []\nmeta: {x: [{0.5: a}]}\n", Reason.BAD_DOCUMENT),
    ],
)
def test_yaml_beyond_plain_values_is_refused(tmp_path: Path, text: str, reason: Reason) -> None:
    """Aliases that repeat too much, Python tags and a second document are refused."""
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    with pytest.raises(InvalidRequestError) as refused:
        load_suite(path)
    assert refused.value.reason is reason


def test_values_are_counted_while_yaml_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after too many values is not even looked at: each takes far more memory than its text."""
    monkeypatch.setattr(documents, "VALUES_MAX", 100)
    path = tmp_path / "suite.yaml"
    path.write_text("name: n\nmeta: [" + "1, " * 200 + "}")
    with pytest.raises(InvalidRequestError) as refused:
        load_suite(path)
    assert refused.value.reason is Reason.DOCUMENT_TOO_LARGE


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (7, Reason.NOT_A_SUITE),
        ([1], Reason.NOT_A_SUITE),
        (dict, Reason.NOT_A_SUITE),
        (Path("/nowhere.json"), Reason.FILE_UNREADABLE),
        ([], Reason.NO_EXPECTATIONS),
        (Path("/"), Reason.FILE_UNREADABLE),
    ],
)
def test_a_value_that_is_not_a_suite_is_refused(given: Any, reason: Reason) -> None:
    """Values of other types, unreadable paths and empty lists are refused."""
    with pytest.raises(InvalidRequestError) as refused:
        load_suite(given)
    assert refused.value.reason is reason


def test_a_suite_that_great_expectations_has_emptied_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """A suite without expectations is refused. Great Expectations' constructor drops unknown ones, so the
    suite would pass with any rows."""
    caplog.set_level(logging.CRITICAL, logger="great_expectations")
    suite = gx.ExpectationSuite(name="mine", expectations=[{"type": "expect_nothing", "kwargs": {}}])
    with pytest.raises(InvalidRequestError) as refused:
        load_suite(suite)
    assert refused.value.reason is Reason.NO_EXPECTATIONS


def test_severities() -> None:
    """A critical expectation fails the run, and is the default. A warning or information only reports. A
    severity of the whole suite wins."""
    bad = {"column": "id"}
    for severity, success in ((None, False), ("critical", False), ("warning", True), ("info", True)):
        given = {} if severity is None else {"severity": severity}
        run = check_rows(ROWS, [gxe.ExpectColumnValuesToNotBeNull(**bad, **given)])
        assert (run.success, len(run.warnings)) == (success, int(success))
    assert check_rows(ROWS, [gxe.ExpectColumnValuesToNotBeNull(**bad)], severity="warning").success
    with_meta = gx.ExpectationSuite(
        name="mine", expectations=[gxe.ExpectColumnValuesToNotBeNull(**bad)], meta={"severity": "warning"}
    )
    assert check_rows(ROWS, with_meta).success
    with pytest.raises(InvalidRequestError) as refused:
        load_suite(with_meta, severity="low")  # type: ignore[arg-type]
    assert refused.value.reason is Reason.BAD_ARGUMENT


def test_errored_is_neither_failed_nor_passed() -> None:
    """An unknown column, or SQL, which pandas cannot run, is errored, because it says nothing about the rows.
    The other expectations are judged."""
    run = check_rows(
        ROWS,
        [
            gxe.ExpectColumnValuesToNotBeNull(column="nowhere"),
            gxe.UnexpectedRowsExpectation(unexpected_rows_query="SELECT * FROM {batch}"),
            gxe.ExpectColumnValuesToNotBeNull(column="amount"),
            gxe.ExpectColumnValuesToNotBeNull(column="id"),
        ],
    )
    assert [check.status for _, check in run.checks] == ["errored", "errored", "passed", "failed"]
    assert [check.counts for _, check in run.checks][2:] == ["0 of 4 unexpected", "1 of 4 unexpected"]
    assert not run.success


def named(rows: Any) -> list[NamedResult]:
    return [
        NamedResult("there are rows", bool(len(rows))),
        NamedResult("few", False, severity="warning", wrong=4, examples=tuple({"n": n} for n in range(30))),
    ]


def test_a_function_says_what_it_found() -> None:
    """A function returns a bool, or results by name. At most 20 examples of each are kept."""
    run = check_rows(ROWS, named)
    assert statuses(run) == [("there are rows", "passed", "critical"), ("few", "failed", "warning")]
    assert run.success
    assert len(run.checks[1][1].examples) == 20
    assert statuses(check_rows(ROWS, lambda rows: len(rows) == 4)) == [("<lambda>", "passed", "critical")]
    assert not check_rows(ROWS, lambda rows: False).success


def explode(rows: Any) -> bool:
    raise RuntimeError("secret-4711")


@pytest.mark.parametrize(
    "function",
    [
        explode,
        lambda rows: None,
        lambda rows: 1,
        lambda rows: "yes",
        lambda rows: [],
        lambda rows: {"a": True},
        lambda rows: [NamedResult("", True)],
        lambda rows: [NamedResult("a", 1)],  # type: ignore[arg-type]
        lambda rows: [NamedResult("a", True, severity="low")],  # type: ignore[arg-type]
        lambda rows: (NamedResult("a", True) for _ in iter(int, 1)),
    ],
)
def test_a_function_that_says_nothing_of_use_is_errored(function: Callable[[Any], Any]) -> None:
    """A function that raises or returns something else is errored and fails the run. What it raised does not
    appear in the result."""
    run = check_rows(ROWS, function)
    ((_, check),) = run.checks
    assert (check.status, run.success) == ("errored", False)
    assert "secret-4711" not in check.counts + check.why + check.name


def test_whole_numbers_beside_nulls_stay_what_they_are() -> None:
    """Whole numbers next to nulls stay exact, although pandas would make floats of them."""
    seen: list[Any] = []
    rows = pa.table({"id": [LARGE, None]})
    check_rows(rows, lambda frame: seen.append(frame["id"][0]) is None)
    assert seen == [LARGE]
    assert check_rows(rows, [gxe.ExpectColumnValuesToBeInSet(column="id", value_set=[LARGE])]).success
    assert not check_rows(rows, [gxe.ExpectColumnValuesToBeInSet(column="id", value_set=[LARGE - 1])]).success


def test_what_pandas_would_take_for_other_values_is_errored() -> None:
    """NaN would be a null, which no bound refuses, and sums beyond what floats and decimals of pandas hold would be
    rounded. Such checks are not made, and the others are."""
    nan, wide = float("nan"), Decimal("0.1").scaleb(-29) + 1
    rows = pa.table(
        {
            "nan": [nan, 1.0],
            "id": [LARGE, LARGE],
            "cents": [1, 2],
            "wide": pa.array([wide, wide], pa.decimal128(38, 30)),
        }
    )
    wrong = [
        gxe.ExpectColumnValuesToBeBetween(column="nan", max_value=2),
        gxe.ExpectColumnValuesToNotBeNull(column="nan"),
        gxe.ExpectColumnPairValuesToBeEqual(column_A="cents", column_B="nan"),
        gxe.ExpectColumnMeanToBeBetween(column="id", max_value=LARGE - 1),
        gxe.ExpectColumnSumToBeBetween(column="wide", max_value=2),
        gxe.ExpectMulticolumnSumToEqual(column_list=["cents", "id"], sum_total=0),
    ]
    right = [
        gxe.ExpectColumnToExist(column="nan"),
        gxe.ExpectColumnValuesToBeBetween(column="id", min_value=LARGE),
        gxe.ExpectColumnMeanToBeBetween(column="cents", max_value=1.5),
        gxe.ExpectColumnValuesToBeBetween(column="wide", min_value=1),
    ]
    run = check_rows(rows, [*wrong, *right])
    assert [check.status for _, check in run.checks] == ["errored"] * len(wrong) + ["passed"] * len(right)


def test_rows_that_cannot_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many rows for pandas, or an object that is not a table, is refused in one line that says what to
    do."""
    monkeypatch.setattr(suite_rows, "ROWS_MAX", 3)
    for rows, reason in (
        (ROWS, Reason.TOO_MANY_ROWS),
        (ROWS.to_pandas(), Reason.TOO_MANY_ROWS),
        ([1], Reason.BAD_ARGUMENT),
    ):
        with pytest.raises(InvalidRequestError) as refused:
            check_rows(rows, named)
        assert refused.value.reason is reason


def test_the_report_opens_offline_and_shows_no_markup_of_the_data(tmp_path: Path) -> None:
    """The report fetches and runs nothing, escapes values, links only to existing files, and can be read by
    its owner only."""
    folder = tmp_path / "made" / "report"
    suite = [
        gxe.ExpectColumnValuesToNotBeNull(column="id"),
        gxe.ExpectColumnValuesToBeInSet(
            column="<b>text</b>", value_set=["a", "b", "c"], description="<i>known</i>"
        ),
        gxe.ExpectColumnValuesToNotBeNull(column="nowhere"),
    ]
    run = check_rows(ROWS, suite, about="<u>../payments</u>", report_folder=folder)
    assert run.report == folder / "index.html"
    assert run.docs_failure == ""
    page = run.report.read_text()
    for text in ("<b>text", "<script", "<i>known", "<u>..", "http://", "https://", "src="):
        assert text not in page
    assert "&lt;script&gt;" in page
    held = json.loads((folder / "validation.json").read_text())
    assert [check["status"] for check in held["suites"][0]["checks"]] == ["failed", "failed", "errored"]
    assert held["suites"][0]["great_expectations"][0]["statistics"]["evaluated_expectations"] == 3
    docs = (folder / "data_docs" / "index.html").read_text()
    assert "<script" not in docs
    assert list(folder.glob("data_docs/validations/**/*.html"))
    assert folder.stat().st_mode & 0o077 == 0
    check_rows(ROWS, named, report_folder=folder)
    assert "passed, with warnings" in run.report.read_text()


def test_nothing_of_a_check_is_logged(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Great Expectations' log of errors is suppressed during a check, and its logger is as before
    afterwards."""
    caplog.set_level(logging.DEBUG)
    logger = logging.getLogger("great_expectations")
    before = (logger.propagate, list(logger.handlers))
    rows = pa.table({"text": ["secret-4711"]})
    run = check_rows(rows, [gxe.ExpectColumnValuesToBeBetween(column="text", min_value=1)])
    assert [check.status for _, check in run.checks] == ["errored"]
    told = capfd.readouterr()
    assert "secret-4711" not in caplog.text + told.out + told.err
    assert (logger.propagate, list(logger.handlers)) == before


_BAD, _GOOD = "a" * 60 + "!", "a" * 60


@pytest.mark.parametrize(
    ("expectation", "wrong"),
    [
        (gxe.ExpectColumnValuesToMatchRegex(column="text", regex="^(a+)+$"), 1),
        (gxe.ExpectColumnValuesToNotMatchRegex(column="text", regex="^(a+)+$"), 1),
        (gxe.ExpectColumnValuesToMatchRegexList(column="text", regex_list=["^(a|a)+$", "z"]), 1),
        (
            gxe.ExpectColumnValuesToMatchRegexList(
                column="text", regex_list=["^(a|a)+", "!"], match_on="all"
            ),
            1,
        ),
        (gxe.ExpectColumnValuesToNotMatchRegexList(column="text", regex_list=["^(a|a)+$", "z"]), 1),
    ],
)
def test_a_regular_expression_is_matched_in_linear_time(expectation: Any, wrong: int) -> None:
    """An expression that takes Python's engine years has its answer at once, and the right one."""
    (check,) = check_rows(pa.table({"text": [_BAD, None, _GOOD]}), [expectation]).checks
    assert (check[1].status, check[1].wrong) == ("failed", wrong)


@pytest.mark.parametrize(
    "expectation",
    [
        gxe.ExpectColumnValuesToMatchRegex(column="text", regex=r"(a)\1"),
        gxe.ExpectColumnValuesToNotMatchRegex(column="text", regex="a(?=b)"),
        gxe.ExpectColumnValuesToMatchRegexList(column="text", regex_list=["a", "("]),
        gxe.ExpectColumnValuesToMatchJsonSchema(
            column="text", json_schema={"properties": {"a": {"pattern": "^(a+)+$"}}}
        ),
        gxe.ExpectColumnValuesToMatchJsonSchema(
            column="text", json_schema={"patternProperties": {"^(a+)+$": {}}}
        ),
    ],
)
def test_a_regular_expression_without_a_bound_is_refused(expectation: Any) -> None:
    """What RE2 cannot match, and a pattern in a JSON schema, is refused before any row is looked at."""
    with refused(InvalidRequestError, Reason.BAD_EXPECTATION):
        check_rows(pa.table({"text": ["a"]}), [expectation])


def test_a_field_of_json_may_be_called_pattern() -> None:
    """Only the keyword is refused, not a property of that name."""
    schema = {"type": "object", "properties": {"pattern": {"type": "string"}}}
    expectation = gxe.ExpectColumnValuesToMatchJsonSchema(column="text", json_schema=schema)
    assert check_rows(pa.table({"text": ['{"pattern": "x"}']}), [expectation]).success
