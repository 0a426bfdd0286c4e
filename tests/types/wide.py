"""Many columns side by side in one topic: for what takes its time, however many columns there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests.types.checking import wrong_with
from tests.types.columns import SHAPES, Column, as_json, columns, plain
from tests.types.expected import CREATION, refusal_of
from tests.types.world import by_id
from txn_engine.held import nulls

WIDE = {
    "postgres": "Postgres, out and in",
    "spark": "Spark: `read_topic`, `write_topic`, source, sink, streams",
    "spark_load": "Spark: `load_files` of Parquet",
}
"""Features that are tried so, and what the page says of them."""


@dataclass(frozen=True)
class Wide:
    """The columns as `c0`, `c1` and so on, and the column `id`."""

    columns: Sequence[Column]

    @property
    def names(self) -> list[str]:
        """The columns of its topics."""
        return ["id", *(f"c{at}" for at in range(len(self.columns)))]

    @property
    def schema(self) -> pa.Schema:
        """The columns of its topics, and their types."""
        fields = [
            pa.field(name, column.kind) for name, column in zip(self.names[1:], self.columns, strict=True)
        ]
        return pa.schema([pa.field("id", pa.int64(), nullable=False), *fields])

    @property
    def rows(self) -> int:
        """As many as the longest column has."""
        return max(len(column.records) for column in self.columns)

    @property
    def records(self) -> pa.Table:
        """The columns, nulls behind those that are shorter."""
        found: list[Any] = [pa.array(range(self.rows), pa.int64())]
        for column in self.columns:
            held = column.records.column("c")
            chunks = [*held.chunks, nulls(self.rows - len(held), column.kind)]
            found.append(pa.chunked_array(chunks, column.kind))
        return pa.Table.from_arrays(found, schema=self.schema)

    def wrong_in(self, found: pa.Table) -> dict[str, str]:
        """By column what is other than it was given."""
        table, wrong = by_id(found), {}
        assert table.column("id").to_pylist() == list(range(self.rows))
        for name, column in zip(self.names[1:], self.columns, strict=True):
            given = [*column.values, *[None] * (self.rows - len(column.values))]
            values = plain(table.column(name))
            at = next((row for row in range(self.rows) if values[row] != given[row]), None)
            if at is not None:
                wrong[str(column)] = f"row {at} is {as_json(values[at])}, not {as_json(given[at])}"
        return wrong


def exact_columns(feature: str) -> Wide:
    """All that the feature takes."""
    return Wide([column for column in columns(*SHAPES) if refusal_of(feature, column) is None])


def wrong_refusals(feature: str, run: Callable[[Column], list[Any]]) -> dict[str, str]:
    """Each column by itself that the feature refuses: what is other than it is expected."""
    refused = [
        column
        for column in columns(*SHAPES)
        if column.type_name not in CREATION and refusal_of(feature, column) is not None
    ]
    return {
        str(column): found for column in refused if (found := wrong_with(feature, column, run)) is not None
    }
