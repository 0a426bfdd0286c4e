"""One run's world: the kernel, the store, the processes, and what their clients saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from storage import encode_json
from tests.simulator.chance import Chance
from tests.simulator.disk import DiskShelf, LocalClient, Machine, machine_of
from tests.simulator.faults import LONGEST_JUMP, FaultPlan
from tests.simulator.history import History
from tests.simulator.kernel import HOUR, MS, SECOND, START_MS, Kernel, Task, sleep
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.store import ClientStore, Shelf
from tests.simulator.tracing import HEALED
from txn_engine import Engine
from txn_engine.log.store_config import (
    CONSUMER_OFFSETS_TOPIC,
    STORE_KEY,
    TRANSACTION_STATE_TOPIC,
    StoreConfig,
    StoreLimits,
)

Body = Callable[[Process, Engine], None]


class World:
    """Everything of one run. Workloads put clients into it; the runner runs it, heals it, and has it judged.

    `machines`: what ends the machine of a local store at the end.
    """

    def __init__(self, seed: int, knobs: Knobs, machines: ExitStack | None = None) -> None:
        self.seed = seed
        self.knobs = knobs
        self.chance = Chance(seed)
        self.kernel = Kernel(self.chance)
        self.plan = FaultPlan(
            self.chance,
            knobs.intensity,
            knobs.longest_pause,
            knobs.only_sites,
            every_kind=knobs.every_kind,
            local=knobs.local_store,
        )
        self.machine: Machine | None = None
        if machines is not None and knobs.local_store:
            self.machine = machines.enter_context(machine_of(self))
        self.shelf = Shelf(self.kernel) if self.machine is None else DiskShelf(self.kernel, self.machine)
        self.history = History(self.kernel)
        self.processes: list[Process] = []
        self.clients: list[str] = []
        self.operations = 0
        self.crashes = 0
        self.stopping = False
        self.is_healed = False
        self.latest_ms = START_MS  # the latest time that any clock has shown
        self.notes: dict[str, Any] = {}  # what the clients of one workload keep together
        self.judged: Counter[str] = Counter()  # what a workload has judged, by what it is
        self._restarts: dict[Process, Callable[[], None]] = {}
        self._working: dict[str, None] = {}
        self._pids = 1_000

    # --- setting up -----------------------------------------------------------------------------------------

    def set_up_store(self) -> None:
        """A store that was set up long ago, with few internal partitions and this run's limits."""
        chance = self.chance
        config = StoreConfig(
            chance.hex_id("store"),
            START_MS,
            {"simulated": True},
            StoreLimits(
                max_transaction_timeout_ms=900_000,
                transactional_id_expiration_ms=self.knobs.id_expiration_ms,
                producer_id_expiration_ms=self.knobs.producer_id_expiration_ms,
            ),
            {
                TRANSACTION_STATE_TOPIC: self.knobs.coordinator_partitions,
                CONSUMER_OFFSETS_TOPIC: self.knobs.group_partitions,
            },
        )
        self.shelf.put_if_absent(STORE_KEY, encode_json(asdict(config), "store"))

    def first_skew_ms(self, name: str) -> int:
        """How far this machine's clock is off, in all lives of the process. After everything is healed it is
        right."""
        if self.is_healed or not self.knobs.skewed_clocks or self.chance.at("skewed", name) < 0.5:
            return 0
        size = self.chance.spread(1_000, LONGEST_JUMP // MS, "skew", name)
        return size if self.chance.at("ahead", name) < 0.5 else -size

    def store_of(self, process: Process) -> ClientStore:
        """The store as one process reaches it."""
        if self.machine is None:
            return ClientStore(self.shelf, process)
        return LocalClient(self.shelf, process, self.machine)

    # --- processes ------------------------------------------------------------------------------------------

    def client(self, name: str, body: Body, *, worker: bool = True, delay: int = 0) -> None:
        """A process that runs `body` to its end, and again after a crash.

        The main phase is over when all workers have ended, and the others have to look at `stopping`. A
        client that the knobs leave out does nothing, which is how a failing run is shrunk.
        """
        self.clients.append(name)
        if name in self.knobs.without_clients:
            return
        if worker:
            self._working[name] = None
        self._live(name, 0, body, delay or self.chance.between(0, 2 * SECOND, "start", name))

    def _live(self, name: str, life: int, body: Body, delay: int) -> None:
        process = self.new_process(name, life)

        def main() -> None:
            body(process, process.connect())
            self._working.pop(name, None)

        def again() -> None:
            back = life < self.knobs.max_lives and self.chance.at("restarts", name, life) < 0.9
            if not back or self.stopping:
                self._working.pop(name, None)
                return
            self._live(name, life + 1, body, self.chance.spread(50_000, HOUR, "down", name, life))

        self._restarts[process] = again
        process.start("main", main, delay=delay)

    def new_process(self, name: str, life: int = 0) -> Process:
        """A process in which nothing runs yet."""
        self._pids += 1
        process = Process(self, name, life, self._pids)
        self.processes.append(process)
        return process

    def on_death(self, process: Process) -> None:
        """Note that a process has crashed. It may come back."""
        self.crashes += 1
        self.kernel.note(process.name, "", "crash", "", "", "")
        again = self._restarts.pop(process, None)
        if again is not None:
            self.kernel.at(self.kernel.now, again)

    def run_alone(self, name: str, body: Callable[[Process, Engine], Any]) -> Any:
        """Run something in a fresh process to its end, next to everything else, and return its result."""
        process = self.new_process(name)
        box: list[Any] = []
        process.start("main", lambda: box.append(body(process, process.engine())))
        before = len(self.kernel.failures)
        self.kernel.run(lambda: bool(box) or len(self.kernel.failures) > before, name)
        if not box:
            raise self.kernel.failures[-1][1]
        return box[0]

    # --- the phases of a run --------------------------------------------------------------------------------

    def run_clients(self) -> None:
        """Let the workers do their work. Then the others see that it is over, and end."""
        self.kernel.run(lambda: not self._working or bool(self.kernel.failures), "the clients' work")
        self.stopping = True

    def heal(self) -> None:
        """End the faults. Every put that is under way lands, and the remaining processes come to an end."""
        self.plan.enabled = False
        self.is_healed = True
        self.kernel.note("world", "", HEALED, "", "", "")
        for process in self.processes:
            process.paused_until = min(process.paused_until, self.kernel.now)
            process.skew_ms = 0
        self.kernel.drain("after the faults")

    def let_time_pass(self, duration: int) -> None:
        """Move virtual time on with nothing running."""
        self.kernel.at(self.kernel.now + duration, lambda: None)
        self.kernel.drain("waiting")

    def let_clocks_catch_up(self) -> None:
        """Wait until the true time is past the furthest clock, and all time-outs after it are over."""
        ahead = max(self.latest_ms - self.kernel.now_ms, 0)
        self.let_time_pass(2 * HOUR + ahead * MS)

    def bury(self) -> None:
        """End all processes."""
        for process in self.processes:
            process.bury()

    def blocked(self) -> list[str]:
        """Which tasks still wait, and for what. After everything was drained, these are stuck."""
        return [
            f"{process.name}/{task.name} waits for {task.waits_for}"
            for process in self.processes
            if not process.dead
            for task in process.tasks
        ]


def pause(low: int, high: int, world: World, *name: object) -> None:
    """Let the running client rest for a time that belongs to this name."""
    sleep(world.chance.spread(low, high, "rest", *name))


__all__ = ["Body", "Task", "World", "pause"]
