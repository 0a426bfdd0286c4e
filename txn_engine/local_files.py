"""Files that people ask for on the local disk, as a report or the output of `consume`: why one was not written."""

from __future__ import annotations

import errno
from typing import Final

from storage.reasons import StoreReason
from txn_engine.errors import StoreAccessError, StoreFaultError

_FAULTS: Final = {
    errno.ENOSPC: (StoreReason.NO_ROOM, "make room on the disk, or name a place on another one"),
    errno.EDQUOT: (StoreReason.NO_ROOM, "make room in the quota, or name a place on another disk"),
    errno.EROFS: (StoreReason.READ_ONLY, "name a place on a disk that can be written to"),
}


def not_written(
    error: OSError, what: str, *, actor: str, place: str, expected: str, action: str = ""
) -> StoreAccessError:
    """The error for a file that the system does not take: a full disk is none of rights."""
    seen = f"{what} cannot be written: {error.strerror or error}"
    fault = _FAULTS.get(error.errno or 0)
    if fault is None:
        return StoreAccessError(seen, actor=actor, place=place, expected=expected, action=action)
    return StoreFaultError(seen, actor=actor, place=place, action=fault[1], reason=fault[0])
