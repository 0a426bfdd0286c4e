"""Importing the package does not import Great Expectations, which comes with the first check."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from txn_engine.quality.expectations import new_context

ROOT = Path(__file__).parents[2]


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the code in a fresh interpreter."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=True)


def test_the_import_is_cheap() -> None:
    """DAG files and the command line can import the package without the cost of what they may not use."""
    heavy = ("great_expectations", "pandas", "jinja2", "duckdb", "yaml")
    code = f"import sys, txn_engine.quality; print([name for name in {heavy} if name in sys.modules])"
    assert run(code).stdout.strip() == "[]"


CONTEXT = "from txn_engine.quality.expectations import new_context\nnew_context()\n"
REPORT = (
    "from pathlib import Path\n"
    "from tests.quality.ledger import good_evidence\n"
    "from storage.memory import MemoryStore\n"
    "from txn_engine.quality.exactly_once import report_evidence\n"
    "from txn_engine.quality.in_process import InProcess\n"
    "folder = Path(sys.argv[1])\n"
    "with InProcess(MemoryStore()) as reducer:\n"
    "    assert report_evidence(good_evidence(folder), reducer, report_folder=folder).success\n"
)


def test_a_context_is_told_to_send_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Great Expectations is set to send nothing, whatever the environment says, and nothing is printed. The
    shard checks the same in a fresh process."""
    monkeypatch.setenv("GX_ANALYTICS_ENABLED", "true")
    new_context()
    assert os.environ["GX_ANALYTICS_ENABLED"] == "false"
    assert capfd.readouterr() == ("", "")


@pytest.mark.shard("damage")
@pytest.mark.parametrize("uses", [CONTEXT, REPORT], ids=["a context", "a report"])
def test_nothing_is_sent_anywhere(tmp_path: Path, uses: str) -> None:
    """In a fresh process, Great Expectations is set to send nothing, whatever the environment says, and
    nothing is printed."""
    setting = "os.environ['GX_ANALYTICS_ENABLED']"
    code = f"import os, sys; {setting} = 'true'\n{uses}print({setting})"
    done = run(code, str(tmp_path))
    assert done.stdout.strip() == "false"
    assert done.stderr == ""
