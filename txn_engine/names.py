"""Text that callers give and the log keeps: ids, names of runs, what goes along with a commit."""

from __future__ import annotations


def is_storable(text: str) -> bool:
    """Whether the text is UTF-8. Bytes of a command line that are none come from Python as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
