"""Seal entries by hand, for tests of what a seal does to readers and writers that meet it."""

from __future__ import annotations

from txn_engine import Engine
from txn_engine.log.entry_format import decode_entry, encode_seal
from txn_engine.log.entry_log import EntryLog
from txn_engine.protocol.proposals import TrimProposal, VerifiedSnapshot


def entry_bases(engine: Engine, log: EntryLog) -> list[int]:
    """The base offsets of all slots, sealed or not."""
    keys = log.keys
    return [keys.parse_entry(info.key) for info in engine.store.list(keys.log_prefix)]


def seal(engine: Engine, log: EntryLog, base: int) -> None:
    """Overwrite an entry with a seal, as clean-up does."""
    engine.store.put(log.keys.entry(base), encode_seal(log.kind, engine.logs.tools.new_id()))


def is_sealed(engine: Engine, log: EntryLog, base: int) -> bool:
    """Whether the slot holds a seal."""
    key = log.keys.entry(base)
    return decode_entry(log.kind, engine.store.get(key), key=key, base_offset=base).is_seal


def seal_below_end(engine: Engine, log: EntryLog) -> int:
    """Seal all but the last entry, as far as the protocol allows it: after two snapshots and a trim. Returns
    the new start of the entries."""
    last = entry_bases(engine, log)[-1]
    end = log.write_snapshot()
    assert end is not None
    start = log.refresh().log_start_offset
    trim = TrimProposal(start, last, (VerifiedSnapshot(end, last), VerifiedSnapshot(end + 1, end)))
    log.append_one(trim)
    assert log.write_snapshot() == end + 1
    for base in entry_bases(engine, log):
        if base < last:
            seal(engine, log, base)
    return last
