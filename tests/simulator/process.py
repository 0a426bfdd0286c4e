"""A simulated process: its own engine on its own handle of the store, its own clock, and threads that are
tasks."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent

from tests.simulator.kernel import MS, SECOND, EndlessError, StuckError, Task, sleep
from txn_engine import Engine
from txn_engine.clock import Waiting
from txn_engine.errors import IllegalStateError, TxnEngineError
from txn_engine.log.store_time import ClockAsStoreTime

if TYPE_CHECKING:
    from tests.simulator.world import World

_CONNECT_TRIES = 1_000


class Process:
    """One life of a simulated process. A crash ends it between two store operations, and it never runs
    again."""

    def __init__(self, world: World, name: str, life: int, pid: int) -> None:
        self.world = world
        self.name = f"{name}#{life}"
        self.pid = pid
        self.tasks: dict[Task, None] = {}  # in the order in which they were made
        self.dead = False
        self.paused_until = 0
        self.skew_ms = world.first_skew_ms(name)
        self._started = world.kernel.now
        self._sites: Counter[str] = Counter()
        self._ids = 0
        self._pauses = 0
        self.store = world.store_of(self)

    # --- what the engine is given ---------------------------------------------------------------------------

    def engine(self) -> Engine:
        """A fresh engine. Its constructor already uses the store, so this has to be called in a task."""
        return Engine(
            self.store,
            clock=self.clock,
            new_id=self.new_id,
            pause=self._pause_before_try,
            waiting=Waiting(self._monotonic_ms, lambda ms: sleep(ms * MS)),
            executors=lambda threads, name: TaskPool(self, threads, name),
            snapshot_after=self.world.knobs.snapshot_after,
            store_time=ClockAsStoreTime(self.clock),
        )

    def connect(self) -> Engine:
        """An engine. Its construction is retried until the store allows it."""
        for _ in range(_CONNECT_TRIES):
            try:
                return self.engine()
            except TxnEngineError:
                sleep(SECOND)
        raise StuckError(f"{self.name} could not connect")

    def clock(self) -> int:
        """This machine's clock: the true time and its skew."""
        now_ms = self.world.kernel.now_ms + self.skew_ms
        self.world.latest_ms = max(self.world.latest_ms, now_ms)
        return now_ms - now_ms % self.world.knobs.clock_tick_ms

    def new_id(self) -> str:
        """A write id that nobody else has."""
        self._ids += 1
        return self.world.chance.hex_id("id", self.name, self.pid, self._ids)

    def next_site(self, operation: str, key: str) -> str:
        """The name of a store operation: what it does to which object, and a running number of such operations.

        It does not depend on other operations, so that a run with one fault less has the same names for the
        rest.
        """
        folder, found, _ = key.partition("/data/")
        what = f"{self.name}:{operation}:{folder + '/data' if found else key}"
        self._sites[what] += 1
        return f"{what}:{self._sites[what]}"

    def _monotonic_ms(self) -> int:
        return (self.world.kernel.now - self._started) // 1_000

    def _pause_before_try(self, attempt: int) -> None:
        self._pauses += 1
        sleep(
            self.world.chance.between(10 * MS, 20 * MS << min(attempt, 5), "pause", self.name, self._pauses)
        )

    # --- its life -------------------------------------------------------------------------------------------

    def start(self, name: str, body: Callable[[], Any], *, delay: int = 0) -> Task:
        """Run something as a thread of this process."""
        task = Task(self.world.kernel, self, name, body)
        self.tasks[task] = None
        task.wake_at(self.world.kernel.now + delay)
        return task

    def pause(self, duration: int) -> None:
        """Stop all threads for a while, like SIGSTOP or a suspended machine. What they have sent goes on."""
        self.paused_until = self.world.kernel.now + duration

    def crash(self) -> None:
        """Die now. If one of its own tasks calls this, the call does not return."""
        if self.dead:
            raise GreenletExit
        self.dead = True
        self.world.on_death(self)
        here = getcurrent()
        if isinstance(here, Task) and here.process is self:
            here.wait("death")

    def bury(self) -> None:
        """Unwind the rest of its threads. None of them can reach the store any more."""
        self.dead = True
        for task in list(self.tasks):
            if task:  # started and not finished
                task.throw(GreenletExit)
        self.tasks.clear()


class TaskPool(Executor):
    """A thread pool of a simulated process: a limited number of tasks run at once, and the others wait for
    their turn."""

    def __init__(self, process: Process, threads: int, name: str) -> None:
        self._process = process
        self._threads = threads
        self._name = name
        self._running = 0
        self._numbers = 0
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        here = getcurrent()
        if isinstance(here, Task) and here.process is not self._process:
            raise IllegalStateError("an engine was carried over a fork", expected="one engine a process")
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        self._queue.append((future, lambda: fn(*args, **kwargs)))
        if self._running < self._threads:
            self._running += 1
            self._numbers += 1
            self._process.start(f"{self._name}-{self._numbers}", self._work)
        return future

    def _work(self) -> None:
        while self._queue:
            future, call = self._queue.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except (GreenletExit, EndlessError):
                raise
            except BaseException as error:  # noqa: BLE001 - the future carries it, as a thread pool's does
                future.set_exception(error)
            else:
                future.set_result(result)
        self._running -= 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
