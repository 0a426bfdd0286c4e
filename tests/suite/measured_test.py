"""A plugin of pytest: the coverage of a measured test process belongs to the test that runs."""

from __future__ import annotations

from collections.abc import Generator

import coverage
import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Data of the test process belong to the test that runs."""
    current = coverage.Coverage.current()
    if current is not None:
        current.switch_context(item.nodeid)
    return (yield)
