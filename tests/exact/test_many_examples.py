"""The properties of this folder hold with ten times as many examples, and with fresh ones."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.servers import REPOSITORY


@pytest.mark.shard("simulator")
@pytest.mark.timeout(1_200)
def test_every_property_with_many_examples() -> None:
    """A child process runs them, because the number of examples is fixed when the tests are imported."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "exact",
        "--hypothesis-profile",
        "many",
        "tests/exact",
    ]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-5_000:]
