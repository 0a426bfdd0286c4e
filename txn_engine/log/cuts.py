"""The cuts of a store: claimed, made, deleted, and what they hold back (PROTOCOL.md, section 7).

Whoever makes a cut claims its number first, then looks at the logs. Whoever deletes reads a partition's state first,
then looks for claims and cuts. So what was alive when a cut looked is seen to be held by whoever finds it dead.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from sys import intern
from typing import Any, Final, TypeVar

from storage import JSON_BYTES_MAX
from txn_engine.clock import Clock
from txn_engine.errors import (
    CorruptObjectError,
    InvalidRequestError,
    OutcomeUnknownError,
    StoreAccessError,
    TxnEngineError,
    UnsupportedFormatError,
)
from txn_engine.ids import IdSource
from txn_engine.log.cut_format import NEVER, Cut, Part, cut_key, decoded_cut, encoded_cut
from txn_engine.log.cut_keys import CutKeys, Parts
from txn_engine.log.objects import Objects, checked_number, checked_text, decode_json, encode_json
from txn_engine.log.own_process import OwnLock
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, StoreConfig
from txn_engine.log.store_time import Moment, StoreTime
from txn_engine.protocol.controls import GRACE_MS
from txn_engine.protocol.log_time import bounded_time
from txn_engine.reasons import Reason
from txn_engine.unreadable import DAMAGE, WHOLE_TOPIC, Listing, Unreadable

Found = TypeVar("Found")

CLAIM_MS: Final = 3_600_000
"""After so long a claim is given up by clean-up."""
_NEWEST_LISTED: Final = 128
_INT64_MAX: Final = 2**63 - 1
_AT_ONCE: Final = 64
_FIRST_LOOK_BACK: Final = 4


@dataclass(frozen=True, slots=True)
class Holds:
    """What must stay of one partition, since cuts or tables need it: snapshots, by their ends, and the files that they
    list; single files, by their paths.

    `is_open`: somebody is making a cut, so that anything may be needed.
    """

    is_open: bool
    snapshots: frozenset[int]
    files: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NewestCut:
    """The newest cut of its kind. is_deleted: somebody has deleted it, or may have: the store does not tell."""

    cut: Cut
    is_deleted: bool


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


@dataclass(frozen=True, slots=True)
class _Needs:
    """What clean-up has to know of a cut, a fraction of what it holds: a store may have ten thousand.

    keep_ms: for how long it was made to be kept. snapshots: by topic and incarnation, the snapshot of each partition.
    """

    expires_ms: int
    keep_ms: int
    snapshots: Mapping[tuple[str, int], array[int]]

    def snapshot(self, topic: str, incarnation: int, partition: int) -> int | None:
        ends = self.snapshots.get((topic, incarnation), ())
        return ends[partition] if partition < len(ends) else None


_NOTHING: Final = _Needs(NEVER, NEVER, {})


@dataclass(slots=True)
class _Known:
    """What is known of a number that may hold something back. What there is of it never changes, so that nothing is
    read twice; what could not be read is asked for again.

    is_settled: there is the cut, or that there will be none. deleted_ms, needs: None as long as nobody has read them.
    """

    is_settled: bool = False
    is_deleted: bool = False
    deleted_ms: int | None = None
    needs: _Needs | None = None

    @property
    def is_unread(self) -> bool:
        return self.is_settled and (self.needs is None or (self.is_deleted and self.deleted_ms is None))

    def is_over(self, now_ms: int) -> bool:
        """Whether it was deleted for so long that it holds nothing: it does for as long as dead files stay."""
        return self.deleted_ms is not None and now_ms - self.deleted_ms >= GRACE_MS

    def has_expired(self, now_ms: int) -> bool:
        """Whether clean-up is to delete it."""
        return not self.is_deleted and self.needs is not None and NEVER < self.needs.expires_ms <= now_ms


class CutStore:
    """The cuts of one store. Threads may share it."""

    def __init__(
        self,
        objects: Objects,
        clock: Clock,
        new_id: IdSource,
        config: StoreConfig,
        readers: Executor,
        store_time: StoreTime | None = None,
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._dates_objects = store_time is not None and store_time.estimate().dates_objects
        self._new_id = new_id
        self._store_id = config.store_id
        self._store_ids = config.ids
        self._readers = readers
        self._keys = CutKeys(objects, readers)
        self._lock = OwnLock()
        self._next: int | None = None  # to be claimed here
        self._newest: Cut | None = None  # that was made or looked for here
        self._became: dict[int, CutNumber] = {}  # of the newest numbers that were asked for
        self._claimed_below = 0
        self._known: dict[int, _Known] = {}  # every number that may hold something, once there are ends
        self._ends: set[int] = set()  # where numbers that were claimed end: one, where nobody meddled

    # --- making one -----------------------------------------------------------------------------------------

    def claim(self) -> int:
        """A number that nobody else has. From now on clean-up deletes nothing that a cut of this number may need."""
        with self._lock.here():
            number = self._keys.first_unused(0) if self._next is None else self._next
            while not self._put(number, Part.CLAIM, {"created_ms": self._clock()}):
                number = self._keys.first_unused(number + 1)
            self._next = number + 1
            return number

    def claim_id(self, number: int) -> str:
        """The write id of the claim to a number, which no other store has but copies made since; "": there is none."""
        held = self._read(number, Part.CLAIM, ("write_id",))
        return "" if held is None else checked_text(held, "write_id", key=cut_key(number, Part.CLAIM))

    def settle(self, cut: Cut) -> None:
        """Let the cut stand. Raises `OutcomeUnknownError` where clean-up gave its claim up."""
        if not self._put(cut.number, Part.CUT, encoded_cut(cut, cut.number, self._store_id)):
            raise OutcomeUnknownError(
                f"the claim to cut {cut.number} was given up: it is more than {CLAIM_MS // 60_000} minutes old",
                actor="cut",
                place=cut_key(cut.number, Part.CUT),
                expected="to be the first to write it",
                action="make another cut; this one holds nothing",
                reason=Reason.CLAIM_GIVEN_UP,
            )
        self._newest = cut

    def give_up(self, number: int) -> None:
        """Let there be no cut of this number; where it stands already, nothing happens."""
        self._put(number, Part.CUT, encoded_cut(None, number, self._store_id))

    # --- those that there are --------------------------------------------------------------------------------

    def find(self, cut: Cut | int) -> Cut:
        """The cut, or that of this number, which is there now. Raises `InvalidRequestError` where it is not."""
        found = self.get(cut.number if isinstance(cut, Cut) else cut)
        if isinstance(cut, Cut) and cut != found:
            raise InvalidRequestError(
                f"cut {cut.number} of store {cut.store_id}",
                place=self._objects.store.url,
                expected=f"a cut of this store, {self._store_id}",
                reason=Reason.CUT_OF_ANOTHER_STORE,
            )
        return found

    def get(self, number: int) -> Cut:
        """The cut of this number. Raises `InvalidRequestError` where there is none, or it was deleted."""
        if type(number) is not int or not 0 <= number <= _INT64_MAX:
            raise InvalidRequestError(
                f"cut {number!r:.40}", expected="the number of a cut", reason=Reason.BAD_ARGUMENT
            )
        deleted = self._readers.submit(self._read_time, number, Part.DELETED, "deleted_ms")
        _, cut = self._read_cut(number)
        if deleted.result() is not None or cut is None:
            raise InvalidRequestError(
                f"there is no cut {number}" if deleted.result() is None else f"cut {number} was deleted",
                place=self._objects.store.url,
                expected="one that `txn-engine cuts list` shows",
                reason=Reason.CUT_NOT_FOUND if deleted.result() is None else Reason.CUT_DELETED,
            )
        return cut

    def all(self) -> Listing[Cut]:
        """The cuts that there are, oldest first."""
        with self._lock.here():
            self._list()
            there = sorted(
                number for number, known in self._known.items() if known.is_settled and not known.is_deleted
            )
        cuts: list[Cut] = []
        unreadable: list[Unreadable] = []
        for number, found in self._read_each(self._read_or_damage, there):
            if isinstance(found, Cut):
                cuts.append(found)
            elif found is not None:
                unreadable.append(Unreadable(f"cut {number}", WHOLE_TOPIC, found))
        return Listing(cuts, unreadable)

    def newest(self) -> Iterator[CutNumber]:
        """The numbers whose cuts were not deleted, newest first, each read when it is asked for: what it costs does not
        grow with how many there were before. What was made or deleted during the call may be missed.
        """
        high, step = self.first_unclaimed(), _NEWEST_LISTED
        while high > 0:
            low, above = max(0, high - step), high
            for number, parts in sorted(self._keys.listed(low, above).items(), reverse=True):
                if Part.DELETED not in parts:
                    yield self._became_of(number)
            high, step = low, step * 4

    def _became_of(self, number: int) -> CutNumber:
        found = self._became.get(number)
        if found is None:
            found = self._read_number(number)
            if found.error is None and not found.is_open:
                self._became[number] = found
                for oldest in sorted(self._became)[:-_NEWEST_LISTED]:
                    self._became.pop(oldest, None)
        return found

    def _read_number(self, number: int) -> CutNumber:
        try:
            claimed_ms = self._read_time(number, Part.CLAIM, "created_ms") or 0
        except DAMAGE:
            claimed_ms = 0  # `verify` names it
        try:
            is_settled, cut = self._read_cut(number)
        except DAMAGE as error:
            return CutNumber(number, claimed_ms, None, error)
        return CutNumber(number, claimed_ms, cut, None, not is_settled)

    def first_unclaimed(self) -> int:
        """The first number that nobody had claimed."""
        with self._lock.here():
            self._claimed_below = self._keys.first_free(self._claimed_below)
            return self._claimed_below

    def newest_over(self, topics: Mapping[str, int] | None, below: int) -> NewestCut | None:
        """The newest cut below this number that can be read and is of all topics, or at least of these incarnations. As
        many are read as it takes, from the newest down.
        """
        low, step = below, _FIRST_LOOK_BACK
        while low > 0:
            low, high = max(0, low - step), low
            for found, is_deleted in self._newest_of(self._settled(low, high)):
                if isinstance(found, Cut) and _covers(found, topics):
                    self._newest = found
                    return NewestCut(found, is_deleted)
            step *= 4
        return None

    def _may_be_deleted(self, number: int) -> bool:
        try:
            return self._objects.exists(cut_key(number, Part.DELETED))
        except DAMAGE:
            return True

    def _settled(self, low: int, high: int) -> Sequence[int]:
        """The numbers from `low` up to `high`, newest first; of many those that may be cuts, by their keys."""
        if high - low <= _FIRST_LOOK_BACK:
            return range(high - 1, low - 1, -1)
        listed = self._keys.listed(low, high)
        return sorted((number for number, parts in listed.items() if Part.CUT in parts), reverse=True)

    def delete(self, number: int) -> None:
        """Delete the cut; what only it needs may go after 24 hours. One that is damaged can be deleted too."""
        with suppress(CorruptObjectError, UnsupportedFormatError):
            self.get(number)
        self._delete(number)

    def _delete(self, number: int) -> None:
        self._put(number, Part.DELETED, {"deleted_ms": self._clock()})

    # --- upkeep ----------------------------------------------------------------------------------------------

    def holds(self, topic: str, incarnation: int, partition: int) -> Holds:
        """What must stay of this partition. To be asked after its state was read, by which something is deleted.

        Raises the error of a cut that cannot be read: what it needs nobody knows.
        """
        now_ms = self._clock()
        with self._lock.here():
            self._look_on()
            unread = self._learn()
            if unread:
                raise unread[min(unread)]
            known = list(self._known.values())
        is_open = any(not each.is_settled for each in known)
        held = (each.needs for each in known if each.needs is not None and not each.is_over(now_ms))
        ends = (needs.snapshot(topic, incarnation, partition) for needs in held)
        return Holds(is_open, frozenset(end for end in ends if end is not None))

    def tend(self, *, dry_run: bool, moment: Moment | None = None) -> tuple[int, ...]:
        """Delete cuts that have expired, give up old claims, and remove what was in cuts that hold nothing any more.
        Returns the numbers of the expired ones. `moment`: the store's time; else the clock's counts.
        """
        with self._lock.here():
            self._list()
            self._learn()
            now_ms = self._clock() if moment is None else moment.now_ms
            known = dict(sorted(self._known.items()))
        expired = tuple(
            number
            for number, each in known.items()
            if each.has_expired(now_ms) and each.needs and self._was_kept(number, each.needs.keep_ms, now_ms)
        )
        if dry_run:
            return expired
        over = [number for number, each in known.items() if each.is_over(now_ms)]
        unsettled = [number for number, each in known.items() if not each.is_settled]
        for job, numbers in (
            (self._delete, expired),
            (partial(self._give_up_if_old, now_ms=now_ms), unsettled),
            (self._remove, over),
        ):
            for _ in self._read_each(job, numbers):
                pass
        return expired

    def _remove(self, number: int) -> None:
        self._objects.remove(cut_key(number, Part.CUT))
        self._known.pop(number, None)

    def _was_kept(self, number: int, keep_ms: int, now_ms: int) -> bool:
        """Whether the store has had a cut for as long as it was to be kept: its maker's clock may have been behind."""
        return not self._dates_objects or (
            self._objects.modified_ms(cut_key(number, Part.CUT)) + keep_ms <= now_ms
        )

    def _give_up_if_old(self, number: int, now_ms: int) -> None:
        """A claim whose time nobody can read is older than any; one that is refused now may be somebody's."""
        try:
            claimed_ms = self._since(number, Part.CLAIM, "created_ms")
        except CorruptObjectError:
            claimed_ms = 0
        except DAMAGE:
            return
        if claimed_ms is not None and now_ms - claimed_ms >= CLAIM_MS:
            self.give_up(number)

    # --- looking at the store --------------------------------------------------------------------------------

    def _list(self) -> None:
        """Know of every number that was claimed before this call, and which of them were deleted."""
        start = min(
            (number for number, known in self._known.items() if known.needs is not _NOTHING),
            default=max(self._ends, default=0),
        )
        listed = self._keys.listed(start)
        for number, parts in listed.items():
            self._note(number, parts)
        self._ends = {end for end in self._ends if end < start}
        self._ends |= {start, *(number + 1 for number in listed)} - listed.keys()
        self._look_on()

    def _look_on(self) -> None:
        """Know of every number that was claimed before this call, and what became of claims that are open."""
        if not self._ends:
            return self._list()
        for end in sorted(self._ends):
            free = self._keys.first_free(end)
            self._known |= {number: _Known() for number in range(end, free) if number not in self._known}
            self._ends = (self._ends - {end}) | {free}
        unsettled = [number for number, known in self._known.items() if not known.is_settled]
        for number, parts in self._read_each(self._keys.parts, unsettled):
            self._note(number, parts)
        return None

    def _note(self, number: int, parts: Parts) -> None:
        """What there is of a number. What has no claim is none; of what was deleted long ago the cut is gone."""
        if not parts or (Part.DELETED in parts and Part.CUT not in parts):
            self._known.pop(number, None)
            return
        known = self._known.setdefault(number, _Known())
        known.is_settled |= Part.CUT in parts
        known.is_deleted |= Part.DELETED in parts

    def _learn(self) -> dict[int, TxnEngineError]:
        """Read of each number what nobody has read yet; the errors of those that cannot be read."""
        unread = [number for number, known in self._known.items() if known.is_unread]
        found = self._read_each(self._learn_one, unread)
        return {number: error for number, error in found if error is not None}

    def _learn_one(self, number: int) -> TxnEngineError | None:
        """A damaged cut that was deleted holds nothing; one that the store refuses does until it is over."""
        known = self._known[number]
        if known.is_deleted and known.deleted_ms is None:
            known.deleted_ms = self._read_deleted(number)
        try:
            known.is_settled, cut = (True, None) if known.is_over(self._clock()) else self._read_cut(number)
        except DAMAGE as error:
            if isinstance(error, StoreAccessError) or not known.is_deleted:
                return error
            cut = None
        if known.is_settled:
            known.needs = _NOTHING if cut is None else _needs_of(cut)
        return None

    def _read_each(self, read: Callable[[int], Found], numbers: Sequence[int]) -> Iterator[tuple[int, Found]]:
        """What is read of each number, several at once."""
        for at in range(0, len(numbers), _AT_ONCE):
            some = numbers[at : at + _AT_ONCE]
            yield from zip(some, self._readers.map(read, some), strict=True)

    def _newest_of(self, numbers: Sequence[int]) -> Iterator[tuple[Cut | TxnEngineError | None, bool]]:
        """What each is, and whether it was deleted."""
        for at in range(0, len(numbers), _AT_ONCE):
            some = numbers[at : at + _AT_ONCE]
            deleted = self._readers.map(self._may_be_deleted, some)
            yield from zip(self._readers.map(self._read_or_damage, some), deleted, strict=True)

    def _read_deleted(self, number: int) -> int | None:
        """When it was deleted. Something damaged there says that it was, and not when; None: the store refuses that."""
        try:
            return self._since(number, Part.DELETED, "deleted_ms")
        except StoreAccessError:
            return None
        except DAMAGE:
            return self._clock()

    def _read_cut(self, number: int) -> tuple[bool, Cut | None]:
        """Whether it is settled what this number is, and the cut, if it is one."""
        held = self._read(number, Part.CUT, ())
        if held is None:
            return False, None
        return True, decoded_cut(held, cut_key(number, Part.CUT), number, self._store_ids)

    def _read_or_damage(self, number: int) -> Cut | TxnEngineError | None:
        newest = self._newest
        if newest is not None and newest.number == number:
            return newest
        try:
            return self._read_cut(number)[1]
        except DAMAGE as error:
            return error

    def _since(self, number: int, part: Part, name: str) -> int | None:
        """When this was put: by the store's clock where it dates its objects, for that of the host may be off."""
        said = self._read_time(number, part, name)
        if said is None or not self._dates_objects:
            return said
        return self._objects.modified_ms(cut_key(number, part)) or said

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
        won = self._objects.create(cut_key(number, part), data, max_bytes=JSON_BYTES_MAX).won
        if part is not Part.CLAIM:
            self._objects.confirm()
        return won


def _covers(cut: Cut, topics: Mapping[str, int] | None) -> bool:
    """Whether the cut is of all topics, or at least of these incarnations."""
    return cut.every_topic or (
        topics is not None and all(cut.find(*each) is not None for each in topics.items())
    )


def _needs_of(cut: Cut) -> _Needs:
    topics = {
        (intern(each.topic), each.incarnation): array("q", [log.snapshot for log in each.partitions])
        for each in cut.topics
    }
    groups = array("q", [log.snapshot for log in cut.groups])
    return _Needs(
        cut.expires_ms, cut.expires_ms - cut.created_ms, {**topics, (CONSUMER_OFFSETS_TOPIC, 0): groups}
    )
