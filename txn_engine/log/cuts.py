"""The cuts of a store: claimed, made, deleted, and what they hold back (PROTOCOL.md, section 7).

Whoever makes a cut claims its number first, then looks at the logs. Whoever deletes reads a partition's state first,
then looks for claims and cuts. So what was alive when a cut looked is seen to be held by whoever finds it dead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from storage import JSON_BYTES_MAX
from txn_engine.clock import Clock
from txn_engine.errors import InvalidRequestError, OutcomeUnknownError, TxnEngineError
from txn_engine.ids import IdSource
from txn_engine.log.cut_format import (
    CUTS_PREFIX,
    NEVER,
    Cut,
    Part,
    cut_key,
    decoded_cut,
    encoded_cut,
    parse_cut_key,
)
from txn_engine.log.objects import Objects, checked_number, decode_json, encode_json
from txn_engine.log.own_process import OwnLock
from txn_engine.protocol.controls import GRACE_MS
from txn_engine.protocol.log_time import bounded_time
from txn_engine.unreadable import DAMAGE, WHOLE_TOPIC, Listing, Unreadable

CLAIM_MS: Final = 3_600_000
"""After so long a claim is given up by clean-up."""
_NEWEST_LISTED: Final = 128
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Holds:
    """What must stay of one partition, since cuts need it: snapshots, by their ends, and the files that they list.

    `is_open`: somebody is making a cut, so that anything may be needed.
    """

    is_open: bool
    snapshots: frozenset[int]


@dataclass(frozen=True, slots=True)
class CutNumber:
    """What became of a number that was claimed: a cut, the error of a damaged one, or neither, where none was made.

    claimed_ms: when that began; 0 where nobody knows. is_open: its maker may still be at it.
    """

    number: int
    claimed_ms: int
    cut: Cut | None
    error: TxnEngineError | None
    is_open: bool = False


@dataclass(slots=True)
class _Known:
    """What is known of one number; what there is of it never changes. Of a deleted cut that holds nothing any more the
    claim is left, and that it was deleted: no number is given out twice. `damage`: why nobody knows what it was.
    """

    claimed_ms: int = 0
    is_settled: bool = False
    cut: Cut | None = None
    deleted_ms: int | None = None
    is_gone: bool = False
    damage: TxnEngineError | None = None

    @property
    def is_open(self) -> bool:
        """Whether its maker may be about to look, or to put it."""
        return not self.is_settled and not self.is_gone

    def is_held(self, now_ms: int) -> bool:
        """Whether it is a cut that holds something back: one that was deleted does for as long as dead files stay."""
        return self.cut is not None and (self.deleted_ms is None or now_ms - self.deleted_ms < GRACE_MS)


class CutStore:
    """The cuts of one store. Threads may share it."""

    def __init__(self, objects: Objects, clock: Clock, new_id: IdSource, store_id: str) -> None:
        self._objects = objects
        self._clock = clock
        self._new_id = new_id
        self._store_id = store_id
        self._lock = OwnLock()
        self._known: dict[int, _Known] = {}  # of every number from 0 up to the last that was claimed
        self._is_listed = False
        self._apart: dict[int, _Known] = {}  # of numbers that were looked at while those before them were not
        self._claimed_below = 0

    # --- making one -----------------------------------------------------------------------------------------

    def claim(self) -> int:
        """A number that nobody else has. From now on clean-up deletes nothing that a cut of this number may need."""
        with self._lock.here():
            while True:
                self._look_on()
                number = len(self._known)
                if self._put(number, Part.CLAIM, {"created_ms": self._clock()}):
                    return number

    def settle(self, cut: Cut) -> None:
        """Let the cut stand. Raises `OutcomeUnknownError` where clean-up gave its claim up."""
        if not self._put(cut.number, Part.CUT, encoded_cut(cut, cut.number, self._store_id)):
            raise OutcomeUnknownError(
                f"the claim to cut {cut.number} was given up: it is more than {CLAIM_MS // 60_000} minutes old",
                actor="cut",
                place=cut_key(cut.number, Part.CUT),
                expected="to be the first to write it",
                action="make another cut; this one holds nothing",
            )

    def give_up(self, number: int) -> None:
        """Let there be no cut of this number; where it stands already, nothing happens."""
        self._put(number, Part.CUT, encoded_cut(None, number, self._store_id))

    # --- those that there are --------------------------------------------------------------------------------

    def get(self, number: int) -> Cut:
        """The cut of this number. Raises `InvalidRequestError` where there is none, or it was deleted."""
        if type(number) is not int or not 0 <= number <= _INT64_MAX:
            raise InvalidRequestError(f"cut {number!r:.40}", expected="the number of a cut")
        with self._lock.here():
            known = self._known.get(number)
        deleted_ms = self._read_time(number, Part.DELETED, "deleted_ms")
        cut = known.cut if known is not None and known.cut is not None else self._read_cut(number)[1]
        if cut is None or deleted_ms is not None:
            raise InvalidRequestError(
                f"there is no cut {number}" if deleted_ms is None else f"cut {number} was deleted",
                place=self._objects.store.url,
                expected="one that `txn-engine cuts list` shows",
            )
        return cut

    def all(self) -> Listing[Cut]:
        """The cuts that there are, oldest first."""
        with self._lock.here():
            self._list()
            there = [(n, each) for n, each in sorted(self._known.items()) if each.deleted_ms is None]
        return Listing(
            [known.cut for _, known in there if known.cut is not None],
            [
                Unreadable(f"cut {n}", WHOLE_TOPIC, each.damage)
                for n, each in there
                if each.damage is not None
            ],
        )

    def newest(self) -> Iterator[CutNumber]:
        """The numbers whose cuts were not deleted, newest first, each read when it is asked for: what it costs does not
        grow with how many there were before. What was made or deleted during the call may be missed.
        """
        with self._lock.here():
            above, step = self._find_end(), _NEWEST_LISTED
        while above:
            low = max(0, above - step)
            listed = self._listed(low, above)
            for number in reversed(range(low, above)):
                with self._lock.here():
                    known = self._look_at(number, listed.get(number, set()))
                if known is not None:
                    yield CutNumber(number, known.claimed_ms, known.cut, known.damage, known.is_open)
            above, step = low, step * 4

    def newest_over(self, topics: Mapping[str, int] | None) -> Cut | None:
        """The newest cut that holds something and is of all topics, or at least of these incarnations."""
        now_ms = self._clock()
        with self._lock.here():
            self._list()
            for _, known in sorted(self._known.items(), reverse=True):
                cut = known.cut
                if cut is None or not known.is_held(now_ms):
                    continue
                if cut.every_topic or (
                    topics and all(cut.find(*each) is not None for each in topics.items())
                ):
                    return cut
        return None

    def delete(self, number: int) -> None:
        """Delete the cut; what only it needs may go after 24 hours. One that is damaged can be deleted too."""
        with suppress(*DAMAGE):
            self.get(number)
        self._put(number, Part.DELETED, {"deleted_ms": self._clock()})

    # --- upkeep ----------------------------------------------------------------------------------------------

    def holds(self, topic: str, incarnation: int, partition: int) -> Holds:
        """What must stay of this partition. To be asked after its state was read, by which something is deleted.

        Raises the error of a damaged cut: what it needs nobody knows.
        """
        now_ms = self._clock()
        with self._lock.here():
            self._look_on()
            every = list(self._known.values())
        for known in every:
            if known.damage is not None:
                raise known.damage
        is_open = any(known.is_open for known in every)
        held = [known.cut for known in every if known.cut is not None and known.is_held(now_ms)]
        logs = [cut.log(topic, incarnation, partition) for cut in held]
        return Holds(is_open, frozenset(log.snapshot for log in logs if log is not None))

    def tend(self, *, dry_run: bool) -> tuple[int, ...]:
        """Delete cuts that have expired, give up old claims, and remove what was in cuts that hold nothing any more.
        Returns the numbers of the expired ones.
        """
        expired = tuple(cut.number for cut in self.all() if NEVER < cut.expires_ms <= self._clock())
        if dry_run:
            return expired
        for number in expired:
            self._put(number, Part.DELETED, {"deleted_ms": self._clock()})
        with self._lock.here():
            now_ms, known = self._clock(), dict(self._known)
        for number, each in known.items():
            if each.is_open and now_ms - each.claimed_ms >= CLAIM_MS:
                self.give_up(number)
            if each.deleted_ms is not None and now_ms - each.deleted_ms >= GRACE_MS and not each.is_gone:
                self._objects.remove(cut_key(number, Part.CUT))
        return expired

    # --- looking at the store --------------------------------------------------------------------------------

    def _list(self) -> None:
        """Know what there is of every number that was claimed before this call.

        Numbers have no gap. A listing says where to look, and that something was deleted, which is for ever; the end is
        a number that the store itself says nobody has claimed.
        """
        listed = self._listed(0, _INT64_MAX)
        for number in sorted(listed):
            while len(self._known) <= number:
                missed = len(self._known)
                found = self._read_number(missed, listed.get(missed, set()))
                self._known[missed] = found or _Known(is_gone=True)
            known = self._known[number]
            if Part.DELETED in listed[number] and known.deleted_ms is None:
                known.deleted_ms, known.damage = self._read_deleted(number), None
        self._is_listed = True
        self._look_on()

    def _listed(self, low: int, above: int) -> dict[int, set[Part]]:
        """What a listing has of the numbers from `low` on that are below `above`."""
        listed: dict[int, set[Part]] = defaultdict(set)
        start_after = cut_key(low - 1, Part.DELETED) if low else None
        for _, (number, part) in self._objects.ours(CUTS_PREFIX, parse_cut_key, start_after=start_after):
            if number >= above:
                break
            listed[number].add(part)
        return listed

    def _find_end(self) -> int:
        """The first number that nobody has claimed: there is no gap before it."""
        low, step = self._claimed_below, 1
        while self._objects.exists(cut_key(low + step - 1, Part.CLAIM)):
            low, step = low + step, step * 2
        high = low + step - 1
        while low < high:
            middle = (low + high) // 2
            if self._objects.exists(cut_key(middle, Part.CLAIM)):
                low = middle + 1
            else:
                high = middle
        self._claimed_below = low
        return low

    def _look_at(self, number: int, listed: set[Part]) -> _Known | None:
        """What there is of a number by itself; None where that was deleted."""
        if Part.DELETED in listed:
            self._apart.pop(number, None)
            return None
        known = self._known.get(number) or self._apart.get(number)
        if known is None or known.is_open:
            known = self._read_number(number, listed)
            if known is not None:
                self._apart[number] = known
        return None if known is None or known.is_gone or known.deleted_ms is not None else known

    def _look_on(self) -> None:
        """Know what was claimed meanwhile, and what became of claims that are open."""
        if not self._is_listed:
            return self._list()
        for number, known in self._known.items():
            if known.is_open:
                self._learn(number, known)
        while (next_one := self._read_number(len(self._known), set())) is not None:
            self._known[len(self._known)] = next_one
        return None

    def _read_number(self, number: int, listed: set[Part]) -> _Known | None:
        """What there is of a number; None where nobody has claimed it."""
        if Part.DELETED in listed and Part.CUT not in listed:
            return _Known(is_gone=True)
        try:
            claimed_ms = self._read_time(number, Part.CLAIM, "created_ms")
        except DAMAGE:
            claimed_ms = 0  # of an age that nobody waits for; `verify` names it
        if claimed_ms is None and Part.CUT not in listed:
            return None
        known = _Known(claimed_ms or 0)
        self._learn(number, known)
        return known

    def _learn(self, number: int, known: _Known) -> None:
        """Read what became of a claim. One whose cut is no more, or damaged, may have been deleted."""
        try:
            known.is_settled, known.cut = self._read_cut(number)
        except DAMAGE as error:
            known.is_settled, known.damage = True, error
        if (known.is_open or known.damage is not None) and self._read_deleted(number) is not None:
            known.is_gone, known.damage = True, None

    def _read_deleted(self, number: int) -> int | None:
        """When it was deleted, None where it was not. Something damaged there says that it was, and not when."""
        try:
            return self._read_time(number, Part.DELETED, "deleted_ms")
        except DAMAGE:
            return self._clock()

    def _read_cut(self, number: int) -> tuple[bool, Cut | None]:
        """Whether it is settled what this number is, and the cut, if it is one."""
        held = self._read(number, Part.CUT, ())
        if held is None:
            return False, None
        return True, decoded_cut(held, cut_key(number, Part.CUT), number, self._store_id)

    def _read_time(self, number: int, part: Part, name: str) -> int | None:
        held = self._read(number, part, (name,))
        if held is None:
            return None
        return bounded_time(checked_number(held, name, 0, _INT64_MAX, key=cut_key(number, part)))

    def _read(self, number: int, part: Part, needed: tuple[str, ...]) -> dict[str, Any] | None:
        key = cut_key(number, part)
        data = self._objects.find(key, max_bytes=JSON_BYTES_MAX)
        return None if data is None else decode_json(data, key=key, kind=part.kind, needed=needed)

    def _put(self, number: int, part: Part, fields: Mapping[str, Any]) -> bool:
        """Whether the object is ours; False where another stands there."""
        data = encode_json({"number": number, **fields, "write_id": self._new_id()}, part.kind)
        return self._objects.create(cut_key(number, part), data, max_bytes=JSON_BYTES_MAX).won
