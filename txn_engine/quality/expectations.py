"""Great Expectations, imported once, in memory and silent."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import LazyLoader, find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from txn_engine.quality.quiet import quiet

if TYPE_CHECKING:
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext

_SLOW = "rfc3987_syntax"
"""What jsonschema checks the formats `iri` and `iri-reference` with, if it is there. No schema here names one, and its
grammar takes a third of the time of the whole import.
"""
_RARELY_USED: Final = frozenset({"scipy.stats", "altair"})
"""What three kinds of expectations compute and draw with. They take a third of what is left of the import."""


def import_great_expectations() -> None:
    """Import it, with its analytics switched off, and with a linear engine for regular expressions."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read when Great Expectations is imported
    with _without(_SLOW), _lazily(_RARELY_USED), quiet():
        import great_expectations  # noqa: F401

        import txn_engine.quality.linear_regex  # noqa: F401


def new_context() -> EphemeralDataContext:
    """A context in memory that sends nothing anywhere, draws no progress bars and leaves no folder behind."""
    import_great_expectations()
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
    for site, definition in dict(context.variables.data_docs_sites or {}).items():
        context.delete_data_docs_site(site)
        folder = definition.get("store_backend", {}).get("base_directory")
        if folder:
            shutil.rmtree(Path(folder), ignore_errors=True)
    return context


def exception_in(info: Mapping[str, Any] | None) -> str | None:
    """What an exception said: Great Expectations' `exception_info` is one record, or one for each metric."""
    if not info:
        return None
    records = (
        [info] if "raised_exception" in info else [one for one in info.values() if isinstance(one, Mapping)]
    )
    for record in records:
        if record.get("raised_exception"):
            return str(record.get("exception_message") or "an exception without a message")
    return None


@contextmanager
def _without(module: str) -> Iterator[None]:
    """As if the module were not installed, unless it is imported already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # an import of it fails
    try:
        yield
    finally:
        del sys.modules[module]


class _LazyFinder(MetaPathFinder):
    """Finds modules of these names so that each is executed at its first use."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._is_looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module as others find it, with a loader that waits."""
        del path, target
        if fullname not in self._names or self._is_looking:
            return None
        self._is_looking = True  # the others are asked in turn, and this one with them
        try:
            found = find_spec(fullname)
        finally:
            self._is_looking = False
        if found is not None and found.loader is not None:
            found.loader = LazyLoader(found.loader)
        return found


@contextmanager
def _lazily(names: frozenset[str]) -> Iterator[None]:
    """Imports of these modules inside the block load them at their first use."""
    finder = _LazyFinder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
