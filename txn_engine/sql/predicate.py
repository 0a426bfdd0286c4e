"""A condition on a topic's records, in SQL, for `erase --where`: DuckDB parses it, and Arrow evaluates it.

DuckDB sees no record, and evaluates nothing. A tree in which each part has one exact type is made of what it parsed
(`conditions`), so no value is converted that the user did not ask to convert.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txn_engine.reasons import Reason
from txn_engine.sql.conditions.parsing import Parsed
from txn_engine.sql.conditions.refusals import refusal
from txn_engine.sql.conditions.typed import Typed


class SqlPredicate:
    """A condition on the records of a topic of this schema. `matches` may be asked for any of them.

    Raises `InvalidRequestError` for a text that is not a condition, that names a column which the topic does not have,
    that compares values of two types, or that has a part which is not proved to be exact.
    """

    def __init__(self, text: str, schema: pa.Schema, *, topic: str) -> None:
        typed = Typed(Parsed(text), schema, topic)
        self._root = typed.root
        self.columns: Sequence[str] = typed.columns
        self.is_constant = not self.columns

    def matches(self, records: pa.Table) -> NDArray[np.bool_]:
        """Which of these records meet the condition: it is true, and not null. Raises `InvalidRequestError` where a
        cast or a sum has no exact result for one of them.
        """
        if self.is_constant:
            return np.full(records.num_rows, self._root.constant.as_py() is True)
        batches = records.select(list(self.columns)).combine_chunks().to_batches()
        try:
            found = [self._chosen(batch) for batch in batches]
        except (ValueError, pa.ArrowException) as error:
            raise refusal(
                f"a condition that does not have an answer for every record ({type(error).__name__})",
                Reason.CONDITION_UNANSWERED,
                expected="casts and sums with an exact result for each record",
                action="compare without the cast, or with a type that has every value",
            ) from None
        return np.concatenate(found) if found else np.empty(0, np.bool_)

    def _chosen(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        found: Any = self._root.evaluate(dict(zip(self.columns, batch.columns, strict=True)))
        if isinstance(found, pa.Scalar):
            return np.full(batch.num_rows, found.as_py() is True)
        chosen: NDArray[np.bool_] = found.fill_null(False).to_numpy(zero_copy_only=False)
        return chosen
