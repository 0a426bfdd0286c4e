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
from dataclasses import asdict, dataclass, replace

from airflow.sdk.exceptions import AirflowException

from txn_engine import Engine
from txn_engine.clock import Clock, monotonic_ms, system_clock
from txn_engine.errors import TxnEngineError
from txn_engine.log.missing_files import missing_files
from txn_engine.log.topics import Survey
from txn_engine.unreadable import Unreadable
from txn_engine_airflow.connection import StoreConnection
from txn_engine_airflow.hook import connect_to
from txn_engine_airflow.pages.clock_check import ClockCheck
from txn_engine_airflow.pages.cuts_seen import CutReadings, SeenCuts, look_at_cuts
from txn_engine_airflow.pages.dag_runs import DagRuns, Run, last_runs, verifications
from txn_engine_airflow.pages.letters_seen import LetterReadings
from txn_engine_airflow.pages.moment import Moment, look
from txn_engine_airflow.pages.proofs import KeptProofs, ProofAlbum
from txn_engine_airflow.pages.quality_reports import Report, ReportShelf
from txn_engine_airflow.pages.tails import Tails
from txn_engine_airflow.pages.troubles import for_viewers
from txn_engine_airflow.pages.views_groups import GroupLine, group_lines
from txn_engine_airflow.pages.views_overview import overview

EVERY_MS = 3_000
IDLE_MS = 60_000
WATCHED_FOR_MS = 120_000
TOPICS_EVERY_MS = 12_000
AIRFLOW_EVERY_MS = 9_000
PROOFS_EVERY_MS = 15_000
CUTS_EVERY_MS = 15_000
FILES_EVERY_MS = 60_000
WAITING_MAX = 2
REOPEN_AFTER_FAILURES = 3

log = logging.getLogger(__name__)


class NothingSeenYetError(Exception):
    """No look at the store, or at Airflow's database, has succeeded yet.

    trouble: why the first look failed, in words for viewers. Empty while the first look is under way.
    """

    def __init__(self, trouble: str, *, until_then: str = "The store is being opened.") -> None:
        super().__init__(trouble or until_then)
        self.trouble = trouble


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
    """What was seen of Airflow last: runs of the engine's DAGs, those of the verification further back, and the reports
    that runs left.
    """

    runs: tuple[DagRuns, ...]
    verifications: tuple[Run, ...]
    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class Health:
    """How the looking itself goes. `seen_ms`: as of when the store is shown, by the server's clock; `age_ms`: how long
    ago that is, by one that nobody sets; both -1 before the first look. `now_ms`: what ages are told by; it goes on
    while the store is away. `trouble`, `airflow_trouble`, `clock_trouble`: what is wrong with looking at the store,
    with looking at Airflow, and with the clock ("": nothing).
    """

    seen_ms: int
    age_ms: int
    now_ms: int
    took_ms: int
    trouble: str
    airflow_trouble: str
    clock_trouble: str


class StorePoller:
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
        self._survey: tuple[int, Survey] | None = None
        self._airflow_ms = 0
        self._failures = 0
        self._sight: Sight | None = None
        self._airflow: AirflowSight | None = None
        self._may_wait = threading.Semaphore(WAITING_MAX)
        self._shelf = ReportShelf()
        self._album = ProofAlbum()
        self._proofs_ms = 0
        self._proofs = KeptProofs()
        self._cuts: tuple[int, SeenCuts] | None = None
        self._missing: tuple[int, tuple[Unreadable, ...]] | None = None
        self._clock_check = ClockCheck(clock, monotonic_ms)
        self._seen: tuple[int, int] | None = None
        self._took_ms = 0
        self._trouble = self._airflow_trouble = self._clock_trouble = ""
        self.whole_trouble = ""
        """What is wrong with looking at the store, its place too: for those who may view its connection."""
        self.tails = Tails(monotonic_ms)
        self.cut_readings = CutReadings(monotonic_ms)
        self.letter_readings = LetterReadings(monotonic_ms)

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

    @property
    def health(self) -> Health:
        """How the looking goes, as of now."""
        seen, sight, steady_ms = self._seen, self._sight, monotonic_ms()
        told = self._trouble, self._airflow_trouble, self._clock_trouble
        if seen is None or sight is None:
            return Health(-1, -1, self._clock(), self._took_ms, *told)
        seen_ms = sight.moment.now_ms
        # From what the look began with, so never younger than it is.
        return Health(seen_ms, steady_ms - seen[0], seen_ms + steady_ms - seen[1], self._took_ms, *told)

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
            raise NothingSeenYetError(self._trouble)
        return self._sight

    def airflow(self, *, wait_ms: int = 0) -> AirflowSight:
        """What was seen of Airflow last, also while the store does not answer. Raises `NothingSeenYetError`."""
        self.touch(wait_ms=0 if self._airflow else wait_ms)
        if self._airflow is None:
            raise NothingSeenYetError(self._airflow_trouble, until_then="Airflow's database is being asked.")
        return self._airflow

    def proofs(self, *, wait_ms: int = 0) -> KeptProofs:
        """The proofs that the store keeps, as of the last look that could be had. Raises `NothingSeenYetError`."""
        self.sight(wait_ms=wait_ms)
        return self._proofs

    @property
    def engine(self) -> Engine:
        """The open engine. Raises `NothingSeenYetError`."""
        self.sight()
        engine = self._engine
        if engine is None:
            raise NothingSeenYetError(self._trouble)
        return engine

    def look_again(self, *, wait_ms: int) -> None:
        """Look at once, and wait for that: after a change that the caller made."""
        now = self._looks
        deadline = monotonic_ms() + wait_ms
        for number in (now + 1, now + 2):  # one may be under way that began before the change
            self._wake.set()
            self._wait_for_a_look(deadline - monotonic_ms(), number)

    def read_now(self) -> None:
        """Somebody waits for the rows of a log, or for what is inside a cut: read that now."""
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
        self._airflow_trouble, _ = self._trouble_with(self._look_at_airflow)
        began_ms = monotonic_ms()
        self._trouble, self.whole_trouble = self._trouble_with(self._look_at_store)
        if self._trouble:
            self._failures += 1
            if self._failures % REOPEN_AFTER_FAILURES == 0:
                self._close()
            return
        self._failures = 0
        self._took_ms = monotonic_ms() - began_ms

    def _trouble_with(self, look: Callable[[], None]) -> tuple[str, str]:
        """What went wrong, in one line: for those who may view the pages, and whole; the thread lives on."""
        try:
            look()
        except (TxnEngineError, AirflowException) as error:
            log.warning("the pages could not look: %s", error)
            return for_viewers(error), str(error)
        except Exception as error:
            log.exception("the pages could not look")
            return for_viewers(error), for_viewers(error)
        return "", ""

    def _look_at_store(self) -> None:
        engine = self._opened()
        began_ms = monotonic_ms()
        if self._survey is None or began_ms - self._survey[0] >= TOPICS_EVERY_MS:
            self._survey = began_ms, engine.logs.topics.survey_each()
        if self._cuts is None or began_ms - self._cuts[0] >= CUTS_EVERY_MS:
            self._cuts = began_ms, look_at_cuts(engine, SeenCuts() if self._cuts is None else self._cuts[1])
        moment = self._with_missing_files(engine, look(engine, self._survey[1], self._cuts[1]))
        self._look_at_proofs(engine, moment)
        seen = began_ms, monotonic_ms()
        groups = group_lines(moment)
        self._sight = Sight(moment, groups, json.dumps(asdict(overview(moment, groups))).encode())
        self._seen = seen
        self._clock_trouble = self._clock_check.trouble(moment.states())
        self.tails.follow()
        self.cut_readings.follow(engine)
        self.letter_readings.follow(engine, moment)

    def _with_missing_files(self, engine: Engine, moment: Moment) -> Moment:
        """Data files are listed more rarely than logs are looked at: a topic may have many thousands."""
        now_ms = monotonic_ms()
        if self._missing is None or now_ms - self._missing[0] >= FILES_EVERY_MS:
            self._missing = now_ms, tuple(missing_files(engine.logs, moment.by_partition()))
        return replace(moment, missing=self._missing[1])

    def _look_at_proofs(self, engine: Engine, moment: Moment) -> None:
        now_ms = monotonic_ms()
        if not self._proofs_ms or now_ms - self._proofs_ms >= PROOFS_EVERY_MS:
            self._proofs = self._album.look(engine, [found.topic for found in moment.topics.values()])
            self._proofs_ms = now_ms

    def _look_at_airflow(self) -> None:
        now_ms = monotonic_ms()
        if self._airflow_ms and now_ms - self._airflow_ms < AIRFLOW_EVERY_MS:
            return
        self._airflow = AirflowSight(last_runs(), verifications(), self._shelf.look())
        self._airflow_ms = now_ms

    def _opened(self) -> Engine:
        """The engine of the connection as it stands now: another URL or key in Airflow's connection opens another."""
        store = self._find_store()
        if self._engine is None or store != self._store:
            self._close()
            self._engine, self._store = connect_to(store, person_waits=True), store
            log.info("the pages show the store %s, by %s", self._engine.url, store.source)
        return self._engine

    def _close(self) -> None:
        engine, self._engine, self._survey, self._cuts, self._missing = self._engine, None, None, None, None
        self.tails.forget()
        self.cut_readings.forget()
        self.letter_readings.forget()
        self._album, self._proofs_ms = ProofAlbum(), 0
        if engine is not None:
            engine.close()
