"""Records that a read by time leaves out though they were written since that time: their own times say otherwise."""

from __future__ import annotations

from txn_engine.log.objects import Objects
from txn_engine.log.topics import Topic
from txn_engine.protocol.file_names import parse_data_path
from txn_engine.protocol.partition import PartitionState

CLOCKS_ALIKE_MS = 300_000
"""By how much the times of records may be before those of their files, as uploads take time."""


def left_out_by_ms(
    objects: Objects, topic: Topic, state: PartitionState, partition: int, first: int, time_ms: int
) -> int | None:
    """How far the records before `first` are behind the store's clock, where the store got the last of them at that
    time or later, and they are more than five minutes behind it; else None.

    One request: what was written before is older. What compaction has written anew tells nothing.
    """
    file = max(
        (file for file in state.live.values() if file.last_offset < first),
        key=lambda file: file.last_offset,
        default=None,
    )
    if file is None or parse_data_path(file.file.data_path).log_end > file.base_offset:
        return None
    stored_ms = objects.modified_ms(f"{topic.prefix(partition)}/{file.file.data_path}")
    behind_ms = stored_ms - file.max_timestamp
    return behind_ms if stored_ms >= time_ms and behind_ms > CLOCKS_ALIKE_MS else None
