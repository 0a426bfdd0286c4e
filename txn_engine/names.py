"""Text that callers give and the log keeps: ids, names of runs, what goes along with a commit; and how it is shown."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from typing import Final
from unicodedata import category, combining, name

NEW_NAME: Final = (
    "visible characters in their usual form (Unicode's NFC, no variants), with single spaces inside alone"
)
"""What `is_new_name` asks for, as errors say it."""

_UNSEEN_BY_JSON = re.compile("[^\\n\\x20-\\x7e]")
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\ufffc\u2d7f\U0001107f\U00016fe4\U0001bc9d\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt of Unicode 17), which show nothing; U+2800, the
pattern of Braille without dots; and a few marks and symbols that are not drawn."""

_OVERLAY: Final = 1
"""The combining class of strokes through a letter."""
_SIGNS: Final = re.compile("[\xb2\xb3\xb9\xbc-\xbe\xaa\xba\u2026\u2116\u2122]")
"""Variants that people write and nobody mistakes: ² ³ ¹ ¼ ½ ¾ ª º … № ™."""
_DOTTED_TWICE: Final = re.compile(
    "[ij\u0131\u0237\u012f\u0249\u0268\u029d\u02b2\u03f3\u0456\u0458\u1d62\u1d96\u1da4\u1da8\u1e2d\u1ecb\u2071\u2c7c\U0001df1a\U0001e04c"
    "\U0001e04d\U0001e068][\u0300-\u036f]*\u0307"
)
"""Letters that lose their dot to a mark above (Unicode's Soft_Dotted), or have none, and then show a dot again."""

_STACKERS: Final = {
    "\u1039": "MYANMAR ",
    "\u17d2": "KHMER ",
    "\u1a60": "TAI THAM ",
    "\u1bab": "SUNDANESE ",
    "\uaaf6": "MEETEI MAYEK ",
    "\U00010a3f": "KHAROSHTHI ",
    "\U00011133": "CHAKMA ",
    "\U0001193e": "DIVES AKURU ",
    "\U00011a47": "ZANABAZAR SQUARE ",
    "\U00011a99": "SOYOMBO ",
    "\U00011d45": "MASARAM GONDI ",
    "\U00011d97": "GUNJALA GONDI ",
    "\U00011f42": "KAWI ",
}
"""Marks that put the next letter of their script below the one before, and show nothing themselves (Unicode's
Invisible_Stacker), with what the names of that script's characters begin with."""


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
    paragraph separators, nothing that shows nothing, no space but the plain one, none of those at the ends and no two
    together. Letters with marks are written in one way (NFC), and but for a few signs no character is a variant of
    another one (NFKC), as wide and ligated letters are. A mark stands on a letter, and one that only
    stacks letters between two of its script. Letters of two scripts may look
    alike, and are permitted: names mix scripts. Logs from before this rule may hold others: they are read, and
    shown escaped.
    """
    return (
        is_seen(text)
        and text == text.strip(" ")
        and "  " not in text
        and _DOTTED_TWICE.search(text) is None
        and _marks_stand_on_letters(text)
        and _stackers_stand_in_their_script(text)
        and unicodedata.is_normalized("NFC", text)
        and unicodedata.is_normalized("NFKC", _SIGNS.sub("", text))
    )


def _marks_stand_on_letters(text: str) -> bool:
    """Whether each combining mark belongs to a letter: a line below an underscore, or a stroke through a hyphen, is not
    seen. None lies over the letter or around it, where one more is not seen, or looks like a letter with a stroke; and
    none is there twice in a row.
    """
    return all(
        category(char)[0] != "M"
        or (
            category(char) != "Me"
            and combining(char) != _OVERLAY
            and char != before
            and category(before)[0] in "LM"
        )
        for before, char in pairwise(f" {text}")
    )


def _stackers_stand_in_their_script(text: str) -> bool:
    """Whether each stacker has a letter of its own script behind it, and one, or a mark of one, before it."""
    padded = f" {text} "
    return all(
        name(before, "").startswith(script)
        and name(after, "").startswith(script)
        and category(after)[0] == "L"
        for before, char, after in zip(padded, padded[1:], padded[2:], strict=False)
        if (script := _STACKERS.get(char)) is not None
    )


def is_seen(text: str) -> bool:
    """Whether each character shows something, and moves nothing else."""
    return text.isprintable() and _IGNORABLE.search(text) is None


def printable(text: str) -> str:
    """The text without anything that would move a terminal's cursor, break a table's line, or not be seen."""
    return text if is_seen(text) else "".join(c if is_seen(c) else ascii(c)[1:-1] for c in text)


def json_printable(document: str) -> str:
    """A JSON document with each character that is not printable, which JSON itself leaves as it is, written as an
    escape: the same values, and nothing that a terminal would act on.
    """
    return _UNSEEN_BY_JSON.sub(_json_escaped, document)


def _json_escaped(found: re.Match[str]) -> str:
    char = found[0]
    if is_seen(char):
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
