"""The one place that makes random names. They come from the system's entropy, so a forked child cannot repeat them."""

from __future__ import annotations

import os
from collections.abc import Callable

IdSource = Callable[[], str]


def new_write_id() -> str:
    """32 hex digits, never the same twice: the name of one build of some bytes."""
    return os.urandom(16).hex()
