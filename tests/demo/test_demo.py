"""The whole demo as its users call it, with real processes and a small input. Every number is checked."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

import txn_engine
from tests.demo import in_threads, small_input
from tests.suite.tiers import in_shard
from tests.support.internal import FEW_INTERNAL
from tests.support.waiting import wait_for
from txn_engine.demo import sample
from txn_engine.protocol.hashing import murmur2

REPO = Path(__file__).resolve().parents[2]
PARTITIONS = 4
DUPLICATE_ROWS = sum(
    (murmur2((number * 31 % small_input.ACCOUNTS + 1).to_bytes(8, "big")) & 0x7FFFFFFF) % PARTITIONS == 0
    for number in range(small_input.ROWS_A_DAY)
)
"""The rows of the batch that is sent twice: those of one day in partition 0, the same number on each day."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.airflow,
    pytest.mark.timeout(600),
    pytest.mark.together("a finished demo"),
]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "txn_engine", "demo", *arguments]


def environment() -> dict[str, str]:
    named = {
        key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "TXN_ENGINE_URL"))
    }
    return {**named, "PYTHONPATH": str(REPO), "COLUMNS": "120"}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


class Finished:
    """A finished run of the demo on the small input, into a store with few internal partitions.

    whole: by the command, with each part in a process of its own. Otherwise Airflow, Spark and the checker are threads
    of this process, which need not start: a quarter of the processor time.
    """

    def __init__(self, folder: Path, *, whole: bool) -> None:
        self.url = f"file://{folder}/ledger"
        input_file = small_input.write(folder / "trans.csv")
        txn_engine.connect(self.url, configs=FEW_INTERNAL).close()
        if whole:
            done = run(folder, "--url", self.url, "--input", str(input_file), "--json")
            print(done.stderr)  # for the report of a test that fails
            self.exit_code, self.said = done.returncode, done.stdout
        else:
            with pytest.MonkeyPatch.context() as patch:
                self.exit_code, self.said = in_threads.tell(folder, self.url, input_file, patch)

    @property
    def outcome(self) -> dict[str, Any]:
        return dict(json.loads(self.said))


@pytest.fixture(scope="module", params=in_shard("machine", ["threads", "whole"], keep=["threads"]))
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return Finished(tmp_path_factory.mktemp("demo"), whole=request.param == "whole")


def records_of_input() -> list[list[str]]:
    return [line.replace('"', "").split(";") for line in small_input.lines()[1:]]


def ids_of_input() -> list[int]:
    return [int(record[0]) for record in records_of_input()]


def test_the_story_goes_as_it_is_told(finished: Finished) -> None:
    """The demo exits with 0 and prints one JSON document. Its numbers follow from the input and the accidents."""
    assert finished.exit_code == 0, finished.said
    outcome = finished.outcome
    a_day = small_input.ROWS_A_DAY
    assert (outcome["ok"], outcome["unexpected"]) == (True, [])
    assert outcome["rows"] == {"in": small_input.ROWS, "committed": small_input.ROWS, "aborted": 3 * a_day}
    assert outcome["duplicates_dropped"] == {"batches": 1, "rows": DUPLICATE_ROWS}
    assert [said["code"] for said in outcome["refused"]] == ["PRODUCER_FENCED", "OFFSETS_MOVED"]
    assert [said["rows"] for said in (*outcome["killed"], *outcome["aborted_on_purpose"])] == [a_day, a_day]
    assert outcome["sweep"]["timed_out"] == ["load-1"]
    assert outcome["sweep"]["completed"] == ["load-0", "load-2", "load-3"]
    assert outcome["sweep"]["partitions_marked"] == 3 * PARTITIONS
    assert outcome["sweep"]["behind_before"] > a_day
    assert outcome["sweep"]["behind"] == 0
    # days and the stream's two micro-batches; killed, fenced, on purpose, the killed micro-batch, the overlapping job
    assert outcome["transactions"] == {"CompleteCommit": small_input.DAYS + 2, "CompleteAbort": 5}
    assert small_input.ACCOUNTS < outcome["balances"]["rows"] <= 2 * small_input.ACCOUNTS
    assert outcome["checks"]["passed"] > 10
    assert (outcome["checks"]["failed"], outcome["checks"]["errored"]) == (0, 0)
    assert outcome["verify"]["findings"] == []
    assert set(outcome["seconds"]) == {"load", "sweep", "spark", "tables", "proof", "all"}
    by_delta = DeltaTable(outcome["tables"]["delta"]["payments"]).to_pyarrow_table()
    by_iceberg = StaticTable.from_metadata(outcome["tables"]["iceberg"]["payments"]).scan().to_arrow()
    for shown in (by_delta, by_iceberg):
        assert sorted(shown["trans_id"].to_pylist()) == sorted(ids_of_input())
    assert Path(outcome["report"]).is_file()


def test_the_store_holds_what_the_outcome_says(finished: Finished) -> None:
    """Every payment is there once, and each account has the turnover and the count that the file adds up to."""
    records = records_of_input()
    expected: dict[int, tuple[Decimal, int]] = {}
    for record in records:
        turnover, count = expected.get(int(record[1]), (Decimal(0), 0))
        amount = Decimal(record[5]) if record[3] == "PRIJEM" else -Decimal(record[5])
        expected[int(record[1])] = (turnover + amount, count + 1)
    with txn_engine.connect(finished.url) as engine:
        ids = engine.scan("payments").to_table(columns=["trans_id"])["trans_id"].to_pylist()
        rows = engine.scan("balances").to_table().to_pylist()
    assert sorted(ids) == ids_of_input()
    found: dict[int, tuple[Decimal, int]] = {}
    for row in rows:
        turnover, count = found.get(row["account_id"], (Decimal(0), 0))
        found[row["account_id"]] = (turnover + row["turnover"], count + row["payments"])
    assert found == expected


@pytest.mark.shard("machine")
def test_the_demo_brings_its_own_payments(tmp_path: Path) -> None:
    """Without a file and a store the demo loads its own sample into a store in a new folder."""
    process = run(tmp_path, "--json")
    assert process.returncode == 0, process.stderr
    outcome = json.loads(process.stdout)
    assert (outcome["ok"], outcome["unexpected"]) == (True, [])
    assert outcome["rows"]["in"] == outcome["rows"]["committed"] == sample.ROWS
    assert [path.name for path in tmp_path.iterdir()] == ["txn-engine-demo"]


@pytest.mark.shard("machine")
def test_a_demo_that_is_told_to_stop_leaves_no_process(tmp_path: Path) -> None:
    """After SIGTERM the demo prints one line and exits with 143, and every process that it started has ended."""
    demo = subprocess.Popen(
        command(), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    limit = threading.Timer(120, demo.kill)
    limit.start()
    try:
        assert demo.stdout is not None
        assert any("producers, each" in line for line in demo.stdout)
        started = _children(demo.pid)
        assert len(started) == 5  # three loaders, Airflow, Spark
        demo.send_signal(signal.SIGTERM)
        _, said = demo.communicate(timeout=60)
    finally:
        limit.cancel()
        demo.kill()
    assert demo.returncode == 143
    assert re.fullmatch(r"error: stopped by SIGTERM.*\n", said)
    wait_for(
        lambda: not any(_group_lives(pid) for pid in started),
        what="the end of the processes that the demo started",
        seen=lambda: [pid for pid in started if _group_lives(pid)],
    )


def _children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    return [child for child, parent in pairs if parent == pid]


def _group_lives(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True
