"""Run the tests that just failed on the commit that the change began from, and say what they do there.

    python -m tests.suite.at_base FILE            FILE: what `pytest --results FILE` wrote; BASE=... names the commit

The exit code stays that of a failure: a test that fails is a failure, even if it fails at the base commit too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from tests.suite.shards import base_commit

REPOSITORY = Path(__file__).parents[2]
FAILED_MAX = 20
"""More than so many failures have one cause, and running them all again would only take time."""
LIMIT_S = 900
"""Of all tests together."""
WORDS = {
    "failed": "fails there too",
    "passed": "passes there: this change broke it, or it fails by chance",
    "skipped": "is skipped there",
    "missing": "does not exist there",
    "not run": "could not be run there, so nobody knows",
}


def outcomes_at(base: str, tests: Sequence[str], tree: Path) -> dict[str, str]:
    """For each test what it does at a commit, in a work tree of that commit: a key of `WORDS`."""
    if not tree.exists():
        subprocess.run(
            ["git", "worktree", "add", "--detach", "--force", tree, base], cwd=REPOSITORY, check=True
        )
    for name in (".venv", ".cache"):
        if not (tree / name).is_symlink():
            (tree / name).symlink_to(REPOSITORY / name)
    stop = time.monotonic() + LIMIT_S
    return {test: _outcome_at(test, tree, stop) for test in tests}


def _outcome_at(test: str, tree: Path, stop: float) -> str:
    if not (tree / test.partition("::")[0]).exists():
        return "missing"
    report = tree.with_suffix(".xml")
    report.unlink(missing_ok=True)
    cache = f"cache_dir={tree.with_suffix('.cache')}"  # the failures of this checkout stay known
    pytest = [sys.executable, "-m", "pytest", "-q", "-o", cache, f"--junitxml={report}", test]
    # The settings of the base's own tree: this one's name its DAGs and its plugins.
    own = 'if [ -f .ci/env ]; then . .ci/env; fi; exec "$@"'
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    try:
        code = subprocess.run(
            ["sh", "-c", own, "sh", *pytest],
            cwd=tree,
            env=environment | {"PYTHONPATH": f"{tree}{os.pathsep}{tree / 'plugins'}"},
            check=False,
            stdout=subprocess.DEVNULL,
            timeout=max(stop - time.monotonic(), 0),
        ).returncode
    except subprocess.TimeoutExpired:
        return "not run"
    if not report.exists():
        return "not run"
    found = _outcome(report)
    if code == _NOT_FOUND:  # the module has no such test, or cannot be imported
        return "not run" if found == "failed" else "missing"
    return found if code in (0, 1) else "not run"


_NOT_FOUND = 4


def _outcome(report: Path) -> str:
    suites = ElementTree.parse(report).getroot().findall("testsuite")
    counts = {
        name: sum(int(suite.get(name, "0")) for suite in suites)
        for name in ("tests", "failures", "errors", "skipped")
    }
    if counts["failures"] or counts["errors"]:
        return "failed"
    return "skipped" if counts["skipped"] == counts["tests"] else "passed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Say of each failed test what it does at the base commit."""
    (results,) = map(Path, sys.argv[1:] if arguments is None else arguments)
    if not results.exists():
        print(
            f"{results} does not exist: the run of the tests did not end, so nothing is tried at the base commit"
        )
        return 1
    tests = json.loads(results.read_text(encoding="utf-8"))["failed"]
    base = base_commit()
    if not tests or len(tests) > FAILED_MAX or base is None:
        why = "there is no earlier commit here (BASE=... names one)" if base is None else "1 to 20 are"
        print(f"{len(tests)} tests failed and are not tried at the base commit: {why}")
        return 1
    for test, outcome in outcomes_at(base, tests, REPOSITORY / ".cache" / "base" / base[:12]).items():
        print(f"at the base commit {base[:8]}: {test} {WORDS[outcome]}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
