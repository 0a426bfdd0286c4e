"""Writers of one log take turns once they get in each other's way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pyarrow as pa
import pytest

from tests.simulator.kernel import MS, SECOND
from tests.simulator.knobs import Knobs
from tests.simulator.patches import simulated
from tests.simulator.process import Process
from tests.simulator.store import ClientStore
from tests.simulator.world import World
from tests.suite.tiers import in_shard
from txn_engine.log.turns import Turns

SCHEMA = pa.schema([("id", pa.int64())])
RECORDS = pa.table({"id": [1]}, schema=SCHEMA)


def among(*writers: str, me: str = "me", lost: bool = True, try_ms: int = 10, at_once: int = 1) -> Turns:
    """One writer's view of the turns after these entries, the newest last."""
    turns = Turns(me, at_once)
    for writer in writers:
        turns.entry(writer)
    turns.tried(try_ms, won=not lost)
    return turns


# --- whose turn it is -------------------------------------------------------------------------------------------


def test_who_lost_no_race_does_not_wait() -> None:
    """A writer that has lost no race does not wait, however many others there are."""
    assert among("a", "b", "me", lost=False).wait_ms(0) == 0


def test_whoever_had_the_end_longest_ago_goes_first() -> None:
    """The writer whose last entry is oldest goes first. Each of the others waits for half a try for every
    writer before it, and looks again."""
    assert among("a", "b", "c", me="a").wait_ms(0) == 0
    assert among("a", "b", "c", me="b").wait_ms(0) == 5
    assert among("a", "b", "c", me="c").wait_ms(0) == 10
    assert among("a", "b", "c", me="d").wait_ms(0) == 0, "one that had none yet"


def test_some_try_at_once() -> None:
    """Several writers may try at once, so that the log does not stand still until the one whose turn it is
    learns that."""
    assert [among(*"abcde", me=me, at_once=3).wait_ms(0) for me in "abcde"] == [0, 0, 0, 5, 10]


def test_who_writes_no_more_is_not_waited_for() -> None:
    """A writer that no longer writes is not waited for, once two others have taken three turns each without
    it or have seen twice its time of silence."""
    assert among("gone", "a", "me", "a", "me").ahead() == 2
    assert among("gone", *("a", "me") * 4).ahead() == 1
    turns = among(*"abcdefg", "me")
    assert [turns.wait_ms(silent_ms) for silent_ms in (0, 19, 20, 60, 120, 140)] == [35, 35, 30, 20, 5, 0]


def test_turns_end_where_nothing_is_lost_any_more() -> None:
    """Turns end after sixteen tries in a row that have won."""
    turns = among("a", "me")
    for _ in range(15):
        turns.tried(10, won=True)
    assert turns.wait_ms(0) == 5
    turns.tried(10, won=True)
    assert turns.wait_ms(0) == 0


@pytest.mark.parametrize("name", ["", "x" * 1_000])
def test_what_an_entry_says_of_its_writer_is_not_believed(name: str) -> None:
    """Whatever names and however many writers the entries have, no wait is longer than eight seconds."""
    turns = among(*(f"{number:08d}{name}" for number in range(500)), "me", try_ms=10**9)
    assert 0 < turns.wait_ms(0) <= 8_000


# --- what comes of it -------------------------------------------------------------------------------------------


class DistantStore(ClientStore):
    """A store where every call takes 20 to 40 ms. It counts puts to a log."""

    log_puts: ClassVar[int] = 0

    def put_if_absent(self, key: str, data: bytes) -> bool:
        DistantStore.log_puts += "/log/" in key
        return super().put_if_absent(key, data)

    def _latency(self, site: str, leg: str) -> int:
        return self._process.world.chance.between(10 * MS, 20 * MS, "latency", site, leg)


@dataclass(frozen=True, slots=True)
class Appended:
    """What each writer appended, and the share of puts to the log that were lost."""

    made: list[int]
    lost: float


class CrowdedWorld(World):
    """A world of processes that append to one partition as fast as they can."""

    def store_of(self, process: Process) -> ClientStore:
        return DistantStore(self.shelf, process)

    def append(self, writers: int, seconds: int) -> Appended:
        """Let all writers begin together."""
        processes = [self.new_process(f"writer{number}") for number in range(writers)]
        made, until = [0] * writers, self.kernel.now + seconds * SECOND
        DistantStore.log_puts = 0

        def write(number: int) -> None:
            log = processes[number].engine().partition("t", 0)
            while self.kernel.now < until:
                log.append(RECORDS)
                made[number] += 1

        tasks = [process.start("main", partial(write, at)) for at, process in enumerate(processes)]
        self.kernel.run(lambda: all(task.dead for task in tasks), "the writers")
        assert not self.kernel.failures
        return Appended(made, 1 - sum(made) / DistantStore.log_puts)


def crowd(seed: int, writers: int, seconds: int) -> Appended:
    """Let this many writers append to a partition of their own."""
    with simulated():
        world = CrowdedWorld(seed, Knobs(intensity=0.0, skewed_clocks=False))
        world.set_up_store()
        world.run_alone(
            "creator", lambda _, engine: engine.admin.create_topic("t", partitions=1, schema=SCHEMA)
        )
        try:
            return world.append(writers, seconds)
        finally:
            world.bury()


CROWDS = [(2, 8, 10), *((seed, writers, 30) for seed in (1, 2, 3) for writers in (2, 8, 16))]


@pytest.mark.parametrize(("seed", "writers", "seconds"), in_shard("kills", CROWDS, keep=1))
def test_many_are_as_quick_as_one_and_each_gets_its_share(seed: int, writers: int, seconds: int) -> None:
    """On a slow store, many writers append as much in total as one alone, and each gets its share. Without
    turns, eight writers lose three of four puts."""
    alone, many = crowd(seed, 1, seconds), crowd(seed, writers, seconds)
    assert alone.lost == 0
    assert sum(many.made) >= sum(alone.made)
    assert min(many.made) >= 0.75 * max(many.made)
    assert many.lost <= 0.6
