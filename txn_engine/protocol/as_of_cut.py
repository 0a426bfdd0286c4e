"""What a store was as of a cut: a partition's state, and which runs had committed (PROTOCOL.md, section 7)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from immutables import Map

from txn_engine.protocol.batches import BatchDescriptor, Control
from txn_engine.protocol.cuts import TransactionKey
from txn_engine.protocol.offset_commits import FETCHED_NOTHING, TOMBSTONE_OFFSET, GroupOffsets, OffsetCommit
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.protocol.producers import ProducerEntry
from txn_engine.protocol.replay import apply
from txn_engine.protocol.transaction_rows import StoredRow, TransactionRow, TransactionState

# --- a partition ------------------------------------------------------------------------------------------


def files_across(state: PartitionState, offset: int) -> list[LogFile]:
    """The live files with records on both sides of the offset: of such a file only a part is inside."""
    return [file for file in state.live.values() if file.base_offset < offset <= file.last_offset]


def readable_as_of(state: PartitionState, erased: Mapping[str, LogFile | None]) -> PartitionState:
    """An earlier state of a log, with files in the place of those of which records were erased since.

    erased: by the log as it is now, what stands for each.
    """
    live = state.live
    for base, file in state.live.items():
        path = file.file.data_path
        if path in erased:
            live = live.delete(base)
    for file in state.live.values():
        left = erased.get(file.file.data_path)
        if left is not None:
            live = live.set(left.base_offset, left)
    return replace(state, live=live)


def partition_as_of(
    state: PartitionState, offset: int, shortened: Mapping[str, LogFile | None]
) -> PartitionState:
    """The partition as the cut has it: what is live below the offset, and nothing open, aborted or dead.

    state: what the log tells later, of all that is below the offset too. shortened: of each of `files_across`, by its
    path, the file that holds what is below; None where nothing is.
    """
    live: dict[int, LogFile] = {}
    for base, file in state.live.items():
        inside = file if file.last_offset < offset else shortened.get(file.file.data_path)
        if base < offset and inside is not None:
            live[inside.base_offset] = inside
    cleaning = state.cleaning
    return PartitionState(
        log_end_offset=offset,
        last_append_time=state.last_append_time,
        log_start_offset=min(state.log_start_offset, offset),
        floor=min(state.floor, offset),
        cleaning=replace(
            cleaning,
            cleaned_to=min(cleaning.cleaned_to, offset),
            tombstones_to=min(cleaning.tombstones_to, offset),
            horizon_to=min(cleaning.horizon_to, offset),
        ),
        producers=Map({number: _producer_as_of(entry, offset) for number, entry in state.producers.items()}),
        live=Map(live),
        named=Map({file.file.data_path: base for base, file in live.items()}),
    )


def _producer_as_of(entry: ProducerEntry, offset: int) -> ProducerEntry:
    kept = tuple(batch for batch in entry.batches if batch.last_offset < offset)
    return replace(entry, open_first_offset=-1, batches=kept)


def offsets_as_of(offsets: GroupOffsets, committed: Iterable[int]) -> GroupOffsets:
    """The groups' offsets as the cut has them: those of `committed`, producers whose commits are pending in `offsets`
    and were committed later, in that order, too. Nothing is pending.
    """
    for producer_id in committed:
        offsets = offsets.with_marker(producer_id, committed=True)
    return GroupOffsets(offsets.committed)


# --- ids and runs -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Above:
    """The transactions with a record at or above the cut, in any log, and where those that are marked as committed
    were decided: offsets in the coordinator's log of their id.
    """

    keys: set[TransactionKey] = field(default_factory=set)
    decided_at: dict[TransactionKey, int] = field(default_factory=dict)

    def see(self, batch: BatchDescriptor, offset: int) -> None:
        """The next row of a log that the cut goes through at this offset."""
        if batch.control is Control.COMMIT:
            key = TransactionKey(batch.producer_id, batch.producer_epoch - 1)
            self.decided_at[key] = batch.coordinator_epoch
        elif batch.control is Control.NONE and batch.is_transactional and batch.last_offset >= offset:
            self.keys.add(TransactionKey(batch.producer_id, batch.producer_epoch))

    def add(self, other: Above) -> None:
        """What was seen of another log."""
        self.keys |= other.keys
        self.decided_at |= other.decided_at

    @property
    def committed(self) -> dict[TransactionKey, int]:
        """Of those that are marked as committed, where they were decided."""
        return {key: self.decided_at[key] for key in self.keys & self.decided_at.keys()}


@dataclass(slots=True)
class RunsOutside:
    """Which runs a coordinator's log calls committed, though their transactions are above the cut.

    state: the log's, moved forward from before the first of them by `see`.
    """

    state: PartitionState
    above: Collection[TransactionKey]
    runs: dict[str, set[str]] = field(default_factory=dict)

    def see(self, batch: BatchDescriptor) -> None:
        """The next row."""
        row = batch.row
        if isinstance(row, TransactionRow) and row.state is TransactionState.PREPARE_COMMIT:
            self._decided(row)
        self.state = apply(self.state, batch)

    def _decided(self, row: TransactionRow) -> None:
        """A run of the same name that is inside, before or after this one, counts."""
        if row.run_id is None:
            return
        outside = self.runs.setdefault(row.transactional_id, set())
        before = self.state.transactions.get(row.transactional_id)
        if key_of(row) not in self.above:
            outside.discard(row.run_id)
        elif before is None or row.run_id not in before.row.committed_run_ids:
            outside.add(row.run_id)


def key_of(decided: TransactionRow) -> TransactionKey:
    """The transaction that a Prepare row decides."""
    return TransactionKey(decided.producer_id, decided.last_producer_epoch)


def ids_as_of(
    transactions: Mapping[str, StoredRow], outside: Mapping[str, Collection[str]]
) -> Map[str, StoredRow]:
    """The transactional ids as the cut has them: expired, each with the runs that are inside.

    Their producer ids are gone with that, as when an idle id expires: who held one is refused, and begins anew. Ids
    of which nothing would be remembered are left out.
    """
    kept: dict[str, StoredRow] = {}
    for name, stored in transactions.items():
        row = stored.row
        runs = tuple(run for run in row.committed_run_ids if run not in outside.get(name, ()))
        if runs or not row.run_ids_complete:
            tombstone = TransactionRow(
                name,
                TransactionState.DEAD,
                -1,
                -1,
                transaction_timeout_ms=row.transaction_timeout_ms,
                update_ms=row.update_ms,
                committed_run_ids=runs,
                run_ids_complete=row.run_ids_complete,
            )
            kept[name] = StoredRow(stored.offset, tombstone, stored.append_time)
    return Map(kept)


# --- rows of a log that begins anew -----------------------------------------------------------------------


def rows_anew(state: PartitionState, append_time: int) -> list[BatchDescriptor]:
    """The rows of a log of ids, or of groups' offsets, that says what this state does and begins at offset 0."""
    rows: list[TransactionRow | OffsetCommit] = [
        stored.row for _, stored in sorted(state.transactions.items())
    ]
    rows += [
        replace(stored.commit, fetched_row=FETCHED_NOTHING, fetched_end=-1)
        for _, stored in sorted(state.group_offsets.committed.items())
        if stored.commit.offset != TOMBSTONE_OFFSET
    ]
    return [
        BatchDescriptor(
            base_offset=at,
            last_offset=at,
            append_time=append_time,
            first_timestamp=_time_of(row),
            max_timestamp=_time_of(row),
            row=row,
        )
        for at, row in enumerate(rows)
    ]


def _time_of(row: TransactionRow | OffsetCommit) -> int:
    return row.update_ms if isinstance(row, TransactionRow) else row.commit_ms
