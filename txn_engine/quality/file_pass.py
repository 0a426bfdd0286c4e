"""One look at every record of a topic's files, as raw objects: how many there are, in which order, and their digest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.store import ObjectStore
from txn_engine.held import laid_out
from txn_engine.quality.digest import Digest, digest_of
from txn_engine.schemas.defaults import filled
from txn_engine.schemas.layout import Schemas
from txn_engine.schemas.plan import Source, sources
from txn_engine.sql.file_parts import OFFSET_DELTA, FilePart
from txn_engine.sql.store_files import ObjectFile

_BATCH_ROWS = 65_536
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What is in a file, of the part that is meant.

    `first_offset`, `last_offset`: the lowest and the highest, -1 where there is no record. `falls`, `repeats`: how many
    records stand at a lower, or the same, offset as the one before them, and where the first of these is.
    """

    part: FilePart
    records: int = 0
    first_offset: int = -1
    last_offset: int = -1
    falls: int = 0
    repeats: int = 0
    first_fault: int = -1
    digest: Digest = field(default_factory=Digest)


def look_at(
    store: ObjectStore,
    schemas: Schemas,
    parts: Sequence[FilePart],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[FileFacts, ...]:
    """Of each part, in the order given; digests are of the columns that are asked for. Raises what reading a Parquet
    file raises.
    """
    facts: list[FileFacts] = []
    with ThreadPoolExecutor(max(os.cpu_count() or 1, 1), thread_name_prefix="file-pass") as pool:
        for found in pool.map(lambda part: facts_of_file(store, schemas, part), parts):
            facts.append(found)
            if progress is not None:
                progress(len(facts), len(parts))
    return tuple(facts)


def facts_of(part: FilePart, tables: Iterable[pa.Table], offsets: str, schema: pa.Schema) -> FileFacts:
    """Of records that come in this order; `offsets` is the column that has them."""
    found, before = FileFacts(part), None
    for table in tables:
        at = table.column(offsets).to_numpy()
        if not len(at):
            continue
        digest = digest_of(table.select(schema.names))
        steps = np.diff(at, prepend=at[:1] - 1 if before is None else before)
        wrong = np.flatnonzero(steps <= 0)
        found = FileFacts(
            part,
            found.records + len(at),
            int(at.min()) if found.first_offset < 0 else min(found.first_offset, int(at.min())),
            max(found.last_offset, int(at.max())),
            found.falls + int((steps < 0).sum()),
            found.repeats + int((steps == 0).sum()),
            int(at[wrong[0]]) if len(wrong) and found.first_fault < 0 else found.first_fault,
            found.digest.plus(digest),
        )
        before = at[-1:]
    return found


def facts_of_file(store: ObjectStore, schemas: Schemas, part: FilePart) -> FileFacts:
    """Of one part. Raises what reading a Parquet file raises, and what `sources` does."""
    return facts_of(part, _batches(store, schemas, part), OFFSET_DELTA, schemas.arrow)


def _batches(store: ObjectStore, schemas: Schemas, part: FilePart) -> Iterable[pa.Table]:
    made = sources(schemas, part.schema_version, schemas.arrow.names, topic=part.key)
    stored = [each.stored for each in made if each.stored is not None]
    file_like = pa.PythonFile(ObjectFile(store, part.key, part.size), mode="r")
    with pq.ParquetFile(file_like, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
        for batch in file.iter_batches(_BATCH_ROWS, columns=[*stored, OFFSET_DELTA], use_threads=False):
            table = pa.Table.from_batches([batch])
            offsets = np.asarray(batch.column(OFFSET_DELTA)).astype(np.int64) + part.base_offset
            at = table.schema.get_field_index(OFFSET_DELTA)
            table = table.set_column(at, OFFSET_DELTA, pa.array(offsets))
            if not part.is_whole:
                table = table.filter(pa.array((offsets >= part.start) & (offsets < part.end)))
            columns = [_made(each, table) for each in made]
            yield pa.table([*columns, table.column(OFFSET_DELTA)], names=[*schemas.arrow.names, OFFSET_DELTA])


def _made(source: Source, table: pa.Table) -> pa.ChunkedArray[Any]:
    """The column in the topic's type: a digest goes by it."""
    if source.stored is None:
        column = pa.chunked_array([filled(source.type, source.fill, table.num_rows)])
    else:
        column = table.column(source.stored)
    try:
        made: pa.ChunkedArray[Any] = laid_out(column, source.type)
        return made
    except (
        pa.ArrowInvalid
    ):  # of a narrower type than the file has, and no room: such a record nobody has proved
        return column
