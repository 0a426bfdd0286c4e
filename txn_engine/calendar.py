"""The calendar that Python, Arrow's texts and SQL have alike: the years 1 to 9999, in days since 1970-01-01."""

from __future__ import annotations

from typing import Final

FIRST_DAY: Final = -719_162
LAST_DAY: Final = 2_932_896
ERA_DAYS: Final = 146_097
"""In 400 years, after which the calendar comes again."""
DAY_SECONDS: Final = 86_400
PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""By Arrow's units."""
