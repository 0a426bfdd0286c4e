"""The edge between the engine and the store: the store's errors leave here as the engine's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from storage import (
    FORMAT,
    BucketNotFoundError,
    DamagedObjectError,
    InvalidKeyError,
    InvalidStoreUrlError,
    MappableStore,
    NotAFolderError,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStore,
    ObjectTooLargeError,
    PutOutcome,
    PutOutcomeUnknownError,
    SpoolingStore,
    StorageError,
    StoreUnreachableError,
    UnknownFormatError,
    put_patiently,
    settle_put_if_absent,
    stored_columns,
    stored_footer,
)
from storage import decode_json as storage_decode_json
from storage import encode_json as storage_encode_json
from storage.parquet_footer import Footer
from storage.patience import jittered_pause
from storage.reasons import StoreReason
from txn_engine.errors import (
    CorruptObjectError,
    InvalidRequestError,
    OutcomeUnknownError,
    StoreAccessError,
    StoreFaultError,
    StoreNotFoundError,
    StoreUnavailableError,
    TxnEngineError,
    UnsupportedFormatError,
)
from txn_engine.reasons import Reason

Named = TypeVar("Named")
_FAULTS = frozenset(
    {
        StoreReason.NO_ROOM,
        StoreReason.READ_ONLY,
        StoreReason.TOO_MANY_OPEN_FILES,
        StoreReason.DISK_FAILED,
        StoreReason.SYNC_FAILED_BEFORE,
        StoreReason.NOT_CONFIRMED,
    }
)


def translated(error: StorageError) -> TxnEngineError:
    """The engine's error for one of the store's, with the same words."""
    kind: type[TxnEngineError]
    if isinstance(error, UnknownFormatError):
        kind = UnsupportedFormatError
    elif isinstance(error, DamagedObjectError):
        kind = CorruptObjectError
    elif isinstance(error, PutOutcomeUnknownError):
        kind = OutcomeUnknownError
    elif isinstance(error, StoreUnreachableError):
        kind = StoreUnavailableError
    elif isinstance(error, ObjectNotFoundError):
        kind = CorruptObjectError
    elif isinstance(error, (InvalidStoreUrlError, InvalidKeyError, ObjectTooLargeError)):
        kind = InvalidRequestError
    elif isinstance(error, BucketNotFoundError):
        kind = StoreNotFoundError
    elif error.reason in _FAULTS:
        kind = StoreFaultError
    else:
        kind = StoreAccessError
    return kind(
        error.seen,
        actor=error.actor,
        place=error.place,
        expected=error.expected,
        action=error.action,
        reason=error.reason,
    )


class _StoreErrors:
    """A class and one object of it: a generator a call would be a good part of what a call of the store costs here."""

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, StorageError):
            raise translated(error) from error


class _WriteErrors:
    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, StorageError):
            found = translated(error)
            if isinstance(found, StoreAccessError):
                found.of_a_write = True
            raise found from error


_STORE_ERRORS, _WRITE_ERRORS = _StoreErrors(), _WriteErrors()


def store_errors() -> AbstractContextManager[None]:
    """Raise the engine's errors for the store's."""
    return _STORE_ERRORS


def write_errors() -> AbstractContextManager[None]:
    """As `store_errors`; a refusal says that it was one of a write."""
    return _WRITE_ERRORS


class Identity(Protocol):
    """Knows which store it is that objects are written to; `StoreIdentity` says how."""

    def check_lately(self, within_ms: int) -> None:
        """Raise for another store."""

    def check(self) -> None:
        """As `check_lately`, by a look that begins now."""

    def confirm(self) -> None:
        """As `check`, by a look that begins now, once something was written."""


SEEN_LATELY_MS = 5_000
"""What a client believes of the store's identity, of a topic and of settings is that old at most."""
_BEFORE_REMOVAL_MS = 1_000


class Objects:
    """The store's operations that the engine uses, with the engine's errors.

    identity: of the store that was opened. Where it is given nothing is written that begins five seconds after the last
    look at it, and nothing overwritten or deleted one second after, without a look.
    """

    def __init__(
        self,
        store: ObjectStore,
        pause: Callable[[int], None] = jittered_pause,
        identity: Identity | None = None,
    ) -> None:
        self.store = store
        self.place = store
        """Where the store is: another one than `store` where it was restored, which is in a folder of its place."""
        self._pause = pause
        self._identity = identity
        self._map = store.map if isinstance(store, MappableStore) else None
        self._spool = store.spool if isinstance(store, SpoolingStore) else None

    def beside(self, store: ObjectStore) -> Objects:
        """The operations of another store, with the pauses of this one."""
        return Objects(store, self._pause)

    def of_store(self, store: ObjectStore, identity: Identity | None = None) -> Objects:
        """Those of the store that is at this place."""
        found = Objects(store, self._pause, identity)
        found.place = self.place
        return found

    def check_identity(self) -> None:
        """Raise `InconsistentClusterIdError` where another store was seen here, by a look of the last five seconds."""
        if self._identity is not None:
            self._identity.check_lately(SEEN_LATELY_MS)

    def check_identity_now(self) -> None:
        """As `check_identity`, by a look that begins now: before something is answered from what was read earlier."""
        if self._identity is not None:
            self._identity.check()

    def confirm(self) -> None:
        """What was written until now went into the store that was opened: to be asked before it is acknowledged.

        `InconsistentClusterIdError` where it may not have; `OutcomeUnknownError` where nobody can tell.
        """
        if self._identity is not None:
            self._identity.confirm()

    @property
    def is_near(self) -> bool:
        """Whether an object is a file away, and no round trip: a look at it costs less than a thread that does."""
        return self._map is not None

    def find(self, key: str, *, max_bytes: int) -> bytes | None:
        """The whole object, or None where there is none. `CorruptObjectError` for one of more than `max_bytes`, which
        is what its kind may have: it is not read.
        """
        with store_errors():
            try:
                return self.store.get(key, max_bytes=max_bytes)
            except NotAFolderError:
                raise  # damage: what was there may have been anything
            except ObjectNotFoundError:
                return None

    def read(self, key: str, *, max_bytes: int) -> bytes | memoryview:
        """The whole object, without a copy where the store can, and else of at most `max_bytes`, on the local disk if
        it is large. A missing one is `CorruptObjectError`: something named it.
        """
        with store_errors():
            try:
                if self._map is not None:
                    return self._map(key)
                if self._spool is not None:
                    return self._spool(key, max_bytes=max_bytes)
                return self.store.get(key, max_bytes=max_bytes)
            except ObjectNotFoundError as error:
                self.check_identity_now()
                raise CorruptObjectError(
                    "the object is gone",
                    place=key,
                    expected="a file that the log names",
                    action="a file that was rewritten, trimmed or aborted stays for 24 hours: plan the read again;"
                    " if that misses it too, run `txn-engine verify`",
                    reason=Reason.OBJECT_GONE,
                ) from error

    def columns(self, key: str, size: int) -> pa.Schema:
        """The columns of a Parquet object of so many bytes, by its footer alone: nothing else of it is read or checked.
        `CorruptObjectError` where it has no such footer, or is gone.
        """
        with store_errors():
            return stored_columns(self.store, key, size)

    def footer(self, key: str, size: int) -> Footer:
        """What the footer of a Parquet object says. As `columns`."""
        with store_errors():
            return stored_footer(self.store, key, size)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """These bytes of an object that something names. `CorruptObjectError` where it is missing or shorter."""
        with store_errors():
            return self.store.get_range(key, start, length)

    def exists(self, key: str) -> bool:
        """Whether there is an object."""
        with store_errors():
            try:
                self.store.head(key)
            except NotAFolderError:
                raise
            except ObjectNotFoundError:
                return False
            return True

    def size_of(self, key: str) -> int:
        """The object's size; 0 where there is none."""
        with store_errors():
            try:
                return self.store.head(key).size
            except NotAFolderError:
                raise
            except ObjectNotFoundError:
                return 0

    def modified_ms(self, key: str) -> int:
        """When the object was written, by the store's clock; 0 where there is none, or the store does not say."""
        with store_errors():
            try:
                return self.store.head(key).modified_ms
            except NotAFolderError:
                raise
            except ObjectNotFoundError:
                return 0

    def create(self, key: str, data: bytes, *, max_bytes: int) -> PutOutcome:
        """Put-if-absent, settled by reading back. `OutcomeUnknownError` where that cannot be learned;
        `CorruptObjectError` where something stands there that is larger than `max_bytes`, and than `data`.

        Nothing is acknowledged by this alone: `confirm` is to be asked.
        """
        self.check_identity()
        with write_errors():
            return settle_put_if_absent(self.store, key, data, pause=self._pause, max_bytes=max_bytes)

    def ours(
        self, prefix: str, parse: Callable[[str], Named], *, start_after: str | None = None
    ) -> Iterator[tuple[ObjectInfo, Named]]:
        """What is below a prefix under a name that the format gives there, each with what `parse` makes of its key.

        A key that `parse` refuses with `InvalidKeyError` is somebody else's: it is passed over, and `verify` names it.
        """
        for info in self.infos(prefix, start_after=start_after):
            try:
                yield info, parse(info.key)
            except InvalidKeyError:
                continue

    def infos(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """What is below a prefix, by ascending key, a page at a time."""
        with store_errors():
            yield from self.store.list(prefix, start_after=start_after)

    def overwrite(self, key: str, data: bytes) -> None:
        """Put the object, whatever is there: for seals, and hints of tables. After an error it may be there or not."""
        self._check_before_removal()
        with write_errors():
            put_patiently(self.store, key, data, pause=self._pause)

    def remove(self, key: str) -> None:
        """Delete the object; an absent one is fine."""
        self._check_before_removal()
        with write_errors():
            self.store.delete(key)

    def _check_before_removal(self) -> None:
        if self._identity is not None:
            self._identity.check_lately(_BEFORE_REMOVAL_MS)

    def folders(self, prefix: str) -> list[str]:
        """The names of the folders right below a prefix."""
        with store_errors():
            return self.store.list_folders(prefix)

    def uri(self, key: str) -> str:
        """What another engine opens the object by."""
        return self.store.uri(key)


def encode_json(value: Mapping[str, Any], kind: str, *, written_format: str = FORMAT) -> bytes:
    """A JSON object that checks itself; `InvalidRequestError` for one that is larger than readers take."""
    with store_errors():
        return storage_encode_json(value, kind, written_format=written_format)


def decode_json(
    data: bytes, *, key: str, kind: str, needed: Collection[str], formats: Collection[str] = (FORMAT,)
) -> dict[str, Any]:
    """The object's fields; `CorruptObjectError` where it is damaged, or lacks one that is needed.

    `UnsupportedFormatError` where another version of the format wrote it.
    """
    with store_errors():
        values = storage_decode_json(data, key=key, kind=kind, formats=formats)
    check_fields(values, needed, key=key, kind=kind)
    return values


def check_fields(held: Collection[str], needed: Collection[str], *, key: str, kind: str) -> None:
    """Raise `CorruptObjectError` unless the object has every field that is needed."""
    if not isinstance(held, Collection):
        raise CorruptObjectError(f"{held!r:.80}", place=key, expected=f"the fields of a {kind} object")
    missing = [name for name in needed if name not in held]
    if missing:
        raise CorruptObjectError(
            f"no {', '.join(missing)}",
            place=key,
            expected=f"every field of a {kind} object",
            reason=Reason.MISSING_FIELD,
        )


def checked_number(values: Mapping[str, Any], name: str, low: int, high: int, *, key: str) -> int:
    """The field, a whole number from `low` to `high`; `CorruptObjectError` for anything else."""
    value = values[name]
    if type(value) is not int or not low <= value <= high:
        raise CorruptObjectError(f"{name} {value!r:.80}", place=key, expected=f"{low} to {high}")
    return value


def checked_text(values: Mapping[str, Any], name: str, *, key: str) -> str:
    """The field, a text that UTF-8 can hold; `CorruptObjectError` for anything else."""
    value = values[name]
    if not isinstance(value, str) or not value.isprintable():
        raise CorruptObjectError(f"{name} {value!r:.80}", place=key, expected="printable text")
    return value
