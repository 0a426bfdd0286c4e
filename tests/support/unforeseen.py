"""To the engine an unforeseen error is a failure of one partition, and to a test that looks for mistakes it
is a finding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn
from unittest.mock import patch


@contextmanager
def as_it_was_raised() -> Iterator[None]:
    """The engine makes no `UnexpectedError` inside the block, so the exception leaves every job and every
    listing as it was raised."""
    with patch("txn_engine.unreadable.unexpected", _raise):
        yield


def _raise(place: str, error: Exception) -> NoReturn:
    raise error
