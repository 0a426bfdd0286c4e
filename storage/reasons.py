"""The reason of a store's error: a stable code for one of the several faults that an error class covers.

`txn_engine/reasons.py` says how reasons are used and has those of everything above the store.
"""

from __future__ import annotations

from enum import StrEnum


class StoreReason(StrEnum):
    """Which fault a store's error reports."""

    CHECKSUM = "checksum"
    """The checksum that an object carries is not the checksum of its bytes."""
