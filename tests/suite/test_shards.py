"""The tests pin what each shard runs, which one CI picks, and what is recorded of a run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import numbers
from tests.suite import shards
from tests.suite.shards import BY_NAME, Shard, base_commit, changed_since, last_run, pick, run, table
from tests.suite.tiers import SHARDS

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of the test's own."""
    monkeypatch.setattr(numbers, "FOLDER", tmp_path / "numbers")
    monkeypatch.setattr(shards, "RESULTS", tmp_path)


def ran(name: str, *commands: str, monkeypatch: pytest.MonkeyPatch, passed: int = 5) -> numbers.Record:
    """Run a shard with these commands. `passed` of its tests pass and one is skipped."""
    write = "import json, sys; open(sys.argv[1], 'w').write(json.dumps({'passed': int(sys.argv[2]), 'skipped': 1}))"

    def tests_of(shard: Shard) -> list[str]:
        return [sys.executable, "-c", write, str(shards.results_of(shard)), str(passed)]

    monkeypatch.setattr(shards, "tests_of", tests_of)
    return run(Shard(name, "", (), commands), seed=7, say=lambda line: None)


def test_there_are_at_most_eight_shards_and_each_covers_code_that_exists() -> None:
    """The shards have the names of the marks, and each path that they cover exists."""
    assert tuple(BY_NAME) == SHARDS
    assert len(SHARDS) <= 8
    for shard in BY_NAME.values():
        assert [path for path in shard.covers if not (REPOSITORY / path).exists()] == []


def test_every_package_is_covered() -> None:
    """A change of any package of the engine picks a shard by what it touches."""
    starts = [start for shard in BY_NAME.values() for start in shard.covers]
    packages = {path.parent for path in (REPOSITORY / "txn_engine").glob("*/__init__.py")}
    paths = [f"{package.relative_to(REPOSITORY)}/x.py" for package in packages]
    assert [path for path in paths if not any(path.startswith(start) for start in starts)] == []


def test_the_shard_that_covers_most_of_a_change_is_picked() -> None:
    """On every day the same shard is picked."""
    changed = ["txn_engine/verify/a.py", "storage/b.py", "txn_engine/spark/c.py", "README.md"]
    assert {pick(changed, day=day).name for day in range(8)} == {"damage"}


def test_a_module_of_tests_picks_the_shards_that_its_marks_name() -> None:
    """Wherever the module is: a change of a test that no other tier runs is run by CI."""
    marked = re.compile(r"(?:mark\.shard|in_shard)\(\s*\"(\w+)\"")
    found = 0
    for path in (REPOSITORY / "tests").rglob("test_*.py"):
        names = set(marked.findall(path.read_text(encoding="utf-8"))) & set(SHARDS)
        if names and path.parent.name != "suite":
            found += 1
            assert pick([str(path.relative_to(REPOSITORY))], day=3).name in names
    assert found > 50


def test_without_a_covered_change_the_shards_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a checkout without records the day decides, and later the shard that ran longest ago is picked."""
    assert {pick(["README.md"], day=day).name for day in range(8)} == set(SHARDS)
    for name in SHARDS:
        if name != "protocol":
            ran(name, monkeypatch=monkeypatch)
    assert {pick([], day=day).name for day in range(8)} == {"protocol"}


def test_a_change_of_everything_takes_turns_too() -> None:
    """No shard is the shard of a change that goes through most of them, so it does not always meet the same one."""
    changed = [f"{shard.covers[0]}x.py" for shard in BY_NAME.values()] + ["txn_engine/verify/a.py"]
    assert {pick(changed, day=day).name for day in range(8)} == set(SHARDS)


def test_every_command_runs_and_a_failure_is_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A failure does not hide what comes after it."""
    record = ran("spark", "false", f"touch {tmp_path}/{{seed}}-{{configuration}}", monkeypatch=monkeypatch)
    assert record.figures == {"failed": ["false"], "passed": 5, "skipped": 1}
    assert (tmp_path / "7-a").exists()
    assert last_run("spark") == record
    assert "FAILED: false" in table()
    assert ran("spark", "true", monkeypatch=monkeypatch).figures["failed"] == []
    assert "passed (5 tests passed, 1 skipped)" in table()
    assert last_run("kills") is None


def test_a_shard_whose_tests_were_all_skipped_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without the servers of a shard nothing is proven."""
    assert ran("spark", monkeypatch=monkeypatch, passed=0).figures["failed"] == ["no test passed"]


def test_the_results_of_a_run_are_written(tmp_path: Path) -> None:
    """`--results` counts the outcomes of this run, and names what failed."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.fixture\n"
        "def broken():\n    yield\n    assert False\n"
        "def test_good(): pass\n"
        "def test_bad(): assert False\n"
        "def test_end(broken): pass\n"
        "def test_not(): pytest.skip()\n"
    )
    results = tmp_path / "results.json"
    results.write_text("from before")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.suite.recording", "-p", "no:cacheprovider"]
    at = [f"--rootdir={tmp_path}", "-c", os.devnull, "--results", str(results), str(tmp_path)]
    subprocess.run([*command, *at], cwd=REPOSITORY, check=False, capture_output=True)
    found = json.loads(results.read_text())
    assert {name.rpartition("::")[2] for name in found.pop("failed")} == {"test_bad", "test_end"}
    assert found == {"passed": 1, "skipped": 1}


def test_a_command_that_is_cut_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that did not end proves nothing. Here the shard's tests do not end."""
    monkeypatch.setattr(shards, "LIMIT_S", 0.2)
    monkeypatch.setattr(shards, "GRACE_S", 0.2)
    monkeypatch.setattr(shards, "tests_of", lambda shard: ["sleep", "60"])
    cut = run(Shard("kills", "", (), ()), seed=7, say=lambda line: None)
    assert cut.figures["failed"] == ["sleep 60", "no test passed"]


def test_each_command_of_a_shard_names_a_program_of_the_tests() -> None:
    """A command that does not start would be found only when its shard runs."""
    modules = {line.split()[2] for shard in BY_NAME.values() for line in shard.commands}
    for module in modules - {"pytest"}:
        assert (REPOSITORY / module.replace(".", "/")).with_suffix(".py").exists() or (
            REPOSITORY / module.replace(".", "/") / "__main__.py"
        ).exists()
    for shard in BY_NAME.values():
        assert [path for path in shard.set_up if not (REPOSITORY / path).exists()] == []


def test_the_base_is_a_commit_that_is_known_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BASE may be any name of a commit. A repository with one commit has no base, and neither has a folder that is no
    repository."""
    monkeypatch.setattr(shards, "REPOSITORY", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.delenv("BASE", raising=False)
    assert base_commit() is None
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    assert base_commit() is None
    monkeypatch.setenv("BASE", "HEAD")
    newest = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert base_commit() == newest.stdout.strip()
    monkeypatch.setenv("BASE", "0000000")
    with pytest.raises(SystemExit):
        base_commit()


def test_changed_paths_are_those_since_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was added and not yet committed counts as changed."""
    monkeypatch.setattr(shards, "REPOSITORY", tmp_path)
    for command in ("init -q", "-c user.name=a -c user.email=a@b commit -q --allow-empty -m one"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    (tmp_path / "new.py").write_text("1\n")
    subprocess.run(["git", "add", "new.py"], cwd=tmp_path, check=True)
    assert changed_since("HEAD") == ["new.py"]
