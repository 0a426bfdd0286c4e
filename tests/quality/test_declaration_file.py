"""A declaration in YAML is proved as it says, and its mistakes are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.quality.ledger import CHECK
from tests.support.yaml_bombs import yaml_bomb
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
from txn_engine.reasons import Reason

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
    """The example of the docs is the payments' declaration."""
    assert read(tmp_path, PAYMENTS) == CHECK


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    """A file may declare every relation, both ways of naming columns, and the input file."""
    text = """
topic: payments
record_id: [bank, trans_id]
group_id: g
up_to_position: true
input: {delimiter: ",", date_format: "%Y-%m-%d", null_values: ["", NA], columns: {Betrag: x, note: null}}
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
        input_null_values=("", "NA"),
        input_columns={"Betrag": "x", "note": None},
    )


def test_aliases_and_merge_keys_are_read(tmp_path: Path) -> None:
    """YAML that repeats itself in ordinary measure means what it says."""
    assert read(tmp_path, "topic: &t p\nrecord_id: &id [a, b]\ngroup_id: *t").group_id == "p"
    merged = "topic: p\nrecord_id: x\noutputs:\n- &o {topic: o, set: a}\n- {<<: *o, topic: q}"
    assert [output.topic for output in read(tmp_path, merged).outputs] == ["o", "q"]


@pytest.mark.parametrize(
    ("text", "reason", "field"),
    [
        ("", Reason.BAD_FIELD, ""),
        ("- a", Reason.BAD_FIELD, ""),
        ("1: 2", Reason.BAD_FIELD, ""),
        ("-1: 2", Reason.BAD_DOCUMENT, " line 1"),
        ("10000000000: 2", Reason.BAD_DOCUMENT, " line 1"),
        ("topic: [", Reason.BAD_DOCUMENT, " line 1"),
        ("topic: payments", Reason.MISSING_FIELD, ""),
        ("topic: 7\nrecord_id: x", Reason.BAD_FIELD, " topic"),
        ("topic: p\nrecord_id: []", Reason.MISSING_FIELD, None),
        ("topic: p\nrecord_id: [1]", Reason.BAD_FIELD, " record_id"),
        ("topic: p\nrecord_id: x\nrecord_ids: y", Reason.UNKNOWN_FIELD, ""),
        ("topic: p\nrecord_id: x\nup_to_position: maybe", Reason.BAD_FIELD, " up_to_position"),
        ("topic: p\nrecord_id: x\nup_to_position: true", Reason.MISSING_FIELD, None),
        ("topic: p\nrecord_id: x\ninput: {delimeter: x}", Reason.UNKNOWN_FIELD, " input"),
        ("topic: p\nrecord_id: x\noutputs: {}", Reason.BAD_FIELD, " outputs"),
        ("topic: p\nrecord_id: x\noutputs: [{topic: o}]", Reason.NOT_ONE_RELATION, " outputs[0]"),
        (
            "topic: p\nrecord_id: x\noutputs: [{topic: o, set: a, identity: a}]",
            Reason.NOT_ONE_RELATION,
            " outputs[0]",
        ),
        ("topic: p\nrecord_id: x\noutputs: [{topic: o, sum: {a: b}}]", Reason.MISSING_FIELD, " outputs[0]"),
        (
            "topic: p\nrecord_id: x\noutputs: [{topic: o, by: k, sum: {a: {of: b, sign: c}}}]",
            Reason.UNKNOWN_FIELD,
            " outputs[0] sum a",
        ),
        (
            "topic: p\nrecord_id: x\noutputs: [{topic: o, by: k, sum: {a: {of: b, plus: [1]}}}]",
            Reason.BAD_FIELD,
            " outputs[0] sum a plus",
        ),
        (
            "topic: p\nrecord_id: x\noutputs: [{topic: o, by: k, count: 7}]",
            Reason.BAD_FIELD,
            " outputs[0] count",
        ),
        (
            "topic: p\nrecord_id: x\noutputs: [{topic: o, latest: {by: k}}]",
            Reason.MISSING_FIELD,
            " outputs[0] latest",
        ),
        ("topic: p\nrecord_id: x\noutputs: [{topic: o, set: {a: 1}}]", Reason.BAD_FIELD, " outputs[0] set"),
        ("topic: !!python/object/apply:os.system ['true']\nrecord_id: x", Reason.BAD_DOCUMENT, " line 1"),
        ("topic: p\na: 1" + ":1" * 60_000, Reason.BAD_DOCUMENT, " line 2"),
        ("topic: p\na: 1" + ":59" * 300 + ".5", Reason.BAD_DOCUMENT, " line 2"),
        ("topic: p\na: 12:30", Reason.BAD_DOCUMENT, " line 2"),
        (f"topic: p\na: [0x{'f' * 5_000}, -1]", Reason.BAD_DOCUMENT, " line 2"),
        ("a: &a [*a]\ntopic: p", Reason.DOCUMENT_TOO_LARGE, ""),
        ("a: &a {<<: *a}\ntopic: p", Reason.DOCUMENT_TOO_LARGE, ""),
        (yaml_bomb(" [*{0}, *{0}]", levels=24), Reason.DOCUMENT_TOO_LARGE, ""),
        (yaml_bomb(" {{a: *{0}, b: *{0}}}", levels=24), Reason.DOCUMENT_TOO_LARGE, ""),
        (yaml_bomb(" {{<<: [*{0}, *{0}]}}", levels=24), Reason.DOCUMENT_TOO_LARGE, ""),
        ("[" * 5000, Reason.BAD_DOCUMENT, ""),
        ("topic: \x00", Reason.BAD_DOCUMENT, ""),
        ("topic: p\nrecord_id: x\ntopic: p", Reason.DUPLICATE_NAME, " line 3"),
        ("topic: p\nrecord_id: x\n'topic': p", Reason.DUPLICATE_NAME, " line 3"),
        ("topic: p\nrecord_id: x\noutputs: [{topic: o, set: a, set: b}]", Reason.DUPLICATE_NAME, " line 3"),
        (
            '{"topic": "p", "record_id": "x",\n"outputs": [{"topic": "o", "set": "a"}],\n"outputs": []}',
            Reason.DUPLICATE_NAME,
            " line 3",
        ),
        ("topic: p\na: !!bool maybe", Reason.BAD_DOCUMENT, " line 2"),
        ("topic: p\na: !!int ''", Reason.BAD_DOCUMENT, " line 2"),
        ("topic: p\na: !!float ''", Reason.BAD_DOCUMENT, " line 2"),
        ("topic: p\na: !!timestamp x", Reason.BAD_DOCUMENT, " line 2"),
        ("topic: p\na: !!str 5", Reason.BAD_DOCUMENT, " line 2"),
        ("topic: p\na: !!set {b}", Reason.BAD_DOCUMENT, " line 2"),
        ("topic: p\na: !own 5", Reason.BAD_DOCUMENT, " line 2"),
        ("topic: p\na: 2024-13-45", Reason.BAD_DOCUMENT, ""),
    ],
)
def test_an_invalid_declaration_is_refused_in_one_line(
    tmp_path: Path, text: str, reason: Reason, field: str | None
) -> None:
    """The error's place is the file and the field, or None if two fields contradict each other."""
    with pytest.raises(InvalidRequestError) as refused:
        read(tmp_path, text)
    place = None if field is None else f"{tmp_path / 'declaration.yaml'}{field}"
    assert (refused.value.reason, refused.value.place) == (reason, place)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path) -> None:
    """A missing file, a large file and bytes that are not UTF-8 are refused."""
    with pytest.raises(InvalidRequestError) as absent:
        read_declaration(tmp_path / "absent.yaml")
    assert absent.value.reason is Reason.FILE_UNREADABLE
    with pytest.raises(InvalidRequestError) as large:
        read(tmp_path, "#" * (FILE_BYTES_MAX + 1))
    assert large.value.reason is Reason.DOCUMENT_TOO_LARGE
    (tmp_path / "latin.yaml").write_bytes(b"topic: \xd8")
    with pytest.raises(InvalidRequestError) as latin:
        read_declaration(tmp_path / "latin.yaml")
    assert latin.value.reason is Reason.BAD_DOCUMENT
