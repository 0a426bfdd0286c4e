"""A topic as a relation of DuckDB's: its own Parquet reader over the list of files, and nothing in between.

What is the same for all records of a file (its partition, the offset that its distances count from) comes from a list,
by the file's number in the scan. DuckDB evaluates that once for each vector of records, not once for each record, and
not at all where it is not selected; projections and filters on stored columns reach Parquet, and a count its footers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txn_engine.sql.file_parts import OFFSET, OFFSET_DELTA, PARTITION, TIMESTAMP, TOPIC, FilePart

Place = Callable[[FilePart], str]
"""What a file is opened by."""
_FILE = "_file"


def literal(text: str) -> str:
    """The text as SQL writes it."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def identifier(name: str) -> str:
    """The name as SQL writes it, whatever it holds."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def select_from(
    parts: Sequence[FilePart], columns: Sequence[str], own: Sequence[str], *, topic: str, place: Place
) -> str:
    """A query for the records of these parts, of which there is one at the least: the topic's `columns`, and of
    `_topic`, `_partition`, `_offset` and `_timestamp` those in `own`.
    """
    whole = [part for part in parts if part.is_whole]
    groups = ([whole] if whole else []) + [[part] for part in parts if not part.is_whole]
    return " UNION ALL ".join(_select(group, columns, own, topic, place) for group in groups)


def _select(
    parts: Sequence[FilePart], columns: Sequence[str], own: Sequence[str], topic: str, place: Place
) -> str:
    # a column of the topic's may have the name of DuckDB's own
    is_hidden = "file_index" in {name.lower() for name in columns}
    names = [literal(place(part)) for part in parts]
    number = "file_index::BIGINT + 1"
    if is_hidden:
        number = f"list_position([{', '.join(names)}], {_FILE})"
    partitions = _of_file([part.partition for part in parts], "INTEGER", number)
    bases = _of_file([part.base_offset for part in parts], "BIGINT", number)
    expressions = {
        TOPIC: literal(topic),
        PARTITION: partitions,
        OFFSET: f"{bases} + {OFFSET_DELTA}",
        TIMESTAMP: TIMESTAMP,
    }
    selected = [*map(identifier, columns), *(f"{expressions[name]} AS {name}" for name in own)]
    options = f", filename = '{_FILE}'" if is_hidden else ""
    query = (
        f"SELECT {', '.join(selected)} "
        f"FROM read_parquet([{', '.join(names)}], hive_partitioning = false{options})"
    )
    if parts[0].is_whole:
        return query
    (part,) = parts
    first, behind = part.start - part.base_offset, part.end - part.base_offset
    return f"{query} WHERE {OFFSET_DELTA} >= {first} AND {OFFSET_DELTA} < {behind}"


def _of_file(values: Sequence[int], kind: str, number: str) -> str:
    """The value for each file; one that all have in common stands for itself."""
    if len(set(values)) == 1:
        return f"{values[0]}::{kind}"
    return f"list_extract([{', '.join(map(str, values))}]::{kind}[], {number})"
