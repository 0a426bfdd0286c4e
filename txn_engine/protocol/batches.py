"""A batch descriptor: one row of a log's entry, Kafka's record-batch header (docs/FORMAT.md)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txn_engine.protocol.offset_commits import OffsetCommit
from txn_engine.protocol.transaction_rows import TransactionRow

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


class Control(StrEnum):
    """What a descriptor does, beside carrying records."""

    NONE = "none"
    COMMIT = "commit"
    ABORT = "abort"
    REWRITE = "rewrite"
    TRIM = "trim"
    EXPIRE = "expire"
    FLOOR = "floor"
    CLEAN = "clean"
    ERASE = "erase"

    @property
    def is_marker(self) -> bool:
        """Whether it ends a transaction."""
        return self in (Control.COMMIT, Control.ABORT)


@dataclass(frozen=True, slots=True)
class FileRef:
    """A data file as a descriptor names it; `data_path` is relative to the partition's folder."""

    data_path: str
    data_bytes: int
    checksum: str


NO_FILE = FileRef("", 0, "")


@dataclass(frozen=True, slots=True)
class BatchDescriptor:
    """One row of an entry, with its offsets: what replay consumes."""

    base_offset: int
    last_offset: int
    append_time: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = -1
    is_transactional: bool = False
    control: Control = Control.NONE
    coordinator_epoch: int = -1
    first_timestamp: int = -1
    max_timestamp: int = -1
    record_count: int = 1
    file: FileRef | None = None
    control_value: str = ""
    row: TransactionRow | OffsetCommit | None = None
