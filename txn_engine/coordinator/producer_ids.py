"""Producer ids: blocks of 1000, claimed by put-if-absent (`ProducerIdManager`).

A block's ids are given out only once there is a claim above it as well. So whichever one object is lost, the newest or
any other, the next claim goes beyond all ids that were given out. Where every claim is lost, the logs say which ids
are in use.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor, Future

from storage import JSON_BYTES_MAX
from txn_engine.clock import Clock
from txn_engine.errors import CorruptObjectError
from txn_engine.ids import IdSource
from txn_engine.log.objects import Objects, checked_number, decode_json, encode_json
from txn_engine.log.own_process import OwnLock

BLOCK_SIZE = 1_000
_BLOCKS = (1 << 63) // BLOCK_SIZE  # ids have 63 bits: an object of a higher number is not ours
_PREFIX = "producer_ids"
_FIELDS = ("first_producer_id", "count")
_IN_THE_WAY_MAX = 10_000
_LOOKED_AT_MAX = 100
_SEEN_LATELY_MS = 5_000
_BLOCK = re.compile(r"producer_ids/([0-9]{20})\.json")
_LOGGER = logging.getLogger(__name__)


class ProducerIds:
    """Ids that nobody else has or will have. A block does not survive a fork: the child is refused.

    first_block: where the store's blocks begin. ids_in_use: those that the store's logs show; it is asked only where
    no claim is found, and may take as long as loading every log does.
    """

    def __init__(
        self,
        objects: Objects,
        clock: Clock,
        new_id: IdSource,
        readers: Executor,
        first_block: int,
        ids_in_use: Callable[[], Collection[int]],
    ) -> None:
        self._first_block = first_block
        self._ids_in_use = ids_in_use
        self._objects = objects
        self._clock = clock
        self._new_id = new_id
        self._readers = readers
        self._lock = OwnLock()
        self._free: deque[int] = deque()
        self._seen: tuple[Future[int], int] | None = None  # the highest claim, and when that was asked

    def look_ahead(self) -> None:
        """An id may be needed soon: where an object is a round trip away, look meanwhile where a block is free."""
        with self._lock.here():
            if not self._free and not self._objects.is_near:
                self._seen = self._readers.submit(highest_block, self._objects), self._clock()

    def take(self) -> int:
        """An id for the caller alone, for ever: what is not used is lost, and there are enough."""
        with self._lock.here():
            if not self._free:
                self._free.extend(self._claim_block())
            return self._free.popleft()

    def _claim_block(self) -> range:
        """The first free block behind the highest that is a claim. What stands in its way is passed over, damaged or
        not: nobody gets its ids.
        """
        block = self._first_free()
        above = self._claims_soon(block + 1)
        if not self._claims(block):
            block = block + 1 if above() else self._claim_from(block + 2)
            above = self._claims_soon(block + 1)
        if not above():
            self._claim_from(block + 1, or_another=True)
        return range(block * BLOCK_SIZE, (block + 1) * BLOCK_SIZE)

    def _claims_soon(self, block: int) -> Callable[[], bool]:
        """Claim the block while the caller goes on, where an object is a round trip away; else when it is asked."""
        if self._objects.is_near:
            return lambda: self._claims(block)
        return self._readers.submit(self._claims, block).result

    def _claim_from(self, first: int, *, or_another: bool = False) -> int:
        """Claim the first of these blocks that can be claimed. `or_another`: a block that is another's claim will do
        as well.
        """
        for block in range(first, first + _IN_THE_WAY_MAX):
            if (or_another and self._is_claimed(block)) or self._claims(block):
                return block
        last = first + _IN_THE_WAY_MAX - 1
        raise CorruptObjectError(
            f"something stands at each of {_IN_THE_WAY_MAX:,} keys up to this one",
            place=_key(last),
            expected="a free producer id block",
            action="run `txn-engine doctor`, and move away what is not the store's",
        )

    def _first_free(self) -> int:
        """The first block that may be free: behind every claim, and behind every id that is in use."""
        highest = self._highest_seen()
        if highest >= self._first_block:
            return highest + 1
        used = max((each // BLOCK_SIZE for each in self._ids_in_use()), default=-1)
        if used < self._first_block:
            return self._first_block
        if self._objects.exists(_key(used)):  # the listing did not show it yet
            return used + 1
        block = min(max(used + 1, self._clock()), _BLOCKS)
        _LOGGER.error(
            "all producer id blocks are gone from %s, though producer ids are in use: the next ids begin at %d, above "
            "all that a process may still hold; run `txn-engine verify`",
            self._objects.uri(_PREFIX),
            block * BLOCK_SIZE,
        )
        return block

    def _highest_seen(self) -> int:
        seen, self._seen = self._seen, None
        if seen is not None and 0 <= self._clock() - seen[1] < _SEEN_LATELY_MS:
            return seen[0].result()
        return highest_block(self._objects)

    def _claims(self, block: int) -> bool:
        if block >= _BLOCKS:
            raise CorruptObjectError(
                f"a producer id block {block - 1}", place=_key(block - 1), expected="ids of 63 bits"
            )
        claim = {
            "first_producer_id": block * BLOCK_SIZE,
            "count": BLOCK_SIZE,
            "claimed_ms": self._clock(),
            "write_id": self._new_id(),
        }
        data = encode_json(claim, "producer_ids")
        try:
            return self._objects.create(_key(block), data, max_bytes=JSON_BYTES_MAX).won
        except CorruptObjectError:
            return False

    def _is_claimed(self, block: int) -> bool:
        try:
            _check_claim(self._objects, block)
        except CorruptObjectError:
            return False
        return True


def lost_blocks(objects: Objects, ids_in_use: Collection[int], first_block: int) -> list[CorruptObjectError]:
    """The blocks, from the store's first on, that are not there, though ids of them are in use, or the block below them
    has ids in use: a claim above a block is there before any of its ids is given out.
    """
    used = {block for each in ids_in_use if (block := each // BLOCK_SIZE) >= first_block}
    asked = used | {max(used) + 1} if used else used
    there = set(_blocks(objects))
    return [
        CorruptObjectError(
            "no such object",
            place=_key(block),
            expected=f"the claim to producer ids {block * BLOCK_SIZE} to {block * BLOCK_SIZE + BLOCK_SIZE - 1}",
            action="find out what removed it; the ids of lost blocks are not given out again, unless several were lost",
        )
        for block in sorted(asked - there)
        if block < _BLOCKS and not objects.exists(_key(block))
    ]


def unreadable_blocks(objects: Objects) -> list[CorruptObjectError]:
    """What has the name of a block and is none, of the newest hundred."""
    wrong = []
    for block in sorted(_blocks(objects))[-_LOOKED_AT_MAX:]:
        try:
            _check_claim(objects, block)
        except CorruptObjectError as error:
            wrong.append(error)
    return wrong


def highest_block(objects: Objects) -> int:
    """-1 where there is none. Blocks are claimed one after the other: behind a gap may stand what never was a claim."""
    blocks = sorted(_blocks(objects))
    while blocks and blocks[-1] != len(blocks) - 1:
        try:
            _check_claim(objects, blocks[-1])
            break
        except CorruptObjectError:
            blocks.pop()
    return blocks[-1] if blocks else -1


def _blocks(objects: Objects) -> Iterator[int]:
    for info in objects.infos(_PREFIX):
        match = _BLOCK.fullmatch(info.key)
        if match is not None and int(match[1]) < _BLOCKS:
            yield int(match[1])


def _check_claim(objects: Objects, block: int) -> None:
    """Raise `CorruptObjectError` unless the object at the block's key claims it."""
    key = _key(block)
    claim = decode_json(
        bytes(objects.read(key, max_bytes=JSON_BYTES_MAX)), key=key, kind="producer_ids", needed=_FIELDS
    )
    first = block * BLOCK_SIZE
    checked_number(claim, "first_producer_id", first, first, key=key)
    checked_number(claim, "count", BLOCK_SIZE, BLOCK_SIZE, key=key)


def _key(block: int) -> str:
    return f"{_PREFIX}/{block:020d}.json"
