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


def refused_by_spark(kind: type[TxnEngineError], reason: StrEnum | None) -> pytest.RaisesExc[Exception]:
    """The block raises an exception of Spark's, for an error of exactly this class with this reason, or with none.

    The error was raised in one of Spark's processes, or in a callback of Spark's, so only its text arrives.
    """
    from txn_engine.spark.errors import SPARK_FAILURES, Fault, fault_of

    expected = Fault(kind.__name__, kind.code, reason)
    return pytest.raises(SPARK_FAILURES, check=lambda error: fault_of(error) == expected)


def damaged_at(place: str) -> pytest.RaisesExc[CorruptObjectError]:
    """The block finds damage in an object whose key, or whose folder, has this text."""
    return pytest.raises(CorruptObjectError, check=lambda error: place in str(error.place))
