"""What nobody foresaw is a failure of one partition to the engine, and to who looks for mistakes in it a finding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn
from unittest.mock import patch


@contextmanager
def as_it_was_raised() -> Iterator[None]:
    """No `UnexpectedError` is made in here: the exception leaves every job and every listing as it is."""
    with patch("txn_engine.unreadable.unexpected", _raise):
        yield


def _raise(place: str, error: Exception) -> NoReturn:
    raise error
