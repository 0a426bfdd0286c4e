"""A cell of the table, tried: what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.types.columns import Column, as_json
from tests.types.expected import Refusal, refusal_of
from txn_engine.errors import TxnEngineError


def wrong_with(feature: str, column: Column, run: Callable[[Column], list[Any]]) -> str | None:
    """What is not as it should be; None where the cell is right."""
    expected = refusal_of(feature, column)
    try:
        found = run(column)
    except TxnEngineError as error:
        return _other_refusal(error, expected)
    except Exception as error:  # noqa: BLE001 -- what is no error of the engine's is wrong, and the other cells are tried too
        return f"{type(error).__name__}: {error}"[:300]
    if expected is not None:
        return f"not refused with {expected.reason}"
    given = column.values
    if found != given:
        at = next((n for n, pair in enumerate(zip(found, given, strict=False)) if pair[0] != pair[1]), None)
        if at is None:
            return f"{len(found)} rows, not {len(given)}"
        return f"row {at} is {as_json(found[at])}, not {as_json(given[at])}"
    return None


def _other_refusal(error: TxnEngineError, expected: Refusal | None) -> str | None:
    if "\n" in str(error):
        return f"more than one line: {error}"
    if expected is None or error.reason is not expected.reason or not isinstance(error, expected.error):
        return f"refused: {type(error).__name__} {error.reason}: {error}"[:300]
    return None
