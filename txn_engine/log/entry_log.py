"""The append: a view of a log, moved forward entry by entry, and the one way to add to it (protocol, sections
1 and 2).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from storage import LogKeys
from txn_engine.clock import Clock
from txn_engine.errors import CorruptObjectError, OutcomeUnknownError, RequestTimedOutError
from txn_engine.ids import IdSource
from txn_engine.log.entry_format import LogKind, decode_entry, encode_entry
from txn_engine.log.objects import Objects
from txn_engine.log.snapshot_format import decode_snapshot, encode_snapshot
from txn_engine.protocol.batches import BatchDescriptor
from txn_engine.protocol.partition import (
    Appended,
    Duplicate,
    EntryPlan,
    FirstWriteCheck,
    PartitionState,
    Proposal,
    Refused,
    Verdict,
    allow_first_write,
    apply,
    plan_entry,
)

MAX_LOST_RACES = 1_000
_ENTRIES_AHEAD = 64
_ENTRIES_ALONE = 4


class ViewToken:
    """Names one loaded view: the same token means the same view, moved forward entry by entry since."""


@dataclass(frozen=True, slots=True)
class _Unsettled:
    """Bytes that were put at a slot with an outcome that nobody knows yet."""

    key: str
    data: bytes
    plan: EntryPlan


@dataclass(frozen=True, slots=True)
class LogTools:
    """What every log of an engine shares: the store, the clock, the source of write ids, threads for reading ahead."""

    objects: Objects
    clock: Clock
    new_id: IdSource
    executor: Executor


class EntryLog:
    """One partition's log. Threads may share it; other processes need not know of it."""

    def __init__(self, tools: LogTools, prefix: str, kind: LogKind) -> None:
        self.keys = LogKeys(prefix)
        self.kind = kind
        self._tools = tools
        self._lock = threading.RLock()
        self._state: PartitionState | None = None
        self._token = ViewToken()
        self._unsettled: _Unsettled | None = None

    # --- the view -------------------------------------------------------------------------------------------

    @property
    def token(self) -> ViewToken:
        """Which view this is; it is loaded if it was not."""
        with self._lock:
            self._loaded()
            return self._token

    @property
    def is_loaded(self) -> bool:
        """Whether there is a view already, so that `view` and `token` do not ask the store."""
        return self._state is not None

    def view(self) -> PartitionState:
        """The state as last seen, without looking at the store again once loaded."""
        with self._lock:
            return self._loaded()

    def refresh(self) -> PartitionState:
        """The state at the log's end now."""
        with self._lock:
            return self._advance(self._loaded())

    def _loaded(self) -> PartitionState:
        if self._state is None:
            self._token = ViewToken()
            self._advance(self._newest_snapshot())
        assert self._state is not None  # noqa: S101 - set by _advance
        return self._state

    def _newest_snapshot(self) -> PartitionState:
        """The newest sound snapshot, else the empty state. A damaged one is passed over, and never deleted."""
        for key in reversed(self._tools.objects.keys(self.keys.snapshots_prefix)):
            data = self._tools.objects.find(key)
            if data is None:
                continue
            try:
                state = decode_snapshot(data, key=key)
            except CorruptObjectError:
                continue
            if state.log_end_offset == self.keys.parse_snapshot(key):
                return state
        return PartitionState()

    def _advance(self, state: PartitionState) -> PartitionState:
        """Replay what follows `state`, slot by slot until one is empty. A listing only says what to read ahead."""
        replayed = 0
        while (data := self._tools.objects.find(key := self.keys.entry(state.log_end_offset))) is not None:
            state = self._replay(state, key, data)
            replayed += 1
            if replayed == _ENTRIES_ALONE:
                state = self._read_ahead(state)
        self._state = state
        return state

    def _read_ahead(self, state: PartitionState) -> PartitionState:
        objects = self._tools.objects
        keys = objects.keys(self.keys.log_prefix, start_after=self.keys.entry(state.log_end_offset - 1))
        for start in range(0, len(keys), _ENTRIES_AHEAD):
            chunk = keys[start : start + _ENTRIES_AHEAD]
            for key, data in zip(chunk, self._tools.executor.map(objects.find, chunk), strict=True):
                if data is None or key != self.keys.entry(state.log_end_offset):
                    return state
                state = self._replay(state, key, data)
        return state

    def _replay(self, state: PartitionState, key: str, data: bytes) -> PartitionState:
        for batch in decode_entry(self.kind, data, key=key, base_offset=state.log_end_offset):
            state = apply(state, batch)
        return state

    def batches(self) -> Iterator[BatchDescriptor]:
        """All that the log holds, slot by slot from its start, read from the store."""
        offset = 0
        while (data := self._tools.objects.find(key := self.keys.entry(offset))) is not None:
            for batch in decode_entry(self.kind, data, key=key, base_offset=offset):
                yield batch
                offset = batch.last_offset + 1

    # --- the append -----------------------------------------------------------------------------------------

    def append(
        self, proposals: Sequence[Proposal], check_first_write: FirstWriteCheck = allow_first_write
    ) -> tuple[Verdict, ...]:
        """Append what is legal of these proposals as one entry; one verdict for each, in their order.

        Guarantee: what is appended was legal at the log's end at the moment of the write. A verdict that
        writes nothing (refused, or a duplicate) was reached on a state at least as new as the call.
        `OutcomeUnknownError`: the entry may or may not be there; until that is settled this log puts nothing
        else, here or in another slot.
        """
        with self._lock:
            self._settle()
            fresh = False
            for _ in range(MAX_LOST_RACES):
                state = self._loaded()
                plan = plan_entry(state, proposals, self._tools.clock(), check_first_write)
                if plan.batches:
                    if self._put(plan):
                        return plan.verdicts
                    fresh = True
                elif fresh:
                    return plan.verdicts
                else:
                    fresh = True
                    if self._advance(state) is state:
                        return plan.verdicts
        raise RequestTimedOutError(
            f"{MAX_LOST_RACES} lost races for the log's end", actor="append", place=self.keys.log_prefix
        )

    def append_one(
        self, proposal: Proposal, check_first_write: FirstWriteCheck = allow_first_write
    ) -> Appended | Duplicate:
        """Append one proposal; a refusal is raised."""
        verdict = self.append([proposal], check_first_write)[0]
        if isinstance(verdict, Refused):
            raise verdict.error
        return verdict

    def _put(self, plan: EntryPlan) -> bool:
        key = self.keys.entry(plan.base_offset)
        data = encode_entry(self.kind, plan.batches, self._tools.new_id())
        try:
            outcome = self._tools.objects.create(key, data)
        except OutcomeUnknownError:
            self._unsettled = _Unsettled(key, data, plan)
            raise
        return self._take(plan, key, won=outcome.won, winner=outcome.winner)

    def _take(self, plan: EntryPlan, key: str, *, won: bool, winner: bytes) -> bool:
        """Move over an occupied slot: by our own plan, or by replaying the winner's entry and what follows it."""
        if won:
            self._state = plan.state
        else:
            self._advance(self._replay(self._loaded(), key, winner))
        return won

    def _settle(self) -> None:
        """Learn what became of the last put that nobody answered for: the same bytes at the same slot, until
        it is occupied.
        """
        pending = self._unsettled
        if pending is None:
            return
        outcome = self._tools.objects.create(pending.key, pending.data)
        self._unsettled = None
        if self._loaded().log_end_offset == pending.plan.base_offset:
            self._take(pending.plan, pending.key, won=outcome.won, winner=outcome.winner)

    # --- snapshots ------------------------------------------------------------------------------------------

    def write_snapshot(self) -> int | None:
        """Write a snapshot at the log's end, built from entries read back; its offset, or None where it stands already.

        The same log gives the same state, so a snapshot that is there must hold this one: anything else is damage.
        """
        reader = EntryLog(self._tools, self.keys.prefix, self.kind)
        state = reader.refresh()
        key = self.keys.snapshot(state.log_end_offset)
        if state.log_end_offset == 0 or self._tools.objects.find(key) is not None:
            return None
        outcome = self._tools.objects.create(key, encode_snapshot(state))
        if not outcome.won and decode_snapshot(outcome.winner, key=key) != state:
            raise CorruptObjectError(
                "another state", place=key, expected="the state that replaying the log gives"
            )
        return state.log_end_offset
