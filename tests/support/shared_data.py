"""The data sets that stand beside the repository, not in it: a fixture for tests that need them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of shared data sets: `data` in what `TXN_ENGINE_SHARED` names, else in `shared` beside the repository.

    A folder that is named and not there fails the test: CI names it (.ci/run). In a clone that has none the test is
    skipped; what it holds against real data, another holds against data that the repository brings or makes.
    """
    named = os.environ.get("TXN_ENGINE_SHARED")
    folder = Path(named or REPOSITORY.parent / "shared") / "data"
    if folder.is_dir():
        return folder
    if named:
        pytest.fail(f"TXN_ENGINE_SHARED={named} holds no folder `data`")
    pytest.skip(f"no shared data at {folder}; TXN_ENGINE_SHARED may name the folder that holds `data`")
