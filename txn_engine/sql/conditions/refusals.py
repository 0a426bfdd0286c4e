"""How a condition is refused. No sentence quotes a value: a condition names a person, and errors go to logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason

ACTOR: Final = "erase"
CONDITION: Final = "a condition on the topic's columns, such as account_id = 42"
Node = Mapping[str, Any]


class Misfit(ValueError):  # noqa: N818 -- it is caught where the place in the condition is known
    """A literal that a type does not have. `action`: what to write instead."""

    def __init__(
        self, seen: str, action: str | None = None, reason: Reason = Reason.LITERAL_NOT_OF_TYPE
    ) -> None:
        super().__init__(seen)
        self.seen = seen
        self.action = action
        self.reason = reason


def refusal(
    seen: str,
    reason: Reason,
    *,
    place: str | None = None,
    expected: str = CONDITION,
    action: str | None = None,
) -> InvalidRequestError:
    """The error for a condition that is not evaluated."""
    return InvalidRequestError(
        seen, actor=ACTOR, place=place, expected=expected, action=action, reason=reason
    )
