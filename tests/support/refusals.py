"""What a test expects of an error: its class and its reason. Its words are tested where the error is made."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import pytest

from storage import StorageError
from txn_engine.errors import CorruptObjectError, TxnEngineError

Refusal = TypeVar("Refusal", bound=TxnEngineError | StorageError)


def refused(kind: type[Refusal], reason: StrEnum) -> pytest.RaisesExc[Refusal]:
    """The block raises an error of this class for this reason."""
    return pytest.raises(kind, check=lambda error: error.reason is reason)


def damaged_at(place: str) -> pytest.RaisesExc[CorruptObjectError]:
    """The block finds damage in an object whose key, or whose folder, has this text."""
    return pytest.raises(CorruptObjectError, check=lambda error: place in str(error.place))
