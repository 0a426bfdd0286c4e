"""The data sets that stand beside the repository, not in it: a fixture for tests that need them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of shared data sets: `TXN_ENGINE_SHARED`, else `shared` beside the repository; then `data` in it.

    Where it is missing, the test is skipped on a developer's machine and fails in CI (`CI` is set).
    """
    folder = Path(os.environ.get("TXN_ENGINE_SHARED") or REPOSITORY.parent / "shared") / "data"
    if not folder.is_dir():
        missing = f"shared data is not at {folder}; set TXN_ENGINE_SHARED to the folder that holds `data`"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return folder
