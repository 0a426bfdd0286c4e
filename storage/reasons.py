"""The reason of a store's error: a stable code for one of the several faults that an error class covers.

`txn_engine/reasons.py` says how reasons are used and has those of everything above the store.
"""

from __future__ import annotations

from enum import StrEnum


class StoreReason(StrEnum):
    """Which fault a store's error reports."""

    EMPTY_OBJECT = "empty_object"
    """The object has no bytes."""
    NO_CHECKSUM = "no_checksum"
    """The object does not carry a checksum, so no version of this program wrote it."""
    OTHER_KIND = "other_kind"
    """The object is of another kind than the one that belongs at its key."""
    NOT_A_FILE = "not_a_file"
    """A symbolic link, a FIFO or a device is where a file or a folder should be."""
    CHECKSUM = "checksum"
    """The checksum that an object carries is not the checksum of its bytes."""
