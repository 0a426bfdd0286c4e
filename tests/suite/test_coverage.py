"""The measurement of coverage counts processes that are killed, and the report compares packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import coverage

from tests.suite.coverage import SETTINGS, by_package, lines_of, package_of

REPOSITORY = Path(__file__).parents[2]
CHILD = """
import os, signal, sys, time
import storage.work
storage.work.one()
print("done", flush=True)
if sys.argv[1] == "itself":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""
PARENT = """
import glob, subprocess, sys
import coverage
from tests.support.waiting import wait_for

def has_saved(process):
    for path in glob.glob(f"c.*pid{process}.*"):
        data = coverage.CoverageData(path)
        try:
            data.read()
        except coverage.exceptions.DataError:  # it is being made
            continue
        # a file is known before its lines are: the save may fall between the two
        if any(4 in (data.lines(file) or ()) for file in data.measured_files()):
            return True
    return False

for who in ("itself", "parent"):
    child = subprocess.Popen([sys.executable, "child.py", who], stdout=subprocess.PIPE)
    child.stdout.readline()
    if who == "parent":
        wait_for(lambda: has_saved(child.pid), what="the coverage of the child", limit_s=120, every_s=0.1)
        child.kill()
    child.wait()
"""


def test_a_killed_process_counts(tmp_path: Path) -> None:
    """A killed process counts, whether it kills itself or is killed. Its coverage belongs to the test that
    started it."""
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "__init__.py").touch()
    (tmp_path / "storage" / "work.py").write_text("def one():\n    return 1\n\ndef two():\n    return 2\n")
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / "parent.py").write_text(PARENT)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}",
        "MEASURED_ROOT": str(tmp_path),
        "MEASURED_DATA": str(tmp_path / "c"),
        "PYTEST_CURRENT_TEST": "that test",
    }
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={SETTINGS}", "parent.py"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    covered = []
    for path in tmp_path.glob("c.*"):
        data = coverage.CoverageData(str(path))
        data.read()
        for file in data.measured_files():
            assert data.measured_contexts() == {"that test"}
            covered.append((Path(file).name, sorted(data.lines(file) or ())))
    assert covered.count(("work.py", [1, 2, 4])) == 2


def test_the_report_sums_up_by_package() -> None:
    """The report counts lines and branches together, and shows a difference in points."""

    def row(lines: int, branches: int) -> dict[str, dict[str, int]]:
        return {
            "summary": {
                "covered_lines": lines,
                "covered_branches": branches,
                "num_statements": 10,
                "num_branches": 10,
            }
        }

    found = by_package({"files": {"txn_engine/log/a.py": row(10, 6), "txn_engine/errors.py": row(10, 10)}})
    assert found == {"": (36, 40), "txn_engine/log": (16, 20), "txn_engine": (20, 20)}
    assert lines_of(found, {"": (20, 40), "txn_engine/log": (18, 20)}) == [
        " 100.00 %       20  txn_engine",
        "  80.00 %       20  txn_engine/log  (-10.00 points)",
        "  90.00 %       40  total  (+40.00 points)",
    ]
    assert package_of("plugins/txn_engine_airflow/pages/app.py") == "plugins/txn_engine_airflow"
