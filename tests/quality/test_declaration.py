"""A declaration that is written in Python means what it says, or is refused where it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from txn_engine import connect
from txn_engine.errors import InvalidRequestError
from txn_engine.quality import (
    Amount,
    Declaration,
    LatestByKey,
    Output,
    SameRows,
    SameSet,
    SqlReduction,
    SuiteOn,
    Totals,
    check_exactly_once,
    check_rows,
)
from txn_engine.quality.proof import hash_of
from txn_engine.reasons import Reason

SET = SameSet({"a": "a"})


def test_one_name_is_a_name_and_not_its_letters() -> None:
    """A column by itself, a list and a tuple are the same, and names without a mapping are those of both sides."""
    given: Any = "account_id"
    assert Declaration("payments", given).record_id == ("account_id",)
    assert Declaration("payments", [given]).record_id == ("account_id",)  # type: ignore[arg-type]
    assert Declaration("payments", (given,), Output("o", SET)).outputs == (Output("o", SET),)  # type: ignore[arg-type]
    for kind in (SameSet, SameRows):
        assert kind(given).columns == {"account_id": "account_id"}
    assert SameSet(["a", "b"]).columns == {"a": "a", "b": "b"}  # type: ignore[arg-type]
    latest = LatestByKey(given, ["amount"])  # type: ignore[arg-type]
    assert (latest.by, latest.columns) == ({"account_id": "account_id"}, {"amount": "amount"})
    assert Amount("amount", "type", given).plus == ("account_id",)


def test_what_proves_something_else_has_another_hash() -> None:
    """A proof goes on from one of the same declaration alone. So everything that is declared counts in the hash,
    except for the order of names and the suites."""
    same = {"a": "x", "b": "y"}
    amount = Amount("amount")
    relations = [
        SameSet(same),
        SameRows(same),
        SameRows({"a": "y", "b": "x"}),
        LatestByKey({"a": "x"}, {"b": "y"}),
        LatestByKey({"b": "y"}, {"a": "x"}),
        Totals(same, {"total": amount}),
        Totals(same, {"total": amount}, "rows"),
        Totals(same, {"total": Amount("amount", "kind", "in")}),
        Totals(same, {"total": Amount("amount", "kind", "out")}),
        SqlReduction("SELECT 1", "SELECT 2"),
        SqlReduction("SELECT 2", "SELECT 1"),
    ]
    bare = Declaration("payments", ("a",))
    others = [
        *(replace(bare, outputs=(Output("sums", relation),)) for relation in relations),
        replace(bare, outputs=(Output("other", SET),)),
        replace(bare, outputs=(Output("sums", SET), Output("other", SET))),
        replace(bare, outputs=(Output("sums", SameRows({"a": "a"}), dead_letter_topic="dead"),)),
        replace(bare, outputs=(Output("sums", SameRows({"a": "a"})),)),
        replace(bare, topic="other"),
        replace(bare, record_id=("a", "b")),
        replace(bare, group_id="g"),
        replace(bare, group_id="g", up_to_position=True),
        replace(bare, input_delimiter=","),
        replace(bare, input_date_format="%d.%m.%Y"),
        replace(bare, dead_letter_topic="dead"),
        replace(bare, input_null_values=()),
        replace(bare, input_null_values=("",)),
        replace(bare, input_null_values=("", "NA")),
        replace(bare, input_columns={"x": "a"}),
        replace(bare, input_columns={"x": None}),
    ]
    assert len({hash_of(each) for each in (bare, *others)}) == len(others) + 1
    told = {field.name for field in fields(Declaration)} - {"suites"}
    assert told == {name for each in others for name in told if getattr(each, name) != getattr(bare, name)}
    for relation in (SameSet, SameRows):
        turned = [Output("o", relation(dict(items))) for items in (same.items(), reversed(same.items()))]
        assert len({hash_of(replace(bare, outputs=(each,))) for each in turned}) == 1
    assert hash_of(replace(bare, suites=(SuiteOn("a.json"),))) == hash_of(bare)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Declaration("", ("a",)),
        lambda: Declaration(None, ("a",)),  # type: ignore[arg-type]
        lambda: Declaration("p", 5),  # type: ignore[arg-type]
        lambda: Declaration("p", (5,)),  # type: ignore[arg-type]
        lambda: Declaration("p", ("",)),
        lambda: Declaration("p", {"a": "b"}),  # type: ignore[arg-type]
        lambda: Declaration("p", ("a",), "outputs"),  # type: ignore[arg-type]
        lambda: Declaration("p", ("a",), (SET,)),  # type: ignore[arg-type]
        lambda: Declaration("p", ("a",), group_id=5),  # type: ignore[arg-type]
        lambda: Declaration("p", ("a",), up_to_position="yes", group_id="g"),  # type: ignore[arg-type]
        lambda: Declaration("p", ("a",), input_delimiter=None),  # type: ignore[arg-type]
        lambda: Declaration("p", ("a",), input_date_format=5),  # type: ignore[arg-type]
        lambda: Declaration("p", ("a",), suites="suite.json"),  # type: ignore[arg-type]
        lambda: Declaration("p", ("a",), suites=(Path("suite.json"),)),  # type: ignore[arg-type]
        lambda: Declaration("p", ("a",), dead_letter_topic=5),  # type: ignore[arg-type]
        lambda: Output("", SET),
        lambda: Output("o", {"a": "a"}),  # type: ignore[arg-type]
        lambda: Output("o", SET, 5),  # type: ignore[arg-type]
        lambda: SameSet(5),  # type: ignore[arg-type]
        lambda: SameRows({"a": 5}),  # type: ignore[dict-item]
        lambda: SameRows({"": "a"}),
        lambda: LatestByKey({"a": "a"}, None),  # type: ignore[arg-type]
        lambda: Totals({"a": "a"}, ["amount"]),  # type: ignore[arg-type]
        lambda: Totals({"a": "a"}, {"s": "amount"}),  # type: ignore[dict-item]
        lambda: Totals({"a": "a"}, count=5),  # type: ignore[arg-type]
        lambda: Amount(""),
        lambda: Amount("a", 5, ("x",)),  # type: ignore[arg-type]
        lambda: Amount("a", "b", (5,)),  # type: ignore[arg-type]
        lambda: SqlReduction(None, "SELECT 1"),  # type: ignore[arg-type]
    ],
)
def test_a_field_of_another_type_is_refused(make: Callable[[], object]) -> None:
    """Each field is refused where it is written, and not after a minute of work."""
    with pytest.raises(InvalidRequestError) as refused:
        make()
    assert refused.value.reason is Reason.BAD_FIELD


def test_a_suite_by_itself_is_one() -> None:
    """A single suite needs no tuple."""
    suite: Any = SuiteOn("suite.json")
    assert Declaration("p", ("a",), suites=suite).suites == (suite,)


@pytest.mark.parametrize("folder", [5, "", None, b"", ["reports"]])
def test_a_report_folder_that_is_no_path_is_refused_at_once(folder: Any) -> None:
    """Nothing is read before the call is known to be sound."""
    with connect("memory://no-folder") as engine, pytest.raises(InvalidRequestError) as refused:
        check_exactly_once(engine, Declaration("nowhere", ("a",)), report_folder=folder)
    assert refused.value.reason is Reason.BAD_ARGUMENT


def test_a_report_folder_may_be_a_text(tmp_path: Path) -> None:
    """A path is a text or a `Path`."""
    import great_expectations.expectations as gxe
    import pyarrow as pa

    for folder in (str(tmp_path / "a"), tmp_path / "b"):
        run = check_rows(
            pa.table({"n": [1]}), [gxe.ExpectTableRowCountToEqual(value=1)], report_folder=folder
        )
        assert run.report is not None
        assert run.report.exists()
