"""Making a cut: two looks at the logs, and the rule on what they saw (PROTOCOL.md, section 7).

The first look fixes where each log ends, the second one reads what is there by then. A transaction with a marker in any
log at the first look has all its records in the logs at the second one. So whatever might lie half inside is seen, and
the vector is lowered until nothing does. That waits for nobody and ends, whatever others write meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from txn_engine.clock import Clock, Waiting
from txn_engine.cuts.looking import LogLooks
from txn_engine.errors import (
    ConcurrentTransactionsError,
    InvalidRequestError,
    OutcomeUnknownError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.log.as_of import EarlierLog, UnkeptCut
from txn_engine.log.cut_format import NEVER, UNKEPT, Cut, CutTopic, LogCut
from txn_engine.log.cuts import CutStore
from txn_engine.log.logs import Logs
from txn_engine.log.lost_topics import lost_topics
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txn_engine.log.topics import Topic
from txn_engine.protocol.cuts import lowered
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.unreadable import one_place

Made = TypeVar("Made")
TRIES = 5
KEEP_MS_MAX = 36_500 * 86_400_000
_PAUSE_MS = 200


@dataclass(frozen=True, slots=True)
class _Before:
    """The newest cut of all that is to be cut. is_kept: it was not deleted before the new one was claimed, so that
    nobody deletes what it names. states: of its topics, where it is kept in this process alone.
    """

    cut: Cut | None
    is_kept: bool = False
    states: Mapping[TransactionPartition, PartitionState] = field(default_factory=dict)

    def log(self, at: TransactionPartition) -> LogCut | None:
        return None if self.cut is None else self.cut.log(at.topic, at.incarnation, at.partition)


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

    def make(self, names: Sequence[str] | None, keep_ms: int | None) -> Cut:
        """A cut of these topics (None: of all) and all groups, which stands when this returns.

        Raises `ConcurrentTransactionsError` where, five times over, a transaction that is committed here and not yet
        marked there lies behind what compaction by key or retention has left.
        """
        if keep_ms is not None and (type(keep_ms) is not int or not 0 < keep_ms <= KEEP_MS_MAX):
            raise InvalidRequestError(
                f"keep_ms={keep_ms!r:.40}",
                actor="cut",
                expected=f"milliseconds above 0, at most {KEEP_MS_MAX} (a hundred years), or None",
            )
        number = self._store.claim()
        try:
            before = self._newest_before(number, names)
            cut = self._patiently(partial(self._try, number, names, keep_ms, before))
            self._store.settle(cut)
        except BaseException:
            with suppress(TxnEngineError):  # clean-up does it after an hour
                self._store.give_up(number)
            raise
        return cut

    def look(
        self, names: Sequence[str], known: UnkeptCut | None = None, *, group_logs: Collection[int] = ()
    ) -> UnkeptCut:
        """A cut of these topics and all groups that stands nowhere: nothing is written, so whoever may read may look.

        What it needs is kept as what a scan needs is: a file that died after this lies there for another 24 hours.
        `known`: an earlier one of these topics, from which the rows are read on; else the newest that is kept.
        `group_logs`: the partitions of `__consumer_offsets` whose offsets can be asked for.
        """
        if known is None:
            before = self._newest_before(self._store.first_unclaimed(), names)
        else:
            before = _Before(known.cut, is_kept=True, states=known.states)
        return self._patiently(partial(self._try_unkept, names, before, group_logs))

    def _newest_before(self, number: int, names: Sequence[str] | None) -> _Before:
        topics = None if names is None else self._logs.look_up_topics(names)
        incarnations = None if topics is None else {topic.name: topic.incarnation for topic in topics}
        found = self._store.newest_over(incarnations, number)
        return _Before(None) if found is None else _Before(found.cut, is_kept=not found.is_deleted)

    def _patiently(self, attempt: Callable[[], Made]) -> Made:
        for tried in range(1, TRIES):
            try:
                return attempt()
            except (ConcurrentTransactionsError, OutcomeUnknownError):
                self._drive()
                self._waiting.pause_ms(_PAUSE_MS * tried)
        return attempt()

    def _try(self, number: int, names: Sequence[str] | None, keep_ms: int | None, before: _Before) -> Cut:
        settings = self._logs.workers.submit(self._logs.settings.look_up)
        first = self._first_look(names, before)
        coordinator_ends = self._coordinator_ends(before)
        topics = self._topics(names)
        if names is None:
            self._check_none_lost(topics, before)
        looks = self._second_look(names, topics, first)
        vector = self._vector(looks)
        kept = self._logs.workers.map(LogLooks.keep, looks.values(), vector.values())
        cut = self._cut(number, names, keep_ms, topics, dict(zip(looks, kept, strict=True)))
        return replace(cut, coordinator_ends=tuple(coordinator_ends), settings=settings.result().changes)

    def _try_unkept(self, names: Sequence[str], before: _Before, group_logs: Collection[int]) -> UnkeptCut:
        first = self._first_look(names, before)
        topics = self._topics(names)
        looks = self._second_look(names, topics, first)
        vector = self._vector(looks)
        partitions = [at for at in looks if at.topic != CONSUMER_OFFSETS_TOPIC]
        states = dict(
            zip(partitions, self._logs.workers.map(lambda at: looks[at].state(), partitions), strict=True)
        )
        logs = {at: each.unkept(vector[at]) for at, each in looks.items()}
        for at in self._logs.internal(CONSUMER_OFFSETS_TOPIC):
            if at.partition in group_logs:
                logs[at], states[at] = looks[at].unkept_groups(vector[at])
        return UnkeptCut(self._cut(UNKEPT, names, None, topics, logs), states)

    def _vector(self, looks: Mapping[TransactionPartition, LogLooks]) -> dict[TransactionPartition, int]:
        vector = lowered(
            {at: each.stable for at, each in looks.items()},
            {at: each.spans.spans for at, each in looks.items()},
            {at: each.slots for at, each in looks.items() if at.topic == CONSUMER_OFFSETS_TOPIC},
            _positions(looks),
        )
        self._check(looks, vector)
        return vector

    # --- two looks ------------------------------------------------------------------------------------------

    def _first_look(
        self, names: Sequence[str] | None, before: _Before
    ) -> dict[TransactionPartition, LogLooks]:
        partitions = self._partitions(self._topics(names))
        looks = {at: self._looks_at(at, before) for at in partitions}
        for each in looks.values():
            each.expect_first()
        self._do_each(LogLooks.first, looks)
        return looks

    def _second_look(
        self,
        names: Sequence[str] | None,
        topics: Sequence[Topic],
        first: Mapping[TransactionPartition, LogLooks],
    ) -> dict[TransactionPartition, LogLooks]:
        """What is there by now, in these topics, which were looked up after the first look: they are changed as often
        at least as whoever wrote what is inside knew. Partitions that came meanwhile are looked at too: a transaction
        may lie in them.
        """
        now = self._partitions(topics)
        if names is not None and not first.keys() <= set(now):
            raise UnknownTopicOrPartitionError("a topic of the cut was deleted and made again just now")
        looks = {at: first.get(at) or self._looks_at(at, _Before(None)) for at in now}
        for each in looks.values():
            each.expect_second()
        self._do_each(LogLooks.second, looks)
        return looks

    def _check_none_lost(self, topics: Sequence[Topic], before: _Before) -> None:
        """Raise `CorruptObjectError` where the newest cut has a topic of which no object is left: a cut of all topics
        without it would hide that.
        """
        if before.cut is None:
            return
        inside = {(topic.name, topic.incarnation) for topic in topics}
        had = {(topic.topic, topic.incarnation) for topic in before.cut.topics}
        name = f"cut {before.cut.number}"
        for lost in lost_topics(self._logs.tools.objects, dict.fromkeys(had - inside, name)):
            raise lost.error

    def _coordinator_ends(self, before: _Before) -> list[int]:
        """Where the coordinator's logs end, between the two looks: whatever may be inside was decided by the first one.
        What else was decided by then has its records in partitions that the second one has, by which backups tell it.
        """
        ends = [self._expect_end_of(at, before) for at in self._logs.internal(TRANSACTION_STATE_TOPIC)]
        return list(self._logs.workers.map(lambda end: end(), ends))

    def _do_each(
        self, look: Callable[[LogLooks], None], looks: Mapping[TransactionPartition, LogLooks]
    ) -> None:
        def there(at: TransactionPartition) -> None:
            with one_place(at.topic, at.partition):
                look(looks[at])

        for _ in self._logs.workers.map(there, looks):
            pass

    def _looks_at(self, at: TransactionPartition, before: _Before) -> LogLooks:
        known = before.log(at)
        begin = 0 if known is None else known.slot
        log = EarlierLog.of(self._logs.tools, at)
        return LogLooks(
            log,
            begin,
            known if before.is_kept else None,
            is_of_groups=at.topic == CONSUMER_OFFSETS_TOPIC,
            known_state=before.states.get(at),
        )

    def _expect_end_of(self, at: TransactionPartition, before: _Before) -> Callable[[], int]:
        """What tells where a log of the coordinator's ends: what came since the earlier cut, which is under way."""
        log = self._logs.of(at)
        ends = () if before.cut is None else before.cut.coordinator_ends
        if at.partition >= len(ends) or log.is_loaded:
            return lambda: log.refresh().log_end_offset
        begin = ends[at.partition]
        coming = EarlierLog(self._logs.tools, log.keys, log.kind).slots(begin)

        def end() -> int:
            try:
                with closing(coming):
                    return max((slot.end for slot in coming), default=begin)
            except OutcomeUnknownError:  # they were sealed since
                return log.refresh().log_end_offset

        return end

    def _topics(self, names: Sequence[str] | None) -> list[Topic]:
        if names is not None:
            return self._logs.look_up_topics(names)
        survey = self._logs.topics.survey(self._logs.workers)
        if survey.unreadable:
            raise survey.unreadable[0].error
        return list(survey.topics)

    def _partitions(self, topics: Sequence[Topic]) -> list[TransactionPartition]:
        return [
            *self._logs.internal(CONSUMER_OFFSETS_TOPIC),
            *(
                TransactionPartition(topic.name, topic.incarnation, number)
                for topic in topics
                for number in range(topic.partitions)
            ),
        ]

    # --- what is kept ---------------------------------------------------------------------------------------

    def _check(
        self, looks: Mapping[TransactionPartition, LogLooks], vector: Mapping[TransactionPartition, int]
    ) -> None:
        """Raise where what lies below the vector cannot be told, or not any more."""
        now_ms, most_ms = self._clock(), self._logs.settings.limits.max_transaction_timeout_ms
        is_whole = all(each.spans.is_whole for each in looks.values())
        for at, each in looks.items():
            if vector[at] < each.low:
                trouble = (
                    "a transaction that is open or unmarked elsewhere begins in entries that were sealed"
                )
            elif not is_whole and each.has_late_transaction(now_ms, most_ms):
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
        topics: Sequence[Topic],
        logs: Mapping[TransactionPartition, LogCut],
    ) -> Cut:
        created_ms = self._clock()
        by_topic: dict[tuple[str, int], list[LogCut]] = {}
        for at, log in logs.items():
            by_topic.setdefault((at.topic, at.incarnation), []).append(log)
        groups = by_topic.pop((CONSUMER_OFFSETS_TOPIC, 0))
        changes = {(topic.name, topic.incarnation): topic.changes for topic in topics}
        return Cut(
            number,
            self._logs.config.store_id,
            created_ms,
            NEVER if keep_ms is None else created_ms + keep_ms,
            names is None,
            tuple(
                CutTopic(*topic, tuple(partitions), changes[topic])
                for topic, partitions in sorted(by_topic.items())
            ),
            tuple(groups),
            (),
        )


def _positions(
    looks: Mapping[TransactionPartition, LogLooks],
) -> dict[TransactionPartition, list[tuple[int, TransactionPartition, int]]]:
    """By partition to where groups have read it, and which rows say so. A position behind the log's end at the second
    look was read by nobody: somebody made it up, and no cut waits for it.
    """
    found: dict[TransactionPartition, list[tuple[int, TransactionPartition, int]]] = {}
    for group_log, each in looks.items():
        for row, partition, position in each.spans.commits:
            there = looks.get(partition)
            if there is not None and position <= there.slots[-1]:
                found.setdefault(partition, []).append((position, group_log, row))
    return found
