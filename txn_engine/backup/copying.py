"""Copying objects from one store to another: several at once, none believed that is not what it should be."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from itertools import chain, repeat, takewhile
from typing import Final

from storage import checksum_of
from storage.reasons import StoreReason
from txn_engine.backup.manifest import FIRST, LogRef, ObjectRef
from txn_engine.errors import CorruptObjectError
from txn_engine.log.objects import Objects, store_errors
from txn_engine.protocol.partition import PartitionState
from txn_engine.reasons import Reason

Progress = Callable[[str, int, int], None]
"""Told what is done, how many bytes of it, and of how many."""


def silent(_what: str, _done: int, _total: int) -> None:
    """Tell nobody."""


COPY_AGAIN: Final = (
    "move it away if it is there, and make a backup, which copies again what the store still has"
)
"""What helps if an object of a backup is gone or damaged."""
_BYTES_AT_ONCE = 256 << 20
_OBJECTS_AT_ONCE = 64
_LOGS_AT_ONCE = 64
_STATE_BYTES_AT_ONCE = 8 << 20


@dataclass(frozen=True, slots=True)
class Side:
    """One end of a copy: a store, or the place of its backups, where each generation has a folder."""

    objects: Objects
    is_place: bool

    def key(self, wanted: ObjectRef) -> str:
        """Where the object is on this side."""
        return wanted.place_key if self.is_place else wanted.key


class Copier:
    """Copies from `source` to `target`.

    Memory: the objects that are under way, of 256 MiB at most, or one that is larger. `advance` is told of each whose
    bytes have come, by one thread at a time.
    """

    def __init__(
        self, source: Side, target: Side, executor: Executor, advance: Callable[[int], None]
    ) -> None:
        self._source = source
        self._target = target
        self._executor = executor
        self._advance = advance
        self._lock = threading.Lock()

    def copy(self, wanted: Iterable[ObjectRef], there: dict[str, int]) -> None:
        """Bring these over, and return once they stand there.

        there: keys and sizes of what the target has of them already, which is read and compared instead. Raises
        `CorruptObjectError` for an object that is damaged on either side, or gone.
        """
        for_each(wanted, self._executor, lambda each: self._copy_one(each, each.key in there))

    def _copy_one(self, wanted: ObjectRef, is_there: bool) -> None:
        if is_there:
            read_checked(self._target, wanted)
        else:
            data, key = bytes(read_checked(self._source, wanted)), self._target.key(wanted)
            outcome = self._target.objects.create(key, data, max_bytes=wanted.bytes)
            if not outcome.won:
                place = self._target.objects.uri(key)
                if self._target.is_place:
                    raise another_object(place, wanted.checksum)
                raise CorruptObjectError(
                    "another object",
                    place=place,
                    expected=f"none, or one of checksum {wanted.checksum}",
                    action="find out who put it there, and move it away",
                )
        with self._lock:
            self._advance(wanted.bytes)


def another_object(place: str, checksum: str) -> CorruptObjectError:
    """For an object that is not what a backup of the same store says: none that is backed up ever changes."""
    return CorruptObjectError(
        "another object than an earlier backup of this store has",
        actor="backup",
        place=place,
        expected=f"one of checksum {checksum}",
        action="is one of two copies of this store backed up here? Give the copy an id of its own"
        " (`txn-engine new-store-id`). Else run `txn-engine verify` and `txn-engine backup verify`",
        reason=Reason.CONTRADICTS_EARLIER_BACKUP,
    )


def for_each(wanted: Iterable[ObjectRef], executor: Executor, work: Callable[[ObjectRef], None]) -> None:
    """Do the work for each of these objects, several at once, by their bytes. The first error is raised, once those
    under way have come to their end.
    """
    ahead: dict[Future[None], int] = {}
    held = 0
    try:
        for each in wanted:
            while ahead and (held + each.bytes > _BYTES_AT_ONCE or len(ahead) >= _OBJECTS_AT_ONCE):
                held -= _finished(ahead)
            ahead[executor.submit(work, each)] = each.bytes
            held += each.bytes
        while ahead:
            _finished(ahead)
    finally:
        for left in ahead:
            left.cancel()


def _finished(ahead: dict[Future[None], int]) -> int:
    """Wait for one at least, and take out those that have come to their end; how many bytes these had."""
    done, _ = wait(ahead, return_when=FIRST_COMPLETED)
    size = sum(ahead.pop(each) for each in done)
    for each in done:
        each.result()
    return size


def read_checked(side: Side, wanted: ObjectRef) -> bytes | memoryview:
    """The object, byte for byte the one that is meant. `CorruptObjectError` for any other, with what helps on that
    side.
    """
    try:
        return _read_checked(side, wanted)
    except CorruptObjectError as error:
        if error.reason is StoreReason.ARCHIVED:
            raise
        error.action = COPY_AGAIN if side.is_place else "restore the object from a copy; do not delete it"
        raise


def _read_checked(side: Side, wanted: ObjectRef) -> bytes | memoryview:
    key = side.key(wanted)
    place = side.objects.uri(key)
    data = side.objects.read(key, max_bytes=wanted.bytes)
    if len(data) != wanted.bytes:
        raise CorruptObjectError(f"{len(data)} bytes", place=place, expected=f"{wanted.bytes}")
    with store_errors():
        checksum = checksum_of(data, place)
    if checksum != wanted.checksum:
        raise CorruptObjectError(f"checksum {checksum}", place=place, expected=wanted.checksum)
    return data


def in_parts(logs: Sequence[LogRef]) -> Iterator[list[LogRef]]:
    """The logs in order, so many together that the names of all their files fit into memory."""
    part: list[LogRef] = []
    held = 0
    for log in logs:
        if part and (len(part) >= _LOGS_AT_ONCE or held + log.state.bytes > _STATE_BYTES_AT_ONCE):
            yield part
            part, held = [], 0
        part.append(log)
        held += log.state.bytes
    if part:
        yield part


def data_files(log: LogRef, state: PartitionState) -> list[ObjectRef]:
    """The data files of a log, by offset. `CorruptObjectError` where manifest and state tell of different ones."""
    copied = sum(count for _, count in log.copies)
    if log.copies and copied != len(state.live):
        raise CorruptObjectError(
            f"copies of {copied} files of {log.topic}-{log.partition}",
            actor="backup",
            expected=f"of the {len(state.live)} that its state names",
            action="use another backup; `txn-engine backup verify` names all that is damaged",
        )
    generations = chain.from_iterable(repeat(*run) for run in log.copies) if log.copies else repeat(FIRST)
    return [
        ObjectRef(f"{log.prefix}/{each.file.data_path}", each.file.data_bytes, each.file.checksum, generation)
        for (_, each), generation in zip(sorted(state.live.items()), generations, strict=False)
    ]


def check_arrived(side: Side, wanted: Collection[ObjectRef]) -> None:
    """Raise `CorruptObjectError` unless a listing shows each of these, in its size."""
    found = listed(side, wanted)
    for each in wanted:
        size = found.get(each.key)
        if size != each.bytes:
            seen = "no such object" if size is None else f"{size} bytes"
            raise CorruptObjectError(
                f"{seen}, though the store said that it was stored",
                place=side.objects.uri(side.key(each)),
                expected=f"{each.bytes} bytes",
                action="run `txn-engine doctor` against this store, then begin again",
                reason=Reason.WRITE_LOST,
            )


def listed(side: Side, wanted: Collection[ObjectRef]) -> dict[str, int]:
    """Which of these there are, and their sizes, by their keys in the store. They are of few folders."""
    folders: dict[str, dict[str, str]] = defaultdict(dict)
    for each in wanted:
        key = side.key(each)
        folders[key.rpartition("/")[0]][key] = each.key
    sizes: dict[str, int] = {}
    for folder, keys in folders.items():
        first, last = min(keys), max(keys)
        infos = side.objects.infos(folder, start_after=first[:-1])
        found = takewhile(lambda info, last=last: info.key <= last, infos)  # type: ignore[misc]
        sizes |= {keys[info.key]: info.size for info in found if info.key in keys}
    return sizes
