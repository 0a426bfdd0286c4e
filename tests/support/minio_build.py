"""MinIO is built during the set-up, and that takes minutes. The tests that need it run last and wait for the
build."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

_failure = pytest.StashKey[str]()


def needs_minio(item: pytest.Item) -> bool:
    """Whether a test needs MinIO, by its marker or because it asks for the program, directly or through
    another fixture."""
    return item.get_closest_marker("minio") is not None or "minio_program" in getattr(
        item, "fixturenames", ()
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests that need the server after all others, and keep the order otherwise."""
    items.sort(key=needs_minio)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Wait once, outside of any test's own time limit. Without a running build there is no wait."""
    if needs_minio(item) and _failure not in item.config.stash:
        item.config.stash[_failure] = "" if os.environ.get("TXN_ENGINE_MINIO") else _wait_for_build()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail every test that needs the server with the end of the build's output if the build failed."""
    if needs_minio(item) and (failure := item.config.stash[_failure]):
        pytest.fail(failure, pytrace=False)


def _wait_for_build() -> str:
    """Wait until no build is running. Returns the error of the last build, or an empty text if it
    succeeded."""
    waited = subprocess.run(
        [REPOSITORY / ".ci" / "setup-minio", "--wait"], check=False, capture_output=True, text=True
    )
    return "" if waited.returncode == 0 else waited.stderr
