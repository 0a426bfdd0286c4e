"""What becomes of each pair of a type and a feature: exact, unless it is here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.types.columns import Column
from txn_engine.databases.errors import DatabaseError
from txn_engine.errors import InvalidRecordError, InvalidRequestError, TxnEngineError
from txn_engine.reasons import Reason


@dataclass(frozen=True)
class Refusal:
    """What a refused pair raises, and what the page says of it."""

    error: type[TxnEngineError]
    reason: Reason | None
    why: str


_NO_FORM: Final = Reason.UNSTORABLE_TYPE
CREATION: Final[dict[str, Refusal]] = {
    name: Refusal(InvalidRecordError, _NO_FORM, why)
    for name, why in {
        "run_end_encoded": "Parquet's writer does not know them: decode the column",
        "month_day_nano_interval": "Parquet has no months beside days: use a duration, or several columns",
        "dense_union": "Parquet has no unions: use a struct with a member for each type",
        "sparse_union": "Parquet has no unions: use a struct with a member for each type",
        "struct without fields": "a Parquet group has at least one field",
        "fixed_size_binary[0]": "a Parquet value of a fixed size has at least one byte",
        "fixed_size_list[0]": "a Parquet list has no room for lists of the fixed size 0: use a list",
        "decimal128, negative scale": "a Parquet decimal has a scale of 0 or more",
        "dictionary[int32, uuid]": "Arrow writes such a type and cannot read it: use the extension without it",
        "fixed_size_binary of more than 16 MiB": "a null takes as much: use binary",
        "fixed_size_list of more than 16 MiB": "a null takes as much: use a list",
        "list, 32 levels deep": "Parquet's readers take 64 levels, and a list has two",
        "struct, 63 levels deep": "Arrow hands over 64 levels, with the column and the table",
        "struct of a required fixed_size_list": "Arrow reads no null of it back: let the list be null",
        "timestamp of an unknown time zone": "no reader knows it: use UTC, an offset or a zone's name",
    }.items()
}
"""Types that no topic can have, at top level or nested."""

Test = Callable[[Column], bool]


def _named(*beginnings: str) -> Test:
    """Columns of a type whose name begins so, at top level and nested, or of a dictionary of such."""
    return lambda column: _plain_name(column).startswith(beginnings)


def _plain_name(column: Column) -> str:
    of_values = re.fullmatch(r"dictionary\[\w+, (list|struct|duration)\]", column.type_name)
    return of_values[1] if of_values else column.type_name


def _is_nested(column: Column) -> bool:
    return column.shape == "nested" or _named(*_NESTED)(column)


_NESTED: Final = ("list", "large_list", "fixed_size_list", "struct", "map", "fixed_shape_tensor")
_EXTENSIONS: Final = ("uuid", "json", "bool8", "opaque", "fixed_shape_tensor")
_NO_TEXT: Final = _named("duration", "bool8", "opaque", "fixed_shape_tensor")
_IS_EXTENSION: Final = _named(*_EXTENSIONS)


def _any(*tests: Test) -> Test:
    return lambda column: any(test(column) for test in tests)


def _is_no_key(column: Column) -> bool:
    kinds = (
        "int32",
        "int64",
        "string",
        "large_string",
        "string_view",
        "binary",
        "large_binary",
        "binary_view",
    )
    of = column.type_name.removeprefix("dictionary[int8, ").removeprefix("dictionary[int32, ").rstrip("]")
    return column.shape == "nested" or not (of in kinds or column.type_name == "dictionary, ordered")


def _is_not_flat(column: Column) -> bool:
    """What no column that is added can be."""
    others = (
        "null",
        "float16",
        "decimal32",
        "decimal64",
        "decimal256",
        "fixed_size_binary",
        "date64",
        "time",
        "duration",
    )
    is_other = _named(*others)(column) and not column.type_name.startswith(
        ("timestamp[ms", "timestamp[us]", "timestamp[us, UTC", "timestamp[ns")
    )
    return _is_nested(column) or is_other or _IS_EXTENSION(column)


_NO_TEXT_REFUSAL: Final = Refusal(
    InvalidRecordError, Reason.UNSUPPORTED_TYPE, "no text stands for such a value: use Parquet"
)
_STAYS_A_LETTER: Final = Refusal(
    InvalidRecordError, None, "no text stands for such a value: the row stays a letter, load it from its file"
)
_ADDED: Final = Refusal(
    InvalidRequestError, Reason.UNSUPPORTED_TYPE, "make a topic with the column, and copy"
)
_NOT_IN_SQL: Final = Refusal(InvalidRequestError, Reason.UNSUPPORTED_TYPE, "SQL has decimals of 38 digits")
_NOT_DELTAS: Final = Refusal(InvalidRequestError, Reason.UNSUPPORTED_TYPE, "Delta has no such type")
_NOT_ICEBERGS: Final = Refusal(InvalidRequestError, Reason.UNSUPPORTED_TYPE, "Iceberg has no such type")
_NO_COLUMN: Final = Refusal(
    DatabaseError, Reason.UNSUPPORTED_TYPE, "no column is made for it: write it yourself"
)
_NO_VALUE: Final = Refusal(
    InvalidRecordError,
    Reason.INEXACT_VALUE,
    "SQLite has no NaN, REAL columns no -0.0, and integers have 64 bits",
)
_INEXACT: Final = Refusal(
    InvalidRequestError,
    Reason.INEXACT_TYPE,
    "rows are compared exactly, and no proof compares such values so",
)
_TOO_FINE: Final = Refusal(InvalidRecordError, Reason.INEXACT_VALUE, "Postgres counts microseconds")
_NOT_SPARKS: Final = Refusal(InvalidRequestError, Reason.TYPE_UNKNOWN_TO_SPARK, "Spark has no such type")
_OTHER_TYPE: Final = Refusal(
    InvalidRecordError, Reason.TYPE_MISMATCH, "without Arrow's schema the file has another type, and no unit"
)

_REFUSED: Final[dict[str, tuple[tuple[Test, Refusal], ...]]] = {
    "as_key": (
        (
            _is_no_key,
            Refusal(
                InvalidRecordError, Reason.UNSUPPORTED_KEY_TYPE, "Kafka's keys are integers, text and bytes"
            ),
        ),
    ),
    "parquet_alone": ((_named("duration", "bool8", "opaque", "fixed_shape_tensor"), _OTHER_TYPE),),
    "csv": (
        (
            _any(_is_nested, _NO_TEXT),
            Refusal(
                InvalidRecordError, Reason.UNSUPPORTED_TYPE, "a field of CSV is one text: use JSON or Parquet"
            ),
        ),
    ),
    "jsonl": ((_NO_TEXT, _NO_TEXT_REFUSAL),),
    "dead_letters": ((_NO_TEXT, _STAYS_A_LETTER),),
    "add_column": ((_is_not_flat, _ADDED),),
    "default": ((_is_not_flat, _ADDED),),
    "sql": ((_named("decimal256(76"), _NOT_IN_SQL),),
    "same_rows": ((_named("float", "decimal256(76"), _INEXACT),),
    "sqlite": (
        (_any(_is_nested, _IS_EXTENSION, _named("null", "duration")), _NO_COLUMN),
        (_named("uint64", "float"), _NO_VALUE),
    ),
    "postgres": (
        (_any(_is_nested, _IS_EXTENSION, _named("null", "duration")), _NO_COLUMN),
        (_named("timestamp[ns", "time64[ns]"), _TOO_FINE),
    ),
    "delta": (
        (
            _any(
                _named(
                    "uint",
                    "float16",
                    "decimal256(76",
                    "fixed_size_binary",
                    "time32",
                    "time64",
                    "duration",
                    "null",
                ),
                _named("timestamp[ns"),
                _IS_EXTENSION,
            ),
            _NOT_DELTAS,
        ),
    ),
    "iceberg": (
        (
            _any(
                _named(
                    "uint",
                    "float16",
                    "decimal256(76",
                    "time32",
                    "time64[ns]",
                    "duration",
                    "null",
                    "timestamp[ns",
                ),
                _IS_EXTENSION,
            ),
            _NOT_ICEBERGS,
        ),
    ),
    "spark": (
        (
            _any(
                _named("float16", "decimal256(76", "time32", "time64", "duration", "null", "timestamp[ns"),
                _IS_EXTENSION,
            ),
            _NOT_SPARKS,
        ),
    ),
}
"""By feature which columns are refused, and how; the first that says so counts."""


def refusal_of(feature: str, column: Column) -> Refusal | None:
    """How the pair is refused; None where it works exactly."""
    if column.type_name in CREATION:
        return CREATION[column.type_name]
    return next((refusal for test, refusal in _REFUSED.get(feature, ()) if test(column)), None)
