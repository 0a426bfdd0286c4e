"""Making a cut: two looks at the logs, and the rule on what they saw (PROTOCOL.md, section 7).

The first look fixes where each log ends, the second one reads what is there by then. A transaction with a marker in any
log at the first look has all its records in the logs at the second one. So whatever might lie half inside is seen, and
the vector is lowered until nothing does. That waits for nobody and ends, whatever others write meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from txn_engine.clock import Clock, Waiting
from txn_engine.errors import (
    ConcurrentTransactionsError,
    InvalidRequestError,
    OutcomeUnknownError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.log.as_of import EarlierLog, missing_entry, replayed
from txn_engine.log.cut_format import NEVER, Cut, CutTopic, LogCut
from txn_engine.log.cuts import CutStore
from txn_engine.log.logs import Logs
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txn_engine.log.topics import Topic
from txn_engine.protocol.cuts import SpansSeen, lowered
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.unreadable import one_place

TRIES = 5
_PAUSE_MS = 200


@dataclass(frozen=True, slots=True)
class _Seen:
    """One log: its state at its end at the first look, and what its rows up to the second look say.

    low: from where they were read. slots: where the slots that were read begin, and where the last one ends.
    """

    log: EarlierLog
    state: PartitionState
    low: int
    slots: Sequence[int]
    spans: SpansSeen

    def slot_at(self, offset: int) -> int:
        """The last slot that begins at this offset or before."""
        return self.slots[bisect_right(self.slots, offset) - 1]

    def leaves_out_behind(self, offset: int) -> bool:
        """Whether compaction by key may have left out what is below the offset for what is above it: at the last stable
        offset it has not.
        """
        end = self.state.log_end_offset
        return offset < self.state.last_stable_offset and any(
            offset <= row < end for row in self.spans.left_out
        )

    def committed_behind(self, state: PartitionState) -> tuple[int, ...]:
        """Whose commits are pending in an earlier state, and were committed by the first look."""
        decided: dict[int, bool] = {}
        for marker in self.spans.markers:
            if state.log_end_offset <= marker.offset < self.state.log_end_offset:
                decided.setdefault(marker.producer_id, marker.committed)
        pending = state.group_offsets.pending
        return tuple(producer_id for producer_id, won in decided.items() if won and producer_id in pending)


class CutMaker:
    """Makes cuts of one store. `drive` writes the markers that are missing: anybody may."""

    def __init__(
        self, logs: Logs, store: CutStore, clock: Clock, waiting: Waiting, drive: Callable[[], object]
    ) -> None:
        self._logs = logs
        self._store = store
        self._clock = clock
        self._waiting = waiting
        self._drive = drive

    def make(self, topics: Sequence[str] | None, keep_ms: int | None) -> Cut:
        """A cut of these topics (None: of all) and all groups, which stands when this returns.

        Raises `ConcurrentTransactionsError` where, five times over, a transaction that is committed here and not yet
        marked there lies behind what compaction by key or retention has left.
        """
        if keep_ms is not None and (type(keep_ms) is not int or keep_ms <= 0):
            raise InvalidRequestError(f"keep_ms={keep_ms!r:.40}", expected="milliseconds above 0, or None")
        number = self._store.claim()
        try:
            cut = self._patiently(partial(self._try, number, topics, keep_ms))
            self._store.settle(cut)
        except BaseException:
            with suppress(TxnEngineError):  # clean-up does it after an hour
                self._store.give_up(number)
            raise
        return cut

    def _patiently(self, attempt: Callable[[], Cut]) -> Cut:
        for tried in range(1, TRIES):
            try:
                return attempt()
            except (ConcurrentTransactionsError, OutcomeUnknownError):
                self._drive()
                self._waiting.pause_ms(_PAUSE_MS * tried)
        return attempt()

    def _try(self, number: int, names: Sequence[str] | None, keep_ms: int | None) -> Cut:
        topics, ends = self._first_look(names)
        coordinator = self._logs.refresh_all(map(self._logs.of, self._logs.internal(TRANSACTION_STATE_TOPIC)))
        incarnations = {topic.name: topic.incarnation for topic in topics}
        before = self._store.newest_over(None if names is None else incarnations, number)
        seen = self._second_look(names, topics, ends, before)
        vector = lowered(
            {at: each.state.last_stable_offset for at, each in seen.items()},
            {at: each.spans.spans for at, each in seen.items()},
            {at: each.slots for at, each in seen.items() if at.topic == CONSUMER_OFFSETS_TOPIC},
            _positions(seen),
        )
        self._check(seen, vector)
        kept = self._logs.workers.map(_kept, seen, seen.values(), vector.values())
        logs = dict(zip(seen, kept, strict=True))
        return self._cut(number, names, keep_ms, logs, [state.log_end_offset for state in coordinator])

    # --- two looks ------------------------------------------------------------------------------------------

    def _first_look(self, names: Sequence[str] | None) -> tuple[list[Topic], dict[TransactionPartition, int]]:
        topics = self._topics(names)
        partitions = [*self._logs.internal(CONSUMER_OFFSETS_TOPIC), *_partitions_of(topics)]
        states = self._logs.refresh_all(map(self._logs.of, partitions))
        return topics, {at: state.log_end_offset for at, state in zip(partitions, states, strict=True)}

    def _second_look(
        self,
        names: Sequence[str] | None,
        topics: Sequence[Topic],
        ends: Mapping[TransactionPartition, int],
        before: Cut | None,
    ) -> dict[TransactionPartition, _Seen]:
        """What is there by now. Partitions that came meanwhile are looked at too: a transaction may lie in them."""
        now = self._topics(names)
        if names is not None and [(each.name, each.incarnation) for each in now] != [
            (each.name, each.incarnation) for each in topics
        ]:
            raise UnknownTopicOrPartitionError("a topic of the cut was deleted and made again just now")
        partitions = [*self._logs.internal(CONSUMER_OFFSETS_TOPIC), *_partitions_of(now)]
        reads = [partial(self._read, at, ends.get(at, 0), before) for at in partitions]
        found = self._logs.workers.map(lambda read: read(), reads)
        return dict(zip(partitions, found, strict=True))

    def _topics(self, names: Sequence[str] | None) -> list[Topic]:
        if names is not None:
            return self._logs.look_up_topics(names)
        survey = self._logs.topics.survey()
        if survey.unreadable:
            raise survey.unreadable[0].error
        return list(survey.topics)

    def _read(self, at: TransactionPartition, end: int, before: Cut | None) -> _Seen:
        with one_place(at.topic, at.partition):
            view = self._logs.of(at)
            log = EarlierLog(self._logs.tools, view.keys, view.kind)
            known = None if before is None else before.log(at.topic, at.incarnation, at.partition)
            begin = 0 if known is None else known.slot
            low = max(begin, view.view().entries_start if end else 0)
            spans, slots, state = SpansSeen(is_whole=low == begin), [low], log.newest_snapshot(end)
            for slot in log.slots(min(low, state.log_end_offset)):
                if state.log_end_offset == slot.base_offset < end:
                    state = replayed(state, slot.batches)
                if slot.base_offset >= low:
                    slots.append(slot.end)
                    for batch in slot.batches:
                        spans.see(batch)
            if state.log_end_offset != end:
                raise missing_entry(view.keys, state.log_end_offset)
            return _Seen(log, state, low, slots, spans)

    # --- what is kept ---------------------------------------------------------------------------------------

    def _check(
        self, seen: Mapping[TransactionPartition, _Seen], vector: Mapping[TransactionPartition, int]
    ) -> None:
        """Raise where what lies below the vector cannot be told, or not any more."""
        now_ms, most_ms = self._clock(), self._logs.config.limits.max_transaction_timeout_ms
        is_whole = all(each.spans.is_whole for each in seen.values())
        for at, each in seen.items():
            if vector[at] < each.low:
                trouble = (
                    "a transaction that is open or unmarked elsewhere begins in entries that were sealed"
                )
            elif not is_whole and each.state.has_late_transaction(now_ms, most_ms):
                trouble = (
                    "a transaction is open for longer than any may be, and entries of some log are sealed"
                )
            elif each.leaves_out_behind(vector[at]):
                trouble = "a transaction is unmarked elsewhere, and keys were compacted since it began"
            else:
                continue
            raise ConcurrentTransactionsError(
                trouble,
                actor="cut",
                place=f"{at.topic}-{at.partition}",
                action="run `txn-engine coordinator markers`, look for hanging transactions, then cut again",
            )

    def _cut(
        self,
        number: int,
        names: Sequence[str] | None,
        keep_ms: int | None,
        logs: Mapping[TransactionPartition, LogCut],
        coordinator_ends: Sequence[int],
    ) -> Cut:
        created_ms = self._clock()
        by_topic: dict[tuple[str, int], list[LogCut]] = {}
        for at, log in logs.items():
            by_topic.setdefault((at.topic, at.incarnation), []).append(log)
        groups = by_topic.pop((CONSUMER_OFFSETS_TOPIC, 0))
        return Cut(
            number,
            self._logs.config.store_id,
            created_ms,
            NEVER if keep_ms is None else created_ms + keep_ms,
            names is None,
            tuple(CutTopic(*topic, tuple(partitions)) for topic, partitions in sorted(by_topic.items())),
            tuple(groups),
            tuple(coordinator_ends),
        )


def _positions(
    seen: Mapping[TransactionPartition, _Seen],
) -> dict[TransactionPartition, list[tuple[int, TransactionPartition, int]]]:
    """By partition to where groups have read it, and which rows say so. A position behind the log's end at the second
    look was read by nobody: somebody made it up, and no cut waits for it.
    """
    found: dict[TransactionPartition, list[tuple[int, TransactionPartition, int]]] = {}
    for group_log, each in seen.items():
        for row, partition, position in each.spans.commits:
            there = seen.get(partition)
            if there is not None and position <= there.slots[-1]:
                found.setdefault(partition, []).append((position, group_log, row))
    return found


def _partitions_of(topics: Sequence[Topic]) -> list[TransactionPartition]:
    return [
        TransactionPartition(topic.name, topic.incarnation, number)
        for topic in topics
        for number in range(topic.partitions)
    ]


def _kept(at: TransactionPartition, seen: _Seen, offset: int) -> LogCut:
    """Where the cut goes through the log, once the snapshot stands that tells what is below.

    Of a topic that is the one at the first look: which files are aborted is known there, and none that it lists was
    deleted yet. Of a log of group offsets it is the one at the cut itself, for a later commit hides the one before it.
    """
    state = seen.log.state_at(offset) if at.topic == CONSUMER_OFFSETS_TOPIC else seen.state
    seen.log.keep_snapshot(state)
    return LogCut(offset, state.log_end_offset, seen.slot_at(offset), seen.committed_behind(state))
