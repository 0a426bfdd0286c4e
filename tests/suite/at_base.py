"""Run the tests that just failed on the commit that the change began from: a failure there too is not the change's.

    python -m tests.suite.at_base            BASE=... names the commit

The exit code stays that of a failure: a test that fails is a failure, even if the base fails too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from tests.suite.shards import base_commit

REPOSITORY = Path(__file__).parents[2]
LAST_FAILED = REPOSITORY / ".cache" / "pytest" / "v" / "cache" / "lastfailed"
FAILED_MAX = 20
"""More than so many failures have one cause, and running them all again would only take time."""
LIMIT_S = 900


def failed_tests() -> list[str]:
    """The node ids of the tests that failed in the last run."""
    if not LAST_FAILED.exists():
        return []
    return sorted(json.loads(LAST_FAILED.read_text(encoding="utf-8")))


def outcomes_at(base: str, tests: Sequence[str], tree: Path) -> dict[str, str]:
    """For each test what it does at a commit, in a work tree of that commit: passed, failed or missing."""
    if not tree.exists():
        subprocess.run(
            ["git", "worktree", "add", "--detach", "--force", tree, base], cwd=REPOSITORY, check=True
        )
    for name in (".venv", ".cache"):
        if not (tree / name).is_symlink():
            (tree / name).symlink_to(REPOSITORY / name)
    present = [test for test in tests if (tree / test.partition("::")[0]).exists()]
    found = dict.fromkeys(tests, "missing")
    environment = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'plugins'}"}
    for test in present:  # one by one: a test that is missing would end a run of several
        report = tree.with_suffix(".xml")
        report.unlink(missing_ok=True)
        cache = f"cache_dir={tree.with_suffix('.cache')}"  # the failures of this checkout stay known
        command = [sys.executable, "-m", "pytest", "-q", "-o", cache, test]
        try:
            subprocess.run(
                [*command, f"--junitxml={report}"],
                cwd=tree,
                env=environment,
                check=False,
                stdout=subprocess.DEVNULL,
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            found[test] = "failed"
            continue
        found[test] = _outcome(report)
    return found


def _outcome(report: Path) -> str:
    if not report.exists():
        return "missing"
    suites = ElementTree.parse(report).getroot().findall("testsuite")
    counts = {
        name: sum(int(suite.get(name, "0")) for suite in suites) for name in ("tests", "failures", "errors")
    }
    if not counts["tests"]:
        return "missing"
    return "failed" if counts["failures"] or counts["errors"] else "passed"


def main() -> int:
    """Say of each failed test what it does at the base commit."""
    tests = failed_tests()
    if not tests or len(tests) > FAILED_MAX:
        print(f"{len(tests)} tests failed: not tried at the base commit")
        return 1
    base = base_commit()
    tree = REPOSITORY / ".cache" / "base" / base[:12]
    words = {
        "failed": "fails there too, so this change did not break it",
        "passed": "passes there, so this change broke it or it fails by chance",
        "missing": "does not exist there",
    }
    for test, outcome in outcomes_at(base, tests, tree).items():
        print(f"at the base commit {base[:8]}: {test} {words[outcome]}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
