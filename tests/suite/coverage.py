"""Lines and branches of the package that a run of the tests covers, with all of its processes.

    python -m tests.suite.coverage                        run `make test`'s tests and report by package
    python -m tests.suite.coverage --against OLD.json     compare with an earlier report
    python -m tests.suite.coverage --report-only          report again what the last run left
    python -m tests.suite.coverage --by-test              also note which test covers a line (takes twice as long)
    python -m tests.suite.coverage --keep tests/live     go on from the last run, whose data are kept

Child processes count: the command line, Airflow's tasks, Spark's Python workers, and processes that a test kills. The
arguments that it does not know go to pytest. The report is `.cache/coverage/report.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / ".cache" / "coverage"
DATA, REPORT = FOLDER / "data" / "c", FOLDER / "report.json"
SETTINGS = Path(__file__).with_name("coverage.ini")
SOURCES = ("storage", "txn_engine", "plugins", "dags")
GREENLETS = (
    "tests/simulator",
    "tests/engine/test_rounds.py",
    "tests/engine/test_turns.py",
    "tests/verify/test_kept.py",
)
"""The tests that run the engine in greenlets. They are measured by themselves: where many threads end, the measurement
of greenlets hangs (greenlet frees those of a dead thread in the main thread, whose tracer then asks for the current
one)."""


def measure(arguments: Sequence[str], *, by_test: bool = False, keep: bool = False) -> int:
    """Run pytest with these arguments, measured; its exit code. `keep`: the data of earlier runs stay."""
    if not keep:
        shutil.rmtree(DATA.parent, ignore_errors=True)
    DATA.parent.mkdir(parents=True, exist_ok=True)
    named = [
        each for each in arguments if not each.startswith("-") and Path(each.partition("::")[0]).exists()
    ]
    if named:
        has_greenlets = all(each.startswith(GREENLETS) for each in named)
        return _run(arguments, by_test=by_test, has_greenlets=has_greenlets)
    others = [*arguments, *(f"--ignore={each}" for each in GREENLETS)]
    statuses = [
        _run(others, by_test=by_test, has_greenlets=False),
        _run([*arguments, "-m", "not shard", *GREENLETS], by_test=by_test, has_greenlets=True),
    ]
    return max(statuses)


def _run(arguments: Sequence[str], *, by_test: bool, has_greenlets: bool) -> int:
    settings = FOLDER / "measuring.ini"
    text = SETTINGS.read_text(encoding="utf-8")
    if not has_greenlets:
        text = text.replace("thread, greenlet,", "thread,")
    lines = text.splitlines(keepends=True)
    settings.write_text("".join(line for line in lines if by_test or not line.startswith("context")))
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest"]
    workers = os.environ.get("WORKERS", "").split()
    plugin = ["-p", "tests.suite.measured_children"]
    plugin += ["-p", "tests.suite.measured_test"] if by_test else []
    limit = ["-o", "timeout=1500"]  # a measured process is slower
    return subprocess.run(
        [*command, *workers, *plugin, *limit, *arguments], cwd=REPOSITORY, env=_environment(), check=False
    ).returncode


def combine(folders: Sequence[Path]) -> None:
    """Write the report of the data in these folders."""
    combined = FOLDER / "combined"
    combined.unlink(missing_ok=True)
    environment = {**_environment(), "MEASURED_DATA": str(combined)}
    coverage = [sys.executable, "-m", "coverage"]
    files = [str(path) for folder in folders for path in sorted(folder.glob("c.*"))]
    settings = f"--rcfile={SETTINGS}"
    subprocess.run([*coverage, "combine", "--keep", "-q", settings, *files], env=environment, check=True)
    written = FOLDER / "reported.ini"
    sources = "".join(f"\n    {REPOSITORY / name}" for name in SOURCES)
    written.write_text(f"[run]\nbranch = true\ndata_file = {combined}\nsource ={sources}\n")
    subprocess.run(
        [*coverage, "json", f"--rcfile={written}", "-q", "-i", "-o", REPORT], cwd=REPOSITORY, check=True
    )


def _environment() -> dict[str, str]:
    return {**os.environ, "MEASURED_ROOT": str(REPOSITORY), "MEASURED_DATA": str(DATA)}


def by_package(report: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """For each package: covered lines and branches, and how many there are. The empty name is the total."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path, row in report["files"].items():
        summary = row["summary"]
        for name in ("", package_of(path)):
            sums[name][0] += summary["covered_lines"] + summary["covered_branches"]
            sums[name][1] += summary["num_statements"] + summary["num_branches"]
    return {name: (covered, everything) for name, (covered, everything) in sums.items()}


def package_of(path: str) -> str:
    """A file's package: the first two names of its path, or the first alone."""
    parts = Path(path).parent.parts
    return "/".join(parts[:2])


def percent(counts: tuple[int, int] | None) -> float:
    """The share of the lines and branches that were covered."""
    covered, everything = counts or (0, 0)
    return 100 * covered / everything if everything else 100.0


def lines_of(found: Mapping[str, tuple[int, int]], before: Mapping[str, tuple[int, int]] | None) -> list[str]:
    """A line for each package, and one for the total."""
    lines = []
    for name in sorted(found, key=lambda name: (name == "", name)):
        line = f"{percent(found[name]):7.2f} %  {found[name][1]:7d}  {name or 'total'}"
        if before is not None and name in before:
            line += f"  ({percent(found[name]) - percent(before[name]):+.2f} points)"
        lines.append(line)
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite.coverage", description=__doc__)
    parser.add_argument("--against", type=Path, help="an earlier report.json to compare with")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    parser.add_argument("--by-test", action="store_true", help="note which test covers a line")
    parser.add_argument("--keep", action="store_true", help="add to the data of the last run")
    chosen, rest = parser.parse_known_args(arguments)
    status = 0 if chosen.report_only else measure(rest, by_test=chosen.by_test, keep=chosen.keep)
    combine([DATA.parent])
    before = None if chosen.against is None else by_package(json.loads(chosen.against.read_text()))
    print("covered lines and branches, their number, package")
    print("\n".join(lines_of(by_package(json.loads(REPORT.read_text())), before)))
    return status


if __name__ == "__main__":
    sys.exit(main())
