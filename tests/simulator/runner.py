"""One run: set up, run the clients, heal, and judge."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import xxhash

from tests.simulator.checks import Final, check_history
from tests.simulator.kernel import StuckError
from tests.simulator.knobs import Knobs
from tests.simulator.log_rules import check_landed
from tests.simulator.patches import simulated
from tests.simulator.process import Process
from tests.simulator.workloads import WORKLOADS
from tests.simulator.workloads.common import read_topic
from tests.simulator.world import World
from tests.support.unforeseen import as_it_was_raised
from txn_engine import Engine
from txn_engine.types import SweepReport
from txn_engine.verify import Finding, verify_store

_SWEEPS_MAX = 10
_TOLERATED = (
    "producer-id-block",  # a block whose object never landed: ids lost, nothing wrong
    "cut-lost",  # whoever claimed the cut's number died
)


def is_wrong(finding: Finding) -> bool:
    """Whether a correct run leaves nothing like this behind. Of some kinds it may leave warnings."""
    return finding.severity == "error" or finding.code not in _TOLERATED


@dataclass(slots=True)
class RunResult:
    """What one run did, and what was wrong."""

    workload: str
    seed: int
    knobs: Knobs
    findings: list[str] = field(default_factory=list)
    trace: list[tuple[Any, ...]] = field(default_factory=list)
    trace_hash: str = ""
    landed: list[tuple[int, str, bytes, str]] = field(default_factory=list)
    operations: int = 0
    crashes: int = 0
    lost_in_cuts: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    fault_sites: dict[str, str] = field(default_factory=dict)
    clients: list[str] = field(default_factory=list)
    transactions: Counter[str] = field(default_factory=Counter)
    writings: Counter[str] = field(default_factory=Counter)
    judged: Counter[str] = field(default_factory=Counter)
    virtual_ms: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


def knobs_of(workload: str, seed: int) -> Knobs:
    """The shape of this workload's run for the seed."""
    shape = getattr(WORKLOADS[workload], "shape", None)
    return Knobs.of(seed) if shape is None else shape(Knobs.of(seed))


def run(workload: str, seed: int, knobs: Knobs | None = None) -> RunResult:
    """Run one workload under one seed. The same arguments give the same result, byte for byte."""
    started = time.perf_counter()
    module = WORKLOADS[workload]
    result = RunResult(workload, seed, knobs or knobs_of(workload, seed))
    with simulated(), as_it_was_raised(), ExitStack() as machines:
        world = World(seed, result.knobs, machines)
        try:
            _play(module, world, result)
        except StuckError as error:
            result.findings += [f"stuck: {error}", *world.blocked()[:20]]
        except Exception as error:  # noqa: BLE001 - whatever the code under test let through is a finding
            lines = traceback.format_exception(error)
            result.findings.append(f"failed: {''.join(lines[-8:])}")
        finally:
            world.bury()
    _sum_up(world, result)
    result.seconds = time.perf_counter() - started
    return result


def _play(module: Any, world: World, result: RunResult) -> None:
    world.set_up_store()
    world.plan.enabled = False
    module.set_up(world)
    world.plan.enabled = True
    world.run_clients()
    world.heal()
    for who, error in world.kernel.failures:
        lines = traceback.format_exception(error)
        result.findings.append(f"{who} failed: {''.join(lines[-6:])}")
    if world.blocked():
        result.findings += [f"stuck at the end: {line}" for line in world.blocked()]
    if result.findings:
        return
    world.let_clocks_catch_up()
    result.findings += world.run_alone("healer", lambda _, engine: finish_everything(engine))
    if hasattr(module, "heal"):
        module.heal(world)
    final: Final = world.run_alone(
        "judge", lambda process, engine: _read_everything(process, engine, module.TOPICS)
    )
    starts = world.run_alone("starts", lambda _, engine: _log_starts(engine, module.TOPICS))
    result.findings += check_history(world.history, final, starts)
    if hasattr(module, "check"):
        result.findings += module.check(world, final)
    world.run_alone("snapshots", lambda _, engine: engine.admin.snapshot())
    again: Final = world.run_alone(
        "judge2", lambda process, engine: _read_everything(process, engine, module.TOPICS)
    )
    if again != final:
        result.findings.append(
            "snapshots: a reader that loads them reads something else than one that replays"
        )
    result.findings += check_landed(world.shelf.landed)
    result.findings += _audit(world, result)


def finish_everything(engine: Engine) -> list[str]:
    """Invariant 10: once the faults are over, the sweeps bring every transaction to a final state."""
    report = SweepReport()
    for _ in range(_SWEEPS_MAX):
        aborted = engine.coordinator.abort_timed_out_transactions()
        report = engine.coordinator.write_pending_markers()
        if not (aborted.transactional_ids or aborted.failures or report.transactional_ids or report.failures):
            return []
    return [f"the sweeps come to no end: {report}"]


def _read_everything(process: Process, engine: Engine, topics: tuple[str, ...]) -> Final:
    return {place: rows for topic in topics for place, (_, rows) in read_topic(engine, topic).items()}


def _log_starts(engine: Engine, topics: tuple[str, ...]) -> dict[tuple[str, int], int]:
    return {
        (tp.topic, tp.partition): offsets.log_start_offset
        for topic in topics
        for tp, offsets in engine.admin.list_offsets(topic).items()
    }


def _audit(world: World, result: RunResult) -> list[str]:
    """Run the auditor over the raw objects. After the sweeps even its warnings are findings."""
    report = verify_store(world.shelf, now_ms=world.kernel.now_ms, workers=0)
    result.transactions.update(report.stats.transactions)
    return [f"audit: {finding}" for finding in report.findings if is_wrong(finding)]


def _sum_up(world: World, result: RunResult) -> None:
    result.trace = world.kernel.trace
    result.landed = world.shelf.landed
    digest = xxhash.xxh3_128()
    for event in result.trace:
        digest.update(repr(event).encode())
    for at, key, data, operation in world.shelf.landed:
        digest.update(f"{at} {key} {operation} ".encode())
        digest.update(data)
    result.trace_hash = digest.hexdigest()
    result.operations = world.operations
    result.crashes = world.crashes
    result.lost_in_cuts = 0 if world.machine is None else world.machine.lost
    result.faults = world.plan.injected
    result.fault_sites = world.plan.sites
    result.clients = world.clients
    result.writings.update(writing.outcome for writing in world.history.writings.values())
    result.judged = world.judged
    result.virtual_ms = world.kernel.now // 1_000
