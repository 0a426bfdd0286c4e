"""What the texts of a file look like: a type, or a number or a date that needs options to be read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

_WORDS_OF_BOOL = "(?i)^(true|false)$"  # 0 and 1 are numbers until somebody says more
FORMS: Mapping[str, str] = {
    "bool": _WORDS_OF_BOOL,
    "int64": "^(0|-?[1-9][0-9]*)$",  # 1.0 is an amount, whose next value may be 1.5
    "decimal": "^((0|-?[1-9][0-9]*)|-?(0|[1-9][0-9]*)MARK[0-9]+)$",
    "float64": "^((0|-?[1-9][0-9]*)([eE]|$)|-?(0|[1-9][0-9]*)MARK)",
}
"""What texts of a type look like at least, if the type is to be inferred: not +5 and -0, which may be codes as 007 may,
and would come back without their sign.
"""
FORMS_OF_JSON: Mapping[str, str] = {
    "bool": _WORDS_OF_BOOL,
    "int64": "^-?[0-9]+$",
    "decimal": "^-?[0-9]+(MARK[0-9]+)?$",
    "float64": "^-?[0-9]",
}
"""The same of JSON, whose numbers are no codes."""


def hint_of(value: str, reading: Mapping[str, Any]) -> str | None:
    """The options with which a value is a number or a date, if it looks like one."""
    for form, options in _LOOKS_LIKE:
        if re.fullmatch(form, value):
            return (
                None if all(reading.get(name) == given for name, given in options.items()) else _try(options)
            )
    return None


def _try(options: Mapping[str, str]) -> str:
    said = " ".join(f"--{name.replace('_', '-')} {shlex.quote(given)}" for name, given in options.items())
    return f"try `{said}`"


_LOOKS_LIKE: Sequence[tuple[str, Mapping[str, str]]] = (
    (r"[+-]?[0-9]{1,3}(\.[0-9]{3})+,[0-9]+", {"decimal": ",", "thousands": "."}),
    (r"[+-]?[0-9]{1,3}( [0-9]{3})+,[0-9]+", {"decimal": ",", "thousands": " "}),
    (r"[+-]?[0-9]{1,3}('[0-9]{3})+(\.[0-9]+)?", {"thousands": "'"}),
    (r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?", {"thousands": ","}),
    (r"[+-]?[0-9]+,[0-9]+", {"decimal": ","}),
    (r"(0[1-9]|[12][0-9]|3[01])\.(0[1-9]|1[0-2])\.[0-9]{4}", {"date_format": "%d.%m.%Y"}),
)
"""Forms of numbers and dates that need options, the narrower ones first."""
