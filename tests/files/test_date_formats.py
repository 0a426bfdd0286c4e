"""A date format says one moment, and a text whose parts contradict each other is refused."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn_engine.errors import InvalidRequestError
from txn_engine.files.date_formats import checked_date_format, parsed
from txn_engine.quality.canonical import cells_text


@pytest.mark.parametrize(
    ("text", "date_format", "expected"),
    [
        ("2026-01-31 01:30 PM", "%Y-%m-%d %I:%M %p", "2026-01-31 13:30:00"),
        ("2026-01-31 12:30 am", "%Y-%m-%d %I:%M %p", "2026-01-31 00:30:00"),
        ("2026-01-31 01:30 PM", "%Y-%m-%d %H:%M %p", None),
        ("2026-01-31 13:30 PM", "%Y-%m-%d %H:%M %p", "2026-01-31 13:30:00"),
        ("2026-01-31 031", "%Y-%m-%d %j", "2026-01-31 00:00:00"),
        ("2026-01-31 032", "%Y-%m-%d %j", None),
        ("2026-1-31 31", "%Y-%m-%d %j", "2026-01-31 00:00:00"),
        ("2026-01-31 25", "%Y-%m-%d %y", None),
        ("sat 2026-01-31", "%a %Y-%m-%d", "2026-01-31 00:00:00"),
        ("Sun 2026-01-31", "%a %Y-%m-%d", None),
        ("Saturday, 1.2.2026", "%A, %d.%m.%Y", None),
        ("Sunday, 1.2.2026", "%A, %d.%m.%Y", "2026-02-01 00:00:00"),
        ("2026-02-01 7 w04", "%Y-%m-%d %u w%W", "2026-02-01 00:00:00"),
        ("2026-02-01 7 w05", "%Y-%m-%d %u w%W", None),
        ("Sat 2026-01-31 9:05:01.5 +02:00", "%a %Y-%m-%d %H:%M:%S.%f %z", "2026-01-31 09:05:01.500000+02:00"),
        ("31JAN2026", "%d%b%Y", "2026-01-31 00:00:00"),
        ("2026031", "%Y%j", "2026-01-31 00:00:00"),
        ("2026-031", "%Y-%j", "2026-01-31 00:00:00"),
        ("2026-31", "%Y-%j", "2026-01-31 00:00:00"),
        ("2024-366", "%Y-%j", "2024-12-31 00:00:00"),
        ("2023-366", "%Y-%j", None),
        ("2020-W53-7", "%G-W%V-%u", "2021-01-03 00:00:00"),
        ("2021-W53-7", "%G-W%V-%u", None),
        ("93011", "%y%m%d", None),
        ("20261", "%Y0%m", None),
    ],
)
def test_what_a_text_says_twice_agrees(text: str, date_format: str, expected: str | None) -> None:
    """Parts of a text agree, or it is no date. Spellings without zeros and in other letters are taken."""
    try:
        found = str(parsed(text, date_format))
    except ValueError:
        found = None
    assert found == expected


@pytest.mark.parametrize(
    ("date_format", "needed"),
    [
        ("%Y-%m-%d %I:%M", "%p"),
        ("%Y-%m-%d %M", "%H"),
        ("%Y-%m-%d %H.%f", "%S"),
        ("%Y-%m-%d %p", "%I"),
        ("%c", "%Y"),
        ("%x %X", "%Y"),
        ("%Y-%m-%d %H:%M %Z", "%z"),
        ("%Y-%m", "day"),
        ("%m-%d %H:%M", "year"),
    ],
)
def test_a_format_from_which_no_moment_follows(date_format: str, needed: str) -> None:
    """A format that leaves a guess is refused, and the error says what it lacks."""
    with pytest.raises(InvalidRequestError) as caught:
        checked_date_format(date_format, names_days=True)
    assert needed in (caught.value.expected or "")


DIRECTIVES = [f"%{each}" for each in "aAbBdHIjmMpSuUVwWyYfG"]
MOMENTS = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2068, 12, 31))  # noqa: DTZ001 -- no zone: the text has none


def _permitted(date_format: str) -> bool:
    try:
        checked_date_format(date_format, names_days=True)
    except InvalidRequestError:
        return False
    return True


@given(
    st.sampled_from(["%Y %m %d", "%y/%b/%d", "%j %Y", "%d. %B %Y", "%G %V %u", "%Y %U %w", "%Y %W %a"]),
    st.lists(st.sampled_from(DIRECTIVES), unique=True, max_size=5),
    MOMENTS,
    MOMENTS,
    st.data(),
)
def test_no_contradiction_passes(
    day: str, more: list[str], moment: dt.datetime, other: dt.datetime, data: Any
) -> None:
    """A text in a permitted format is read as the moment that it spells. With one part of another moment it is
    refused, or that part is read too."""
    parts = [*day.split(" "), *(each for each in more if each not in day)]
    date_format = " ".join(parts)
    if not _permitted(date_format):
        return
    texts = [moment.strftime(part) for part in parts]
    found = parsed(" ".join(texts), date_format)
    assert found.date() == moment.date()
    assert [found.strftime(part) for part in parts] == texts
    place = data.draw(st.integers(0, len(parts) - 1))
    texts[place] = other.strftime(parts[place])
    try:
        found = parsed(" ".join(texts), date_format)
    except ValueError:
        return
    assert [found.strftime(part) for part in parts] == texts


@pytest.mark.parametrize(
    ("cell", "date_format", "expected"),
    [
        ("31JAN2026", "%d%b%Y", "2026-01-31"),
        ("Sun 1.2.2026", "%a %d.%m.%Y", "2026-02-01"),
        ("Sat 1.2.2026", "%a %d.%m.%Y", "Sat 1.2.2026"),
    ],
)
def test_the_check_of_loads_reads_dates_alike(cell: str, date_format: str, expected: str) -> None:
    """The exactly-once check, which has a reader of its own, takes the same cells for dates."""
    assert cells_text([cell], pa.date32(), date_format).to_pylist() == [expected]
