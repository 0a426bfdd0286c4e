"""Which version of the package is installed."""

from __future__ import annotations

from importlib import metadata

PROGRAM = "txn-engine"


def version() -> str:
    """The installed version; "0+source" where the package runs from its source without being installed."""
    try:
        return metadata.version(PROGRAM)
    except metadata.PackageNotFoundError:
        return "0+source"
