"""The limits of the format as the auditor knows them (docs/FORMAT.md, "Limits")."""

from __future__ import annotations

from typing import Final

from storage.parquet_limits import ParquetLimits

EARLIEST_MS: Final = -62_135_596_800_000
LATEST_MS: Final = 253_402_300_799_999
TOPIC_PARTITIONS_MAX: Final = 10_000
CONTROL_CHARS_MAX: Final = 4 << 20
_PLAIN: Final = frozenset({0})  # of Parquet's CompressionCodec: uncompressed
ENTRY: Final = ParquetLimits(
    object_bytes=16 << 20,
    footer_bytes=256 << 10,
    rows=65_536,
    row_group_rows=65_536,
    row_group_bytes=16 << 20,
    row_group_memory=128 << 20,
    values=131_072,
    values_per_byte=1,
    values_free=0,
    codecs=_PLAIN,
)
SNAPSHOT: Final = ParquetLimits(
    object_bytes=1 << 30,
    footer_bytes=256 << 10,
    rows=(1 << 31) - 1,
    row_group_rows=1 << 20,
    row_group_bytes=1 << 30,
    row_group_memory=1 << 30,
    values=(1 << 31) - 1,
    values_per_byte=1,
    values_free=0,
    codecs=_PLAIN,
)


def bounded_time(time_ms: int) -> int:
    """The time as it counts: one that no calendar holds is the calendar's end."""
    return min(max(time_ms, EARLIEST_MS), LATEST_MS)
