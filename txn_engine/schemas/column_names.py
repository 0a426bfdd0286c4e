"""A table's column names against a topic's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

_SHOWN_MAX = 10


def names_unlike(missing: Sequence[str], unknown: Sequence[str], twice: Sequence[str]) -> str:
    """What is wrong, as an error says it: "column 'a' is missing, columns 'x' and 'y' are unknown"."""
    found = ((missing, "missing"), (unknown, "unknown"), (twice, "given twice"))
    return ", ".join(_told(list(dict.fromkeys(names)), word) for names, word in found if names)


def given_twice(names: Sequence[str]) -> list[str]:
    """The names that are there more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def first_alike(names: Sequence[str]) -> tuple[str, str] | None:
    """The first two names that differ at most in upper and lower case."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.casefold())
        if other is not None:
            return other, name
        seen[name.casefold()] = name
    return None


def _told(names: list[str], word: str) -> str:
    shown = [repr(name) for name in names[:_SHOWN_MAX]]
    if len(names) > _SHOWN_MAX:
        shown.append(f"{len(names) - _SHOWN_MAX} more")
    listed = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    return f"column {listed} is {word}" if len(names) == 1 else f"columns {listed} are {word}"
