"""MinIO is built beside the set-up, and that takes minutes: the tests that need it come last and wait for the build."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

_failure = pytest.StashKey[str]()


def needs_minio(item: pytest.Item) -> bool:
    """By its marker, or because it asks for the server, directly or through another fixture."""
    return item.get_closest_marker("minio") is not None or "minio_server" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs the server runs after everything else; the order is otherwise as it was."""
    items.sort(key=needs_minio)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Wait once, outside of any test's own time limit. Without a build under way there is nothing to wait for."""
    if needs_minio(item) and _failure not in item.config.stash:
        item.config.stash[_failure] = "" if os.environ.get("TXN_ENGINE_MINIO") else _wait_for_build()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A build that failed fails every test that needs it, with the end of what it said."""
    if needs_minio(item) and (failure := item.config.stash[_failure]):
        pytest.fail(failure, pytrace=False)


def _wait_for_build() -> str:
    """Until no build is under way; then what went wrong with the last one, empty where nothing did."""
    waited = subprocess.run(
        [REPOSITORY / ".ci" / "setup-minio", "--wait"], check=False, capture_output=True, text=True
    )
    return "" if waited.returncode == 0 else waited.stderr
