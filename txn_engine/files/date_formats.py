"""Dates and times in a format of `strptime`, which by itself takes more than a text says.

It believes the last of two directives that contradict each other, takes day 366 of any year for a day of the next,
reads 12-hour clocks without AM and PM, and forgets the names of zones. Here a format has only directives from which one
moment follows, and that moment, written in the format, has to be the text again.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason

_ACTOR = "load"
_DIRECTIVE = re.compile("%(.)", re.DOTALL)
_NUMBERS = "dfGHIjmMSuUVwWyY"
_PERMITTED = frozenset(_NUMBERS + "aAbBpz%")
_JOINED = re.compile(f"%[{_NUMBERS}](?=%[{_NUMBERS}]|[0-9])|[0-9]%[{_NUMBERS}]")
"""Numbers without anything between them."""
_NEEDS = {"I": "p", "p": "HI", "M": "HI", "S": "M", "f": "S"}
"""By a directive those of which the format has to have one, or the moment would be a guess."""


def checked_date_format(date_format: str | None, *, names_days: bool) -> str | None:
    """The format. names_days: whether there are columns of dates or times, so that it has to say the day.

    Raises `InvalidRequestError` where a text in this format would not say which moment it means.
    """
    if date_format is None:
        return None
    used = _DIRECTIVE.findall(date_format)
    for directive in used:
        if directive not in _PERMITTED:
            raise _refused(
                date_format, f"directives of {', '.join(f'%{each}' for each in sorted(_PERMITTED))}"
            )
        if directive in _NEEDS and not set(_NEEDS[directive]) & set(used):
            needed = " or ".join(f"%{each}" for each in _NEEDS[directive])
            raise _refused(date_format, f"{needed} where there is %{directive}")
    try:
        day = datetime(2001, 12, 31, tzinfo=UTC)
        says_day = datetime.strptime(day.strftime(date_format), date_format).date() == day.date()  # noqa: DTZ007 -- a day
    except (ValueError, re.error) as error:
        raise _refused(date_format, "one that strptime takes, as %Y-%m-%d", f": {error}") from error
    if names_days and not says_day:
        raise _refused(date_format, "one with year, month and day, as %Y-%m-%d or %y%m%d")
    return date_format


def _refused(date_format: str, expected: str, said: str = "") -> InvalidRequestError:
    return InvalidRequestError(
        f"date format {date_format!r}{said}", actor=_ACTOR, expected=expected, reason=Reason.BAD_ARGUMENT
    )


def parsed(text: str, date_format: str) -> datetime:
    """The moment that the text says, with a zone where it has one. ValueError where it says none, or two."""
    if any(char.isdecimal() and not char.isascii() for char in text):
        raise ValueError("a digit of another script")  # strptime takes them, ISO 8601 does not
    found = datetime.strptime(text, date_format)  # noqa: DTZ007 -- the caller judges the zone
    if found.strftime(date_format).casefold() != text.casefold():
        if _JOINED.search(date_format) is not None:  # "93011" as %y%m%d would else pass for 1993-01-01
            raise ValueError("digits missing")
        if not re.fullmatch(_spellings(found, date_format), text, re.IGNORECASE):
            raise ValueError("parts that contradict each other, or a day that the year does not have")
    return found


def _spellings(moment: datetime, date_format: str) -> str:
    """A pattern of all texts that spell the moment in the format: with or without zeros in front."""
    parts = _DIRECTIVE.split(date_format)
    found = ""
    for literal, directive in zip(parts[0::2], [*parts[1::2], ""], strict=True):
        found += r"\s+".join(map(re.escape, re.split(r"\s+", literal)))
        found += _spelling(moment, directive) if directive else ""
    return found


def _spelling(moment: datetime, directive: str) -> str:
    if directive == "z":
        return r"(Z|[+-][0-9:.]+)"
    said = moment.strftime(f"%{directive}")
    if directive == "f":
        return f"{said.rstrip('0')}0*" if said.rstrip("0") else "0+"
    return rf"\s?0*{said.lstrip('0 ') or '0'}" if directive in _NUMBERS else re.escape(said)
