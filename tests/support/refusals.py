"""What a test says of an error: its class and its reason. Its words are tested where they are made."""

from __future__ import annotations

from enum import StrEnum

import pytest

from txn_engine.errors import CorruptObjectError, TxnEngineError


def refused(kind: type[TxnEngineError], reason: StrEnum) -> pytest.RaisesExc[TxnEngineError]:
    """The block raises an error of this class for this reason."""
    return pytest.raises(kind, check=lambda error: error.reason is reason)


def damaged_at(place: str) -> pytest.RaisesExc[CorruptObjectError]:
    """The block finds damage in an object whose key, or whose folder, has this text."""
    return pytest.raises(CorruptObjectError, check=lambda error: place in str(error.place))
