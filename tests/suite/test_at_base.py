"""A failed test is run again at the commit that the change began from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.suite import at_base
from tests.suite.at_base import outcomes_at

BEFORE = """
def test_sound(): pass
def test_broken(): assert False
"""


@pytest.mark.shard("machine")
def test_a_failure_of_the_base_is_told_from_one_of_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that pass, fail and do not exist at the base commit are distinguished. The work tree is left as
    it is."""
    root = tmp_path / "repository"
    (root / "tests").mkdir(parents=True)
    (root / "pytest.ini").write_text("[pytest]\n")
    test = root / "tests" / "test_it.py"
    test.write_text(BEFORE)
    monkeypatch.setattr(at_base, "REPOSITORY", root)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "before"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    changed = BEFORE + "def test_new(): assert False\n"
    test.write_text(changed)
    names = ("sound", "broken", "new")
    found = outcomes_at("HEAD", [f"tests/test_it.py::test_{name}" for name in names], tmp_path / "base")
    assert [found[f"tests/test_it.py::test_{name}"] for name in names] == ["passed", "failed", "missing"]
    assert outcomes_at("HEAD", ["tests/test_other.py::test_x"], tmp_path / "base") == {
        "tests/test_other.py::test_x": "missing"
    }
    assert test.read_text() == changed
