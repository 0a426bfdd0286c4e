"""Producer ids: blocks of 1000, claimed by put-if-absent (`ProducerIdManager`)."""

from __future__ import annotations

import re
from collections import deque

from storage import JSON_BYTES_MAX
from txn_engine.clock import Clock
from txn_engine.errors import CorruptObjectError
from txn_engine.ids import IdSource
from txn_engine.log.objects import Objects, encode_json
from txn_engine.log.own_process import OwnLock

BLOCK_SIZE = 1_000
_BLOCKS = (1 << 63) // BLOCK_SIZE  # ids have 63 bits: an object of a higher number is not ours
_PREFIX = "producer_ids"
_BLOCK = re.compile(r"producer_ids/([0-9]{20})\.json")


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
        matches = (_BLOCK.fullmatch(info.key) for info in self._objects.infos(_PREFIX))
        numbers = (int(match[1]) for match in matches if match is not None)
        block = max((number for number in numbers if number < _BLOCKS), default=-1) + 1
        while True:
            first = block * BLOCK_SIZE
            if block >= _BLOCKS:
                raise CorruptObjectError(
                    f"a producer id block {block - 1}", place=_key(block - 1), expected="ids of 63 bits"
                )
            claim = {
                "first_producer_id": first,
                "count": BLOCK_SIZE,
                "claimed_ms": self._clock(),
                "write_id": self._new_id(),
            }
            data = encode_json(claim, "producer_ids")
            if self._objects.create(_key(block), data, max_bytes=JSON_BYTES_MAX).won:
                return range(first, first + BLOCK_SIZE)
            block += 1


def _key(block: int) -> str:
    return f"{_PREFIX}/{block:020d}.json"
