"""Great Expectations' checks of regular expressions, by RE2: a match takes time in proportion to the text's length.

Python's `re` and Java's engine, which Great Expectations asks, take exponential time for expressions such as `^(a+)+$`,
and can be stopped only with their process. Importing this module puts RE2 in their place, for pandas and for Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import great_expectations.execution_engine
import great_expectations.expectations.metrics
import pyarrow as pa
import pyarrow.compute
from great_expectations.expectations.metrics import map_metric_provider as provider

_engines: Any = great_expectations.execution_engine
_metrics: Any = great_expectations.expectations.metrics
_provider: Any = provider
_condition = _provider.column_condition_partial
pc: Any = pyarrow.compute


def _in_pandas(column: Any, patterns: list[str], match_on: str = "any") -> Any:
    texts = pa.array(column.astype(str), pa.large_string(), from_pandas=True)
    found = [pc.fill_null(pc.match_substring_regex(texts, pattern), False) for pattern in patterns]
    whole = found[0]
    for each in found[1:]:
        whole = pc.or_(whole, each) if match_on == "any" else pc.and_(whole, each)
    return type(column)(whole.to_numpy(zero_copy_only=False), index=column.index)


def _in_spark(column: Any, patterns: list[str], match_on: str = "any") -> Any:
    import pandas as pd  # type: ignore[import-untyped]
    from pyspark.sql.pandas import functions

    make: Any = functions.pandas_udf

    def matches(texts: Any) -> Any:  # inside, so that workers get it by value
        import pyarrow
        import pyarrow.compute

        here: Any = pyarrow.compute
        held = pyarrow.array(texts, pyarrow.large_string(), from_pandas=True)
        found = [here.match_substring_regex(held, pattern) for pattern in patterns]
        whole = found[0]
        for each in found[1:]:
            whole = here.or_(whole, each) if match_on == "any" else here.and_(whole, each)
        return whole.to_pandas()

    matches.__annotations__ = {"texts": pd.Series, "return": pd.Series}
    return make(matches, "boolean")(column.cast("string"))


def _replace(base: Any, judge: Callable[[Callable[..., Any], Any, Mapping[str, Any]], Any]) -> None:
    """Great Expectations registers a metric where its class is made; the last one of a name counts."""

    def _pandas(_: Any, column: Any, **given: Any) -> Any:
        return judge(_in_pandas, column, given)

    def _spark(_: Any, column: Any, **given: Any) -> Any:
        return judge(_in_spark, column, given)

    made = {
        "_pandas": _condition(engine=_engines.PandasExecutionEngine)(_pandas),
        "_spark": _condition(engine=_engines.SparkDFExecutionEngine)(_spark),
    }
    type(base)(f"Linear{base.__name__}", (base,), made)


_replace(_metrics.ColumnValuesMatchRegex, lambda matches, column, given: matches(column, [given["regex"]]))
_replace(
    _metrics.ColumnValuesNotMatchRegex, lambda matches, column, given: ~matches(column, [given["regex"]])
)
_replace(
    _metrics.ColumnValuesMatchRegexList,
    lambda matches, column, given: matches(column, list(given["regex_list"]), given["match_on"]),
)
_replace(
    _metrics.ColumnValuesNotMatchRegexList,
    lambda matches, column, given: ~matches(column, list(given["regex_list"])),
)
