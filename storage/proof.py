"""Does this store refuse to overwrite? Everything rests on it, so it is tried, not believed."""

from __future__ import annotations

import contextlib
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

from storage.errors import PutIfAbsentUnsupportedError, StorageError
from storage.keys import validate_prefix
from storage.settle import PutOutcome, settle_put_if_absent
from storage.store import ObjectStore

_RACERS = 4


@dataclass(frozen=True, slots=True)
class PutIfAbsentProof:
    """What was seen: a fresh key won, a taken one refused with its bytes kept, and one winner of a race.

    latency_ms is that of the first put, race_ms that of the whole race of `racers` threads.
    """

    first_won: bool
    second_lost: bool
    bytes_kept: bool
    racers: int
    race_winners: int
    latency_ms: float
    race_ms: float


def prove_put_if_absent(store: ObjectStore, *, key_prefix: str = "probes/") -> PutIfAbsentProof:
    """Try put-if-absent on fresh keys and return what was seen, or raise PutIfAbsentUnsupportedError.

    A proof returned is a good one: every field is as it must be. Other errors of the store come as
    themselves. The probe's objects are removed again; where removing is not allowed they stay, a few bytes
    each.
    """
    folder = f"{validate_prefix(key_prefix)}{uuid.uuid4().hex}/"
    keys = [f"{folder}taken", f"{folder}race"]
    try:
        return _prove(store, *keys)
    finally:
        for key in keys:
            with contextlib.suppress(StorageError):
                store.delete(key)


def _prove(store: ObjectStore, taken: str, race: str) -> PutIfAbsentProof:
    first, second = b"first writer", b"second writer"
    started = time.perf_counter()
    won = settle_put_if_absent(store, taken, first).won
    latency_ms = (time.perf_counter() - started) * 1_000
    said_stored = store.put_if_absent(taken, second)
    kept = store.get(taken)
    if not won or said_stored or kept != first:
        raise _unsupported(
            store,
            "a second put to a taken key was "
            + ("not refused" if said_stored else "refused but changed the object"),
        )
    started = time.perf_counter()
    outcomes = _race(store, race)
    race_ms = (time.perf_counter() - started) * 1_000
    winners = sum(outcome.won for outcome in outcomes)
    if winners != 1 or len({outcome.winner for outcome in outcomes}) != 1:
        raise _unsupported(
            store, f"{winners} of {_RACERS} writers that raced for one key were told that they won"
        )
    return PutIfAbsentProof(
        first_won=won,
        second_lost=not said_stored,
        bytes_kept=kept == first,
        racers=_RACERS,
        race_winners=winners,
        latency_ms=latency_ms,
        race_ms=race_ms,
    )


def _race(store: ObjectStore, key: str) -> list[PutOutcome]:
    start = Barrier(_RACERS)

    def run(racer: int) -> PutOutcome:
        start.wait()
        return settle_put_if_absent(store, key, f"racer {racer}".encode())

    with ThreadPoolExecutor(_RACERS) as pool:
        return list(pool.map(run, range(_RACERS)))


def _unsupported(store: ObjectStore, seen: str) -> PutIfAbsentUnsupportedError:
    return PutIfAbsentUnsupportedError(
        seen,
        actor="proof of put-if-absent",
        place=store.url,
        expected="a PUT with If-None-Match: * to be refused when the key is taken",
        action="use a store that honours conditional writes; nothing was kept in this one",
    )
