"""`format("counted")`: a stream of users' own whose offsets only count, as the one of a file source does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from tests.spark.conftest import payments


class CountedReader(SimpleDataSourceStreamReader):
    """The payments whose numbers are in the file `rows`: all in one micro-batch, whatever they are."""

    def __init__(self, rows: str) -> None:
        self._rows = rows

    def initialOffset(self) -> dict[str, int]:
        return {"count": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        return self.readBetweenOffsets(start, {"count": 1}), {"count": 1}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[Any, ...]]:
        numbers = [] if start == end else Path(self._rows).read_text().split()
        return iter([tuple(payments(int(number), 1).to_pylist()[0].values()) for number in numbers])


class CountedSource(DataSource):
    """What `readStream.format("counted")` is. Its option `rows` names the file."""

    @classmethod
    def name(cls) -> str:
        return "counted"

    def schema(self) -> str:
        return "trans_id bigint, account_id bigint, date date, type string, amount decimal(18,2)"

    def simpleStreamReader(self, schema: object) -> CountedReader:
        del schema
        return CountedReader(self.options["rows"])
