"""The shared data sets are next to the repository, not in it. This is a fixture for tests that need them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of shared data sets: `data` in the folder that `TXN_ENGINE_SHARED` names, else in `shared`
    next to the repository.

    If a folder is named and does not exist, the test fails, because CI names it (.ci/run). In a clone without
    the folder the test is skipped. Another test then checks the same with data that the repository brings or
    makes.
    """
    named = os.environ.get("TXN_ENGINE_SHARED")
    folder = Path(named or REPOSITORY.parent / "shared") / "data"
    if folder.is_dir():
        return folder
    if named:
        pytest.fail(f"TXN_ENGINE_SHARED={named} holds no folder `data`")
    pytest.skip(f"no shared data at {folder}; TXN_ENGINE_SHARED may name the folder that holds `data`")
