"""The append: a view of a log, moved forward entry by entry, and the one way to add to it (PROTOCOL.md, sections
1 and 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from storage import LogKeys, PutOutcome
from txn_engine.clock import Clock, Waiting
from txn_engine.errors import (
    CorruptObjectError,
    InvalidTimestampError,
    OutcomeUnknownError,
    RequestTimedOutError,
    StoreAccessError,
    TxnEngineError,
)
from txn_engine.ids import IdSource
from txn_engine.log.begun import BegunLogs
from txn_engine.log.entry_format import ENTRY_LIMITS, USER_LOG, LogKind, decode_entry, encode_entry
from txn_engine.log.left_snapshot import leave_snapshot
from txn_engine.log.objects import Objects
from txn_engine.log.openers_snapshot import OpenersSnapshot
from txn_engine.log.own_process import OwnLock
from txn_engine.log.read_ahead import EntriesAhead
from txn_engine.log.slots import slots_from
from txn_engine.log.snapshot_format import SNAPSHOT_LIMITS, decode_snapshot
from txn_engine.log.store_time import StoreTime
from txn_engine.log.turns import WRITER_CHARS, Turns
from txn_engine.protocol.appends import EntryPlan, FirstWriteCheck, allow_first_write, plan_entry
from txn_engine.protocol.batches import BatchDescriptor, Control
from txn_engine.protocol.log_time import LATEST_MS
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.proposals import Appended, Duplicate, Proposal, Refused, Verdict
from txn_engine.protocol.replay import apply
from txn_engine.protocol.sealed_slots import settle_sealed
from txn_engine.reasons import Reason

MAX_LOST_RACES = 1_000
_LOOKS_A_TURN = 32
_AT_ONCE = 4
_AT_ONCE_NEARBY = 2  # a look at a file takes a fraction of a put
_RECENT_MS = 3_600_000


class ViewToken:
    """Names one view: the same token means the same view, moved forward entry by entry since, with no producer
    expired on the way.
    """


class SealedSlotError(Exception):
    """A seal where an entry was looked for: the view that led here is void."""

    def __init__(self, key: str) -> None:
        super().__init__(f"a seal at {key}")
        self.key = key


@dataclass(frozen=True, slots=True)
class _Unsettled:
    """Bytes that were put at a slot with an outcome that nobody knows yet."""

    key: str
    data: bytes
    plan: EntryPlan


@dataclass(frozen=True, slots=True)
class LogTools:
    """What every log of an engine shares: the store, the clock, how to wait, the source of write ids, threads for
    reading ahead, the store's time. `writer`: what the write ids of all its entries begin with. `snapshot_after`: how
    many entries a writer replays before it leaves a snapshot behind. `loss_of`: the error for a log that was found
    empty, by its folder, if it was not always so. `begun`: is told of what is written to an internal topic.
    """

    objects: Objects
    clock: Clock
    waiting: Waiting
    new_id: IdSource
    executor: Executor
    writer: str
    snapshot_after: int
    store_time: StoreTime
    loss_of: Callable[[str], CorruptObjectError | None]
    begun: BegunLogs

    def new_entry_id(self) -> str:
        """A write id for an entry: the engine's own digits, and fresh ones."""
        return self.writer + self.new_id()[WRITER_CHARS:]


class EntryLog:
    """One partition's log. Threads may share it; other processes need not know of it."""

    def __init__(self, tools: LogTools, prefix: str, kind: LogKind) -> None:
        self.keys = LogKeys(prefix)
        self.kind = kind
        self._tools = tools
        self._lock = OwnLock()
        self._state: PartitionState | None = None
        self._token = ViewToken()
        self._seen_ms = 0  # when the view was last known to be at the log's end
        self._unsettled: _Unsettled | None = None
        self._turns = Turns(tools.writer, _AT_ONCE_NEARBY if tools.objects.is_near else _AT_ONCE)
        self._replayed = 0
        self._openers_snapshot = OpenersSnapshot(
            tools.objects, self.keys, tools.executor, tools.snapshot_after
        )

    @property
    def objects(self) -> Objects:
        """The store that it is on."""
        return self._tools.objects

    # --- the view -------------------------------------------------------------------------------------------

    @property
    def token(self) -> ViewToken:
        """Which view this is; it is loaded if it was not."""
        with self._lock.here():
            self._loaded()
            return self._token

    @property
    def is_loaded(self) -> bool:
        """Whether there is a view already, so that `view` and `token` do not ask the store."""
        return self._state is not None

    def view(self) -> PartitionState:
        """The state as last seen, without looking at the store again once loaded."""
        with self._lock.here():
            return self._loaded()

    def refresh(self) -> PartitionState:
        """The state at the log's end now. Raises `InconsistentClusterIdError` where another store was seen lately."""
        self._tools.objects.check_identity()
        with self._lock.here():
            return self._load() if self._state is None else self._advance(self._state)

    def recent(self) -> PartitionState:
        """The state at the log's end at most an hour ago: for the name of a file whose upload begins now, which a floor
        refuses once it is days old (PROTOCOL.md, section 6).
        """
        with self._lock.here():
            state = self._loaded()
            age_ms = self._tools.clock() - self._seen_ms
            return state if 0 <= age_ms < _RECENT_MS else self._advance(state)

    def _loaded(self) -> PartitionState:
        return self._load() if self._state is None else self._state

    def _load(self) -> PartitionState:
        """A new view. Raises `CorruptObjectError` for an empty one of a log that went further once."""
        if self.kind is not USER_LOG:
            self._tools.begun.look_ahead()
        state = self._load_newest()
        if state.log_end_offset == 0:
            loss = self._tools.loss_of(self.keys.prefix)
            if loss is not None and (state := self._load_newest()).log_end_offset == 0:
                self._state = None
                self._tools.objects.check_identity_now()
                raise loss
        return state

    def _load_newest(self) -> PartitionState:
        """The newest sound snapshot, and what follows it. Another one where a cleaner got ahead of us."""
        self._state, self._token = None, ViewToken()
        loaded_from = -1
        damaged: list[str] = []
        while True:
            with self._entries_ahead() as ahead:
                ahead.begin()
                newest = self._newest_snapshot(damaged, ahead)
                if newest.log_end_offset <= loaded_from:
                    break
                loaded_from, known = newest.log_end_offset, self._replayed
                try:
                    state = self._follow(newest, ahead)
                except SealedSlotError:
                    continue  # sealed since its snapshot was written: then there is a newer one
                if damaged and self._has_entries_beyond(state):
                    break
                ahead.check_end(state.log_end_offset)
            self._state = state
            self._openers_snapshot.opened(state, self._replayed - known)
            return state
        self._tools.objects.check_identity_now()
        raise CorruptObjectError(
            f"the entries from offset {loaded_from} on are sealed or gone, and no sound snapshot reaches beyond them"
            f" (damaged: {', '.join(dict.fromkeys(damaged)) or 'none'})",
            actor="load",
            place=self.keys.log_prefix,
            expected="a sound snapshot from which every entry follows",
            action="restore a snapshot from a copy; `txn-engine verify` says what is there",
            reason=Reason.NO_SOUND_SNAPSHOT,
        )

    def _newest_snapshot(self, damaged: list[str], ahead: EntriesAhead) -> PartitionState:
        """The newest sound snapshot, else the empty state. A damaged one is passed over and noted, never deleted.

        What follows it is read ahead meanwhile.
        """
        objects = self._tools.objects
        try:
            found = list(objects.ours(self.keys.snapshots_prefix, self.keys.parse_snapshot))
        except (
            CorruptObjectError
        ):  # a file stands where their folder should be: the entries tell all, or are sealed
            damaged.append(self.keys.snapshots_prefix)
            found = []
        for info, end in reversed(found):
            ahead.start_at(end)
            try:
                data = self._find_snapshot(info.key)
                if data is None:
                    continue
                state = decode_snapshot(data, key=info.key)
            except (CorruptObjectError, StoreAccessError):
                damaged.append(info.key)
                continue
            if state.log_end_offset == end:
                return state
        ahead.start_at(0)
        return PartitionState()

    def _find_snapshot(self, key: str) -> bytes | None:
        return self._tools.objects.find(key, max_bytes=SNAPSHOT_LIMITS.object_bytes)

    def _has_entries_beyond(self, state: PartitionState) -> bool:
        """Whether the log goes on behind an empty slot: an operator may have removed the seals that stood there."""
        end = self.keys.entry(state.log_end_offset)
        return bool(self._entry_keys(end)) and self._find_entry(end) is None

    def _find_entry(self, key: str) -> bytes | None:
        return self._tools.objects.find(key, max_bytes=ENTRY_LIMITS.object_bytes)

    def _create_entry(self, key: str, data: bytes) -> PutOutcome:
        return self._tools.objects.create(key, data, max_bytes=ENTRY_LIMITS.object_bytes)

    def _entry_keys(self, start_after: str) -> list[str]:
        found = self._tools.objects.ours(self.keys.log_prefix, self.keys.parse_entry, start_after=start_after)
        return [info.key for info, _ in found]

    def _advance(self, state: PartitionState) -> PartitionState:
        """Move the view forward over what follows `state`; where that was sealed meanwhile, load another view."""
        try:
            with self._entries_ahead() as ahead:
                advanced = self._follow(state, ahead)
                ahead.check_end(advanced.log_end_offset)
                self._state = advanced
        except SealedSlotError:
            return self._load()
        return self._state

    def _follow(self, state: PartitionState, ahead: EntriesAhead) -> PartitionState:
        """Replay what follows `state`, slot by slot until one is empty."""
        now_ms = self._tools.clock()
        while (data := ahead.find(state.log_end_offset)) is not None:
            state = self._replay(state, self.keys.entry(state.log_end_offset), data)
        self._seen_ms = now_ms
        return state

    def _entries_ahead(self) -> EntriesAhead:
        return EntriesAhead(self._tools.objects, self.keys, self._tools.executor)

    def _replay(self, state: PartitionState, key: str, data: bytes) -> PartitionState:
        entry = decode_entry(self.kind, data, key=key, base_offset=state.log_end_offset)
        if entry.is_seal:
            raise SealedSlotError(key)
        self._note_expiry(entry.batches)
        self._turns.entry(entry.write_id)
        self._replayed += 1
        for batch in entry.batches:
            state = apply(state, batch)
        return state

    def _note_expiry(self, batches: Sequence[BatchDescriptor]) -> None:
        """What was known of a producer before it was expired is no longer known of it (the stalled first write)."""
        if any(batch.control is Control.EXPIRE for batch in batches):
            self._token = ViewToken()

    def batches(self, start: int | None = None) -> Iterator[BatchDescriptor]:
        """All that the log still holds, slot by slot from where its entries start, read from the store; or from the
        slot that begins at `start`.

        Raises `OutcomeUnknownError` where a slot is sealed while it reads.
        """
        begin = self.refresh().entries_start if start is None else start
        for slot in slots_from(begin, self._tools.objects, self.keys, self.kind, self._tools.executor):
            yield from slot.batches

    def first_slot(self, offset: int) -> int | None:
        """Where the first slot at `offset` or behind it begins; None where there is none. By a listing: for looking
        back a little, nothing may rest on it.
        """
        after = self.keys.entry(offset - 1) if offset > 0 else None
        found = self._tools.objects.ours(self.keys.log_prefix, self.keys.parse_entry, start_after=after)
        return next((base for _, base in found), None)

    # --- the append -----------------------------------------------------------------------------------------

    def append(
        self,
        proposals: Sequence[Proposal],
        check_first_write: FirstWriteCheck = allow_first_write,
        *,
        confirm: bool = True,
    ) -> tuple[Verdict, ...]:
        """Append what is legal of these proposals as one entry; one verdict for each, in their order.

        Guarantee: what is appended was legal at the log's end at the moment of the write. A verdict that
        writes nothing (refused, or a duplicate) was reached on a state at least as new as the call.
        `OutcomeUnknownError`: the entry may or may not be there; until that is settled this log puts nothing
        else, here or in another slot. Where the slot was sealed meanwhile that is never learned.
        `InconsistentClusterIdError`: the store was replaced meanwhile, and nothing is acknowledged. `confirm=False`:
        nobody is told of the verdicts before `Objects.confirm` was asked.
        """
        verdicts = self._appended(proposals, check_first_write)
        if confirm and not all(isinstance(verdict, Refused) for verdict in verdicts):
            self._tools.objects.confirm()
        return verdicts

    def _appended(
        self, proposals: Sequence[Proposal], check_first_write: FirstWriteCheck
    ) -> tuple[Verdict, ...]:
        is_fresh = self._await_turn()
        for _ in range(MAX_LOST_RACES):
            with self._lock.here():
                verdicts = self._try(proposals, check_first_write, is_fresh)
            if verdicts is not None:
                return verdicts
            is_fresh = True
            self._await_turn()
        raise RequestTimedOutError(
            f"{MAX_LOST_RACES} lost races for the log's end", actor="append", place=self.keys.log_prefix
        )

    def _await_turn(self) -> bool:
        """Let those go first who wait for longer, where puts were lost lately; whether the log's end was looked at
        since. The lock is free meanwhile: the log's readers here do not wait.
        """
        silent_ms = 0
        for look in range(_LOOKS_A_TURN):
            with self._lock.here():
                wait_ms = self._turns.wait_ms(silent_ms)
            if not wait_ms:
                return look > 0
            self._tools.waiting.pause_ms(wait_ms)
            with self._lock.here():
                state = self._loaded()
                silent_ms = silent_ms + wait_ms if self._advance(state) is state else 0
        return True

    def _try(
        self, proposals: Sequence[Proposal], check_first_write: FirstWriteCheck, is_fresh: bool
    ) -> tuple[Verdict, ...] | None:
        """Judge them at the log's end as it is known, and put what is legal. None: the end was elsewhere, and is known
        now. `is_fresh`: it was looked at since the call began.
        """
        is_fresh = is_fresh or self._state is None
        self._settle()
        state, began_ms = self._loaded(), self._tools.waiting.monotonic_ms()
        plan = plan_entry(state, proposals, self._now(), check_first_write)
        if plan.batches:
            verdicts = self._put(plan, proposals)
            self._turns.tried(self._tools.waiting.monotonic_ms() - began_ms, won=verdicts is not None)
            return verdicts
        return plan.verdicts if is_fresh or self._advance(state) is state else None

    def _now(self) -> int:
        """This machine's time, if it can be one: others would bear it for as long as the log is written to."""
        now_ms = self._tools.clock()
        if not 0 <= now_ms <= LATEST_MS:
            raise InvalidTimestampError(
                f"this machine's clock says {now_ms} ms since 1970",
                actor="append",
                place=self.keys.log_prefix,
                expected=f"0 to {LATEST_MS} (the year 9999)",
                action="set the clock right; nothing was written, and others write on",
            )
        return now_ms

    def append_one(self, proposal: Proposal, *, confirm: bool = True) -> Appended | Duplicate:
        """Append one proposal; a refusal is raised."""
        verdict = self.append([proposal], confirm=confirm)[0]
        if isinstance(verdict, Refused):
            raise verdict.error
        return verdict

    def _put(self, plan: EntryPlan, proposals: Sequence[Proposal]) -> tuple[Verdict, ...] | None:
        """Put the planned entry; the verdicts where it stands, None where the race was lost and all is to be judged
        again.
        """
        key = self.keys.entry(plan.base_offset)
        data = encode_entry(self.kind, plan.batches, self._tools.new_entry_id())
        try:
            outcome = self._create_entry(key, data)
        except OutcomeUnknownError:
            self._unsettled = _Unsettled(key, data, plan)
            raise
        if outcome.won:
            self._win(plan)
            return plan.verdicts
        try:
            self._state = self._replay(self._loaded(), key, outcome.winner)
        except SealedSlotError:
            return settle_sealed(self._load_after_seal(key), plan, proposals)
        self._advance(self._state)
        return None

    def _load_after_seal(self, key: str) -> PartitionState:
        """Another view; as long as there is none, nobody knows what the sealed slot held."""
        try:
            return self._load()
        except TxnEngineError as error:
            raise OutcomeUnknownError(
                f"a seal in the slot, and the log cannot be loaded again: {error}",
                actor="append",
                place=key,
                reason=Reason.LOG_NOT_LOADED,
            ) from error

    def _win(self, plan: EntryPlan) -> None:
        self._note_expiry(plan.batches)
        self._turns.entry(self._tools.writer)
        self._openers_snapshot.written()
        if self.kind is not USER_LOG:
            self._tools.begun.entry_written(self.keys.prefix, plan.base_offset)
        self._state, self._seen_ms = plan.state, self._tools.clock()

    def _settle(self) -> None:
        """Learn what became of the last put that nobody answered for: the same bytes at the same slot, until
        it is occupied. A seal there settles nothing, but leaves nothing to wait for: the caller was told so.
        """
        pending = self._unsettled
        if pending is None:
            return
        outcome = self._create_entry(pending.key, pending.data)
        self._unsettled = None
        state = self._loaded()
        if state.log_end_offset != pending.plan.base_offset:
            return
        if outcome.won:
            self._win(pending.plan)
        else:
            self._advance(state)

    # --- snapshots ------------------------------------------------------------------------------------------

    def leave_snapshot_of_a_sweep(self) -> None:
        """Have a snapshot left behind, in another thread, if the log took long to load. A failure is only logged."""
        with self._lock.here():
            self._openers_snapshot.swept()

    def write_snapshot(self) -> int | None:
        """Write a snapshot at the log's end, built from entries read back, from an older snapshot on; its offset, or
        None where one stands already.
        """
        state = EntryLog(self._tools, self.keys.prefix, self.kind).refresh()
        end, objects = state.log_end_offset, self._tools.objects
        if end == 0 or objects.exists(self.keys.snapshot(end)):
            return None
        leave_snapshot(objects, self.keys, state)
        return end
