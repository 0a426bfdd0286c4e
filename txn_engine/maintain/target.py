"""One partition under maintenance: where it is read afresh, and where it is appended to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from storage import LogKeys
from txn_engine.errors import InvalidRequestError, UnknownTopicOrPartitionError
from txn_engine.log.as_of import EarlierLog
from txn_engine.log.cuts import CutStore, Holds
from txn_engine.log.entry_log import EntryLog, LogTools
from txn_engine.log.objects import Objects
from txn_engine.log.pins import PinStore
from txn_engine.log.topics import Topic, TopicRegistry
from txn_engine.maintain.slots import Slots
from txn_engine.maintain.snapshots import Snapshots
from txn_engine.protocol.file_names import DataFileName, parse_data_path
from txn_engine.protocol.partition import LogFile, PartitionState


@dataclass(frozen=True, slots=True)
class Target:
    """A partition. `log` is the engine's own, for appending; `records` is None for an internal topic. `topics`: by whom
    it is known what the topic is by now.
    """

    topic: str
    partition: int
    log: EntryLog
    tools: LogTools
    cuts: CutStore
    pins: PinStore
    records: Topic | None
    topics: TopicRegistry

    def as_of_now(self) -> Target:
        """The partition with its topic as that is now, give or take five seconds: its owner may have altered it. One
        that was deleted since stays as it was.
        """
        if self.records is None:
            return self
        with suppress(UnknownTopicOrPartitionError):
            now = self.topics.get(self.topic)
            if now.incarnation == self.records.incarnation:
                return replace(self, records=now)
        return self

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
        """What cuts and tables need of the partition: to be asked after the state was read by which something is
        deleted. The pins come last: who pins looks for the cut once more.
        """
        if self.records is None:
            return self.cuts.holds(self.topic, 0, self.partition)
        held = self.cuts.holds(self.topic, self.records.incarnation, self.partition)
        pinned = self.pins.needed(self.topic, self.records.incarnation, self.partition)
        return replace(held, snapshots=held.snapshots | pinned.snapshots, files=pinned.files)

    def files_held(
        self, holds: Holds, asked: Sequence[DataFileName], erased: Mapping[str, LogFile | None]
    ) -> frozenset[str]:
        """The paths of those of these files that cuts or tables need. `erased`: what stands for which file, by the
        state that was read: an erased file is needed by nobody, the one that stands for it by who lists that one.
        """
        names = {name.data_path: name for name in asked if name.data_path not in erased}
        stood_for = {
            path: left.file.data_path
            for path, left in erased.items()
            if left is not None and left.file.data_path in names
        }
        held = self._files_listed(holds, [*names.values(), *map(parse_data_path, stood_for)])
        return frozenset(held & names.keys()) | {stood_for[path] for path in held & stood_for.keys()}

    def _files_listed(self, holds: Holds, asked: Sequence[DataFileName]) -> frozenset[str]:
        """The paths of those of these files that cuts or tables list."""
        return holds.files.union(self.files_as_listed(holds, asked))

    def files_as_listed(self, holds: Holds, asked: Sequence[DataFileName]) -> dict[str, LogFile]:
        """Those of these files that cuts or tables list, by their paths, as the log had them.

        A file is unknown to the log's states, then undecided, live, dead, and forgotten, in this order and each once.
        So the state in the middle of all that are held tells of each file whether it is held there, or on which side it
        can be: of ten thousand snapshots some dozen are read, one at a time.
        """
        log = EarlierLog(self.tools, self.keys, self.log.kind)
        ends = sorted(holds.snapshots)
        found: dict[str, LogFile] = {}
        todo = [(0, len(ends), list(asked))]
        while todo:
            low, high, names = todo.pop()
            if low == high or not names:
                continue
            middle = (low + high) // 2
            state = log.snapshot(ends[middle])
            sides = defaultdict(list)
            for name in names:
                listed = _listed(state, name, holds.files)
                if listed is None:
                    sides[_is_before(state, name)].append(name)
                else:
                    found[name.data_path] = listed
            todo += [(low, middle, sides[True]), (middle + 1, high, sides[False])]
        return found

    def snapshots_listing(self, snapshots: Collection[int], asked: Sequence[DataFileName]) -> frozenset[int]:
        """Which of these snapshots, told by their ends, list any of these files as live: where two list the same one,
        all between them do.
        """
        log = EarlierLog(self.tools, self.keys, self.log.kind)
        ends = sorted(snapshots)
        found: set[int] = set()
        nothing: frozenset[str] = frozenset()
        todo = [(0, len(ends), list(asked), nothing, nothing)]
        while todo:
            low, high, names, before, behind = todo.pop()
            if low == high or not names:
                continue
            if before & behind:
                found.update(ends[low:high])
                continue
            middle = (low + high) // 2
            state = log.snapshot(ends[middle])
            listed = [each for each in names if _listed(state, each, nothing) is not None]
            others = [each for each in names if each not in listed]
            here = frozenset(each.data_path for each in listed)
            if here:
                found.add(ends[middle])
            earlier = [*listed, *(each for each in others if _is_before(state, each))]
            later = [*listed, *(each for each in others if not _is_before(state, each))]
            todo += [(low, middle, earlier, before, here), (middle + 1, high, later, here, behind)]
        return frozenset(found)

    def present(self) -> Iterator[DataFileName]:
        """What is in the partition's data folder and named as the format says."""
        for _, segment in self.objects.ours(self.keys.data_prefix, self.keys.parse_data):
            with suppress(InvalidRequestError):  # not ours
                yield parse_data_path(f"data/{segment}")

    def take_back(self, files: Sequence[LogFile]) -> None:
        """Delete files that were put for a row that was refused: no other row names them. They may hold what an erasure
        has taken out of all others meanwhile. To be called once the log has said that the row is not in it.
        """
        named = self.read_back().named if files else {}
        for file in files:
            if file.file.data_path not in named:
                self.objects.remove(f"{self.keys.prefix}/{file.file.data_path}")

    def read_back(self) -> PartitionState:
        """The state that the store gives now: nothing in it comes from a view or a plan of this process.

        What is deleted or sealed is decided on this alone.
        """
        return EntryLog(self.tools, self.keys.prefix, self.log.kind).refresh()


def _listed(state: PartitionState, name: DataFileName, singly: Container[str]) -> LogFile | None:
    """The file as it is live in this state, or dead, where it is one of those that are held `singly`."""
    path = name.data_path
    base_offset = state.named.get(path)
    live = None if base_offset is None else state.live.get(base_offset)
    if live is not None and live.file.data_path == path:
        return live
    return state.dead[path].log_file if path in singly and path in state.dead else None


def _is_before(state: PartitionState, name: DataFileName) -> bool:
    """Whether a file that is not live in this state can only be so in an earlier one, and not in a later one."""
    if name.data_path not in state.named:
        return name.log_end < state.floor
    return name.data_path in state.dead
