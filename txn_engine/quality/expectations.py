"""Great Expectations, imported once, in memory and silent."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext

_SLOW = "rfc3987_syntax"
"""What jsonschema checks the formats `iri` and `iri-reference` with, if it is there. No schema here names one, and its
grammar takes a third of the time of the whole import.
"""


def import_great_expectations() -> None:
    """Import it, with its analytics switched off."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read when Great Expectations is imported
    with _without(_SLOW):
        import great_expectations  # noqa: F401


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
