"""Sealing: an entry that only a snapshot still needs is overwritten, never deleted (PROTOCOL.md, section 6).

A writer that slept finds its slot filled for ever, and a reader that meets a seal knows that its view is void.
"""

from __future__ import annotations

from collections.abc import Iterator

from txn_engine.errors import CorruptObjectError
from txn_engine.log.entry_format import encode_seal
from txn_engine.maintain.reports import Sealed
from txn_engine.maintain.slots import Slot, Slots
from txn_engine.maintain.target import Target
from txn_engine.reasons import Reason

_SNAPSHOTS_NEEDED = 2


def seal(target: Target, *, dry_run: bool) -> Sealed | None:
    """Seal the entries below `entries_start`, from the lowest that is none up; None where all are seals.

    `entries_start` is read back from the store: a trim that is only planned, or whose put has no answer yet, does not
    count. A run that stopped half-way, or another one beside this, is no matter: seals begin at the log's first slot
    and have no gap.
    """
    entries_start = target.read_back().entries_start
    first = target.slots.first(0, entries_start, _is_entry)
    if first is None:
        return None
    _check_snapshots(target, entries_start)
    seals = held = 0
    for slot in _unsealed(target.slots, first, entries_start):
        if not dry_run:
            write_id = target.tools.new_id()
            target.objects.overwrite(
                target.keys.entry(slot.base_offset), encode_seal(target.log.kind, write_id)
            )
        seals += 1
        held += slot.bytes
    return Sealed(target.topic, target.partition, entries_start, first, seals, held) if seals else None


def _unsealed(slots: Slots, first: int, entries_start: int) -> Iterator[Slot]:
    base: int | None = first
    while base is not None and base < entries_start:
        slot = slots.read(base)
        if slot.is_seal:  # another run is ahead of this one
            base = slots.first(base + 1, entries_start, _is_entry)
            continue
        if slot.end > entries_start:
            raise CorruptObjectError(
                f"an entry from offset {base} to {slot.end - 1}",
                actor="seal",
                expected=f"one that ends before {entries_start}, where a trim says that an entry begins",
                action="run `txn-engine verify`",
            )
        yield slot
        base = slot.end


def _is_entry(slot: Slot) -> bool:
    return not slot.is_seal


def _check_snapshots(target: Target, entries_start: int) -> None:
    """The last look before what cannot be undone: the trim was legal when it was written, but that may be long ago."""
    sound = target.snapshots.newest_sound(_SNAPSHOTS_NEEDED, above=entries_start)
    if len(sound) < _SNAPSHOTS_NEEDED:
        raise CorruptObjectError(
            f"{len(sound)} sound snapshots beyond offset {entries_start}",
            actor="seal",
            place=target.keys.snapshots_prefix,
            expected="two: what is sealed stands nowhere else",
            action="run `txn-engine verify`, then `txn-engine coordinator snapshot`; nothing was sealed",
            reason=Reason.TOO_FEW_SNAPSHOTS,
        )
