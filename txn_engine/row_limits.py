"""What a row of a text file may hold, for all that read users' files: nobody reads more of one into memory."""

from __future__ import annotations

from typing import Any, Final

from txn_engine.reasons import Reason

ROW_CHARS_MAX: Final = 16 * 1024 * 1024


def row_too_long(lines: int) -> dict[str, Any]:
    """What an error says of a row that has more, so far in so many lines."""
    return {
        "seen": f"a row of more than {ROW_CHARS_MAX:,} characters"
        + (f", {lines:,} lines" if lines > 1 else ""),
        "reason": Reason.ROW_TOO_LONG,
        "expected": f"at most {ROW_CHARS_MAX:,} in a row",
        "action": "is a quote open that nothing closes?" if lines > 1 else "is it text with line ends?",
    }
