"""Empty logs that were not always empty: what else on the store tells how far a partition once went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from txn_engine.clock import Waiting
from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.log.cuts import CutStore
from txn_engine.log.entry_format import ENTRY_LIMITS, TRANSACTION_LOG, decode_entry
from txn_engine.log.lost_topics import Incarnation, lost_topics
from txn_engine.log.objects import Objects
from txn_engine.log.own_process import OwnLock
from txn_engine.log.pins import PinStore
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txn_engine.protocol.file_names import parse_data_path
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.transaction_rows import TransactionPartition, TransactionRow
from txn_engine.reasons import Reason
from txn_engine.types import TABLE_FORMATS
from txn_engine.unreadable import DAMAGE, Unreadable

if TYPE_CHECKING:
    from txn_engine.log.logs import Logs

_INTERNAL: Final = (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC)
_KNOWN_MS: Final = 5_000
_CUTS_READ: Final = 16
_DECISIONS_READ: Final = 64


@dataclass(frozen=True, slots=True, order=True)
class Witness:
    """A partition's log once went at least to this offset, by what `name` names."""

    offset: int
    name: str


class Witnesses:
    """What tells of a partition's log, apart from the log itself: cuts, published tables, group offsets, complete
    transactions, and the names of data files. Each of them was written when the log went as far as it says.

    Only a log that is found empty is asked about. What cannot be read is no witness: `verify` names it, and it also
    looks at older transactions than the last of each id. Cuts, groups and transactions are read once for all
    partitions, and again after five seconds. Threads may share it. `executor` is for nothing else: whole logs are
    loaded in it.
    """

    def __init__(
        self, objects: Objects, cuts: CutStore, pins: PinStore, waiting: Waiting, executor: Executor
    ) -> None:
        self._objects = objects
        self._cuts = cuts
        self._pins = pins
        self._waiting = waiting
        self._executor = executor
        self._lock = OwnLock()
        self._seen: dict[TransactionPartition, Witness] = {}
        self._topics: dict[Incarnation, str] = {}
        self._seen_ms: int | None = None

    def loss(self, logs: Logs, prefix: str) -> CorruptObjectError | None:
        """The error for an empty log, by its partition's folder, that went further once; None for one that nothing
        speaks against, or of a topic that is deleted. Look at the log again before raising it: an entry may have come
        since.
        """
        at = _partition_of(prefix)
        files = self._executor.submit(self._of_data_files, prefix)
        tables = self._executor.submit(self._of_tables, at)
        found = [self._of_store(logs).get(at), files.result(), tables.result()]
        furthest = max((each for each in found if each is not None), default=None)
        if furthest is None or not logs.topics.is_current(at.topic, at.incarnation):
            return None
        return CorruptObjectError(
            f"the log of {at.topic}-{at.partition} is empty, but {furthest.name} says that it went to offset"
            f" {furthest.offset:,} at least",
            place=f"{prefix}/",
            expected="the entries, or a snapshot, up to there",
            action="restore this folder from a copy, or the store from a backup; read the topic's other partitions"
            " alone meanwhile. If nobody ever wrote there, remove what says so (a group by `groups delete`)",
            reason=Reason.LOG_LOST,
        )

    def lost_topics(self, logs: Logs) -> list[Unreadable]:
        """The topics that something names and of which no object is left, each with its error."""
        self._of_store(logs)
        return lost_topics(self._objects, self._topics)

    # --- of one partition -------------------------------------------------------------------------------------

    def _of_data_files(self, prefix: str) -> Witness | None:
        """A data file's name has the log's end from before its upload."""
        ends = []
        with suppress(*DAMAGE):
            for info in self._objects.infos(f"{prefix}/data/", start_after=f"{prefix}/data/{1:020d}"):
                with suppress(InvalidRequestError):
                    name = parse_data_path(info.key.removeprefix(f"{prefix}/"))
                    ends.append(Witness(name.log_end, f"the name of data file {info.key.rpartition('/')[2]}"))
        return max(ends, default=None)

    def _of_tables(self, at: TransactionPartition) -> Witness | None:
        with suppress(*DAMAGE):
            for table_format in TABLE_FORMATS:
                for name in reversed(self._pins.names(at.topic, at.incarnation, table_format)):
                    pin = self._pins.find(at.topic, at.incarnation, name)
                    if pin is not None and at.partition < len(pin.at.partitions):
                        offset = pin.at.partitions[at.partition].offset
                        return _witness(offset, f"version {name.version} of its {table_format} table")
        return None

    # --- of the whole store -----------------------------------------------------------------------------------

    def _of_store(self, logs: Logs) -> dict[TransactionPartition, Witness]:
        with self._lock.here():
            now_ms = self._waiting.monotonic_ms()
            if self._seen_ms is None or now_ms - self._seen_ms >= _KNOWN_MS:
                self._seen, self._seen_ms = self._look(logs), now_ms
            return self._seen

    def _look(self, logs: Logs) -> dict[TransactionPartition, Witness]:
        topics = (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC)
        there = [self._executor.submit(self._existing, logs, topic) for topic in topics]
        states = self._states(logs, [at for each in there for at in each.result()])
        found = [*self._of_cuts(), *_of_groups(states)]
        for each in self._executor.map(self._of_decision, _decisions(logs, states)):
            found += each
        seen: dict[TransactionPartition, Witness] = {}
        for at, witness in found:
            if witness.offset > 0:
                seen[at] = max(witness, seen.get(at, witness))
        self._topics = {
            (at.topic, at.incarnation): witness.name for at, witness in found if at.topic not in _INTERNAL
        }
        return seen

    def _of_cuts(self) -> Iterator[tuple[TransactionPartition, Witness]]:
        with suppress(*DAMAGE):
            for number in islice(self._cuts.newest(), _CUTS_READ):
                cut = number.cut
                for topic in () if cut is None else cut.topics:
                    for partition, log in enumerate(topic.partitions):
                        at = TransactionPartition(topic.topic, topic.incarnation, partition)
                        yield at, Witness(log.offset, f"cut {number.number}")
                if cut is not None and cut.every_topic:
                    return

    def _states(
        self, logs: Logs, internal: Sequence[TransactionPartition]
    ) -> dict[TransactionPartition, PartitionState]:
        def state(at: TransactionPartition) -> PartitionState:
            with suppress(*DAMAGE):
                return logs.of(at).refresh()
            return PartitionState()

        return dict(zip(internal, self._executor.map(state, internal), strict=True))

    def _of_decision(self, entry: tuple[str, int]) -> list[tuple[TransactionPartition, Witness]]:
        """A complete transaction has left a marker in each partition that its Prepare row names. Its Complete row names
        none of them any more.
        """
        key, offset = entry
        with suppress(*DAMAGE):
            data = self._objects.find(key, max_bytes=ENTRY_LIMITS.object_bytes)
            found = (
                ()
                if data is None
                else decode_entry(TRANSACTION_LOG, data, key=key, base_offset=offset).batches
            )
            row = found[0].row if found else None
            if isinstance(row, TransactionRow):
                name = f"a transaction of {row.transactional_id!r}, which is complete"
                return [(at, Witness(1, name)) for at in row.partitions]
        return []

    def _existing(self, logs: Logs, topic: str) -> list[TransactionPartition]:
        """The partitions of an internal topic that there are: most stores have few of them."""
        with suppress(*DAMAGE):
            folders = set(self._objects.folders(f"topics/{topic}/0/"))
            return [at for at in logs.internal(topic) if str(at.partition) in folders]
        return []


def _partition_of(prefix: str) -> TransactionPartition:
    _, topic, incarnation, partition = prefix.split("/")
    return TransactionPartition(topic, int(incarnation), int(partition))


def _witness(offset: int, name: str) -> Witness | None:
    return Witness(offset, name) if offset > 0 else None


def _of_groups(
    states: Mapping[TransactionPartition, PartitionState],
) -> Iterator[tuple[TransactionPartition, Witness]]:
    for state in states.values():
        for stored in state.group_offsets.live():
            key = stored.commit.key
            witness = Witness(stored.commit.offset, f"the offset of group {key.group_id!r}")
            yield TransactionPartition(key.topic, key.incarnation, key.partition), witness


def _decisions(logs: Logs, states: Mapping[TransactionPartition, PartitionState]) -> list[tuple[str, int]]:
    """The entries with the decisions of complete transactions, by their keys and offsets: those of the ids that were
    used last.
    """
    rows = [
        (stored.append_time, logs.of(at).keys.entry(stored.row.decision_offset), stored.row.decision_offset)
        for at, state in states.items()
        for stored in state.transactions.values()
        if stored.row.decision_offset >= 0
    ]
    return [(key, offset) for _, key, offset in sorted(rows, reverse=True)[:_DECISIONS_READ]]
