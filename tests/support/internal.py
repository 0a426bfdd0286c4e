"""New stores with few partitions of the internal topics.

A store has 50 partitions of each of them by default. Audits, snapshots and maintenance go over all of them, so a test
that does many of these runs several times faster on a store that began with `FEW_INTERNAL`.
"""

from __future__ import annotations

FEW_INTERNAL = {"transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 2}
"""`configs` of `connect` and `Engine` for a store that is not there yet."""
