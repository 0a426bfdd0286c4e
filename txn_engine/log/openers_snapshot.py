"""A snapshot that a writer leaves behind: whoever opens the log next need not replay what this one had to.

Like every snapshot it is a state that was built from entries read back, put if none stands at its end. Nobody waits for
it, nobody is told where it fails, and clean-up counts it only once it has verified it, as it does with all.
"""

from __future__ import annotations

import logging
from concurrent.futures import Executor
from typing import Final

from storage import LogKeys
from txn_engine.errors import IllegalStateError, TxnEngineError
from txn_engine.log.left_snapshot import leave_snapshot
from txn_engine.log.objects import Objects
from txn_engine.protocol.partition import PartitionState

_LOG = logging.getLogger(__name__)
_SWEPT_ENTRIES: Final = 64
"""A sweep that replayed more entries of a log than this leaves a snapshot: the next one comes within a minute or so."""


class OpenersSnapshot:
    """What one log of an engine owes to who opens it next, once its writer had to replay more than `after_entries`,
    or a sweep more than a few.

    Its log's lock is held by whoever calls.
    """

    def __init__(self, objects: Objects, keys: LogKeys, executor: Executor, after_entries: int) -> None:
        self._objects = objects
        self._keys = keys
        self._executor = executor
        self._after_entries = after_entries
        self._opened = PartitionState()
        self._entries = 0

    def opened(self, state: PartitionState, entries: int) -> None:
        """The log was loaded, and so many entries were replayed for it. Readers leave it at that."""
        is_owed = entries > min(self._after_entries, _SWEPT_ENTRIES)
        self._opened, self._entries = (state, entries) if is_owed else (PartitionState(), 0)

    def written(self) -> None:
        """Who opened the log writes to it: what it owes is left behind, in another thread."""
        self._leave_after(self._after_entries)

    def swept(self) -> None:
        """A sweep has looked at the log, as the next one will: as `written`, after fewer entries."""
        self._leave_after(min(self._after_entries, _SWEPT_ENTRIES))

    def _leave_after(self, entries: int) -> None:
        owed, is_owed = self._opened, self._entries > entries
        self._opened, self._entries = PartitionState(), 0
        if not is_owed:
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
