"""`txn-engine produce --engine spark` loads files by Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import SCHEMA, Command, payments
from tests.spark.test_loading import csv_of
from tests.support.servers import REPOSITORY
from txn_engine.engine import Engine

pytestmark = pytest.mark.spark


def produce(ledger: Engine, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with Spark as its engine."""
    command = [
        sys.executable,
        "-m",
        "txn_engine.cli.main",
        "produce",
        "payments",
        "--url",
        ledger.url,
        "--engine",
    ]
    return subprocess.run(
        [*command, "spark", *arguments],
        cwd=REPOSITORY,
        env=os.environ | {"TXN_ENGINE_URL": ""},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def write_days(folder: Path) -> list[str]:
    """Three files, and the options that load them in one run."""
    for number in range(3):
        (folder / f"day{number}.csv").write_text(csv_of(payments(100 * number, 100)))
    return [f"{folder}/day*.csv", "--run-id", "may", "--spark-conf", "spark.master=local[1]", "--json"]


@pytest.mark.shard("spark")
@pytest.mark.slow
def test_files_once_for_a_run(ledger: Engine, command: Command, tmp_path: Path) -> None:
    """The files of a pattern are loaded in one transaction. The same run again reports that it is committed and loads
    nothing. A bad row is named by file and line.
    """
    options = write_days(tmp_path)
    load = ("produce", "payments", "--engine", "spark")
    told = command(ledger, *load, *options).json
    assert (told["records"], told["committed_before"]) == (300, False)
    assert told["transactional_id"] == "load-files/payments"
    assert sum(row["records"] for row in told["produced"]) == 300
    again = command(ledger, *load, *options).json
    assert (again["records"], again["committed_before"]) == (0, True)
    assert ledger.scan("payments").to_table(SCHEMA.names).num_rows == 300

    (tmp_path / "day1.csv").write_text(csv_of(payments(0, 1)).replace(".10", ".1234"))
    bad = command(ledger, *load, f"{tmp_path}/day*.csv", "--run-id", "june")
    assert bad.code == 1
    assert "day1.csv line 2" in bad.error
    assert ".1234" not in bad.error
    assert ledger.scan("payments").to_table(SCHEMA.names).num_rows == 300


@pytest.mark.slow
def test_a_process_says_nothing_of_spark(ledger: Engine, tmp_path: Path) -> None:
    """In a process of its own, the command's standard error is empty and its standard output is only the
    JSON."""
    done = produce(ledger, *write_days(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["records"] == 300


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x.csv"], "--engine spark needs --run-id"),
        (["x.csv", "--run-id", "may", "--partition", "0"], "--partition is not for --engine spark"),
        (
            ["x.csv", "--run-id", "may", "--spark-conf", "master=local"],
            "--spark-conf takes a setting of Spark's",
        ),
    ],
)
def test_options_that_are_refused(ledger: Engine, command: Command, arguments: list[str], words: str) -> None:
    """Options that do not go with Spark are usage errors in one line, before a session is started."""
    refused = command(ledger, "produce", "payments", "--engine", "spark", *arguments)
    assert refused.code == 2
    assert words in refused.error
