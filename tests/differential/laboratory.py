"""Many programs run on one broker, several at a time, each on its own partitions, ids and groups."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.differential.broker import Broker
from tests.differential.comparison import Comparison, compare, compare_clients
from tests.differential.coordinator_rows import write_rows
from tests.differential.errors import TooSlowError
from tests.differential.java_clients import ClientMachine, JavaClients, Operator
from tests.differential.kafka_side import KafkaSide, make_topic
from tests.differential.programs import PRESET_PLACE, PRESETS, Preset, Program
from tests.differential.sides import Identity, Place
from tests.support.kafka_server import ADMIN_CLIENT_ID, KafkaServer

PARTITIONS_A_TOPIC = 100
SPARE_PRESETS = 8
TRIES = 4
_FIRST_PRESET_PRODUCER_ID = 1 << 40
_PRESET_TOPIC = "preset"
Said = Callable[[Comparison], None]


class NoPresetLeftError(Exception):
    """All rows that were written for programs of this preset are used up."""


class Laboratory:
    """A broker's life. It first runs programs with partitions only and ids that expire. After a restart it
    runs programs with coordinators and verification.

    Between the two, the rows of ids near the end of their epochs are written, so that the restarted
    coordinator loads them. If no program needs the first part, the broker begins with coordinators and
    verification.
    """

    def __init__(self, jars: Path, programs: Sequence[Program]) -> None:
        self._alone = [each for each in programs if each.kind == "partition"]
        self._expiring = [each for each in programs if each.kind == "expiry"]
        self._coordinated = [each for each in programs if each.kind not in ("partition", "expiry")]
        has_presets = any(each.preset is not None for each in self._coordinated)
        self._is_restarted = bool(self._alone or self._expiring or has_presets)
        self._server = KafkaServer(jars, verification=not self._is_restarted)
        self._numbers = itertools.count()
        self._presets: dict[Preset, list[tuple[str, Identity, int]]] = defaultdict(list)
        self._free: list[tuple[str, int]] = []
        self._lock = threading.Lock()
        self._local = threading.local()
        self._jars = jars
        self._machine: ClientMachine | None = None

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._machine is not None:
            self._machine.close()
        self._server.__exit__(kind, error, trace)

    def run_all(self, said: Said, threads: int) -> None:
        """Run every program. `said` gets each comparison, from any thread."""
        self.run(self._alone, said, threads)
        self.run(self._expiring, said, threads * 2)  # they sleep most of the time
        if self._is_restarted:
            self.coordinate()
        timed = [each for each in self._coordinated if each.kind == "time-out"]
        self.run([each for each in self._coordinated if each.kind != "time-out"], said, threads)
        self.run(timed, said, threads * 3)  # they sleep most of the time

    def coordinate(self) -> None:
        """Write the rows that have to exist already, and restart with verification."""
        rows = list(self._preset_rows())
        with self._server.connect(ADMIN_CLIENT_ID) as connection:
            broker = Broker(connection)
            broker.create_topics({_PRESET_TOPIC: len(rows)})
            write_rows(broker, rows)
        self._free.clear()
        self._local = threading.local()
        self._server.restart(verification=True)

    def _preset_rows(self) -> Iterator[tuple[str, str, Identity, tuple[str, int]]]:
        wanted = [each.preset for each in self._coordinated if each.preset is not None]
        for number, preset in enumerate([*wanted, *(PRESETS * SPARE_PRESETS)]):
            identity = Identity(_FIRST_PRESET_PRODUCER_ID + number, preset.producer_epoch)
            prefix = f"near-the-end-{number}-"
            self._presets[preset].append((prefix, identity, number))
            yield f"{prefix}t0", preset.state, identity, (_PRESET_TOPIC, number)

    def run(self, programs: Iterable[Program], said: Said, threads: int) -> None:
        """Run programs, several at a time."""
        with ThreadPoolExecutor(threads) as pool:
            for comparison in pool.map(self.compare, programs):
                said(comparison)

    def compare(self, program: Program) -> Comparison:
        """Run one program on both sides. It runs again if the machine was too slow for its time-outs."""
        for tries_left in reversed(range(TRIES)):
            try:
                return self._compare(program)
            except TooSlowError:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    def _compare(self, program: Program) -> Comparison:
        with self._lock:
            prefix, identity = f"program-{next(self._numbers)}-", None
            places: dict[Place, tuple[str, int]] = {}
            if program.preset is not None:
                if not self._presets[program.preset]:
                    raise NoPresetLeftError
                prefix, identity, number = self._presets[program.preset].pop()
                places[PRESET_PLACE] = (_PRESET_TOPIC, number)
            for place in program.places:
                if place != PRESET_PLACE and not program.own_topics:
                    places[place] = self._fresh_partition()
        if program.own_topics:
            places = self._own_topics(program.places, prefix)
        if program.kind in ("client", "loop"):
            clients = JavaClients(self._clients, self._server.port, places, prefix, self._broker())
            with contextlib.closing(clients):
                return compare_clients(program, clients)
        kafka = KafkaSide(self._broker(), places, prefix, self._operator, self._fresh_partition_of_anybody)
        return compare(program, kafka, identity)

    def _own_topics(self, places: Sequence[Place], prefix: str) -> dict[Place, tuple[str, int]]:
        for topic in sorted({place.topic for place in places}):
            count = 1 + max(each.partition for each in places if each.topic == topic)
            make_topic(self._broker(), prefix + topic, count)
        return {place: (prefix + place.topic, place.partition) for place in places}

    def _operator(self) -> Operator:
        return Operator(self._clients, self._server.port)

    def _fresh_partition_of_anybody(self) -> tuple[str, int]:
        with self._lock:
            return self._fresh_partition()

    def _fresh_partition(self) -> tuple[str, int]:
        if not self._free:
            topic = f"topic-{next(self._numbers)}"
            make_topic(self._broker(), topic, PARTITIONS_A_TOPIC)
            self._free = [(topic, number) for number in range(PARTITIONS_A_TOPIC)]
        return self._free.pop()

    @property
    def _clients(self) -> ClientMachine:
        """Kafka's own clients. Their JVM starts with the first program that has any."""
        with self._lock:
            if self._machine is None:
                self._machine = ClientMachine(self._jars)
            return self._machine

    def _broker(self) -> Broker:
        """The broker's requests over this thread's own connection."""
        if not hasattr(self._local, "broker"):
            self._local.broker = Broker(self._server.connect())
        found: Broker = self._local.broker
        return found


def shrink(laboratory: Laboratory, comparison: Comparison) -> Comparison:
    """The shortest program found that still ends in the same difference. Steps are left out as long as the
    difference stays."""
    best = comparison
    size = max(len(best.lines) // 2, 1)
    try:
        while size:
            shorter = _leave_out(laboratory, best, size)
            if shorter is None:
                size //= 2
            else:
                best = shorter
    except NoPresetLeftError:
        pass  # what there is by now is short enough to be looked at
    return best


def _leave_out(laboratory: Laboratory, comparison: Comparison, size: int) -> Comparison | None:
    """Leave out `size` steps in a row, at the first place that keeps the difference. None if there is no such
    place."""
    *before, last = comparison.lines
    steps = [line.step for line in before if not line.is_extra]
    for at in range(0, len(steps), size):
        kept = (*steps[:at], *steps[at + size :], *(() if last.is_extra else (last.step,)))
        tried = laboratory.compare(replace(comparison.program, steps=kept))
        if not tried.agrees and _difference(tried) == _difference(comparison):
            return tried
    return None


def _difference(comparison: Comparison) -> tuple[str, str | None, str | None]:
    line = comparison.lines[-1]
    return type(line.step).__name__, line.ours.code, line.kafka.code
