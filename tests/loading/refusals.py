"""What a test expects of a refusal: its reason and its place, whatever its words are."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from txn_engine.errors import TxnEngineError


def because(reason: StrEnum | None, place: str = "") -> Callable[[TxnEngineError], bool]:
    """A check for `pytest.raises` that the error has this reason, and this text in its place."""

    def check(error: TxnEngineError) -> bool:
        assert (error.reason, place in (error.place or "")) == (reason, True), error
        assert "\n" not in str(error)
        return True

    return check
