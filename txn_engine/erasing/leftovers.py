"""What programs that were killed have left beside objects: temporary files of a local store, and folders on this
machine's disk. Nobody knows of which topic they are, so what nobody holds goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from storage import ObjectStore, StagingStore
from storage.scratch import sweep_scratch
from txn_engine.erasing.report import Leftovers, StillHeld

_UNTIL: Final = (
    "its writer ends, where it is alive in another container: erase again in a minute, or remove it by hand"
)


def take_leftovers(stores: Sequence[ObjectStore], *, execute: bool) -> tuple[Leftovers, list[StillHeld]]:
    """Remove them, or see what would go; and what stays in the stores' own folders."""
    gone, held = 0, []
    for store in stores:
        if isinstance(store, StagingStore):
            swept = store.sweep(dry_run=not execute)
            gone += swept.gone
            held += [
                StillHeld(f"{path}, which is no object, may hold some", -1, _UNTIL) for path in swept.left
            ]
    scratch = sweep_scratch(dry_run=not execute)
    return Leftovers(gone + scratch.gone, scratch.left), held
