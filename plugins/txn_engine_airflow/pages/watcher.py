"""The one background thread of an api-server process: it looks at the store, requests read what it saw last.

It opens the engine of the connection `txn_engine_default` when the first page is asked for, looks every `EVERY_MS`
while somebody watches and every `IDLE_MS` otherwise, and keeps what it saw where a look fails: the pages then say how
old that is, and why.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass

from airflow.sdk.exceptions import AirflowException

from txn_engine import Engine
from txn_engine.clock import Clock, monotonic_ms, system_clock
from txn_engine.errors import TxnEngineError
from txn_engine_airflow.connection import StoreConnection
from txn_engine_airflow.hook import connect_to
from txn_engine_airflow.pages.moment import Moment, look
from txn_engine_airflow.pages.quality_reports import Report, ReportShelf
from txn_engine_airflow.pages.runs import DagRuns, last_runs
from txn_engine_airflow.pages.tails import Tails
from txn_engine_airflow.pages.views_groups import GroupLine, group_lines
from txn_engine_airflow.pages.views_overview import overview

EVERY_MS = 3_000
IDLE_MS = 60_000
WATCHED_FOR_MS = 120_000
TOPICS_EVERY_MS = 12_000
AIRFLOW_EVERY_MS = 9_000
WAITING_MAX = 2
REOPEN_AFTER_FAILURES = 3

log = logging.getLogger(__name__)


class NothingSeenYetError(Exception):
    """No look at the store has succeeded yet; the text says why, or that the first one is under way."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen of the store last. `overview`, the Overview page's JSON, and `groups` are made once for all
    requests.
    """

    moment: Moment
    groups: tuple[GroupLine, ...]
    overview: bytes


@dataclass(frozen=True, slots=True)
class AirflowSight:
    """What was seen of Airflow last: runs of the engine's DAGs, and the reports that runs left."""

    runs: tuple[DagRuns, ...]
    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class Health:
    """How the looking itself goes: when the last look succeeded, how long it took, and what is wrong ("": nothing)."""

    seen_ms: int
    took_ms: int
    trouble: str


class Watcher:
    """Looks at the store for the pages. Threads may ask at any time; only its own thread looks."""

    def __init__(
        self,
        *,
        find_store: Callable[[], StoreConnection] = StoreConnection.load,
        clock: Clock = system_clock,
        every_ms: int = EVERY_MS,
    ) -> None:
        self._find_store = find_store
        self._clock = clock
        self._every_ms = every_ms
        self._wake = threading.Event()
        self._looked = threading.Condition()
        self._looks = 0
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._asked_ms = monotonic_ms() - WATCHED_FOR_MS
        self._store: StoreConnection | None = None
        self._engine: Engine | None = None
        self._names: tuple[int, list[str]] | None = None
        self._airflow_ms = 0
        self._failures = 0
        self._sight: Sight | None = None
        self._airflow: AirflowSight | None = None
        self._may_wait = threading.Semaphore(WAITING_MAX)
        self._shelf = ReportShelf()
        self.health = Health(-1, 0, "")
        self.tails = Tails(monotonic_ms)

    # --- what requests call ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; it opens no store before somebody asks."""
        self._thread = threading.Thread(target=self._run, name="txn-engine-pages", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and close the engine."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def touch(self, *, wait_ms: int = 0) -> None:
        """Say that somebody watches; where nothing was looked at yet, wait for the first look to end.

        Only `WAITING_MAX` requests wait: each holds one of the server's few threads, which Airflow's own pages need.
        """
        was_idle = not self._is_watched()
        self._asked_ms = monotonic_ms()
        if was_idle or not self._looks:
            self._wake.set()
        if not self._looks and wait_ms and self._may_wait.acquire(blocking=False):
            try:
                self._wait_for_a_look(wait_ms)
            finally:
                self._may_wait.release()

    def sight(self, *, wait_ms: int = 0) -> Sight:
        """What was seen last. Raises `NothingSeenYetError`."""
        self.touch(wait_ms=wait_ms)
        if self._sight is None:
            raise NothingSeenYetError(self.health.trouble or "The store is being opened.")
        return self._sight

    def airflow(self, *, wait_ms: int = 0) -> AirflowSight:
        """What was seen of Airflow last, also while the store does not answer. Raises `NothingSeenYetError`."""
        self.touch(wait_ms=0 if self._airflow else wait_ms)
        if self._airflow is None:
            raise NothingSeenYetError(self.health.trouble or "The store is being opened.")
        return self._airflow

    @property
    def engine(self) -> Engine:
        """The open engine. Raises `NothingSeenYetError`."""
        self.sight()
        engine = self._engine
        if engine is None:
            raise NothingSeenYetError(self.health.trouble or "The store is being opened.")
        return engine

    def look_again(self, *, wait_ms: int) -> None:
        """Look at once, and wait for that: after a change that the caller made."""
        now = self._looks
        deadline = monotonic_ms() + wait_ms
        for number in (now + 1, now + 2):  # one may be under way that began before the change
            self._wake.set()
            self._wait_for_a_look(deadline - monotonic_ms(), number)

    def ask_for_tails(self) -> None:
        """Somebody waits for the rows of a log: read them now."""
        self._wake.set()

    def _wait_for_a_look(self, wait_ms: int, number: int = 1) -> None:
        with self._looked:
            self._looked.wait_for(lambda: self._looks >= number or self._stopping, wait_ms / 1_000)

    def _is_watched(self) -> bool:
        return monotonic_ms() - self._asked_ms < WATCHED_FOR_MS

    # --- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            if self._is_watched() or self._sight is not None:
                self._look()
                with self._looked:
                    self._looks += 1
                    self._looked.notify_all()
            pause_ms = self._every_ms if self._is_watched() else IDLE_MS
            self._wake.wait(pause_ms / 1_000)
            self._wake.clear()
        self._close()

    def _look(self) -> None:
        began_ms = monotonic_ms()
        trouble = self._trouble_with(self._look_at_airflow) or self._trouble_with(self._look_at_store)
        if trouble:
            log.warning("the pages could not look: %s", trouble)
            self._failures += 1
            self.health = Health(self.health.seen_ms, self.health.took_ms, trouble)
            if self._failures % REOPEN_AFTER_FAILURES == 0:
                self._close()
            return
        self._failures = 0
        self.health = Health(self._clock(), monotonic_ms() - began_ms, "")

    def _trouble_with(self, look: Callable[[], None]) -> str:
        """What went wrong, in one line; the thread lives on."""
        try:
            look()
        except (TxnEngineError, AirflowException) as error:
            return str(error)
        except Exception as error:
            log.exception("the pages could not look")
            return f"{type(error).__name__}: the api-server's log has the reason"
        return ""

    def _look_at_store(self) -> None:
        engine = self._opened()
        now_ms = monotonic_ms()
        if self._names is None or now_ms - self._names[0] >= TOPICS_EVERY_MS:
            self._names = now_ms, engine.admin.list_topics()
        moment = look(engine, self._names[1])
        groups = group_lines(moment)
        self._sight = Sight(moment, groups, json.dumps(asdict(overview(moment, groups))).encode())
        self.tails.follow()

    def _look_at_airflow(self) -> None:
        now_ms = monotonic_ms()
        if self._airflow_ms and now_ms - self._airflow_ms < AIRFLOW_EVERY_MS:
            return
        self._airflow = AirflowSight(last_runs(), self._shelf.look())
        self._airflow_ms = now_ms

    def _opened(self) -> Engine:
        """The engine of the connection as it stands now: another URL or key in Airflow's connection opens another."""
        store = self._find_store()
        if self._engine is None or store != self._store:
            self._close()
            self._engine, self._store = connect_to(store), store
            log.info("the pages show the store %s, by %s", self._engine.url, store.source)
        return self._engine

    def _close(self) -> None:
        engine, self._engine, self._names = self._engine, None, None
        self.tails.forget()
        if engine is not None:
            engine.close()
