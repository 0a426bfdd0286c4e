"""Text that callers give and the log keeps: ids, names of runs, what goes along with a commit; and how it is shown."""

from __future__ import annotations

import re
from typing import Final

NEW_NAME: Final = "visible characters, with no spaces at the ends"
"""What `is_new_name` asks for, as errors say it."""

_UNSEEN_BY_JSON = re.compile("[^\\n\\x20-\\x7e]")


def is_storable(text: str) -> bool:
    """Whether the text is UTF-8. Bytes of a command line that are none come from Python as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_new_name(text: str) -> bool:
    """Whether an id, a group, a run or a column may get this name: it reads as it is written, and no two look alike
    because of what nobody sees.

    No control and format characters (Unicode's Cc and Cf), no surrogates, private or unassigned characters, no line and
    paragraph separators, no space but the plain one, and none of those at the ends. Logs from before this rule may hold
    some: they are read, and shown escaped.
    """
    return text.isprintable() and text == text.strip(" ")


def printable(text: str) -> str:
    """The text without anything that would move a terminal's cursor, break a table's line, or not be seen."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def json_printable(document: str) -> str:
    """A JSON document with each character that is not printable, which JSON itself leaves as it is, written as an
    escape: the same values, and nothing that a terminal would act on.
    """
    return _UNSEEN_BY_JSON.sub(_json_escaped, document)


def _json_escaped(found: re.Match[str]) -> str:
    char = found[0]
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
