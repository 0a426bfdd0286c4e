"""Leaving a snapshot behind: the one way, whoever does it."""

from __future__ import annotations

from storage import LogKeys
from txn_engine.errors import CorruptObjectError
from txn_engine.log.objects import Objects
from txn_engine.log.snapshot_format import SNAPSHOT_LIMITS, decode_snapshot, encode_snapshot
from txn_engine.protocol.partition import PartitionState


def leave_snapshot(objects: Objects, keys: LogKeys, state: PartitionState) -> None:
    """Let the snapshot of this state stand, which was built from entries read back; of the empty state there is none.

    The same log gives the same state, so that one which is there must hold this one: anything else is
    `CorruptObjectError`.
    """
    if state.log_end_offset == 0:
        return
    key = keys.snapshot(state.log_end_offset)
    outcome = objects.create(key, encode_snapshot(state), max_bytes=SNAPSHOT_LIMITS.object_bytes)
    if not outcome.won and decode_snapshot(outcome.winner, key=key) != state:
        raise CorruptObjectError(
            "another state", place=key, expected="the state that replaying the log gives"
        )
