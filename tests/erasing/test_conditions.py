"""A condition of an erasure chooses exactly the records that it names: it compares values of one exact type, and what
would convert them by itself is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from storage import MemoryStore
from tests.erasing.condition_cases import case_of, cases_until, one_duckdb, run, table_of
from tests.erasing.persons import open_engine
from tests.suite.tiers import in_shard
from tests.support.refusals import refused
from txn_engine import AddColumn, Engine, WidenColumn
from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason
from txn_engine.sql.predicate import SqlPredicate
from txn_engine.testing import ManualClock

NEXT = 2**53 + 1
"""The first whole number that is no float: the float is the one before it."""
_OF: Any = pa.struct([("id", pa.int64())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("rate", pa.float64()),
        ("short", pa.float32()),
        ("name", pa.string()),
        ("amount", pa.decimal128(20, 2)),
        ("day", pa.date32()),
        ("moment", pa.timestamp("ms")),
        ("zoned", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
        ("code", pa.binary()),
        ("of", _OF),
        ("ids", pa.list_(pa.int64())),
        ("facts", pa.map_(pa.int64(), pa.int64())),
        ("took", pa.duration("s")),
    ]
)
RECORDS = pa.table(
    {
        "id": [NEXT - 1, NEXT, NEXT + 1, None],
        "small": [1, 42, -1, None],
        "rate": [0.1, math.nan, -0.0, None],
        "short": [0.5, 0.3, math.inf, None],
        "name": ["42", "042", "Miller", None],
        "amount": [Decimal("90071992547409.93"), Decimal("1.50"), Decimal("-2.00"), None],
        "day": [date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31), None],
        "moment": pa.array([0, -1, 1_709_164_800_000, None], pa.timestamp("ms")),
        "zoned": pa.array([0, -1, 1_709_164_800_000_000, None], pa.timestamp("us", "UTC")),
        "flag": [True, False, True, None],
        "code": [b"\x00\xff", b"", b"ab", None],
        "of": [{"id": NEXT}, {"id": NEXT - 1}, {"id": None}, None],
        "ids": [[NEXT], [NEXT - 1, None], [], None],
        "facts": [[(NEXT, NEXT)], [(NEXT - 1, NEXT - 1)], [], None],
        "took": pa.array([5, -86_400, 0, None], pa.duration("s")),
    },
    schema=SCHEMA,
)


@pytest.fixture(scope="module", autouse=True)
def _one_duckdb() -> Iterator[None]:
    with one_duckdb():
        yield


@pytest.fixture
def engine() -> Iterator[Engine]:
    """An engine with an empty store."""
    with open_engine(MemoryStore(), ManualClock()) as opened:
        yield opened


def chosen(condition: str, records: pa.Table = RECORDS) -> list[int]:
    """The places of the records that a condition chooses."""
    found = SqlPredicate(condition, records.schema, topic="payments").matches(records)
    return [int(at) for at in np.flatnonzero(found)]


@pytest.mark.parametrize(
    "condition",
    [
        f"id = {NEXT}e0",
        "id = rate",
        "rate = id",
        f"id IN ({NEXT}e0)",
        f"id BETWEEN {NEXT}e0 AND {NEXT}e0",
        f"id IS NOT DISTINCT FROM {NEXT}e0",
        f"id = CAST({NEXT - 1} AS DOUBLE)",
        f"of.id = {NEXT}e0",
        f"facts[{NEXT}e0] = 1",
        f"facts[{NEXT}] = {NEXT}e0",
        f"list_contains(ids, {NEXT}e0)",
        f"list_contains([{NEXT}e0], id)",
        f"id IN [{NEXT}e0]",
        f"id / 1 = {NEXT}",
        f"coalesce(id, 0e0) = {NEXT}",
        f"ifnull(id, 0e0) = {NEXT}",
        f"nullif(id, 0e0) = {NEXT}",
        f"CASE WHEN flag THEN id ELSE 0e0 END = {NEXT}",
        f"if(flag, id, 0e0) = {NEXT}",
        f"pow(id, 1) = {NEXT}",
        f"id ** 1 = {NEXT}",
        f"floor(id) = {NEXT}",
        f"round(id) = {NEXT}",
        f"sqrt(id * id) = {NEXT}",
        f"greatest(id, 0e0) = {NEXT}",
        f"least(id, 1e99) = {NEXT}",
        f"id + 0e0 = {NEXT}",
        f"id - rate = {NEXT}",
        f"-id = -{NEXT}e0",
        f"abs(id) = {NEXT}e0",
        f"[id] = [{NEXT}e0]",
        f"{{'a': id}} = {{'a': {NEXT}e0}}",
        f"(id, 1) = ({NEXT}e0, 1)",
        f"map([{NEXT}e0], [true])[id]",
        f"map_contains(map([{NEXT}e0], [1]), id)",
        f"list_position([{NEXT}e0], id) = 1",
        f"id = ANY([{NEXT}e0])",
        f"struct_pack(a := id) = struct_pack(a := {NEXT}e0)",
        f"union_value(a := id) = {NEXT}e0",
        f"try(id = {NEXT}e0)",
        f"TRY_CAST(id AS DOUBLE) = {NEXT}",
        f"amount = {NEXT}e-2",
        "amount = rate",
        f"_offset = {NEXT}e0",
        "small = short",
    ],
)
def test_whole_numbers_are_not_compared_with_floats(condition: str) -> None:
    """From 2^53 on several whole numbers are the same float, so the neighbours of a person would be erased."""
    with pytest.raises(InvalidRequestError):
        chosen(condition)


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("name = 42", Reason.CONDITION_TYPES_DIFFER),
        ("small = '42'", Reason.CONDITION_TYPES_DIFFER),
        ("small IN ('42')", Reason.CONDITION_TYPES_DIFFER),
        ("small LIKE '4%'", Reason.CONDITION_TYPES_DIFFER),
        ("day = '2024-02-29'", Reason.CONDITION_TYPES_DIFFER),
        ("day = moment", Reason.CONDITION_TYPES_DIFFER),
        ("moment = TIMESTAMPTZ '1970-01-01 00:00:00+00'", Reason.CONDITION_TYPES_DIFFER),
        ("zoned = TIMESTAMP '1970-01-01 00:00:00'", Reason.CONDITION_TYPES_DIFFER),
        ("moment = zoned", Reason.CONDITION_TYPES_DIFFER),
        ("flag = 1", Reason.CONDITION_TYPES_DIFFER),
        ("flag = 'true'", Reason.CONDITION_TYPES_DIFFER),
        ("code = 'ab'", Reason.CONDITION_TYPES_DIFFER),
        ("id = small", Reason.CONDITION_TYPES_DIFFER),
        ("facts['1'] = 1", Reason.CONDITION_TYPES_DIFFER),
        ("took = 5", Reason.CONDITION_TYPES_DIFFER),
        ("small", Reason.CONDITION_NOT_BOOLEAN),
        ("small AND flag", Reason.CONDITION_NOT_BOOLEAN),
        ("small = 1.5", Reason.LITERAL_NOT_OF_TYPE),
        ("small = 3000000000", Reason.LITERAL_NOT_OF_TYPE),
        ("amount = 1.505", Reason.LITERAL_NOT_OF_TYPE),
        (f"rate = {NEXT}", Reason.LITERAL_NOT_OF_TYPE),
        ("rate = 1e-400", Reason.LITERAL_NOT_OF_TYPE),
        ("rate = 1e400", Reason.LITERAL_NOT_OF_TYPE),
        ("short = 0.3", Reason.LITERAL_NOT_OF_TYPE),
        ("moment = TIMESTAMP '1970-01-01 00:00:00.0001'", Reason.LITERAL_NOT_OF_TYPE),
        ("day = DATE '2023-02-29'", Reason.LITERAL_NOT_OF_TYPE),
        ("took = INTERVAL 1500 MILLISECOND", Reason.LITERAL_NOT_OF_TYPE),
        ("took = INTERVAL 1 MONTH", Reason.FUNCTION_NOT_ALLOWED),
        ("name LIKE 'a\\_'", Reason.LITERAL_NOT_OF_TYPE),
        ("name LIKE 'a!' ESCAPE '!'", Reason.LITERAL_NOT_OF_TYPE),
        ("name LIKE name", Reason.FUNCTION_NOT_ALLOWED),
        ("name ILIKE 'm%'", Reason.FUNCTION_NOT_ALLOWED),
        ("name COLLATE NOCASE = 'miller'", Reason.NOT_IN_A_CONDITION),
        ("TRY_CAST(name AS BIGINT) = 42", Reason.NOT_IN_A_CONDITION),
        ("CAST(rate AS VARCHAR) = '0.1'", Reason.CAST_NOT_EXACT),
        ("CAST(moment AS VARCHAR) = '1970-01-01'", Reason.CAST_NOT_EXACT),
        ("CAST(rate AS DECIMAL(10, 2)) = 0.1", Reason.CAST_NOT_EXACT),
        ("CAST(id AS HUGEINT) = 1", Reason.CAST_NOT_EXACT),
        ("CAST(name AS BIGINT) = 42", Reason.CONDITION_UNANSWERED),
        (f"CAST(id AS DOUBLE) = {NEXT - 1}", Reason.CONDITION_UNANSWERED),
        ("CAST(amount AS INTEGER) = 2", Reason.CONDITION_UNANSWERED),
        ("CAST(small AS UTINYINT) = 1", Reason.CONDITION_UNANSWERED),
        ("id * id = 1", Reason.CONDITION_UNANSWERED),
        ("id = 1e300 * 1e300", Reason.LITERAL_NOT_OF_TYPE),
        ("id = " + " * ".join(["9" * 90] * 9), Reason.LITERAL_NOT_OF_TYPE),
        (f"'1' IN ids OR {NEXT}e0 IN ids", Reason.CONDITION_TYPES_DIFFER),
        ("of = 1", Reason.UNSUPPORTED_TYPE),
        ("of.nobody = 1", Reason.UNKNOWN_COLUMN),
        ("small.id = 1", Reason.UNKNOWN_COLUMN),
        ("payments.id = 1", Reason.UNKNOWN_COLUMN),
        ("current_date = day", Reason.UNKNOWN_COLUMN),
        ("id = 1) OR (true", Reason.BAD_CONDITION),
        ("id = 1 UNION SELECT 1", Reason.NOT_ONE_CONDITION),
        ("id = 1 LIMIT 1", Reason.NOT_ONE_CONDITION),
        ("true; SELECT 1", Reason.NOT_ONE_CONDITION),
        ("NOT " * 200 + "flag", Reason.BAD_CONDITION),
        ("id = ?", Reason.NOT_IN_A_CONDITION),
        ("main.lower(name) = 'a'", Reason.FUNCTION_NOT_ALLOWED),
        ("name.lower() = 'a'", Reason.FUNCTION_NOT_ALLOWED),
        ("lower(DISTINCT name) = 'a'", Reason.FUNCTION_NOT_ALLOWED),
        ("name LIKE 'a' ESCAPE 'ab'", Reason.LITERAL_NOT_OF_TYPE),
        ("ids = ids", Reason.UNSUPPORTED_TYPE),
        ("facts = facts", Reason.UNSUPPORTED_TYPE),
        ("of = of", Reason.UNSUPPORTED_TYPE),
        ("isnan(small)", Reason.CONDITION_TYPES_DIFFER),
        ("list_contains(name, 'a')", Reason.CONDITION_TYPES_DIFFER),
        ("list_contains(ids, NULL)", Reason.CONDITION_TYPES_DIFFER),
        ("rate + 1 = 2", Reason.FUNCTION_NOT_ALLOWED),
        ("day + 1 = day", Reason.CONDITION_TYPES_DIFFER),
        ("took = INTERVAL (0.5) SECOND", Reason.LITERAL_NOT_OF_TYPE),
        ("127::TINYINT + 1::TINYINT = 1::TINYINT", Reason.LITERAL_NOT_OF_TYPE),
        ("id NOT IN (SELECT 1)", Reason.NOT_IN_A_CONDITION),
    ],
)  # fmt: skip
def test_what_is_refused(condition: str, reason: Reason) -> None:
    """Nothing is converted that the user did not ask to convert, and what is asked is exact or fails. The error says
    it in one line, without a value of the condition."""
    with refused(InvalidRequestError, reason) as raised:
        chosen(condition)
    line = str(raised.value)
    assert "\n" not in line
    assert "042" not in line


@pytest.mark.parametrize(
    ("condition", "places"),
    [
        (f"id = {NEXT}", [1]),
        (f"id = {NEXT}.000", [1]),
        (f"id <> {NEXT}", [0, 2]),
        (f"id + 1 - 1 = {NEXT} AND id * 1.0 = {NEXT}", [1]),
        (f"id IN (1, {NEXT}, NULL)", [1]),
        (f"id NOT IN (1, {NEXT})", [0, 2]),
        (f"id NOT IN (1, {NEXT}, NULL)", []),
        (f"of.id = {NEXT} AND of['id'] = {NEXT}", [0]),
        ("of IS NULL", [3]),
        (f"list_contains(ids, {NEXT - 1}) AND {NEXT - 1} IN ids AND contains(ids, {NEXT - 1})", [1]),
        (f"facts[{NEXT}] = {NEXT}", [0]),
        (f"coalesce(id, 0) IN (0, {NEXT})", [1, 3]),
        ("CAST(small AS BIGINT) < id", [0, 1, 2]),
        ("CAST(small AS DOUBLE) = 42", [1]),
        ("CAST(small AS VARCHAR) = '42'", [1]),
        ("name = '42'", [0]),
        ("name LIKE '%4_'", [0, 1]),
        ("name NOT LIKE '%!%%' ESCAPE '!' AND lower(name) = 'miller'", [2]),
        ("starts_with(name, '0') OR length(name) = 6", [1, 2]),
        ("name LIKE 'M%r' AND name LIKE '______'", [2]),
        ("amount = 90071992547409.93", [0]),
        ("CAST(amount AS VARCHAR) = '1.50'", [1]),
        ("rate = 0.1 OR rate = 0.10000000000000001", [0]),
        ("rate = 0", [2]),
        ("rate = 'NaN'::DOUBLE AND isnan(rate)", [1]),
        ("rate > 1e308", [1]),
        ("short = 0.5 OR short = CAST(0.3 AS FLOAT)", [0, 1]),
        ("day = DATE '2024-02-29'", [0]),
        ("moment < TIMESTAMP '1970-01-01'", [1]),
        ("CAST(moment AS DATE) = DATE '1969-12-31'", [1]),
        ("CAST(day AS TIMESTAMP_MS) = moment", []),
        ("zoned >= TIMESTAMPTZ '2024-02-29 02:00:00+02:00'", [2]),
        ("took = INTERVAL 5 SECOND OR took = INTERVAL '-1' DAY", [0, 1]),
        ("code = x'00FF' OR code = '\\x61b'::BLOB", [0, 2]),
        ("flag", [0, 2]),
        ("CAST(flag AS INTEGER) = 0", [1]),
        ("small" + " + 1" * 90 + " = 132", [1]),
        ("(" * 60 + "flag" + " IN (true, flag))" * 60, [0, 1, 2]),
        ("(" * 60 + "flag" + " BETWEEN false AND true)" * 60, [0, 1, 2]),
        ("small = -(1 - 2) OR small = +42", [0, 1]),
        ("small = 40 + 2 AND amount = 0.5 * 3", [1]),
        ("NOT flag", [1]),
        ("flag IS NOT TRUE", [1, 3]),
        ("small IS DISTINCT FROM 42", [0, 2, 3]),
        ("small = 1 -- and nothing else", [0]),
        ("1 = 1 AND small BETWEEN -1 AND 1", [0, 2]),
        ("NULL", []),
        ("NOT NULL OR flag AND NULL", []),
        ("small = NULL OR day = NULL", []),
        ("NULL IS NULL AND flag", [0, 2]),
        ("1 IS NULL OR NULL IS NOT NULL OR flag", [0, 2]),
        ("'a' IS NOT NULL AND flag", [0, 2]),
        ("name LIKE NULL OR starts_with(name, NULL)", []),
        ("CAST(NULL AS INTEGER) = 1", []),
        ("INTERVAL 5 SECOND = INTERVAL 5 SECOND AND flag", [0, 2]),
        ("TIMESTAMP '2024-01-01' = TIMESTAMP '2024-01-01' AND flag", [0, 2]),
        ("CAST(TIMESTAMP '2024-01-01' AS DATE) = DATE '2024-01-01' AND flag", [0, 2]),
        ("1e0 = 1 AND flag", [0, 2]),
    ],
)
def test_what_is_chosen(condition: str, places: list[int]) -> None:
    """Each condition chooses exactly the records that it names."""
    assert chosen(condition) == places


@pytest.mark.parametrize(
    ("value", "kind", "cast", "literal"),
    [
        (2.0**53, pa.float64(), "BIGINT", str(2**53)),
        (-(2.0**63), pa.float64(), "BIGINT", str(-(2**63))),
        (2.0**63, pa.float64(), "BIGINT", None),
        (2.0**63, pa.float64(), "UBIGINT", str(2**63)),
        (-1.0, pa.float64(), "UBIGINT", None),
        (1.5, pa.float64(), "BIGINT", None),
        (math.nan, pa.float64(), "BIGINT", None),
        (math.inf, pa.float64(), "BIGINT", None),
        (0.1, pa.float64(), "FLOAT", None),
        (1e300, pa.float64(), "FLOAT", None),
        (math.inf, pa.float64(), "FLOAT", "'inf'::FLOAT"),
        (0.5, pa.float32(), "DOUBLE", "0.5"),
        (2**54, pa.int64(), "DOUBLE", str(2**54)),
        (2**63 - 1, pa.int64(), "DOUBLE", None),
        (2**64 - 1, pa.uint64(), "DOUBLE", None),
        (2**24 + 1, pa.int32(), "FLOAT", None),
        (2**63, pa.uint64(), "BIGINT", None),
        (Decimal("0.10"), pa.decimal128(5, 2), "DOUBLE", "0.1"),
        (Decimal("9007199254740.93"), pa.decimal128(20, 2), "DOUBLE", "9007199254740.93"),
        (Decimal("90071992547409.93"), pa.decimal128(20, 2), "DOUBLE", None),
        (Decimal("900719925474099.301"), pa.decimal128(20, 3), "DOUBLE", None),
        (Decimal("1.50"), pa.decimal128(5, 2), "DECIMAL(4, 1)", "1.5"),
        (Decimal("1.55"), pa.decimal128(5, 2), "DECIMAL(4, 1)", None),
        (Decimal("2.00"), pa.decimal256(60, 2), "TINYINT", "2"),
        ("+042", pa.string(), "INTEGER", "42"),
        (" 42", pa.string(), "INTEGER", None),
        ("4_2", pa.string(), "INTEGER", None),
        ("1e2", pa.string(), "INTEGER", None),
        ("9007199254740993", pa.string(), "DOUBLE", None),
        ("0.1", pa.string(), "DOUBLE", "0.1"),
    ],
)
def test_casts_of_numbers(value: Any, kind: Any, cast: str, literal: str | None) -> None:
    """A cast gives the same number. If the type does not have it, the condition has no answer (literal: None)."""
    table = pa.table({"held": pa.array([value, None], kind)})
    if literal is not None:
        assert chosen(f"CAST(held AS {cast}) = {literal}", table) == [0]
        return
    with refused(InvalidRequestError, Reason.CONDITION_UNANSWERED):
        chosen(f"CAST(held AS {cast}) IS NULL", table)


def test_texts_of_several_lines() -> None:
    """In a pattern of LIKE, % and _ stand for the end of a line, too."""
    table = pa.table({"name": ["a\nb", "a\n", "ab", "a.b"]})
    assert chosen("name LIKE 'a_b'", table) == [0, 3]
    assert chosen("name LIKE 'a%'", table) == [0, 1, 2, 3]
    assert chosen("name LIKE 'a.b'", table) == [3]


def test_a_nan_of_any_bits_is_the_same() -> None:
    """NaN is equal to itself and greater than all other numbers, whichever of its bits a file has."""
    bits = np.array(
        [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0x7FF0000000000000], np.uint64
    )
    table = pa.table({"rate": bits.view(np.float64)})
    assert chosen("rate = 'NaN'::DOUBLE", table) == chosen("rate > 'inf'::DOUBLE", table) == [0, 1, 2]
    assert chosen("rate IN ('NaN'::DOUBLE, 1)", table) == [0, 1, 2]


def test_a_key_twice_in_a_map_has_no_answer() -> None:
    """A map may have a key twice in Arrow. A condition on that key is refused, and on another key it is not."""
    table = pa.table({"facts": pa.array([[(1, 1), (1, 2), (2, 2)]], pa.map_(pa.int64(), pa.int64()))})
    assert chosen("facts[2] = 2", table) == [0]
    with refused(InvalidRequestError, Reason.CONDITION_UNANSWERED):
        chosen("facts[1] = 1", table)


def test_fields_that_differ_by_case() -> None:
    """Fields of a struct that SQL does not tell apart are refused where the condition names them."""
    both: Any = pa.struct([("id", pa.int64()), ("ID", pa.int64()), ("name", pa.string())])
    table = pa.table({"of": pa.array([{"id": 1, "ID": 2, "name": "a"}], both)})
    assert chosen("of.name = 'a'", table) == [0]
    with refused(InvalidRequestError, Reason.COLUMN_NAMES_ALIKE):
        chosen("of.id = 1", table)


def test_files_of_several_versions(engine: Engine) -> None:
    """A condition is typed by the topic's columns of today. Records of before have the default of a column that was
    added since, and their numbers are those of the wider type."""
    engine.admin.create_topic("payments", schema=pa.schema([("id", pa.int32())]), partitions=1)
    engine.partition("payments", 0).append(pa.table({"id": pa.array([1, 2], pa.int32())}))
    added = AddColumn(pa.field("rate", pa.float64()), default=0.1)
    engine.admin.alter_topic("payments", [WidenColumn("id", pa.int64()), added])
    later = pa.table({"id": [NEXT, 1], "rate": [0.1, None]})
    engine.partition("payments", 0).append(later)
    for condition, records in (("rate = 0.1", 3), (f"id = {NEXT}", 1), ("id = 1 AND rate IS NULL", 1)):
        assert engine.erase("payments", condition).records == records
    assert engine.erase("payments", "id = 1 AND rate = 0.1", execute=True).records == 1
    assert engine.scan("payments").to_table()["id"].to_pylist() == [2, NEXT, 1]


# --- random conditions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "number"), in_shard("kills", [("short", 300), ("long", 10_000)], keep=1))
def test_random_conditions_over_every_type(seed: str, number: int) -> None:
    """Conditions that a generator draws are refused, or choose what a naive evaluation chooses. At least half of them
    are accepted."""
    tally = run(cases_until(seed, minutes=0, number=number))
    print(tally.text())
    assert tally.wrong == []
    assert tally.total == number
    assert 2 * tally.accepted >= tally.total


def test_random_conditions_of_erasures(engine: Engine) -> None:
    """The same through an erasure, of records in two files with a column of every type."""
    table, _ = table_of("stored/0")
    engine.admin.create_topic("every", schema=table.schema, partitions=1)
    engine.partition("every", 0).append(table.slice(0, 7))
    engine.partition("every", 0).append(table.slice(7))
    accepted = 0
    for number in range(0, 160, 8):
        case = case_of("stored", number)
        try:
            found = engine.erase("every", case.condition)
        except InvalidRequestError:
            continue
        accepted += 1
        assert case.expected is not None, case.condition
        assert found.records == sum(case.expected), case.condition
    assert accepted >= 10
