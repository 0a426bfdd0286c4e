"""Airflow has given up a try whose process lives on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.blocks.conftest import RunTasks
from tests.blocks.payments import payments
from tests.support.airflow_home import REPO
from tests.support.stores import accounts_in, states
from tests.support.waiting import must_run, wait_for
from txn_engine import Engine

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.shard("airflow")]


def test_the_next_try_fences_a_process_that_is_alive(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks
) -> None:
    """While a try waits before its commit, the next try loads. When the first one goes on, it is refused and
    says why."""
    from txn_engine_airflow import TxnProduceOperator

    environment = {name: value for name, value in os.environ.items() if name != "AIRFLOW_HOME"}
    command = [sys.executable, "-m", "tests.blocks.zombie", "alive", str(tmp_path)]
    with subprocess.Popen(
        command, cwd=REPO, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as zombie:
        try:
            wait_for(
                (tmp_path / "sent").exists,
                what="the records of the first try",
                limit_s=240,
                meanwhile=must_run(zombie, lambda: zombie.communicate()[0][-3_000:]),
            )
            run = run_tasks(
                lambda: TxnProduceOperator(task_id="load", topic="payments", python_callable=payments),
                dag_id="alive",
            )
            assert run.state == "success", run.errors
            assert zombie.poll() is None
            (tmp_path / "go").touch()
            told, _ = zombie.communicate(timeout=600)
        finally:
            zombie.kill()
    assert zombie.returncode == 3, told[-3_000:]
    assert "this try failed: taken_over\n" in told
    assert accounts_in(engine) == list(range(10))
    assert states(engine) == {"alive/load": "CompleteCommit"}
    assert engine.admin.verify().findings == ()
