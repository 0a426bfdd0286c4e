"""The templates of the reports, read and compiled once a process."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup


@functools.cache
def templates() -> jinja2.Environment:
    """Where they are had by name. What they are given is escaped, and a name that they are not given is an error."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("txn_engine.quality", "pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["coded"] = _coded
    return environment


def _coded(text: str) -> Markup:
    """Escaped text whose `backticks` are set as code."""
    from markupsafe import Markup, escape

    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )
