"""Data files that readers need, and that are not there, or not as they were written: found by listing alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from txn_engine.errors import CorruptObjectError
from txn_engine.log.logs import Logs
from txn_engine.log.objects import Objects
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.reasons import Reason
from txn_engine.unreadable import DAMAGE, Unreadable, one_place

_ASKED_ONE_BY_ONE: Final = 4
"""So many files of a folder are asked for one by one. The folder of more is listed, a thousand objects a request."""


def wrong_files(objects: Objects, folder: str, sizes: Mapping[str, int]) -> dict[str, int | None]:
    """The objects of the folder, of those whose sizes are given by their keys, that are missing (None) or have another
    size (the size that is there). The contents are not read.
    """
    if len(sizes) <= _ASKED_ONE_BY_ONE:
        there = {key: size for key in sizes if (size := objects.size_of(key))}
    else:
        there = {info.key: info.size for info in objects.infos(folder)}
    return {key: there.get(key) for key, size in sizes.items() if there.get(key) != size}


def missing_error(key: str, seen_bytes: int | None, expected: str, *, others: int) -> CorruptObjectError:
    """The error for a data file that is missing or has another size, and for how many others are so."""
    more = f"; {others:,} more data files are missing or damaged" if others else ""
    seen = "no such object" if seen_bytes is None else f"{seen_bytes:,} bytes"
    return CorruptObjectError(
        seen + more,
        place=key,
        expected=expected,
        action="`txn-engine verify` lists every damaged object; restore the named objects from a copy",
        reason=Reason.DATA_FILE_MISSING,
    )


def missing_files(logs: Logs, states: Mapping[TransactionPartition, PartitionState]) -> list[Unreadable]:
    """One error for each partition of which a file of committed or undecided records is missing, or has another size
    than its entry states. The contents are not read: `verify` does that.

    The states have to be older than this call. It lists the data files of each partition, at once, and looks at each
    file again that the listing lacks: a clean-up may have taken it meanwhile.
    """
    asked = [at for at, state in states.items() if state.live or state.undecided]
    found = logs.workers.map(lambda at: _look(logs, at, states[at]), asked)
    return [each for each in found if each is not None]


def refused_files(logs: Logs, states: Mapping[TransactionPartition, PartitionState]) -> list[Unreadable]:
    """One error for each partition whose oldest data file is there, and the store does not give: one that was moved to
    an archive, for example. One byte of it is read.
    """
    asked = [at for at, state in states.items() if state.live]
    found = logs.workers.map(lambda at: _refused(logs, at, states[at]), asked)
    return [each for each in found if each is not None]


def missing_entries(logs: Logs, states: Mapping[TransactionPartition, PartitionState]) -> list[Unreadable]:
    """One error for each log that lacks an entry below its end, as far as listings tell: the one that entries start
    with, and the one behind each snapshot. What a snapshot spares readers is not read; `verify` reads all of it.
    """
    asked = [at for at, state in states.items() if state.entries_start < state.log_end_offset]
    found = logs.workers.map(lambda at: _look_for_entries(logs, at, states[at]), asked)
    return [each for each in found if each is not None]


def _look_for_entries(logs: Logs, at: TransactionPartition, state: PartitionState) -> Unreadable | None:
    objects, keys = logs.tools.objects, logs.of(at).keys
    try:
        with one_place(at.topic, at.partition):
            listed = {base for _, base in objects.ours(keys.log_prefix, keys.parse_entry)}
            ends = [end for _, end in objects.ours(keys.snapshots_prefix, keys.parse_snapshot)]
            bases = {state.entries_start, *(end for end in ends if state.entries_start < end)}
            for base in sorted(base for base in bases - listed if base < state.log_end_offset):
                if not objects.exists(keys.entry(base)):
                    return Unreadable(at.topic, at.partition, _no_entry(keys.entry(base)))
    except DAMAGE as error:
        return Unreadable(at.topic, at.partition, error)
    return None


def _no_entry(key: str) -> CorruptObjectError:
    return CorruptObjectError(
        "no such object",
        place=key,
        expected="the entry that was there: entries are sealed, and never deleted",
        action="restore it from a copy before anything is written there",
        reason=Reason.ENTRY_MISSING,
    )


def _refused(logs: Logs, at: TransactionPartition, state: PartitionState) -> Unreadable | None:
    oldest = min(state.live.values(), key=lambda file: file.base_offset).file.data_path
    try:
        with one_place(at.topic, at.partition):
            logs.tools.objects.read_range(f"{logs.of(at).keys.prefix}/{oldest}", 0, 1)
    except DAMAGE as error:
        still_needed = {file.file.data_path for file in logs.of(at).refresh().live.values()}
        return Unreadable(at.topic, at.partition, error) if oldest in still_needed else None
    return None


def _look(logs: Logs, at: TransactionPartition, state: PartitionState) -> Unreadable | None:
    try:
        with one_place(at.topic, at.partition):
            wrong = _wrong(logs, at, state)
            if wrong and (wrong := _wrong(logs, at, logs.of(at).refresh())):
                return Unreadable(at.topic, at.partition, _error(str(logs.of(at).keys.prefix), wrong))
    except DAMAGE as error:
        return Unreadable(at.topic, at.partition, error)
    return None


def _wrong(logs: Logs, at: TransactionPartition, state: PartitionState) -> list[tuple[LogFile, int | None]]:
    """The files that readers need and that are wrong, with the size that is there."""
    prefix = str(logs.of(at).keys.prefix)
    files = {
        f"{prefix}/{file.file.data_path}": file for file in (*state.live.values(), *state.undecided.values())
    }
    sizes = {key: file.file.data_bytes for key, file in files.items()}
    wrong = wrong_files(logs.tools.objects, f"{prefix}/data/", sizes)
    return [(files[key], size) for key, size in wrong.items()]


def _error(prefix: str, wrong: list[tuple[LogFile, int | None]]) -> CorruptObjectError:
    file, size = wrong[0]
    return missing_error(
        f"{prefix}/{file.file.data_path}",
        size,
        f"the data file of {file.record_count:,} records from offset {file.base_offset:,} on, of"
        f" {file.file.data_bytes:,} bytes",
        others=len(wrong) - 1,
    )
