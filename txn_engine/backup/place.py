"""Where backups of one store are kept: a folder or a prefix (docs/FORMAT.md, "Backups").

Who makes a backup and who removes some put under the next number, if absent. So whoever has a number has judged all
that was done before: a backup goes by no object that a removal may delete.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any, Final

from storage import JSON_BYTES_MAX, InvalidKeyError, ObjectInfo, checksum_of, stored_checksum
from storage.reasons import StoreReason
from txn_engine.backup.held import Held
from txn_engine.backup.manifest import (
    FIRST,
    GENERATIONS,
    KIND,
    STATE_BYTES_MAX,
    LogRef,
    Manifest,
    Removal,
    Removed,
    StateRef,
    decoded_record,
    encoded_manifest,
    encoded_removal,
    encoded_removed,
)
from txn_engine.errors import CorruptObjectError, InvalidRequestError, StoreFaultError, TxnEngineError
from txn_engine.log.objects import Objects, checked_text, decode_json, encode_json, store_errors
from txn_engine.log.snapshot_format import decode_snapshot, encode_snapshot
from txn_engine.log.store_identity import STORE_KEY
from txn_engine.protocol.partition import PartitionState
from txn_engine.reasons import Reason
from txn_engine.unreadable import DAMAGE

PLACE_KEY: Final = "backup.json"
PLACE_KIND: Final = "backup_place"
_MANIFESTS: Final = "backups/"
_APART_MAX: Final = 1_000
"""Numbers are given one after the other and stay taken, so only a listing that is late leaves some out: fewer than so
many."""
_LOST_NAMED: Final = 20
_MANIFEST = re.compile(r"backups/([0-9]{20})\.json")
_COPY = re.compile(
    r"(?:generations/([0-9]{20})/)?"
    r"(states/[0-9a-f]{32}\.parquet|topics/[A-Za-z0-9._-]{1,249}/[0-9]{1,9}"
    r"(?:\.json|/(?:partitions|changes)/[0-9]{20}\.json|/[0-9]{1,9}/data/[^/]+\.parquet))"
)


def manifest_key(number: int) -> str:
    """The key of a backup's manifest."""
    return f"{_MANIFESTS}{number:020d}.json"


class BackupPlace:
    """The backups of one store. Threads may share it. `backup_id`: what tells this place from every other. `lost`: the
    error where backup.json is gone, and the manifests tell whose backups these are.
    """

    def __init__(
        self, objects: Objects, backup_id: str, store_id: str, lost: CorruptObjectError | None = None
    ) -> None:
        self.objects = objects
        self.backup_id = backup_id
        self.store_id = store_id
        self.lost = lost

    @classmethod
    def open(cls, objects: Objects) -> BackupPlace:
        """The place as it is there. Raises `InvalidRequestError` where there is none."""
        place = cls._find_place(objects)
        if place is None:
            raise InvalidRequestError(
                f"there are no backups here (no {PLACE_KEY})",
                place=objects.store.url,
                expected="where `txn-engine backup --to` has put some",
                action="check the URL",
                reason=Reason.NO_BACKUPS,
            )
        return place

    @classmethod
    def _find_place(cls, objects: Objects) -> BackupPlace | None:
        data = objects.find(PLACE_KEY, max_bytes=JSON_BYTES_MAX)
        if data is not None:
            try:
                return cls(objects, *_decoded(data))
            except CorruptObjectError as error:
                error.action = "move this object away: the manifests say whose backups these are"
                raise
        told = _told_by_manifests(objects)
        if told is None:
            return None
        lost = CorruptObjectError(
            f"no such object, but backups of store {told[1]} are here",
            actor="backup",
            place=objects.uri(PLACE_KEY),
            expected="what says whose backups these are",
            action="the next `txn-engine backup` of that store puts it again; backups can be restored without it",
            reason=Reason.BACKUP_PLACE_LOST,
        )
        return cls(objects, *told, lost)

    @classmethod
    def claim(cls, objects: Objects, store_id: str, created_ms: int, new_id: str) -> BackupPlace:
        """The place for this store's backups, begun where there is nothing yet.

        Raises `InvalidRequestError` where another store's backups are, or a store.
        """
        place = cls._find_place(objects)
        if place is None:
            if objects.exists(STORE_KEY) or objects.folders("topics"):
                raise InvalidRequestError(
                    "a store is here, or a part of one",
                    actor="backup",
                    place=objects.store.url,
                    expected="an empty place, or the one that has this store's backups",
                    action="name another place",
                    reason=Reason.PLACE_HOLDS_A_STORE,
                )
            place = cls._put_place(objects, new_id, store_id, created_ms)
        if place.store_id != store_id:
            raise InvalidRequestError(
                f"backups of store {place.store_id}",
                actor="backup",
                place=objects.store.url,
                expected=f"those of this store, {store_id}, or none",
                action="name another place",
                reason=Reason.PLACE_OF_ANOTHER_STORE,
            )
        if place.lost is not None:
            place = cls._put_place(objects, place.backup_id, store_id, created_ms)
        return place

    @classmethod
    def _put_place(cls, objects: Objects, backup_id: str, store_id: str, created_ms: int) -> BackupPlace:
        fields = {"backup_id": backup_id, "store_id": store_id, "created_ms": created_ms}
        data = encode_json(fields, PLACE_KIND)
        return cls(objects, *_decoded(objects.create(PLACE_KEY, data, max_bytes=JSON_BYTES_MAX).winner))

    @property
    def url(self) -> str:
        """The place's URL, without secrets."""
        return self.objects.store.url

    # --- backups --------------------------------------------------------------------------------------------

    def look(self, *, newest: bool = False) -> Held:
        """All that counts in the place; with `newest` as far down as it takes to know the newest sound backup and the
        generation.
        """
        while True:
            taken, stray, gaps = self._taken()
            held = Held(_end_of(taken), stray, gaps)
            self._look_down(held, taken, newest=newest)
            # A number whose backup was removed lies below the removal: else that came after the end was looked for.
            if not held.has_removed or self.end() == held.end:
                return held

    def _look_down(self, held: Held, taken: Sequence[range], *, newest: bool) -> None:
        for number in chain.from_iterable(map(reversed, reversed(taken))):
            record = self._record(number, held)
            if isinstance(record, Removal):
                held.removal = record
                self._look_at_kept(record, held, newest=newest)
                return
            held.has_removed |= isinstance(record, Removed)
            if isinstance(record, Manifest):
                held.backups[number] = record
                if newest and record.generation is not None:
                    return

    def _look_at_kept(self, removal: Removal, held: Held, *, newest: bool) -> None:
        for number, manifest in list(held.backups.items()):
            if manifest.generation is None or manifest.generation < removal.number:
                del held.backups[number]
                held.damaged[number] = self.damaged(
                    manifest_key(number),
                    "a backup by a program that did not know that others were removed",
                    f"one that knows of removal {removal.number}",
                    Reason.UNAWARE_OF_REMOVAL,
                )
        for number in reversed(removal.kept):
            if newest and held.backups:
                return
            record = self._record(number, held)
            held.has_removed |= isinstance(record, Removed)
            if isinstance(record, Manifest):
                held.backups[number] = record

    def _record(self, number: int, held: Held) -> Manifest | Removal | Removed | None:
        try:
            return self._find(number)
        except DAMAGE as error:
            held.damaged[number] = error
            return None

    def end(self) -> int:
        """After the last number that is taken; a listing may not show that yet."""
        return _end_of(self._taken()[0])

    def _taken(self) -> tuple[list[range], dict[int, TxnEngineError], list[range]]:
        """The numbers that are taken, ascending; what is wrong with stray ones: far above those below them, and not
        readable either; and the numbers that the listing leaves out below the last one.
        """
        taken: list[range] = []
        stray: dict[int, TxnEngineError] = {}
        gaps: list[range] = []
        for number in sorted(number for _, number in self.objects.ours(_MANIFESTS, _parse_manifest)):
            end = _end_of(taken)
            if number - end < _APART_MAX:
                taken.append(range(end, number + 1))
                gaps.append(range(end, number))
                continue
            looked = Held(number)
            if self._record(number, looked) is not None:  # those below it were taken away
                taken.append(range(number, number + 1))
                gaps.append(range(end, number))
            elif looked.damaged:
                stray[number] = self._stray(number, end, looked.damaged[number])
        end = number = _end_of(taken)
        while self.objects.exists(manifest_key(number)):
            number += 1
        return [*taken, range(end, number)], stray, gaps

    def _stray(self, number: int, end: int, error: TxnEngineError) -> CorruptObjectError:
        return CorruptObjectError(
            f"an object that is no backup, under a number far above the last one ({end - 1}): {error.seen}",
            actor="backup",
            place=self._named(manifest_key(number)),
            expected=f"backups under consecutive numbers; the next one is {end}",
            action="remove this object: no backup needs it",
            reason=Reason.MANIFEST_DAMAGED,
        )

    def lost_manifests(self, held: Held) -> list[TxnEngineError]:
        """An error for each number, of twenty at most, whose manifest is gone: the number of a backup stays taken, also
        once that was removed.
        """
        missing = islice(chain.from_iterable(held.gaps), _LOST_NAMED)
        return [
            self.damaged(manifest_key(number), "no such object", "the manifest of a backup that was made")
            for number in missing
            if not self.objects.exists(manifest_key(number))
        ]

    def manifest(self, number: int | None = None) -> Manifest:
        """The backup of this number, or the one of the newest cut. Raises `InvalidRequestError` where there is none,
        and `CorruptObjectError` where it is damaged, or where what may be of a newer cut is.
        """
        held = self.look(newest=number is not None)
        if number is None:
            number = max(held.backups.values(), key=Manifest.recency).number if held.backups else -1
            if (damaged := max(held.damaged, default=-1)) >= held.of_earlier_cuts:
                raise self._newer_damaged(held.damaged[damaged], number)
        elif type(number) is not int or not 0 <= number < 1 << 63:
            raise InvalidRequestError(f"backup {number!r:.40}", expected="the number of a backup")
        elif number not in held.backups and self._counts(number, held):
            found = self._record(number, held)
            held.backups |= {number: found} if isinstance(found, Manifest) else {}
        if (error := held.damaged.get(number, held.stray.get(number))) is not None:
            raise error
        if number not in held.backups:
            raise InvalidRequestError(
                "there is no finished backup" if number < 0 else f"there is no backup {number}",
                place=self.url,
                expected="one that `txn-engine backup list` shows: a backup that was cut off is none",
                action="run `txn-engine backup` again: it goes on" if number < 0 else "name another one",
                reason=Reason.BACKUP_NOT_FOUND,
            )
        return held.backups[number]

    def _newer_damaged(self, error: TxnEngineError, sound: int) -> TxnEngineError:
        """The error of a damaged backup that may be the newest, with the way to another one."""
        if sound >= 0:
            error.action = f"name a sound one: --number {sound}"
        return error

    def modified(self) -> dict[int, int]:
        """When each number was put, by the store's clock, in milliseconds."""
        return {number: info.modified_ms for info, number in self.objects.ours(_MANIFESTS, _parse_manifest)}

    def _counts(self, number: int, held: Held) -> bool:
        """Whether no removal has removed what is there. One that is damaged tells nothing."""
        last = held.last_removal
        removal = held.removal or (self._record(last, held) if last >= 0 else None)
        return not isinstance(removal, Removal) or number > last or number in removal.kept

    def _find(self, number: int) -> Manifest | Removal | Removed | None:
        """What stands under this number. `CorruptObjectError` where it is damaged."""
        key = manifest_key(number)
        data = self.objects.find(key, max_bytes=JSON_BYTES_MAX)
        if data is None:
            return None
        held = decode_json(data, key=self._named(key), kind=KIND, needed=())
        return decoded_record(held, self._named(key), number, self.store_id)

    def put_manifest(self, manifest: Manifest, write_id: str) -> bool:
        """Let the backup be; False where its number is another backup's: the next one may be free. Raises
        `OvertakenError` where it is something else, and what the backup was judged by holds no more.
        """
        if self._put(manifest.number, encoded_manifest(manifest), write_id):
            return True
        held = Held(manifest.number)
        if isinstance(self._record(manifest.number, held), Manifest):
            return False
        raise OvertakenError

    def put_removal(self, removal: Removal, write_id: str) -> bool:
        """Let the others be backups no more; False where the number is another's, and all has to be judged anew."""
        try:
            return self._put(removal.number, encoded_removal(removal), write_id)
        except StoreFaultError as error:
            if error.reason is not StoreReason.NO_ROOM:
                raise
            raise StoreFaultError(
                f"{error.seen}, and a removal begins with an object that says which backups stay",
                actor="prune",
                place=error.place,
                expected="room for some kilobytes",
                action="nothing was removed: enlarge the disk, or make room by something else on it, then prune again;"
                " remove no object of a backup by hand",
                reason=error.reason,
            ) from error

    def _put(self, number: int, fields: dict[str, Any], write_id: str) -> bool:
        data = encode_json({**fields, "write_id": write_id}, KIND)
        return self.objects.create(manifest_key(number), data, max_bytes=JSON_BYTES_MAX).won

    def seal_others(self, removal: Removal) -> None:
        """Take the contents of what a removal has removed; the numbers stay taken."""
        kept = {removal.number, *removal.kept}
        for info, number in self.objects.ours(_MANIFESTS, _parse_manifest):
            data = encode_json(encoded_removed(Removed(number)), KIND)
            if number < removal.number and number not in kept and info.size != len(data):
                self.objects.overwrite(info.key, data)

    def copies(self, topic: str = "", incarnation: int = 0) -> Iterator[tuple[ObjectInfo, int, str]]:
        """What backups consist of besides manifests, needed or not: each with its generation and its key in the store;
        all of it, or what is of one topic. Other objects are nobody's here, and passed over.
        """
        below = [f"topics/{topic}/{incarnation}"] if topic else ["states", "topics"]
        folders = [f"{GENERATIONS}/{each}" for each in self.objects.folders(GENERATIONS)]
        for prefix in [*below, *(f"{folder}/{each}" for folder in folders for each in below)]:
            for info, (generation, key) in self.objects.ours(prefix, _parse_copy):
                yield info, generation, key

    # --- states ---------------------------------------------------------------------------------------------

    def put_state(self, state: PartitionState, known: StateRef, generation: int) -> StateRef:
        """Keep the state of a log. The same state is the same object: `known` is one that an earlier backup has put,
        which is put again if it is gone.
        """
        data = encode_snapshot(state)
        ref = StateRef(stored_checksum(data), len(data), generation)
        if ref == known and self.objects.size_of(known.key) == known.bytes:
            return known
        if not self.objects.create(ref.key, data, max_bytes=STATE_BYTES_MAX).won:
            raise self.damaged(ref.key, "another object", f"one of checksum {ref.checksum}")
        return ref

    def state(self, log: LogRef) -> PartitionState:
        """The state of a log; the empty one where nothing of it is inside. `CorruptObjectError` for one that is gone or
        damaged.
        """
        if not log.state.checksum:
            return PartitionState()
        key = log.state.key
        data = self.objects.find(key, max_bytes=STATE_BYTES_MAX)
        if data is None:
            raise self.damaged(key, "no such object", f"the state of {log.topic}-{log.partition}")
        with store_errors():
            checksum = checksum_of(data, self._named(key))
        state = decode_snapshot(data, key=self._named(key))
        is_at = log.is_internal or state.log_end_offset == log.offset
        if checksum != log.state.checksum or not is_at:
            raise self.damaged(
                key,
                f"checksum {checksum}, a state at {state.log_end_offset}",
                f"one at {log.offset}",
                Reason.OTHER_STATE,
            )
        return state

    # --- what went wrong ------------------------------------------------------------------------------------

    def damaged(self, key: str, seen: str, expected: str, reason: Reason | None = None) -> CorruptObjectError:
        """For an object of the place that is not what it should be."""
        return CorruptObjectError(
            seen,
            actor="backup",
            place=self._named(key),
            expected=expected,
            action="use another backup; `txn-engine backup verify` names all that is damaged",
            reason=reason,
        )

    def _named(self, key: str) -> str:
        return self.objects.uri(key)


def _end_of(taken: Sequence[range]) -> int:
    return taken[-1].stop if taken else 0


class OvertakenError(Exception):
    """Backups were removed meanwhile: what was copied may be gone. Begin anew."""


def _parse_manifest(key: str) -> int:
    found = _MANIFEST.fullmatch(key)
    if found is None or int(found[1]) >= 1 << 63:
        raise InvalidKeyError(f"{key[:200]!r} names no backup", actor="keys", place=_MANIFESTS)
    return int(found[1])


def _parse_copy(key: str) -> tuple[int, str]:
    found = _COPY.fullmatch(key)
    if found is None or int(found[1] or 0) >= 1 << 63:
        raise InvalidKeyError(f"{key[:200]!r} is of no backup", actor="keys")
    return (FIRST if found[1] is None else int(found[1])), found[2]


def _told_by_manifests(objects: Objects) -> tuple[str, str] | None:
    """What stands for the place's id, and the store's id, as the first sound manifest says them; None without one."""
    for number in sorted(number for _, number in objects.ours(_MANIFESTS, _parse_manifest)):
        key = manifest_key(number)
        with suppress(*DAMAGE):
            data = objects.find(key, max_bytes=JSON_BYTES_MAX)
            held = None if data is None else decode_json(data, key=key, kind=KIND, needed=())
            if data is not None and held is not None and "store_id" in held:
                store_id = checked_text(held, "store_id", key=key)
                decoded_record(held, key, number, store_id)
                return hashlib.sha256(data).hexdigest()[:32], store_id
    return None


def _decoded(data: bytes) -> tuple[str, str]:
    held: dict[str, Any] = decode_json(data, key=PLACE_KEY, kind=PLACE_KIND, needed=("backup_id", "store_id"))
    return checked_text(held, "backup_id", key=PLACE_KEY), checked_text(held, "store_id", key=PLACE_KEY)
