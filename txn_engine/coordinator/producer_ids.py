"""Producer ids: blocks of 1000, claimed by put-if-absent (`ProducerIdManager`)."""

from __future__ import annotations

from collections import deque

from txn_engine.clock import Clock
from txn_engine.ids import IdSource
from txn_engine.log.objects import Objects, encode_json
from txn_engine.log.own_process import OwnLock

BLOCK_SIZE = 1_000
_PREFIX = "producer_ids"


class ProducerIds:
    """Ids that nobody else has or will have. A block does not survive a fork: the child is refused."""

    def __init__(self, objects: Objects, clock: Clock, new_id: IdSource) -> None:
        self._objects = objects
        self._clock = clock
        self._new_id = new_id
        self._lock = OwnLock()
        self._free: deque[int] = deque()

    def take(self) -> int:
        """An id for the caller alone, for ever: what is not used is lost, and there are enough."""
        with self._lock.here():
            if not self._free:
                self._free.extend(self._claim_block())
            return self._free.popleft()

    def _claim_block(self) -> range:
        known = self._objects.keys(_PREFIX)
        block = int(known[-1].rsplit("/", 1)[1].removesuffix(".json")) + 1 if known else 0
        while True:
            first = block * BLOCK_SIZE
            claim = {
                "first_producer_id": first,
                "count": BLOCK_SIZE,
                "claimed_ms": self._clock(),
                "write_id": self._new_id(),
            }
            if self._objects.create(f"{_PREFIX}/{block:020d}.json", encode_json(claim, "producer_ids")).won:
                return range(first, first + BLOCK_SIZE)
            block += 1
