"""Where backups of one store are kept: a folder or a prefix, in which nothing is ever overwritten (docs/FORMAT.md,
"Backups").
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final

from storage import JSON_BYTES_MAX, InvalidKeyError, checksum_of, stored_checksum
from txn_engine.backup.manifest import (
    KIND,
    STATE_BYTES_MAX,
    LogRef,
    Manifest,
    StateRef,
    decoded_manifest,
    encoded_manifest,
)
from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.log.objects import Objects, checked_text, decode_json, encode_json, store_errors
from txn_engine.log.snapshot_format import decode_snapshot, encode_snapshot
from txn_engine.log.store_config import STORE_KEY
from txn_engine.protocol.partition import PartitionState
from txn_engine.unreadable import DAMAGE

PLACE_KEY: Final = "backup.json"
PLACE_KIND: Final = "backup_place"
_MANIFESTS: Final = "backups/"
_MANIFEST = re.compile(r"backups/([0-9]{20})\.json")


def manifest_key(number: int) -> str:
    """The key of a backup's manifest."""
    return f"{_MANIFESTS}{number:020d}.json"


class BackupPlace:
    """The backups of one store. Threads may share it. `backup_id`: what tells this place from every other."""

    def __init__(self, objects: Objects, backup_id: str, store_id: str) -> None:
        self.objects = objects
        self.backup_id = backup_id
        self.store_id = store_id

    @classmethod
    def open(cls, objects: Objects) -> BackupPlace:
        """The place as it is there. Raises `InvalidRequestError` where there is none."""
        held = _place(objects)
        if held is None:
            raise InvalidRequestError(
                f"there are no backups here (no {PLACE_KEY})",
                place=objects.store.url,
                expected="where `txn-engine backup --to` has put some",
                action="check the URL",
            )
        return cls(objects, *held)

    @classmethod
    def claim(cls, objects: Objects, store_id: str, created_ms: int, new_id: str) -> BackupPlace:
        """The place for this store's backups, begun where there is nothing yet.

        Raises `InvalidRequestError` where another store's backups are, or a store.
        """
        held = _place(objects)
        if held is None:
            if objects.exists(STORE_KEY) or objects.folders("topics"):
                raise InvalidRequestError(
                    "a store is here, or a part of one",
                    actor="backup",
                    place=objects.store.url,
                    expected="an empty place, or the one that has this store's backups",
                    action="name another place",
                )
            fields = {"backup_id": new_id, "store_id": store_id, "created_ms": created_ms}
            data = encode_json(fields, PLACE_KIND)
            held = _decoded(objects.create(PLACE_KEY, data, max_bytes=JSON_BYTES_MAX).winner)
        place = cls(objects, *held)
        if place.store_id != store_id:
            raise InvalidRequestError(
                f"backups of store {place.store_id}",
                actor="backup",
                place=objects.store.url,
                expected=f"those of this store, {store_id}, or none",
                action="name another place",
            )
        return place

    @property
    def url(self) -> str:
        """The place's URL, without secrets."""
        return self.objects.store.url

    # --- backups --------------------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """The numbers of the backups that there are, ascending."""
        return [number for _, number in self.objects.ours(_MANIFESTS, _parse_manifest)]

    def manifest(self, number: int | None = None) -> Manifest:
        """The backup of this number, or the newest. Raises `InvalidRequestError` where there is none."""
        found = self.numbers() if number is None else [number]
        manifest = self.find(found[-1]) if found else None
        if manifest is None:
            raise InvalidRequestError(
                "there is no finished backup" if number is None else f"there is no backup {number}",
                place=self.url,
                expected="one that `txn-engine backup list` shows: a backup that was cut off is none",
                action="run `txn-engine backup` again: it goes on" if number is None else "name another one",
            )
        return manifest

    def newest_sound(self) -> Manifest | None:
        """The newest backup whose manifest is not damaged; None where there is none."""
        for number in reversed(self.numbers()):
            with suppress(*DAMAGE):
                return self.find(number)
        return None

    def find(self, number: int) -> Manifest | None:
        """The backup of this number; None where there is none. `CorruptObjectError` where it is damaged."""
        if type(number) is not int or not 0 <= number < 1 << 63:
            raise InvalidRequestError(f"backup {number!r:.40}", expected="the number of a backup")
        key = manifest_key(number)
        data = self.objects.find(key, max_bytes=JSON_BYTES_MAX)
        if data is None:
            return None
        held = decode_json(data, key=self._named(key), kind=KIND, needed=())
        return decoded_manifest(held, self._named(key), number, self.store_id)

    def put_manifest(self, manifest: Manifest, write_id: str) -> bool:
        """Let the backup be; False where its number is another's."""
        data = encode_json({**encoded_manifest(manifest), "write_id": write_id}, KIND)
        return self.objects.create(manifest_key(manifest.number), data, max_bytes=JSON_BYTES_MAX).won

    # --- states ---------------------------------------------------------------------------------------------

    def put_state(self, state: PartitionState, known: StateRef) -> StateRef:
        """Keep the state of a log. The same state is the same object: `known` is one that is there already."""
        data = encode_snapshot(state)
        ref = StateRef(stored_checksum(data), len(data))
        if ref != known and not self.objects.create(ref.key, data, max_bytes=STATE_BYTES_MAX).won:
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
                key, f"checksum {checksum}, a state at {state.log_end_offset}", f"one at {log.offset}"
            )
        return state

    # --- what went wrong ------------------------------------------------------------------------------------

    def damaged(self, key: str, seen: str, expected: str) -> CorruptObjectError:
        """For an object of the place that is not what it should be."""
        return CorruptObjectError(
            seen,
            actor="backup",
            place=self._named(key),
            expected=expected,
            action="use another backup; `txn-engine backup verify` names all that is damaged",
        )

    def _named(self, key: str) -> str:
        return self.objects.uri(key)


def _parse_manifest(key: str) -> int:
    found = _MANIFEST.fullmatch(key)
    if found is None or int(found[1]) >= 1 << 63:
        raise InvalidKeyError(f"{key[:200]!r} names no backup", actor="keys", place=_MANIFESTS)
    return int(found[1])


def _place(objects: Objects) -> tuple[str, str] | None:
    data = objects.find(PLACE_KEY, max_bytes=JSON_BYTES_MAX)
    return None if data is None else _decoded(data)


def _decoded(data: bytes) -> tuple[str, str]:
    held: dict[str, Any] = decode_json(data, key=PLACE_KEY, kind=PLACE_KIND, needed=("backup_id", "store_id"))
    return checked_text(held, "backup_id", key=PLACE_KEY), checked_text(held, "store_id", key=PLACE_KEY)
