"""What the store holds, each possible content once, and the rules that every step must keep for each log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from storage import LogKeys
from tests.simulator.explore.operations import Operation
from txn_engine.errors import TxnEngineError
from txn_engine.log.entry_format import OFFSETS_LOG, TRANSACTION_LOG, USER_LOG, LogKind, decode_entry
from txn_engine.log.reading import choose_files, end_of
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txn_engine.protocol.batches import BatchDescriptor
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.replay import apply

Seen = tuple[tuple[int, int, str], ...]
"""What a read_committed reader is given of one log: (first offset, end, file) in order."""


@dataclass(eq=False, slots=True)
class LogView:
    """One log's contents, and what readers can see of it."""

    number: int
    state: PartitionState = field(default_factory=PartitionState)
    batches: tuple[BatchDescriptor, ...] = ()
    end_for_readers: int = 0
    seen: Seen = ()


@dataclass(eq=False, slots=True)
class Contents:
    """All objects at one moment. Equal contents are one and the same Contents."""

    number: int
    names: frozenset[int]
    objects: Mapping[str, bytes]
    logs: Mapping[str, LogView]


class Library:
    """All objects and contents that a search has found."""

    def __init__(self) -> None:
        self.objects: list[tuple[str, bytes]] = []
        self._object_numbers: dict[tuple[str, bytes], int] = {}
        self._contents: dict[frozenset[int], Contents] = {}
        self._views: dict[tuple[int, int], tuple[LogView, str]] = {}
        self._puts: dict[tuple[int, int], tuple[Contents, str]] = {}
        self._empty_view = LogView(0)
        self.all: list[Contents] = []
        self.empty = self._new(frozenset(), {}, {})

    def number_of(self, key: str, data: bytes) -> int:
        """The object's number, which never changes."""
        number = self._object_numbers.get((key, data))
        if number is None:
            number = self._object_numbers[key, data] = len(self.objects)
            self.objects.append((key, data))
        return number

    def holding(self, objects: Mapping[str, bytes]) -> Contents:
        """The contents with exactly these objects."""
        contents = self.empty
        for key in sorted(objects):
            contents, wrong = self.put(contents, self.number_of(key, objects[key]))
            assert not wrong, wrong
        return contents

    def put(self, before: Contents, number: int) -> tuple[Contents, str]:
        """The contents with one more object, and what is wrong with it."""
        known = self._puts.get((before.number, number))
        if known is None:
            known = self._puts[before.number, number] = self._put(before, number)
        return known

    def _put(self, before: Contents, number: int) -> tuple[Contents, str]:
        key, data = self.objects[number]
        names = before.names | {number}
        wrong, logs = "", before.logs
        prefix, is_entry, _ = key.partition("/log/")
        if is_entry:
            view, wrong = self._append(before.logs.get(prefix, self._empty_view), number, LogKeys(prefix))
            logs = {**logs, prefix: view}
        known = self._contents.get(names)
        return known or self._new(names, {**before.objects, key: data}, logs), wrong

    def _new(
        self, names: frozenset[int], objects: Mapping[str, bytes], logs: Mapping[str, LogView]
    ) -> Contents:
        made = self._contents[names] = Contents(len(self.all), names, objects, logs)
        self.all.append(made)
        return made

    def _append(self, before: LogView, number: int, keys: LogKeys) -> tuple[LogView, str]:
        known = self._views.get((before.number, number))
        if known is None:
            try:
                after, wrong = self._replayed(before, number, keys)
            except TxnEngineError as error:
                after, wrong = before, f"an entry that cannot be replayed: {error}"
            known = self._views[before.number, number] = (after, wrong)
        return known

    def _replayed(self, before: LogView, number: int, keys: LogKeys) -> tuple[LogView, str]:
        """The log with one more entry. It landed at the log's end, the LSO has not fallen, and what could be
        read reads the same (invariants 1, 2 and 5)."""
        key, data = self.objects[number]
        base = keys.parse_entry(key)
        if base != before.state.log_end_offset:
            return before, f"{key} landed when the log ended at {before.state.log_end_offset}"
        batches = decode_entry(kind_of(keys.prefix), data, key=key, base_offset=base).batches
        state = before.state
        for batch in batches:
            state = apply(state, batch)
        end = end_of(state, "read_committed")
        after = LogView(len(self._views) + 1, state, (*before.batches, *batches), end, _seen(state, end))
        if end < before.end_for_readers:
            return after, f"{key}: the last stable offset fell from {before.end_for_readers} to {end}"
        same = tuple(part for part in after.seen if part[0] < before.end_for_readers)
        if same != before.seen:
            return (
                after,
                f"{key}: readers were given {before.seen} up to {before.end_for_readers}, and now {same}",
            )
        return after, ""


def _seen(state: PartitionState, end: int) -> Seen:
    parts = choose_files(state, 0, 0, end, "read_committed")
    return tuple((part.start_offset, part.end_offset, part.log_file.file.data_path) for part in parts)


def kind_of(prefix: str) -> LogKind:
    """Which kind of log lies below a partition's folder."""
    topic = prefix.split("/")[1]
    kinds = {TRANSACTION_STATE_TOPIC: TRANSACTION_LOG, CONSUMER_OFFSETS_TOPIC: OFFSETS_LOG}
    return kinds.get(topic, USER_LOG)


def is_private(operation: Operation) -> bool:
    """Whether only one process uses the object: a data file whose name has a write id."""
    return "/data/" in operation.key
