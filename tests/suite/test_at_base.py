"""A failed test is run again at the commit that the change began from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.suite import at_base
from tests.suite.at_base import outcomes_at

BEFORE = """
import pytest, time
def test_sound(): pass
def test_broken(): assert False
def test_skipped(): pytest.skip()
def test_endless(): time.sleep(600)
"""
NEEDS_MORE = "import no_such_module\ndef test_x(): pass\n"


@pytest.mark.shard("machine")
def test_a_failure_of_the_base_is_told_from_one_of_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that pass, fail, are skipped or do not exist at the base commit are distinguished. A test that could not be
    imported there, or did not end in time, has no result. The work tree is left as it is."""
    root = tmp_path / "repository"
    (root / "tests").mkdir(parents=True)
    (root / "pytest.ini").write_text("[pytest]\n")
    test = root / "tests" / "test_it.py"
    test.write_text(BEFORE)
    (root / "tests" / "test_more.py").write_text(NEEDS_MORE)
    monkeypatch.setattr(at_base, "REPOSITORY", root)
    monkeypatch.setattr(at_base, "LIMIT_S", 60)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "before"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    changed = BEFORE + "def test_new(): assert False\n"
    test.write_text(changed)
    names = ("sound", "broken", "skipped", "new")
    found = outcomes_at("HEAD", [f"tests/test_it.py::test_{name}" for name in names], tmp_path / "base")
    assert list(found.values()) == ["passed", "failed", "skipped", "missing"]
    assert outcomes_at("HEAD", ["tests/test_more.py::test_x"], tmp_path / "base") == {
        "tests/test_more.py::test_x": "not run"
    }
    monkeypatch.setattr(at_base, "LIMIT_S", 3)
    assert outcomes_at("HEAD", ["tests/test_it.py::test_endless"], tmp_path / "base") == {
        "tests/test_it.py::test_endless": "not run"
    }
    assert outcomes_at("HEAD", ["tests/test_other.py::test_x"], tmp_path / "base") == {
        "tests/test_other.py::test_x": "missing"
    }
    assert test.read_text() == changed
