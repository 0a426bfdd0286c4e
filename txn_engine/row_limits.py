"""What a row of a user's file may hold, for all that read such files: nobody keeps more of one in memory."""

from __future__ import annotations

import re
from typing import Any, Final

from txn_engine.reasons import Reason

ROW_CHARS_MAX: Final = 16 * 1024 * 1024
COLUMNS_MAX: Final = 10_000
VALUES_MAX: Final = 1_000_000
"""Of a line of JSON, and of the lines that are held together: a value of two characters takes a hundred bytes."""
_TEXTS: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def row_too_long(lines: int) -> dict[str, Any]:
    """What an error says of a row that has more, so far in so many lines."""
    return {
        "seen": f"a row of more than {ROW_CHARS_MAX:,} characters"
        + (f", {lines:,} lines" if lines > 1 else ""),
        "reason": Reason.ROW_TOO_LONG,
        "expected": f"at most {ROW_CHARS_MAX:,} in a row",
        "action": "is a quote open that nothing closes?" if lines > 1 else "is it text with line ends?",
    }


def values_at_most(line: str) -> int:
    """How many values JSON may have, by its commas and brackets; those in texts are not looked at if they are few."""
    found = _marks(line)
    return found if found <= VALUES_MAX else _marks(_TEXTS.sub("", line))


def _marks(line: str) -> int:
    return 1 + line.count(",") + line.count("[") + line.count("{")


def too_many_values() -> dict[str, Any]:
    """What an error says of a line of JSON that has more."""
    return {
        "seen": f"a line of JSON with more than {VALUES_MAX:,} values",
        "reason": Reason.TOO_MANY_VALUES,
        "expected": f"at most {VALUES_MAX:,} in a line",
        "action": "write long lists to Parquet, or to several lines",
    }


def too_many_columns() -> dict[str, Any]:
    """What an error says of a file that names more."""
    return {
        "seen": f"more than {COLUMNS_MAX:,} columns",
        "reason": Reason.TOO_MANY_COLUMNS,
        "expected": f"at most {COLUMNS_MAX:,}",
    }
