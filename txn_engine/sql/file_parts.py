"""What a reader gets of a topic's files: whole ones and parts, to be read natively."""

from __future__ import annotations

from dataclasses import dataclass

from txn_engine.types import ScanFile

TOPIC, PARTITION, OFFSET, TIMESTAMP = "_topic", "_partition", "_offset", "_timestamp"
OFFSET_DELTA = "_offset_delta"


@dataclass(frozen=True, slots=True)
class FilePart:
    """A data file, and which of its offsets are meant: from `start` to below `end`; all of them where it `is_whole`.

    `key` and `size`: of the object on the store. `records`: how many are meant, -1 where nobody has counted.
    `schema_version`: of the topic's schema, whose columns it has.
    """

    key: str
    size: int
    partition: int
    base_offset: int
    start: int
    end: int
    is_whole: bool
    records: int = -1
    schema_version: int = 0


def part_of(file: ScanFile, root: str) -> FilePart:
    """The part that a scan lists; `root` is the store's URI."""
    return FilePart(
        file.uri.removeprefix(root),
        file.bytes,
        file.partition,
        file.base_offset,
        file.start_offset,
        file.end_offset,
        is_whole=(file.first_row, file.end_row) == (0, file.record_count),
        schema_version=file.schema_version,
    )
