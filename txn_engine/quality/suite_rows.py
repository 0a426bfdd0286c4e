"""The rows that a suite is held against, as Great Expectations takes them: Spark's stay in Spark, others go to pandas.

Which of the two judges is decided by what was given, never by how many rows there are: the same suite means slightly
other things to both (SQL runs in Spark alone), and its verdict must not change as a topic grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.errors import InvalidRequestError
from txn_engine.held import held_table
from txn_engine.reasons import Reason

if TYPE_CHECKING:
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext

ROWS_MAX = 1_000_000
"""Rows that are held in memory and handed to pandas; more need Spark."""
_FLOAT_INTEGERS_MAX = 2**53
_DECIMAL_DIGITS_KEPT = 28
_DECIMAL_DIGITS_ADDED = 60  # a million of such numbers have 66 digits
_ACTOR = "checks"
_EXPECTED = "a DataFrame of a classic Spark session (of any size), or a pyarrow Table or pandas DataFrame"
_VIEW = "tmp_view"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one of the two kinds; `frame` is what a function of a user's is called with.

    given: the table that a frame of pandas was made of, if it was: its values are exact.
    """

    kind: Literal["spark", "pandas"]
    frame: Any
    given: pa.Table | None = None

    def has_nan(self, name: str) -> bool:
        """Whether the table's column has a NaN, which pandas takes for a null."""
        return (
            self.given is not None and name in self.given.column_names and _has_nan(_held(self.given, name))
        )

    def is_rounded(self, name: str) -> bool:
        """Whether pandas rounds a sum of the values of the table's column."""
        return (
            self.given is not None
            and name in self.given.column_names
            and _is_rounded(_held(self.given, name))
        )


def rows_of(given: Any) -> Rows:
    """Rows that a suite can be held against. Raises `InvalidRequestError` for what cannot be taken as it is.

    A DataFrame of Spark is given a session of its own, a copy of the one it came with: the views that Great
    Expectations makes for SQL are then nobody else's, and no other run's are taken for them.
    """
    kinds = {kind.__module__ for kind in type(given).__mro__}
    if any(module.startswith("pyspark.sql.connect.") for module in kinds):
        raise InvalidRequestError(
            "a DataFrame of Spark Connect",
            actor=_ACTOR,
            expected="one of a classic session: Great Expectations runs SQL on views of the session that asks",
            reason=Reason.BAD_ARGUMENT,
            action="use spark_session(), or read the rows with engine.scan()",
        )
    if any(module.startswith("pyspark.sql.") for module in kinds) and hasattr(given, "_jdf"):
        return Rows("spark", _in_session_of_its_own(given))
    if isinstance(given, pa.Table):
        _check_count(given.num_rows)
        # Whole numbers beside nulls stay whole numbers: as floats large ones would be others.
        return Rows("pandas", given.to_pandas(integer_object_nulls=True), given)
    if any(module.startswith("pandas.") for module in kinds) and hasattr(given, "columns"):
        _check_count(len(given))
        return Rows("pandas", given)
    raise InvalidRequestError(
        f"rows of type {type(given).__name__}", actor=_ACTOR, expected=_EXPECTED, reason=Reason.BAD_ARGUMENT
    )


def _held(table: pa.Table, name: str) -> Any:
    return held_table(table.select([name])).column(0)


def _has_nan(column: Any) -> bool:
    return bool(pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py())


def _is_rounded(column: Any) -> bool:
    """Whether a sum of these values is not exact: pandas makes floats of integers, and keeps 28 digits of decimals."""
    kind = column.type
    if pa.types.is_integer(kind):
        return _sum_of(column, pa.decimal128(38, 0)) > _FLOAT_INTEGERS_MAX
    if not pa.types.is_decimal(kind):
        return False
    if kind.precision > _DECIMAL_DIGITS_ADDED:
        return True
    total = _sum_of(column, pa.decimal256(76, kind.scale))
    return len(total.as_tuple().digits) > _DECIMAL_DIGITS_KEPT


def _sum_of(column: Any, kind: Any) -> Decimal:
    return pc.sum(pc.abs(column.cast(kind))).as_py() or Decimal(0)


@contextmanager
def batch_of(context: EphemeralDataContext, rows: Rows, name: str) -> Iterator[BatchDefinition[Any]]:
    """The rows as a batch of Great Expectations."""
    if rows.kind == "pandas":
        yield (
            context.data_sources.add_pandas(name)
            .add_dataframe_asset(name)
            .add_batch_definition_whole_dataframe(name)
        )
        return
    source = context.data_sources.add_spark(name, persist=False)  # it would never let go of what it persists
    source._spark = rows.frame.sparkSession  # else it asks for any session that there is
    try:
        yield source.add_dataframe_asset(name).add_batch_definition_whole_dataframe(name)
    finally:
        rows.frame.sparkSession.catalog.dropTempView(_VIEW)


def _in_session_of_its_own(frame: Any) -> Any:
    session = frame.sparkSession
    own = type(session)(session._sc, session._jsparkSession.cloneSession())
    own.conf.set("spark.sql.variable.substitute", "false")  # texts of a suite name no setting and no secret
    plan = frame._jdf.queryExecution().logical()
    rows = own._jvm.org.apache.spark.sql.classic.Dataset.ofRows(own._jsparkSession, plan)
    return type(frame)(rows, own)


def _check_count(count: int) -> None:
    if count > ROWS_MAX:
        raise InvalidRequestError(
            f"{count:,} rows in memory",
            actor=_ACTOR,
            expected=f"at most {ROWS_MAX:,}, which pandas judges",
            reason=Reason.TOO_MANY_ROWS,
            action="give a DataFrame of Spark: read_topic(...).df",
        )
