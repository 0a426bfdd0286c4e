"""A log as it was: its state at an earlier end of it, the snapshot that keeps that state, and what a cut says of it."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from storage import LogKeys
from txn_engine.errors import CorruptObjectError, InvalidRequestError, StoreAccessError
from txn_engine.log.cut_format import Cut
from txn_engine.log.entry_format import OFFSETS_LOG, TRANSACTION_LOG, USER_LOG, LogKind
from txn_engine.log.entry_log import EntryLog, LogTools
from txn_engine.log.erasures import was_erased_from
from txn_engine.log.left_snapshot import leave_snapshot
from txn_engine.log.objects import Objects
from txn_engine.log.slots import SlotRows, slots_from
from txn_engine.log.snapshot_format import SNAPSHOT_LIMITS, decode_snapshot
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txn_engine.log.topics import partition_prefix
from txn_engine.protocol.as_of_cut import offsets_as_of, readable_as_of
from txn_engine.protocol.batches import BatchDescriptor
from txn_engine.protocol.offset_commits import GroupOffsets
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.replay import apply
from txn_engine.protocol.transaction_rows import TransactionPartition


class EarlierLog:
    """One log, read afresh from the store: nothing here comes from a view that somebody holds."""

    def __init__(self, tools: LogTools, keys: LogKeys, kind: LogKind) -> None:
        self.keys = keys
        self._tools = tools
        self._objects: Objects = tools.objects
        self._kind = kind

    @classmethod
    def of(cls, tools: LogTools, at: TransactionPartition) -> EarlierLog:
        """That of a transaction's partition."""
        kinds = {CONSUMER_OFFSETS_TOPIC: OFFSETS_LOG, TRANSACTION_STATE_TOPIC: TRANSACTION_LOG}
        keys = LogKeys(partition_prefix(at.topic, at.incarnation, at.partition))
        return cls(tools, keys, kinds.get(at.topic, USER_LOG))

    def state_now(self) -> PartitionState:
        """The state at the log's end."""
        return EntryLog(self._tools, self.keys.prefix, self._kind).refresh()

    def check_not_lost(self) -> None:
        """Raise `CorruptObjectError` where the log is empty, and something says that it went further."""
        if self._tools.loss_of(self.keys.prefix) is not None:
            self.state_now()  # looks at the log again

    def slots(self, start: int, *, goes_on: bool = False) -> Generator[SlotRows, None, None]:
        """The slots from the one that begins at `start`, up to the first that is empty: `slots_from`."""
        return slots_from(start, self._objects, self.keys, self._kind, self._tools.executor, goes_on=goes_on)

    def newest_snapshot(self, at_most: int) -> PartitionState:
        """The state of the newest sound snapshot that ends there or before; the empty state where there is none."""
        found = self._objects.ours(self.keys.snapshots_prefix, self.keys.parse_snapshot)
        for end in sorted((end for _, end in found if end <= at_most), reverse=True):
            try:
                state = self.snapshot(end)
            except (CorruptObjectError, StoreAccessError):
                continue
            return state
        return PartitionState()

    def snapshot(self, end: int) -> PartitionState:
        """The state that the snapshot at `end` keeps. Raises `CorruptObjectError` where it is gone or damaged, or where
        the whole log is gone.
        """
        if end == 0:
            return PartitionState()
        key = self.keys.snapshot(end)
        data = self._objects.find(key, max_bytes=SNAPSHOT_LIMITS.object_bytes)
        if data is None:
            self.state_now()  # raises where the whole log is gone
            raise CorruptObjectError("no such object", place=key, expected="the snapshot that a cut names")
        state = decode_snapshot(data, key=key)
        if state.log_end_offset != end:
            raise CorruptObjectError(
                f"a state at {state.log_end_offset}", place=key, expected=f"one at {end}"
            )
        return state

    def state_at(self, end: int) -> PartitionState:
        """The state that replaying the log up to `end` gives, where one of its slots begins or the log ends."""
        state = self.newest_snapshot(end)
        for slot in self.slots(state.log_end_offset, goes_on=True):
            if slot.base_offset >= end:
                break
            state = replayed(state, slot.batches)
        if state.log_end_offset != end:
            raise missing_entry(self.keys, state.log_end_offset)
        return state

    def keep_snapshot(self, state: PartitionState) -> None:
        """Let the snapshot of this state stand, which was built from entries read back."""
        leave_snapshot(self._objects, self.keys, state)


def missing_entry(keys: LogKeys, offset: int) -> CorruptObjectError:
    """For a log that was read up to this offset, and that went on there once."""
    return CorruptObjectError(
        "no such object, or one of another length",
        place=keys.entry(offset),
        expected="the entry that was there",
        action="run `txn-engine verify`",
    )


def replayed(state: PartitionState, batches: Iterable[BatchDescriptor]) -> PartitionState:
    """The state after these rows."""
    for batch in batches:
        state = apply(state, batch)
    return state


class AsOf(Protocol):
    """A cut, and what tells which files are below it."""

    @property
    def cut(self) -> Cut:
        """The vector."""

    def state(self, topic: str, incarnation: int, partition: int) -> PartitionState:
        """The state of a topic's partition in which every file below the cut is decided."""


@dataclass(frozen=True, slots=True)
class UnkeptCut:
    """A cut that nothing on the store keeps, and the states that its topics had when it was made; of logs of group
    offsets those that were asked for, as of the cut itself.

    Its files stay as those of a scan do: none is deleted sooner than 24 hours after it died.
    """

    cut: Cut
    states: Mapping[TransactionPartition, PartitionState]

    def state(self, topic: str, incarnation: int, partition: int) -> PartitionState:
        """The state in which every file below the cut is decided."""
        return self.states[TransactionPartition(topic, incarnation, partition)]

    def group_offsets(self, partition: int) -> GroupOffsets:
        """The offsets that one partition of `__consumer_offsets` kept: by the committed rows below the cut."""
        offsets = self.state(CONSUMER_OFFSETS_TOPIC, 0, partition).group_offsets
        return offsets_as_of(offsets, self.cut.groups[partition].committed)


class AsOfCut:
    """The logs of a cut that is kept, as they were then."""

    def __init__(self, tools: LogTools, cut: Cut) -> None:
        self.cut = cut
        self._tools = tools
        self._was_erased_from: dict[tuple[str, int], bool] = {}

    def state(self, topic: str, incarnation: int, partition: int) -> PartitionState:
        """The state of a topic's partition in which every file below the cut is decided. None of those that it lists
        is deleted while the cut is there, but by an erasure: then it lists the one that stands there now.
        """
        state = self._snapshot(topic, incarnation, partition, USER_LOG)
        if not self.was_erased_from(topic, incarnation):
            return state
        keys = LogKeys(partition_prefix(topic, incarnation, partition))
        now = EarlierLog(self._tools, keys, USER_LOG).state_now()
        return readable_as_of(state, now.erased)

    def was_erased_from(self, topic: str, incarnation: int) -> bool:
        """Whether an erasure of the topic was begun, when that was first asked here."""
        known = self._was_erased_from.get((topic, incarnation))
        if known is None:
            known = was_erased_from(self._tools.objects, topic, incarnation)
            self._was_erased_from[topic, incarnation] = known
        return known

    def group_offsets(self, partition: int) -> GroupOffsets:
        """The offsets that one partition of `__consumer_offsets` kept: by the committed rows below the cut."""
        offsets = self._snapshot(CONSUMER_OFFSETS_TOPIC, 0, partition, OFFSETS_LOG).group_offsets
        return offsets_as_of(offsets, self.cut.groups[partition].committed)

    def _snapshot(self, topic: str, incarnation: int, partition: int, kind: LogKind) -> PartitionState:
        log = self.cut.log(topic, incarnation, partition)
        if log is None:
            raise InvalidRequestError(
                f"partition {partition} of topic {topic!r}, which cut {self.cut.number} does not have",
                expected="a partition that there was when the cut was made",
            )
        keys = LogKeys(partition_prefix(topic, incarnation, partition))
        return EarlierLog(self._tools, keys, kind).snapshot(log.snapshot)
