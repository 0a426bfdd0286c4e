"""The outcome of a put is learned by reading the object back, whatever the store answered."""

from __future__ import annotations

import itertools
import random

import pytest

from storage import (
    AccessDeniedError,
    BucketNotFoundError,
    InTheWayError,
    InvalidKeyError,
    MemoryStore,
    NotConnectedError,
    PutIfAbsentUnsupportedError,
    PutOutcome,
    PutOutcomeUnknownError,
    StorageError,
    StoreNotWritableError,
    StoreUnreachableError,
    settle_put_if_absent,
)
from tests.support.faults import Fault, FaultyStore, faults, no_pause, raising

OURS, THEIRS = b"ours: write id 1", b"theirs: write id 2"
NOTHING_WRITTEN = [
    AccessDeniedError,
    BucketNotFoundError,
    InTheWayError,
    NotConnectedError,
    PutIfAbsentUnsupportedError,
    StoreNotWritableError,
]


def settle(store: FaultyStore, attempts: int = 5) -> PutOutcome:
    return settle_put_if_absent(store, "k", OURS, attempts=attempts, pause=no_pause)


def test_a_clear_win_reads_nothing() -> None:
    """A put that the store answers with True has won, and nothing is read."""
    store = FaultyStore(MemoryStore())
    assert settle(store) == PutOutcome(won=True, winner=OURS)
    assert store.calls == [("put_if_absent", "k", None)]


def test_a_clear_loss_gives_the_winner() -> None:
    """A taken key is read, and the loser gets the winner's bytes."""
    store = FaultyStore(MemoryStore())
    store.inner.put("k", THEIRS)
    assert settle(store) == PutOutcome(won=False, winner=THEIRS)


@pytest.mark.parametrize("fault", ["after", "taken_after"])
def test_stored_but_told_otherwise_is_won(fault: Fault) -> None:
    """If the store answers with an error or "already there" although it stored the object, our bytes are read
    back and the put has won."""
    store = FaultyStore(MemoryStore(), {"put_if_absent": faults(fault)})
    assert settle(store) == PutOutcome(won=True, winner=OURS)
    assert store.count("put_if_absent") == 1


def test_not_stored_is_sent_again() -> None:
    """After errors that stored nothing, the same bytes are put at the same key until one try succeeds."""
    store = FaultyStore(MemoryStore(), {"put_if_absent": faults("before", "before", "before")})
    assert settle(store).won
    assert store.inner.get("k") == OURS
    assert store.count("put_if_absent") == 4


def test_an_error_while_another_wins_is_lost() -> None:
    """If our try failed and another writer's object is there, the put is lost, with the winner's bytes."""
    store = FaultyStore(MemoryStore(), {"put_if_absent": faults("before")})
    store.inner.put("k", THEIRS)
    assert settle(store) == PutOutcome(won=False, winner=THEIRS)


def test_another_wins_between_our_tries() -> None:
    """If the key is absent at the first look and taken by another writer at our second try, the put is
    lost."""
    store = FaultyStore(MemoryStore(), {"put_if_absent": faults("before")})
    outcome = settle_put_if_absent(store, "k", OURS, pause=lambda _attempt: store.inner.put("k", THEIRS))
    assert outcome == PutOutcome(won=False, winner=THEIRS)


def test_bytes_that_begin_alike_are_not_ours() -> None:
    """The whole object is compared: a shorter or longer object with the same beginning is another
    writer's."""
    for theirs in (OURS[:-1], OURS + b"x", b""):
        store = FaultyStore(MemoryStore())
        store.inner.put("k", theirs)
        assert settle(store) == PutOutcome(won=False, winner=theirs)


def test_reads_are_tried_again() -> None:
    """A read-back that fails for a moment is repeated before anything is decided."""
    store = FaultyStore(MemoryStore(), {"put_if_absent": faults("after"), "get": faults("before", "before")})
    assert settle(store).won
    assert (store.count("put_if_absent"), store.count("get")) == (1, 3)


def test_reads_that_go_on_failing_leave_it_unknown() -> None:
    """If reads go on failing, the put is PutOutcomeUnknownError after one put and the given number of
    reads."""
    for fault in ("before", "after"):
        store = FaultyStore(MemoryStore(), {"put_if_absent": faults(fault), "get": faults(*["before"] * 9)})
        with pytest.raises(PutOutcomeUnknownError) as caught:
            settle(store, attempts=3)
        assert (store.count("put_if_absent"), store.count("get")) == (1, 3)
        assert "injected" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_unreachable_store_is_read_once() -> None:
    """A store that cannot be reached is read only once, because its client has tried for seconds already."""
    store = FaultyStore(
        MemoryStore(),
        {"put_if_absent": faults("before"), "get": faults("before", "before")},
        error=raising(StoreUnreachableError, "no answer in time"),
    )
    with pytest.raises(PutOutcomeUnknownError):
        settle(store)
    assert store.count("get") == 1


def test_still_absent_at_the_end_is_unknown() -> None:
    """If the object is still absent after all tries, the outcome is unknown, because a try may still land.
    The error counts the tries."""
    store = FaultyStore(MemoryStore(), {"put_if_absent": faults(*["before"] * 9)})
    with pytest.raises(PutOutcomeUnknownError) as caught:
        settle(store, attempts=3)
    assert store.count("put_if_absent") == 3
    assert isinstance(caught.value.__cause__, StorageError)


@pytest.mark.parametrize("kind", NOTHING_WRITTEN)
def test_a_refusal_is_raised_as_itself(kind: type[StorageError]) -> None:
    """If the first try is refused and the object is absent, the refusal is raised, because nothing was
    written."""
    store = FaultyStore(
        MemoryStore(),
        {"put_if_absent": faults(*["before"] * 9)},
        error=raising(kind, "refused"),
    )
    with pytest.raises(kind):
        settle(store)
    assert store.count("put_if_absent") == (5 if kind is NotConnectedError else 1)


@pytest.mark.parametrize("kind", NOTHING_WRITTEN)
def test_a_refusal_of_reading_too_is_raised_as_itself(kind: type[StorageError]) -> None:
    """If the put and the read are refused for the same reason, that error is raised without more tries."""
    store = FaultyStore(
        MemoryStore(),
        {"put_if_absent": faults("before"), "get": faults("before")},
        error=raising(kind, "refused"),
    )
    with pytest.raises(kind):
        settle(store)
    assert len(store.calls) == 2


@pytest.mark.parametrize("kind", NOTHING_WRITTEN)
def test_a_refusal_after_a_doubtful_try_is_unknown(kind: type[StorageError]) -> None:
    """If a refusal follows a doubtful try, the outcome is unknown, because the first try may still be under
    way."""
    errors: list[StorageError] = [StorageError("500"), kind("refused"), *[kind("refused")] * 9]
    store = FaultyStore(
        MemoryStore(),
        {"put_if_absent": faults(*["before"] * 9)},
        error=lambda _operation, _key: errors.pop(0),
    )
    with pytest.raises(PutOutcomeUnknownError):
        settle(store, attempts=3)


def test_a_refusal_does_not_hide_what_is_there() -> None:
    """A refused put to a key that holds an object is settled by that object."""
    for held in (OURS, THEIRS):
        store = FaultyStore(
            MemoryStore(),
            {"put_if_absent": faults("before")},
            error=raising(AccessDeniedError, "no"),
        )
        store.inner.put("k", held)
        assert settle(store) == PutOutcome(won=held == OURS, winner=held)


def test_a_refused_connection_is_tried_again() -> None:
    """A put to a server that restarts is tried again, because nothing was sent, and the next try succeeds."""
    store = FaultyStore(
        MemoryStore(),
        {"put_if_absent": faults("before")},
        error=raising(NotConnectedError, "refused"),
    )
    assert settle(store).won


def test_an_illegal_key_is_not_sent() -> None:
    """An illegal key is refused before the store is asked."""
    store = FaultyStore(MemoryStore())
    with pytest.raises(InvalidKeyError):
        settle_put_if_absent(store, "../k", OURS)
    assert store.calls == []


def test_a_bug_is_not_an_answer() -> None:
    """An error that is not the store's is raised as it is."""
    store = FaultyStore(MemoryStore(), decide=lambda *_call: 1 / 0)  # type: ignore[arg-type,return-value]
    with pytest.raises(ZeroDivisionError):
        settle(store)


def test_pauses_grow_and_end() -> None:
    """The pause is called with 1, 2, ... between tries, and not after the last."""
    pauses: list[int] = []
    store = FaultyStore(MemoryStore(), {"put_if_absent": faults(*["before"] * 9)})
    with pytest.raises(PutOutcomeUnknownError):
        settle_put_if_absent(store, "k", OURS, attempts=4, pause=pauses.append)
    assert pauses == [1, 2, 3]


FAULTS: list[Fault | None] = [None, "before", "after", "taken_after"]


@pytest.mark.parametrize("put_faults", list(itertools.product(FAULTS, repeat=2)))
@pytest.mark.parametrize("get_faults", list(itertools.product([None, "before"], repeat=2)))
@pytest.mark.parametrize("taken", [False, True])
def test_every_short_history_tells_the_truth(
    put_faults: tuple[Fault | None, ...], get_faults: tuple[Fault | None, ...], taken: bool
) -> None:
    """For any two faults of puts and any two of reads, the outcome agrees with what is in the store, or is
    unknown."""
    store = FaultyStore(MemoryStore(), {"put_if_absent": faults(*put_faults), "get": faults(*get_faults)})
    if taken:
        store.inner.put("k", THEIRS)
    outcome = settle(store)
    held = store.inner.get("k")
    assert outcome == PutOutcome(won=held == OURS, winner=held)
    assert held == (THEIRS if taken else OURS)


def test_two_faulty_writers_never_both_win() -> None:
    """2,000 seeded races of two writers on a store that fails at random. At most one wins, and a loser learns the true
    winner.
    """
    for seed in range(2_000):
        chance = random.Random(seed)
        inner = MemoryStore()

        def decide(operation: str, _key: str, _number: int, chance: random.Random = chance) -> Fault | None:
            return chance.choice(
                [None, "before", "after", "taken_after" if operation == "put_if_absent" else None]
            )

        outcomes = []
        for data in (OURS, THEIRS):
            try:
                outcomes.append(
                    (
                        data,
                        settle_put_if_absent(
                            FaultyStore(inner, decide=decide), "k", data, attempts=2, pause=no_pause
                        ),
                    )
                )
            except PutOutcomeUnknownError:
                continue
        assert sum(outcome.won for _, outcome in outcomes) <= 1
        for data, outcome in outcomes:
            assert outcome == PutOutcome(won=inner.get("k") == data, winner=inner.get("k"))
