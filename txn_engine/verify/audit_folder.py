"""What a sound audit keeps for the next one of the same store: how far it came, and what it knows there.

One file in a folder of its owner's. It is a cache: of another version, damaged or gone, everything is read again.
It is a pickle (`pickling`), read only after its checksum was found right.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import xxhash

from storage.errors import StorageError
from storage.store import ObjectStore
from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason
from txn_engine.verify.coordinator_audit import CoordinatorAudit
from txn_engine.verify.descriptors import Batch
from txn_engine.verify.findings import Place
from txn_engine.verify.judged_entry import JudgedEntry
from txn_engine.verify.partition_audit import PartitionAudit
from txn_engine.verify.pickling import UnpicklableError, pickled, unpickled
from txn_engine.verify.producer_rules import UsedBlocks

_FILE: Final = "verify.audit"
_HEAD_MAX: Final = 4_096
_SAVE_EVERY_SECONDS: Final = 60
_SAVE_SHARE: Final = 20  # an audit takes at least so many times as long as saving what it found


@dataclass(slots=True)
class KeptAudit:
    """An audit as far as it came: who decided, each log, and what is judged at the end only."""

    coordinator: CoordinatorAudit
    logs: dict[Place, PartitionAudit] = field(default_factory=dict)
    ids: UsedBlocks = field(default_factory=UsedBlocks)
    deferred: list[tuple[JudgedEntry, Batch]] = field(default_factory=list)


class AuditFolder:
    """The folder of one store's audits.

    whole: read everything, whatever is kept. `whole_for` says why nothing kept was used; empty where it was.
    InvalidRequestError: others may write to the folder, or it keeps an audit of another store.
    """

    def __init__(self, folder: Path, store: ObjectStore, *, whole: bool = False) -> None:
        self._path = folder / _FILE
        self._store = store
        self._whole = whole
        self._saved_at = time.monotonic()
        self._saving_took = 0.0
        self.whole_for = ""
        _own(folder)
        self._head = {"store": store.url, "store_object": _digest_of(store), "code": _digest_of_code()}

    def load(self, shared: Mapping[str, object]) -> KeptAudit | None:
        """What was kept, on top of what is `shared` with this audit; None where everything has to be read."""
        payload = self._read()
        if payload is None:
            return None
        try:
            held = unpickled(payload, shared)
        except UnpicklableError as error:
            self.whole_for = f"what the last audit kept cannot be read: {error}"
            return None
        coordinator, logs, ids, deferred = held
        return KeptAudit(coordinator, logs, ids, deferred)

    def is_time_to_save(self) -> bool:
        """Whether an audit under way should save how far it is."""
        waited = time.monotonic() - self._saved_at
        return waited > max(_SAVE_EVERY_SECONDS, _SAVE_SHARE * self._saving_took)

    def save(self, kept: KeptAudit, shared: Mapping[str, object]) -> None:
        """Keep this instead of what was kept; in one step, so that a killed audit leaves the one or the other."""
        started = time.monotonic()
        payload = pickled((kept.coordinator, kept.logs, kept.ids, kept.deferred), shared)
        head = {**self._head, "checksum": xxhash.xxh3_128_hexdigest(payload)}
        scratch = self._path.with_name(f"{_FILE}.{os.getpid()}")
        try:
            with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(json.dumps(head).encode() + b"\n")
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(self._path)
        except OSError as error:
            with suppress(OSError):
                scratch.unlink()
            raise _refused(
                self._path.parent,
                error.strerror or str(error),
                "a folder with room that can be written to",
                Reason.FOLDER_UNUSABLE,
            ) from error
        self._saved_at = time.monotonic()
        self._saving_took = self._saved_at - started

    def _read(self) -> bytes | None:
        try:
            with self._path.open("rb") as file:
                line = file.readline(_HEAD_MAX)
                payload = file.read()
        except FileNotFoundError:
            self.whole_for = "there was no audit before"
            return None
        except OSError as error:
            self.whole_for = f"what the last audit kept cannot be read: {error.strerror}"
            return None
        head = _parsed(line)
        if head.get("checksum") != xxhash.xxh3_128_hexdigest(payload):
            self.whole_for = "what the last audit kept is damaged"
        elif head.get("store") != self._store.url:
            seen = f"an audit of another store, {head.get('store')}"
            raise _refused(
                self._path.parent, seen, f"one of {self._store.url}", Reason.AUDIT_OF_ANOTHER_STORE
            )
        elif head.get("store_object") != self._head["store_object"]:
            self.whole_for = "the store was made anew since"
        elif head.get("code") != self._head["code"]:
            self.whole_for = "the last audit was made by another version"
        elif self._whole:
            self.whole_for = "that was asked for"
        else:
            return payload
        return None


def _own(folder: Path) -> None:
    """Make the folder, or see that nobody else may write to it: what it says is believed."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise _refused(
            folder, error.strerror or str(error), "a folder of yours", Reason.FOLDER_UNUSABLE
        ) from error
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        seen = f"a folder of user {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}"
        raise _refused(
            folder, seen, "one that only you may write to: its content is believed", Reason.NOT_PRIVATE
        )


def _refused(folder: Path, seen: str, expected: str, reason: Reason) -> InvalidRequestError:
    return InvalidRequestError(
        seen,
        actor="verify",
        place=str(folder),
        expected=expected,
        action="name another folder; each store has one of its own",
        reason=reason,
    )


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        head = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return head if isinstance(head, dict) else {}


def _digest_of(store: ObjectStore) -> str:
    """Which store it is: its own object, which is written once. Empty where it does not tell."""
    try:
        return xxhash.xxh3_128_hexdigest(store.get("store.json", max_bytes=1 << 20))
    except StorageError:
        return ""


def _digest_of_code() -> str:
    """What judged: an audit by other rules, or by another reader of Parquet, is made again."""
    digest = blake2b(pa.__version__.encode(), digest_size=16)
    here = Path(__file__).parent
    for source in sorted([*here.glob("*.py"), *(here.parents[1] / "storage").glob("*.py")]):
        digest.update(source.read_bytes())
    return digest.hexdigest()
