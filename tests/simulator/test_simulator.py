"""The simulator's fixed part: seeds that always run, a few fresh ones, and that it is what it says: repeatable."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulator.faults import ALL_FAULTS
from tests.simulator.runner import RunResult, knobs_of, run
from tests.simulator.shrink import kind_of, shrink
from tests.simulator.workloads import WORKLOADS
from txn_engine.protocol import appends

ROOT = Path(__file__).parents[2]
FIXED_SEEDS = (2, 4)
_INJECTED: Counter[str] = Counter()


def _check(result: RunResult) -> None:
    again = f"python -m tests.simulator shrink {result.workload} {result.seed}"
    assert result.ok, "\n".join([*result.findings[:5], again])


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_fixed_seeds(workload: str) -> None:
    """Nothing is lost, doubled, torn or left undecided under these seeds' faults."""
    for seed in FIXED_SEEDS:
        result = run(workload, seed)
        _INJECTED.update(result.faults)
        _check(result)


def test_the_fixed_seeds_fail_in_many_ways() -> None:
    """A fixed set without faults would prove nothing."""
    if sum(_INJECTED.values()) == 0:
        pytest.skip("the fixed seeds were not run")
    assert len(_INJECTED) >= len(ALL_FAULTS) * 2 // 3, sorted(set(ALL_FAULTS) - set(_INJECTED))


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_fresh_seeds(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor under a seed that nobody has tried before; it is printed."""
    seed = time.time_ns() // 1_000_000
    with capsys.disabled():
        print(f" [{workload} {seed}]", end="", flush=True)
    _check(run(workload, seed))


def test_a_seed_is_one_run_byte_for_byte() -> None:
    """The trace and every object that landed are the same, under another hash seed in another process too."""
    here = run("two_owners", 4)
    assert run("two_owners", 4).trace_hash == here.trace_hash
    assert run("two_owners", 5).trace_hash != here.trace_hash
    for hash_seed in ("1", "2"):
        answer = subprocess.run(
            [sys.executable, "-m", "tests.simulator", "replay", "two_owners", "4"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"trace {here.trace_hash}" in answer.stdout


def test_a_broken_rule_is_found_and_made_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the sequence and epoch checks some seed fails; shrunk, the same finding needs less."""
    monkeypatch.setattr(appends, "check_data", lambda *_, **__: None)
    failing = next(result for seed in range(40) if not (result := run("two_owners", seed)).ok)
    short = shrink(failing, runs_max=25)
    assert kind_of(failing.findings[0]) in [kind_of(finding) for finding in short.findings]
    assert len(short.trace) < len(failing.trace)
    assert run("two_owners", short.seed, short.knobs).trace_hash == short.trace_hash


def test_a_run_without_faults_commits_what_it_was_given() -> None:
    """The workloads do work: with a calm store all transactions of the bank are committed."""
    calm = replace(knobs_of("bank", 1), intensity=0.0, skewed_clocks=False, transactions=12)
    result = run("bank", 1, calm)
    _check(result)
    assert result.faults.total() == result.crashes == 0
    assert result.writings["ok"] + result.writings["failed"] == 12
    assert result.writings["ok"] == result.transactions["CompleteCommit"] >= 9
