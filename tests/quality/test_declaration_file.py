"""A declaration as YAML: what it says is what is proved, and what is mistyped is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.quality.ledger import CHECK
from txn_engine.errors import InvalidRequestError
from txn_engine.quality import (
    Amount,
    Declaration,
    LatestByKey,
    Output,
    SameRows,
    SameSet,
    SqlReduction,
    Totals,
    read_declaration,
)
from txn_engine.quality.declaration_file import FILE_BYTES_MAX

PAYMENTS = """
topic: payments
record_id: trans_id
group_id: balances
outputs:
  - topic: balances
    by: account_id
    sum:
      turnover: {of: amount, direction: type, plus: [PRIJEM]}
    count: payments
"""


def read(folder: Path, text: str) -> Declaration:
    path = folder / "declaration.yaml"
    path.write_text(text, encoding="utf-8")
    return read_declaration(path)


def test_the_payments_check(tmp_path: Path) -> None:
    """The example of the docs is the check of the payments."""
    assert read(tmp_path, PAYMENTS) == CHECK


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    """Every relation, both ways of naming columns, and the input file."""
    text = """
topic: payments
record_id: [bank, trans_id]
group_id: g
up_to_position: true
input: {delimiter: ",", date_format: "%Y-%m-%d"}
outputs:
  - {topic: a, identity: [x, y]}
  - {topic: b, set: {mine: theirs}}
  - topic: c
    latest: {by: {k: key}, columns: v}
  - topic: d
    sql: {topic: SELECT 1, output: SELECT 1}
  - {topic: e, by: [k, l], sum: {total: amount}}
  - {topic: f, by: k, count: "*"}
"""
    assert read(tmp_path, text) == Declaration(
        topic="payments",
        record_id=("bank", "trans_id"),
        outputs=(
            Output("a", SameRows({"x": "x", "y": "y"})),
            Output("b", SameSet({"mine": "theirs"})),
            Output("c", LatestByKey({"k": "key"}, {"v": "v"})),
            Output("d", SqlReduction("SELECT 1", "SELECT 1")),
            Output("e", Totals({"k": "k", "l": "l"}, {"total": Amount("amount")})),
            Output("f", Totals({"k": "k"}, count="*")),
        ),
        group_id="g",
        up_to_position=True,
        input_delimiter=",",
        input_date_format="%Y-%m-%d",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a NoneType"),
        ("- a", "a list"),
        ("1: 2", "with names"),
        ("topic: [", "line 1"),
        ("topic: payments", "no record_id"),
        ("topic: 7\nrecord_id: x", "topic"),
        ("topic: p\nrecord_id: []", "no record_id"),
        ("topic: p\nrecord_id: [1]", "record_id"),
        ("topic: p\nrecord_id: x\nrecord_ids: y", "a field 'record_ids'"),
        ("topic: p\nrecord_id: x\nup_to_position: maybe", "true or false"),
        ("topic: p\nrecord_id: x\nup_to_position: true", "without group_id"),
        ("topic: p\nrecord_id: x\ninput: {delimeter: x}", "a field 'delimeter'"),
        ("topic: p\nrecord_id: x\noutputs: {}", "outputs"),
        ("topic: p\nrecord_id: x\noutputs: [{topic: o}]", "none of them"),
        ("topic: p\nrecord_id: x\noutputs: [{topic: o, set: a, identity: a}]", "identity"),
        ("topic: p\nrecord_id: x\noutputs: [{topic: o, sum: {a: b}}]", "no by"),
        (
            "topic: p\nrecord_id: x\noutputs: [{topic: o, by: k, sum: {a: {of: b, sign: c}}}]",
            "a field 'sign'",
        ),
        ("topic: p\nrecord_id: x\noutputs: [{topic: o, by: k, sum: {a: {of: b, plus: [1]}}}]", "no text"),
        ("topic: p\nrecord_id: x\noutputs: [{topic: o, by: k, count: 7}]", "count"),
        ("topic: p\nrecord_id: x\noutputs: [{topic: o, latest: {by: k}}]", "no columns"),
        ("topic: p\nrecord_id: x\noutputs: [{topic: o, set: {a: 1}}]", "no text"),
        ("topic: !!python/object/apply:os.system ['true']\nrecord_id: x", "not YAML"),
        ("a: &a [*a]\ntopic: p", "a field"),
        ("[" * 5000, "not YAML"),
        ("topic: \x00", "not YAML"),
    ],
)
def test_what_is_no_declaration_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    """The file and the field are named; nothing of YAML's own exceptions is shown."""
    with pytest.raises(InvalidRequestError) as refused:
        read(tmp_path, text)
    message = str(refused.value)
    assert "\n" not in message
    assert said in message or (said == "a field" and "no record_id" in message)


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path) -> None:
    """The system's own words; nothing large is parsed."""
    with pytest.raises(InvalidRequestError, match="No such file"):
        read_declaration(tmp_path / "absent.yaml")
    with pytest.raises(InvalidRequestError, match="more than"):
        read(tmp_path, "#" * (FILE_BYTES_MAX + 1))
    (tmp_path / "latin.yaml").write_bytes(b"topic: \xd8")
    with pytest.raises(InvalidRequestError, match="not YAML"):
        read_declaration(tmp_path / "latin.yaml")
