"""A snapshot that a writer leaves behind: whoever opens the log next need not replay what this one had to.

Like every snapshot it is a state that was built from entries read back, put if none stands at its end. Nobody waits for
it, nobody is told where it fails, and clean-up counts it only once it has verified it, as it does with all.
"""

from __future__ import annotations

import logging
from concurrent.futures import Executor

from storage import LogKeys
from txn_engine.errors import IllegalStateError, TxnEngineError
from txn_engine.log.left_snapshot import leave_snapshot
from txn_engine.log.objects import Objects
from txn_engine.protocol.partition import PartitionState

_LOG = logging.getLogger(__name__)


class OpenersSnapshot:
    """What one log of an engine owes to who opens it next, once its writer had to replay more than `after_entries`.

    Its log's lock is held by whoever calls.
    """

    def __init__(self, objects: Objects, keys: LogKeys, executor: Executor, after_entries: int) -> None:
        self._objects = objects
        self._keys = keys
        self._executor = executor
        self._after_entries = after_entries
        self._owed: PartitionState | None = None

    def opened(self, state: PartitionState, entries: int) -> None:
        """The log was loaded, and so many entries were replayed for it. Readers leave it at that."""
        self._owed = state if entries > self._after_entries else None

    def written(self) -> None:
        """Who opened the log writes to it: what it owes is left behind, in another thread."""
        owed, self._owed = self._owed, None
        if owed is None:
            return
        try:
            self._executor.submit(self._leave, owed)
        except IllegalStateError:
            _LOG.debug("the engine is closed: no snapshot of %s", self._keys.prefix)

    def _leave(self, state: PartitionState) -> None:
        try:
            if self._is_needless(state.log_end_offset):
                return  # another opener was quicker
            leave_snapshot(self._objects, self._keys, state)
        except TxnEngineError as error:
            _LOG.info("no snapshot was left in %s: %s", self._keys.snapshots_prefix, error)

    def _is_needless(self, end: int) -> bool:
        """Whether another opener was quicker."""
        found = self._objects.ours(self._keys.snapshots_prefix, self._keys.parse_snapshot)
        return any(other >= end for _, other in found)
