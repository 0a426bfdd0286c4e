"""Data files that readers need, and that are not there, or not as they were written: found by listing alone."""

from __future__ import annotations

from collections.abc import Mapping

from txn_engine.errors import CorruptObjectError
from txn_engine.log.logs import Logs
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.reasons import Reason
from txn_engine.unreadable import DAMAGE, Unreadable, one_place


def missing_files(logs: Logs, states: Mapping[TransactionPartition, PartitionState]) -> list[Unreadable]:
    """One error for each partition of which a file of committed or undecided records is missing, or has another size
    than its entry states. The contents are not read: `verify` does that.

    The states have to be older than this call. It lists the data files of each partition, at once, and looks at each
    file again that the listing lacks: a clean-up may have taken it meanwhile.
    """
    asked = [at for at, state in states.items() if state.live or state.undecided]
    found = logs.workers.map(lambda at: _look(logs, at, states[at]), asked)
    return [each for each in found if each is not None]


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
    there = {info.key: info.size for info in logs.tools.objects.infos(f"{prefix}/data/")}
    return [
        (file, size)
        for file in (*state.live.values(), *state.undecided.values())
        if (size := there.get(f"{prefix}/{file.file.data_path}")) != file.file.data_bytes
    ]


def _error(prefix: str, wrong: list[tuple[LogFile, int | None]]) -> CorruptObjectError:
    file, size = wrong[0]
    more = f"; {len(wrong) - 1:,} more data files are missing or damaged" if len(wrong) > 1 else ""
    seen = "no such object" if size is None else f"{size:,} bytes"
    return CorruptObjectError(
        seen + more,
        place=f"{prefix}/{file.file.data_path}",
        expected=f"the data file of {file.record_count:,} records from offset {file.base_offset:,} on, of"
        f" {file.file.data_bytes:,} bytes",
        action="`txn-engine verify` lists every damaged object; restore the named objects from a copy",
        reason=Reason.DATA_FILE_MISSING,
    )
