"""The hub: virtual time, locks and waits of cooperating tasks, and deaths and pauses of processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage import StoreUnreachableError
from tests.simulator.kernel import (
    HOUR,
    SECOND,
    Condition,
    DeadlockError,
    EndlessError,
    Event,
    Lock,
    RLock,
    sleep,
)
from tests.simulator.knobs import Knobs
from tests.simulator.patches import simulated
from tests.simulator.process import Process, TaskPool
from tests.simulator.world import World


@pytest.fixture
def world() -> Iterator[World]:
    with simulated():
        yield World(7, Knobs(intensity=0.0))


def _drain(world: World) -> None:
    world.kernel.drain("the test")
    assert not world.kernel.failures


def test_time_passes_only_when_everybody_waits(world: World) -> None:
    """Sleeps end in the order of their ends, and the clock says so."""
    ends: list[tuple[str, int]] = []
    process = world.new_process("p")

    def nap(name: str, seconds: int) -> None:
        sleep(seconds * SECOND)
        ends.append((name, world.kernel.now // SECOND))

    for name, seconds in (("long", 3600), ("short", 1), ("middle", 60)):
        process.start(name, lambda name=name, seconds=seconds: nap(name, seconds))
    _drain(world)
    assert ends == [("short", 1), ("middle", 60), ("long", 3600)]


def test_a_lock_lets_one_in(world: World) -> None:
    """Nobody enters a lock while another task is inside, however long that one sleeps there."""
    lock, inside, most = Lock(), 0, 0
    process = world.new_process("p")

    def enter() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
            sleep(SECOND)
            inside -= 1

    for number in range(5):
        process.start(f"t{number}", enter)
    _drain(world)
    assert (inside, most) == (0, 1)
    assert world.kernel.now >= 5 * SECOND


def test_a_deadlock_is_an_error(world: World) -> None:
    """Two locks that are taken in both orders stop everything, which is an error."""
    first, second = RLock(), RLock()
    process = world.new_process("p")
    done: list[int] = []

    def take(one: RLock, other: RLock) -> None:
        with one:
            sleep(SECOND)
            with other:
                done.append(1)

    process.start("a", lambda: take(first, second))
    process.start("b", lambda: take(second, first))
    with pytest.raises(DeadlockError):
        world.kernel.run(lambda: len(done) == 2, "two locks")
    assert sorted(world.blocked()) == [f"{process.name}/{name} waits for a lock" for name in "ab"]
    world.bury()


def test_conditions_and_events_wake_who_waits(world: World) -> None:
    """A wait ends by a notification, or by its time-out, and says which."""
    condition, event, seen = Condition(), Event(), []
    process = world.new_process("p")

    def wait(timeout: float) -> None:
        with condition:
            seen.append((timeout, condition.wait(timeout)))
        event.wait()
        seen.append(("event", world.kernel.now // SECOND))

    def tell() -> None:
        sleep(5 * SECOND)
        with condition:
            condition.notify_all()
        sleep(5 * SECOND)
        event.set()

    for timeout in (1, 60):
        process.start(f"w{timeout}", lambda timeout=timeout: wait(timeout))
    process.start("teller", tell)
    _drain(world)
    assert seen == [(1, False), (60, True), ("event", 10), ("event", 10)]


def test_a_pool_runs_so_many_at_once_and_hands_back_errors(world: World) -> None:
    """The pool works like a thread pool: futures have the results and errors, and no more calls run at once
    than there are threads."""
    process = world.new_process("p")
    pool = TaskPool(process, 2, "pool")
    running = most = 0

    def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        sleep(SECOND)
        running -= 1
        return 10 // number

    found: list[object] = []

    def main() -> None:
        found.extend(pool.map(work, (1, 2, 5)))
        found.append(type(pool.submit(work, 0).exception()))

    process.start("main", main)
    _drain(world)
    assert (found, most) == ([10, 5, 2, ZeroDivisionError], 2)


def test_the_dead_do_nothing_more(world: World) -> None:
    """A crash ends a process where it is. Its put that is under way may land, and nothing else happens."""
    process = world.new_process("p")
    after: list[str] = []

    def body() -> None:
        try:
            process.store.put_if_absent("a", b"1")
            process.crash()
            after.append("went on")
        finally:
            after.append("unwound")
            process.store.put_if_absent("b", b"2")

    process.start("main", body)
    _drain(world)
    assert after == []
    world.bury()
    assert after == ["unwound"]
    assert sorted(world.shelf.objects) == ["a"]


def test_a_paused_process_sleeps_through(world: World) -> None:
    """Nothing of a paused process runs, whatever it was waiting for."""
    process = world.new_process("p")
    ends: list[int] = []

    def nap() -> None:
        sleep(SECOND)
        ends.append(world.kernel.now // SECOND)

    process.start("t", nap)
    process.pause(100 * SECOND)
    _drain(world)
    assert ends == [101]


@pytest.mark.parametrize(("asleep", "answers"), [(10 * SECOND, {"stored"}), (HOUR, {"stored", "gone"})])
def test_who_sleeps_long_may_not_hear_the_answer(world: World, asleep: int, answers: set[str]) -> None:
    """If a process sleeps for long, its request takes effect all the same, but the connection for the answer
    is usually gone."""
    heard: list[str] = []

    def put(number: int) -> None:
        process = world.new_process(f"p{number}")

        def body() -> None:
            process.pause(asleep)
            try:
                process.store.put_if_absent("key-" + process.name[:-2], b"1")
            except StoreUnreachableError:
                heard.append("gone")
            else:
                heard.append("stored")

        process.start("main", body)

    for number in range(20):
        put(number)
    _drain(world)
    assert (set(heard), len(world.shelf.objects)) == (answers, 20)


def test_a_run_is_ended_from_outside(world: World) -> None:
    """Neither the client nor the running pool takes the end of the run for an error of its own."""
    process = world.new_process("p")
    pool = TaskPool(process, 1, "pool")

    def work() -> None:
        try:
            raise EndlessError
        except Exception:  # noqa: BLE001 - as a careless client does
            return

    process.start("main", lambda: pool.submit(work))
    with pytest.raises(EndlessError):
        world.kernel.drain("the test")
    assert not world.kernel.failures


def test_a_damaged_object_is_another(world: World) -> None:
    """A damaged object differs in one byte, and `damage` returns the original bytes."""
    world.shelf.put("key", b"abc")
    assert world.shelf.damage("key") == b"abc"
    assert [left == right for left, right in zip(world.shelf.get("key"), b"abc", strict=True)].count(
        False
    ) == 1


def test_processes_have_clocks_and_ids_of_their_own(world: World) -> None:
    """Write ids never repeat, over lives and forks too. The skew of a clock does not change."""
    skewed = World(7, Knobs(skewed_clocks=True))
    processes = [Process(skewed, f"p{number}", life, number) for number in range(20) for life in range(2)]
    ids = [process.new_id() for process in processes for _ in range(3)]
    assert len(set(ids)) == len(ids)
    offsets = {
        process.name.partition("#")[0]: process.clock() - skewed.kernel.now_ms for process in processes
    }
    assert len(set(offsets.values())) > 5
    assert all(
        process.clock() - skewed.kernel.now_ms == offsets[process.name.partition("#")[0]]
        for process in processes
    )
