"""What a row of a user's file may hold, for all that read such files: nobody keeps more of one in memory."""

from __future__ import annotations

from typing import Any, Final

from txn_engine.reasons import Reason

ROW_CHARS_MAX: Final = 16 * 1024 * 1024
COLUMNS_MAX: Final = 10_000


def row_too_long(lines: int) -> dict[str, Any]:
    """What an error says of a row that has more, so far in so many lines."""
    return {
        "seen": f"a row of more than {ROW_CHARS_MAX:,} characters"
        + (f", {lines:,} lines" if lines > 1 else ""),
        "reason": Reason.ROW_TOO_LONG,
        "expected": f"at most {ROW_CHARS_MAX:,} in a row",
        "action": "is a quote open that nothing closes?" if lines > 1 else "is it text with line ends?",
    }


def too_many_columns() -> dict[str, Any]:
    """What an error says of a file that names more."""
    return {
        "seen": f"more than {COLUMNS_MAX:,} columns",
        "reason": Reason.TOO_MANY_COLUMNS,
        "expected": f"at most {COLUMNS_MAX:,}",
    }
