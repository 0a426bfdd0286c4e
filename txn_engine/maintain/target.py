"""One partition under maintenance: where it is read afresh, and where it is appended to."""

from __future__ import annotations

from dataclasses import dataclass

from storage import LogKeys
from txn_engine.log.as_of import EarlierLog
from txn_engine.log.cuts import CutStore, Holds
from txn_engine.log.entry_log import EntryLog, LogTools
from txn_engine.log.objects import Objects
from txn_engine.log.topics import Topic
from txn_engine.maintain.slots import Slots
from txn_engine.maintain.snapshots import Snapshots
from txn_engine.protocol.partition import PartitionState


@dataclass(frozen=True, slots=True)
class Target:
    """A partition. `log` is the engine's own, for appending; `records` is None for an internal topic."""

    topic: str
    partition: int
    log: EntryLog
    tools: LogTools
    cuts: CutStore
    records: Topic | None

    @property
    def keys(self) -> LogKeys:
        """The partition's keys."""
        return self.log.keys

    @property
    def objects(self) -> Objects:
        """The store."""
        return self.tools.objects

    @property
    def slots(self) -> Slots:
        """The log's slots, as they stand now."""
        return Slots(self.tools, self.keys, self.log.kind)

    @property
    def snapshots(self) -> Snapshots:
        """The partition's snapshots, as they stand now."""
        return Snapshots(self.tools, self.keys, self.slots)

    def holds(self) -> Holds:
        """What cuts need of the partition: to be asked after the state was read by which something is deleted."""
        incarnation = 0 if self.records is None else self.records.incarnation
        return self.cuts.holds(self.topic, incarnation, self.partition)

    def files_held(self, holds: Holds) -> frozenset[str]:
        """The paths of the files that cuts need."""
        log = EarlierLog(self.tools, self.keys, self.log.kind)
        states = [log.snapshot(end) for end in sorted(holds.snapshots)]
        return frozenset(file.file.data_path for state in states for file in state.live.values())

    def read_back(self) -> PartitionState:
        """The state that the store gives now: nothing in it comes from a view or a plan of this process.

        What is deleted or sealed is decided on this alone.
        """
        return EntryLog(self.tools, self.keys.prefix, self.log.kind).refresh()
