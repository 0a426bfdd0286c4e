"""docs/TYPES.md, from the table that the tests go by."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from tests.support.servers import REPOSITORY
from tests.types.columns import SHAPES, TYPES, Column
from tests.types.expected import CREATION, Refusal, refusal_of
from tests.types.features import TITLES
from tests.types.wide import WIDE

PAGE = REPOSITORY / "docs" / "TYPES.md"
_HEAD = """\
# Types

Made from the tests by `make docs`; do not edit. A topic's column may have any Arrow type that Parquet can store
exactly, also inside structs, lists and maps. This page says for each type and each feature whether every value comes
through exactly, or how it is refused. Each cell is tested (`tests/types/test_types.py`, `test_postgres.py` and
`test_spark.py` beside it), with nulls, extremes, empty values, NaN and -0.0, at top level and as a member of a struct,
in a list and in a map.

**Layouts.** Arrow lays the same values out in several ways: text and bytes also as views, lists also as views, and
anything as a dictionary. A topic keeps the type that it was made with, and readers get that type. Data files, and all
that compacts, erases and compares records, have the values without these layouts, so no feature depends on them. A
dictionary is one for each part of a table that is read, and `ordered` stays. `produce` and loads take a column in any
layout of the topic's type: a view or a dictionary for text, a list of any layout for a list, members of a struct in any
order, and a column of nulls alone.

**Times** of milliseconds and of seconds reach further than microseconds, which Delta, Iceberg, Postgres and Spark
count. A record with a time of more than 292,000 years from 1970 is refused there, although the cell is `+`.

**A cell** is `+` where every value comes through exactly, and a letter where it is refused; with two signs, the first
is for the type at top level, the second for the type inside others.
"""


def page() -> str:
    """The page as the tests have it now."""
    features = {**TITLES, **WIDE}
    letters: dict[Refusal, str] = {}
    free = (chr(number) for number in count(ord("a")))
    rows = [_row(name, features, letters, free) for name in TYPES if name not in CREATION]
    return "\n".join([_HEAD, *_legend(features), *_table(features, rows), *_reasons(letters), *_never()])


def _legend(features: dict[str, str]) -> Iterator[str]:
    yield "## Features\n\n| | feature |\n|---|---|"
    for number, title in enumerate(features.values(), 1):
        yield f"| {number} | {title} |"
    yield ""


def _table(features: dict[str, str], rows: list[str]) -> Iterator[str]:
    yield "## Types and features\n"
    yield f"| type | {' | '.join(str(number) for number in range(1, len(features) + 1))} |"
    yield f"|---|{'---|' * len(features)}"
    yield from rows
    yield ""


def _row(name: str, features: dict[str, str], letters: dict[Refusal, str], free: Iterator[str]) -> str:
    cells = []
    for feature in features:
        signs = []
        for shape in SHAPES:
            refusal = refusal_of(feature, Column(name, shape))
            if refusal is not None and refusal not in letters:
                letters[refusal] = next(free)
            signs.append("+" if refusal is None else letters[refusal])
        cells.append(signs[0] if len(set(signs)) == 1 else " ".join(signs))
    return f"| {name} | {' | '.join(cells)} |"


def _reasons(letters: dict[Refusal, str]) -> Iterator[str]:
    yield "## Refusals\n\nThe call itself raises the error, and writes nothing.\n"
    yield "| | error | reason | because |\n|---|---|---|---|"
    for refusal, letter in letters.items():
        reason = "" if refusal.reason is None else f"`{refusal.reason}`"
        yield f"| {letter} | `{refusal.error.__name__}` | {reason} | {refusal.why} |"
    yield ""


def _never() -> Iterator[str]:
    yield "## Types that no topic can have\n"
    yield "Making the topic is refused, also where the type is inside another one.\n"
    yield "| type | error | reason | because |\n|---|---|---|---|"
    for name, refusal in CREATION.items():
        yield f"| {name} | `{refusal.error.__name__}` | `{refusal.reason}` | {refusal.why} |"
    yield ""
