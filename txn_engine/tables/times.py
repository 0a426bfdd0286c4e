"""Times that tables do not have: Delta and Iceberg count microseconds, which reach 292,000 years from 1970.

A topic's times of milliseconds and of seconds reach further, and one that does fails every read of the table.
"""

from __future__ import annotations

from itertools import compress, product
from typing import Final

from storage.envelope import open_parquet
from storage.parquet_footer import Footer
from txn_engine.exact import InexactError, cast_exactly
from txn_engine.held import in_microseconds
from txn_engine.log.objects import Objects
from txn_engine.log.topics import Topic
from txn_engine.schemas.layout import OFFSET_DELTA, TIMESTAMP, Layout
from txn_engine.schemas.plan import sources

_MILLIS_MAX: Final = (2**63 - 1) // 1_000


def coarse_times(layout: Layout) -> list[str]:
    """The columns with times that may reach further."""
    own = [field for field in layout.physical if field.name != TIMESTAMP]
    return [field.name for field in own if in_microseconds(field.type) != field.type]


def time_beyond(objects: Objects, topic: Topic, version: int, key: str, size: int) -> tuple[str, int] | None:
    """A column with such a time in a file of that version of the topic's schema, and the distance of the first such
    record from the file's first offset. A file whose footer knows its least and greatest times is not read.
    """
    columns = topic.schemas.arrow.names
    stored = {each.stored for each in sources(topic.schemas, version, columns, topic=topic.name)}
    names = [name for name in coarse_times(topic.schemas.layouts[version]) if name in stored]
    if not names or not _may_hold(objects.footer(key, size), names):
        return None
    data = objects.read(key, max_bytes=size)
    file = open_parquet(data, key=key, kind="data", columns=[OFFSET_DELTA, *names]).file
    for batch, name in product(file.iter_batches(columns=[OFFSET_DELTA, *names]), names):
        column = batch.column(name)
        try:
            cast_exactly(column, in_microseconds(column.type))
        except InexactError as error:
            return name, int(batch.column(OFFSET_DELTA)[error.index].as_py())
    return None


def _may_hold(footer: Footer, names: list[str]) -> bool:
    """Whether a column may have such a time, or a number as large, by the file's statistics."""
    asked = [leaf.path in names or leaf.path.startswith(_inside(names)) for leaf in footer.leaves]
    chunks = (chunk for group in footer.row_groups for chunk in compress(group.chunks, asked))
    bounds = (chunk.integers() for chunk in chunks)
    return any(found is None or max(map(abs, found)) > _MILLIS_MAX for found in bounds)


def _inside(names: list[str]) -> tuple[str, ...]:
    return tuple(f"{name}." for name in names)
