"""A plugin of pytest: processes that a test starts are told so, also those that get a few variables only."""

from __future__ import annotations

import os

import pytest

from tests.suite.measured_process import STARTED_BY_A_TEST


def pytest_runtest_setup(item: pytest.Item) -> None:
    """From the first test on every process is one that a test starts."""
    del item
    os.environ[STARTED_BY_A_TEST] = "1"
