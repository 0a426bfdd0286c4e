"""The fixed part of the simulator: seeds that always run, and a proof that a seed is one run. The shard has
fresh seeds too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulator.faults import ALL_FAULTS, BUCKET_FAULTS, LOCAL_FAULTS, FaultPlan
from tests.simulator.kernel import DAY, HOUR
from tests.simulator.knobs import Knobs
from tests.simulator.runner import RunResult, knobs_of, run
from tests.simulator.shrink import kind_of, shrink
from tests.simulator.workloads import WORKLOADS
from tests.simulator.world import World
from tests.suite.tiers import in_shard
from txn_engine.protocol import appends

ROOT = Path(__file__).parents[2]
_SEEDS_MAX = 8
_HOUR_MS = 3_600_000
WITHOUT_DISK = {"decay": "its damage is done to the objects of a bucket directly, not through the store"}
"""The workloads that never run on a local store, and why: `crash-inside` and `power-cut` cannot happen there."""
ON_DISK_TOO = ("bank", "power", "upkeep")
"""The workloads that `make test` runs on a local store as well as on a bucket: those whose promises a disk could break.
They inject the two kinds of fault that only a disk has.
"""
RUNS = [
    (workload, local)
    for local in (False, True)
    for workload in sorted(WORKLOADS)
    if not (local and workload in WITHOUT_DISK)
]
"""A run has one workload and one kind of store, and all kinds of fault that the store can have."""


FIRST_SEEDS: dict[bool, dict[str, int]] = {
    False: {
        "backups": 2,
        "bank": 15,
        "compacted": 21,
        "cuts": 11,
        "deadlines": 3,
        "epochs": 12,
        "erasure": 24,
        "fork": 5,
        "former": 24,
        "hanging": 5,
        "late_end_txn": 2,
        "lives": 2,
        "pipeline": 6,
        "power": 6,
        "reload": 7,
        "remade": 4,
        "requests": 4,
        "resets": 13,
        "schemas": 2,
        "seals": 24,
        "settings": 16,
        "stalled": 2,
        "sweeps": 3,
        "tables": 11,
        "threads": 2,
        "upkeep": 2,
    },
    True: {"bank": 4, "power": 2, "upkeep": 6},
}
"""By the kind of store, local or not, and the workload: a short run that injects every kind of fault. If the code has
changed so much that it does not any more, `make test` tries the seeds from 1 on.
"""


def _is_in_make_test(run_: tuple[str, bool]) -> bool:
    workload, local = run_
    return not local or workload in ON_DISK_TOO


def _run_id(value: str | bool) -> str:
    return {False: "bucket", True: "local"}[value] if isinstance(value, bool) else value


def _check(result: RunResult) -> None:
    again = f"python -m tests.simulator shrink {result.workload} {result.seed}"
    assert result.ok, "\n".join([*result.findings[:5], again])


@pytest.mark.parametrize(
    ("workload", "local"), in_shard("simulator", RUNS, keep=_is_in_make_test), ids=_run_id
)
def test_every_kind_of_fault_in_every_workload(workload: str, local: bool) -> None:
    """Nothing is lost, doubled, torn or left undecided, although every kind of fault that the store can have
    is injected into the workload. The test runs a seed that has them all, or seeds from 1 on until each kind
    has been injected."""
    _inject_every_kind(workload, FIRST_SEEDS[local].get(workload, 1), local=local)


@pytest.mark.shard("simulator")
@pytest.mark.parametrize(
    ("workload", "local"),
    [(workload, local) for local in FIRST_SEEDS for workload in FIRST_SEEDS[local]],
    ids=_run_id,
)
def test_every_kind_of_fault_from_the_first_seed_on(workload: str, local: bool) -> None:
    """The same holds from seed 1 on for the workloads of which `make test` runs a later seed."""
    _inject_every_kind(workload, 1, local=local)


def _inject_every_kind(workload: str, first: int, *, local: bool) -> None:
    missing = set(LOCAL_FAULTS if local else BUCKET_FAULTS)
    for seed in dict.fromkeys((first, *range(1, _SEEDS_MAX + 1))):
        result = run(workload, seed, _with_every_kind(workload, seed, local=local))
        _check(result)
        missing -= set(result.faults)
        if not missing:
            break
    assert missing == set(), f"{_SEEDS_MAX} seeds never injected these"


def test_make_test_pairs_every_workload_with_every_kind_of_fault() -> None:
    """The runs that `make test` keeps pair each workload with each kind of fault of a bucket, and with each kind of
    fault at all in the workloads that run on a disk too. Each run checks that it injected its kinds.
    """
    pairs = {
        (workload, fault)
        for workload, local in RUNS
        if _is_in_make_test((workload, local))
        for fault in (LOCAL_FAULTS if local else BUCKET_FAULTS)
    }
    wanted = {(workload, fault) for workload in WORKLOADS for fault in BUCKET_FAULTS}
    wanted |= {(workload, fault) for workload in ON_DISK_TOO for fault in ALL_FAULTS}
    assert pairs == wanted
    assert {fault for _, fault in pairs} == set(ALL_FAULTS)


@pytest.mark.parametrize("workload", sorted(WITHOUT_DISK))
def test_some_workloads_never_run_on_a_local_store(workload: str) -> None:
    assert not any(knobs_of(workload, seed).local_store for seed in range(100))


def _with_every_kind(workload: str, seed: int, *, local: bool) -> Knobs:
    return replace(
        knobs_of(workload, seed), every_kind=True, intensity=1.0, skewed_clocks=True, local_store=local
    )


def test_the_page_lists_what_runs_and_what_goes_wrong() -> None:
    """docs/SIMULATOR.md lists every workload and every kind of fault in its tables, and no other."""
    text = (ROOT / "docs" / "SIMULATOR.md").read_text(encoding="utf-8")
    faults, workloads = (
        re.findall(r"`([a-z_-]+)`", " ".join(re.findall(r"^\| ([^|]+) \|", part, re.MULTILINE)))
        for part in (
            text.split("| fault |")[1].split("\n\n")[0],
            text.split("| workload |")[1].split("\n\n")[0],
        )
    )
    assert sorted(faults) == sorted(ALL_FAULTS)
    assert sorted(workloads) == sorted(WORKLOADS)


def test_clocks_are_hours_off_both_ways_and_processes_sleep_for_weeks() -> None:
    """Skews and jumps of hours, ahead and back, and pauses of weeks are drawn, as the guarantees about time
    say."""
    worlds = [
        World(seed, replace(knobs_of("bank", seed), skewed_clocks=True, local_store=False))
        for seed in range(60)
    ]
    skews = [world.first_skew_ms(f"p{number}") for world in worlds for number in range(5)]
    assert min(skews) < -_HOUR_MS
    assert max(skews) > _HOUR_MS
    jumps, pauses = [], []
    for world in worlds:
        plan = FaultPlan(world.chance, longest_pause=world.knobs.longest_pause, every_kind=True)
        faults = [fault for site in map(str, range(3_000)) if (fault := plan.at(site, "get")) is not None]
        jumps += [fault.duration for fault in faults if fault.kind == "clock-jump"]
        pauses += [fault.duration for fault in faults if fault.kind.startswith("pause")]
    assert min(jumps) < -HOUR
    assert max(jumps) > HOUR
    assert max(pauses) > 14 * DAY


@pytest.mark.parametrize("is_whole", in_shard("simulator", [False, True], keep=1))
def test_a_power_cut_takes_what_was_not_synced_and_leaves_what_was_acknowledged(is_whole: bool) -> None:
    """In one of these runs a power cut loses an object that already had its name and had not been
    acknowledged. `make test` stops at that run."""
    cuts = lost = 0
    for seed in range(6, 12):
        result = run("idempotent", seed, _with_every_kind("idempotent", seed, local=True))
        _check(result)
        cuts += result.faults["power-cut"]
        lost += result.lost_in_cuts
        if lost and not is_whole:
            break
    assert cuts
    assert lost


@pytest.mark.shard("simulator")
@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_fresh_seeds(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is lost under a seed that was never tried before. The seed is printed."""
    seed = time.time_ns() // 1_000_000
    with capsys.disabled():
        print(f" [{workload} {seed}]", end="", flush=True)
    _check(run(workload, seed))


@pytest.mark.parametrize(
    ("workload", "seed", "other"),
    in_shard("simulator", [("power", 1, 2), ("idempotent", 1, 2), ("two_owners", 7, 13)], keep=1),
)
def test_a_seed_is_one_run_byte_for_byte(workload: str, seed: int, other: int) -> None:
    """The trace and every object that landed are the same in a second run, and in another process with
    another hash seed."""
    here = run(workload, seed)
    assert run(workload, seed).trace_hash == here.trace_hash
    assert run(workload, other).trace_hash != here.trace_hash
    other_hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    answer = subprocess.run(
        [sys.executable, "-m", "tests.simulator", "replay", workload, str(seed)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": other_hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"trace {here.trace_hash}" in answer.stdout


@pytest.mark.shard("simulator")
@pytest.mark.parametrize("runs_max", [2, 6, 25])
def test_a_broken_rule_is_found_and_made_short(monkeypatch: pytest.MonkeyPatch, runs_max: int) -> None:
    """Without the sequence and epoch checks some seed fails, and shrinking gives a shorter run with the same
    finding."""
    monkeypatch.setattr(appends, "check_data", lambda *_, **__: None)
    failing = next(result for seed in range(40) if not (result := run("two_owners", seed)).ok)
    short = shrink(failing, runs_max=runs_max)
    assert kind_of(failing.findings[0]) in [kind_of(finding) for finding in short.findings]
    assert len(short.trace) < len(failing.trace)
    assert run("two_owners", short.seed, short.knobs).trace_hash == short.trace_hash


def test_a_run_without_faults_commits_what_it_was_given() -> None:
    """On a store without faults all transactions of the bank are committed, so the workloads do work."""
    calm = replace(knobs_of("bank", 1), intensity=0.0, skewed_clocks=False, transactions=12)
    result = run("bank", 1, calm)
    _check(result)
    assert result.faults.total() == result.crashes == 0
    assert result.writings["ok"] + result.writings["failed"] == 12
    assert result.writings["ok"] == result.transactions["CompleteCommit"] >= 9
