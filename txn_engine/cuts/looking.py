"""One log, looked at twice for a cut: what its rows say of transactions, and what is kept to read as of the cut."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator
from contextlib import closing

from txn_engine.errors import CorruptObjectError, OutcomeUnknownError, StoreAccessError
from txn_engine.log.as_of import EarlierLog, missing_entry, replayed
from txn_engine.log.cut_format import LogCut
from txn_engine.log.row_checks import MAX_OFFSET
from txn_engine.log.slots import SlotRows
from txn_engine.protocol.cuts import SpansSeen
from txn_engine.protocol.partition import PartitionState


def _no_slots() -> Generator[SlotRows, None, None]:
    yield from ()


class LogLooks:
    """Two looks at a log, each read afresh from the store; one that was not there at the first look ended at 0 then.

    Rows are read from `begin` on: where the log begins, or an earlier cut's slot. known: where that cut goes through
    the log, unless it was deleted; its snapshot, which nobody deletes, is read only where something came since.
    known_state: what that snapshot holds, where it stands in this process alone.

    end, stable: where the log ended at the first look, and its last stable offset there. low: from where rows were
    read. slots: where the slots that were read begin, and where the last one ends.
    """

    def __init__(
        self,
        log: EarlierLog,
        begin: int,
        known: LogCut | None,
        *,
        is_of_groups: bool,
        known_state: PartitionState | None = None,
    ) -> None:
        self._log = log
        self._begin = begin
        self._known = known
        self._known_state = known_state
        self._is_of_groups = is_of_groups
        self._state: PartitionState | None = PartitionState()  # at the first look's end; None: not needed yet
        self._coming = _no_slots()
        self.end = self.stable = 0
        self._read_from(0, is_whole=True)

    def _read_from(self, low: int, *, is_whole: bool) -> None:
        self.low = low
        self.slots = [low]
        self.spans = SpansSeen(is_whole)

    # --- two looks ------------------------------------------------------------------------------------------

    def expect_first(self) -> None:
        """Have the first look's reads under way: of many logs at once, before one after the other is looked at."""
        if (known := self._known) is not None:
            self._coming = self._log.slots(known.slot, goes_on=known.slot < known.snapshot)

    def first(self) -> None:
        """Fix where the log ends, once that look is expected."""
        if self._known is not None and self._goes_on_from(self._known):
            opened = self.spans.first_open()  # none that is open now began below the earlier cut
            self.end = self.slots[-1]
            self.stable = self.end if opened is None else opened
            return
        self._known = None
        self._read_all()

    def _read_all(self) -> None:
        """Read each entry once: those behind the newest snapshot for the state, then what is needed from before it."""
        state = self._log.newest_snapshot(MAX_OFFSET)
        snapshot_end, behind = state.log_end_offset, []
        try:
            for slot in self._log.slots(snapshot_end, goes_on=True):
                behind.append(slot)
                state = replayed(state, slot.batches)
        except OutcomeUnknownError:
            self._log.state_now()  # names the damage, where the snapshot that is needed is damaged
            raise
        if state.log_end_offset == 0:
            self._log.check_not_lost()
        self._state, self.end, self.stable = state, state.log_end_offset, state.last_stable_offset
        low = max(self._begin, state.entries_start if self.end else 0)
        self._read_from(low, is_whole=low == self._begin)
        if low < snapshot_end:
            for slot in self._log.slots(low, goes_on=True):
                if slot.base_offset >= snapshot_end:
                    break
                self._see(slot)
        for slot in behind:
            if slot.base_offset >= low:
                self._see(slot)
        if self.slots[-1] != self.end:
            raise missing_entry(self._log.keys, self.slots[-1])

    def _goes_on_from(self, known: LogCut) -> bool:
        """Read what came since the earlier cut; False where its slot was sealed, or its snapshot is damaged."""
        self._read_from(known.slot, is_whole=True)
        state = None
        try:
            with closing(self._coming) as coming:
                for slot in coming:
                    self._see(slot)
                    if slot.base_offset >= known.snapshot and not self._is_of_groups:
                        state = self._state_of(known) if state is None else state
                        if state.log_end_offset != slot.base_offset:
                            return False
                        state = replayed(state, slot.batches)
        except (OutcomeUnknownError, CorruptObjectError, StoreAccessError):
            return False
        self._state = state
        return self.slots[-1] >= known.snapshot

    def _state_of(self, known: LogCut) -> PartitionState:
        return self._log.snapshot(known.snapshot) if self._known_state is None else self._known_state

    def expect_second(self) -> None:
        """As `expect_first`, once all first looks are over."""
        self._coming = self._log.slots(self.slots[-1])

    def second(self) -> None:
        """Read on, to where the log ends now."""
        with closing(self._coming) as coming:
            for slot in coming:
                self._see(slot)

    def _see(self, slot: SlotRows) -> None:
        self.slots.append(slot.end)
        for batch in slot.batches:
            self.spans.see(batch)

    # --- what the looks tell ----------------------------------------------------------------------------------

    def leaves_out_behind(self, offset: int) -> bool:
        """Whether compaction by key may have left out what is below the offset for what is above it: at the last stable
        offset it has not.
        """
        return offset < self.stable and any(offset <= row < self.end for row in self.spans.left_out)

    def has_late_transaction(self, now_ms: int, max_timeout_ms: int) -> bool:
        """Whether one was open for longer than any may be, at the first look."""
        if self._state is None:
            self._state = self._log.state_at(self.end)
        return self._state.has_late_transaction(now_ms, max_timeout_ms)

    def state(self) -> PartitionState:
        """The state at the first look, of a log that is none of groups."""
        if self._state is None:
            known = self._known
            self._state = self._log.state_at(self.end) if known is None else self._state_of(known)
        return self._state

    def unkept(self, offset: int) -> LogCut:
        """Where the cut goes through the log, of one that is kept nowhere."""
        return LogCut(offset, self.end, self._slot_at(offset))

    def unkept_groups(self, offset: int) -> tuple[LogCut, PartitionState]:
        """As `unkept`, of a log of group offsets, and the state at the cut itself."""
        below = self._log.state_at(offset)
        return LogCut(offset, self.end, self._slot_at(offset), self._committed_behind(below)), below

    def _slot_at(self, offset: int) -> int:
        return self.slots[bisect_right(self.slots, offset) - 1]

    def keep(self, offset: int) -> LogCut:
        """Where the cut goes through the log, once the snapshot stands that tells what is below.

        Of a topic that is the one at the first look: which files are aborted is known there, and none that it lists was
        deleted yet. Of a log of group offsets it is the one at the cut itself, for a later commit hides the one before
        it.
        """
        known, slot = self._known, self._slot_at(offset)
        if not self._is_of_groups:
            if self._state is not None:
                self._log.keep_snapshot(self._state)
            return LogCut(offset, self.end, slot)
        if known is not None and known.offset == offset:
            return LogCut(offset, known.snapshot, slot, known.committed)
        state = self._log.state_at(offset)
        self._log.keep_snapshot(state)
        return LogCut(offset, state.log_end_offset, slot, self._committed_behind(state))

    def _committed_behind(self, state: PartitionState) -> tuple[int, ...]:
        """Whose commits are pending in an earlier state, and were committed by the first look."""
        decided: dict[int, bool] = {}
        for marker in self.spans.markers:
            if state.log_end_offset <= marker.offset < self.end:
                decided.setdefault(marker.producer_id, marker.committed)
        pending = state.group_offsets.pending
        return tuple(producer_id for producer_id, won in decided.items() if won and producer_id in pending)
