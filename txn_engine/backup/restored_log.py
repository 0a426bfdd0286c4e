"""The log of a restored partition: how it begins, so that everybody reads it as any other (docs/FORMAT.md, "Restored
stores").

A topic's partition begins as one whose older entries are sealed: a seal at its first slot, and two snapshots, each
behind an entry. Offsets go on from the cut's. What the ids and the groups of an internal topic have is one row each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storage import LogKeys
from txn_engine.errors import CorruptObjectError
from txn_engine.ids import IdSource
from txn_engine.log.begun import put_begun
from txn_engine.log.entry_format import ENTRY_LIMITS, LogKind, decode_entry, encode_entry, encode_seal
from txn_engine.log.objects import Objects
from txn_engine.log.snapshot_format import SNAPSHOT_LIMITS, decode_snapshot, encode_snapshot
from txn_engine.protocol.as_of_cut import rows_anew
from txn_engine.protocol.batches import BatchDescriptor
from txn_engine.protocol.controls import ControlValue, Floor, Trim, control_of, encode_control
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.replay import apply
from txn_engine.protocol.transaction_rows import TransactionRow

_ROWS_AN_ENTRY = 2_000
_RUN_IDS_AN_ENTRY = 20_000
_TEXT_AN_ENTRY = 1 << 20


class RestoredLog:
    """Puts what a log begins with. Each object may be there already, from a run that was cut off."""

    def __init__(self, objects: Objects, keys: LogKeys, kind: LogKind, new_id: IdSource) -> None:
        self._objects = objects
        self._keys = keys
        self._kind = kind
        self._new_id = new_id

    def begin_partition(self, state: PartitionState, restored_ms: int) -> None:
        """`state`: that of a topic's partition as of the cut."""
        end, time_ms = state.log_end_offset, max(state.last_append_time, restored_ms)
        if end == 0:
            return
        self._put_seal()
        for value in (Floor(end), Trim(state.log_start_offset, end)):
            row = _control(value, state.log_end_offset, time_ms)
            self._put_entry([row])
            state = apply(state, row)
            self._put_snapshot(state)

    def begin_internal(self, state: PartitionState, restored_ms: int, store_id: str) -> None:
        """`state`: that of a log of ids, or of groups' offsets, as of the cut."""
        entries = list(_in_entries(rows_anew(state, restored_ms)))
        for rows in entries:
            self._put_entry(rows)
        if entries:
            put_begun(self._objects, self._keys.prefix, store_id)

    def _put_seal(self) -> None:
        key = self._keys.entry(0)
        data = encode_seal(self._kind, self._new_id())
        outcome = self._objects.create(key, data, max_bytes=ENTRY_LIMITS.object_bytes)
        if not outcome.won and not decode_entry(self._kind, outcome.winner, key=key, base_offset=0).is_seal:
            raise self._another(key)

    def _put_entry(self, rows: Sequence[BatchDescriptor]) -> None:
        base = rows[0].base_offset
        key = self._keys.entry(base)
        data = encode_entry(self._kind, rows, self._new_id())
        outcome = self._objects.create(key, data, max_bytes=ENTRY_LIMITS.object_bytes)
        if outcome.won:
            return
        if decode_entry(self._kind, outcome.winner, key=key, base_offset=base).batches != list(rows):
            raise self._another(key)

    def _put_snapshot(self, state: PartitionState) -> None:
        key = self._keys.snapshot(state.log_end_offset)
        data = encode_snapshot(state)
        outcome = self._objects.create(key, data, max_bytes=SNAPSHOT_LIMITS.object_bytes)
        if not outcome.won and decode_snapshot(outcome.winner, key=key) != state:
            raise self._another(key)

    def _another(self, key: str) -> CorruptObjectError:
        return CorruptObjectError(
            "another object",
            actor="restore",
            place=self._objects.uri(key),
            expected="none, or what this restore puts there",
            action="empty the place, and restore again",
        )


def _control(value: ControlValue, offset: int, time_ms: int) -> BatchDescriptor:
    return BatchDescriptor(
        base_offset=offset,
        last_offset=offset,
        append_time=time_ms,
        control=control_of(value),
        first_timestamp=time_ms,
        max_timestamp=time_ms,
        control_value=encode_control(value),
    )


def _in_entries(rows: Sequence[BatchDescriptor]) -> Iterator[list[BatchDescriptor]]:
    """The rows, so many together as an entry may hold, by far."""
    some: list[BatchDescriptor] = []
    run_ids = text = 0
    for row in rows:
        runs = row.row.committed_run_ids if isinstance(row.row, TransactionRow) else ()
        size = 64 + sum(len(run) for run in runs) + _text_of(row)
        full = len(some) >= _ROWS_AN_ENTRY or run_ids + len(runs) > _RUN_IDS_AN_ENTRY
        if some and (full or text + size > _TEXT_AN_ENTRY):
            yield some
            some, run_ids, text = [], 0, 0
        some.append(row)
        run_ids += len(runs)
        text += size
    if some:
        yield some


def _text_of(row: BatchDescriptor) -> int:
    """How many characters the names in it have."""
    if isinstance(row.row, TransactionRow):
        return len(row.row.transactional_id)
    return 0 if row.row is None else len(row.row.metadata) + len(row.row.key.group_id)
