"""The hub: virtual time, and cooperating tasks (greenlets) that only it wakes.

Everything that happens is an event on one heap, ordered by virtual time and then by chance. A task runs until
it waits for the store, a pause, a lock or a future, and nothing else can interleave with it. The same seed
gives the same events.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

from tests.simulator.chance import Chance

if TYPE_CHECKING:
    from tests.simulator.process import Process

START_MS = 1_750_000_000_000
MS, SECOND, MINUTE, HOUR, DAY = 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
"""Virtual time is counted in microseconds."""


class StuckError(Exception):
    """Nothing can go on, or too much goes on: the code under test has a deadlock or a livelock."""


class DeadlockError(StuckError):
    """Everything waits, and nothing will happen any more."""


class EndlessError(BaseException):
    """Raised from outside into a run that never ends. It is not an Exception, so that no client takes it for
    one."""


class Task(greenlet):
    """One thread of one simulated process."""

    def __init__(self, kernel: Kernel, process: Process, name: str, body: Callable[[], Any]) -> None:
        super().__init__(self._run, kernel.hub)
        self.kernel = kernel
        self.process = process
        self.name = name
        self.waits_for = ""
        self._body = body
        self._wake_number = 0

    def _run(self) -> None:
        try:
            self._body()
        except GreenletExit:
            pass
        except EndlessError:
            raise  # into the hub, which ends the run
        except BaseException as error:  # noqa: BLE001 - a client that fails in an unforeseen way is a finding
            self.kernel.on_failure(self, error)
        finally:
            self.process.tasks.pop(self, None)

    def wait(self, what: str) -> None:
        """Hand over to the hub until `wake`, or for ever if the process has died."""
        self.waits_for = what
        self.kernel.hub.switch()
        if self.process.dead:
            raise GreenletExit

    def wake_at(self, at: int) -> None:
        """Let the task run again at this time. An earlier call is void."""
        self._wake_number += 1
        number = self._wake_number

        def wake() -> None:
            if self.process.dead or number != self._wake_number:
                return
            if self.process.paused_until > self.kernel.now:
                self.kernel.at(self.process.paused_until, wake)
                return
            self._wake_number += 1
            self.switch()

        self.kernel.at(at, wake)

    def wake(self) -> None:
        """Let it run again, at once."""
        self.wake_at(self.kernel.now)


class Kernel:
    """Virtual time, the coming events, and the trace of what has happened."""

    def __init__(self, chance: Chance, *, max_events: int = 600_000) -> None:
        self.chance = chance
        self.now = 0
        self.hub = getcurrent()
        self.trace: list[tuple[Any, ...]] = []
        self.failures: list[tuple[str, BaseException]] = []
        self._heap: list[tuple[int, float, int, Callable[[], None]]] = []
        self._number = 0
        self._events_left = max_events

    @property
    def now_ms(self) -> int:
        """The true time, in ms since the epoch."""
        return START_MS + self.now // 1_000

    def at(self, at: int, event: Callable[[], None]) -> None:
        """Let something happen at this virtual time. Chance decides between events of the same time."""
        self._number += 1
        heapq.heappush(self._heap, (at, self.chance.tie(), self._number, event))

    def note(self, *event: Any) -> None:
        """Add a line to the trace."""
        self.trace.append((self.now, *event))

    def on_failure(self, task: Task, error: BaseException) -> None:
        """A task ended with an error that nobody caught."""
        self.note(task.process.name, task.name, "failed", f"{type(error).__name__}: {error}", "", "")
        self.failures.append((f"{task.process.name}/{task.name}", error))

    def run(self, until: Callable[[], bool], what: str) -> None:
        """Let events happen until `until` holds. Raises `StuckError` if it can never hold."""
        while not until():
            if not self._heap:
                raise DeadlockError(
                    f"{what}: everything waits, and nothing will happen any more (a deadlock)"
                )
            self._step()

    def drain(self, what: str) -> None:
        """Let all events happen that are still to come."""
        self.run(lambda: not self._heap, what)

    def _step(self) -> None:
        self._events_left -= 1
        if self._events_left < 0:
            raise StuckError("the run has no end: too many events (a livelock)")
        at, _, _, event = heapq.heappop(self._heap)
        self.now = max(self.now, at)
        event()


def current_task() -> Task | None:
    """The running task, or None in the hub."""
    here = getcurrent()
    return here if isinstance(here, Task) else None


def sleep(duration: int) -> None:
    """Let virtual time pass for the running task (in microseconds)."""
    task = current_task()
    if task is None:
        raise RuntimeError("only a task can sleep")
    if task.process.dead:
        raise GreenletExit
    task.wake_at(task.kernel.now + duration)
    task.wait("time")


# --- what `threading` gives, for tasks --------------------------------------------------------------------


class RLock:
    """`threading.RLock`, and with `reentrant=False` `threading.Lock`. It is fair, and does not notice dead
    owners."""

    reentrant = True

    def __init__(self) -> None:
        self._owner: object | None = None
        self._depth = 0
        self._waiting: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = getcurrent()
        if self._owner is None:
            self._owner, self._depth = me, 1
            return True
        if self._owner is me and self.reentrant:
            self._depth += 1
            return True
        if not blocking:
            return False
        if not isinstance(me, Task):
            raise StuckError("the hub waits for a lock that a task holds")
        if me.process.dead:
            raise GreenletExit
        self._waiting.append(me)
        # `release` takes it out; who holds a `Lock` already waits for another's release.
        while me in self._waiting:
            me.wait("a lock")
        return True

    def release(self) -> None:
        if self._owner is None:
            raise RuntimeError("release unlocked lock")
        self._depth -= 1
        if self._depth:
            return
        self._owner = None
        while self._waiting:
            heir = self._waiting.popleft()
            if not heir.process.dead:
                self._owner, self._depth = heir, 1
                heir.wake()
                return

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def give_up(self) -> int:
        """Release the lock at any depth, for conditions. Returns the depth."""
        depth, self._depth = self._depth, 1
        self.release()
        return depth

    def take_back(self, depth: int) -> None:
        self.acquire()
        self._depth = depth


class Lock(RLock):
    """`threading.Lock`."""

    reentrant = False


class Condition:
    """`threading.Condition`."""

    def __init__(self, lock: RLock | None = None) -> None:
        self._lock = lock or RLock()
        self._waiting: deque[Task] = deque()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        task = current_task()
        if task is None:
            raise StuckError("the hub waits for a condition that only a task can bring about")
        if task.process.dead:
            raise GreenletExit
        self._waiting.append(task)
        depth = self._lock.give_up()
        if timeout is not None:
            task.wake_at(task.kernel.now + round(max(timeout, 0) * SECOND))
        task.wait("a condition")
        told = task not in self._waiting
        if not told:
            self._waiting.remove(task)
        self._lock.take_back(depth)
        return told

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        task = current_task()
        end = None if timeout is None or task is None else task.kernel.now + round(timeout * SECOND)
        while not (found := predicate()):
            left = None if end is None or task is None else (end - task.kernel.now) / SECOND
            if left is not None and left <= 0:
                break
            self.wait(left)
        return found

    def notify(self, n: int = 1) -> None:
        while n > 0 and self._waiting:
            task = self._waiting.popleft()
            if not task.process.dead:
                task.wake()
                n -= 1

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    """`threading.Event`."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._condition.notify_all()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        with self._condition:
            self._condition.wait_for(lambda: self._set, timeout)
        return self._set
