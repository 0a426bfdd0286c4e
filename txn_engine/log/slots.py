"""A log's slots, read one after the other from the store: nothing here comes from a view that somebody holds."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Executor
from dataclasses import dataclass

from storage import LogKeys
from txn_engine.errors import OutcomeUnknownError
from txn_engine.log.entry_format import LogKind, decode_entry
from txn_engine.log.objects import Objects
from txn_engine.log.read_ahead import EntriesAhead
from txn_engine.protocol.batches import BatchDescriptor
from txn_engine.reasons import Reason


@dataclass(frozen=True, slots=True)
class SlotRows:
    """A slot that holds an entry: where it begins, and its rows."""

    base_offset: int
    batches: tuple[BatchDescriptor, ...]

    @property
    def end(self) -> int:
        """Where the next slot begins."""
        return self.batches[-1].last_offset + 1


def slots_from(
    start: int, objects: Objects, keys: LogKeys, kind: LogKind, executor: Executor, *, goes_on: bool = False
) -> Generator[SlotRows, None, None]:
    """The slots from the one that begins at `start`, up to the first that is empty. The first is under way when this
    returns, and what follows with it, where there is likely something (`goes_on`).

    Raises `OutcomeUnknownError` for a slot that is sealed, or is being sealed while it reads, and
    `CorruptObjectError` for an empty one with a later entry behind it, where that was listed.
    """
    ahead = EntriesAhead(objects, keys, executor)
    ahead.begin_in_the_middle(start, goes_on=goes_on)
    return _slots(start, ahead, keys, kind)


def _slots(
    offset: int, entries: EntriesAhead, keys: LogKeys, kind: LogKind
) -> Generator[SlotRows, None, None]:
    with entries as ahead:
        while (data := ahead.find(offset)) is not None:
            key = keys.entry(offset)
            entry = decode_entry(kind, data, key=key, base_offset=offset)
            if entry.is_seal:
                raise OutcomeUnknownError(
                    "an entry that is needed was sealed",
                    place=key,
                    expected="entries from the one that was asked for on",
                    action="try again: what was sealed stands in a snapshot",
                    reason=Reason.SLOT_SEALED,
                )
            slot = SlotRows(offset, tuple(entry.batches))
            yield slot
            offset = slot.end
        ahead.check_end(offset)
