"""Bugs in what a partition checks and remembers: epochs, sequences, markers, the LSO, files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.simulator.mutants.mutation import Edit, Mutant, Replace
from txn_engine.log.reading import FileSlice, end_of
from txn_engine.protocol.batches import BatchDescriptor, Control
from txn_engine.protocol.file_names import DataFileName
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.protocol.producers import BatchMetadata, ProducerEntry
from txn_engine.protocol.proposals import DataProposal
from txn_engine.types import IsolationLevel

_REPLAY = "txn_engine/protocol/replay.py"

_APPLY_MARKER = "txn_engine.protocol.replay._apply_marker"
_CHECK_MARKER = "txn_engine.protocol.producers.check_marker"
_FIND_DUPLICATE = "txn_engine.protocol.producers.ProducerEntry.find_duplicate"
_LAST_STABLE_OFFSET = "txn_engine.protocol.partition.PartitionState.last_stable_offset"


def _any_epoch(entry: ProducerEntry | None, actor: str, producer_epoch: int) -> None:
    pass


def _any_later_sequence(previous_last: int, following: int) -> bool:
    return following > previous_last


def _any_sequence(previous_last: int, following: int) -> bool:
    return True


def _no_duplicate(
    self: ProducerEntry, producer_epoch: int, base_sequence: int, record_count: int
) -> BatchMetadata | None:
    return None


def _any_first_sequence(
    original: Any,
    entry: ProducerEntry | None,
    actor: str,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool,
) -> None:
    if entry is not None and producer_epoch == entry.producer_epoch:
        original(entry, actor, producer_epoch, base_sequence, is_transactional=False)


def _any_epoch_of_an_open_transaction(
    original: Any, entry: ProducerEntry | None, actor: str, producer_epoch: int, is_transactional: bool
) -> None:
    original(entry, actor, producer_epoch if entry is None else entry.producer_epoch, is_transactional)


def _marker_at_the_old_epoch(
    original: Any,
    self: ProducerEntry,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    append_time: int,
) -> ProducerEntry:
    entry: ProducerEntry = original(self, self.producer_epoch, coordinator_epoch, timestamp, append_time)
    return entry


def _marker_at_an_open_epoch(
    original: Any,
    entry: ProducerEntry | None,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> bool:
    is_repeated = entry is not None and entry.is_open and producer_epoch == entry.producer_epoch
    if entry is not None and is_repeated:
        entry = replace(entry, open_first_offset=-1)  # only the coordinator's epoch is checked
    writes = original(
        entry, producer_id=producer_id, producer_epoch=producer_epoch, coordinator_epoch=coordinator_epoch
    )
    return is_repeated or bool(writes)


def _marker_written_again(
    original: Any,
    entry: ProducerEntry | None,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> bool:
    original(
        entry, producer_id=producer_id, producer_epoch=producer_epoch, coordinator_epoch=coordinator_epoch
    )
    return True


def _marker_of_any_coordinator(
    original: Any,
    entry: ProducerEntry | None,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> bool:
    if entry is not None and entry.is_open and producer_epoch == entry.producer_epoch:
        original(
            replace(entry, coordinator_epoch=-1),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )
    return True


def _log_end(self: PartitionState) -> int:
    return self.log_end_offset


def _one_too_far(original: Any, self: PartitionState) -> int:
    stable: int = original(self)
    return stable + 1 if self.open_transactions else stable


def _latest_open_transaction(self: PartitionState) -> int | None:
    if not self.open_transactions:
        return None
    return max(*self.open_transactions.values(), self.log_start_offset)


def _files_of_everybody(producer_id: int, undecided: Mapping[int, LogFile]) -> dict[int, LogFile]:
    return dict(undecided)


def _abort_makes_live(original: Any, state: PartitionState, marker: BatchDescriptor) -> PartitionState:
    after: PartitionState = original(state, marker)
    if marker.control is not Control.ABORT:
        return after
    decided = {base: file for base, file in state.undecided.items() if base not in after.undecided}
    return replace(after, live=after.live.update(decided), dead=state.dead)


def _aborted_range_past_the_next(
    original: Any, state: PartitionState, marker: BatchDescriptor
) -> PartitionState:
    after: PartitionState = original(state, marker)
    base = marker.base_offset
    if base not in after.aborted:
        return after
    return replace(
        after, aborted=after.aborted.set(base, replace(after.aborted[base], last_stable_offset=base + 1))
    )


def _file_of_anybody(name: DataFileName, proposal: DataProposal) -> None:
    pass


def _file_named_again(state: PartitionState, proposal: DataProposal) -> None:
    pass


def _to_the_high_watermark(state: PartitionState, isolation_level: IsolationLevel) -> int:
    return state.high_watermark


def _aborted_too(
    original: Any,
    state: PartitionState,
    partition: int,
    start: int,
    end: int,
    isolation_level: IsolationLevel,
) -> Sequence[FileSlice]:
    chosen: Sequence[FileSlice] = original(
        state, partition, start, min(end, end_of(state, isolation_level)), "read_uncommitted"
    )
    return chosen


MUTANTS = (
    Mutant(
        "no-epoch-check",
        "a batch of an old epoch is taken: a zombie writes behind its successor",
        (Replace("txn_engine.protocol.producers.check_epoch", _any_epoch),),
        ("bank", "two_owners", "lists"),
    ),
    Mutant(
        "sequence-gap-allowed",
        "a batch may skip sequences: one that was lost on the way is not missed",
        (Replace("txn_engine.protocol.sequences.in_sequence", _any_later_sequence),),
        ("idempotent", "lists", "requests"),
    ),
    Mutant(
        "no-duplicate-look-up",
        "a batch that is sent again is not recognised",
        (Replace(_FIND_DUPLICATE, _no_duplicate),),
        ("idempotent", "requests", "lists"),
    ),
    Mutant(
        "duplicates-written-again",
        "a batch that is sent again is written again: neither recognised nor out of sequence",
        (
            Replace(_FIND_DUPLICATE, _no_duplicate),
            Replace("txn_engine.protocol.sequences.in_sequence", _any_sequence),
        ),
        ("idempotent", "requests", "lists"),
    ),
    Mutant(
        "window-of-four",
        "the last four batches of a producer are remembered, not five",
        (Replace("txn_engine.protocol.producers.BATCHES_TO_RETAIN", 4),),
        ("idempotent", "requests", "bank"),
    ),
    Mutant(
        "new-epoch-anywhere",
        "a new epoch may begin with any sequence",
        (Replace("txn_engine.protocol.producers.check_sequence", _any_first_sequence),),
        ("requests", "idempotent"),
    ),
    Mutant(
        "batch-of-another-epoch-in-an-open-transaction",
        "a batch whose epoch differs from its producer's open transaction is taken",
        (Replace("txn_engine.protocol.producers.check_open_transaction", _any_epoch_of_an_open_transaction),),
        ("requests",),
    ),
    Mutant(
        "marker-without-fencing",
        "a marker leaves the epoch in the partition as it was: the fenced producer may write on",
        (Replace("txn_engine.protocol.producers.ProducerEntry.with_marker", _marker_at_the_old_epoch),),
        ("bank", "two_owners", "lists"),
    ),
    Mutant(
        "repeated-marker-ends-an-open-transaction",
        "a marker at the stored epoch is taken while a transaction of that epoch is open",
        (Replace(_CHECK_MARKER, _marker_at_an_open_epoch),),
        ("controls", "late_end_txn"),
        marked="repeated-markers",
    ),
    Mutant(
        "a-repeated-marker-is-written-again",
        "a marker at the stored epoch with nothing open is written a second time",
        (Replace(_CHECK_MARKER, _marker_written_again),),
        ("sweeps", "bank", "two_owners"),
        marked="repeated-markers",
    ),
    Mutant(
        "old-coordinator-not-fenced",
        "a marker of an older decision is taken after one of a newer",
        (Replace(_CHECK_MARKER, _marker_of_any_coordinator),),
        ("sweeps", "bank", "two_owners"),
    ),
    Mutant(
        "lso-is-the-log-end",
        "the last stable offset is the log's end: undecided records are read",
        (Replace(_LAST_STABLE_OFFSET, _log_end),),
        ("bank", "lists"),
    ),
    Mutant(
        "lso-off-by-one",
        "the last stable offset is one too far: the first record of an open transaction is below it",
        (Replace(_LAST_STABLE_OFFSET, _one_too_far),),
        ("bank", "lists"),
    ),
    Mutant(
        "lso-of-the-latest",
        "the last stable offset goes by the latest open transaction, not by the earliest",
        (
            Replace(
                "txn_engine.protocol.partition.PartitionState.first_unstable_offset", _latest_open_transaction
            ),
        ),
        ("bank", "lists", "hanging"),
    ),
    Mutant(
        "undecided-files-are-live",
        "the files of open transactions count as committed",
        (
            Edit(
                _REPLAY,
                "        if batch.is_transactional:\n            undecided = ",
                "        if False:\n            undecided = ",
            ),
        ),
        ("bank", "lists"),
    ),
    Mutant(
        "abort-read-as-commit",
        "an abort marker makes the files live",
        (Replace(_APPLY_MARKER, _abort_makes_live),),
        ("bank", "lists"),
    ),
    Mutant(
        "marker-decides-everybodys-files",
        "a marker decides the files of all producers, not of its own",
        (Replace("txn_engine.protocol.replay.files_of", _files_of_everybody),),
        ("bank", "lists", "two_owners"),
    ),
    Mutant(
        "aborted-index-ends-too-early",
        "an aborted range's own last stable offset is past the next open transaction",
        (Replace(_APPLY_MARKER, _aborted_range_past_the_next),),
        ("bank", "lists", "sweeps"),
    ),
    Mutant(
        "a-file-of-another-try",
        "an entry may name a file that another producer or epoch has uploaded",
        (Replace("txn_engine.protocol.appends.check_file_is_its_own", _file_of_anybody),),
        ("requests",),
        marked="file-names",
    ),
    Mutant(
        "a-file-named-twice",
        "two batches may name one file",
        (Replace("txn_engine.protocol.appends.check_file_is_unnamed", _file_named_again),),
        ("requests",),
    ),
    Mutant(
        "reader-to-the-end",
        "read_committed reads to the high watermark",
        (Replace("txn_engine.log.reading.end_of", _to_the_high_watermark),),
        ("lists", "bank", "pipeline"),
    ),
    Mutant(
        "aborted-files-are-read",
        "read_committed reads the files of aborted transactions too",
        (Replace("txn_engine.log.reading.choose_files", _aborted_too),),
        ("bank", "lists"),
    ),
)
