"""What may be asked of a log's end, and the answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from txn_engine.errors import TxnEngineError
from txn_engine.protocol.batches import NO_PRODUCER_ID, FileRef
from txn_engine.protocol.cleaning import DELETE_RETENTION_MS
from txn_engine.protocol.controls import KEEPS_ALL
from txn_engine.protocol.offset_commits import OffsetCommit
from txn_engine.protocol.partition import LogFile
from txn_engine.protocol.transaction_rows import StoredRow, TransactionRow


@dataclass(frozen=True, slots=True)
class DataProposal:
    """A batch of records in a data file."""

    record_count: int
    first_timestamp: int
    max_timestamp: int
    file: FileRef
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False


@dataclass(frozen=True, slots=True)
class MarkerProposal:
    """The end of a producer's transaction here. `operator_start_offset`: an operator's abort of the one open
    from there.
    """

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    operator_start_offset: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetCommitProposal:
    """A group's offset, plainly (producer id -1) or in a transaction."""

    commit: OffsetCommit
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1


@dataclass(frozen=True, slots=True)
class TransactionProposal:
    """A coordinator's row. `decide` gets the id's latest row and returns the next one, None for nothing to
    write, or raises.
    """

    transactional_id: str
    decide: Callable[[StoredRow | None], TransactionRow | None]


@dataclass(frozen=True, slots=True)
class VerifiedSnapshot:
    """A snapshot that was read back and found to be what the log gives; `last_entry_base`: the key of the last
    entry inside it.
    """

    log_end_offset: int
    last_entry_base: int


@dataclass(frozen=True, slots=True)
class TrimProposal:
    """Move the log's start, the entries' start, or both; what is not moved is named as it stands.

    `verified_snapshots`: what allows the entries' start to move. The proposer vouches that it read them back just now.
    """

    log_start_offset: int
    entries_start: int
    verified_snapshots: tuple[VerifiedSnapshot, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpireProposal:
    """Forget those of these producers that have nothing open and no row appended after `idle_since_ms` (log time)."""

    producer_ids: tuple[int, ...]
    idle_since_ms: int


@dataclass(frozen=True, slots=True)
class FloorProposal:
    """Refuse from now on every file whose name's log end is strictly below this."""

    floor: int


@dataclass(frozen=True, slots=True)
class RewriteProposal:
    """Put the records of these live files, just as they were read, into those new ones.

    `tombstones_to` at 0 or above: a rewrite by key. There is one output then, or none; records are left out that later
    committed ones supersede, and tombstones below that offset. The proposer vouches for each of them, and that no
    tombstone is left below that offset afterwards. `delete_retention_ms`: the topic's; the log's time says when it is
    over. `says_retention`: the row says it, since the topic was made with another, or may have been.
    """

    inputs: tuple[LogFile, ...]
    outputs: tuple[LogFile, ...]
    tombstones_to: int = KEEPS_ALL
    delete_retention_ms: int = DELETE_RETENTION_MS
    says_retention: bool = False

    @property
    def is_by_key(self) -> bool:
        """Whether it may leave records out."""
        return self.tombstones_to != KEEPS_ALL


@dataclass(frozen=True, slots=True)
class CleanProposal:
    """Below `cleaned_to` no two live records have the same key, and no tombstone is left below `tombstones_to`.

    The proposer vouches that it has seen to it: what was true once stays so, since nothing is added below the LSO.
    `delete_retention_ms`: the topic's; the log's time says when it is over. `says_retention`: as in a rewrite.
    """

    cleaned_to: int
    tombstones_to: int
    delete_retention_ms: int = DELETE_RETENTION_MS
    says_retention: bool = False


@dataclass(frozen=True, slots=True)
class EraseProposal:
    """Records are gone from these files, just as they were read; beside each the file that stands for it.

    One that is dead, or that the log has forgotten, has one where a cut or a table needs it; an aborted one has none.
    The proposer vouches that nothing else is missing.
    """

    erasure: int
    files: tuple[tuple[LogFile, LogFile | None], ...]


ControlProposal = (
    TrimProposal | ExpireProposal | FloorProposal | RewriteProposal | CleanProposal | EraseProposal
)
Proposal = DataProposal | MarkerProposal | OffsetCommitProposal | TransactionProposal | ControlProposal


@dataclass(frozen=True, slots=True)
class Appended:
    """Written at these offsets."""

    base_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Nothing to write: it stands at these offsets already (-1 where the log does not say which)."""

    base_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Illegal in this state."""

    error: TxnEngineError


Verdict = Appended | Duplicate | Refused
