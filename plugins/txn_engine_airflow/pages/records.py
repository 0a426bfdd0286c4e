"""A few records of a partition, as text; for those who may see records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from txn_engine import Engine
from txn_engine.cli.record_text import plain_columns
from txn_engine.errors import InvalidRequestError, UnknownTopicOrPartitionError
from txn_engine.types import IsolationLevel
from txn_engine_airflow.pages.moment import Moment
from txn_engine_airflow.pages.views_partition import files_at

RECORDS_MAX = 100
BYTES_MAX = 64 * 1024 * 1024
VALUE_CHARS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Sample:
    """Records by offset, their values in the order of `columns`; `first` to `end`, exclusive, were asked for."""

    columns: tuple[str, ...]
    records: tuple[tuple[Any, ...], ...]
    first: int
    end: int
    isolation_level: IsolationLevel


def sample(
    engine: Engine,
    moment: Moment,
    topic: str,
    partition: int,
    *,
    offset: int,
    count: int,
    uncommitted: bool,
) -> Sample:
    """The records at `count` offsets from `offset` on; fewer where some hold none.

    Reads whole files; refuses with `InvalidRequestError` where those are larger than an api-server should load.
    """
    known = moment.topics.get(topic)
    if known is None or partition >= len(known.partitions):
        raise UnknownTopicOrPartitionError(f"partition {partition} of a topic {topic!r}")
    size = sum(file.file.data_bytes for file in files_at(known, partition, offset, count))
    if size > BYTES_MAX:
        raise InvalidRequestError(
            f"the records at offset {offset} lie in files of {size >> 20} MiB",
            expected=f"at most {BYTES_MAX >> 20} MiB",
            action=f"`txn-engine consume {topic} --partition {partition} --max-records {count}` reads them elsewhere",
        )
    level: IsolationLevel = "read_uncommitted" if uncommitted else "read_committed"
    table = engine.partition(topic, partition).read(offset, end=offset + count, isolation_level=level)
    columns = plain_columns(table, "text")
    return Sample(
        columns=tuple(table.column_names),
        records=tuple(tuple(_shown(value) for value in row) for row in zip(*columns, strict=True)),
        first=offset,
        end=offset + count,
        isolation_level=level,
    )


def _shown(value: Any) -> Any:
    """A JSON value, long ones cut. Whole numbers as text: a browser would round large ones."""
    if isinstance(value, bool) or value is None:
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}…"
