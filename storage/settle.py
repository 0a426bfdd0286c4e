"""What became of a put: the one place that turns a store's answers into won or lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from storage.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    InTheWayError,
    InvalidKeyError,
    NotConnectedError,
    ObjectNotFoundError,
    OversizedObjectError,
    PutIfAbsentUnsupportedError,
    PutOutcomeUnknownError,
    StorageError,
    StoreNotWritableError,
    StoreUnreachableError,
)
from storage.keys import validate_key
from storage.patience import JOB_PATIENCE, Waits, jittered_pause
from storage.reasons import StoreReason
from storage.store import ObjectStore, PatientStore

_NOTHING_WRITTEN = (
    AccessDeniedError,
    BucketNotFoundError,
    InTheWayError,
    NotConnectedError,
    PutIfAbsentUnsupportedError,
    StoreNotWritableError,
)


@dataclass(frozen=True, slots=True)
class PutOutcome:
    """Who holds the key: `won` says whether it is us, `winner` is the whole object there now."""

    won: bool
    winner: bytes


def settle_put_if_absent(
    store: ObjectStore,
    key: str,
    data: bytes,
    *,
    attempts: int = 5,
    pause: Callable[[int], None] = jittered_pause,
    max_bytes: int | None = None,
) -> PutOutcome:
    """Create the object or learn who did, and never guess.

    Guarantee: `won=True` means that exactly these bytes are at the key; `won=False` that other bytes are,
    and which. Any doubt is PutOutcomeUnknownError. Only these bytes are ever sent to this key, at most
    `attempts` times. A try that the store answers with "busy" is not counted: it is made again for as long as
    the store's patience says, each time after the key was read as absent. The bytes must be the writer's own
    (carry a write id): two writers of equal bytes are both told that they won.

    True from the store is believed. After anything else the key is read back and compared as a whole,
    because a store may answer with an error, or "already there" to a resent request, after it stored the
    object. Absent means that the same bytes may be sent again. A read that fails is tried again within the
    same bound.

    An error that proves that nothing was written is raised as itself, where no earlier try of this call may
    have been: access denied, no such bucket, not writable, something in the way, put-if-absent unknown to the
    store (each of them after the key was read as absent, or reading was refused likewise), and no connection
    at all. A store checks these before it takes the bytes. After a try with any other answer the request may
    still land, so that the same error then is PutOutcomeUnknownError. An unreachable store is not asked again
    and again: the answer comes within 20 seconds.

    max_bytes: what an object at this key may have. A larger one is not ours, is not read, and is raised as
    OversizedObjectError.
    """
    if attempts < 1:
        raise ValueError(f"attempts must be at least 1, not {attempts}")
    validate_key(key)
    most = None if max_bytes is None else max(max_bytes, len(data))
    problem: StorageError | None = None
    may_have_landed = False
    waits: Waits | None = None
    tried = sent = 0
    while True:
        sent += 1
        problem = None
        try:
            if store.put_if_absent(key, data):
                return PutOutcome(won=True, winner=data)
        except InvalidKeyError:
            raise
        except StorageError as error:
            problem = error
        may_have_landed = may_have_landed or not isinstance(problem, _NOTHING_WRITTEN)
        refusal = None if may_have_landed else problem
        winner = _read_back(store, key, attempts, pause, refusal, most)
        if winner is not None:
            return PutOutcome(won=winner == data, winner=winner)
        if refusal is not None and not isinstance(refusal, NotConnectedError):
            raise refusal
        if problem is not None and problem.reason is StoreReason.BUSY:
            waits = waits or _waits_for(store, pause)
            if waits.again(problem):
                continue
            break
        tried += 1
        if tried == attempts:
            break
        pause(tried)
    if problem is not None and not may_have_landed:
        raise problem
    raise _unknown(store, key, f"the object was still absent after {sent} tries", problem)


def put_patiently(
    store: ObjectStore, key: str, data: bytes, *, pause: Callable[[int], None] = jittered_pause
) -> None:
    """Create or overwrite the object. While the store answers that it is busy, the put is sent again.

    For what may be written twice: after an error, and after a try that was answered with "busy", the bytes may be
    there, or come there later.
    """
    waits = _waits_for(store, pause)
    while True:
        try:
            store.put(key, data)
        except StoreUnreachableError as error:
            if error.reason is not StoreReason.BUSY or not waits.again(error):
                raise
        else:
            return


def _waits_for(store: ObjectStore, pause: Callable[[int], None]) -> Waits:
    return Waits(store.patience if isinstance(store, PatientStore) else JOB_PATIENCE, pause=pause)


def _read_back(
    store: ObjectStore,
    key: str,
    attempts: int,
    pause: Callable[[int], None],
    refusal: StorageError | None,
    max_bytes: int | None,
) -> bytes | None:
    """Return what is at the key, None for nothing; raise when that cannot be learned.

    `refusal`: the error that proves that nothing of ours can be there, if it is so.
    """
    for attempt in range(1, attempts + 1):
        try:
            return store.get(key, max_bytes=max_bytes)
        except ObjectNotFoundError:
            return None
        except OversizedObjectError:
            raise
        except StorageError as error:
            if refusal is not None and isinstance(error, (*_NOTHING_WRITTEN, StoreUnreachableError)):
                raise refusal from error
            problem = error
        if isinstance(problem, StoreUnreachableError):
            break  # the store has tried for seconds already
        if attempt < attempts:
            pause(attempt)
    raise _unknown(store, key, "the put had no clear answer, and reading back failed", problem)


def _unknown(store: ObjectStore, key: str, seen: str, problem: StorageError | None) -> PutOutcomeUnknownError:
    error = PutOutcomeUnknownError(
        f"{seen}; last: {problem}" if problem else seen,
        actor="settle",
        place=store.uri(key),
        expected="to see these bytes, or another writer's, at the key",
        action="read the key again before anything else is written; never send other bytes on its account",
    )
    error.__cause__ = problem
    return error
