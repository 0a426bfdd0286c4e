"""One process of the shipping code, seen as an automaton.

A process knows the world only by the store's answers: its clock, write ids and pauses are its own. So its
next request is a function of its answers, which is learned by running it: a node is a list of answers, with
what the process asks then. A run that waits at a node goes on with the first answer that is tried there. For
any other answer the process is run again from its start. Once an edge is known, the code need not run for it
again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.simulator.chance import Chance
from tests.simulator.explore.asking import AskingStore
from tests.simulator.explore.operations import Answer, Operation
from tests.simulator.history import Outcome, RecordId
from tests.simulator.kernel import MS, Kernel, StuckError, Task, sleep
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process, TaskPool
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.clock import Waiting
from txn_engine.log.store_time import ClockAsStoreTime

_EVENTS_MAX = 100_000
_ANSWERS_MAX = 400
_PAUSE_FACTOR = 1_000
_RUNS_KEPT = 1_500


@dataclass(frozen=True, slots=True)
class Told:
    """What a client knows of one of its transactions."""

    name: str
    outcome: Outcome
    records: tuple[tuple[tuple[str, int], tuple[RecordId, ...]], ...]
    placed: tuple[tuple[RecordId, int], ...]


@dataclass(eq=False, slots=True)
class Node:
    """A process after these answers: what it asks (by task, in the order in which it may be served), or its end."""

    number: int
    parent: Node | None
    edge: tuple[int, Answer] | None
    asks: tuple[tuple[int, Operation], ...] = ()
    told: tuple[Told, ...] = ()
    error: str = ""
    depth: int = 0
    after: dict[tuple[int, Answer], Node] = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        """Whether the process asks for nothing any more."""
        return not self.asks


class Automaton:
    """What a process does, as far as that is known.

    `any_order`: the requests of all of its threads may be served next. Otherwise only those of the thread
    that was started first may.
    """

    def __init__(
        self, name: str, body: Body, base: Mapping[str, bytes], *, skew_ms: int, any_order: bool
    ) -> None:
        self.name = name
        self.runs = 0
        self._body, self._base, self._skew_ms, self._any_order = body, base, skew_ms, any_order
        self._kept: OrderedDict[Node, _Run] = OrderedDict()
        self.nodes: list[Node] = []
        run = self._new_run()
        self.root = self._new_node(run, None, None)

    def follow(self, node: Node, task: int, answer: Answer) -> Node:
        """The process after one more answer."""
        edge = (task, answer)
        child = node.after.get(edge)
        if child is None:
            run = self._kept.pop(node, None) or self._run_to(node)
            run.answer(task, answer)
            child = node.after[edge] = self._new_node(run, node, edge)
        return child

    def _run_to(self, node: Node) -> _Run:
        edges = []
        at = node
        while at.parent is not None and at.edge is not None:
            edges.append(at.edge)
            at = at.parent
        run = self._new_run()
        for task, answer in reversed(edges):
            run.answer(task, answer)
        if self._served_next(run) != node.asks:
            raise RuntimeError(f"{self.name} asks otherwise after the same answers: what else does it know?")
        return run

    def _served_next(self, run: _Run) -> tuple[tuple[int, Operation], ...]:
        return run.asks() if self._any_order else run.asks()[:1]

    def _new_run(self) -> _Run:
        self.runs += 1
        return _Run(self.name, self._body, self._base, self._skew_ms)

    def _new_node(self, run: _Run, parent: Node | None, edge: tuple[int, Answer] | None) -> Node:
        node = Node(len(self.nodes), parent, edge, self._served_next(run), run.told(), run.error())
        self.nodes.append(node)
        node.depth = 0 if parent is None else parent.depth + 1
        if node.depth > _ANSWERS_MAX:
            node.error = (
                node.error or f"{self.name}: no end after {_ANSWERS_MAX} store operations (a livelock)"
            )
        if node.has_ended or node.error:
            run.bury()
        else:
            self._kept[node] = run
            if len(self._kept) > _RUNS_KEPT:
                self._kept.popitem(last=False)[1].bury()
        return node

    def close(self) -> None:
        """Unwind the runs that wait."""
        while self._kept:
            self._kept.popitem()[1].bury()


class _Run:
    """One execution of the process, from its start."""

    def __init__(self, name: str, body: Body, base: Mapping[str, bytes], skew_ms: int) -> None:
        self._world = World(0, Knobs(intensity=0.0, skewed_clocks=False))
        self._world.kernel = self._kernel = _InOrder()
        self._world.history._kernel = self._kernel
        self._process = _Process(self._world, name)
        self._process.skew_ms = skew_ms
        self._store = AskingStore(self._process, base)
        self._process.store = self._store  # type: ignore[assignment]
        self._numbers: dict[Task, int] = {}
        self._stuck = ""
        self._main = self._process.start("main", lambda: body(self._process, self._process.engine()))
        self._go_on()

    def asks(self) -> tuple[tuple[int, Operation], ...]:
        return tuple(
            sorted(((self._numbers[task], op) for task, op in self._store.asked.items()), key=_number)
        )

    def answer(self, number: int, answer: Answer) -> None:
        task = next(task for task, found in self._numbers.items() if found == number)
        self._store.answer(task, answer)
        self._go_on()

    def _go_on(self) -> None:
        try:
            self._kernel.drain("a process")
        except StuckError as error:
            self._stuck = str(error)
        for task in self._store.asked:  # a thread's number: when it first asked for something
            self._numbers.setdefault(task, len(self._numbers))
        if not self._store.asked and not self._main.dead and not self._stuck:
            self._stuck = "; ".join(self._world.blocked()) or "it waits for nothing"

    def error(self) -> str:
        if self._kernel.failures:
            who, error = self._kernel.failures[0]
            return f"{who} failed: {type(error).__name__}: {error}"
        complaints = self._world.history.complaints
        return complaints[0] if complaints else f"stuck: {self._stuck}" if self._stuck else ""

    def told(self) -> tuple[Told, ...]:
        return told_by(self._world)

    def bury(self) -> None:
        self._process.bury()


def _number(ask: tuple[int, Operation]) -> int:
    return ask[0]


def told_by(world: World) -> tuple[Told, ...]:
    """What the clients of a world know of their transactions."""
    return tuple(
        Told(
            writing.name,
            writing.outcome,
            tuple((place, tuple(ids)) for place, ids in writing.records.items()),
            tuple(sorted(writing.placed.items())),
        )
        for writing in world.history.writings.values()
    )


class _InOrder(Kernel):
    """Events of the same time happen in the order in which they were asked for, without chance."""

    def __init__(self) -> None:
        chance = Chance(0)
        chance.tie = lambda: 0.0
        super().__init__(chance, max_events=_EVENTS_MAX)


class _Process(Process):
    """A process with little patience: a pause counts a thousandfold, so that limits on retries are reached
    soon."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, 0, 1_000 + sum(name.encode()))

    def engine(self) -> Engine:
        engine = Engine(
            self.store,
            clock=self.clock,
            new_id=self.new_id,
            pause=lambda _: None,
            waiting=Waiting(lambda: self.world.kernel.now // MS, lambda ms: sleep(ms * MS * _PAUSE_FACTOR)),
            executors=lambda threads, name: TaskPool(self, threads, name),
            store_time=ClockAsStoreTime(self.clock),
        )
        # No log is lost here, and to ask whether one was would multiply the interleavings of every first write.
        engine.logs.tools = replace(engine.logs.tools, loss_of=lambda _: None)
        return engine
