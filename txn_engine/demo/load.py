"""Step 1: several producer processes load the payments day by day, and what befalls them on the way.

The accidents are real: signals to processes, a batch that goes out twice. Which loader meets with which, and after
how much of the load, is laid down, so that every run tells the same story.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from txn_engine.demo.child import Child, ChildFailedError, Children
from txn_engine.demo.day_queue import DayQueue
from txn_engine.demo.loader import FENCED
from txn_engine.demo.payments import PAYMENTS, Day
from txn_engine.demo.screen import Advance, Screen

MODULE = "txn_engine.demo.loader"
STEADY, KILLED, FROZEN, SUBSTITUTE = "load-0", "load-1", "load-2", "load-3"
TIMEOUT_MS, KILLED_TIMEOUT_MS = 60_000, 3_000
KEPT_DAYS = 6
"""One for each: the batch sent twice, the abort, the kill, the freeze, and two last days with deferred markers."""
DAYS_MIN = KEPT_DAYS + 3


@dataclass(slots=True)
class LoadReport:
    """What the producers said of their work: one mapping an event, with their ids, the day and its offsets."""

    days: int = 0
    rows: int = 0
    aborted: list[Mapping[str, Any]] = field(default_factory=list)
    fenced: list[Mapping[str, Any]] = field(default_factory=list)
    duplicates: list[Mapping[str, Any]] = field(default_factory=list)
    killed: list[Mapping[str, Any]] = field(default_factory=list)


class Load:
    """The loaders and the days that they load. A day is on the days, with a loader, lost with a dead one, or loaded."""

    def __init__(
        self, children: Children, screen: Screen, url: str, payments_file: Path, days: Sequence[Day]
    ) -> None:
        self._children = children
        self._screen = screen
        self._arguments = ("--url", url, "--topic", PAYMENTS, "--payments", str(payments_file))
        self._days = days
        self._deck = DayQueue(days, kept=KEPT_DAYS)
        self._advance: Advance = lambda _: None
        self._lost: Day | None = None
        self._lock = threading.Lock()
        self.report = LoadReport()
        self._loaders = {
            STEADY: self._start(STEADY),
            KILLED: self._start(KILLED, timeout_ms=KILLED_TIMEOUT_MS),
            FROZEN: self._start(FROZEN),
        }

    def run(self) -> None:
        """Load every day but the one that the killed loader had begun. Returns when all others are committed."""
        for child in self._loaders.values():
            child.hear("ready")
        self._screen.say(f"producers, each a process: {', '.join(map(str, self._loaders.values()))}")
        with self._screen.progress("rows loaded", sum(day.rows for day in self._days)) as self._advance:
            _all_at_once(self._children, [self._steady, self._killed, self._frozen])
        self._screen.say(
            f"{self.report.days:,} days, {self.report.rows:,} rows committed by {len(self._loaders)} transactional ids"
        )

    def load_lost_day(self) -> None:
        """Load the killed loader's day. To be called when its transaction has ended, and was not committed."""
        if self._lost is None:
            raise ChildFailedError("no day was lost", actor="demo")
        substitute = self._loaders[SUBSTITUTE]
        said = self._load(substitute, self._lost, markers="deferred")
        self._screen.say(f"{substitute} loads the lost day {self._lost.date}: {offsets(said)}")
        for child in self._loaders.values():
            child.end()

    # --- the three of them ----------------------------------------------------------------------------------

    def _steady(self) -> None:
        """Sends a batch twice, later aborts a transaction, and loads all the same."""
        loader = self._loaders[STEADY]
        self._load_until(loader, 0.15)
        day = self._deck.take_kept()
        said = self._load(loader, day, twice=True)
        again = said["again"]
        self.report.duplicates.append(said)
        self._screen.say(
            f"{loader} sends a batch of {day.date} twice: offsets {again['base_offset']}-{again['last_offset']} "
            f"both times, the second {'is dropped as a duplicate' if again['is_duplicate'] else 'was WRITTEN'}"
        )
        self._load_until(loader, 0.6)
        day = self._deck.take_kept()
        said = self._order(loader, day, "aborted", ending="abort")
        self.report.aborted.append(said)
        self._screen.say(f"{loader} aborts {day.date} on purpose ({offsets(said)}) and loads it again")
        self._load(loader, day)
        self._load_until(loader, 1.0)
        self._load_last_day(loader)

    def _killed(self) -> None:
        """Is killed with a day in the log that it has not committed; another loader takes over what is left."""
        loader = self._loaders[KILLED]
        self._load_until(loader, 0.25)
        self._lost = self._deck.take_kept()
        said = self._order(loader, self._lost, "written", ending="wait")
        loader.kill()
        self.report.killed.append(said)
        substitute = self._loaders[SUBSTITUTE] = self._start(SUBSTITUTE)
        self._screen.say(
            f"{loader} has written {self._lost.date} ({offsets(said)}) and is killed (SIGKILL) before its commit"
        )
        substitute.hear("ready")
        self._screen.say(f"{substitute} takes over its days; {self._lost.date} waits for the sweep")
        self._load_until(substitute, 1.0)

    def _frozen(self) -> None:
        """Is stopped in the middle of a transaction; its successor fences it, and it learns that when it wakes."""
        zombie = self._loaders[FROZEN]
        self._load_until(zombie, 0.4)
        day = self._deck.take_kept()
        said = self._order(zombie, day, "written", ending="wait")
        zombie.stop()
        zombie.tell("commit")  # what it will do first thing when it wakes
        self._screen.say(f"{zombie} has written {day.date} ({offsets(said)}) and is stopped (SIGSTOP)")
        successor = self._loaders[FROZEN] = self._start(FROZEN, log_name=f"{FROZEN}-successor")
        now = successor.hear("ready").facts
        again = self._load(successor, day)
        self._screen.say(
            f"{successor} takes over as {FROZEN}, epoch {said['producer_epoch']} -> {now['producer_epoch']}, "
            f"and loads {day.date}: {offsets(again)}"
        )
        zombie.wake()
        fenced = zombie.hear("fenced").facts
        self.report.fenced.append({**fenced, "who": str(zombie), "rows": day.rows})
        code = zombie.wait_gone()
        if code != FENCED:
            raise zombie.failure(f"it ended with exit code {code} after it was fenced, not {FENCED}")
        self._screen.say(
            f"{zombie} wakes (SIGCONT), tries to commit {day.date}: {fenced['code']}; it gives up"
        )
        self._load_until(successor, 1.0)
        self._load_last_day(successor)

    # --- orders ---------------------------------------------------------------------------------------------

    def _start(self, name: str, *, timeout_ms: int = TIMEOUT_MS, log_name: str | None = None) -> Child:
        timeout = ("--timeout-ms", str(timeout_ms))
        return self._children.start(
            log_name or name, MODULE, *self._arguments, "--transactional-id", name, *timeout
        )

    def _load_until(self, loader: Child, share: float) -> None:
        for day in self._deck.deal(share):
            self._load(loader, day)

    def _load_last_day(self, loader: Child) -> None:
        """Commit a last day and leave its markers to the DAG: readers see it when they are written."""
        self._load(loader, self._deck.take_kept(), markers="deferred")

    def _load(
        self, loader: Child, day: Day, *, twice: bool = False, markers: str = "inline"
    ) -> Mapping[str, Any]:
        said = self._order(loader, day, "committed", twice=twice, markers=markers)
        with self._lock:
            self.report.days += 1
            self.report.rows += day.rows
        self._advance(day.rows)
        return said

    def _order(
        self,
        loader: Child,
        day: Day,
        answer: str,
        *,
        ending: str = "commit",
        twice: bool = False,
        markers: str = "inline",
    ) -> Mapping[str, Any]:
        rows = {"day": day.date, "first_row": day.first_row, "rows": day.rows}
        loader.tell("load", **rows, ending=ending, twice=twice, markers=markers)
        return loader.hear(answer).facts


def offsets(said: Mapping[str, Any]) -> str:
    """Where a loader's rows went, for the screen."""
    places = (f"{number}:{first}-{last}" for number, first, last in sorted(said["placed"]))
    return f"{PAYMENTS} {' '.join(places)}"


def _all_at_once(children: Children, stories: Sequence[Callable[[], None]]) -> None:
    """Run them side by side. The first failure ends all, and is the one that is raised."""
    with ThreadPoolExecutor(len(stories), thread_name_prefix="loader") as threads:
        running = [threads.submit(story) for story in stories]
        try:
            done, _ = wait(running, return_when=FIRST_EXCEPTION)
            for story in done:
                story.result()
        except BaseException:
            children.kill_all()
            raise
