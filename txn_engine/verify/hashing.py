"""Where an id's rows live: `abs(java_hash(name)) % partitions` (docs/FORMAT.md, "Entries")."""

from __future__ import annotations

import struct

_INT = 1 << 32


def home_partition(name: str, partitions: int) -> int:
    """The partition of an internal topic that keeps the rows of a transactional id or a group."""
    encoded = name.encode("utf-16-le", "surrogatepass")
    total = 0
    for unit in struct.unpack(f"<{len(encoded) // 2}H", encoded):
        total = (total * 31 + unit) % _INT
    signed = total - _INT if total >= _INT // 2 else total
    return 0 if signed == -_INT // 2 else abs(signed) % partitions
