"""The fixtures give the scene in which every incident happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.incidents.scene import Scene


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()
